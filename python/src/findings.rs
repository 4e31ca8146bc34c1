//! What a run found of the options it was given, for Python: names that match nothing, and events
//! that are left out.

use pyo3::prelude::*;
use sluice::extension::TYPED_NAME;
use sluice_model::Error;
use sluice_pipeline::Report;
use sluice_pipeline::names::NameReport;
use sluice_pipeline::report::Note;

use crate::errors;

/// How the findings of a read are reported.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reporting {
    /// Whether a channel, field or window that matches nothing is an error.
    pub(crate) strict: bool,
    /// Whether events count that cannot be decoded: not if they are delivered as well.
    pub(crate) notes_undecoded: bool,
}

impl Reporting {
    /// Reports names that matched nothing, and what stages note of events that they leave out: as
    /// warnings at this level of the stack, or if the read is strict, the first name as an
    /// exception.
    pub(crate) fn report(self, py: Python<'_>, report: &Report, stack_level: u8) -> PyResult<()> {
        if self.strict {
            let first = unmatched(report).next();
            return first.map_or(Ok(()), |text| Err(errors::config_error(py, &text, Vec::new())));
        }
        let warnings = py.import("warnings")?;
        let warn = |text| warnings.call_method1("warn", (text, py.None(), stack_level)).map(drop);
        self.sentences(report).try_for_each(warn)
    }

    /// The first name that matched nothing, as an error of a read that is strict. Does not touch
    /// Python.
    pub(crate) fn refusal(self, report: &Report) -> Option<Error> {
        unmatched(report).next().filter(|_| self.strict).map(Error::invalid)
    }

    /// What there is to warn of.
    pub(crate) fn sentences(self, report: &Report) -> impl Iterator<Item = String> {
        let is_noted = move |note: &&Note| self.notes_undecoded || note.node != TYPED_NAME;
        unmatched(report).chain(notes_of_events(report).filter(is_noted).map(sentence))
    }
}

/// What the stages of a run note of events that they leave out.
pub(crate) fn stage_notes(report: &Report) -> impl Iterator<Item = String> {
    notes_of_events(report).map(sentence)
}

fn unmatched(report: &Report) -> impl Iterator<Item = String> {
    report.unmatched().filter_map(NameReport::sentence)
}

fn notes_of_events(report: &Report) -> impl Iterator<Item = &Note> {
    let is_of_events = |note: &&Note| note.count > 0 && !report.sources.contains_key(&note.node);
    report.notes.iter().filter(is_of_events)
}

fn sentence(Note { what, count, .. }: &Note) -> String {
    format!("{what} ({count} times)")
}
