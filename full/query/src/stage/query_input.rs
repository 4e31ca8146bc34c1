//! The tables of a plan. Each run of the plan gets its rows from the task context.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use datafusion::catalog::streaming::StreamingTable;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use futures::stream;

/// The rows of each table in one run of a plan.
#[derive(Debug)]
pub(super) struct RunRows(pub(super) Vec<Option<RecordBatch>>);

/// Streams the rows of one table.
#[derive(Debug)]
struct RowsStream {
    table: usize,
    schema: SchemaRef,
}

impl PartitionStream for RowsStream {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let part = context.session_config().get_extension::<RunRows>();
        let rows = part.and_then(|part| part.0.get(self.table).cloned().flatten());
        let rows = stream::iter(rows.map(Ok));
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), rows))
    }
}

/// A table of a plan.
#[derive(Debug)]
pub(super) struct QueryInput {
    pub(super) table: Arc<StreamingTable>,
    stream: Arc<dyn PartitionStream>,
}

impl QueryInput {
    /// The table at this index, with these columns.
    pub(super) fn new(table: usize, schema: &SchemaRef) -> Result<Self> {
        let stream: Arc<dyn PartitionStream> =
            Arc::new(RowsStream { table, schema: Arc::clone(schema) });
        let table = StreamingTable::try_new(Arc::clone(schema), vec![Arc::clone(&stream)])?;
        Ok(Self { table: Arc::new(table), stream })
    }

    /// Whether a scan reads this table.
    pub(super) fn is(&self, stream: &Arc<dyn PartitionStream>) -> bool {
        std::ptr::addr_eq(Arc::as_ptr(&self.stream), Arc::as_ptr(stream))
    }
}
