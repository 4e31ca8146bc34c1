//! Sources in Python: functions that return an iterator over batches.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use pyo3::prelude::*;
use sluice_model::{
    Batch, Channels, Error, Input, ReadContext, Reader, RunHandle, Source, Split, SplitStart,
};

use super::exchange::{from_python, to_batch};
use super::gate::attached;
use super::{ObjectKind, PythonObject, PythonOptions, program};

/// Reads the batches that an iterator of Python yields.
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
        let batches = attached(|py| {
            let function = object.get(py)?;
            let iterate = || function.call0()?.try_iter();
            iterate().map(|all| all.into_any().unbind()).map_err(|error| object.error(py, &error))
        })?;
        Ok(Box::new(IteratorReader {
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

/// Reads an iterator.
struct IteratorReader {
    object: PythonObject,
    batches: Py<PyAny>,
    /// Batches of the latest item.
    ready: VecDeque<RecordBatch>,
    /// The number of events so far.
    events: i64,
    source: Arc<str>,
    channels: Arc<Channels>,
    run: RunHandle,
}

impl IteratorReader {
    /// The sources and sequences of the next events, for batches without these columns.
    fn defaults(&self, len: usize) -> [(&'static str, ArrayRef); 2] {
        let numbers = self.events..self.events.saturating_add(len as i64);
        [
            ("source", Arc::new(StringArray::from(vec![&*self.source; len]))),
            ("sequence", Arc::new(Int64Array::from_iter_values(numbers))),
        ]
    }

    /// The batches of the next item; `None` at the end.
    fn next_item(&self) -> Result<Option<Vec<RecordBatch>>, Error> {
        attached(|py| {
            let next = || -> PyResult<Option<Vec<RecordBatch>>> {
                let item = self.batches.bind(py).try_iter()?.next().transpose()?;
                item.map(|item| from_python(&item)).transpose()
            };
            next().map_err(|error| self.object.error(py, &error))
        })
    }
}

impl Reader for IteratorReader {
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
            match self.next_item()? {
                Some(batches) => self.ready.extend(batches),
                None => return Ok(None),
            }
        }
    }
}
