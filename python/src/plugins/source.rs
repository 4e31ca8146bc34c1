//! Sources in Python: functions that return batches or an iterator over them.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, RecordBatchReader, StringArray};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use sluice_model::{
    Batch, Channels, Error, Input, ReadContext, Reader, RunHandle, Source, Split, SplitStart,
};

use super::exchange::{arrow_reader, from_python, is_arrow, to_batch};
use super::gate::attached;
use super::{ObjectKind, PythonObject, PythonOptions, program};

/// Reads the batches that a function of Python returns.
#[derive(Debug, serde::Deserialize, sluice_model::schemars::JsonSchema)]
#[serde(transparent)]
#[schemars(crate = "sluice_model::schemars")]
struct PythonSource(PythonOptions);

sluice_model::register! {
    source "python": PythonSource,
    about: "reads events from an iterator of Python, in this process",
    sample: include_str!("../../samples/python-source.toml"),
    program: Some(program),
}

impl Source for PythonSource {
    fn inputs(&self) -> Result<Vec<Input>, Error> {
        // An iterator has no length, and perhaps no end.
        Ok(vec![Input { path: PathBuf::from(&self.0.name), bytes: None }])
    }

    fn is_undecoded(&self) -> bool {
        true
    }

    fn read<'s>(
        &'s self,
        _: &Split,
        _: SplitStart,
        context: &ReadContext,
    ) -> Result<Box<dyn Reader + 's>, Error> {
        let object = PythonObject::new(self.0.clone(), ObjectKind::Source);
        let batches = attached(&context.run, |py| {
            let function = object.get(py)?;
            let call = || Batches::from_python(&function.call0()?);
            call().map_err(|error| object.error(py, &error))
        })?;
        Ok(Box::new(ReturnedReader {
            object,
            batches,
            ready: VecDeque::new(),
            events: 0,
            source: Arc::clone(&context.source),
            channels: Arc::clone(&context.channels),
            run: context.run.clone(),
        }))
    }
}

/// What a function returned.
enum Batches {
    /// An iterator over Arrow data.
    Iterator(Py<PyAny>),
    /// Arrow data, such as one table.
    Stream(Box<dyn RecordBatchReader + Send>),
}

impl Batches {
    fn from_python(returned: &Bound<'_, PyAny>) -> PyResult<Self> {
        match is_arrow(returned)? {
            true => arrow_reader(returned).map(Self::Stream),
            false => returned.try_iter().map(|all| Self::Iterator(all.into_any().unbind())),
        }
    }

    /// The batches of the next item; `None` at the end.
    fn next_item(&mut self, py: Python<'_>) -> PyResult<Option<Vec<RecordBatch>>> {
        match self {
            Self::Iterator(all) => {
                let item = all.bind(py).try_iter()?.next().transpose()?;
                item.map(|item| from_python(&item)).transpose()
            }
            Self::Stream(batches) => {
                // Who needs Python for a batch takes the GIL itself.
                let batch = py.detach(|| batches.next()).transpose();
                let batch = batch.map_err(|error| PyValueError::new_err(error.to_string()))?;
                Ok(batch.map(|batch| vec![batch]))
            }
        }
    }
}

/// Reads what a function returned.
struct ReturnedReader {
    object: PythonObject,
    batches: Batches,
    /// Batches of the latest item.
    ready: VecDeque<RecordBatch>,
    /// The number of events so far.
    events: i64,
    source: Arc<str>,
    channels: Arc<Channels>,
    run: RunHandle,
}

impl ReturnedReader {
    /// The sources and sequences of the next events, for batches without these columns.
    fn defaults(&self, len: usize) -> [(&'static str, ArrayRef); 2] {
        let numbers = self.events..self.events.saturating_add(len as i64);
        [
            ("source", Arc::new(StringArray::from(vec![&*self.source; len]))),
            ("sequence", Arc::new(Int64Array::from_iter_values(numbers))),
        ]
    }
}

impl Reader for ReturnedReader {
    fn next_batch(&mut self) -> Result<Option<Batch>, Error> {
        loop {
            if let Some(columns) = self.ready.pop_front() {
                let defaults = self.defaults(columns.num_rows());
                let batch = to_batch(&columns, &defaults, &self.channels);
                let batch = batch.map_err(|error| self.object.wrong(&error))?;
                self.events = self.events.saturating_add(batch.len() as i64);
                return Ok(Some(batch));
            }
            if self.run.is_cancelled() {
                return Ok(None);
            }
            let Self { object, batches, .. } = self;
            let next = |py: Python<'_>| batches.next_item(py).map_err(|e| object.error(py, &e));
            match attached(&self.run, next)? {
                Some(batches) => self.ready.extend(batches),
                None => return Ok(None),
            }
        }
    }
}
