//! A sink that delivers the rows of a table to a channel, in order. Knows nothing of Python.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use arrow_select::concat::concat_batches;
use crossbeam_channel::Sender;
use sluice_io::tasks::Job;
use sluice_kit::event_table::{
    ChannelLabels, LogColumn, RowType, SelectedRows, TableKind, column_mismatch, record_batch,
};
use sluice_model::plugin::SinkInput;
use sluice_model::{
    Batch, Channels, Error, ErrorKind, PrepareContext, Rows, Sink, SinkContext, SinkTraits,
    Written, raw,
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

    fn is_of(&self, rows: &Rows) -> bool {
        matches!(&self.kind, TableKind::Fields(_, kind) if kind.is_of(rows))
    }

    fn has_payloads(&self) -> bool {
        self.columns.contains(&LogColumn::Payload)
    }
}

/// A table of a channel of which nothing is known: all its events are taken to be of one type, that
/// of any batch.
#[derive(Clone, Debug)]
pub(crate) struct GuessedTable {
    pub(crate) channel: Arc<str>,
    /// The names of its columns; all without any.
    pub(crate) columns: Option<Vec<String>>,
}

impl GuessedTable {
    /// The table of a channel whose messages have the type of these rows. `None` if it does not
    /// have these columns.
    fn form(&self, rows: &Rows) -> Option<TableForm> {
        let row_type = Arc::new(RowType::from_rows(rows));
        let kind = TableKind::Fields(Arc::clone(&self.channel), row_type);
        let columns = match &self.columns {
            None => kind.columns(),
            Some(names) => columns_named(&kind, names).ok()?,
        };
        Some(TableForm::new(kind, columns))
    }
}

/// The columns of these names, in their order; `Err` with the first that the table does not have.
pub(crate) fn columns_named<'n>(
    kind: &TableKind,
    names: &'n [String],
) -> Result<Vec<LogColumn>, &'n String> {
    let (all, schema) = (kind.columns(), kind.schema());
    let column = |name: &'n String| {
        let place = schema.fields().iter().position(|field| field.name() == name);
        place.and_then(|place| all.get(place).copied()).ok_or(name)
    };
    names.iter().map(column).collect()
}

/// The sink. It ends the run if nobody takes its rows any more.
pub(crate) struct TableSink {
    /// The table, shared with who takes its rows.
    known: Arc<KnownForm>,
    /// The table, if it is guessed.
    guessed: Option<GuessedTable>,
    /// The first rows that are not delivered, as they have been already.
    known_rows: AtomicUsize,
    rows: Sender<RecordBatch>,
    labels: Mutex<Arc<ChannelLabels>>,
}

/// The form of a table: known from the start, or by a batch.
#[derive(Debug, Default)]
pub(crate) struct KnownForm {
    form: OnceLock<TableForm>,
    is_mixed: AtomicBool,
}

impl KnownForm {
    /// The table; `None` if there was nothing to guess it from.
    pub(crate) fn get(&self) -> Option<&TableForm> {
        self.form.get()
    }

    /// Whether the guess was wrong: there are messages of several types, events without fields, or
    /// none of the columns that were named.
    pub(crate) fn is_mixed(&self) -> bool {
        self.is_mixed.load(Ordering::Acquire)
    }
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
        let known = Arc::new(KnownForm { form: form.into(), ..KnownForm::default() });
        Self { known, ..Self::guessing(None, rows) }
    }

    /// A sink for a table whose type nobody knows yet. The run fails if it
    /// [`is_mixed`](KnownForm::is_mixed).
    pub(crate) fn guessing(guessed: Option<GuessedTable>, rows: Sender<RecordBatch>) -> Self {
        let labels = Arc::new(ChannelLabels::from_channels(&Channels::default()));
        let (known, labels) = (Arc::default(), Mutex::new(labels));
        Self { known, guessed, known_rows: AtomicUsize::new(0), rows, labels }
    }

    /// Delivers only what comes after the first rows.
    pub(crate) fn behind(self, rows: usize) -> Self {
        Self { known_rows: rows.into(), ..self }
    }

    /// The form, which does not keep the sink: its end is the end of the rows.
    pub(crate) fn known(&self) -> Arc<KnownForm> {
        Arc::clone(&self.known)
    }

    /// The table, of which this batch must be if it is guessed.
    fn form_of(&self, batch: &Batch) -> Result<&TableForm, Error> {
        let unknown = || Error::internal("a table of no known form");
        let Some(guessed) = &self.guessed else { return self.known.get().ok_or_else(unknown) };
        let mut filled = batch.rows().iter().filter(|rows| !rows.events.is_empty());
        if let (Some(rows), None) = (filled.next(), filled.next())
            && rows.events.len() == batch.len()
        {
            if self.known.get().is_none()
                && let Some(form) = guessed.form(rows)
            {
                // Another thread may have been faster.
                self.known.form.get_or_init(|| form);
            }
            if let Some(form) = self.known.get().filter(|form| form.is_of(rows)) {
                return Ok(form);
            }
        }
        self.known.is_mixed.store(true, Ordering::Release);
        Err(Error::refused(format!("{}: events of several types", guessed.channel)))
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
        form: &TableForm,
        batch: Batch,
        context: &mut PrepareContext<'_>,
    ) -> Result<(Batch, Option<RecordBatch>), Error> {
        let TableKind::Fields(channel, kind) = &form.kind else {
            // Do not let a few events keep a whole block.
            return Ok((if form.has_payloads() { batch.compact() } else { batch }, None));
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
        let has_payloads = self.known.get().is_some_and(TableForm::has_payloads);
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
        let batch = if self.guessed.is_some() { raw::drop_raw_columns(batch) } else { batch };
        let form = self.form_of(&batch)?;
        let (batch, fields) = Self::select(form, batch, context)?;
        let labels = self.labels(context.channels);
        let TableForm { columns, decoded, schema, .. } = form;
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
        let concat = move || match batches.as_slice() {
            [one] => Ok(one.clone()),
            [first, ..] => {
                let joined = concat_batches(first.schema_ref(), &batches);
                joined.and_then(consumer_form::with_unique_values).map_err(column_mismatch)
            }
            [] => Err(Error::internal("rows of no batch")),
        };
        Ok(vec![Job::new(bytes, concat)])
    }

    fn write(&self, _: &mut Gathered, rows: RecordBatch) -> Result<Written, Error> {
        let events = rows.num_rows() as u64;
        let known = self.known_rows.load(Ordering::Relaxed).min(rows.num_rows());
        self.known_rows.fetch_sub(known, Ordering::Relaxed);
        let new = rows.slice(known, rows.num_rows() - known);
        if new.num_rows() > 0 {
            self.rows.send(new).map_err(|_| ErrorKind::Interrupted)?;
        }
        Ok(Written::events(events))
    }

    fn finish(&self, _: Gathered) -> Result<Written, Error> {
        Ok(Written::default())
    }
}
