//! Where rows enter a plan. With each run of a plan they come from its context; nothing is kept here.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use datafusion::catalog::streaming::StreamingTable;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use futures::stream;

/// The rows of each table in one run of a plan, by the tables' places.
#[derive(Debug)]
pub(super) struct Part(pub(super) Vec<Option<RecordBatch>>);

/// A table whose rows are given with each run.
#[derive(Debug)]
struct Given {
    table: usize,
    schema: SchemaRef,
}

impl PartitionStream for Given {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let part = context.session_config().get_extension::<Part>();
        let rows = part.and_then(|part| part.0.get(self.table).cloned().flatten());
        let rows = stream::iter(rows.map(Ok));
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), rows))
    }
}

/// The table at a place, with these columns.
pub(super) fn table(table: usize, schema: &SchemaRef) -> Result<Arc<StreamingTable>> {
    let given = Given { table, schema: Arc::clone(schema) };
    Ok(Arc::new(StreamingTable::try_new(Arc::clone(schema), vec![Arc::new(given)])?))
}

/// The place of a table that is scanned.
pub(super) fn place_of(stream: &Arc<dyn PartitionStream>) -> Option<usize> {
    // Streams say nothing of themselves but how they are shown.
    let shown = format!("{stream:?}");
    shown.strip_prefix("Given { table: ")?.split_once(',')?.0.parse().ok()
}
