//! Runs units in child processes, and decides from how one ends whether it is done, is retried, or
//! is given up.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::BoxFuture;
use sluice_io::escape::printable;
use sluice_pipeline::dispatch::{ATTEMPTS, UnitOrder};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::sleep;

use super::child::{UnitExit, UnitProcess};
use super::context::{ExecutorOptions, MessageSender, send_message};
use super::done_marker::DoneMarker;
use crate::endpoint::SchedulerEndpoint;
use crate::plan::{BallistaTask, UnitWorker};
use crate::scheduler::admin::JobMessage;
use crate::unit::UnitResult;
use crate::{POLL_INTERVAL, host_name, http};

/// How long an order is kept whose folders are not visible here. An executor that sees fewer
/// folders than others is always idle, and would take every order away from those that see them.
const UNSEEN_DELAY: Duration = Duration::from_secs(2);

/// How long a process waits for another order. A scheduler with work has one at once, and nothing
/// of a run should outlive it.
const MAX_IDLE: Duration = Duration::from_millis(200);

/// Runs units, and knows which are running.
pub(super) struct UnitRunner {
    /// Arguments of every child process.
    arguments: Vec<String>,
    scheduler: SchedulerEndpoint,
    messages: MessageSender,
    /// Where child processes run. Ballista runs tasks on threads of low priority, which child
    /// processes started from them would inherit.
    runtime: Handle,
    running: Mutex<Vec<RunningUnit>>,
    /// When a unit last started or ended.
    changed: Mutex<Instant>,
    /// Processes that wait for another order, the last used last. Starting one takes longer than a
    /// short log.
    idle: Mutex<Vec<IdleProcess>>,
}

/// A process that has run a unit.
struct IdleProcess {
    process: UnitProcess,
    since: Instant,
}

/// A running unit. Dropping `end` cancels it.
struct RunningUnit {
    task: BallistaTask,
    end: Option<oneshot::Sender<()>>,
}

/// An order and the task that carries it.
struct AssignedUnit {
    task: BallistaTask,
    order: UnitOrder,
    /// Its name in messages.
    name: String,
}

impl UnitRunner {
    /// Must be called on a Tokio runtime, which then waits for the child processes.
    pub(super) fn new(options: &ExecutorOptions, messages: MessageSender) -> Self {
        let mut arguments = vec!["--jobs".to_owned(), options.jobs.to_string()];
        if options.allow_exec {
            arguments.push("--allow-exec".to_owned());
        }
        let (scheduler, runtime) = (options.scheduler.clone(), Handle::current());
        let (running, changed) = (Mutex::default(), Mutex::new(Instant::now()));
        Self { arguments, scheduler, messages, runtime, running, changed, idle: Mutex::default() }
    }

    /// The tasks of the running units.
    pub(super) fn running(&self) -> Vec<BallistaTask> {
        self.lock().iter().map(|running| running.task.clone()).collect()
    }

    /// How long ago a unit started or ended.
    pub(super) fn since_change(&self) -> Duration {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }

    fn note_change(&self) {
        *self.changed.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Cancels the unit of this task.
    pub(super) fn end(&self, task: &BallistaTask) {
        for running in self.lock().iter_mut().filter(|running| running.task.is_same(task)) {
            running.end = None;
        }
    }

    /// Cancels all units, and waits until they have ended.
    pub(super) async fn end_all(&self) {
        for running in self.lock().iter_mut() {
            running.end = None;
        }
        while !self.lock().is_empty() {
            sleep(POLL_INTERVAL).await;
        }
        self.end_idle(Duration::ZERO);
    }

    /// Ends the processes that have been idle for this long.
    fn end_idle(&self, time: Duration) {
        self.idle().retain(|idle| idle.since.elapsed() < time);
    }

    fn idle(&self) -> MutexGuard<'_, Vec<IdleProcess>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<RunningUnit>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn process(
        self: &Arc<Self>,
        unit: &AssignedUnit,
        end: oneshot::Receiver<()>,
    ) -> io::Result<()> {
        let done_marker = DoneMarker::new(&unit.order, &unit.task.job);
        if self.blocking(&done_marker, DoneMarker::exists).await? {
            return Ok(());
        }
        let missing_folder = self
            .blocking(&unit.order, |order| order.invisible_folder().map(Path::to_owned))
            .await?;
        if let Some(missing) = missing_folder {
            tokio::select! {
                () = sleep(UNSEEN_DELAY) => {}
                _ = end => return Err(cancelled()),
            }
            return self.retry_or_give_up(unit, missing_folder_message(&missing)).await;
        }
        let why = match self.run_child(unit, end).await? {
            UnitExit::Finished(UnitResult::Delivered) => {
                return self.blocking(&done_marker, DoneMarker::write).await;
            }
            UnitExit::Cancelled => return Err(cancelled()),
            UnitExit::Finished(UnitResult::Retry(why)) | UnitExit::Crashed(why) => {
                if !self.blocking(&unit.order, UnitOrder::is_over).await? {
                    return self.retry_or_give_up(unit, why).await;
                }
                "the run is over".to_owned()
            }
            UnitExit::Finished(UnitResult::Abandoned(why)) => why,
        };
        send_message(&self.messages, format!("{}: abandoned: {why}", unit.name)).await;
        Ok(())
    }

    /// Runs what may block on a file system or an object store.
    async fn blocking<A, T>(&self, about: &A, act: fn(&A) -> T) -> io::Result<T>
    where
        A: Clone + Send + 'static,
        T: Send + 'static,
    {
        let about = about.clone();
        self.runtime.spawn_blocking(move || act(&about)).await.map_err(io::Error::other)
    }

    async fn run_child(
        self: &Arc<Self>,
        unit: &AssignedUnit,
        end: oneshot::Receiver<()>,
    ) -> io::Result<UnitExit> {
        let AssignedUnit { order, name, .. } = unit;
        let text = serde_json::to_string(order).map_err(io::Error::other)?;
        let process = match self.take_idle(order.folder()) {
            Some(process) => process,
            None => UnitProcess::start(&self.arguments, order.folder())?,
        };
        let (exit, process) = process.run(&text, name, &self.messages, end).await?;
        if let Some(process) = process {
            self.idle().push(IdleProcess { process, since: Instant::now() });
            let runner = Arc::clone(self);
            self.runtime.spawn(async move {
                sleep(MAX_IDLE).await;
                runner.end_idle(MAX_IDLE);
            });
        }
        Ok(exit)
    }

    /// A process that can run an order in this folder.
    fn take_idle(&self, folder: &Path) -> Option<UnitProcess> {
        let mut idle = self.idle();
        let place = idle.iter_mut().rposition(|idle| idle.process.is_ready_in(folder))?;
        Some(idle.remove(place).process)
    }

    /// `Err` if the unit should be retried.
    async fn retry_or_give_up(&self, unit: &AssignedUnit, why: String) -> io::Result<()> {
        let AssignedUnit { task, order, name } = unit;
        let failures = task.failures + 1;
        let (order, reason) = (order.clone(), why.clone());
        let decide = move || {
            let attempts = order.attempts().unwrap_or(0).max(failures);
            // Never create a missing staging directory: the driver would not see it.
            let give_up = || !order.is_over() && order.give_up(&reason).is_ok();
            (attempts >= ATTEMPTS).then(give_up)
        };
        let decided = self.runtime.spawn_blocking(decide).await.map_err(io::Error::other)?;
        match decided {
            None => {
                let text = format!("{name}: failed on {}, will be retried: {why}", host_name());
                self.report(task, text, false).await;
                Err(io::Error::other(why))
            }
            Some(true) => {
                send_message(&self.messages, format!("{name}: given up: {why}")).await;
                Ok(())
            }
            // The reason cannot even be written where the driver looks for it. Returning an error
            // would fail the whole job.
            Some(false) => {
                self.report(task, format!("{name}: abandoned: {why}"), true).await;
                Ok(())
            }
        }
    }

    /// Shows a message here and sends it to the driver.
    async fn report(&self, task: &BallistaTask, text: String, is_abandoned: bool) {
        send_message(&self.messages, text.clone()).await;
        http::post_json(
            &self.scheduler,
            &format!("/sluice/job/{}", task.job),
            &JobMessage { text, is_abandoned },
        )
        .await;
    }
}

impl AssignedUnit {
    fn new(task: BallistaTask, shared: &str, order: &str) -> io::Result<Self> {
        let order = UnitOrder::from_json_parts(shared, order).map_err(io::Error::other)?;
        let name = printable(&order.input().display().to_string()).into_owned();
        Ok(Self { task, order, name })
    }
}

fn cancelled() -> io::Error {
    io::Error::other("cancelled: the run no longer needs it")
}

fn missing_folder_message(folder: &Path) -> String {
    // The driver makes it beside the outputs, and removes it when the run ends.
    let is_exchange = folder.as_os_str().as_encoded_bytes().ends_with(b".sluice-tmp");
    let unless = if is_exchange { ", or the run has ended or was killed" } else { "" };
    format!(
        "the folder {} does not exist on {}: inputs and outputs must be visible to every \
         executor{unless}",
        folder.display(),
        host_name()
    )
}

impl UnitWorker for UnitRunner {
    fn run_unit(
        self: Arc<Self>,
        task: BallistaTask,
        shared: Arc<str>,
        order: String,
    ) -> BoxFuture<'static, io::Result<()>> {
        let (end, ended) = oneshot::channel();
        self.lock().push(RunningUnit { task: task.clone(), end: Some(end) });
        self.note_change();
        let cancel_on_drop = CancelOnDrop { runner: Arc::clone(&self), task: task.clone() };
        let runtime = self.runtime.clone();
        // Keeps running when nobody awaits it any more, until the child process has exited.
        let working = runtime.spawn(async move {
            let done = match AssignedUnit::new(task.clone(), &shared, &order) {
                Ok(unit) => self.process(&unit, ended).await,
                Err(error) => Err(error),
            };
            self.lock().retain(|running| !running.task.is_same(&task));
            self.note_change();
            done
        });
        let wait = async move {
            let done = working.await;
            drop(cancel_on_drop);
            done.map_err(io::Error::other)?
        };
        wait.boxed()
    }
}

impl fmt::Debug for UnitRunner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UnitRunner")
    }
}

/// Cancels a unit when its future is dropped.
struct CancelOnDrop {
    runner: Arc<UnitRunner>,
    task: BallistaTask,
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.runner.end(&self.task);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_whose_own_folder_is_gone_has_ended() {
        let message = |folder: &str| missing_folder_message(Path::new(folder));
        assert!(message("out/.cluster.1-2.sluice-tmp").contains("the run has ended or was killed"));
        assert!(!message("/data/drives").contains("ended"));
    }
}
