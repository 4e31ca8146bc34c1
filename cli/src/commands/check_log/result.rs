//! The result of checking a log, as text and as JSON.

use serde_json::{Value, json};
use sluice_io::escape::{printable, printable_sentence};
use sluice_model::units;
use sluice_pipeline::Report;
use sluice_pipeline::report::UnmetReport;

use crate::exit::ExitStatus;

/// The most expectations printed per log that are not met; JSON has all that are listed.
const MOST_SHOWN: usize = 100;

/// The result of checking a log.
#[derive(Debug, Default)]
pub(super) struct LogResult {
    pub(super) log: String,
    pub(super) unmet: Vec<UnmetReport>,
    /// How many there are; more than are listed, if they are many.
    pub(super) unmet_count: u64,
    pub(super) events: u64,
    pub(super) bytes: u64,
    pub(super) damaged_ranges: u64,
    pub(super) is_complete: bool,
    /// Why it could not be checked.
    pub(super) failure: Option<String>,
}

impl LogResult {
    /// The result of a log that was read.
    pub(super) fn checked(
        log: String,
        report: &Report,
        unmet: Vec<UnmetReport>,
        unmet_count: u64,
    ) -> Self {
        Self {
            log,
            unmet,
            unmet_count,
            // Those that were compared: views in a log are not.
            events: report.sinks.values().map(|sink| sink.events).sum(),
            bytes: report.bytes_read,
            damaged_ranges: report.damaged_ranges,
            is_complete: report.is_complete(),
            failure: None,
        }
    }

    /// The result of a log that could not be read.
    pub(super) fn failed(log: String, reason: String) -> Self {
        Self { log, failure: Some(reason), ..Self::default() }
    }

    pub(super) fn status(&self) -> ExitStatus {
        match (&self.failure, self.unmet_count) {
            (Some(_), _) => ExitStatus::Failed,
            (None, 1..) => ExitStatus::Unmet,
            (None, 0) if self.is_complete => ExitStatus::Done,
            (None, 0) => ExitStatus::Losses,
        }
    }

    pub(super) fn text(&self) -> String {
        let log = printable(&self.log);
        if self.failure.is_some() {
            return format!("{log}: not checked\n");
        }
        let events = units::pluralize(self.events, "event");
        let damage = match self.damaged_ranges {
            0 => String::new(),
            ranges => format!(", {}", units::pluralize(ranges, "damaged range")),
        };
        if self.unmet_count == 0 {
            return format!("{log}: ok ({events}{damage})\n");
        }
        let is_not = if self.unmet_count == 1 { "is not" } else { "are not" };
        let unmet = units::pluralize(self.unmet_count, "expectation");
        let mut text = format!("{log}: {unmet} {is_not} met ({events}{damage}):\n");
        for listed in self.unmet.iter().take(MOST_SHOWN) {
            text += &format!("  {}\n", printable_sentence(&listed.unmet.to_string()));
        }
        let more = self.unmet_count.saturating_sub(MOST_SHOWN as u64);
        if more > 0 {
            text += &format!("  and {} more\n", units::count(more));
        }
        text
    }

    pub(super) fn to_json(&self) -> Value {
        let unmet: Vec<_> = self.unmet.iter().map(|listed| &listed.unmet).collect();
        json!({
            "path": self.log,
            "events": self.events,
            "bytes": self.bytes,
            "damaged_ranges": self.damaged_ranges,
            "unmet": unmet,
            "unmet_count": self.unmet_count,
            "error": self.failure,
            "exit": self.status().code(),
        })
    }
}
