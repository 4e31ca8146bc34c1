//! Tasks: work that a sink hands to the run's threads, and takes back in the order it was handed over.
//!
//! Knows no thread pool: who runs tasks is the engine's business.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

use crate::Error;

/// Runs tasks, on other threads or at once.
pub trait Tasks: Send + Sync {
    /// How many run beside each other.
    fn width(&self) -> usize;

    /// Has `task` run. May run it before it returns.
    fn spawn(&self, task: Box<dyn FnOnce() + Send>);
}

impl fmt::Debug for dyn Tasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tasks({})", self.width())
    }
}

/// Runs every task at once, on the thread that hands it over. For tests and small tools.
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

/// Tasks whose results come back in the order in which they were pushed, a bounded number at a time.
///
/// Not for use inside of a task: waiting for others there could take every thread. Dropping it waits, too: what
/// tasks hold ends with whoever handed them over.
#[derive(Debug)]
pub struct OrderedTasks<T> {
    tasks: Arc<dyn Tasks>,
    limit: usize,
    waiting: VecDeque<Receiver<Result<T, Error>>>,
}

impl<T: Send + 'static> OrderedTasks<T> {
    /// A queue of at most `most` tasks that are not yet taken back; at least one.
    pub fn new(tasks: &Arc<dyn Tasks>, most: usize) -> Self {
        Self { tasks: Arc::clone(tasks), limit: most.max(1), waiting: VecDeque::new() }
    }

    /// How many results are due.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether no result is due.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Lets so many tasks be under way from now on.
    pub fn set_limit(&mut self, most: usize) {
        self.limit = most.max(1);
    }

    /// Hands over a task. When that makes more than the queue may hold, waits for the oldest and gives
    /// its result.
    pub fn push(
        &mut self,
        task: impl FnOnce() -> Result<T, Error> + Send + 'static,
    ) -> Result<Option<T>, Error> {
        let oldest = if self.waiting.len() >= self.limit { self.take_oldest()? } else { None };
        let (sender, result) = sync_channel(1);
        // Nobody listens any more when the run has failed elsewhere.
        self.tasks.spawn(Box::new(move || drop(sender.send(task()))));
        self.waiting.push_back(result);
        Ok(oldest)
    }

    /// The oldest result, waited for; nothing if none is due.
    pub fn take_oldest(&mut self) -> Result<Option<T>, Error> {
        let Some(oldest) = self.waiting.pop_front() else { return Ok(None) };
        let result = oldest.recv();
        let panicked = |_| Err(Error::internal("a task panicked; what it said is above"));
        result.unwrap_or_else(panicked).map(Some)
    }
}

impl<T> Drop for OrderedTasks<T> {
    fn drop(&mut self) {
        // A run that has failed would else be over before its files are let go of, and not removed.
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
