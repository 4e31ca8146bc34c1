//! Sources, stages and sinks in Python, in this process: the plugin `python`. A node names a file
//! and an object in it; the file is run when the node first needs it, never by a check.
//!
//! Events are exchanged as Arrow record batches, with one hold of the GIL per batch.

mod exchange;
mod gate;
mod sink;
mod source;
mod stage;

use std::path::{self, Path, PathBuf};

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyTraceback;
use serde::Deserialize;
use serde_json::{Map, Value};
use sluice_model::programs::Program;
use sluice_model::schemars::JsonSchema;
use sluice_model::{Error, ErrorKind};

pub(crate) use self::gate::{close_plugins, end_aborted, give_up_aborted, park_thread};

/// Options of `python`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "sluice_model::schemars")]
pub(crate) struct PythonOptions {
    /// The file with the function or class, which has the decorator of its kind.
    file: PathBuf,
    /// The folder that `file` is relative to. Default: the folder of the pipeline file.
    #[serde(default = "here")]
    #[schemars(extend("format" = "sluice-path"))]
    folder: PathBuf,
    /// The name of the function or class.
    name: String,
    /// Its arguments.
    #[serde(default)]
    options: Map<String, Value>,
}

fn here() -> PathBuf {
    PathBuf::from(".")
}

/// The kinds of objects, as `sluice._plugins` spells them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ObjectKind {
    Source,
    Stage,
    Sink,
}

impl ObjectKind {
    fn word(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Stage => "stage",
            Self::Sink => "sink",
        }
    }
}

/// An object of a file, made when it is first needed: once, also for several threads.
struct PythonObject {
    options: PythonOptions,
    kind: ObjectKind,
    loaded: PyOnceLock<PyResult<Py<PyAny>>>,
}

impl PythonObject {
    fn new(options: PythonOptions, kind: ObjectKind) -> Self {
        Self { options, kind, loaded: PyOnceLock::new() }
    }

    /// The object. Runs its file the first time; other threads wait for that.
    fn get<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>, Error> {
        let loaded = self.loaded.get_or_init(py, || self.load(py)).as_ref();
        let target = loaded
            .map_err(|error| error.clone_ref(py))
            .and_then(|loaded| loaded.bind(py).getattr("target"));
        target.map_err(|error| self.error(py, &error))
    }

    /// Runs the file, and makes the object.
    fn load(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let PythonOptions { file, folder, name, options } = &self.options;
        let file = folder.join(file);
        let options = Value::Object(options.clone()).to_string();
        let plugins = py.import("sluice._plugins")?;
        let loaded = plugins.call_method1("load", (file, name, self.kind.word(), options))?;
        Ok(loaded.unbind())
    }

    /// What is wrong with the batches that it gave.
    fn wrong(&self, error: &Error) -> Error {
        let PythonOptions { file, name, .. } = &self.options;
        Error::invalid(format!("{} `{name}` of {}: {error}", self.kind.word(), file.display()))
    }

    /// An exception as an error of the run: what, and where.
    fn error(&self, py: Python<'_>, exception: &PyErr) -> Error {
        let PythonOptions { file, folder, name, .. } = &self.options;
        let traceback = exception.traceback(py);
        let places = traceback.as_ref().map(lines).unwrap_or_default();
        let place = shown_place(&places, &folder.join(file));
        let (kind, file) = (self.kind.word(), file.display());
        let what = format!("{kind} `{name}` of {file}: {exception}{place}");
        ErrorKind::Raised { what, source: Box::new(exception.clone_ref(py)) }.into()
    }
}

/// A file, and a line in it.
type Place = (String, u64);

/// Where an exception passed, from its caller to where it was raised.
fn lines(traceback: &Bound<'_, PyTraceback>) -> Vec<Place> {
    let place = |entry: &Bound<'_, PyAny>| -> PyResult<Place> {
        let code = entry.getattr("tb_frame")?.getattr("f_code")?;
        Ok((code.getattr("co_filename")?.extract()?, entry.getattr("tb_lineno")?.extract()?))
    };
    let (mut places, mut next) = (Vec::new(), Some(traceback.as_any().clone()));
    while let Some(entry) = next.filter(|entry| !entry.is_none()) {
        places.extend(place(&entry));
        next = entry.getattr("tb_next").ok();
    }
    places
}

/// The last line in the plugin's own file, and that where the exception was raised.
fn shown_place(places: &[Place], file: &Path) -> String {
    let is_own = |(name, _): &&Place| path::absolute(name).ok() == path::absolute(file).ok();
    let text = |(file, line): &Place| format!("{file}, line {line}");
    match (places.iter().rfind(is_own), places.last()) {
        (_, None) => String::new(),
        (Some(own), Some(last)) if own != last => {
            format!(" ({}; raised in {})", text(own), text(last))
        }
        (_, Some(last)) => format!(" ({})", text(last)),
    }
}

/// Python code has the rights of the user, as programs have.
fn program(options: &Value) -> Program {
    let text = |key: &str| options.get(key).and_then(Value::as_str).unwrap_or_default();
    let line = format!("python {}: {}", text("file"), text("name"));
    let file = PathBuf::from(text("folder")).join(text("file"));
    Program { line, files: Some(file).into_iter().filter(|file| file.is_file()).collect() }
}
