//! Stages in Python: functions from a batch to a batch.

use arrow_array::RecordBatch;
use pyo3::prelude::*;
use sluice_model::{Batch, Error, Map, OptionsError, Payloads, RunHandle, Stage, StageContext};

use super::exchange::{Returned, columns, from_python, to_batch, to_python};
use super::gate::attached;
use super::{ObjectKind, PythonObject, PythonOptions, program};

/// Passes batches through a function of Python.
#[derive(serde::Deserialize, sluice_model::schemars::JsonSchema)]
#[serde(transparent)]
#[schemars(crate = "sluice_model::schemars")]
struct PythonStage(PythonOptions);

impl TryFrom<PythonStage> for Stage {
    type Error = OptionsError;

    fn try_from(PythonStage(options): PythonStage) -> Result<Self, OptionsError> {
        Ok(Self::Map(Box::new(FunctionStage(PythonObject::new(options, ObjectKind::Stage)))))
    }
}

sluice_model::register! {
    stage "python": PythonStage,
    about: "passes batches through a function of Python, in this process",
    sample: include_str!("../../samples/python-stage.toml"),
    program: Some(program),
}

struct FunctionStage(PythonObject);

impl FunctionStage {
    /// What the function makes of these events.
    fn call(&self, given: RecordBatch, run: &RunHandle) -> Result<Vec<RecordBatch>, Error> {
        attached(run, |py| {
            let function = self.0.get(py)?;
            let call = || from_python(&function.call1((to_python(py, given)?,))?);
            call().map_err(|error| self.0.error(py, &error))
        })
    }
}

impl Map for FunctionStage {
    fn apply(&self, batch: Batch, context: &mut StageContext<'_>) -> Result<Batch, Error> {
        if batch.is_empty() {
            return Ok(batch);
        }
        if batch.rows().iter().any(|rows| rows.payloads == Payloads::Gone) {
            return Err(Error::invalid(
                "events have decoded fields only, and no payload: put the stage `encode` before \
                 the stage in Python",
            ));
        }
        if !batch.rows().is_empty() {
            let note = "decoded fields do not return from Python: put `decode` after this stage";
            context.note(note, 0);
        }
        let given = columns(&batch, context.channels)?;
        let returned = self.call(given.clone(), &context.run)?;
        let mut events = Vec::with_capacity(returned.len());
        let mut known = Returned::new(batch.len());
        for columns in &returned {
            let batch = known
                .defaults(columns, &given)
                .and_then(|defaults| to_batch(columns, &defaults, context.channels));
            events.push(batch.map_err(|error| self.0.wrong(&error))?);
        }
        let (numbers, filtered) = known.finish();
        context.report.filtered += filtered;
        let events = joined(events);
        let origins = batch.origins();
        let origin = |(row, number): (usize, &Option<u32>)| match number {
            Some(number) => origins.get(*number as usize).copied().unwrap_or_default(),
            None => events.channels().get(row).copied().unwrap_or_default(),
        };
        let read: Vec<u32> = numbers.iter().enumerate().map(origin).collect();
        let added = numbers.iter().zip(&read).filter(|(number, _)| number.is_none());
        context.report.added.extend(added.map(|(_, channel)| *channel));
        if read == events.channels() {
            return Ok(events);
        }
        // Events are counted on the channels that they were read on.
        let (timestamps, sequences) = (events.timestamps().to_vec(), events.sequences().to_vec());
        let payloads = events.payload_column()?;
        let on_origins = Batch::from_columns(timestamps.into(), sequences.into(), read, &payloads);
        Ok(on_origins.with_channels(events.channels().to_vec()))
    }
}

/// The events of several batches, in order.
fn joined(batches: Vec<Batch>) -> Batch {
    match <[Batch; 1]>::try_from(batches) {
        Ok([one]) => one,
        Err(batches) => {
            let rows = |(place, batch): (usize, &Batch)| {
                (0..batch.len() as u32).map(move |row| (place as u32, row))
            };
            let picks: Vec<(u32, u32)> = batches.iter().enumerate().flat_map(rows).collect();
            Batch::interleave(&batches, &picks)
        }
    }
}
