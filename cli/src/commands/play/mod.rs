//! `play`: replays recorded events on a live network, controlled by keys.
//!
//! Generates a pipeline from its arguments, as `convert` does. The sink waits for the time of each
//! event, and is controlled through the playback that the engine passes to it. `keys` maps keys to
//! commands.

mod args;
mod keys;
mod span;
mod status;

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use sluice_io::escape::printable_sentence;
use sluice_io::files::is_stream;
use sluice_kit::Playback;
use sluice_model::{DefaultRole, Plugin, PluginKind, units};
use sluice_pipeline::report::Note;
use sluice_pipeline::run::{self, Milestone, Options, Progress, Snapshot};
use sluice_pipeline::{Pipeline, Report};

use crate::args::{Assignment, ProgressFormat, refuse_interface_of_hub};
use crate::commands::report_file::{self, ReportFile};
use crate::commands::{execute, generated};
use crate::conversion;
use crate::exit::{CommandResult, Failure};
use crate::flags::{self, PipelineOrigin};
use crate::input_format::InputFormat;
use crate::inputs;
use crate::log;
use crate::log::log_message;
use crate::plugin_lookup;
use crate::recipe::{self, Recipe};
use crate::shell::Shell;
use crate::signals::{SignalListener, SignalMessages};
use crate::terminal::{self, ScreenArea, Terminal};

pub(crate) use args::PlayArgs;
use keys::{PlaybackPosition, PlayerCommand};
use status::{EventRate, PlaybackStatus};

/// The messages on signals.
const STOPPING: SignalMessages = ["stopping; another signal aborts", "aborting"];

pub(crate) fn run(args: &PlayArgs, shell: &Shell) -> CommandResult {
    let report = args.running.report.as_deref().filter(|_| !args.print_pipeline);
    let (text, speed, pipeline) = report_file::prepare(report, || {
        let (text, speed) = text(args, shell)?;
        let describe = args.format.describe.as_deref();
        let pipeline = generated::parse_generated("sluice play", &text, describe, shell)?;
        Ok((text, speed, pipeline))
    })?;
    if args.print_pipeline {
        return generated::print_pipeline("sluice play", text, shell);
    }
    let form = PlayerDisplay::from_args(args, shell);
    if args.paused && !matches!(form, PlayerDisplay::Keys(_)) {
        let what = "--paused waits for a key, but there is no terminal to read keys from";
        return Err(Failure::Usage(what.into()));
    }
    play(pipeline, speed, form, args, shell)
}

/// The pipeline file equivalent to the arguments, and the speed in it.
fn text(args: &PlayArgs, shell: &Shell) -> Result<(String, f64), Failure> {
    let to = args.to.as_deref().unwrap_or_default();
    // Without a URL, the default sink has its own address.
    let default = || plugin_lookup::default_plugin(shell, PluginKind::Sink, DefaultRole::Live);
    if !to.is_empty() && !plugin_lookup::is_url(to) {
        let scheme = default()?.schemes.first().copied().unwrap_or_default();
        return Err(Failure::Usage(format!(
            "{to} is not a URL such as {scheme}://239.255.76.67:7667; `sluice convert` \
             writes files"
        )));
    }
    let sink = match to {
        "" => default()?,
        url => plugin_lookup::plugin_for_url(shell, PluginKind::Sink, url)?,
    };
    refuse_interface_of_hub(args.interface.as_deref(), args.to.as_deref())?;
    let mut selection = args.selection.clone();
    selection.patterns.channel.extend(args.regex.clone());
    let (files, selection) = inputs::resolve_file_urls(&args.inputs, &selection, shell)?;
    let stream = files.iter().find(|file| is_stream(Path::new(file)));
    if let (Some(input), Some(0 | 2..)) = (stream, args.rounds) {
        return Err(Failure::Usage(format!(
            "--loop needs inputs that can be read twice, and `{input}` cannot"
        )));
    }
    let format = InputFormat::from_args(&args.format)?;
    let source = inputs::find_source(&files, &format, shell)?;
    let speed = speed(args)?;
    let source_options = playback_options(source, format.options);
    let from_source = conversion::behind(source, &source_options)?;
    let recipe = Recipe {
        source: source.name,
        from_source: &from_source,
        source_options: &source_options,
        inputs: &files,
        selection: Some(&selection),
        renames: &args.rename,
        encodes: source.gives_rows || !from_source.is_empty(),
        sink: sink.name,
        output: to,
        sink_options: &sink_options(args, speed),
        ..Recipe::default()
    };
    Ok((recipe.text(), speed))
}

/// The options of the source: those given, and its defaults for playback.
fn playback_options(source: &Plugin, mut options: Vec<Assignment>) -> Vec<Assignment> {
    for (name, value) in source.when_played {
        if options.iter().all(|option| option.name != *name) {
            options.push(Assignment { name: (*name).to_owned(), value: (*value).to_owned() });
        }
    }
    options
}

/// The speeds at which events wait for their times.
const SPEEDS: std::ops::RangeInclusive<f64> = 1e-6..=1e9;

/// The speed of `--speed` or of the log's URL; 0 is as fast as possible.
fn speed(args: &PlayArgs) -> Result<f64, Failure> {
    let given_speed = match (&args.speed, args.inputs.as_slice()) {
        (Some(speed), _) => Some(*speed),
        (None, [url]) => {
            inputs::parse_file_url(url).map_err(Failure::Usage)?.and_then(|url| url.speed)
        }
        (None, _) => None,
    };
    let speed = given_speed.unwrap_or(1.0).max(0.0);
    if speed == 0.0 || SPEEDS.contains(&speed) {
        return Ok(speed);
    }
    let flag = if args.speed.is_some() { "--speed" } else { "the speed of the URL" };
    Err(Failure::Usage(format!(
        "{flag}: expected 0 or less (as fast as possible), or a number from {} to {}, found \
         {speed:?}",
        SPEEDS.start(),
        SPEEDS.end()
    )))
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

/// How playback is displayed.
enum PlayerDisplay {
    /// A status line on a terminal, with keys.
    Keys(Terminal),
    /// A line per interval.
    Plain(Duration),
    Json,
    Silent,
}

impl PlayerDisplay {
    fn from_args(args: &PlayArgs, shell: &Shell) -> Self {
        let plain = || Self::Plain(Duration::from_secs(if shell.verbose { 1 } else { 5 }));
        match args.running.progress {
            ProgressFormat::Json => Self::Json,
            ProgressFormat::None => Self::Silent,
            _ if shell.quiet => Self::Silent,
            _ if log::is_json() => Self::Json,
            ProgressFormat::Plain => plain(),
            ProgressFormat::Auto | ProgressFormat::Bar => {
                Terminal::open(ScreenArea::Line).map_or_else(plain, Self::Keys)
            }
        }
    }

    /// Whether messages are printed.
    fn is_for_people(&self) -> bool {
        // In a JSON log, messages are records as well.
        matches!(self, Self::Keys(_) | Self::Plain(_)) || log::is_json()
    }
}

fn play(
    pipeline: Pipeline,
    speed: f64,
    form: PlayerDisplay,
    args: &PlayArgs,
    shell: &Shell,
) -> CommandResult {
    run::check_programs_allowed(&pipeline, &execute::running_options(&args.running))?;
    let report_file = ReportFile::open_if_requested(&args.running, &pipeline, &[])?;
    let last = match form {
        PlayerDisplay::Silent => None,
        _ => span::last_timestamp(&pipeline, &args.selection),
    };
    let playback = Arc::<Playback>::default();
    // Keys can move the position before the first event is played.
    let first = args.paused.then(|| span::first_timestamp(&pipeline, &args.selection)).flatten();
    if args.paused {
        playback.toggle();
    }
    let watch = Arc::new(PlaybackWatch {
        is_for_people: form.is_for_people(),
        damage: AtomicU64::new(0),
        notes: Mutex::default(),
        failed_run: OnceLock::new(),
    });
    let options = Options {
        playback: Arc::clone(&playback),
        progress: Some(watch.clone()),
        ..execute::running_options(&args.running)
    };
    let shared_watch = Arc::clone(&watch);
    let listening = SignalListener::start(Arc::clone(&options.stop), &STOPPING, move |text| {
        shared_watch.say(text)
    });
    let mut player = Player {
        playback,
        watch: Arc::clone(&watch),
        speed,
        first,
        last,
        rate: EventRate::default(),
        keys: false,
    };
    let result = execute::run_with_watcher(
        &options.stop,
        move |over| player.show(form, over),
        || Ok(run::run(pipeline, &options)?),
    );
    drop(listening);
    let to_json = |report: &Report| execute::report_json(report, args.running.strict);
    let known = watch.failed_run.get().cloned();
    execute::deliver_report(report_file, result.as_ref(), to_json, known, shell)?;
    let mut report = result?;
    let printed = watch.notes();
    report.notes.retain(|note| !printed.contains(note));
    print_end(report, args, shell)
}

fn print_end(mut report: Report, args: &PlayArgs, shell: &Shell) -> CommandResult {
    flags::name_regex(&mut report.names, args.regex.as_deref());
    let (origin, strict) = (PipelineOrigin::Flags, args.running.strict);
    let ending = execute::report_findings(&report, origin, strict, shell);
    let played = report.sinks.values().map(|sink| sink.events).sum();
    let text = format!("played {} in {:.2} s", units::pluralize(played, "event"), report.seconds);
    execute::print_summary(&text, execute::summary_fields(&report, ending), &args.running, shell);
    Ok(ending)
}

/// Receives progress from the engine.
struct PlaybackWatch {
    is_for_people: bool,
    /// The number of damaged ranges so far.
    damage: AtomicU64,
    /// The notes that were printed.
    notes: Mutex<Vec<Note>>,
    /// What is known of the run if it has failed.
    failed_run: OnceLock<Value>,
}

impl PlaybackWatch {
    fn say(&self, text: &str) {
        if self.is_for_people {
            terminal::println(text);
        }
    }

    fn notes(&self) -> MutexGuard<'_, Vec<Note>> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Progress for PlaybackWatch {
    fn update(&self, snapshot: &Snapshot) {
        self.damage.store(snapshot.damage, Ordering::Relaxed);
    }

    fn milestone(&self, milestone: &Milestone<'_>) {
        if let Milestone::Failed { report } = milestone {
            self.failed_run.get_or_init(|| report.to_json());
        }
    }

    fn note(&self, node: &str, what: &str, count: u64) {
        let is_known = |note: &Note| note.node == node && note.what == what;
        if self.is_for_people && !self.notes().iter().any(is_known) {
            self.say(&format!("{node}: {}", printable_sentence(what)));
            self.notes().push(Note { node: node.to_owned(), what: what.to_owned(), count });
        }
    }
}

/// Controls playback, and displays its position.
struct Player {
    playback: Arc<Playback>,
    watch: Arc<PlaybackWatch>,
    speed: f64,
    /// Where playback begins, if it waits there.
    first: Option<i64>,
    last: Option<i64>,
    rate: EventRate,
    /// Whether keys are read.
    keys: bool,
}

impl Player {
    /// Displays the position until playback ends.
    fn show(&mut self, form: PlayerDisplay, over: &Receiver<()>) {
        let begun = Instant::now();
        self.rate.at(begun, 0);
        match form {
            PlayerDisplay::Keys(terminal) => {
                self.keys = true;
                self.follow_keys(terminal, over);
            }
            PlayerDisplay::Plain(pause) => {
                while is_still_running(over, pause) {
                    log_message(&self.status().line(usize::MAX));
                }
            }
            PlayerDisplay::Json => {
                while is_still_running(over, Duration::from_millis(500)) {
                    log::log_progress(self.status().json(begun.elapsed().as_secs_f64(), false));
                }
                log::log_progress(self.status().json(begun.elapsed().as_secs_f64(), true));
            }
            // Wait for the end.
            PlayerDisplay::Silent => drop(over.recv()),
        }
    }

    fn follow_keys(&mut self, mut terminal: Terminal, over: &Receiver<()>) {
        const EVERY: Duration = Duration::from_millis(50);
        while is_still_running(over, Duration::ZERO) {
            for key in terminal.keys(EVERY) {
                if let Some(order) = keys::command_for(key, &self.position()) {
                    self.apply(order);
                }
            }
            // The last column stays free, as some terminals wrap after it.
            terminal.draw_line(&self.status().line(terminal.size().0.saturating_sub(1)));
        }
    }

    fn apply(&self, order: PlayerCommand) {
        match order {
            PlayerCommand::Pause => drop(self.playback.toggle()),
            PlayerCommand::Step => self.playback.step(1),
            PlayerCommand::Factor(factor) => self.playback.set_factor(factor),
            PlayerCommand::Seek(time) => self.playback.seek(time),
            PlayerCommand::Quit => self.playback.end(),
            PlayerCommand::Help => keys::HELP.into_iter().for_each(terminal::println),
        }
    }

    fn position(&self) -> PlaybackPosition {
        PlaybackPosition {
            position: self.playback.position().or(self.first),
            played: self.playback.last_played(),
            first: self.first.or_else(|| self.playback.first()),
            last: self.last,
            speed: self.speed,
            factor: self.playback.factor(),
        }
    }

    fn status(&mut self) -> PlaybackStatus {
        let events = self.playback.played();
        PlaybackStatus {
            place: self.position(),
            paused: self.playback.is_paused(),
            events,
            rate: self.rate.at(Instant::now(), events),
            damage: self.watch.damage.load(Ordering::Relaxed),
            keys: self.keys,
        }
    }
}

/// Waits up to `wait` for the end; returns whether playback is still running.
fn is_still_running(over: &Receiver<()>, wait: Duration) -> bool {
    matches!(over.recv_timeout(wait), Err(RecvTimeoutError::Timeout))
}
