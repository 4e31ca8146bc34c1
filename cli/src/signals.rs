//! Ctrl-C and `kill`: the first ends a run gently, the second at once.

use std::sync::Arc;

use signal_hook::consts::{SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag;
use signal_hook::iterator::{Handle, Signals};
use sluice_pipeline::run::Stop;

use crate::ending::FAILED;

/// Listens for signals as long as it lives.
pub(crate) struct Listening(Option<Handle>);

impl Listening {
    /// Passes signals on to `stop`; the first one is told to the user by `say`.
    ///
    /// Where signals cannot be had, they do what they always do: end the program.
    pub(crate) fn start(stop: Arc<Stop>, say: impl Fn(&str) + Send + 'static) -> Self {
        // A write beyond the size that files may have is then an error that is told, and no death.
        drop(flag::register(SIGXFSZ, Arc::default()));
        let Ok(mut signals) = Signals::new([SIGINT, SIGTERM]) else { return Self(None) };
        let handle = signals.handle();
        let listen = move || signals.forever().enumerate().for_each(|(n, _)| heard(n, &stop, &say));
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

fn heard(before: usize, stop: &Stop, say: &impl Fn(&str)) {
    match before {
        0 => say("stopping: what is whole will be finished and published; once more aborts"),
        1 => say("aborting: nothing will be published"),
        // The run does not come to the point where it looks: a disk or a pipe that does not answer.
        _ => std::process::exit(i32::from(FAILED)),
    }
    stop.request();
}
