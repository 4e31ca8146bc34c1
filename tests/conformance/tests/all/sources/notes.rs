//! Text logs with comments: a line that is no event may join the one behind it.

use std::sync::Arc;

use serde::Deserialize;
use sluice_conformance::{Integrity, Promise, SourceTrial, source};
use sluice_kit::{DelimitedSource, LineContent, TextLines};
use sluice_model::options::InPaths;
use sluice_model::schemars::JsonSchema;
use sluice_model::{Channel, Clock, Encoding, Name, register};

use crate::found::expect_findings;

/// Reads lines `SECONDS TEXT`, and comments.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "sluice_model::schemars")]
struct Notes<const SKIPS_BAD_LINES: bool> {
    /// The files.
    path: InPaths,
}

register! {
    source "notes": DelimitedSource<Notes<false>>,
    about: "reads notes",
    sample: "[sources.log]\nplugin = \"notes\"\npath = \"a.notes\"\n",
    extensions: &["notes"],
}

register! {
    source "skips-bad-notes": DelimitedSource<Notes<true>>,
    about: "reads notes",
    sample: "[sources.log]\nplugin = \"skips-bad-notes\"\npath = \"a.notes\"\n",
    extensions: &["notes"],
}

impl<const SKIPS_BAD_LINES: bool> TextLines for Notes<SKIPS_BAD_LINES> {
    fn paths(&self) -> &InPaths {
        &self.path
    }

    fn line<'b>(&self, line: &'b [u8]) -> LineContent<'b> {
        if line.is_empty() || line.starts_with(b"#") {
            return LineContent::Skip;
        }
        let words = str::from_utf8(line).ok().and_then(|line| line.split_once(' '));
        match words.and_then(|(time, _)| time.parse::<i32>().ok()) {
            Some(time) => {
                LineContent::event(i64::from(time) * 1_000_000_000, b"NOTE", 0..line.len())
            }
            None if SKIPS_BAD_LINES => LineContent::Skip,
            None => LineContent::Damaged("it starts with no time"),
        }
    }

    fn channel(&self, name: Name, source: Arc<str>) -> Channel {
        Channel { clock: Clock::Relative, ..Channel::new(name, source, Encoding::Text) }
    }
}

fn trial(plugin: &str, end: &str) -> SourceTrial {
    let note = |second: usize| format!("{second} the robot is in room {}{end}", second * 7 % 5);
    let lines: String = (1..=20).map(note).collect();
    let (before, behind) = lines.split_at(lines.find("12 the").unwrap());
    let remark = format!("{end}# A remark between two notes, which is none itself{end}");
    let log = format!("# ACME notes{end}{before}{remark}{behind}");
    source(plugin).sample("a.notes", log).integrity(Integrity::Nothing)
}

#[test]
fn a_comment_whose_end_is_damaged_may_take_the_next_event_with_it() {
    for seed in 1..=3 {
        trial("notes", "\n").seed(seed).check();
    }
    trial("notes", "\r\n").check();
}

#[test]
fn damaged_lines_that_are_skipped_are_found_between_comments() {
    let findings = trial("skips-bad-notes", "\n").findings();
    expect_findings(&findings, &[Promise::Damage], &["events are lost silently"]);
}
