//! What a run found of the options it was given, for Python: names that match nothing, and events
//! that are left out.

use pyo3::prelude::*;
use sluice::extension::TYPED_NAME;
use sluice_model::{Error, units};
use sluice_pipeline::Report;
use sluice_pipeline::names::NameReport;
use sluice_pipeline::report::Note;

use crate::errors;

/// How the findings of a read are reported.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reporting {
    /// Whether a channel, field or window that matches nothing is an error.
    pub(crate) strict: bool,
    /// Whether those are reported at all.
    pub(crate) reports_names: bool,
    /// Whether events count that cannot be decoded: not if they are delivered as well.
    pub(crate) notes_undecoded: bool,
}

impl Reporting {
    /// Reports names that matched nothing, and what stages note of events that they leave out: as
    /// warnings at this level of the stack, or if the read is strict, the first name as an
    /// exception.
    pub(crate) fn report(self, py: Python<'_>, report: &Report, stack_level: u8) -> PyResult<()> {
        if let Some(text) = self.first_refused(report) {
            return Err(errors::config_error(py, &text, Vec::new()));
        }
        let warnings = py.import("warnings")?;
        let warn = |text| warnings.call_method1("warn", (text, py.None(), stack_level)).map(drop);
        self.sentences(report).try_for_each(warn)
    }

    /// The first name that matched nothing, as an error of a read that is strict. Does not touch
    /// Python.
    pub(crate) fn refusal(self, report: &Report) -> Option<Error> {
        self.first_refused(report).map(Error::invalid)
    }

    /// What there is to warn of.
    pub(crate) fn sentences(self, report: &Report) -> impl Iterator<Item = String> {
        let is_noted = move |note: &&Note| self.notes_undecoded || note.node != TYPED_NAME;
        self.unmatched(report).chain(notes_of_stages(report).filter(is_noted).map(sentence))
    }

    fn first_refused(self, report: &Report) -> Option<String> {
        self.unmatched(report).next().filter(|_| self.strict)
    }

    fn unmatched(self, report: &Report) -> impl Iterator<Item = String> {
        let is_reported = move |_: &&NameReport| self.reports_names;
        report.unmatched().filter(is_reported).filter_map(NameReport::sentence)
    }
}

/// What the stages of a run note of events that they leave out.
pub(crate) fn left_out(report: &Report) -> impl Iterator<Item = String> {
    notes_of_stages(report).filter(|note| note.count > 0).map(sentence)
}

fn notes_of_stages(report: &Report) -> impl Iterator<Item = &Note> {
    report.notes.iter().filter(|note| !report.sources.contains_key(&note.node))
}

fn sentence(Note { what, count, .. }: &Note) -> String {
    match count {
        // It has no meaning.
        0 => what.clone(),
        count => format!("{what} ({})", units::pluralize(*count, "time")),
    }
}
