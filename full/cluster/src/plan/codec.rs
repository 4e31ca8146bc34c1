//! Serializes plans of orders. All other nodes of a plan are left to Ballista's codec.

use std::sync::Arc;

use ballista_core::serde::BallistaPhysicalExtensionCodec;
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;
use datafusion_proto::physical_plan::{PhysicalExtensionCodec, PhysicalProtoConverterExtension};

use super::{UnitExec, UnitWorker, internal};

/// The first bytes of our node. Ballista's nodes never start like this: they have no field of this
/// number.
const MAGIC: &[u8] = b"\xFFsluice\x01";

/// The codec of plans with orders.
#[derive(Debug, Default)]
pub(crate) struct PlanCodec {
    worker: Option<Arc<dyn UnitWorker>>,
    others: BallistaPhysicalExtensionCodec,
}

impl PlanCodec {
    /// The codec of drivers and schedulers: the plans cannot be executed.
    pub(crate) fn for_planning() -> Self {
        Self::default()
    }

    /// The codec of an executor, whose plans run units.
    pub(crate) fn with_worker(worker: Arc<dyn UnitWorker>) -> Self {
        Self { worker: Some(worker), ..Self::default() }
    }
}

impl PhysicalExtensionCodec for PlanCodec {
    fn try_decode(
        &self,
        buf: &[u8],
        inputs: &[Arc<dyn ExecutionPlan>],
        context: &TaskContext,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Some(shared) = buf.strip_prefix(MAGIC) else {
            return self.others.try_decode(buf, inputs, context, converter);
        };
        let [input] = inputs else { return Err(internal("expected one plan below orders")) };
        let shared =
            std::str::from_utf8(shared).map_err(|_| internal("expected orders in UTF-8"))?;
        Ok(Arc::new(UnitExec::new(Arc::clone(input), shared.into(), self.worker.clone())))
    }

    fn try_encode(
        &self,
        node: Arc<dyn ExecutionPlan>,
        buf: &mut Vec<u8>,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        let Some(orders) = node.downcast_ref::<UnitExec>() else {
            return self.others.try_encode(node, buf, converter);
        };
        buf.extend_from_slice(MAGIC);
        buf.extend_from_slice(orders.shared().as_bytes());
        Ok(())
    }
}
