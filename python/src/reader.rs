//! A log to read: its inputs and their options, in the words of the command line. Opens nothing
//! before something is asked of it.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use sluice::embedded::EventForm;
use sluice_kit::event_table::{ChannelSchema, LogColumn, TableKind};
use sluice_kit::suggestion::nearest;
use sluice_model::options::ByteSize;
use sluice_model::{DynSink, ErrorKind};
use sluice_pipeline::run::{self, Options};

use crate::discovery::{Discovered, DiscoverySink};
use crate::events::EventIterator;
use crate::running::{Background, Resources};
use crate::table::TableReader;
use crate::table_sink::{GuessedTable, TableForm, columns_named};
use crate::temporary::TemporaryFile;
use crate::{errors, findings, log_run};

/// The memory for finding the first event of a channel. With more, more of the log is decoded ahead
/// that is not needed: twice as much work for a frequent channel.
const SEARCH_MEMORY: u64 = 64 << 20;

/// A log, and what is known of its channels.
#[pyclass(frozen, module = "sluice._native")]
pub(crate) struct LogReader {
    inputs: Vec<OsString>,
    /// The options for format and types.
    options: Vec<OsString>,
    resources: Resources,
    schemas: Mutex<HashMap<String, ChannelSchema>>,
}

#[pymethods]
impl LogReader {
    /// `contents` is a file to remove when nobody can read it any more.
    #[new]
    #[pyo3(signature = (inputs, options, *, jobs=None, memory=None, contents=None))]
    fn new(
        py: Python<'_>,
        inputs: Vec<OsString>,
        options: Vec<OsString>,
        jobs: Option<Bound<'_, PyAny>>,
        memory: Option<&str>,
        contents: Option<PathBuf>,
    ) -> PyResult<Self> {
        let contents = contents.map(|path| Arc::new(TemporaryFile::new(path)));
        let jobs = jobs.map(|jobs| {
            let message = format!("jobs: expected a number of threads, found {jobs}");
            jobs.extract().map_err(|_| errors::config_error(py, &message, Vec::new()))
        });
        let memory = memory.map(ByteSize::parse).transpose();
        let memory = memory
            .map_err(|why| errors::config_error(py, &format!("memory: {why}"), Vec::new()))?;
        let resources = Resources { jobs: jobs.transpose()?, memory, contents };
        Ok(Self { inputs, options, resources, schemas: Mutex::default() })
    }

    /// The table of a channel, or of all events. `selection` are options of `cat`.
    #[pyo3(signature = (channel, selection, columns, strict))]
    fn table(
        &self,
        py: Python<'_>,
        channel: Option<String>,
        selection: Vec<OsString>,
        columns: Option<Vec<String>>,
        strict: bool,
    ) -> PyResult<TableReader> {
        let kind = match &channel {
            None => TableKind::Events,
            Some(channel) => self.channel_kind(py, channel)?,
        };
        let columns = match columns {
            None => kind.columns(),
            Some(names) => chosen(py, &kind, &names)?,
        };
        let form = TableForm::new(kind, columns);
        let arguments = self.arguments(channel.as_deref(), selection);
        Ok(TableReader::new(form, arguments, self.resources.clone(), strict))
    }

    /// A table of a channel for who takes it at once: nothing is read twice to find its type.
    /// `selection` must keep the first messages of the channel, which decide the type.
    #[pyo3(signature = (channel, selection, columns, strict))]
    fn started_table(
        &self,
        py: Python<'_>,
        channel: &str,
        selection: Vec<OsString>,
        columns: Option<Vec<String>>,
        strict: bool,
    ) -> PyResult<TableReader> {
        let is_known = self.known(channel).is_some();
        if !is_known {
            let arguments = self.arguments(Some(channel), selection.clone());
            let guessed = GuessedTable { channel: channel.into(), columns: columns.clone() };
            let resources = self.resources.clone();
            let started = TableReader::start(py, guessed, arguments, resources, strict)?;
            if let Some(table) = started {
                if let TableKind::Fields(_, kind) = table.kind() {
                    self.learn(channel, ChannelSchema::Fields(Arc::clone(kind)));
                }
                return Ok(table);
            }
        }
        self.table(py, Some(channel.to_owned()), selection, columns, strict)
    }

    /// The events that `selection` keeps.
    fn events(
        &self,
        py: Python<'_>,
        selection: Vec<OsString>,
        strict: bool,
    ) -> PyResult<EventIterator> {
        let arguments = self.arguments(None, selection);
        EventIterator::start(py, &arguments, self.resources.clone(), strict)
    }
}

impl LogReader {
    /// The arguments of `cat` for these events.
    fn arguments(&self, channel: Option<&str>, selection: Vec<OsString>) -> Vec<OsString> {
        let channel = channel.map(channel_option).into_iter();
        let options = self.options.iter().cloned().chain(channel).chain(selection);
        options.chain(["--".into()]).chain(self.inputs.iter().cloned()).collect()
    }

    fn channel_kind(&self, py: Python<'_>, channel: &str) -> PyResult<TableKind> {
        let (known, notes) = match self.known(channel) {
            Some(known) => (known, Vec::new()),
            None => {
                let found = self.discover(py, Some(channel))?;
                (found.schema, found.notes)
            }
        };
        if let Some(kind) = known.kind(channel) {
            self.learn(channel, known);
            return Ok(kind);
        }
        Err(self.missing_channel(py, channel, &notes)?)
    }

    fn known(&self, channel: &str) -> Option<ChannelSchema> {
        self.schemas.lock().unwrap_or_else(PoisonError::into_inner).get(channel).cloned()
    }

    fn learn(&self, channel: &str, schema: ChannelSchema) {
        let mut schemas = self.schemas.lock().unwrap_or_else(PoisonError::into_inner);
        schemas.insert(channel.to_owned(), schema);
    }

    /// Reads until the type of the channel is known, or everything for the names of all.
    fn discover(&self, py: Python<'_>, channel: Option<&str>) -> PyResult<Discovered> {
        let arguments = self.arguments(channel, Vec::new());
        let found = Arc::<Mutex<Discovered>>::default();
        // Names alone are no reason to stop early.
        let (end, stop) = (Arc::default(), Arc::default());
        let sink = DiscoverySink {
            found: Arc::clone(&found),
            stop: if channel.is_some() { Arc::clone(&stop) } else { end },
        };
        let pipeline =
            log_run::pipeline(py, &arguments, EventForm::Rows, DynSink::new(sink), false)?;
        let Resources { jobs, mut memory, .. } = self.resources;
        if channel.is_some() {
            let all = memory.map_or(SEARCH_MEMORY, |ByteSize(bytes)| bytes.min(SEARCH_MEMORY));
            memory = Some(ByteSize(all));
        }
        let options = Options { stop: Arc::clone(&stop), jobs, memory, ..Options::default() };
        let failed = |error| errors::from_error(py, &error);
        let run = Background::start(move || run::run(pipeline, &options)).map_err(failed)?;
        let ended = run.wait(py, &stop)?;
        let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
        match ended {
            Ok(report) => found.notes = findings::left_out(&report).collect(),
            // The sink has stopped the run.
            Err(error)
                if matches!(error.kind(), ErrorKind::Interrupted)
                    && matches!(found.schema, ChannelSchema::Fields(_)) => {}
            Err(error) => return Err(failed(error)),
        }
        Ok(std::mem::take(&mut found))
    }

    /// The error for a channel without events. `notes` say what was left out of it.
    fn missing_channel(&self, py: Python<'_>, channel: &str, notes: &[String]) -> PyResult<PyErr> {
        if !notes.is_empty() {
            let message = format!("channel `{channel}` is not read: {}", notes.join("; "));
            return Ok(errors::config_error(py, &message, Vec::new()));
        }
        let channels = self.discover(py, None)?.channels;
        let names: Vec<&str> = channels.iter().map(String::as_str).collect();
        let hint = match (nearest(channel, &names), names.as_slice()) {
            (Some(near), _) => format!("did you mean `{near}`?"),
            (None, []) => "it has no events".to_owned(),
            (None, names) => format!("it has: {}", listed(names)),
        };
        let message = format!("the log has no channel `{channel}`; {hint}");
        Ok(errors::config_error(py, &message, Vec::new()))
    }
}

/// The option that keeps exactly this channel.
fn channel_option(name: &str) -> OsString {
    let is_plain = !name.contains(['*', '?', '[', ']', '{', '}', '\\']) && !name.starts_with("re:");
    let pattern = if is_plain { name.to_owned() } else { format!("re:{}", escaped(name)) };
    format!("--channel={pattern}").into()
}

/// A regular expression for exactly this text.
fn escaped(text: &str) -> String {
    let escape = |c: char| {
        let special = r"\.+*?()|[]{}^$#&-~".contains(c);
        special.then_some('\\').into_iter().chain([c])
    };
    text.chars().flat_map(escape).collect()
}

/// The columns of these names, in their order.
fn chosen(py: Python<'_>, kind: &TableKind, names: &[String]) -> PyResult<Vec<LogColumn>> {
    columns_named(kind, names).map_err(|name| {
        let schema = kind.schema();
        let known: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
        let hint = match nearest(name, &known) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("it has: {}", listed(&known)),
        };
        let message = format!("columns: the table has no column `{name}`; {hint}");
        errors::config_error(py, &message, Vec::new())
    })
}

/// The most names in a message.
const MOST_LISTED: usize = 40;

fn listed(names: &[&str]) -> String {
    let shown = names.iter().take(MOST_LISTED).copied().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(MOST_LISTED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
