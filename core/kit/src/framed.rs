//! Framed logs: files that are consecutive records. Reads one from front to back, block by block,
//! into batches whose payloads are views into the blocks; skips and reports damage.
//!
//! What a record is, and where damage starts and ends, is decided by the format's [`Framing`].

use std::ops::Range;

use sluice_model::{ChannelId, Error};

use crate::window::ReadAt;

mod reader;

pub use reader::FramedReader;

/// The initial capacity of a batch; columns are pooled, so excess capacity costs little.
pub const LIKELY_EVENTS: usize = 8 << 10;

/// How a format frames its records. Results depend on the bytes of the log and the position only,
/// not on how they were read: this makes them independent of splitting.
///
/// Reading through `log` fails when the run is cancelled, unless it is a stream, which ends. Pass
/// such an `Err` on; events read before are not lost.
pub trait Framing: Send {
    /// The fast path: parses the record at the start of `bytes`, which are at `pos`. Returns
    /// `Ambiguous` in any case of doubt.
    fn peek(&mut self, pos: u64, bytes: &[u8]) -> Result<Peek, Error>;

    /// The slow path: classifies what is at `pos`. `Err` comes from `log` only.
    fn classify(&mut self, log: &mut dyn ReadAt, pos: u64) -> Result<PositionContent, Error>;

    /// The start of the first record in `range`.
    fn find(&mut self, log: &mut dyn ReadAt, range: Range<u64>) -> Result<Option<u64>, Error>;

    /// The start of the first record in a range behind missing bytes, where no record need begin.
    /// `None` by default: for formats whose records are recognized by what precedes them.
    fn find_after_gap(
        &mut self,
        log: &mut dyn ReadAt,
        range: Range<u64>,
    ) -> Result<Option<u64>, Error> {
        let _ = (log, range);
        Ok(None)
    }

    /// The event of a record at `pos` that [`classify`](Self::classify) has accepted.
    fn event(&mut self, pos: u64, record: &[u8]) -> Result<RecordContent, Error>;

    /// Whether only what follows ends `record`: where the log was cut off, it may go on.
    fn is_open_ended(&self, record: &[u8]) -> bool {
        let _ = record;
        false
    }

    /// Length and time of the record at the start of `bytes`, which may be incomplete; `None` if
    /// the whole record is needed to know its time.
    fn outline(&mut self, bytes: &[u8]) -> Result<Option<RecordOutline>, Error> {
        let _ = bytes;
        Ok(None)
    }

    /// Whether `bytes` start with a record, which confirms the one before.
    fn confirms(&self, bytes: &[u8]) -> bool {
        let _ = bytes;
        false
    }
}

/// The length and the time of a record, from its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordOutline {
    /// Bytes of the record.
    pub len: u64,
    /// Nanoseconds.
    pub timestamp: i64,
}

/// An event in its record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventHeader {
    /// Nanoseconds.
    pub timestamp: i64,
    /// The sequence number its origin assigned.
    pub sequence: i64,
    /// Its channel.
    pub channel: ChannelId,
    /// The range of its payload in the record.
    pub payload: Range<usize>,
}

/// The result of [`Framing::peek`].
#[derive(Debug)]
pub enum Peek {
    /// A complete record, beyond doubt.
    Event {
        /// Bytes of the record.
        len: usize,
        /// Its event.
        head: EventHeader,
    },
    /// A complete record that is neither event nor damage, such as a blank line.
    Skip {
        /// Bytes of the record.
        len: usize,
    },
    /// More bytes are needed.
    More,
    /// [`Framing::classify`] has to decide.
    Ambiguous,
}

/// The result of [`Framing::classify`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PositionContent {
    /// A record.
    Record {
        /// The position after it.
        end: u64,
    },
    /// Damage.
    Damage {
        /// The start of the next record, or the end of the log.
        end: u64,
        /// What is wrong.
        reason: String,
    },
    /// The end of the log, whatever follows.
    End {
        /// The length of the end marker.
        mark: u64,
    },
}

/// What a record holds.
#[derive(Debug)]
pub enum RecordContent {
    /// An event.
    Event(EventHeader),
    /// An event whose time in nanoseconds does not fit into 64 bits; its header has the clamped
    /// time.
    Wide(EventHeader, i128),
    /// Neither event nor damage, such as a blank line.
    Skip,
    /// A damaged event: the reason, and the channel if known.
    Damage(String, Option<ChannelId>),
}
