//! What sinks hand over runs on the run's pool, beside everything else.

use std::sync::Arc;

use rayon::ThreadPool;
use sluice_core::Tasks;

pub(super) struct OnPool(pub(super) Arc<ThreadPool>);

impl Tasks for OnPool {
    fn width(&self) -> usize {
        self.0.current_num_threads()
    }

    fn spawn(&self, task: Box<dyn FnOnce() + Send>) {
        self.0.spawn(task);
    }
}
