//! Failures as the exceptions of the package. Decides nothing about runs.

use pyo3::exceptions::{PyKeyboardInterrupt, PyRuntimeError};
use pyo3::prelude::*;
use sluice::extension::Failure;
use sluice_model::{Error, ErrorKind};
use sluice_pipeline::Mistakes;

/// A mistake with its place: file, line, column, message and help.
pub(crate) type Diagnostic = (String, usize, usize, String, Option<String>);

/// The exception for a failed verb or query.
pub(crate) fn from_failure(py: Python<'_>, failure: Failure) -> PyErr {
    match failure {
        Failure::Usage(message) | Failure::Options(message) => {
            config_error(py, &message, Vec::new())
        }
        Failure::NotALog(message) => input_error(py, message, None, None),
        Failure::Description(mistakes) => {
            config_error(py, mistakes.to_string().trim_end(), diagnostics(&mistakes))
        }
        Failure::Mistakes(mistakes) => {
            config_error(py, mistakes.to_string().trim_end(), diagnostics(&mistakes))
        }
        Failure::Error(error) => from_error(py, &error),
        Failure::Interrupted { what, .. } => PyKeyboardInterrupt::new_err(what),
        Failure::Failed(message) => make(py, "sluice_error", (message,)),
        Failure::StdoutClosed => make(py, "sluice_error", ("standard output was closed",)),
    }
}

/// The exception for a failed run.
pub(crate) fn from_error(py: Python<'_>, error: &Error) -> PyErr {
    let message = error.to_string();
    match error.kind() {
        ErrorKind::Io { path, source, .. } => {
            input_error(py, message, source.raw_os_error(), Some(&path.to_string_lossy()))
        }
        ErrorKind::Raised { source, .. } => {
            let error = make(py, "sluice_error", (message,));
            let exception = source.downcast_ref::<PyErr>();
            error.set_cause(py, exception.map(|exception| exception.clone_ref(py)));
            error
        }
        ErrorKind::Malformed { path, .. } => input_error(py, message, None, Some(path)),
        ErrorKind::Damaged(_) => make(py, "damage_error", (message,)),
        ErrorKind::NotAllowed(_) => config_error(py, &message, Vec::new()),
        ErrorKind::Interrupted | ErrorKind::Aborted => PyKeyboardInterrupt::new_err(message),
        _ => make(py, "sluice_error", (message,)),
    }
}

/// The exception for wrong arguments.
pub(crate) fn config_error(py: Python<'_>, message: &str, mistakes: Vec<Diagnostic>) -> PyErr {
    make(py, "config_error", (message, mistakes))
}

/// The exception for a file, with the number of the system's error.
fn input_error(py: Python<'_>, message: String, number: Option<i32>, path: Option<&str>) -> PyErr {
    make(py, "input_error", (message, number, path))
}

/// The mistakes in a pipeline file.
pub(crate) fn diagnostics(mistakes: &Mistakes) -> Vec<Diagnostic> {
    let document = &mistakes.document;
    let each = mistakes.list.iter().map(|mistake| {
        let (line, column) = mistake.position(&document.text);
        let (name, message) = (document.name.clone(), mistake.message.clone());
        (name, line, column, message, mistake.help.clone())
    });
    each.collect()
}

/// Calls a function of `sluice._errors`, which makes an exception.
fn make<'py, A>(py: Python<'py>, function: &str, arguments: A) -> PyErr
where
    A: pyo3::call::PyCallArgs<'py>,
{
    let made = py
        .import("sluice._errors")
        .and_then(|errors| errors.getattr(function))
        .and_then(|function| function.call1(arguments));
    made.map_or_else(|error| error, PyErr::from_value)
}

/// The exception for a thread that ended without a result.
pub(crate) fn lost_thread() -> PyErr {
    PyRuntimeError::new_err("internal: a thread of the run ended without a result; this is a bug")
}
