//! A sink that delivers the rows of a table to a channel, in order. Knows nothing of Python.

use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use arrow_select::concat::concat_batches;
use crossbeam_channel::Sender;
use sluice_io::tasks::Job;
use sluice_kit::event_table::{
    ChannelLabels, LogColumn, SelectedRows, TableKind, column_mismatch, record_batch,
};
use sluice_model::plugin::SinkInput;
use sluice_model::{
    Batch, Channels, Error, ErrorKind, PrepareContext, Sink, SinkContext, SinkTraits, Written,
};

use crate::consumer_form;

/// Fewer rows are gathered: consumers are slow with many small batches.
const ROWS: usize = 4 << 10;
/// More bytes are not gathered: copying them takes longer than another batch.
const BYTES: usize = 1 << 20;

/// Which rows of which columns.
#[derive(Clone, Debug)]
pub(crate) struct TableForm {
    pub(crate) kind: TableKind,
    pub(crate) columns: Vec<LogColumn>,
    /// As decoded.
    decoded: SchemaRef,
    /// As delivered, in the form of consumers.
    pub(crate) schema: SchemaRef,
}

impl TableForm {
    pub(crate) fn new(kind: TableKind, columns: Vec<LogColumn>) -> Self {
        let decoded = kind.schema_of(&columns);
        let schema = consumer_form::schema(&decoded);
        Self { kind, columns, decoded, schema }
    }
}

/// The sink. It ends the run if nobody takes its rows any more.
pub(crate) struct TableSink {
    form: TableForm,
    rows: Sender<RecordBatch>,
    labels: Mutex<Arc<ChannelLabels>>,
}

/// Rows that are not delivered yet.
#[derive(Default)]
pub(crate) struct Gathered {
    batches: Vec<RecordBatch>,
    rows: usize,
    bytes: usize,
}

impl TableSink {
    /// A sink of this table that sends into `rows`.
    pub(crate) fn new(form: TableForm, rows: Sender<RecordBatch>) -> Self {
        let labels = Arc::new(ChannelLabels::from_channels(&Channels::default()));
        Self { form, rows, labels: Mutex::new(labels) }
    }

    /// The labels of all channels seen so far.
    fn labels(&self, channels: &Channels) -> Arc<ChannelLabels> {
        let mut known = self.labels.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() < channels.len() {
            *known = Arc::new(ChannelLabels::from_channels(channels));
        }
        Arc::clone(&known)
    }

    /// The events of the table, and their fields.
    fn select(
        &self,
        batch: Batch,
        context: &mut PrepareContext<'_>,
    ) -> Result<(Batch, Option<RecordBatch>), Error> {
        let TableKind::Fields(channel, kind) = &self.form.kind else {
            // Do not let a few events keep a whole block.
            let has_payloads = self.form.columns.contains(&LogColumn::Payload);
            return Ok((if has_payloads { batch.compact() } else { batch }, None));
        };
        let selected = SelectedRows::new(batch, kind)?;
        let refused = &mut context.report.refused;
        if !selected.other_type.is_empty() {
            let name = &kind.message.name;
            let why =
                format!("{channel}: events of another type than `{name}`, the type of the first");
            refused.extend(selected.other_type.iter().map(|event| (*event, why.clone())));
        }
        if !selected.undecoded.is_empty() {
            let why = format!("{channel}: events that cannot be decoded are not in the table");
            refused.extend(selected.undecoded.iter().map(|event| (*event, why.clone())));
        }
        Ok((selected.batch, Some(selected.fields)))
    }
}

impl Sink for TableSink {
    type Block = RecordBatch;
    type Unit = RecordBatch;
    type Output = Gathered;

    fn traits(&self) -> SinkTraits {
        let has_payloads = self.form.columns.contains(&LogColumn::Payload);
        let traits = SinkTraits::default().with_rows(!has_payloads);
        SinkTraits { rows_unwritten: None, ..traits }
    }

    fn open(&self, _: &SinkContext) -> Result<Gathered, Error> {
        Ok(Gathered::default())
    }

    fn prepare(
        &self,
        batch: Batch,
        context: &mut PrepareContext<'_>,
    ) -> Result<RecordBatch, Error> {
        let (batch, fields) = self.select(batch, context)?;
        let labels = self.labels(context.channels);
        let TableForm { columns, decoded, schema, .. } = &self.form;
        let rows = record_batch(columns, decoded, &batch, fields.as_ref(), &labels)?;
        consumer_form::rows(&rows, schema).map_err(column_mismatch)
    }

    fn gather(
        &self,
        gathered: &mut Gathered,
        input: SinkInput<RecordBatch>,
    ) -> Result<Vec<Job<RecordBatch>>, Error> {
        let is_last = match input {
            SinkInput::Block(rows) => {
                gathered.rows += rows.num_rows();
                gathered.bytes += rows.get_array_memory_size();
                gathered.batches.push(rows);
                false
            }
            SinkInput::Flush | SinkInput::End => true,
        };
        let is_due = gathered.rows >= ROWS || gathered.bytes >= BYTES || is_last;
        if !is_due || gathered.rows == 0 {
            return Ok(Vec::new());
        }
        let Gathered { batches, bytes, .. } = std::mem::take(gathered);
        let schema = Arc::clone(&self.form.schema);
        let concat = move || match batches.as_slice() {
            [one] => Ok(one.clone()),
            many => concat_batches(&schema, many).map_err(column_mismatch),
        };
        Ok(vec![Job::new(bytes, concat)])
    }

    fn write(&self, _: &mut Gathered, rows: RecordBatch) -> Result<Written, Error> {
        let events = rows.num_rows() as u64;
        self.rows.send(rows).map_err(|_| ErrorKind::Interrupted)?;
        Ok(Written::events(events))
    }

    fn finish(&self, _: Gathered) -> Result<Written, Error> {
        Ok(Written::default())
    }
}
