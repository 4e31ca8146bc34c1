//! Ctrl-C and `kill`: the first ends a run gently, the second at once. SIGHUP asks a recording for a new file.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag;
use signal_hook::iterator::{Handle, Signals};
use sluice_pipeline::run::Stop;

use crate::ending::FAILED;
use crate::terminal;

/// What is said to the first signal, and to the second.
pub(crate) type Words = [&'static str; 2];

/// What is said where outputs appear at the end.
pub(crate) const PUBLISHING: Words = [
    "stopping: what is whole will be finished and published; once more aborts",
    "aborting: nothing will be published",
];

/// What is said where outputs grow.
pub(crate) const RECORDING: Words = [
    "stopping: what has been received is written; once more leaves it",
    "aborting: what was not yet written is lost",
];

/// A flag that SIGHUP raises from now on, instead of ending the program. Where signals cannot be had, it
/// goes on ending it.
pub(crate) fn hangups() -> Arc<AtomicBool> {
    let raised = Arc::default();
    drop(flag::register(SIGHUP, Arc::clone(&raised)));
    raised
}

/// Listens for signals as long as it lives.
pub(crate) struct Listening(Option<Handle>);

impl Listening {
    /// Passes signals on to `stop`; the first one is told to the user by `say`.
    ///
    /// Where signals cannot be had, they do what they always do: end the program.
    pub(crate) fn start(
        stop: Arc<Stop>,
        words: &'static Words,
        say: impl Fn(&str) + Send + 'static,
    ) -> Self {
        // A write beyond the size that files may have is then an error that is told, and no death.
        drop(flag::register(SIGXFSZ, Arc::default()));
        let Ok(mut signals) = Signals::new([SIGINT, SIGTERM]) else { return Self(None) };
        let handle = signals.handle();
        let heard = move |before| heard(before, &stop, words, &say);
        let listen = move || signals.forever().enumerate().for_each(|(before, _)| heard(before));
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

fn heard(before: usize, stop: &Stop, words: &Words, say: &impl Fn(&str)) {
    match words.get(before) {
        Some(word) => say(word),
        // The run does not come to the point where it looks: a disk or a pipe that does not answer.
        None => {
            terminal::restore();
            sluice_core::programs::end_all();
            std::process::exit(i32::from(FAILED));
        }
    }
    stop.request();
}
