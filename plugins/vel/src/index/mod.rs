//! The index, a table of seconds before the messages: builds, checks and uses it.
//!
//! Sequential reading never uses it: it may be wrong, and usually is incomplete.
//!
//! Entry `i` is the position of the first message, in file order, whose time is at least `i`
//! seconds after the first message of the file. So a second without messages has the position of
//! the next message. `-1` means no entry and is always valid: a killed program leaves the whole
//! table like that.

use std::ops::Range;

use sluice_io::ReadBuffer;
use sluice_kit::window::ReadAt;
use sluice_model::Error;

use crate::rules::Rules;
use crate::scan::{self, MessageScan};
use crate::start::{self, FileStart};
use crate::time::to_nanos;
use crate::wire::MessageHeader;

mod builder;
mod check;
mod narrow;
#[cfg(test)]
mod tests;

pub use builder::IndexBuilder;
pub use check::{IndexReport, WrongEntry, check_index, inspect};
pub(crate) use narrow::MARGIN;
pub use narrow::narrow;

/// Milliseconds per entry.
const SECOND: f64 = 1_000.0;

/// The start of second `entry`.
fn second(first: f64, entry: u64) -> f64 {
    first + entry as f64 * SECOND
}

/// Walks from message to message until `go_on` returns `false` or `range` ends. Returns the
/// position reached.
fn walk(
    log: &mut dyn ReadAt,
    range: Range<u64>,
    rules: &Rules,
    mut go_on: impl FnMut(u64, &MessageHeader) -> bool,
) -> Result<u64, Error> {
    let mut at = range.start;
    let log = &mut PieceReader { log, start: 0, piece: ReadBuffer::default() };
    while at < range.end {
        log.forget(at);
        match scan::classify(log, at, rules)? {
            MessageScan::Message { header, end } => {
                if !go_on(at, &header) {
                    break;
                }
                at = end;
            }
            MessageScan::Damage { end, .. } => at = end,
            MessageScan::End => break,
        }
    }
    Ok(at)
}

/// Reads a log in pieces, so that short messages do not cost several reads each.
struct PieceReader<'l> {
    log: &'l mut dyn ReadAt,
    /// The position of the piece.
    start: u64,
    piece: ReadBuffer,
}

/// Bytes that are read at once.
const PIECE_LEN: usize = 1 << 10;

impl ReadAt for PieceReader<'_> {
    fn read_at(&mut self, pos: u64, buf: &mut [u8]) -> Result<usize, Error> {
        if buf.len() >= PIECE_LEN {
            return self.log.read_at(pos, buf);
        }
        let skip = pos.checked_sub(self.start).and_then(|skip| usize::try_from(skip).ok());
        if let Some(there) = skip.and_then(|skip| self.piece.get(skip..)?.get(..buf.len())) {
            buf.copy_from_slice(there);
            return Ok(there.len());
        }
        let mut piece = self.piece.replace(PIECE_LEN, |space| self.log.read_at(pos, space))?;
        self.start = pos;
        piece.read_at(0, buf)
    }

    fn forget(&mut self, pos: u64) {
        self.log.forget(pos);
    }
}

/// The time of the first message that 64 bits of nanoseconds can hold; `None` if there is none.
pub(crate) fn first_time(log: &mut dyn ReadAt, rules: &Rules) -> Result<Option<i64>, Error> {
    let from = match start::read_start(log, rules)? {
        FileStart::Sound { body, .. } | FileStart::Marred { body, .. } => body,
        FileStart::Damaged { end, .. } => end,
        FileStart::Empty | FileStart::Refused { .. } => return Ok(None),
    };
    let mut first = None;
    walk(log, from..u64::MAX, rules, |_, header| {
        first = to_nanos(header.ms);
        first.is_none()
    })?;
    Ok(first)
}
