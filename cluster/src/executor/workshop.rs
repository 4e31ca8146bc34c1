//! What an executor is at: starts a process for each order, and decides what its end means: done, worth another try, or
//! given up. Knows no scheduler.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use sluice_core::name::printable;
use sluice_pipeline::dispatch::{ATTEMPTS, Order};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::sleep;

use super::child::{self, Came};
use super::{ExecutorOptions, Voice, tell};
use crate::plan::{Task, Worker};
use crate::unit::Ended;
use crate::{LOOK, host};

/// How long an order whose folder is not here is kept: an executor that sees less than others is always idle, and would
/// take every order away from those that see it.
const MISPLACED: Duration = Duration::from_secs(2);

/// What an executor is at.
pub(super) struct Workshop {
    /// What processes are told beside their order.
    arguments: Vec<String>,
    voice: Voice,
    /// Where processes are waited for. Ballista runs tasks on threads of low priority, which processes that are started
    /// from them would inherit.
    runtime: Handle,
    running: Mutex<Vec<Running>>,
}

/// A unit that is under way. It is ended when `end` is dropped.
struct Running {
    task: Task,
    end: Option<oneshot::Sender<()>>,
}

impl Workshop {
    /// A workshop on the runtime of whoever calls.
    pub(super) fn new(options: &ExecutorOptions, voice: Voice) -> Self {
        let mut arguments = vec!["--jobs".to_owned(), options.jobs.to_string()];
        if options.allow_exec {
            arguments.push("--allow-exec".to_owned());
        }
        Self { arguments, voice, runtime: Handle::current(), running: Mutex::default() }
    }

    /// What it is at.
    pub(super) fn running(&self) -> Vec<Task> {
        self.lock().iter().map(|running| running.task.clone()).collect()
    }

    /// Ends a unit that nobody wants any more.
    pub(super) fn end(&self, task: &Task) {
        for running in self.lock().iter_mut().filter(|running| running.task.is(task)) {
            running.end = None;
        }
    }

    /// Ends all it is at, and waits until that has ended.
    pub(super) async fn end_all(&self) {
        for running in self.lock().iter_mut() {
            running.end = None;
        }
        while !self.lock().is_empty() {
            sleep(LOOK).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn fulfil(&self, task: &Task, text: &str, end: oneshot::Receiver<()>) -> io::Result<()> {
        let order: Order = serde_json::from_str(text).map_err(io::Error::other)?;
        let name = printable(&order.input().display().to_string()).into_owned();
        let folder = order.folder();
        let came = if folder.is_dir() {
            child::fulfil(&self.arguments, folder, text, &name, &self.voice, end).await?
        } else {
            sleep(MISPLACED).await;
            Came::Died(format!(
                "the folder {} is not there on {}: inputs and outputs must be visible to every executor",
                folder.display(),
                host()
            ))
        };
        let why = match came {
            Came::To(Ended::Delivered) => return Ok(()),
            Came::To(Ended::Abandoned(why)) => {
                tell(&self.voice, format!("{name}: left: {why}")).await;
                return Ok(());
            }
            Came::Ended => return Err(io::Error::other("it was ended: nobody wants it any more")),
            Came::To(Ended::Again(why)) | Came::Died(why) => why,
        };
        self.try_again_or_give_up(task, order, &name, why).await
    }

    /// `Err` if another try is worth it, or if it cannot even be said that none is.
    async fn try_again_or_give_up(
        &self,
        task: &Task,
        order: Order,
        name: &str,
        why: String,
    ) -> io::Result<()> {
        let failures = task.failures + 1;
        let reason = why.clone();
        let judge = move || {
            let attempts = order.attempts().unwrap_or(0).max(failures);
            let over = attempts >= ATTEMPTS;
            if over { order.give_up(&reason).map(|()| true) } else { Ok(false) }
        };
        let judged = self.runtime.spawn_blocking(judge).await.map_err(io::Error::other)?;
        match judged {
            Ok(true) => {
                tell(&self.voice, format!("{name}: given up: {why}")).await;
                Ok(())
            }
            Ok(false) => {
                tell(&self.voice, format!("{name}: failed, will be tried again: {why}")).await;
                Err(io::Error::other(why))
            }
            Err(error) => Err(io::Error::other(format!("{why}; {error}"))),
        }
    }
}

impl Worker for Workshop {
    fn work(self: Arc<Self>, task: Task, order: String) -> BoxFuture<'static, io::Result<()>> {
        let (end, ended) = oneshot::channel();
        self.lock().push(Running { task: task.clone(), end: Some(end) });
        let ending = Ending { workshop: Arc::clone(&self), task: task.clone() };
        let runtime = self.runtime.clone();
        // Goes on when nobody waits for it any more, until its process has ended.
        let working = runtime.spawn(async move {
            let done = self.fulfil(&task, &order, ended).await;
            self.lock().retain(|running| !running.task.is(&task));
            done
        });
        let wait = async move {
            let done = working.await;
            drop(ending);
            done.map_err(io::Error::other)?
        };
        wait.boxed()
    }
}

impl fmt::Debug for Workshop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Workshop")
    }
}

/// Ends a unit when nobody waits for it any more.
struct Ending {
    workshop: Arc<Workshop>,
    task: Task,
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.workshop.end(&self.task);
    }
}
