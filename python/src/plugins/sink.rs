//! Sinks in Python: functions that get batches, or classes with `write` and `finish`.

use arrow_array::RecordBatch;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use sluice_model::{
    Batch, Error, PrepareContext, RunHandle, Sink, SinkContext, SinkTraits, Written,
};

use super::exchange::{columns, to_python, type_name};
use super::gate::attached;
use super::{ObjectKind, PythonObject, PythonOptions, program};

/// Gives batches to a function or an object of Python, in order.
#[derive(Debug, serde::Deserialize, sluice_model::schemars::JsonSchema)]
#[serde(transparent)]
#[schemars(crate = "sluice_model::schemars")]
struct PythonSink(PythonOptions);

sluice_model::register! {
    sink "python": PythonSink,
    about: "gives events to a function or class of Python, in this process",
    sample: include_str!("../../samples/python-sink.toml"),
    program: Some(program),
}

/// The object of one output.
struct OpenObject {
    object: PythonObject,
    run: RunHandle,
}

impl Sink for PythonSink {
    type Block = RecordBatch;
    type Unit = RecordBatch;
    type Output = OpenObject;

    fn traits(&self) -> SinkTraits {
        SinkTraits::default()
    }

    fn open(&self, context: &SinkContext) -> Result<OpenObject, Error> {
        let object = PythonObject::new(self.0.clone(), ObjectKind::Sink);
        // Mistakes in the file end the run before anything is read.
        attached(&context.run, |py| object.get(py).map(drop))?;
        Ok(OpenObject { object, run: context.run.clone() })
    }

    fn prepare(
        &self,
        batch: Batch,
        context: &mut PrepareContext<'_>,
    ) -> Result<RecordBatch, Error> {
        columns(&batch.with_rows(Vec::new()), context.channels)
    }

    fn write(&self, output: &mut OpenObject, events: RecordBatch) -> Result<Written, Error> {
        let count = events.num_rows() as u64;
        if count > 0 && !output.run.is_aborted() {
            output.call("write", Some(events))?;
        }
        Ok(Written::events(count))
    }

    fn finish(&self, output: OpenObject) -> Result<Written, Error> {
        output.call("finish", None)?;
        Ok(Written::default())
    }
}

impl OpenObject {
    fn call(&self, method: &str, events: Option<RecordBatch>) -> Result<(), Error> {
        attached(&self.run, |py| {
            let object = self.object.get(py)?;
            let call = || match events {
                Some(events) => object.call_method1(method, (to_python(py, events)?,)),
                None => object.call_method0(method),
            };
            let called = call().and_then(|returned| expect_none(method, &returned));
            called.map_err(|error| self.object.error(py, &error))
        })
    }
}

/// Refuses what a sink returned, unless it is `None`: generators and coroutines have not run yet.
fn expect_none(method: &str, returned: &Bound<'_, PyAny>) -> PyResult<()> {
    if returned.is_none() {
        return Ok(());
    }
    if returned.hasattr("cr_frame")? {
        // Python would warn that it was never awaited.
        returned.call_method0("close")?;
    }
    Err(PyTypeError::new_err(format!(
        "expected None from `{method}`, found {}: a sink must not `yield`, return a value or be \
         `async`",
        type_name(returned)
    )))
}
