//! Expectations that a log does not meet: what was expected, what was found, and where. Compares
//! nothing.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::time;

/// An expectation that a log does not meet.
///
/// A stage reports it in [`StageReport::unmet`](crate::StageReport::unmet), a sink in
/// [`Written::unmet`](crate::Written::unmet). It does not change what is written, but the exit code
/// of the run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnmetExpectation {
    /// The channels that do not meet it, several if they fail for one cause; none if it is about
    /// the whole log.
    pub channels: Vec<String>,
    /// The name of the rule, such as `max_gap`.
    pub rule: String,
    /// What was expected.
    pub expected: String,
    /// What was found.
    pub found: String,
    /// When, if it is about a time.
    pub when: Option<UnmetTime>,
    /// The file and line of the rule, such as `expect.toml:12`.
    pub place: String,
}

/// When an expectation is not met. Times are nanoseconds as in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnmetTime {
    /// Its start.
    pub start: i64,
    /// Its end; the start for a single moment.
    pub end: i64,
    /// Its start in nanoseconds after the first event of the log.
    pub after: i64,
}

impl UnmetTime {
    /// From `start` to `end` in a log that starts at `log_start`.
    pub fn new(start: i64, end: i64, log_start: i64) -> Self {
        Self { start, end, after: start.saturating_sub(log_start) }
    }
}

impl fmt::Display for UnmetTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let after = self.after as f64 / 1e9;
        write!(f, "at {after:+.3} s")?;
        // A log that starts at 0 has no other clock.
        if self.after == self.start { Ok(()) } else { write!(f, " ({})", time::format(self.start)) }
    }
}

impl fmt::Display for UnmetExpectation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { channels, rule, expected, found, when, place } = self;
        if !channels.is_empty() {
            write!(f, "{}: ", channels.join(", "))?;
        }
        write!(f, "{rule}: expected {expected}, found {found}")?;
        if let Some(when) = when {
            write!(f, " {when}")?;
        }
        if place.is_empty() { Ok(()) } else { write!(f, " ({place})") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_says_what_was_expected_and_found_and_where() {
        let unmet = UnmetExpectation {
            channels: vec!["CAM_L".into(), "CAM_R".into()],
            rule: "max_gap".into(),
            expected: "at most 500 ms".into(),
            found: "3.2 s".into(),
            when: Some(UnmetTime::new(12_000_000_000, 15_200_000_000, 2_000_000_000)),
            place: "expect.toml:7".into(),
        };
        assert_eq!(
            unmet.to_string(),
            "CAM_L, CAM_R: max_gap: expected at most 500 ms, found 3.2 s at +10.000 s \
             (1970-01-01T00:00:12.000000000Z) (expect.toml:7)"
        );
        let when = Some(UnmetTime::new(12_000_000_000, 15_200_000_000, 0));
        let relative = UnmetExpectation { when, ..unmet.clone() }.to_string();
        assert!(relative.ends_with("found 3.2 s at +12.000 s (expect.toml:7)"), "{relative}");
        let whole =
            UnmetExpectation { channels: Vec::new(), when: None, place: String::new(), ..unmet };
        assert_eq!(whole.to_string(), "max_gap: expected at most 500 ms, found 3.2 s");
    }
}
