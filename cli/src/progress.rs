//! Shows how a run goes on standard error: a bar, plain lines, or JSON. Decides nothing about the run.

use std::collections::BTreeSet;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Value, json};
use sluice_core::name::{printable, printable_sentence};
use sluice_pipeline::Report;
use sluice_pipeline::run::{Milestone, Progress, Snapshot};

use crate::args::ProgressForm;
use crate::log::{self, Level, tell};
use crate::shell::Shell;
use crate::terminal::BarLine;
use crate::units;

// Both fit into eighty columns, so that the line never wraps.
const BAR: &str =
    "{wide_bar} {percent:>3}% of {decimal_total_bytes}, {decimal_bytes_per_sec}, {msg}, {eta} left";
const SPINNER: &str = "{spinner} {decimal_bytes}, {decimal_bytes_per_sec}, {msg}, {elapsed}";

// Of what is made up or received nobody knows bytes: events and time are what there is to tell.
const BAR_OF_EVENTS: &str = "{wide_bar} {percent:>3}%, {msg}, {elapsed}, {eta} left";
const SPINNER_OF_EVENTS: &str = "{spinner} {msg}, {elapsed}";

// What has no end has no bar, and its line is written by us.
const RECORDING: &str = "{spinner} {wide_msg}";

// Before anything has been read there is nothing to tell but the time.
const START: &str = "{spinner} {elapsed}";

const FINISHING: &str = "{spinner} {msg}, {elapsed}, finishing the outputs";

/// How often a line says how a run goes.
const PLAIN_EVERY: Duration = Duration::from_secs(5);

/// Shows how a run goes.
pub(crate) struct Meter {
    form: Form,
    quiet: bool,
    verbose: bool,
    started: Instant,
    state: Mutex<State>,
}

enum Form {
    Bar(ProgressBar),
    Plain,
    /// An object every so often.
    Json(Duration),
    Silent,
}

struct State {
    last: Snapshot,
    told: Instant,
    /// What was told last.
    shown: Snapshot,
    /// The file that is recorded into, if one is.
    file: Option<PathBuf>,
    /// What inputs have said of themselves, with their names.
    notes: BTreeSet<(String, String)>,
}

impl Meter {
    /// A meter in that form. A quiet program shows progress to machines only, which asked for it.
    pub(crate) fn new(form: ProgressForm, shell: &Shell) -> Self {
        let Shell { quiet, verbose, .. } = *shell;
        let form = match form {
            ProgressForm::Json => Form::Json(Duration::from_millis(500)),
            ProgressForm::None => Form::Silent,
            _ if quiet => Form::Silent,
            _ if log::is_json() => Form::Json(PLAIN_EVERY),
            ProgressForm::Auto if io::stderr().is_terminal() => bar(),
            ProgressForm::Bar => bar(),
            ProgressForm::Auto | ProgressForm::Plain => Form::Plain,
        };
        let (started, last) = (Instant::now(), Snapshot::default());
        let state =
            State { last, told: started, shown: last, file: None, notes: BTreeSet::default() };
        Self { form, quiet, verbose, started, state: Mutex::new(state) }
    }

    /// Says something without tearing up the bar. A quiet program does not.
    pub(crate) fn say(&self, text: &str) {
        match &self.form {
            _ if self.quiet => {}
            Form::Bar(bar) => bar.suspend(|| tell(text)),
            // Programs read every line, and words are none of theirs unless they are objects, too.
            Form::Json(_) if !log::is_json() => {}
            Form::Json(_) | Form::Plain | Form::Silent => tell(text),
        }
    }

    /// As [`say`](Self::say), of this kind; programs get these fields beside the text.
    fn say_of(&self, level: Level, kind: &str, text: &str, fields: Value) {
        if !log::is_json() {
            self.say(text);
        } else if !self.quiet {
            log::record_text(level, kind, text, fields);
        }
    }

    /// Says into which file is recorded from now on.
    pub(crate) fn records_into(&self, file: &Path) {
        self.say(&format!("writing {}", file.display()));
        let before = self.state().file.replace(file.to_owned());
        if let (None, Form::Bar(bar)) = (before, &self.form) {
            bar.set_style(style(RECORDING));
        }
    }

    /// Leaves out of a report what was told when it happened, and has no count that is only known now.
    pub(crate) fn forget_told(&self, report: &mut Report) {
        let state = self.state();
        report.notes.retain(|note| {
            note.count > 0 || !state.notes.contains(&(note.node.clone(), note.what.clone()))
        });
    }

    /// Takes the bar away, or says the last word.
    pub(crate) fn finish(&self) {
        match &self.form {
            Form::Bar(bar) => bar.finish_and_clear(),
            Form::Json(_) => self.tell_machine(&self.state().last, true),
            Form::Plain | Form::Silent => {}
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the snapshot; gives what to tell, if it is time to.
    fn due(&self, snapshot: &Snapshot) -> Option<Due> {
        let mut state = self.state();
        state.last = *snapshot;
        let (pause, since) = (self.form.pause(state.file.is_some()), state.told.elapsed());
        if since < pause {
            return None;
        }
        state.told = Instant::now();
        let before = std::mem::replace(&mut state.shown, *snapshot);
        let recorded = state.file.as_deref().map(|file| Recorded {
            file: file.display().to_string(),
            events: snapshot.events.saturating_sub(before.events),
            bytes: snapshot.bytes.saturating_sub(before.bytes),
            since: since.as_secs_f64(),
        });
        Some(Due { recorded })
    }

    fn show(&self, snapshot: &Snapshot, due: &Due) {
        match (&self.form, &due.recorded) {
            (Form::Bar(bar), Some(recorded)) => bar.set_message(self.line(snapshot, recorded)),
            (Form::Plain, Some(recorded)) => tell(&self.line(snapshot, recorded)),
            (Form::Bar(bar), None) => self.tell_bar(bar, snapshot),
            (Form::Plain, None) => self.tell_person(snapshot),
            (Form::Json(_), _) => self.tell_machine(snapshot, false),
            (Form::Silent, _) => {}
        }
    }

    /// How a recording goes: in all, and how fast since the last line.
    fn line(&self, snapshot: &Snapshot, recorded: &Recorded) -> String {
        let Recorded { file, events: new, bytes, since } = recorded;
        let seconds = self.started.elapsed().as_secs();
        let rate = units::count((*new as f64 / since.max(1e-9)) as u64);
        let speed = units::speed(*bytes, *since);
        let (read, events) = (units::bytes(snapshot.bytes), events(snapshot));
        format!("{file}: {seconds} s, {events}, {read}, {rate} events/s, {speed}")
    }

    fn tell_person(&self, snapshot: &Snapshot) {
        let seconds = self.started.elapsed().as_secs_f64();
        if snapshot.without_bytes {
            let rate = units::count((snapshot.events as f64 / seconds.max(1e-9)) as u64);
            tell(&format!("{}, {rate} events/s, {seconds:.0} s", events(snapshot)));
            return;
        }
        let read = match snapshot.total_bytes {
            Some(total) => format!("{} of {}", units::bytes(snapshot.bytes), units::bytes(total)),
            None => units::bytes(snapshot.bytes),
        };
        let speed = units::speed(snapshot.bytes, seconds);
        let inputs = inputs(snapshot).map(|inputs| format!("{inputs}, ")).unwrap_or_default();
        tell(&format!("{inputs}{read} read, {}, {speed}, {seconds:.0} s", events(snapshot)));
    }

    fn tell_machine(&self, snapshot: &Snapshot, done: bool) {
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
        log::progress(line);
    }

    fn tell_bar(&self, bar: &ProgressBar, snapshot: &Snapshot) {
        if let Some(total) = snapshot.total_bytes.filter(|_| bar.length().is_none()) {
            bar.set_length(total);
            let template = if snapshot.without_bytes { BAR_OF_EVENTS } else { BAR };
            bar.set_style(style(template).progress_chars("=> "));
        } else if snapshot.total_bytes.is_none() {
            let template = if snapshot.without_bytes { SPINNER_OF_EVENTS } else { SPINNER };
            bar.set_style(style(template));
        }
        let rate = snapshot.events as f64 / self.started.elapsed().as_secs_f64().max(1e-9);
        let damage = match (snapshot.damage, snapshot.lost) {
            (_, lost @ 1..) => format!(", {} lost", units::count(lost)),
            (1.., _) => ", damage".to_owned(),
            _ => String::new(),
        };
        let inputs = inputs(snapshot).map(|inputs| format!("{inputs}, ")).unwrap_or_default();
        let events = if snapshot.without_bytes {
            format!("{}, ", units::many(snapshot.events, "event"))
        } else {
            String::new()
        };
        let rate = units::count(rate as u64);
        bar.set_message(format!("{inputs}{events}{rate} events/s{damage}"));
        bar.set_position(snapshot.bytes);
    }
}

impl Progress for Meter {
    fn update(&self, snapshot: &Snapshot) {
        // What lies across a cut is read twice; nobody wants to see more than all of it.
        let bytes = snapshot.bytes.min(snapshot.total_bytes.unwrap_or(u64::MAX));
        let snapshot = &Snapshot { bytes, ..*snapshot };
        if let Some(due) = self.due(snapshot) {
            self.show(snapshot, &due);
        }
    }

    fn said(&self, node: &str, line: &str) {
        let text = format!("{node}: {}", printable_sentence(line));
        self.say_of(Level::Info, "program", &text, json!({ "node": node, "line": line }));
    }

    fn note(&self, node: &str, what: &str) {
        if self.state().notes.insert((node.to_owned(), what.to_owned())) {
            let text = format!("{node}: {}", printable_sentence(what));
            self.say_of(Level::Info, "note", &text, json!({ "node": node, "what": what }));
        }
    }

    fn milestone(&self, milestone: &Milestone<'_>) {
        if let (Form::Bar(bar), Milestone::Finishing) = (&self.form, milestone)
            && self.state().last.units == 0
        {
            // A bar that is full says nothing of what is left to do.
            bar.set_style(style(FINISHING));
        }
        if self.verbose
            && let Some((kind, text, fields)) = described(milestone)
        {
            self.say_of(Level::Debug, kind, &text, fields);
        }
    }
}

/// What there is to tell.
struct Due {
    /// How the recording went since the last time, if it is one.
    recorded: Option<Recorded>,
}

struct Recorded {
    file: String,
    events: u64,
    bytes: u64,
    since: f64,
}

impl Form {
    /// How long to be silent between two words.
    fn pause(&self, recording: bool) -> Duration {
        match self {
            // Numbers that change all the time cannot be read.
            Self::Bar(_) if recording => Duration::from_secs(1),
            Self::Bar(_) => Duration::from_millis(100),
            Self::Json(pause) => *pause,
            Self::Plain => PLAIN_EVERY,
            Self::Silent => Duration::MAX,
        }
    }
}

/// A milestone as it is said with `--verbose`: its kind, the words, and the fields for programs.
fn described(milestone: &Milestone<'_>) -> Option<(&'static str, String, Value)> {
    let shown = |path: &Path| printable(&path.to_string_lossy()).into_owned();
    Some(match *milestone {
        Milestone::Planned { node, inputs, pieces, bytes } => (
            "plan",
            format!(
                "{node}: {} in {}, {}",
                units::many(inputs as u64, "input"),
                units::many(pieces as u64, "piece"),
                bytes.map_or("size not known".to_owned(), units::bytes)
            ),
            json!({ "node": node, "inputs": inputs, "pieces": pieces, "bytes": bytes }),
        ),
        Milestone::InputBegun { node, input } => (
            "input-begun",
            format!("{node}: reading {}", shown(input)),
            json!({ "node": node, "input": input.to_string_lossy() }),
        ),
        Milestone::InputDone { node, input, events, seconds } => (
            "input-done",
            format!(
                "{node}: read {}: {} in {seconds:.3} s",
                shown(input),
                units::many(events, "event")
            ),
            json!({
                "node": node, "input": input.to_string_lossy(), "events": events, "seconds": seconds,
            }),
        ),
        Milestone::InputSkipped { input } => (
            "input-skipped",
            format!("{}: done before", shown(input)),
            json!({ "input": input.to_string_lossy() }),
        ),
        Milestone::Publishing { seconds } => (
            "publishing",
            format!("everything is read after {seconds:.3} s; publishing the outputs"),
            json!({ "seconds": seconds }),
        ),
        Milestone::Output { path, rows, bytes } => (
            "output",
            format!("wrote {}: {}, {}", shown(path), units::many(rows, "row"), units::bytes(bytes)),
            json!({ "path": path.to_string_lossy(), "rows": rows, "bytes": bytes }),
        ),
        // It is of interest to who looks at a bar.
        _ => return None,
    })
}

/// How many inputs of a batch are done.
fn inputs(snapshot: &Snapshot) -> Option<String> {
    let Snapshot { units, units_done, .. } = snapshot;
    (*units > 0).then(|| format!("{units_done}/{units} inputs"))
}

fn events(snapshot: &Snapshot) -> String {
    let mut events = units::many(snapshot.events, "event");
    if snapshot.damage > 0 {
        events += &format!(", {}", units::many(snapshot.damage, "damaged range"));
    }
    if snapshot.lost > 0 {
        events += &format!(", {} lost", units::count(snapshot.lost));
    }
    events
}

fn bar() -> Form {
    let target = ProgressDrawTarget::term_like_with_hz(Box::new(BarLine), 10);
    let bar = ProgressBar::with_draw_target(None, target);
    bar.set_style(style(START));
    bar.enable_steady_tick(Duration::from_millis(200));
    Form::Bar(bar)
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}
