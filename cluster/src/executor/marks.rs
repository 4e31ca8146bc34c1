//! Marks in a room that a unit has been delivered in a job. When an executor is lost, Ballista has
//! everything done again that it had done in that job: a mark says that there is nothing to do. The
//! driver may have taken the delivery, and have removed it, by then.

use std::fs::{self, File};
use std::io;
use std::path::PathBuf;

use sluice_pipeline::dispatch::Order;

/// The mark of a unit in a job. In a later job of the same run it may have to be done again: the driver
/// could not use what was delivered.
#[derive(Clone, Debug)]
pub(super) struct Mark(PathBuf);

impl Mark {
    pub(super) fn of(order: &Order, job: &str) -> Self {
        Self(order.room().join(format!("job-{job}")).join(format!("{:06}", order.unit())))
    }

    pub(super) fn is_there(&self) -> bool {
        self.0.exists()
    }

    /// Leaves it. Where that fails, the unit may be done again for nothing.
    pub(super) fn leave(&self) {
        drop(self.try_leave());
    }

    /// The room is not made again if it is gone: nobody would remove it.
    fn try_leave(&self) -> io::Result<()> {
        if let Some(folder) = self.0.parent() {
            match fs::create_dir(folder) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        }
        File::create(&self.0).map(drop)
    }
}
