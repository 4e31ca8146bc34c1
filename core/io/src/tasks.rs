//! Jobs: work that runs on the run's threads, with results in submission order.
//!
//! Knows no thread pool: whoever has one says how a task is run.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use crate::Error;

/// Work that a sink leaves to the engine, which runs it on any thread.
pub struct Job<T> {
    bytes: usize,
    work: Work<T>,
}

enum Work<T> {
    Done(T),
    Task(Box<dyn FnOnce() -> Result<T, Error> + Send>),
}

impl<T> fmt::Debug for Job<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Job({} bytes)", self.bytes)
    }
}

impl<T> Job<T> {
    /// A result that needs no work.
    pub fn done(result: T) -> Self {
        Self { bytes: 0, work: Work::Done(result) }
    }

    /// Work on about this many bytes, which limit how many jobs run at the same time.
    pub fn new(bytes: usize, work: impl FnOnce() -> Result<T, Error> + Send + 'static) -> Self {
        Self { bytes, work: Work::Task(Box::new(work)) }
    }
}

/// A task of a [`TaskPool`].
pub type Task = Box<dyn FnOnce() + Send>;

/// Runs tasks, on other threads or immediately.
#[derive(Clone)]
pub struct TaskPool {
    width: usize,
    spawn: Arc<dyn Fn(Task) + Send + Sync>,
}

impl fmt::Debug for TaskPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TaskPool({})", self.width)
    }
}

impl TaskPool {
    /// A pool that runs `width` tasks in parallel by calling `spawn`.
    pub fn new(width: usize, spawn: impl Fn(Task) + Send + Sync + 'static) -> Self {
        Self { width, spawn: Arc::new(spawn) }
    }

    /// A pool that runs each task on a thread of its own, so that they end in any order. For tests.
    pub fn thread_per_task(width: usize) -> Self {
        // A task that has no thread fails as one that panics does.
        Self::new(width, |task| drop(std::thread::Builder::new().spawn(task)))
    }

    /// The number of tasks that run in parallel.
    pub fn width(&self) -> usize {
        self.width
    }
}

impl Default for TaskPool {
    /// Runs every task immediately on the calling thread. For tests and small tools.
    fn default() -> Self {
        Self::new(1, |task| task())
    }
}

/// A bounded queue of jobs whose results are returned in submission order.
///
/// Must not be used inside a task: waiting there could block every thread. Dropping it waits for
/// its tasks, so that nothing they hold outlives it.
#[derive(Debug)]
pub struct OrderedTasks<T> {
    pool: TaskPool,
    max_jobs: usize,
    max_bytes: usize,
    /// The bytes of the jobs in flight.
    bytes: usize,
    waiting: VecDeque<(usize, Pending<T>)>,
}

#[derive(Debug)]
enum Pending<T> {
    Done(T),
    Running(oneshot::Receiver<Result<T, Error>>),
}

impl<T: Send + 'static> OrderedTasks<T> {
    /// A queue of at most this many jobs and bytes in flight; at least of one job.
    pub fn new(pool: &TaskPool, max_jobs: usize, max_bytes: usize) -> Self {
        let (pool, max_jobs) = (pool.clone(), max_jobs.max(1));
        Self { pool, max_jobs, max_bytes, bytes: 0, waiting: VecDeque::new() }
    }

    /// The number of jobs in flight.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether no job is in flight.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Waits for the oldest job and returns its result if `job` does not fit beside those in
    /// flight; `None` if it does.
    pub fn make_room(&mut self, job: &Job<T>) -> Result<Option<T>, Error> {
        let is_full = self.waiting.len() >= self.max_jobs
            || !self.is_empty() && self.bytes.saturating_add(job.bytes) > self.max_bytes;
        if is_full { self.take_oldest() } else { Ok(None) }
    }

    /// Starts a job for which there is [room](Self::make_room).
    pub fn start(&mut self, job: Job<T>) {
        let pending = match job.work {
            Work::Done(result) => Pending::Done(result),
            Work::Task(work) => {
                let (sender, result) = oneshot::channel();
                // Nobody receives the result if the run has failed elsewhere.
                (self.pool.spawn)(Box::new(move || drop(sender.send(Error::catching(work)))));
                Pending::Running(result)
            }
        };
        self.bytes = self.bytes.saturating_add(job.bytes);
        self.waiting.push_back((job.bytes, pending));
    }

    /// The result of the oldest job if it needed no work. Does not depend on timing.
    pub fn take_done(&mut self) -> Option<T> {
        let (_, Pending::Done(_)) = self.waiting.front()? else { return None };
        self.take_oldest().ok().flatten()
    }

    /// Waits for the oldest job, and returns its result; `None` if none is in flight.
    pub fn take_oldest(&mut self) -> Result<Option<T>, Error> {
        let Some((bytes, oldest)) = self.waiting.pop_front() else { return Ok(None) };
        self.bytes -= bytes;
        match oldest {
            Pending::Done(result) => Ok(Some(result)),
            Pending::Running(result) => {
                result.recv().unwrap_or_else(|_| Err(Error::panicked())).map(Some)
            }
        }
    }
}

impl<T> Drop for OrderedTasks<T> {
    fn drop(&mut self) {
        // Otherwise a failed run could end while tasks hold its files, which would not be removed.
        for (_, job) in self.waiting.drain(..) {
            if let Pending::Running(result) = job {
                drop(result.recv());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn threads() -> TaskPool {
        TaskPool::thread_per_task(4)
    }

    fn push<T: Send + 'static>(
        queue: &mut OrderedTasks<T>,
        work: impl FnOnce() -> Result<T, Error> + Send + 'static,
    ) -> Vec<T> {
        let (job, mut results) = (Job::new(10, work), Vec::new());
        while let Some(result) = queue.make_room(&job).unwrap() {
            results.push(result);
        }
        queue.start(job);
        results
    }

    #[test]
    fn tasks_are_over_when_their_queue_is() {
        let held = Arc::new(());
        let mut ordered = OrderedTasks::new(&threads(), 50, usize::MAX);
        for _ in 0..50 {
            let held = Arc::clone(&held);
            assert!(push(&mut ordered, move || Ok(Arc::strong_count(&held))).is_empty());
        }
        drop(ordered);
        assert_eq!(Arc::strong_count(&held), 1);
    }

    #[test]
    fn results_come_in_the_order_of_their_tasks() {
        for (pool, max_jobs, max_bytes) in
            [(TaskPool::default(), 3, 100), (threads(), 3, 100), (threads(), 99, 35)]
        {
            let mut ordered = OrderedTasks::new(&pool, max_jobs, max_bytes);
            let mut results = Vec::new();
            for n in 0..50u64 {
                let wait = std::time::Duration::from_micros(n * 7 % 5 * 100);
                results.extend(push(&mut ordered, move || {
                    std::thread::sleep(wait);
                    Ok(n)
                }));
                assert!(ordered.waiting.len() <= 3);
            }
            while let Some(result) = ordered.take_oldest().unwrap() {
                results.push(result);
            }
            assert_eq!(results, (0..50).collect::<Vec<_>>());
        }
    }

    #[test]
    fn what_needs_no_work_waits_for_what_came_before_it() {
        let mut ordered = OrderedTasks::new(&threads(), 4, 0);
        ordered.start(Job::done(1));
        assert_eq!((ordered.take_done(), ordered.take_done()), (Some(1), None));
        push(&mut ordered, || Ok(2));
        ordered.start(Job::done(3));
        assert_eq!(ordered.take_done(), None);
        assert_eq!((ordered.take_oldest().unwrap(), ordered.take_done()), (Some(2), Some(3)));
    }

    #[test]
    fn a_task_that_fails_or_panics_is_an_error_when_its_turn_comes() {
        let mut ordered = OrderedTasks::new(&threads(), 4, usize::MAX);
        push(&mut ordered, || Ok(1));
        push(&mut ordered, || Err(Error::refused("no")));
        push(&mut ordered, || panic!("a panic that this test is about"));
        assert_eq!(ordered.take_oldest().unwrap(), Some(1));
        assert_eq!(ordered.take_oldest().unwrap_err().to_string(), "no");
        assert!(ordered.take_oldest().unwrap_err().to_string().contains("panicked"));
        assert_eq!(ordered.take_oldest().unwrap(), None);
    }
}
