//! Stops queries on Ctrl-C.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use signal_hook::consts::{SIGINT, SIGQUIT};
use sluice::extension::{Failure, SignalListener, log_message, terminate_by_signal};
use sluice_pipeline::run::Stop;

/// Handles signals while it lives.
pub(super) struct QueryInterrupt {
    flag: Arc<AtomicBool>,
    /// Has the first signal.
    stop: Arc<Stop>,
    _listening: SignalListener,
}

impl QueryInterrupt {
    /// The first signal stops the query, which removes its files; the next one ends the program.
    pub(super) fn for_program() -> Self {
        let flag = Arc::<AtomicBool>::default();
        let signal_flag = Arc::clone(&flag);
        let stop = Arc::<Stop>::default();
        let signal_stop = Arc::clone(&stop);
        let listening = SignalListener::spawn(move |signal| {
            signal_stop.request_for(signal);
            if signal == SIGQUIT || signal_flag.swap(true, Ordering::Relaxed) {
                terminate_by_signal(signal);
            } else {
                log_message("stopping the query; a second signal ends the program");
            }
        });
        Self { flag, stop, _listening: listening }
    }

    /// Ctrl-C stops the query only; other signals restore the terminal and end the program.
    pub(super) fn for_prompt() -> Self {
        let before: Option<Termios> = tcgetattr(std::io::stdin()).ok();
        let flag = Arc::<AtomicBool>::default();
        let signal_flag = Arc::clone(&flag);
        let listening = SignalListener::spawn(move |signal| {
            if signal == SIGINT && !signal_flag.swap(true, Ordering::Relaxed) {
                return;
            }
            if let Some(before) = &before {
                // If that fails, nothing else can restore it.
                let _restored = tcsetattr(std::io::stdin(), OptionalActions::Now, before);
            }
            terminate_by_signal(signal);
        });
        Self { flag, stop: Arc::default(), _listening: listening }
    }

    /// Adds the exit code of the signal to a failure, if there was one.
    pub(super) fn with_exit_code(&self, failure: Failure) -> Failure {
        failure.with_exit_code_of(&self.stop)
    }

    /// Set when the query should stop.
    pub(super) fn flag(&self) -> &AtomicBool {
        &self.flag
    }

    /// Clears the flag.
    pub(super) fn reset(&self) {
        self.flag.store(false, Ordering::Relaxed);
    }
}
