//! Sources that only say where their events end, read through core's `Delimited`.

use sluice_kit::{Delimited, DelimitedSource, EventMarker, ParseOutcome};
use sluice_model::options::{self, InPaths};

use serde_json::json;

use crate::{inputs, pieces};

/// The formats that a byte selects: how the start of an event is marked, if at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DelimitedForm {
    Marked,
    Bare,
    Lines,
}

#[derive(Debug)]
struct DelimitedLog {
    path: InPaths,
    form: DelimitedForm,
}

/// Splits of a log yield the same as the whole, for any bytes.
pub fn delimited(bytes: &[u8]) {
    let Some((which, log)) = bytes.split_first() else { return };
    let form =
        [DelimitedForm::Marked, DelimitedForm::Bare, DelimitedForm::Lines][usize::from(which % 3)];
    let path = options::read(json!(inputs::file("log.bin", log))).expect("it is a path");
    pieces::read(&DelimitedSource(DelimitedLog { path, form }), log.len());
}

impl Delimited for DelimitedLog {
    fn paths(&self) -> &InPaths {
        &self.path
    }

    fn mark(&self) -> EventMarker<'_> {
        match self.form {
            DelimitedForm::Marked => EventMarker::Begins(b"!"),
            DelimitedForm::Bare => EventMarker::None,
            DelimitedForm::Lines => EventMarker::Ends(b"\n"),
        }
    }

    // Small, so that the fuzzer meets the limit.
    fn longest(&self) -> usize {
        100
    }

    fn parse<'b>(&self, bytes: &'b [u8]) -> ParseOutcome<'b> {
        match self.form {
            DelimitedForm::Lines => line(bytes),
            DelimitedForm::Marked | DelimitedForm::Bare => event(bytes),
        }
    }
}

/// `!`, the number of following bytes, a sum of the first two, a time, and these bytes.
fn event(bytes: &[u8]) -> ParseOutcome<'_> {
    match bytes {
        [b'.', ..] => ParseOutcome::Skip { len: 1 },
        [first, ..] if *first != b'!' => ParseOutcome::NotAnEvent("no mark"),
        [mark, len, sum, ..] if *sum != mark ^ len => {
            ParseOutcome::Damaged { len: 3, reason: "another sum" }
        }
        [_, len, _, time, ..] => {
            let end = 4 + usize::from(*len);
            ParseOutcome::event(end, i64::from(*time), [b'A' + time % 3].to_vec(), 4..end)
        }
        _ => ParseOutcome::More,
    }
}

fn line(bytes: &[u8]) -> ParseOutcome<'_> {
    match bytes.iter().position(|byte| *byte == b'\n') {
        None => ParseOutcome::More,
        Some(0) => ParseOutcome::Skip { len: 1 },
        Some(at) if bytes[0] == b'#' => {
            ParseOutcome::Damaged { len: at + 1, reason: "a mark of damage" }
        }
        Some(at) => ParseOutcome::untimed(at + 1, &b"LINE"[..], 0..at),
    }
}
