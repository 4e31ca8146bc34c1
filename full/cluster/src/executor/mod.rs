//! The executor: takes orders from a scheduler and has each fulfilled by a process of its own. Outlives
//! the scheduler: when that falls silent or is started anew, it joins again.
//!
//! Asks for work itself, so it needs no port and can stand behind a firewall. Touches no data.

pub(crate) mod child;
mod marks;
mod session;
mod workshop;

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
use crate::hello::{Unmet, meet};
use crate::{LOOK, requested, runtime};
use session::Session;
use workshop::Workshop;

/// How long an executor that has just been started waits for its scheduler.
const FIRST_WAIT: Duration = Duration::from_secs(8);

/// The longest pause between two tries to join again.
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

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
pub(crate) type Voice = mpsc::Sender<String>;

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
    let (voice, mut heard) = mpsc::channel::<String>(256);
    let result = runtime.block_on(async {
        let serving = run(options, stop, voice);
        tokio::pin!(serving);
        loop {
            tokio::select! {
                biased;
                Some(text) = heard.recv() => say(&text),
                result = &mut serving => break result,
            }
        }
    });
    while let Ok(text) = heard.try_recv() {
        say(&text);
    }
    runtime.shutdown_background();
    result
}

async fn run(options: &ExecutorOptions, stop: &Stop, voice: Voice) -> Result<(), Error> {
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
    let workshop = Arc::new(Workshop::new(options, voice.clone()));
    let mut first = Some(Instant::now() + FIRST_WAIT);
    let mut pause = Duration::from_millis(250);
    while !stop.is_requested() {
        match meet(&options.scheduler, &options.greeting).await {
            Ok(hello) => {
                let session = Session::new(options, &hello, &workshop, work_dir);
                match session.run(stop, &voice).await {
                    Ok(()) => break,
                    Err(why) => tell(&voice, format!("{why}; joining again")).await,
                }
                (first, pause) = (None, Duration::from_millis(250));
            }
            // Whoever starts an executor wants to know at once that nothing is there. Later, it is worth
            // waiting for.
            Err(Unmet::Silent(why)) => match first {
                Some(end) if Instant::now() >= end => return Err(Unmet::Silent(why).into()),
                _ => pause = (pause * 2).min(LONGEST_PAUSE),
            },
            Err(refused) => return Err(refused.into()),
        }
        let most = if first.is_some() { Duration::from_secs(1) } else { LONGEST_PAUSE };
        wait(pause.min(most), stop).await;
    }
    Ok(())
}

/// Waits so long, or until it is asked to stop.
async fn wait(time: Duration, stop: &Stop) {
    tokio::select! {
        () = sleep(time.max(LOOK)) => {}
        () = requested(stop) => {}
    }
}

async fn tell(voice: &Voice, text: String) {
    // Nobody listens any more where everything is ending.
    drop(voice.send(text).await);
}
