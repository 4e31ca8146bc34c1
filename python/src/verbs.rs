//! The verbs of the command line, with their results.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::Arc;

use pyo3::prelude::*;
use serde_json::Value;
use sluice::embedded::{self, Embedding, Output};
use sluice::extension::Failure;
use sluice_model::programs;
use sluice_pipeline::Variables;

use crate::errors::{self, Diagnostic};
use crate::interrupt;
use crate::registry;
use crate::running::Background;

/// What a verb printed and reported: its exit code, text, messages and report, the last two as
/// JSON.
type VerbOutput = (u8, String, String, Option<String>);

/// Runs a verb.
#[pyfunction]
pub(crate) fn run_verb(py: Python<'_>, arguments: Vec<OsString>) -> PyResult<VerbOutput> {
    let embedding = Arc::<Embedding>::default();
    let stop = Arc::clone(&embedding.stop);
    let work = move || {
        let ended = embedded::run(&arguments, registry(), &embedding);
        (ended, embedding.take_output())
    };
    let (ended, output) =
        Background::start(work).map_err(|e| errors::from_error(py, &e))?.wait(py, &stop)?;
    let exit = ended.map_err(|failure| errors::from_failure(py, failure))?;
    let Output { text, messages, report } = output;
    let messages = Value::Array(messages).to_string();
    Ok((exit, text, messages, report.map(|report| report.to_string())))
}

/// Runs the program, with its output and its signal handlers. Returns the exit code, and whether a
/// plugin in Python is still running: one that does not end although the run was aborted.
#[pyfunction]
pub(crate) fn run_program(py: Python<'_>, arguments: Vec<OsString>) -> PyResult<(u8, bool)> {
    let stop = interrupt::program_stop();
    let program = Background::start(move || embedded::program(arguments, registry()));
    let program = program.map_err(|e| errors::from_error(py, &e))?;
    Ok(match program.wait_while(py, &stop, || ())? {
        Some(code) => (code, false),
        None => {
            // The program does so at its own end.
            programs::shut_down();
            (stop.exit(), true)
        }
    })
}

/// The mistakes in a pipeline file, and the names of its nodes.
#[pyfunction]
pub(crate) fn check_pipeline(
    py: Python<'_>,
    file: String,
    variables: BTreeMap<String, String>,
) -> PyResult<Vec<Diagnostic>> {
    let variables = Variables { set: variables, environment: true };
    match py.detach(|| embedded::check(&file, &variables, &registry()).map(drop)) {
        Ok(()) => Ok(Vec::new()),
        Err(Failure::Mistakes(mistakes)) => Ok(errors::diagnostics(&mistakes)),
        Err(failure) => Err(errors::from_failure(py, failure)),
    }
}
