//! Ctrl-C, `kill`, and a terminal that is closed: the first ends a run with nothing half done, the second at once.
//! SIGHUP asks a recording for a new file. No signal that ends this process leaves programs behind.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGXFSZ};
use signal_hook::flag;
use signal_hook::iterator::{Handle, Signals};
use signal_hook::low_level::emulate_default_handler;
use sluice_core::programs;
use sluice_pipeline::run::Stop;

use crate::ending::FAILED;
use crate::terminal;

/// What is said to the first signal, and to the second.
pub type SignalMessages = [&'static str; 2];

/// What is said where outputs appear at the end.
pub(crate) const PUBLISHING: SignalMessages = [
    "stopping: what is not whole is not published; once more aborts",
    "aborting: nothing will be published",
];

/// What is said where outputs grow.
pub(crate) const RECORDING: SignalMessages = [
    "stopping: what has been received is written; once more leaves it",
    "aborting: what was not yet written is lost",
];

/// Whether SIGHUP asks for something else than an end.
static HANGUP_IS_AN_ORDER: AtomicBool = AtomicBool::new(false);

/// A flag that SIGHUP raises from now on, instead of ending the program. Where signals cannot be had, it
/// goes on ending it.
pub(crate) fn hangups() -> Arc<AtomicBool> {
    HANGUP_IS_AN_ORDER.store(true, Ordering::Relaxed);
    let raised = Arc::default();
    drop(flag::register(SIGHUP, Arc::clone(&raised)));
    raised
}

/// Listens for signals as long as it lives.
pub struct Listening(Option<Handle>);

impl Listening {
    /// Passes signals on to `stop`; the first one is told to the user by `say`.
    ///
    /// Where signals cannot be had, they do what they always do: end the program.
    pub fn start(
        stop: Arc<Stop>,
        words: &'static SignalMessages,
        say: impl Fn(&str) + Send + 'static,
    ) -> Self {
        // A write beyond the size that files may have is then an error that is told, and no death.
        drop(flag::register(SIGXFSZ, Arc::default()));
        let mut before = 0;
        Self::on(move |signal| match signal {
            SIGQUIT => end_by(signal),
            // A terminal that is closed says so twice: by itself, and by the shell in it.
            SIGHUP if before > 0 => {}
            _ => {
                heard(signal, before, &stop, words, &say);
                before += 1;
            }
        })
    }

    /// Has signals end the program as they always do, and before it all programs that work for it.
    pub(crate) fn to_end() -> Self {
        Self::on(end_by)
    }

    /// Has `heard` called with each signal, on a thread of its own.
    pub fn on(heard: impl FnMut(i32) + Send + 'static) -> Self {
        let mut signals = vec![SIGINT, SIGTERM];
        if !HANGUP_IS_AN_ORDER.load(Ordering::Relaxed) && !is_ignored(SIGHUP) {
            signals.push(SIGHUP);
        }
        if !is_ignored(SIGQUIT) {
            signals.push(SIGQUIT);
        }
        let Ok(mut signals) = Signals::new(signals) else { return Self(None) };
        let handle = signals.handle();
        let listen = move || signals.forever().for_each(heard);
        let thread = std::thread::Builder::new().name("sluice-signals".into()).spawn(listen);
        Self(thread.is_ok().then_some(handle))
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        if let Some(handle) = &self.0 {
            handle.close();
        }
    }
}

fn heard(signal: i32, before: usize, stop: &Stop, words: &SignalMessages, say: &impl Fn(&str)) {
    match words.get(before) {
        Some(word) => say(word),
        // The run does not come to the point where it looks: a disk or a pipe that does not answer.
        None => {
            terminal::restore();
            programs::close();
            std::process::exit(i32::from(stop.exit()));
        }
    }
    stop.request_for(signal);
}

/// Ends this process by a signal, as if nobody had listened.
pub fn end_by(signal: i32) {
    terminal::restore();
    programs::close();
    if emulate_default_handler(signal).is_err() {
        std::process::exit(i32::from(FAILED));
    }
}

/// Whether who started this process has it ignore a signal, as `nohup` does.
fn is_ignored(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask & (1 << (signal - 1)) != 0)
}
