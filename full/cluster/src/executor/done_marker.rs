//! Marks in a room that a unit has been delivered in a job. When an executor is lost, Ballista has
//! everything done again that it had done in that job: a mark says that there is nothing to do. The
//! driver may have taken the delivery, and have removed it, by then.

use sluice_pipeline::dispatch::Order;

/// The mark of a unit in a job. In a later job of the same run it may have to be done again: the driver
/// could not use what was delivered.
#[derive(Clone, Debug)]
pub(super) struct DoneMarker {
    order: Order,
    name: String,
}

impl DoneMarker {
    pub(super) fn new(order: &Order, job: &str) -> Self {
        Self { order: order.clone(), name: format!("job-{job}/{:06}", order.unit()) }
    }

    pub(super) fn exists(&self) -> bool {
        self.order.is_marked(&self.name)
    }

    /// Leaves it. Where that fails, the unit may be done again for nothing.
    pub(super) fn write(&self) {
        drop(self.order.mark(&self.name));
    }
}
