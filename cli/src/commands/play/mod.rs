//! `play`: sends recorded events to a live network when they are due, and follows the keys meanwhile.
//!
//! Makes a pipeline of its arguments, as `convert` does. What waits for an event's time is the sink; it
//! is steered through the playback that the engine hands it. Keys are given their meaning by `keys`.

mod args;
mod keys;
mod span;
mod status;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use sluice_core::name::printable_sentence;
use sluice_core::{Playback, Plugin, PluginKind};
use sluice_pipeline::run::{self, Options, Progress, Snapshot};
use sluice_pipeline::{Pipeline, Report};

use crate::args::{Assignment, ProgressForm};
use crate::commands::{convert, execute};
use crate::description::Format;
use crate::ending::{Failure, Outcome};
use crate::flags::Origin;
use crate::inputs;
use crate::log;
use crate::log::tell;
use crate::recipe::{self, Recipe};
use crate::shell::Shell;
use crate::signals::{Listening, SignalMessages};
use crate::terminal::{self, Screen, Terminal};
use crate::units;

pub(crate) use args::PlayArgs;
use keys::{Order, Place};
use status::{Rate, Status};

/// An address that the usual sink takes, which knows by itself where to play to.
const LIVE: &str = "udpm://";

/// What is said to who stops it.
const STOPPING: SignalMessages = ["stopping; once more aborts", "aborting"];

pub(crate) fn run(args: &PlayArgs, shell: &Shell) -> Outcome {
    let (text, speed) = text(args, shell)?;
    let pipeline = convert::read("sluice play", &text, shell)?;
    if args.print_pipeline {
        return convert::print_pipeline("sluice play", text, shell);
    }
    let form = Form::of(args, shell);
    if args.paused && !matches!(form, Form::Keys(_)) {
        let what = "--paused waits for a key, and there is no terminal that keys could come from";
        return Err(Failure::WrongUse(what.into()));
    }
    play(pipeline, speed, form, args, shell)
}

/// The pipeline file that does what was asked for, and the speed that it says.
fn text(args: &PlayArgs, shell: &Shell) -> Result<(String, f64), Failure> {
    let to = args.to.as_deref().unwrap_or_default();
    if !to.is_empty() && !inputs::is_url(to) {
        return Err(Failure::WrongUse(format!(
            "{to} is no address such as {LIVE}239.255.76.67:7667; `sluice convert` writes files"
        )));
    }
    let sink = inputs::of_url(shell, PluginKind::Sink, if to.is_empty() { LIVE } else { to })?;
    let mut selection = args.selection.clone();
    selection.channel.extend(args.regex.clone());
    let (files, selection) = inputs::without_addresses(&args.inputs, &selection, shell)?;
    let format = Format::of(args.from.as_deref(), args.describe.as_deref(), &args.source_option)?;
    let source = convert::source(&files, format.from.as_deref(), &format.options, shell)?;
    let speed = speed(args)?;
    let source_options = when_played(source, format.options);
    let recipe = Recipe {
        source: source.name,
        source_options: &source_options,
        inputs: &files,
        selection: Some(&selection),
        renames: &args.rename,
        encodes: source.gives_rows,
        sink: sink.name,
        output: to,
        sink_options: &sink_options(args, speed),
        ..Recipe::default()
    };
    Ok((recipe.text(), speed))
}

/// The options of a source whose events are played: those that were said, and what is usual then.
fn when_played(source: &Plugin, mut options: Vec<Assignment>) -> Vec<Assignment> {
    for (name, value) in source.when_played {
        if options.iter().all(|option| option.name != *name) {
            options.push(Assignment { name: (*name).to_owned(), value: (*value).to_owned() });
        }
    }
    options
}

/// What was asked for, or what the address of a log says; 0 is as fast as possible.
fn speed(args: &PlayArgs) -> Result<f64, Failure> {
    let said = match (&args.speed, args.inputs.as_slice()) {
        (Some(speed), _) => Some(*speed),
        (None, [url]) => {
            inputs::file_url(url).map_err(Failure::WrongUse)?.and_then(|url| url.speed)
        }
        (None, _) => None,
    };
    Ok(said.unwrap_or(1.0).max(0.0))
}

fn sink_options(args: &PlayArgs, speed: f64) -> Vec<Assignment> {
    let option = |name: &str, value: Option<String>| {
        value.map(|value| Assignment { name: name.into(), value })
    };
    let given = [
        option("interface", args.interface.as_deref().map(recipe::string)),
        option("speed", (speed != 1.0).then(|| speed.to_string())),
        option("max_gap", args.max_gap.clone()),
        option("loop", args.rounds.map(|rounds| rounds.to_string())),
        option("max_rate", args.max_rate.map(|rate| rate.to_string())),
        option("max_bandwidth", args.max_bandwidth.map(|bytes| bytes.0.to_string())),
    ];
    given.into_iter().flatten().collect()
}

/// How it is shown where playing is.
enum Form {
    /// In a line that changes, on a terminal that gives keys.
    Keys(Terminal),
    /// In a line now and then.
    Plain(Duration),
    Json,
    Silent,
}

impl Form {
    fn of(args: &PlayArgs, shell: &Shell) -> Self {
        let plain = || Self::Plain(Duration::from_secs(if shell.verbose { 1 } else { 5 }));
        match args.running.progress {
            ProgressForm::Json => Self::Json,
            ProgressForm::None => Self::Silent,
            _ if shell.quiet => Self::Silent,
            _ if log::is_json() => Self::Json,
            ProgressForm::Plain => plain(),
            ProgressForm::Auto | ProgressForm::Bar => {
                Terminal::open(Screen::Line).map_or_else(plain, Self::Keys)
            }
        }
    }

    /// Whether people read what is said.
    fn is_for_people(&self) -> bool {
        // As objects words are something for programs, too.
        matches!(self, Self::Keys(_) | Self::Plain(_)) || log::is_json()
    }
}

fn play(pipeline: Pipeline, speed: f64, form: Form, args: &PlayArgs, shell: &Shell) -> Outcome {
    run::allowed(&pipeline, &execute::resources(&args.running))?;
    let report_file = execute::ReportFile::of(&args.running, &pipeline, &[])?;
    let last = match form {
        Form::Silent => None,
        _ => span::last(&pipeline, &args.selection),
    };
    let playback = Arc::<Playback>::default();
    if args.paused {
        playback.toggle();
    }
    let watch = Arc::new(Watch { is_for_people: form.is_for_people(), damage: AtomicU64::new(0) });
    let options = Options {
        playback: Arc::clone(&playback),
        progress: Some(watch.clone()),
        ..execute::resources(&args.running)
    };
    let told = Arc::clone(&watch);
    let listening =
        Listening::start(Arc::clone(&options.stop), &STOPPING, move |text| told.say(text));
    let mut player = Player { playback, watch, speed, last, rate: Rate::default(), keys: false };
    let result = execute::beside(
        &options.stop,
        move |over| player.show(form, over),
        || run::run(pipeline, &options).map_err(|error| Failure::from(error).by(&options.stop)),
    );
    drop(listening);
    if let Some(file) = report_file {
        file.write(result.as_ref().map(Report::to_json))?;
    }
    tell_end(result?, args, shell)
}

fn tell_end(report: Report, args: &PlayArgs, shell: &Shell) -> Outcome {
    let ending = execute::ending_of(&report, args.running.strict);
    execute::tell_losses(&report, Origin::Flags, shell);
    execute::tell_unmatched(&report, Origin::Flags, shell);
    let played = report.sinks.values().map(|sink| sink.events).sum();
    let text = format!("played {} in {:.2} s", units::many(played, "event"), report.seconds);
    execute::tell_summary(&text, execute::summary_fields(&report), &args.running, shell);
    Ok(ending)
}

/// What the engine tells.
struct Watch {
    is_for_people: bool,
    /// Damaged ranges so far.
    damage: AtomicU64,
}

impl Watch {
    fn say(&self, text: &str) {
        if self.is_for_people {
            terminal::say(text);
        }
    }
}

impl Progress for Watch {
    fn update(&self, snapshot: &Snapshot) {
        self.damage.store(snapshot.damage, Ordering::Relaxed);
    }

    fn note(&self, node: &str, what: &str) {
        self.say(&format!("{node}: {}", printable_sentence(what)));
    }
}

/// Who steers, and says where it is.
struct Player {
    playback: Arc<Playback>,
    watch: Arc<Watch>,
    speed: f64,
    last: Option<i64>,
    rate: Rate,
    /// Whether keys are read.
    keys: bool,
}

impl Player {
    /// Shows where it is until it is over.
    fn show(&mut self, form: Form, over: &Receiver<()>) {
        let begun = Instant::now();
        self.rate.at(begun, 0);
        match form {
            Form::Keys(terminal) => {
                self.keys = true;
                self.follow_keys(terminal, over);
            }
            Form::Plain(pause) => {
                while is_not_over(over, pause) {
                    tell(&self.status().line(usize::MAX));
                }
            }
            Form::Json => {
                while is_not_over(over, Duration::from_millis(500)) {
                    log::progress(self.status().json(begun.elapsed().as_secs_f64(), false));
                }
                log::progress(self.status().json(begun.elapsed().as_secs_f64(), true));
            }
            // Nothing comes but the end.
            Form::Silent => drop(over.recv()),
        }
    }

    fn follow_keys(&mut self, mut terminal: Terminal, over: &Receiver<()>) {
        const EVERY: Duration = Duration::from_millis(50);
        while is_not_over(over, Duration::ZERO) {
            for key in terminal.keys(EVERY) {
                if let Some(order) = keys::order(key, &self.place()) {
                    self.obey(order);
                }
            }
            // The last column is left free: some terminals go on in the next line.
            terminal.draw_line(&self.status().line(terminal.size().0.saturating_sub(1)));
        }
    }

    fn obey(&self, order: Order) {
        match order {
            Order::Pause => drop(self.playback.toggle()),
            Order::Step => self.playback.step(1),
            Order::Factor(factor) => self.playback.set_factor(factor),
            Order::Seek(time) => self.playback.seek(time),
            Order::Quit => self.playback.end(),
            Order::Help => keys::HELP.into_iter().for_each(terminal::say),
        }
    }

    fn place(&self) -> Place {
        Place {
            position: self.playback.position(),
            first: self.playback.first(),
            last: self.last,
            speed: self.speed,
            factor: self.playback.factor(),
        }
    }

    fn status(&mut self) -> Status {
        let events = self.playback.played();
        Status {
            place: self.place(),
            paused: self.playback.is_paused(),
            events,
            rate: self.rate.at(Instant::now(), events),
            damage: self.watch.damage.load(Ordering::Relaxed),
            keys: self.keys,
        }
    }
}

/// Waits that long for the end; gives whether it has not come.
fn is_not_over(over: &Receiver<()>, wait: Duration) -> bool {
    matches!(over.recv_timeout(wait), Err(RecvTimeoutError::Timeout))
}
