//! A table as an Arrow stream: every consumer starts a run of its own.

use std::ffi::OsString;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::{ArrayRef, RecordBatch, StructArray};
use arrow_schema::{ArrowError, Field, FieldRef, Schema};
use crossbeam_channel::bounded;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};
use pyo3_arrow::ffi::{
    ArrayIterator, to_array_pycapsules, to_schema_pycapsule, to_stream_pycapsule,
};
use sluice::embedded::EventForm;
use sluice::extension::Failure;
use sluice_kit::event_table::{LogColumn, TableKind};
use sluice_model::{DynSink, Error, ErrorKind};
use sluice_pipeline::Report;

use crate::findings::Reporting;
use crate::interrupt::InterruptFlag;
use crate::running::{Delivery, Resources, SharedDelivery, turn};
use crate::table_sink::{GuessedTable, KnownForm, TableForm, TableSink};
use crate::{errors, log_run, requested_form};

/// Batches that wait for the consumer.
const WAITING: usize = 4;
/// Who takes a table as a stream: `Table` is above this module in the stack.
const STREAM_STACK_LEVEL: u8 = 2;

/// A table of a log, read each time that it is asked for.
#[pyclass(frozen, module = "sluice._native")]
pub(crate) struct TableReader {
    form: TableForm,
    arguments: Vec<OsString>,
    resources: Resources,
    strict: bool,
    report: LatestReport,
    /// A run that has been started already, for the first who takes the table.
    started: Mutex<Option<TableStream>>,
}

/// The report of the latest run that was read to its end, as JSON, and what there is to warn of.
type LatestReport = Arc<Mutex<Option<(String, Vec<String>)>>>;

#[pymethods]
impl TableReader {
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        Ok(to_schema_pycapsule(py, self.form.schema.as_ref())?)
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = requested_form::schema(&self.form.schema, requested_schema.as_ref())?;
        let started = self.started.lock().unwrap_or_else(PoisonError::into_inner).take();
        let stream = started.map_or_else(|| self.stream(py), Ok)?;
        let field = struct_field(&schema);
        let array = move |rows| -> Result<ArrayRef, ArrowError> {
            Ok(Arc::new(StructArray::from(requested_form::rows(rows?, &schema)?)))
        };
        let reader = ArrayIterator::new(stream.map(array), field);
        Ok(to_stream_pycapsule(py, Box::new(reader), None)?)
    }

    /// The names of the columns.
    fn column_names(&self) -> Vec<String> {
        self.form.schema.fields().iter().map(|field| field.name().clone()).collect()
    }

    /// The rows, batch by batch. At their end, names that match nothing are reported if
    /// `reports_names`.
    fn batches(&self, py: Python<'_>, reports_names: bool) -> PyResult<BatchIterator> {
        let (delivery, report) = (self.deliver(py)?, Arc::clone(&self.report));
        let (delivery, turn) = (SharedDelivery::new(delivery), Mutex::new(()));
        let reporting = Reporting { reports_names, ..self.reporting() };
        Ok(BatchIterator { delivery, report, reporting, turn })
    }

    /// The report of the latest run that was read to its end, as JSON, and what there is to warn
    /// of.
    fn report(&self) -> Option<(String, Vec<String>)> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl TableReader {
    pub(crate) fn new(
        form: TableForm,
        arguments: Vec<OsString>,
        resources: Resources,
        strict: bool,
    ) -> Self {
        let (report, started) = (LatestReport::default(), Mutex::default());
        Self { form, arguments, resources, strict, report, started }
    }

    /// The table of a channel of which nothing is known, and which is about to be taken: its type
    /// is found by the run that delivers the rows.
    ///
    /// That works for a channel of one type. `Ok(None)` if it has messages of several or events
    /// without fields at its beginning, or none at all; the stream itself mends what comes later.
    pub(crate) fn start(
        py: Python<'_>,
        guessed: GuessedTable,
        arguments: Vec<OsString>,
        resources: Resources,
        strict: bool,
    ) -> PyResult<Option<Self>> {
        let interrupt = InterruptFlag::listen(py)?;
        let (sender, rows) = bounded(WAITING);
        let sink = TableSink::guessing(Some(guessed), sender);
        let (known, sink) = (sink.known(), DynSink::new(sink));
        let pipeline = log_run::pipeline(py, &arguments, EventForm::Rows, sink, strict)?;
        let delivery = Delivery::start(pipeline, rows, resources.clone());
        let delivery = delivery.map_err(|error| errors::from_error(py, &error))?;
        let first = match delivery.next_attached(py, || interrupt.is_raised()) {
            Ok(Ok(first)) => first,
            Ok(Err(_)) => return Ok(None),
            Err(_) if known.is_mixed() && !interrupt.is_raised() => return Ok(None),
            Err(error) => return Err(error),
        };
        let Some(form) = known.get().cloned() else { return Ok(None) };
        let table = Self::new(form, arguments, resources.clone(), strict);
        let arguments = table.arguments.clone();
        let guess = Guess { known, arguments, resources, strict, rows: first.num_rows() };
        let stream = TableStream {
            first: Some(Ok(first)),
            delivery: Some(delivery),
            guess: Some(guess),
            reporting: table.reporting(),
            interrupt,
            report: Arc::clone(&table.report),
        };
        *table.started.lock().unwrap_or_else(PoisonError::into_inner) = Some(stream);
        Ok(Some(table))
    }

    /// The type of the table's messages.
    pub(crate) fn kind(&self) -> &TableKind {
        &self.form.kind
    }

    fn reporting(&self) -> Reporting {
        // A table of all events has those that cannot be decoded.
        let notes_undecoded = !matches!(self.form.kind, TableKind::Events);
        Reporting { strict: self.strict, reports_names: true, notes_undecoded }
    }

    fn stream(&self, py: Python<'_>) -> PyResult<TableStream> {
        let (interrupt, report) = (InterruptFlag::listen(py)?, Arc::clone(&self.report));
        let delivery = self.deliver(py)?;
        // Consumers would make an exception of their own of an error before the first rows.
        let first = delivery.next_attached(py, || interrupt.is_raised())?;
        if let Err(ended) = &first {
            keep_report(&report, ended, self.reporting());
            self.reporting().report(py, ended, STREAM_STACK_LEVEL)?;
        }
        let (first, delivery, reporting) = (Some(first), Some(delivery), self.reporting());
        Ok(TableStream { first, delivery, guess: None, reporting, interrupt, report })
    }

    /// Starts a run.
    fn deliver(&self, py: Python<'_>) -> PyResult<Delivery<RecordBatch>> {
        let (sender, rows) = bounded(WAITING);
        let sink = DynSink::new(TableSink::new(self.form.clone(), sender));
        let has_payloads = self.form.columns.contains(&LogColumn::Payload);
        let form = if has_payloads { EventForm::Payloads } else { EventForm::Rows };
        let pipeline = log_run::pipeline(py, &self.arguments, form, sink, self.strict)?;
        let delivery = Delivery::start(pipeline, rows, self.resources.clone());
        delivery.map_err(|error| errors::from_error(py, &error))
    }
}

/// The rows of a table. Asked on any thread, with or without the GIL: never touches Python.
struct TableStream {
    /// What has been delivered already: rows, or the result of a run without any.
    first: Option<Result<RecordBatch, Report>>,
    /// `None` after the end.
    delivery: Option<Delivery<RecordBatch>>,
    /// What the run relies on, if that may be wrong.
    guess: Option<Guess>,
    reporting: Reporting,
    interrupt: InterruptFlag,
    report: LatestReport,
}

/// That all messages of a channel have one type, and how to read it if not.
struct Guess {
    known: Arc<KnownForm>,
    arguments: Vec<OsString>,
    resources: Resources,
    strict: bool,
    /// The rows delivered so far.
    rows: usize,
}

impl Guess {
    /// A run for the same rows that leaves out messages of other types, beyond what has been
    /// delivered. Its first rows decided the type: they are the same.
    fn correct(self) -> Result<Delivery<RecordBatch>, Error> {
        let form = self.known.get().cloned();
        let form = form.ok_or_else(|| Error::internal("a table of no known form"))?;
        let (sender, rows) = bounded(WAITING);
        let sink = DynSink::new(TableSink::new(form, sender).behind(self.rows));
        let made = log_run::pipeline_into(&self.arguments, EventForm::Rows, sink, self.strict);
        let pipeline = made.map_err(|failure| match failure {
            Failure::Error(error) => error,
            _ => Error::refused("the log has changed while it was being read"),
        })?;
        Delivery::start(pipeline, rows, self.resources)
    }
}

impl TableStream {
    /// The next rows; `Ok(Err)` with the result of the run at its end, and `None` after it.
    fn next_rows(&mut self) -> Option<Result<Result<RecordBatch, Report>, Error>> {
        if let Some(first) = self.first.take() {
            return Some(Ok(first));
        }
        let next = self.delivery.as_ref()?.next(|| self.interrupt.is_raised());
        let Some(mut guess) = self.guess.take() else { return Some(next) };
        match &next {
            Ok(Ok(rows)) => {
                guess.rows += rows.num_rows();
                self.guess = Some(guess);
            }
            Err(error) if guess.known.is_mixed() && !is_interrupted(error) => {
                self.delivery = None;
                match guess.correct() {
                    Ok(delivery) => self.delivery = Some(delivery),
                    Err(error) => return Some(Err(error)),
                }
                return self.next_rows();
            }
            _ => {}
        }
        Some(next)
    }
}

impl Iterator for TableStream {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.next_rows()? {
            Ok(Ok(rows)) => Some(Ok(rows)),
            Ok(Err(ended)) => {
                keep_report(&self.report, &ended, self.reporting);
                self.delivery = None;
                let refusal = self.reporting.refusal(&ended);
                refusal.map(|error| Err(ArrowError::ExternalError(Box::new(error))))
            }
            Err(error) => {
                self.delivery = None;
                Some(Err(ArrowError::ExternalError(Box::new(error))))
            }
        }
    }
}

fn is_interrupted(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Interrupted)
}

fn keep_report(latest: &LatestReport, report: &Report, reporting: Reporting) {
    let kept = (report.to_json().to_string(), reporting.sentences(report).collect());
    *latest.lock().unwrap_or_else(PoisonError::into_inner) = Some(kept);
}

/// The batches of a table.
#[pyclass(frozen, module = "sluice._native")]
pub(crate) struct BatchIterator {
    delivery: SharedDelivery<RecordBatch>,
    report: LatestReport,
    reporting: Reporting,
    /// Held by the thread that takes a batch.
    turn: Mutex<()>,
}

#[pymethods]
impl BatchIterator {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Batch>> {
        let turn = turn(&self.turn)?;
        let ended = match self.delivery.next(py)? {
            Some(Ok(rows)) => return Ok(Some(Batch::new(rows))),
            Some(Err(ended)) => ended,
            None => return Ok(None),
        };
        keep_report(&self.report, &ended, self.reporting);
        drop(turn);
        self.reporting.report(py, &ended, 1)?;
        Ok(None)
    }

    /// Ends the run, and the wait of a thread for the next batch.
    fn close(&self, py: Python<'_>) {
        self.delivery.close(py);
    }
}

/// Some rows of a table, as an Arrow record batch.
#[pyclass(frozen, module = "sluice._native")]
pub(crate) struct Batch(RecordBatch);

impl Batch {
    pub(crate) fn new(rows: RecordBatch) -> Self {
        Self(rows)
    }
}

#[pymethods]
impl Batch {
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        Ok(to_schema_pycapsule(py, self.0.schema_ref().as_ref())?)
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let schema = requested_form::schema(self.0.schema_ref(), requested_schema.as_ref())?;
        let rows = requested_form::rows(self.0.clone(), &schema);
        let rows = rows.map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(to_array_pycapsules(py, struct_field(&schema), &StructArray::from(rows), None)?)
    }

    /// The number of rows.
    fn __len__(&self) -> usize {
        self.0.num_rows()
    }

    fn __bool__(&self) -> bool {
        true
    }

    fn __repr__(&self) -> String {
        format!("Batch({} rows, {} columns)", self.0.num_rows(), self.0.num_columns())
    }
}

/// A table as one array: a struct of its columns.
fn struct_field(schema: &Schema) -> FieldRef {
    Arc::new(Field::new_struct("", schema.fields().clone(), false))
}
