//! The conformance kit on plugins in Python, in a Python that the test program starts.

use std::ffi::CString;
use std::sync::Once;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use pyo3::wrap_pymodule;
use serde_json::{Value, json};
use sluice_conformance::{sink, source, stage};

/// Starts a Python that finds this package in the checkout, with the native part of this program.
fn start_python() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        Python::initialize();
        let names = |py: Python<'_>| -> PyResult<()> {
            let names = PyDict::new(py);
            names.set_item("folder", env!("CARGO_MANIFEST_DIR"))?;
            names.set_item("native", wrap_pymodule!(crate::_native)(py))?;
            let script = "import sys; sys.path.insert(0, folder); \
                          sys.modules['sluice._native'] = native; import sluice";
            py.run(&CString::new(script)?, None, Some(&names))
        };
        Python::attach(names).unwrap();
    });
}

/// The options of a plugin in `python/tests/conforming.py`.
fn plugin(name: &str) -> Value {
    start_python();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/conforming.py");
    json!({ "file": file, "name": name })
}

#[test]
fn a_source_conforms() {
    source("python").options(plugin("wheels")).check();
}

#[test]
fn a_stage_that_changes_nothing_conforms() {
    stage("python").options(plugin("same")).check();
}

#[test]
fn a_stage_that_drops_events_conforms() {
    stage("python").options(plugin("nothing")).check();
}

#[test]
fn a_sink_conforms() {
    sink("python").options(plugin("ignore")).writes_nothing().check();
}
