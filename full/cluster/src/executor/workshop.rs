//! What an executor is at: starts a process for each order, and decides what its end means: done, worth
//! another try, or given up. Asks no scheduler for anything.

use std::fmt;
use std::io;
use std::path::Path;
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
use super::marks::Mark;
use super::{ExecutorOptions, Voice, tell};
use crate::address::Address;
use crate::plan::{Task, Worker};
use crate::scheduler::answers::Word;
use crate::unit::Ended;
use crate::{LOOK, ask, host};

/// How long an order is kept whose folders are not here: an executor that sees less than others is always
/// idle, and would take every order away from those that see them.
const MISPLACED: Duration = Duration::from_secs(2);

/// What an executor is at.
pub(super) struct Workshop {
    /// What processes are told beside their order.
    arguments: Vec<String>,
    scheduler: Address,
    voice: Voice,
    /// Where processes are waited for. Ballista runs tasks on threads of low priority, which processes
    /// that are started from them would inherit.
    runtime: Handle,
    running: Mutex<Vec<Running>>,
}

/// A unit that is under way. It is ended when `end` is dropped.
struct Running {
    task: Task,
    end: Option<oneshot::Sender<()>>,
}

/// An order, and what is known of the task that it came with.
struct Piece {
    task: Task,
    order: Order,
    /// What it is called where it is talked of.
    name: String,
}

impl Workshop {
    /// A workshop on the runtime of whoever calls.
    pub(super) fn new(options: &ExecutorOptions, voice: Voice) -> Self {
        let mut arguments = vec!["--jobs".to_owned(), options.jobs.to_string()];
        if options.allow_exec {
            arguments.push("--allow-exec".to_owned());
        }
        let (scheduler, runtime) = (options.scheduler.clone(), Handle::current());
        Self { arguments, scheduler, voice, runtime, running: Mutex::default() }
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

    async fn fulfil(&self, piece: &Piece, end: oneshot::Receiver<()>) -> io::Result<()> {
        let mark = Mark::of(&piece.order, &piece.task.job);
        if self.blocking(&mark, Mark::is_there).await? {
            return Ok(());
        }
        let unseen =
            self.blocking(&piece.order, |order| order.unseen().map(Path::to_owned)).await?;
        if let Some(missing) = unseen {
            tokio::select! {
                () = sleep(MISPLACED) => {}
                _ = end => return Err(unwanted()),
            }
            return self.try_again_or_give_up(piece, misplaced(&missing)).await;
        }
        let why = match self.have_done(piece, end).await? {
            Came::To(Ended::Delivered) => {
                return self.blocking(&mark, Mark::leave).await;
            }
            Came::Ended => return Err(unwanted()),
            Came::To(Ended::Again(why)) | Came::Died(why) => {
                if !self.blocking(&piece.order, Order::is_over).await? {
                    return self.try_again_or_give_up(piece, why).await;
                }
                "the run is over".to_owned()
            }
            Came::To(Ended::Abandoned(why)) => why,
        };
        tell(&self.voice, format!("{}: left: {why}", piece.name)).await;
        Ok(())
    }

    /// Does what may have to wait for a file system or a store.
    async fn blocking<A, T>(&self, about: &A, act: fn(&A) -> T) -> io::Result<T>
    where
        A: Clone + Send + 'static,
        T: Send + 'static,
    {
        let about = about.clone();
        self.runtime.spawn_blocking(move || act(&about)).await.map_err(io::Error::other)
    }

    async fn have_done(&self, piece: &Piece, end: oneshot::Receiver<()>) -> io::Result<Came> {
        let Piece { order, name, .. } = piece;
        let text = serde_json::to_string(order).map_err(io::Error::other)?;
        child::fulfil(&self.arguments, order.folder(), &text, name, &self.voice, end).await
    }

    /// `Err` if another try is worth it.
    async fn try_again_or_give_up(&self, piece: &Piece, why: String) -> io::Result<()> {
        let Piece { task, order, name } = piece;
        let failures = task.failures + 1;
        let (order, reason) = (order.clone(), why.clone());
        let judge = move || {
            let attempts = order.attempts().unwrap_or(0).max(failures);
            // A room that is not there is not to be made: the driver would not see it.
            let give_up = || !order.is_over() && order.give_up(&reason).is_ok();
            (attempts >= ATTEMPTS).then(give_up)
        };
        let judged = self.runtime.spawn_blocking(judge).await.map_err(io::Error::other)?;
        match judged {
            None => {
                let word = format!("{name}: failed on {}, is tried again: {why}", host());
                self.say(task, word, false).await;
                Err(io::Error::other(why))
            }
            Some(true) => {
                tell(&self.voice, format!("{name}: given up: {why}")).await;
                Ok(())
            }
            // Not even that can be said where the driver looks. Were this a failure, all of the job would
            // fail with it.
            Some(false) => {
                self.say(task, format!("{name}: left: {why}"), true).await;
                Ok(())
            }
        }
    }

    /// Says something here and to the driver.
    async fn say(&self, task: &Task, text: String, is_left: bool) {
        tell(&self.voice, text.clone()).await;
        ask::say(&self.scheduler, &format!("/sluice/job/{}", task.job), &Word { text, is_left })
            .await;
    }
}

impl Piece {
    fn of(task: Task, shared: &str, order: &str) -> io::Result<Self> {
        let order = Order::together(shared, order).map_err(io::Error::other)?;
        let name = printable(&order.input().display().to_string()).into_owned();
        Ok(Self { task, order, name })
    }
}

fn unwanted() -> io::Error {
    io::Error::other("it was ended: nobody wants it any more")
}

fn misplaced(folder: &Path) -> String {
    format!(
        "the folder {} is not there on {}: inputs and outputs must be visible to every executor",
        folder.display(),
        host()
    )
}

impl Worker for Workshop {
    fn work(
        self: Arc<Self>,
        task: Task,
        shared: Arc<str>,
        order: String,
    ) -> BoxFuture<'static, io::Result<()>> {
        let (end, ended) = oneshot::channel();
        self.lock().push(Running { task: task.clone(), end: Some(end) });
        let ending = Ending { workshop: Arc::clone(&self), task: task.clone() };
        let runtime = self.runtime.clone();
        // Goes on when nobody waits for it any more, until its process has ended.
        let working = runtime.spawn(async move {
            let done = match Piece::of(task.clone(), &shared, &order) {
                Ok(piece) => self.fulfil(&piece, ended).await,
                Err(error) => Err(error),
            };
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
