//! Markers in the staging directory that say that a unit was delivered in a job. When an executor
//! is lost, Ballista reruns everything that executor did in the job. With the marker, the rerun
//! does nothing; the driver may already have taken and removed the delivery.

use sluice_pipeline::dispatch::UnitOrder;

/// Marks a unit as done in one job. A later job of the same run may have to run the unit again, if
/// the driver could not use its delivery.
#[derive(Clone, Debug)]
pub(super) struct DoneMarker {
    order: UnitOrder,
    name: String,
}

impl DoneMarker {
    pub(super) fn new(order: &UnitOrder, job: &str) -> Self {
        Self { order: order.clone(), name: format!("job-{job}/{:06}", order.unit()) }
    }

    pub(super) fn exists(&self) -> bool {
        self.order.is_marked(&self.name)
    }

    /// Writes the marker. If that fails, the unit may run again needlessly.
    pub(super) fn write(&self) {
        drop(self.order.mark(&self.name));
    }
}
