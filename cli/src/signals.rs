//! Signal handling: the first SIGINT, SIGTERM or SIGHUP ends a run cleanly, the second at once,
//! even if it is blocked. A recording opens a new file on SIGHUP. Child programs are ended in any
//! case.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGXFSZ};
use signal_hook::flag;
use signal_hook::iterator::{Handle, Signals};
use signal_hook::low_level::emulate_default_handler;
use sluice_model::programs;
use sluice_pipeline::run::Stop;

use crate::exit::EXIT_FAILED;
use crate::terminal;

/// The messages printed on the first and on the second signal.
pub type SignalMessages = [&'static str; 2];

/// Messages for runs that publish their outputs at the end.
pub(crate) const PUBLISHING: SignalMessages =
    ["stopping; another signal aborts", "aborting: nothing will be published"];
/// The second of them while a run publishes, which is not ended half-way.
const ABORTING_LATE: &str = "aborting: nothing but what is being published now will be published";

/// Messages for recordings, whose outputs grow.
pub(crate) const RECORDING: SignalMessages = [
    "stopping: writing what was received; another signal aborts",
    "aborting: unwritten messages are lost",
];

/// How long a run may take to end at the second signal. One that is blocked by a disk or a pipe
/// does not see it.
const ABORT_TIMEOUT: Duration = Duration::from_secs(2);
/// The same for a run that the first signal discards, which also removes its temporary files.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(10);
/// How often it is checked whether a run still publishes.
const PUBLISHING_POLL: Duration = Duration::from_millis(100);

/// Whether SIGHUP requests a new file instead of ending the program.
static HANGUP_REQUESTS_NEW_FILE: AtomicBool = AtomicBool::new(false);

/// Returns a flag that SIGHUP raises from now on instead of ending the program. If the handler
/// cannot be installed, SIGHUP still ends it.
pub(crate) fn hangup_flag() -> Arc<AtomicBool> {
    HANGUP_REQUESTS_NEW_FILE.store(true, Ordering::Relaxed);
    let raised = Arc::default();
    drop(flag::register(SIGHUP, Arc::clone(&raised)));
    raised
}

/// Listens for signals until dropped.
pub struct SignalListener(Option<Handle>);

impl SignalListener {
    /// Forwards signals to `stop` and prints `words` with `say`.
    ///
    /// If handlers cannot be installed, signals end the program as by default.
    pub fn start(
        stop: Arc<Stop>,
        words: &'static SignalMessages,
        say: impl Fn(&str) + Send + 'static,
    ) -> Self {
        // Ignored, so that a write beyond the file size limit is an error and not fatal.
        drop(flag::register(SIGXFSZ, Arc::default()));
        let (mut before, listening) = (0, Arc::new(()));
        Self::spawn(move |signal| match signal {
            SIGQUIT => terminate_by_signal(signal),
            // A closing terminal sends SIGHUP twice: by itself and through its shell.
            SIGHUP if before > 0 => {}
            _ => {
                handle_signal(signal, before, &stop, words, &say);
                before += 1;
                exit_after_timeout(Arc::downgrade(&listening), Arc::clone(&stop));
            }
        })
    }

    /// Lets signals end the program as by default, after ending its child programs.
    pub(crate) fn terminating() -> Self {
        Self::spawn(terminate_by_signal)
    }

    /// Calls `heard` with each signal, on a thread of its own.
    pub fn spawn(heard: impl FnMut(i32) + Send + 'static) -> Self {
        let mut signals = vec![SIGINT, SIGTERM];
        if !HANGUP_REQUESTS_NEW_FILE.load(Ordering::Relaxed) && !is_ignored(SIGHUP) {
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

impl Drop for SignalListener {
    fn drop(&mut self) {
        if let Some(handle) = &self.0 {
            handle.close();
        }
    }
}

fn handle_signal(
    signal: i32,
    before: usize,
    stop: &Stop,
    words: &SignalMessages,
    say: &impl Fn(&str),
) {
    match words.get(before) {
        Some(word) if *word == PUBLISHING[1] && stop.is_publishing() => say(ABORTING_LATE),
        Some(word) => say(word),
        None => exit_now(stop),
    }
    stop.request_for(signal);
}

/// Ends this process if somebody is still listening for signals after the timeout, but not while it
/// publishes, and at the first signal only if the run is discarded.
fn exit_after_timeout(listening: Weak<()>, stop: Arc<Stop>) {
    let timeout = if stop.is_aborted() { ABORT_TIMEOUT } else { DISCARD_TIMEOUT };
    let wait = move || {
        let mut end = Instant::now() + timeout;
        while Instant::now() < end {
            std::thread::sleep(PUBLISHING_POLL);
            if stop.is_publishing() {
                // Afterwards, the run removes temporary files, and says what it has published, or
                // what is left if that failed.
                end = end.max(Instant::now() + DISCARD_TIMEOUT);
            }
        }
        let is_over = stop.is_aborted() || stop.is_discarding();
        if is_over && listening.strong_count() > 0 {
            exit_now(&stop);
        }
    };
    // Without a thread, more signals are needed.
    drop(std::thread::Builder::new().name("sluice-abort".into()).spawn(wait));
}

/// Ends this process, whatever the run waits for.
fn exit_now(stop: &Stop) -> ! {
    terminal::restore();
    programs::shut_down();
    std::process::exit(i32::from(stop.exit()));
}

/// Ends this process by a signal, as if it had no handler.
pub fn terminate_by_signal(signal: i32) {
    terminal::restore();
    programs::shut_down();
    if emulate_default_handler(signal).is_err() {
        std::process::exit(i32::from(EXIT_FAILED));
    }
}

/// Whether the parent made this process ignore a signal, as `nohup` does.
fn is_ignored(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask & (1 << (signal - 1)) != 0)
}
