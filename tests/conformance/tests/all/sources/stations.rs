//! Text logs whose times are not in payloads: a change may join two lines to one that is an event.

use std::sync::Arc;

use serde::Deserialize;
use sluice_conformance::{Integrity, Promise, SourceTrial, source};
use sluice_kit::{DelimitedSource, LineContent, TextLines};
use sluice_model::options::InPaths;
use sluice_model::schemars::JsonSchema;
use sluice_model::{Channel, Clock, Encoding, Name, register};

use crate::found::expect_findings;

const SEEDS: std::ops::Range<u64> = 0..3;

/// Reads lines `SECONDS;STATION;VALUE`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "sluice_model::schemars")]
struct Stations<const SKIPS_BAD_LINES: bool> {
    /// The files.
    path: InPaths,
}

register! {
    source "stations": DelimitedSource<Stations<false>>,
    about: "reads what stations measure",
    sample: "[sources.log]\nplugin = \"stations\"\npath = \"a.stations\"\n",
    extensions: &["stations"],
}

register! {
    source "skips-bad-stations": DelimitedSource<Stations<true>>,
    about: "reads what stations measure",
    sample: "[sources.log]\nplugin = \"skips-bad-stations\"\npath = \"a.stations\"\n",
    extensions: &["stations"],
}

impl<const SKIPS_BAD_LINES: bool> TextLines for Stations<SKIPS_BAD_LINES> {
    fn paths(&self) -> &InPaths {
        &self.path
    }

    fn line<'b>(&self, line: &'b [u8]) -> LineContent<'b> {
        let mut cells = line.split(|byte| *byte == b';');
        let (Some(time), Some(station), Some(value), None) =
            (cells.next(), cells.next(), cells.next(), cells.next())
        else {
            return Self::bad("it does not have three cells");
        };
        let number = |cell| str::from_utf8(cell).ok()?.parse::<f64>().ok();
        match (number(time), number(value)) {
            (Some(time), Some(_)) => LineContent::event(
                (time * 1e9) as i64,
                station,
                line.len() - value.len()..line.len(),
            ),
            _ => Self::bad("a cell is no number"),
        }
    }

    fn channel(&self, name: Name, source: Arc<str>) -> Channel {
        Channel { clock: Clock::Relative, ..Channel::new(name, source, Encoding::Text) }
    }
}

impl<const SKIPS_BAD_LINES: bool> Stations<SKIPS_BAD_LINES> {
    fn bad(why: &'static str) -> LineContent<'static> {
        if SKIPS_BAD_LINES { LineContent::Skip } else { LineContent::Damaged(why) }
    }
}

/// Logs of a few lines, whose places are known to the byte, and of many.
fn trial(plugin: &str, lines: usize, end: &str) -> SourceTrial {
    let line = |n: usize| format!("{}.5;S{};{}.25{end}", 1_700_000_000 + n, n % 5, n * 7 % 11);
    let log: String = (0..lines).map(line).collect();
    source(plugin).sample("a.stations", log).events(lines).integrity(Integrity::Nothing)
}

#[test]
fn two_lines_that_a_change_joins_may_be_one_event() {
    for seed in SEEDS {
        trial("stations", 10, "\n").seed(seed).check();
        trial("stations", 150, "\r\n").seed(seed).check();
    }
}

#[test]
fn lines_that_are_skipped_are_found_among_those_that_may_be_joined() {
    let read = |seed, lines| trial("skips-bad-stations", lines, "\n").seed(seed).findings();
    // Expected at the end: a child of the kit runs the test up to its trial.
    let found: Vec<_> = SEEDS.flat_map(|seed| [read(seed, 10), read(seed, 150)]).collect();
    for findings in found {
        expect_findings(&findings, &[Promise::Damage], &["events are lost silently"]);
    }
}
