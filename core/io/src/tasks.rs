//! Tasks: work that a sink runs on the run's threads, with results in submission order.
//!
//! Knows no thread pool: the engine runs tasks.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

use crate::Error;

/// Runs tasks, on other threads or immediately.
pub trait Tasks: Send + Sync {
    /// The number of tasks that run in parallel.
    fn width(&self) -> usize;

    /// Runs `task`, possibly before returning.
    fn spawn(&self, task: Box<dyn FnOnce() + Send>);
}

impl fmt::Debug for dyn Tasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tasks({})", self.width())
    }
}

/// Runs every task immediately on the calling thread. For tests and small tools.
#[derive(Clone, Copy, Debug, Default)]
pub struct InlineTasks;

impl Tasks for InlineTasks {
    fn width(&self) -> usize {
        1
    }

    fn spawn(&self, task: Box<dyn FnOnce() + Send>) {
        task();
    }
}

/// A bounded queue of tasks whose results are returned in submission order.
///
/// Must not be used inside a task: waiting there could block every thread. Dropping it waits for
/// its tasks, so that nothing they hold outlives it.
#[derive(Debug)]
pub struct OrderedTasks<T> {
    tasks: Arc<dyn Tasks>,
    limit: usize,
    waiting: VecDeque<Receiver<Result<T, Error>>>,
}

impl<T: Send + 'static> OrderedTasks<T> {
    /// A queue of at most `most` tasks in flight; at least one.
    pub fn new(tasks: &Arc<dyn Tasks>, most: usize) -> Self {
        Self { tasks: Arc::clone(tasks), limit: most.max(1), waiting: VecDeque::new() }
    }

    /// The number of tasks in flight.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether no task is in flight.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Changes the most tasks in flight.
    pub fn set_limit(&mut self, most: usize) {
        self.limit = most.max(1);
    }

    /// Submits a task. If the queue is full, waits for the oldest task first, and returns its
    /// result.
    pub fn push(
        &mut self,
        task: impl FnOnce() -> Result<T, Error> + Send + 'static,
    ) -> Result<Option<T>, Error> {
        let oldest = if self.waiting.len() >= self.limit { self.take_oldest()? } else { None };
        let (sender, result) = sync_channel(1);
        // Nobody receives the result if the run has failed elsewhere.
        self.tasks.spawn(Box::new(move || drop(sender.send(task()))));
        self.waiting.push_back(result);
        Ok(oldest)
    }

    /// Waits for the oldest task, and returns its result; `None` if none is in flight.
    pub fn take_oldest(&mut self) -> Result<Option<T>, Error> {
        let Some(oldest) = self.waiting.pop_front() else { return Ok(None) };
        let result = oldest.recv();
        let panicked = |_| Err(Error::internal("a task panicked; its message is above"));
        result.unwrap_or_else(panicked).map(Some)
    }
}

impl<T> Drop for OrderedTasks<T> {
    fn drop(&mut self) {
        // Otherwise a failed run could end while tasks hold its files, which would not be removed.
        self.waiting.drain(..).for_each(|result| drop(result.recv()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs each task on a thread of its own.
    struct ThreadPerTask;

    impl Tasks for ThreadPerTask {
        fn width(&self) -> usize {
            4
        }

        fn spawn(&self, task: Box<dyn FnOnce() + Send>) {
            drop(std::thread::Builder::new().spawn(task).unwrap());
        }
    }

    #[test]
    fn tasks_are_over_when_their_queue_is() {
        let (held, tasks) = (Arc::new(()), Arc::new(ThreadPerTask) as Arc<dyn Tasks>);
        let mut ordered = OrderedTasks::new(&tasks, 50);
        for _ in 0..50 {
            let held = Arc::clone(&held);
            assert!(ordered.push(move || Ok(Arc::strong_count(&held))).unwrap().is_none());
        }
        drop(ordered);
        assert_eq!(Arc::strong_count(&held), 1);
    }

    #[test]
    fn results_come_in_the_order_of_their_tasks() {
        for tasks in [Arc::new(InlineTasks) as Arc<dyn Tasks>, Arc::new(ThreadPerTask)] {
            let mut ordered = OrderedTasks::new(&tasks, 3);
            let mut results = Vec::new();
            for n in 0..50u64 {
                let wait = std::time::Duration::from_micros(n * 7 % 5 * 100);
                results.extend(ordered.push(move || {
                    std::thread::sleep(wait);
                    Ok(n)
                }));
                assert!(ordered.len() <= 3);
            }
            let mut results: Vec<u64> = results.into_iter().flatten().collect();
            while let Some(result) = ordered.take_oldest().unwrap() {
                results.push(result);
            }
            assert_eq!(results, (0..50).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_task_that_fails_or_panics_is_an_error_when_its_turn_comes() {
        let tasks = Arc::new(ThreadPerTask) as Arc<dyn Tasks>;
        let mut ordered = OrderedTasks::new(&tasks, 4);
        ordered.push(|| Ok(1)).unwrap();
        ordered.push(|| Err(Error::refused("no"))).unwrap();
        ordered.push(|| panic!("a panic that this test is about")).unwrap();
        assert_eq!(ordered.take_oldest().unwrap(), Some(1));
        assert_eq!(ordered.take_oldest().unwrap_err().to_string(), "no");
        assert!(ordered.take_oldest().unwrap_err().to_string().contains("panicked"));
        assert_eq!(ordered.take_oldest().unwrap(), None);
    }
}
