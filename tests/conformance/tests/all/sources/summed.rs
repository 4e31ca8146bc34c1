//! Binary logs of frames with checksums, also long ones: the kit knows the ends of few events
//! there.

use serde::Deserialize;
use sluice_conformance::{Integrity, Promise, SourceTrial, source};
use sluice_kit::{Delimited, DelimitedSource, EventMarker, ParseOutcome};
use sluice_model::options::InPaths;
use sluice_model::register;
use sluice_model::schemars::JsonSchema;

use crate::found::expect_findings;

/// Reads a header, then frames: mark, kind, length and time, payload, checksum.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "sluice_model::schemars")]
struct Summed<const DEFECT: u8> {
    /// The files.
    path: InPaths,
}

const NO_DEFECT: u8 = 0;
const SKIPS_BAD_FRAMES: u8 = 1;
/// Plus a kind: for empty payloads of that kind.
const PANICS: u8 = 100;

macro_rules! summed {
    ($($name:literal: $defect:expr;)*) => {
        $(register! {
            source $name: DelimitedSource<Summed<{ $defect }>>,
            about: "reads frames with checksums",
            sample: concat!("[sources.log]\nplugin = \"", $name, "\"\npath = \"a.summed\"\n"),
            extensions: &["summed"],
        })*
    };
}

summed! {
    "summed": NO_DEFECT;
    "skips-bad-frames": SKIPS_BAD_FRAMES;
    "panics-on-empty-1": PANICS + 1;
    "panics-on-empty-2": PANICS + 2;
    "panics-on-empty-3": PANICS + 3;
}

const HEADER: &[u8] = b"SUMMED 1";
const MARK: &[u8] = &[0xf7, 0x31];
const HEAD: usize = 15;

fn sum(bytes: &[u8]) -> [u8; 4] {
    let add = |sum: u32, byte: &u8| (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    bytes.iter().fold(0x811c_9dc5, add).to_le_bytes()
}

impl<const DEFECT: u8> Delimited for Summed<DEFECT> {
    fn paths(&self) -> &InPaths {
        &self.path
    }

    fn mark(&self) -> EventMarker<'_> {
        EventMarker::Begins(MARK)
    }

    fn is_unmistakable(&self) -> bool {
        true
    }

    fn parse<'b>(&self, bytes: &'b [u8]) -> ParseOutcome<'b> {
        if bytes.starts_with(HEADER) {
            return ParseOutcome::Skip { len: HEADER.len() };
        }
        let Some(head) = bytes.first_chunk::<HEAD>() else { return ParseOutcome::More };
        let [_, _, kind, a, b, c, d, time @ ..] = head;
        let end = HEAD + u32::from_le_bytes([*a, *b, *c, *d]) as usize;
        assert!(end > HEAD || PANICS + *kind % 4 != DEFECT, "no payload");
        let Some((frame, [a, b, c, d, ..])) = bytes.split_at_checked(end) else {
            return ParseOutcome::More;
        };
        let (time, channel) = (i64::from_le_bytes(*time).checked_mul(1000), [b'A' + kind % 26]);
        match time.filter(|_| sum(frame) == [*a, *b, *c, *d]) {
            Some(time) => ParseOutcome::event(end + 4, time, channel.to_vec(), HEAD..end),
            None if DEFECT == SKIPS_BAD_FRAMES => ParseOutcome::Skip { len: end + 4 },
            None => ParseOutcome::Damaged { len: end + 4, reason: "its checksum is wrong" },
        }
    }
}

/// Frames of three kinds in turn, so that the log has a period.
fn frames(count: usize) -> Vec<u8> {
    let frame = |n: usize| {
        let payload = match n % 3 {
            0 => [(n as f32 * 0.5).to_le_bytes(), (n as f32 * 0.25).to_le_bytes()].concat(),
            1 => (24_000 + n as u16).to_le_bytes().to_vec(),
            _ => format!("note number {n}").into_bytes(),
        };
        let time = 1_000_000 + n as i64 * 10_000;
        let head = [MARK, &[1 + n as u8 % 3], &(payload.len() as u32).to_le_bytes()].concat();
        let frame = [&head[..], &time.to_le_bytes(), &payload].concat();
        [&frame[..], &sum(&frame)].concat()
    };
    (0..count).flat_map(frame).collect()
}

/// Logs with and without a header, so that the first event starts at another place.
fn trial(plugin: &str, header: &[u8], count: usize) -> SourceTrial {
    let log = [header, &frames(count)].concat();
    source(plugin).sample("a.summed", log).events(count).integrity(Integrity::Checksummed)
}

#[test]
fn frames_that_are_taken_out_whole_need_no_report() {
    trial("summed", b"", 1_500).check();
    for seed in 0..3 {
        trial("summed", b"", 12).seed(seed).check();
        trial("summed", HEADER, 300).seed(seed).check();
    }
}

#[test]
fn bad_frames_that_are_skipped_are_found_in_a_long_log() {
    let findings = trial("skips-bad-frames", HEADER, 300).findings();
    expect_findings(&findings, &[Promise::Damage], &["events are lost silently"]);
}

#[test]
fn panics_on_empty_payloads_of_some_kind() {
    let mut found = Vec::new();
    for plugin in ["panics-on-empty-1", "panics-on-empty-2", "panics-on-empty-3"] {
        for log in [(&b""[..], 12), (HEADER, 300)] {
            found.push(trial(plugin, log.0, log.1).findings());
        }
    }
    for findings in found {
        expect_findings(&findings, &[Promise::NoPanic], &["no payload"]);
    }
}
