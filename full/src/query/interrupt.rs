//! Ends queries by Ctrl-C. Ends nothing else.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use signal_hook::consts::{SIGINT, SIGQUIT};
use sluice::extension::{Failure, SignalListener, log_message, terminate_by_signal};
use sluice_pipeline::run::Stop;

/// Listens for signals as long as it lives.
pub(super) struct QueryInterrupt {
    flag: Arc<AtomicBool>,
    /// Knows the signal that came first.
    stop: Arc<Stop>,
    _listening: SignalListener,
}

impl QueryInterrupt {
    /// Any signal ends the query, so that its files are removed; the next one ends the program.
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
                log_message("stopping the query; once more ends the program");
            }
        });
        Self { flag, stop, _listening: listening }
    }

    /// Ctrl-C ends the query and not the program; other signals end that, with the terminal as it was.
    pub(super) fn for_prompt() -> Self {
        let before: Option<Termios> = tcgetattr(std::io::stdin()).ok();
        let flag = Arc::<AtomicBool>::default();
        let signal_flag = Arc::clone(&flag);
        let listening = SignalListener::spawn(move |signal| {
            if signal == SIGINT && !signal_flag.swap(true, Ordering::Relaxed) {
                return;
            }
            if let Some(before) = &before {
                // What cannot be restored now never can.
                let _restored = tcsetattr(std::io::stdin(), OptionalActions::Now, before);
            }
            terminate_by_signal(signal);
        });
        Self { flag, stop: Arc::default(), _listening: listening }
    }

    /// A query's failure, with the exit code of the signal that ended it, if one did.
    pub(super) fn with_exit_code(&self, failure: Failure) -> Failure {
        failure.with_exit_code_of(&self.stop)
    }

    /// What is raised to end queries.
    pub(super) fn flag(&self) -> &AtomicBool {
        &self.flag
    }

    /// Forgets that one was to be ended.
    pub(super) fn reset(&self) {
        self.flag.store(false, Ordering::Relaxed);
    }
}
