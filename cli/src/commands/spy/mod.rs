//! `spy`: what is on a live network, as a table that changes, as tables, or as JSON.
//!
//! The engine receives into a sink that only counts (`counting`); a thread beside it looks at the counts
//! now and then, and decodes what it shows (`messages`).

mod args;
mod counting;
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
use sluice_core::name::{json_escaped, printable_sentence};
use sluice_core::time::{self, TimeLength};
use sluice_core::{Plugin, PluginKind};
use sluice_pipeline::run::{self, Options, Progress, Snapshot, Stop};
use sluice_pipeline::{Pipeline, Report};

use crate::commands::execute;
use crate::ending::{Ending, Failure, Outcome};
use crate::flags::Origin;
use crate::inputs;
use crate::log::tell;
use crate::shell::Shell;
use crate::signals::{Listening, SignalMessages};
use crate::terminal::{Screen, Terminal};
use crate::units;

pub(crate) use args::SpyArgs;
use counting::{Books, Counting, Seen, View};
use messages::{Messages, Type};
use screen::{Act, Choice, Head};
use table::Row;

/// An address that the usual source takes, which knows by itself where to listen.
const LIVE: &str = "udpm://";

/// Over how long rates are worked out, at least.
const WINDOW: Duration = Duration::from_secs(5);

/// Nothing is said to who stops it: that is how it ends.
const STOPPING: SignalMessages = ["", ""];

pub(crate) fn run(args: &SpyArgs, shell: &Shell) -> Outcome {
    let source = source(args, shell)?;
    let interval = interval(args)?;
    let messages = Messages::of(&args.types, &args.channel_types, shell)?;
    let books = Arc::new(Books::new(WINDOW.max(interval)));
    let counting = Box::new(Counting(Arc::clone(&books)));
    let node = inputs::source_node(source, options(args))?;
    let address = address(&node, args);
    let nodes = vec![node, inputs::sink_node(counting)];
    let pipeline = Pipeline { nodes, ..Pipeline::default() };
    let form = Form::of(args, interval);
    let watch = Arc::new(Watch { told: form.tells_notes(shell), state: Mutex::default() });
    let options = Options { progress: Some(watch.clone()), ..Options::default() };
    let listening = Listening::start(Arc::clone(&options.stop), &STOPPING, |_| {});
    let stop = Arc::clone(&options.stop);
    let spy = Spy { address, books: Arc::clone(&books), watch: Arc::clone(&watch), messages, stop };
    let decodes = !args.types.is_empty();
    let report = execute::beside(
        &options.stop,
        move |over| spy.show(form, decodes, over),
        || run::run(pipeline, &options).map_err(|error| Failure::from(error).by(&options.stop)),
    );
    drop(listening);
    if watch.state().closed {
        return Ok(Ending::Done);
    }
    tell_end(report?, &watch, args.strict, shell)
}

fn tell_end(mut report: Report, watch: &Watch, strict: bool, shell: &Shell) -> Outcome {
    if watch.told {
        report.notes.clear();
    }
    execute::tell_losses(&report, Origin::Flags, shell);
    execute::tell_unmatched(&report, Origin::Flags, shell);
    let events = report.sources.values().map(|source| source.events).sum();
    shell.say(&format!("{} in {:.2} s", units::many(events, "event"), report.seconds));
    Ok(execute::ending_of(&report, strict))
}

/// The source that receives from the address, or from where it would by itself.
fn source<'s>(args: &SpyArgs, shell: &'s Shell) -> Result<&'s Plugin, Failure> {
    let url = args.url.as_deref().unwrap_or(LIVE);
    if !inputs::is_url(url) {
        return Err(Failure::WrongUse(format!(
            "{url} is no address such as {LIVE}239.255.76.67:7667; `sluice info` tells of a log, and \
             `sluice play` plays it"
        )));
    }
    inputs::of_url(shell, PluginKind::Source, url)
}

fn interval(args: &SpyArgs) -> Result<Duration, Failure> {
    TimeLength::parse(&args.interval).map(TimeLength::duration).map_err(Failure::WrongUse)
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
    set("channels", list(&args.channel));
    set("exclude", list(&args.exclude));
    set("duration", args.listening.duration.clone().map(Value::from));
    set("idle_timeout", args.listening.idle_timeout.clone().map(Value::from));
    set("limit", args.listening.limit.map(Value::from));
    set("interface", args.listening.interface.clone().map(Value::from));
    options.into()
}

/// What is listened to, as the source says it.
fn address(node: &sluice_pipeline::Node, args: &SpyArgs) -> String {
    let sluice_pipeline::Part::Source(source) = &node.part else { return String::new() };
    // What cannot be said now, the run will say.
    let inputs = source.inputs().unwrap_or_default();
    let path = inputs.first().map(|input| input.path.display().to_string());
    path.or_else(|| args.url.clone()).unwrap_or_default()
}

/// How it is shown.
enum Form {
    /// A table that changes, on a terminal.
    Screen(Terminal),
    /// A table now and then.
    Tables(Duration),
    /// An object now and then.
    Json(Duration),
}

impl Form {
    fn of(args: &SpyArgs, interval: Duration) -> Self {
        if args.json {
            return Self::Json(interval);
        }
        Terminal::open(Screen::Whole).map_or(Self::Tables(interval), Self::Screen)
    }

    /// Whether what inputs say of themselves is told at once, on standard error.
    fn tells_notes(&self, shell: &Shell) -> bool {
        !matches!(self, Self::Screen(_)) && !shell.quiet
    }
}

/// What the engine tells.
struct Watch {
    /// Whether notes are told at once.
    told: bool,
    state: Mutex<Told>,
}

#[derive(Default)]
struct Told {
    losses: BTreeMap<String, u64>,
    /// The losses when counting began.
    before: BTreeMap<String, u64>,
    note: Option<String>,
    /// Nobody reads standard output any more.
    closed: bool,
}

impl Watch {
    fn state(&self) -> MutexGuard<'_, Told> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was lost since counting began, by reason.
    fn losses(&self) -> BTreeMap<String, u64> {
        let told = self.state();
        let since = |(reason, count): (&String, &u64)| {
            let before = told.before.get(reason).copied().unwrap_or(0);
            (reason.clone(), count.saturating_sub(before))
        };
        told.losses.iter().map(since).filter(|(_, count)| *count > 0).collect()
    }

    /// What the input said last of itself, if that has not been told.
    fn note(&self) -> Option<String> {
        self.state().note.clone().filter(|_| !self.told)
    }

    fn reset(&self) {
        let mut told = self.state();
        told.before = told.losses.clone();
    }
}

impl Progress for Watch {
    fn update(&self, _: &Snapshot) {}

    fn losses(&self, _: &str, losses: &BTreeMap<String, u64>) {
        self.state().losses.clone_from(losses);
    }

    fn note(&self, node: &str, what: &str) {
        if self.told {
            tell(&format!("{node}: {}", printable_sentence(what)));
        }
        self.state().note = Some(what.to_owned());
    }
}

/// Who looks.
struct Spy {
    address: String,
    books: Arc<Books>,
    watch: Arc<Watch>,
    messages: Messages,
    stop: Arc<Stop>,
}

impl Spy {
    /// Shows what comes until it is over.
    fn show(mut self, form: Form, decodes: bool, over: &Receiver<()>) {
        match form {
            Form::Screen(terminal) => self.follow_keys(terminal, over),
            Form::Tables(interval) => self.print(interval, over, |spy, _| spy.table()),
            Form::Json(interval) => self.print(interval, over, |spy, since| {
                let line = spy.json(decodes, since).to_string();
                let mut line = json_escaped(&line).into_owned();
                line.push('\n');
                line
            }),
        }
    }

    /// Prints something now and then, and once more at the end.
    fn print(
        &mut self,
        interval: Duration,
        over: &Receiver<()>,
        text: impl Fn(&mut Self, &mut Since) -> String,
    ) {
        let (mut due, mut since) = (Instant::now() + interval, Since::default());
        loop {
            let wait = due.saturating_duration_since(Instant::now());
            let is_over = match over.recv_timeout(wait) {
                Ok(()) => true,
                Err(RecvTimeoutError::Timeout) => false,
                // It failed, which is all there is to say.
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let text = text(self, &mut since);
            let mut out = io::stdout().lock();
            if out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err() {
                // Whoever read it has seen enough.
                self.watch.state().closed = true;
                self.stop.request();
                return;
            }
            if is_over {
                return;
            }
            // A reader that does not keep up gets fewer, and not several at once.
            due = (due + interval).max(Instant::now());
        }
    }

    fn table(&mut self) -> String {
        let view = self.books.view();
        let rows = self.rows(&view);
        let mut lines = self.head(&view).lines();
        lines.extend(table::lines(&rows, usize::MAX));
        lines.join("\n") + "\n\n"
    }

    fn head(&self, view: &View) -> Head {
        Head {
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

    fn rows(&mut self, view: &View) -> Vec<Row> {
        let row = |seen: &Seen| Row {
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

    fn type_of(&mut self, seen: &Seen, view: &View) -> Type {
        let table = view.table.as_ref();
        table.map(|table| self.messages.type_of(seen, table)).unwrap_or_default()
    }

    fn json(&mut self, decodes: bool, since: &mut Since) -> Value {
        let view = self.books.view();
        let losses = self.watch.losses();
        let channels: Vec<Value> = view
            .channels
            .iter()
            .map(|seen| {
                let Type { name, key } = self.type_of(seen, &view);
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
        let (mut choice, mut view, mut rows) = (Choice::default(), View::default(), Vec::new());
        let mut due = Instant::now();
        while matches!(over.recv_timeout(Duration::ZERO), Err(RecvTimeoutError::Timeout)) {
            let is_due = Instant::now() >= due;
            if is_due {
                due = Instant::now() + EVERY;
                view = self.books.view();
                rows = self.rows(&view);
                choice.sort(&mut rows);
            }
            let wait = due.saturating_duration_since(Instant::now()).min(PATIENCE);
            let (pressed, size) = (terminal.keys(wait), terminal.size());
            if !is_due && pressed.is_empty() {
                continue;
            }
            for key in pressed {
                match choice.press(key, &rows, size.1) {
                    Some(Act::Quit) => self.stop.request(),
                    Some(Act::Reset) => {
                        self.books.reset();
                        self.watch.reset();
                        due = Instant::now();
                    }
                    None => choice.sort(&mut rows),
                }
            }
            let message = self.message(&choice, &view);
            let head = self.head(&view);
            terminal.draw(&choice.frame(&head, &rows, message.as_deref(), size));
        }
    }

    /// The message that is shown, as lines.
    fn message(&mut self, choice: &Choice, view: &View) -> Option<Vec<String>> {
        let name = choice.message_of()?;
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

/// What there was at the last line.
#[derive(Default)]
struct Since {
    elapsed: Duration,
    events: u64,
    bytes: u64,
}

impl Since {
    /// Events and bytes a second since then; from now on since now.
    fn rates(&mut self, view: &View) -> (f64, f64) {
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
