//! Shows the progress of a run on standard error as a bar, plain lines or JSON. Decides nothing
//! about the run.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs;
use std::io::{self, IsTerminal};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Value, json};
use sluice_io::escape::{path_text, printable, printable_sentence};
use sluice_model::units;
use sluice_pipeline::Report;
use sluice_pipeline::report::Note;
use sluice_pipeline::run::{Milestone, Progress, Snapshot};

use crate::args::ProgressFormat;
use crate::embedding::Embedding;
use crate::log::{self, Level, log_message};
use crate::shell::{Shell, note_fields, note_text};
use crate::terminal::BarLine;

// Both fit into 80 columns, so that the line never wraps.
const BAR: &str =
    "{wide_bar} {percent:>3}% of {decimal_total_bytes}, {decimal_bytes_per_sec}, {msg}, {eta} left";
const SPINNER: &str = "{spinner} {decimal_bytes}, {decimal_bytes_per_sec}, {msg}, {elapsed}";

// For generated and live events: the number of bytes is unknown.
const EVENT_BAR: &str = "{wide_bar} {percent:>3}%, {msg}, {elapsed}, {eta} left";
const EVENT_SPINNER: &str = "{spinner} {msg}, {elapsed}";

// For recordings, which have no end: the whole line is our own message.
const RECORDING: &str = "{spinner} {wide_msg}";

// Before anything has been read.
const START: &str = "{spinner} {elapsed}";

const FINISHING: &str = "{spinner} {msg}, {elapsed}, finishing the outputs";

/// The interval between plain lines.
const PLAIN_INTERVAL: Duration = Duration::from_secs(5);

/// Shows the progress of a run.
pub(crate) struct ProgressMeter {
    style: MeterStyle,
    quiet: bool,
    verbose: bool,
    /// The caller of an embedded verb; nothing is shown then.
    embedding: Option<Arc<Embedding>>,
    started: Instant,
    state: Mutex<State>,
}

enum MeterStyle {
    Bar(ProgressBar),
    Plain,
    /// A JSON object per interval.
    Json(Duration),
    Silent,
}

struct State {
    last: Snapshot,
    last_update: Instant,
    /// The snapshot of the last update.
    last_shown: Snapshot,
    /// The file being recorded into, if any.
    file: Option<PathBuf>,
    /// Notes already printed, with the names of their nodes, and their counts then.
    notes: BTreeMap<(String, String), u64>,
    /// What is known of the run if it has failed.
    failed: Option<Report>,
}

impl ProgressMeter {
    /// Creates a meter. With `--quiet`, only JSON that was asked for is shown.
    pub(crate) fn new(form: ProgressFormat, shell: &Shell) -> Self {
        let Shell { quiet, verbose, .. } = *shell;
        let embedding = shell.embedding().cloned();
        let quiet = quiet || embedding.is_some();
        let form = match form {
            _ if embedding.is_some() => MeterStyle::Silent,
            ProgressFormat::Json => MeterStyle::Json(Duration::from_millis(500)),
            ProgressFormat::None => MeterStyle::Silent,
            _ if quiet => MeterStyle::Silent,
            _ if log::is_json() => MeterStyle::Json(PLAIN_INTERVAL),
            ProgressFormat::Auto if io::stderr().is_terminal() => bar(),
            ProgressFormat::Bar => bar(),
            ProgressFormat::Auto | ProgressFormat::Plain => MeterStyle::Plain,
        };
        let (started, last) = (Instant::now(), Snapshot::default());
        let state = State {
            last,
            last_update: started,
            last_shown: last,
            file: None,
            notes: BTreeMap::default(),
            failed: None,
        };
        let state = Mutex::new(state);
        Self { style: form, quiet, verbose, embedding, started, state }
    }

    /// Creates a meter for a run with these outputs. If one of them is the terminal, it is no bar,
    /// which would be drawn into the data, unless a bar was asked for.
    pub(crate) fn beside(outputs: &[PathBuf], form: ProgressFormat, shell: &Shell) -> Self {
        let is_hidden = form == ProgressFormat::Auto
            && !log::is_json()
            && outputs.iter().any(|output| is_terminal(output));
        Self::new(if is_hidden { ProgressFormat::None } else { form }, shell)
    }

    /// The caller, if the verb is embedded.
    pub(crate) fn embedding(&self) -> Option<&Arc<Embedding>> {
        self.embedding.as_ref()
    }

    /// Prints a message above the bar. Prints nothing with `--quiet`.
    pub(crate) fn println(&self, text: &str) {
        match &self.style {
            _ if self.quiet => {}
            MeterStyle::Bar(bar) => bar.suspend(|| log_message(text)),
            // A program reads each line as JSON, so plain text must not appear among them.
            MeterStyle::Json(_) if !log::is_json() => {}
            MeterStyle::Json(_) | MeterStyle::Plain | MeterStyle::Silent => log_message(text),
        }
    }

    /// Prints a warning above the bar.
    pub(crate) fn warn(&self, text: &str) {
        let line = labelled("warning:", text);
        self.println_with_fields(Level::Warning, "message", &line, json!({}));
    }

    /// Like [`println`](Self::println), with the kind and the fields of a JSON log record.
    fn println_with_fields(&self, level: Level, kind: &str, text: &str, fields: Value) {
        if !log::is_json() {
            self.println(text);
        } else if !self.quiet {
            log::log_json_message(level, kind, text, fields);
        }
    }

    /// Reports the file that is recorded into from now on.
    pub(crate) fn recording_into(&self, file: &Path) {
        self.println(&format!("writing {}", file.display()));
        let before = self.state().file.replace(file.to_owned());
        if let (None, MeterStyle::Bar(bar)) = (before, &self.style) {
            bar.set_style(style(RECORDING));
        }
    }

    /// Removes notes from the report that were printed during the run, unless they now have another
    /// count.
    pub(crate) fn drop_reported_notes(&self, report: &mut Report) {
        let state = self.state();
        report.notes.retain(|note| {
            let printed = state.notes.get(&(note.node.clone(), note.what.clone()));
            printed != Some(&note.count)
        });
    }

    /// What is known of the run if it has failed: the part of its report.
    pub(crate) fn failed_run(&self) -> Option<Report> {
        self.state().failed.clone()
    }

    /// Removes the bar, or prints the last JSON object.
    pub(crate) fn finish(&self) {
        match &self.style {
            MeterStyle::Bar(bar) => bar.finish_and_clear(),
            MeterStyle::Json(_) => self.print_json(&self.state().last, true),
            MeterStyle::Plain | MeterStyle::Silent => {}
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores the snapshot; returns an update if one is due.
    fn take_due_update(&self, snapshot: &Snapshot) -> Option<DueUpdate> {
        let mut state = self.state();
        state.last = *snapshot;
        let (pause, since) =
            (self.style.interval(state.file.is_some()), state.last_update.elapsed());
        if since < pause {
            return None;
        }
        state.last_update = Instant::now();
        let before = std::mem::replace(&mut state.last_shown, *snapshot);
        let recorded = state.file.as_deref().map(|file| RecordingRate {
            file: file.display().to_string(),
            events: snapshot.events.saturating_sub(before.events),
            bytes: snapshot.bytes.saturating_sub(before.bytes),
            seconds: since.as_secs_f64(),
        });
        Some(DueUpdate { recorded })
    }

    fn show(&self, snapshot: &Snapshot, due: &DueUpdate) {
        match (&self.style, &due.recorded) {
            (MeterStyle::Bar(bar), Some(recorded)) => {
                bar.set_message(self.recording_line(snapshot, recorded))
            }
            (MeterStyle::Plain, Some(recorded)) => {
                log_message(&self.recording_line(snapshot, recorded))
            }
            (MeterStyle::Bar(bar), None) => self.update_bar(bar, snapshot),
            (MeterStyle::Plain, None) => self.print_plain(snapshot),
            (MeterStyle::Json(_), _) => self.print_json(snapshot, false),
            (MeterStyle::Silent, _) => {}
        }
    }

    /// The line of a recording: totals, and rates since the last line.
    fn recording_line(&self, snapshot: &Snapshot, recorded: &RecordingRate) -> String {
        let RecordingRate { file, events: new, bytes, seconds: since } = recorded;
        let seconds = self.started.elapsed().as_secs();
        let rate = units::count((*new as f64 / since.max(1e-9)) as u64);
        let speed = units::throughput(*bytes, *since);
        let (read, events) = (units::bytes(snapshot.bytes), events_text(snapshot));
        format!("{file}: {seconds} s, {events}, {read}, {rate} events/s, {speed}")
    }

    fn print_plain(&self, snapshot: &Snapshot) {
        let seconds = self.started.elapsed().as_secs_f64();
        if snapshot.without_bytes {
            let rate = units::count((snapshot.events as f64 / seconds.max(1e-9)) as u64);
            log_message(&format!("{}, {rate} events/s, {seconds:.0} s", events_text(snapshot)));
            return;
        }
        let read = match snapshot.total_bytes {
            Some(total) => format!("{} of {}", units::bytes(snapshot.bytes), units::bytes(total)),
            None => units::bytes(snapshot.bytes),
        };
        let speed = units::throughput(snapshot.bytes, seconds);
        let inputs = inputs_done(snapshot).map(|inputs| format!("{inputs}, ")).unwrap_or_default();
        log_message(&format!(
            "{inputs}{read} read, {}, {speed}, {seconds:.0} s",
            events_text(snapshot)
        ));
    }

    fn print_json(&self, snapshot: &Snapshot, done: bool) {
        let mut line = json!({
            "bytes": snapshot.bytes,
            "total_bytes": snapshot.total_bytes,
            "events": snapshot.events,
            "damage": snapshot.damage,
            "lost": snapshot.lost,
            "seconds": self.started.elapsed().as_secs_f64(),
        });
        if let Some(fields) = line.as_object_mut() {
            if snapshot.units > 0 {
                fields.insert("units".into(), snapshot.units.into());
                fields.insert("units_done".into(), snapshot.units_done.into());
            }
            if done {
                fields.insert("done".into(), true.into());
            }
        }
        log::log_progress(line);
    }

    fn update_bar(&self, bar: &ProgressBar, snapshot: &Snapshot) {
        if let Some(total) = snapshot.total_bytes.filter(|_| bar.length().is_none()) {
            bar.set_length(total);
            let template = if snapshot.without_bytes { EVENT_BAR } else { BAR };
            bar.set_style(style(template).progress_chars("=> "));
        } else if snapshot.total_bytes.is_none() {
            let template = if snapshot.without_bytes { EVENT_SPINNER } else { SPINNER };
            bar.set_style(style(template));
        }
        let rate = snapshot.events as f64 / self.started.elapsed().as_secs_f64().max(1e-9);
        let damage = match (snapshot.damage, snapshot.lost) {
            (_, lost @ 1..) => format!(", {} lost", units::count(lost)),
            (1.., _) => ", damage".to_owned(),
            _ => String::new(),
        };
        let inputs = inputs_done(snapshot).map(|inputs| format!("{inputs}, ")).unwrap_or_default();
        let events = if snapshot.without_bytes {
            format!("{}, ", units::pluralize(snapshot.events, "event"))
        } else {
            String::new()
        };
        let rate = units::count(rate as u64);
        bar.set_message(format!("{inputs}{events}{rate} events/s{damage}"));
        bar.set_position(snapshot.bytes);
    }
}

impl Progress for ProgressMeter {
    fn update(&self, snapshot: &Snapshot) {
        // Events across a split boundary are read twice; never show more than the total.
        let bytes = snapshot.bytes.min(snapshot.total_bytes.unwrap_or(u64::MAX));
        let snapshot = &Snapshot { bytes, ..*snapshot };
        if let Some(due) = self.take_due_update(snapshot) {
            self.show(snapshot, &due);
        }
    }

    fn program_output(&self, node: &str, line: &str) {
        let text = format!("{node}: {}", printable_sentence(line));
        self.println_with_fields(
            Level::Info,
            "program",
            &text,
            json!({ "node": node, "line": line }),
        );
    }

    fn note(&self, node: &str, what: &str, count: u64) {
        if self.embedding.is_some() {
            return;
        }
        let mut state = self.state();
        if let Entry::Vacant(unprinted) = state.notes.entry((node.to_owned(), what.to_owned())) {
            unprinted.insert(count);
            drop(state);
            let note = Note { node: node.to_owned(), what: what.to_owned(), count };
            self.println_with_fields(
                Level::Info,
                "note",
                &live_note_text(&note),
                note_fields(&note),
            );
        }
    }

    fn milestone(&self, milestone: &Milestone<'_>) {
        if let (MeterStyle::Bar(bar), Milestone::Finishing) = (&self.style, milestone)
            && self.state().last.units == 0
        {
            // A full bar would hide that outputs are still being finished.
            bar.set_style(style(FINISHING));
        }
        if let Milestone::Failed { report } = milestone {
            self.state().failed = Some(Report::clone(report));
        }
        if self.verbose
            && let Some((kind, text, fields)) = milestone_record(milestone)
        {
            self.println_with_fields(Level::Debug, kind, &text, fields);
        }
    }
}

/// An update that is due.
struct DueUpdate {
    /// The rate since the last update, for recordings.
    recorded: Option<RecordingRate>,
}

struct RecordingRate {
    file: String,
    events: u64,
    bytes: u64,
    seconds: f64,
}

impl MeterStyle {
    /// The minimum time between two updates.
    fn interval(&self, recording: bool) -> Duration {
        match self {
            // Numbers that change ten times per second cannot be read.
            Self::Bar(_) if recording => Duration::from_secs(1),
            Self::Bar(_) => Duration::from_millis(100),
            Self::Json(pause) => *pause,
            Self::Plain => PLAIN_INTERVAL,
            Self::Silent => Duration::MAX,
        }
    }
}

/// A milestone as printed with `--verbose`: kind, message, and JSON fields.
fn milestone_record(milestone: &Milestone<'_>) -> Option<(&'static str, String, Value)> {
    let shown = |path: &Path| printable(&path.to_string_lossy()).into_owned();
    Some(match *milestone {
        Milestone::Planned { node, inputs, pieces, bytes } => (
            "plan",
            format!(
                "{node}: {} in {}, {}",
                units::pluralize(inputs as u64, "input"),
                units::pluralize(pieces as u64, "piece"),
                bytes.map_or("size not known".to_owned(), units::bytes)
            ),
            json!({ "node": node, "inputs": inputs, "pieces": pieces, "bytes": bytes }),
        ),
        Milestone::InputBegun { node, input } => (
            "input-begun",
            format!("{node}: reading {}", shown(input)),
            json!({ "node": node, "input": path_text(input) }),
        ),
        Milestone::InputDone { node, input, events, seconds } => (
            "input-done",
            format!(
                "{node}: read {}: {} in {seconds:.3} s",
                shown(input),
                units::pluralize(events, "event")
            ),
            json!({
                "node": node,
                "input": path_text(input),
                "events": events,
                "seconds": seconds,
            }),
        ),
        Milestone::InputSkipped { input } => (
            "input-skipped",
            format!("{}: already done", shown(input)),
            json!({ "input": path_text(input) }),
        ),
        Milestone::Publishing { seconds } => (
            "publishing",
            format!("read all input in {seconds:.3} s; publishing the outputs"),
            json!({ "seconds": seconds }),
        ),
        Milestone::Output { path, rows, bytes } => (
            "output",
            format!(
                "wrote {}: {}, {}",
                shown(path),
                units::pluralize(rows, "row"),
                units::bytes(bytes)
            ),
            json!({ "path": path_text(path), "rows": rows, "bytes": bytes }),
        ),
        // Only the bar shows the others.
        _ => return None,
    })
}

/// How many inputs of a batch are done.
fn inputs_done(snapshot: &Snapshot) -> Option<String> {
    let Snapshot { units, units_done, .. } = snapshot;
    (*units > 0).then(|| format!("{units_done}/{units} inputs"))
}

fn events_text(snapshot: &Snapshot) -> String {
    let mut events = units::pluralize(snapshot.events, "event");
    if snapshot.damage > 0 {
        events += &format!(", {}", units::pluralize(snapshot.damage, "damaged range"));
    }
    if snapshot.lost > 0 {
        events += &format!(", {} lost", units::count(snapshot.lost));
    }
    events
}

fn bar() -> MeterStyle {
    let target = ProgressDrawTarget::term_like_with_hz(Box::new(BarLine), 10);
    let bar = ProgressBar::with_draw_target(None, target);
    bar.set_style(style(START));
    bar.enable_steady_tick(Duration::from_millis(200));
    MeterStyle::Bar(bar)
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// The line of a note as it appears: that something happens now is nothing to count.
pub(crate) fn live_note_text(note: &Note) -> String {
    let count = if note.count == 1 { 0 } else { note.count };
    labelled("note:", &note_text(&note.node, &Note { count, ..note.clone() }))
}

/// A message with the label that it has on the terminal. A JSON record says its level and kind.
fn labelled(label: &str, text: &str) -> String {
    if log::is_json() { text.to_owned() } else { format!("{label} {text}") }
}

/// Whether an output is the terminal, by any of its names.
fn is_terminal(output: &Path) -> bool {
    if output == Path::new("-") {
        return io::stdout().is_terminal();
    }
    let device = |path: &Path| {
        let meta = fs::metadata(path).ok()?;
        meta.file_type().is_char_device().then(|| meta.rdev())
    };
    let terminal = ["/dev/tty", "/dev/stderr"].map(|name| device(Path::new(name)));
    device(output).is_some_and(|output| terminal.contains(&Some(output)))
}
