//! Runs the tasks that sinks spawn on the run's pool.

use std::sync::Arc;

use rayon::ThreadPool;
use sluice_io::Tasks;

pub(super) struct PoolTasks(pub(super) Arc<ThreadPool>);

impl Tasks for PoolTasks {
    fn width(&self) -> usize {
        self.0.current_num_threads()
    }

    fn spawn(&self, task: Box<dyn FnOnce() + Send>) {
        self.0.spawn(task);
    }
}
