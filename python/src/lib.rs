//! The native part of the Python package: logs as Arrow streams and events, and the verbs of the
//! command line. Knows no format.
//!
//! Runs have threads of their own, which never touch Python unless a plugin is written in it.
//! Whoever waits for a run has released the GIL, and looks at signals.

#[cfg(test)]
mod conformance;
mod consumer_form;
mod discovery;
mod errors;
mod events;
mod findings;
mod interrupt;
mod log_run;
mod plugins;
mod reader;
mod requested_form;
mod running;
mod table;
mod table_sink;
mod temporary;
mod verbs;

use pyo3::prelude::*;
use sluice_all as _;
use sluice_model::Registry;

/// The plugins that are linked into this module.
pub(crate) fn registry() -> Registry {
    Registry::linked()
}

#[pymodule]
mod _native {
    use super::*;

    #[pymodule_export]
    use super::events::{Event, EventIterator};
    #[pymodule_export]
    use super::plugins::{close_plugins, park_thread};
    #[pymodule_export]
    use super::reader::LogReader;
    #[pymodule_export]
    use super::table::{Batch, BatchIterator, TableReader};
    #[pymodule_export]
    use super::verbs::{check_pipeline, run_program, run_verb};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        sluice::embedded::keep_freed_blocks();
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
