//! A table as an Arrow stream: every consumer starts a run of its own.

use std::ffi::OsString;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::{ArrayRef, RecordBatch, StructArray};
use arrow_schema::{ArrowError, Field, FieldRef, Schema};
use crossbeam_channel::bounded;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};
use pyo3_arrow::ffi::{
    ArrayIterator, to_array_pycapsules, to_schema_pycapsule, to_stream_pycapsule,
};
use sluice::embedded::EventForm;
use sluice_kit::event_table::LogColumn;
use sluice_pipeline::Report;

use crate::interrupt::InterruptFlag;
use crate::reader;
use crate::running::{Delivery, Resources};
use crate::table_sink::{TableForm, TableSink};

/// Batches that wait for the consumer.
const WAITING: usize = 4;

/// A table of a log, read each time that it is asked for.
#[pyclass(frozen, module = "sluice._native")]
pub(crate) struct TableReader {
    form: TableForm,
    arguments: Vec<OsString>,
    resources: Resources,
    strict: bool,
    /// The report of the latest run that was read to its end, as JSON.
    report: Arc<Mutex<Option<String>>>,
}

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
        let stream = self.stream(py)?;
        let field = struct_field(&self.form.schema);
        let reader = ArrayIterator::new(stream, field);
        Ok(to_stream_pycapsule(py, Box::new(reader), requested_schema)?)
    }

    /// The names of the columns.
    fn column_names(&self) -> Vec<String> {
        self.form.schema.fields().iter().map(|field| field.name().clone()).collect()
    }

    /// The rows, batch by batch.
    fn batches(&self, py: Python<'_>) -> PyResult<BatchIterator> {
        let TableStream { delivery, report, .. } = self.stream(py)?;
        Ok(BatchIterator { delivery, report })
    }

    /// The report of the latest run that was read to its end, as JSON.
    fn report(&self) -> Option<String> {
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
        Self { form, arguments, resources, strict, report: Arc::default() }
    }

    fn stream(&self, py: Python<'_>) -> PyResult<TableStream> {
        let (sender, rows) = bounded(WAITING);
        let sink = Arc::new(TableSink::new(self.form.clone(), sender));
        let has_payloads = self.form.columns.contains(&LogColumn::Payload);
        let form = if has_payloads { EventForm::Payloads } else { EventForm::Rows };
        let pipeline = reader::pipeline(py, &self.arguments, form, sink, self.strict)?;
        let delivery = Delivery::start(py, pipeline, rows, self.resources)?;
        let (interrupt, report) = (InterruptFlag::listen(py), Arc::clone(&self.report));
        Ok(TableStream { delivery: Some(delivery), interrupt, report })
    }
}

/// The rows of a table. Asked on any thread, with or without the GIL: never touches Python.
struct TableStream {
    /// `None` after the end.
    delivery: Option<Delivery<RecordBatch>>,
    interrupt: InterruptFlag,
    report: Arc<Mutex<Option<String>>>,
}

impl Iterator for TableStream {
    type Item = Result<ArrayRef, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.delivery.as_ref()?.next(|| self.interrupt.is_raised());
        match next {
            Ok(Ok(rows)) => Some(Ok(Arc::new(StructArray::from(rows)))),
            Ok(Err(ended)) => {
                keep_report(&self.report, &ended);
                self.delivery = None;
                None
            }
            Err(error) => {
                self.delivery = None;
                Some(Err(ArrowError::ExternalError(Box::new(error))))
            }
        }
    }
}

fn keep_report(latest: &Mutex<Option<String>>, report: &Report) {
    *latest.lock().unwrap_or_else(PoisonError::into_inner) = Some(report.to_json().to_string());
}

/// The batches of a table.
#[pyclass(module = "sluice._native")]
pub(crate) struct BatchIterator {
    /// `None` after the end.
    delivery: Option<Delivery<RecordBatch>>,
    report: Arc<Mutex<Option<String>>>,
}

#[pymethods]
impl BatchIterator {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&mut self, py: Python<'_>) -> PyResult<Option<Batch>> {
        let Some(delivery) = &self.delivery else { return Ok(None) };
        match delivery.next_attached(py) {
            Ok(Ok(rows)) => Ok(Some(Batch::new(rows))),
            Ok(Err(ended)) => {
                keep_report(&self.report, &ended);
                self.delivery = None;
                Ok(None)
            }
            Err(error) => {
                self.delivery = None;
                Err(error)
            }
        }
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
        let (field, rows) = (struct_field(self.0.schema_ref()), StructArray::from(self.0.clone()));
        Ok(to_array_pycapsules(py, field, &rows, requested_schema)?)
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
