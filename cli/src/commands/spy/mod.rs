//! `spy`: shows what is on a live network, as a live table, printed tables, or JSON.
//!
//! The engine receives into a sink that only counts (`counters`). Another thread reads the counters
//! periodically, and decodes the messages it displays (`messages`).

mod args;
mod counters;
mod message;
mod messages;
mod rates;
mod screen;
mod table;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use sluice_io::escape::json_escaped;
use sluice_model::time::{self, TimeSpan};
use sluice_model::{DefaultRole, DynSink, Plugin, PluginKind, units};
use sluice_pipeline::report::Note;
use sluice_pipeline::run::{self, Options, Progress, Snapshot, Stop};
use sluice_pipeline::{Pipeline, Report};

use crate::args::refuse_interface_of_hub;
use crate::commands::execute;
use crate::exit::{CommandResult, ExitStatus, Failure};
use crate::flags::PipelineOrigin;
use crate::inspection;
use crate::log::log_message;
use crate::plugin_lookup;
use crate::progress::live_note_text;
use crate::shell::Shell;
use crate::signals::{SignalListener, SignalMessages};
use crate::terminal::{ScreenArea, Terminal};

pub(crate) use args::SpyArgs;
use counters::{ChannelView, CountingSink, SpyCounters, SpyView};
use messages::{MessageDecoder, TypeLabel};
use screen::{ScreenState, SpyCommand, TableHeader};
use table::SpyRow;

/// The minimum window of rates.
const WINDOW: Duration = Duration::from_secs(5);

/// No messages on signals: that is how it normally ends.
const STOPPING: SignalMessages = ["", ""];

pub(crate) fn run(args: &SpyArgs, shell: &Shell) -> CommandResult {
    let source = source(args, shell)?;
    refuse_interface_of_hub(args.listening.interface.as_deref(), args.url.as_deref())?;
    let interval = interval(args)?;
    let messages = MessageDecoder::from_args(&args.decoding, shell)?;
    let counters = Arc::new(SpyCounters::new(WINDOW.max(interval)));
    let counting = DynSink::new(CountingSink(Arc::clone(&counters)));
    let node = inspection::source_node(source, options(args), shell)?;
    let address = address(&node, args);
    let nodes = vec![node, inspection::sink_node(counting)];
    let pipeline = Pipeline { nodes, ..Pipeline::default() };
    let form = SpyDisplay::from_args(args, interval);
    let watch =
        Arc::new(NetworkWatch { prints_notes: form.prints_notes(shell), state: Mutex::default() });
    let options = Options { progress: Some(watch.clone()), ..Options::default() };
    let listening = SignalListener::start(Arc::clone(&options.stop), &STOPPING, |_| {});
    let stop = Arc::clone(&options.stop);
    let spy =
        Spy { address, counters: Arc::clone(&counters), watch: Arc::clone(&watch), messages, stop };
    let decodes = !args.decoding.types.is_empty();
    let report = execute::run_with_watcher(
        &options.stop,
        move |over| spy.show(form, decodes, over),
        || Ok(run::run(pipeline, &options)?),
    );
    drop(listening);
    if watch.state().closed {
        return Ok(ExitStatus::Done);
    }
    print_end(report?, &watch, args.strict, shell)
}

fn print_end(
    mut report: Report,
    watch: &NetworkWatch,
    strict: bool,
    shell: &Shell,
) -> CommandResult {
    if watch.prints_notes {
        report.notes.clear();
    }
    let status = execute::report_findings(&report, PipelineOrigin::Flags, strict, shell);
    let events = report.sources.values().map(|source| source.events).sum();
    shell.info(&format!("{} in {:.2} s", units::pluralize(events, "event"), report.seconds));
    Ok(status)
}

/// The source for the URL, or the default source.
fn source<'s>(args: &SpyArgs, shell: &'s Shell) -> Result<&'s Plugin, Failure> {
    // Without a URL, the default source has its own address.
    let default = plugin_lookup::default_plugin(shell, PluginKind::Source, DefaultRole::Live);
    let Some(url) = args.url.as_deref() else { return default };
    if !plugin_lookup::is_url(url) {
        let scheme = default?.schemes.first().copied().unwrap_or_default();
        return Err(Failure::Usage(format!(
            "{url} is not a URL such as {scheme}://239.255.76.67:7667; `sluice info` \
             describes a log, `sluice play` plays it"
        )));
    }
    plugin_lookup::plugin_for_url(shell, PluginKind::Source, url)
}

fn interval(args: &SpyArgs) -> Result<Duration, Failure> {
    TimeSpan::parse(&args.interval).map(TimeSpan::duration).map_err(Failure::Usage)
}

/// The options of the source.
fn options(args: &SpyArgs) -> Value {
    let mut options = serde_json::Map::new();
    let mut set = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            options.insert(name.to_owned(), value);
        }
    };
    let list = |texts: &[String]| (!texts.is_empty()).then(|| json!(texts));
    set("url", args.url.clone().map(Value::from));
    set("channels", list(&args.patterns.channel));
    set("exclude", list(&args.patterns.exclude));
    set("duration", args.listening.duration.clone().map(Value::from));
    set("idle_timeout", args.listening.idle_timeout.clone().map(Value::from));
    set("limit", args.listening.limit.map(Value::from));
    set("interface", args.listening.interface.clone().map(Value::from));
    options.into()
}

/// The address, as the source reports it.
fn address(node: &sluice_pipeline::PipelineNode, args: &SpyArgs) -> String {
    // Errors are reported by the run.
    let inputs = node.source().and_then(|source| source.inputs().ok()).unwrap_or_default();
    let path = inputs.first().map(|input| input.path.display().to_string());
    path.or_else(|| args.url.clone()).unwrap_or_default()
}

/// How counters are displayed.
enum SpyDisplay {
    /// A live table on a terminal.
    Screen(Terminal),
    /// A table per interval.
    Tables(Duration),
    /// A JSON object per interval.
    Json(Duration),
}

impl SpyDisplay {
    fn from_args(args: &SpyArgs, interval: Duration) -> Self {
        if args.json {
            return Self::Json(interval);
        }
        Terminal::open(ScreenArea::Whole).map_or(Self::Tables(interval), Self::Screen)
    }

    /// Whether notes are printed on standard error as they occur.
    fn prints_notes(&self, shell: &Shell) -> bool {
        !matches!(self, Self::Screen(_)) && !shell.quiet
    }
}

/// Receives progress from the engine.
struct NetworkWatch {
    /// Whether notes are printed as they occur.
    prints_notes: bool,
    state: Mutex<NetworkWatchState>,
}

#[derive(Default)]
struct NetworkWatchState {
    losses: BTreeMap<String, u64>,
    /// The losses when counting was reset.
    before: BTreeMap<String, u64>,
    note: Option<String>,
    /// Whether standard output was closed.
    closed: bool,
}

impl NetworkWatch {
    fn state(&self) -> MutexGuard<'_, NetworkWatchState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Losses since counting was reset, by reason.
    fn losses(&self) -> BTreeMap<String, u64> {
        let state = self.state();
        let since = |(reason, count): (&String, &u64)| {
            let before = state.before.get(reason).copied().unwrap_or(0);
            (reason.clone(), count.saturating_sub(before))
        };
        state.losses.iter().map(since).filter(|(_, count)| *count > 0).collect()
    }

    /// The last note, if notes are not printed.
    fn note(&self) -> Option<String> {
        self.state().note.clone().filter(|_| !self.prints_notes)
    }

    fn reset(&self) {
        let mut state = self.state();
        state.before = state.losses.clone();
    }
}

impl Progress for NetworkWatch {
    fn update(&self, _: &Snapshot) {}

    fn losses(&self, _: &str, losses: &BTreeMap<String, u64>) {
        self.state().losses.clone_from(losses);
    }

    fn note(&self, node: &str, what: &str, count: u64) {
        if self.prints_notes {
            let note = Note { node: node.to_owned(), what: what.to_owned(), count };
            log_message(&live_note_text(&note));
        }
        self.state().note = Some(what.to_owned());
    }
}

/// Displays the counters.
struct Spy {
    address: String,
    counters: Arc<SpyCounters>,
    watch: Arc<NetworkWatch>,
    messages: MessageDecoder,
    stop: Arc<Stop>,
}

impl Spy {
    /// Displays counters until the run ends.
    fn show(mut self, form: SpyDisplay, decodes: bool, over: &Receiver<()>) {
        match form {
            SpyDisplay::Screen(terminal) => self.follow_keys(terminal, over),
            SpyDisplay::Tables(interval) => self.print(interval, over, |spy, _| spy.table()),
            SpyDisplay::Json(interval) => self.print(interval, over, |spy, since| {
                let line = spy.json(decodes, since).to_string();
                let mut line = json_escaped(&line).into_owned();
                line.push('\n');
                line
            }),
        }
    }

    /// Prints `text` every `interval`, and once more at the end.
    fn print(
        &mut self,
        interval: Duration,
        over: &Receiver<()>,
        text: impl Fn(&mut Self, &mut RateBaseline) -> String,
    ) {
        let (mut due, mut since) = (Instant::now() + interval, RateBaseline::default());
        loop {
            let wait = due.saturating_duration_since(Instant::now());
            let is_over = match over.recv_timeout(wait) {
                Ok(()) => true,
                Err(RecvTimeoutError::Timeout) => false,
                // The run failed.
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let text = text(self, &mut since);
            let mut out = io::stdout().lock();
            if out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err() {
                // The reader closed standard output.
                self.watch.state().closed = true;
                self.stop.request();
                return;
            }
            if is_over {
                return;
            }
            // A slow reader skips intervals, instead of getting several outputs at once.
            due = (due + interval).max(Instant::now());
        }
    }

    fn table(&mut self) -> String {
        let view = self.counters.view();
        let rows = self.rows(&view);
        let mut lines = self.head(&view).lines();
        lines.extend(table::lines(&rows, usize::MAX));
        lines.join("\n") + "\n\n"
    }

    fn head(&self, view: &SpyView) -> TableHeader {
        TableHeader {
            address: self.address.clone(),
            counted: view.counted,
            channels: view.channels.len(),
            more_channels: view.more_channels,
            events: view.events,
            events_per_second: view.events_per_second,
            bytes_per_second: view.bytes_per_second,
            losses: self.watch.losses(),
            note: self.watch.note(),
        }
    }

    fn rows(&mut self, view: &SpyView) -> Vec<SpyRow> {
        let row = |seen: &ChannelView| SpyRow {
            name: seen.channel.name.text().to_owned(),
            kind: self.type_of(seen, view),
            events: seen.events,
            hz: seen.rates.hz,
            jitter_ms: seen.rates.jitter_ms,
            bytes_per_second: seen.rates.bytes_per_second,
            size: seen.last.payload().len(),
            age: seen.age,
        };
        view.channels.iter().map(row).collect()
    }

    fn type_of(&mut self, seen: &ChannelView, view: &SpyView) -> TypeLabel {
        let table = view.table.as_ref();
        table.map(|table| self.messages.type_of(seen, table)).unwrap_or_default()
    }

    fn json(&mut self, decodes: bool, since: &mut RateBaseline) -> Value {
        let view = self.counters.view();
        let losses = self.watch.losses();
        let channels: Vec<Value> = view
            .channels
            .iter()
            .map(|seen| {
                let TypeLabel { name, key } = self.type_of(seen, &view);
                let mut channel = json!({
                    "name": seen.channel.name.text(),
                    "type": name,
                    "fingerprint": key.map(|key| key.to_string()),
                    "events": seen.events,
                    "bytes": seen.bytes,
                    "hz": seen.rates.hz,
                    "jitter_ms": seen.rates.jitter_ms,
                    "bytes_per_second": seen.rates.bytes_per_second,
                    "last_timestamp_ns": seen.last.time(),
                    "size": seen.last.payload().len(),
                });
                let fields = view.table.as_ref().filter(|_| decodes);
                let fields = fields.and_then(|table| self.messages.fields(&seen.last, table));
                if let (Some(channel), Some(fields)) = (channel.as_object_mut(), fields) {
                    channel.insert("last".into(), fields);
                }
                channel
            })
            .collect();
        let (events_per_second, bytes_per_second) = since.rates(&view);
        json!({
            "timestamp_ns": now(),
            "seconds": view.elapsed.as_secs_f64(),
            "events": view.events,
            "bytes": view.bytes,
            "events_per_second": events_per_second,
            "bytes_per_second": bytes_per_second,
            "lost": losses.values().sum::<u64>(),
            "losses": losses,
            "channels": channels,
        })
    }

    fn follow_keys(&mut self, mut terminal: Terminal, over: &Receiver<()>) {
        const EVERY: Duration = Duration::from_millis(250);
        const PATIENCE: Duration = Duration::from_millis(50);
        let (mut choice, mut view, mut rows) =
            (ScreenState::default(), SpyView::default(), Vec::new());
        let mut due = Instant::now();
        while matches!(over.recv_timeout(Duration::ZERO), Err(RecvTimeoutError::Timeout)) {
            let is_due = Instant::now() >= due;
            if is_due {
                due = Instant::now() + EVERY;
                view = self.counters.view();
                rows = self.rows(&view);
                choice.sort(&mut rows);
            }
            let wait = due.saturating_duration_since(Instant::now()).min(PATIENCE);
            let (pressed, size) = (terminal.keys(wait), terminal.size());
            if !is_due && pressed.is_empty() {
                continue;
            }
            for key in pressed {
                match choice.handle_key(key, &rows, size.1) {
                    Some(SpyCommand::Quit) => self.stop.request(),
                    Some(SpyCommand::Reset) => {
                        self.counters.reset();
                        self.watch.reset();
                        due = Instant::now();
                    }
                    None => choice.sort(&mut rows),
                }
            }
            let message = self.message(&choice, &view);
            let head = self.head(&view);
            terminal.draw(&choice.render(&head, &rows, message.as_deref(), size));
        }
    }

    /// The displayed message, as lines.
    fn message(&mut self, choice: &ScreenState, view: &SpyView) -> Option<Vec<String>> {
        let name = choice.shown_message()?;
        let seen = view.channels.iter().find(|seen| seen.channel.name.text() == name)?;
        let (time, number) = (time::format(seen.last.time()), seen.last.sequence());
        let mut lines = vec![format!("{time}  #{number}"), String::new()];
        let fields = view.table.as_ref();
        let fields = fields.and_then(|table| self.messages.fields(&seen.last, table));
        lines.extend(match fields {
            Some(fields) => message::fields(&fields),
            None => message::bytes(seen.last.payload()),
        });
        Some(lines)
    }
}

/// The counts at the last output, to compute rates.
#[derive(Default)]
struct RateBaseline {
    elapsed: Duration,
    events: u64,
    bytes: u64,
}

impl RateBaseline {
    /// Returns events and bytes per second since the last call.
    fn rates(&mut self, view: &SpyView) -> (f64, f64) {
        let seconds = view.elapsed.saturating_sub(self.elapsed).as_secs_f64().max(1e-9);
        let rates = (
            view.events.saturating_sub(self.events) as f64 / seconds,
            view.bytes.saturating_sub(self.bytes) as f64 / seconds,
        );
        *self = Self { elapsed: view.elapsed, events: view.events, bytes: view.bytes };
        rates
    }
}

/// Nanoseconds since 1970.
fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}
