//! The executor: takes orders from a scheduler and runs each in a child process. It outlives the
//! scheduler: if that is unreachable or restarts, the executor reconnects.
//!
//! It polls for work, so it needs no port and works behind a firewall. It touches no data.

pub(crate) mod child;
mod context;
mod done_marker;
mod session;
mod unit_runner;
mod work_folder;

use std::sync::Arc;
use std::time::Duration;

use sluice_model::Error;
use sluice_pipeline::run::Stop;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use crate::handshake::{HandshakeError, check_scheduler};
use crate::{POLL_INTERVAL, runtime, stop_requested};
pub use context::ExecutorOptions;
use context::{MessageSender, send_message};
use session::SchedulerSession;
use unit_runner::UnitRunner;
use work_folder::WorkFolder;

/// How long a new executor waits for its scheduler.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(8);

/// The longest pause between attempts to reconnect.
const MAX_BACKOFF: Duration = Duration::from_secs(15);

/// Serves as an executor until `stop` is requested, then cancels its units; other executors run
/// them again. Reports when it joins or loses its scheduler, and what units print on stderr.
///
/// `Err` if the scheduler is unreachable at start, or if it is a different program at any time.
pub fn serve(
    options: &ExecutorOptions,
    stop: &Stop,
    say: &(dyn Fn(&str) + Sync),
) -> Result<(), Error> {
    let runtime = runtime(2)?;
    let (messages, mut received) = mpsc::channel::<String>(256);
    let result = runtime.block_on(async {
        let serving = run(options, stop, messages);
        tokio::pin!(serving);
        loop {
            tokio::select! {
                biased;
                Some(text) = received.recv() => say(&text),
                result = &mut serving => break result,
            }
        }
    });
    while let Ok(text) = received.try_recv() {
        say(&text);
    }
    runtime.shutdown_background();
    result
}

async fn run(options: &ExecutorOptions, stop: &Stop, messages: MessageSender) -> Result<(), Error> {
    let work_dir = WorkFolder::create(options.work_dir.as_deref())?;
    let runner = Arc::new(UnitRunner::new(options, messages.clone()));
    let mut deadline = Some(Instant::now() + CONNECT_TIMEOUT);
    let mut backoff = Duration::from_millis(250);
    while !stop.is_requested() {
        match check_scheduler(&options.scheduler, &options.program).await {
            Ok(identity) => {
                let session = SchedulerSession::new(options, &identity, &runner, work_dir.path());
                match session.run(stop, &messages).await {
                    Ok(()) => break,
                    Err(why) => send_message(&messages, format!("{why}; reconnecting")).await,
                }
                (deadline, backoff) = (None, Duration::from_millis(250));
            }
            // Whoever starts an executor wants to know at once that there is no scheduler. Later
            // on, waiting is worthwhile.
            Err(HandshakeError::Unreachable(why)) => match deadline {
                Some(end) if Instant::now() >= end => {
                    return Err(HandshakeError::Unreachable(why).into());
                }
                _ => backoff = (backoff * 2).min(MAX_BACKOFF),
            },
            Err(refused) => return Err(refused.into()),
        }
        let limit = if deadline.is_some() { Duration::from_secs(1) } else { MAX_BACKOFF };
        wait(backoff.min(limit), stop).await;
    }
    Ok(())
}

/// Waits this long, or until `stop` is requested.
async fn wait(time: Duration, stop: &Stop) {
    tokio::select! {
        () = sleep(time.max(POLL_INTERVAL)) => {}
        () = stop_requested(stop) => {}
    }
}
