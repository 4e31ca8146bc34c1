//! The pipeline of a log into a sink. Runs none.

use std::ffi::OsString;
use std::sync::Arc;

use pyo3::prelude::*;
use sluice::embedded::{self, Embedding, EventForm};
use sluice::extension::Failure;
use sluice_model::DynSink;
use sluice_pipeline::{OnDamage, Pipeline};

use crate::{errors, registry};

/// The pipeline from a log into `sink`, made without the GIL, as it opens files.
pub(crate) fn pipeline(
    py: Python<'_>,
    arguments: &[OsString],
    form: EventForm,
    sink: DynSink,
    strict: bool,
) -> PyResult<Pipeline> {
    let made = py.detach(|| pipeline_into(arguments, form, sink, strict));
    made.map_err(|failure| errors::from_failure(py, failure))
}

/// The pipeline from a log into `sink`. Does not touch Python.
pub(crate) fn pipeline_into(
    arguments: &[OsString],
    form: EventForm,
    sink: DynSink,
    strict: bool,
) -> Result<Pipeline, Failure> {
    let embedding = Arc::<Embedding>::default();
    let mut pipeline = embedded::log_pipeline(arguments, form, sink, registry(), &embedding)?;
    if let Some(source) = pipeline.nodes.first_mut().filter(|_| strict) {
        source.damage = OnDamage::Stop;
    }
    Ok(pipeline)
}
