//! Takes the rows of a scan from a cached table.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions, StringViewArray};
use arrow_schema::{DataType, SchemaRef};
use arrow_select::take::{TakeOptions, take};
use datafusion::error::Result;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use sluice_kit::event_table::{LogColumn, TableKind};

use super::scan_task::{CachedScan, ScanColumns, ScanTask, filter};
use super::stored_rows::is_label;
use crate::cache::{CachedTable, StoredBatches, TableSummary};

/// The cached tables that have the columns of a scan, at the time it was planned.
#[derive(Debug)]
pub(super) struct CachedTables {
    pub(super) key: String,
    /// Shortest first.
    tables: Vec<CachedTable>,
}

impl CachedTables {
    /// Looks for the table of a task. `None` if the table cannot be cached.
    pub(super) fn find(task: &ScanTask) -> Option<Self> {
        let (cache, scan) = (task.log.cache.as_ref()?, &task.cached.as_ref()?.columns);
        let key = task.cache_key()?;
        let mut tables = cache.tables.tables(&key);
        tables.retain(|table| scan.places.iter().all(|at| table.summary.columns.contains(at)));
        Some(Self { key, tables })
    }

    /// Whether the log is as it was when the query was planned.
    pub(super) fn is_current(&self, task: &ScanTask) -> bool {
        task.cache_key().as_ref() == Some(&self.key)
    }

    /// Whether a table has the rows and findings of a task.
    pub(super) fn has(&self, task: &ScanTask, limit: Option<usize>) -> bool {
        self.suitable(task, limit).next().is_some()
    }

    fn suitable<'t>(
        &'t self,
        task: &'t ScanTask,
        limit: Option<usize>,
    ) -> impl Iterator<Item = &'t CachedTable> {
        self.tables.iter().filter(move |table| has_findings_of(task, &table.summary, limit))
    }

    /// Opens a table, and reports what was found when it was read. `None` if there is none, or no
    /// memory for it.
    pub(super) fn open(
        &self,
        task: &Arc<ScanTask>,
        limit: Option<usize>,
        memory: &Arc<dyn MemoryPool>,
    ) -> Option<CachedRows> {
        self.suitable(task, limit).find_map(|table| {
            let reservation = MemoryConsumer::new("cached table").register(memory);
            reservation.try_grow(usize::try_from(table.bytes).ok()?).ok()?;
            CachedRows::open(task, table, limit, reservation)
        })
    }
}

/// Whether a task would find in the log what reading the whole table found there. Always, if that
/// is nothing.
fn has_findings_of(task: &ScanTask, summary: &TableSummary, limit: Option<usize>) -> bool {
    let found = &summary.findings;
    if found.is_empty() {
        return true;
    }
    // Times out of range are only noted if times are read.
    let columns = task.kind.columns();
    let is_time = |place: &usize| columns.get(*place) == Some(&LogColumn::Timestamp);
    let same_counts = !found.has_counts()
        || summary.columns.iter().any(is_time) == task.places.iter().any(is_time);
    limit.is_none() && task.pushdown.is_whole_table(&task.kind) && same_counts
}

/// The rows of a cached table.
pub(super) struct CachedRows {
    task: Arc<ScanTask>,
    batches: StoredBatches,
    columns: Vec<CachedColumn>,
    labels: CachedLabels,
    /// How many rows are left before the limit.
    rows_left: Option<usize>,
    /// The memory of `batches`.
    _reservation: MemoryReservation,
}

/// Where a column of a scan comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CachedColumn {
    /// The column at this index of what is read.
    Stored(usize),
    /// The name of the channel, whose id is the first column.
    Name,
    /// The source of the channel, whose id is the first column.
    Source,
}

/// The names and sources of channels, by channel id.
struct CachedLabels {
    names: StringViewArray,
    sources: StringViewArray,
}

impl CachedLabels {
    fn from_summary(summary: &TableSummary) -> Self {
        let labels = || summary.labels.iter();
        Self {
            names: labels().map(|(name, _)| Some(name)).collect(),
            sources: labels().map(|(_, source)| Some(source)).collect(),
        }
    }
}

impl CachedRows {
    fn open(
        task: &Arc<ScanTask>,
        table: &CachedTable,
        limit: Option<usize>,
        reservation: MemoryReservation,
    ) -> Option<Self> {
        let (cache, scan) = (task.log.cache.as_ref()?, &task.cached.as_ref()?.columns);
        let (read, columns) = layout(scan, &task.kind, &table.summary.columns);
        let (summary, batches) = cache.tables.open(table, read.clone())?;
        let stored = batches.schema();
        let has_type = |column: &CachedColumn, expected: &DataType| match column {
            CachedColumn::Stored(at) => {
                let field = read.get(*at).and_then(|at| stored.fields().get(*at));
                field.is_some_and(|field| field.data_type() == expected)
            }
            CachedColumn::Name | CachedColumn::Source => true,
        };
        let mut types = columns.iter().zip(scan.schema.fields());
        if !types.all(|(column, field)| has_type(column, field.data_type())) {
            return None;
        }
        task.log.findings.add_table(&summary.findings);
        let labels = CachedLabels::from_summary(&summary);
        if matches!(task.kind, TableKind::Events) {
            task.log.add_all_channels(summary.channels);
        }
        Some(Self {
            task: Arc::clone(task),
            batches,
            columns,
            labels,
            rows_left: limit,
            _reservation: reservation,
        })
    }

    /// The next rows in order; `None` at the end.
    pub(super) fn next_rows(&mut self) -> Result<Option<RecordBatch>> {
        let Some(CachedScan { columns: scan, .. }) = &self.task.cached else { return Ok(None) };
        while self.rows_left != Some(0)
            && let Some(stored) = self.batches.next().transpose()?
        {
            let rows = self.build(&scan.schema, &stored)?;
            let mut rows = filter(rows, scan.condition.as_ref(), &self.task.schema)?;
            if let Some(left) = &mut self.rows_left {
                rows = rows.slice(0, rows.num_rows().min(*left));
                *left -= rows.num_rows();
            }
            if rows.num_rows() > 0 {
                return Ok(Some(rows));
            }
        }
        Ok(None)
    }

    /// The columns of the scan.
    fn build(&self, schema: &SchemaRef, stored: &RecordBatch) -> Result<RecordBatch> {
        let labels = |labels: &StringViewArray| {
            take(labels, stored.column(0), Some(TakeOptions { check_bounds: true }))
        };
        let columns = self.columns.iter().map(|column| match column {
            CachedColumn::Stored(at) => Ok(Arc::clone(stored.column(*at))),
            CachedColumn::Name => labels(&self.labels.names),
            CachedColumn::Source => labels(&self.labels.sources),
        });
        let columns = columns.collect::<std::result::Result<Vec<ArrayRef>, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(stored.num_rows()));
        Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?)
    }
}

/// The columns of a file to read, and where the columns of a scan are among them. `stored` are the
/// columns of the file as the collector lists them.
fn layout(
    scan: &ScanColumns,
    kind: &TableKind,
    stored: &[usize],
) -> (Vec<usize>, Vec<CachedColumn>) {
    let all = kind.columns();
    let is_label = |place: &usize| all.get(*place).is_some_and(|column| is_label(*column));
    let ids = usize::from(stored.iter().any(is_label));
    let mut read: Vec<usize> = scan.places.iter().any(is_label).then_some(0).into_iter().collect();
    let columns = scan.places.iter().map(|place| match all.get(*place) {
        Some(LogColumn::Channel) => CachedColumn::Name,
        Some(LogColumn::Source) => CachedColumn::Source,
        _ => {
            let before = stored.iter().take_while(|other| *other != place);
            read.push(ids + before.filter(|other| !is_label(other)).count());
            CachedColumn::Stored(read.len() - 1)
        }
    });
    let columns = columns.collect();
    (read, columns)
}
