//! The executor: takes orders from a scheduler and has each fulfilled by a process of its own. Outlives
//! the scheduler: when that falls silent or is started anew, it joins again.
//!
//! Asks for work itself, so it needs no port and can stand behind a firewall. Touches no data.

pub(crate) mod child;
mod done_marker;
mod session;
mod unit_runner;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sluice_core::Error;
use sluice_pipeline::dispatch::Greeting;
use sluice_pipeline::run::Stop;
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use crate::address::Address;
use crate::handshake::{HandshakeError, check_scheduler};
use crate::{POLL_INTERVAL, runtime, stop_requested};
use session::SchedulerSession;
use unit_runner::UnitRunner;

/// How long an executor that has just been started waits for its scheduler.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(8);

/// The longest pause between two tries to join again.
const MAX_BACKOFF: Duration = Duration::from_secs(15);

/// How to be an executor.
#[derive(Clone, Debug)]
pub struct ExecutorOptions {
    /// Where the scheduler is.
    pub scheduler: Address,
    /// What the executor is called beside others; its host's name if left out.
    pub name: Option<String>,
    /// How many units to run at a time.
    pub slots: usize,
    /// How many threads each gets.
    pub jobs: usize,
    /// Where Ballista may put what it writes down, which is little; a temporary folder if left out.
    pub work_dir: Option<PathBuf>,
    /// Whether pipelines may run programs here.
    pub allow_exec: bool,
    /// What this program is.
    pub greeting: Greeting,
}

/// What is said from inside.
pub(crate) type MessageSender = mpsc::Sender<String>;

/// Is an executor until it is asked to stop: then it ends what it is at, which others will do. Says when
/// it has joined, when it has lost its scheduler, and what units say on standard error.
///
/// `Err` if the scheduler is not there when it begins, or if it is another program at any time.
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
    let temporary =
        match &options.work_dir {
            Some(_) => None,
            None => Some(TempDir::with_prefix("sluice-executor-").map_err(|e| {
                Error::io("create", std::env::temp_dir().join("sluice-executor"), e)
            })?),
        };
    let work_dir = options.work_dir.as_deref().or(temporary.as_ref().map(TempDir::path));
    let work_dir = work_dir.unwrap_or_else(|| std::path::Path::new("."));
    std::fs::create_dir_all(work_dir).map_err(|e| Error::io("create", work_dir, e))?;
    let runner = Arc::new(UnitRunner::new(options, messages.clone()));
    let mut first = Some(Instant::now() + CONNECT_TIMEOUT);
    let mut backoff = Duration::from_millis(250);
    while !stop.is_requested() {
        match check_scheduler(&options.scheduler, &options.greeting).await {
            Ok(identity) => {
                let session = SchedulerSession::new(options, &identity, &runner, work_dir);
                match session.run(stop, &messages).await {
                    Ok(()) => break,
                    Err(why) => send_message(&messages, format!("{why}; joining again")).await,
                }
                (first, backoff) = (None, Duration::from_millis(250));
            }
            // Whoever starts an executor wants to know at once that nothing is there. Later, it is worth
            // waiting for.
            Err(HandshakeError::Unreachable(why)) => match first {
                Some(end) if Instant::now() >= end => {
                    return Err(HandshakeError::Unreachable(why).into());
                }
                _ => backoff = (backoff * 2).min(MAX_BACKOFF),
            },
            Err(refused) => return Err(refused.into()),
        }
        let limit = if first.is_some() { Duration::from_secs(1) } else { MAX_BACKOFF };
        wait(backoff.min(limit), stop).await;
    }
    Ok(())
}

/// Waits so long, or until it is asked to stop.
async fn wait(time: Duration, stop: &Stop) {
    tokio::select! {
        () = sleep(time.max(POLL_INTERVAL)) => {}
        () = stop_requested(stop) => {}
    }
}

async fn send_message(messages: &MessageSender, text: String) {
    // Nobody listens any more where everything is ending.
    drop(messages.send(text).await);
}
