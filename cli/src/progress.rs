//! Shows how a run goes on standard error: a bar, plain lines, or JSON. Decides nothing about the run.

use std::io::{self, IsTerminal};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;
use sluice_pipeline::run::{Progress, Snapshot};

use crate::args::ProgressForm;
use crate::shell::tell;
use crate::units;

// Both fit into eighty columns, so that the line never wraps.
const BAR: &str =
    "{wide_bar} {percent:>3}% of {decimal_total_bytes}, {decimal_bytes_per_sec}, {msg}, {eta} left";
const SPINNER: &str = "{spinner} {decimal_bytes}, {decimal_bytes_per_sec}, {msg}, {elapsed}";

/// Shows how a run goes.
pub(crate) struct Meter {
    form: Form,
    started: Instant,
    state: Mutex<State>,
}

enum Form {
    Bar(ProgressBar),
    Plain,
    Json,
    Silent,
}

struct State {
    last: Snapshot,
    told: Instant,
}

impl Meter {
    /// A meter in that form. A quiet program shows progress to machines only, which asked for it.
    pub(crate) fn new(form: ProgressForm, quiet: bool) -> Self {
        let form = match form {
            ProgressForm::Json => Form::Json,
            ProgressForm::None => Form::Silent,
            _ if quiet => Form::Silent,
            ProgressForm::Auto if io::stderr().is_terminal() => bar(),
            ProgressForm::Bar => bar(),
            ProgressForm::Auto | ProgressForm::Plain => Form::Plain,
        };
        let (started, last) = (Instant::now(), Snapshot::default());
        Self { form, started, state: Mutex::new(State { last, told: started }) }
    }

    /// Says something without tearing up the bar.
    pub(crate) fn say(&self, text: &str) {
        match &self.form {
            Form::Bar(bar) => bar.suspend(|| tell(text)),
            // Machines read every line; a person's words are none of theirs.
            Form::Json => {}
            Form::Plain | Form::Silent => tell(text),
        }
    }

    /// Takes the bar away, or says the last word.
    pub(crate) fn finish(&self) {
        match &self.form {
            Form::Bar(bar) => bar.finish_and_clear(),
            Form::Json => self.tell_machine(&self.state().last, true),
            Form::Plain | Form::Silent => {}
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the snapshot; gives whether it is time to tell.
    fn is_due(&self, snapshot: &Snapshot) -> bool {
        let mut state = self.state();
        state.last = *snapshot;
        let due = state.told.elapsed() >= self.form.pause();
        if due {
            state.told = Instant::now();
        }
        due
    }

    fn show(&self, snapshot: &Snapshot) {
        match &self.form {
            Form::Bar(bar) => self.tell_bar(bar, snapshot),
            Form::Plain => self.tell_person(snapshot),
            Form::Json => self.tell_machine(snapshot, false),
            Form::Silent => {}
        }
    }

    fn tell_person(&self, snapshot: &Snapshot) {
        let seconds = self.started.elapsed().as_secs_f64();
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
        tell(&line.to_string());
    }

    fn tell_bar(&self, bar: &ProgressBar, snapshot: &Snapshot) {
        if let Some(total) = snapshot.total_bytes.filter(|_| bar.length().is_none()) {
            bar.set_length(total);
            bar.set_style(style(BAR).progress_chars("=> "));
        }
        let rate = snapshot.events as f64 / self.started.elapsed().as_secs_f64().max(1e-9);
        let damage = if snapshot.damage > 0 { ", damage" } else { "" };
        let inputs = inputs(snapshot).map(|inputs| format!("{inputs}, ")).unwrap_or_default();
        bar.set_message(format!("{inputs}{} events/s{damage}", units::count(rate as u64)));
        bar.set_position(snapshot.bytes);
    }
}

impl Progress for Meter {
    fn update(&self, snapshot: &Snapshot) {
        // What lies across a cut is read twice; nobody wants to see more than all of it.
        let bytes = snapshot.bytes.min(snapshot.total_bytes.unwrap_or(u64::MAX));
        let snapshot = &Snapshot { bytes, ..*snapshot };
        if self.is_due(snapshot) {
            self.show(snapshot);
        }
    }
}

impl Form {
    /// How long to be silent between two words.
    fn pause(&self) -> Duration {
        match self {
            Self::Bar(_) => Duration::from_millis(100),
            Self::Json => Duration::from_millis(500),
            Self::Plain => Duration::from_secs(5),
            Self::Silent => Duration::MAX,
        }
    }
}

/// How many inputs of a batch are done.
fn inputs(snapshot: &Snapshot) -> Option<String> {
    let Snapshot { units, units_done, .. } = snapshot;
    (*units > 0).then(|| format!("{units_done}/{units} inputs"))
}

fn events(snapshot: &Snapshot) -> String {
    let events = units::many(snapshot.events, "event");
    match snapshot.damage {
        0 => events,
        damage => format!("{events}, {}", units::many(damage, "damaged range")),
    }
}

fn bar() -> Form {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
    bar.set_style(style(SPINNER));
    bar.enable_steady_tick(Duration::from_millis(200));
    Form::Bar(bar)
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}
