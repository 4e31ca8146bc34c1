//! A description that makes sense: where in a record everything lies. Plain data; reads nothing.

use std::sync::Arc;

use arrow_schema::SchemaRef;
use memchr::memmem::Finder;
use sluice_core::{Clock, MessageType};

use crate::channels::ChannelNaming;
use crate::checksum::Algorithm;
use crate::columns::RecordColumn;
use crate::options::{LengthCounts, Literal};
use crate::time::Timing;
use crate::walk::FieldWalk;
use crate::wire::BinaryNumber;

/// A format of logs.
#[derive(Debug)]
pub(crate) struct RecordFormat {
    /// What every log begins with.
    pub(crate) magic: Vec<u8>,
    /// What stands in front of the first record.
    pub(crate) header: HeaderEnd,
    /// What every record begins with; may be nothing.
    pub(crate) sync: Finder<'static>,
    /// How many bytes of a record tell its kind and its length.
    pub(crate) prefix_len: usize,
    /// How many bytes are looked at to tell whether a record may begin somewhere; all records have as many.
    pub(crate) lookahead: usize,
    /// Bytes of sync word and head.
    pub(crate) head_len: usize,
    /// Bytes of the tail.
    pub(crate) tail_len: usize,
    /// What tells how long a record is, where its kind does not.
    pub(crate) extent: RecordExtent,
    /// What tells a record's kind; nothing, if there is but one.
    pub(crate) key: Option<KindKey>,
    /// The kinds, that of records of no other kind last.
    pub(crate) kinds: Vec<RecordKind>,
    /// The longest record that is believed.
    pub(crate) max_len: usize,
    /// Bytes by which a search finds records, and where they lie in one.
    pub(crate) anchor: Option<(usize, Finder<'static>)>,
    /// Whether records can be searched for: some have a sync word, a constant or a checksum.
    pub(crate) is_marked: bool,
    /// What timestamps count from.
    pub(crate) clock: Clock,
    /// Whether an event's time depends on the events before it.
    pub(crate) is_sequential: bool,
}

impl RecordFormat {
    /// Whether a reader can begin anywhere.
    pub(crate) fn can_be_entered(&self) -> bool {
        !self.is_sequential && (self.is_marked || self.stride().is_some())
    }

    /// The length of all records, if it is always the same.
    pub(crate) fn stride(&self) -> Option<usize> {
        let first = self.kinds.first()?.fixed_len?;
        self.kinds.iter().all(|kind| kind.fixed_len == Some(first)).then_some(first)
    }
}

/// What stands in front of the first record.
#[derive(Clone, Debug)]
pub(crate) enum HeaderEnd {
    /// So many bytes.
    Bytes(u64),
    /// All up to the end of this.
    Until(Literal),
}

/// How the end of a record is told.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RecordExtent {
    /// By a field.
    Length {
        /// Where it lies.
        at: usize,
        /// What it is.
        word: BinaryNumber,
        /// What it counts.
        counts: LengthCounts,
        /// What is added.
        plus: i64,
    },
    /// By its fields.
    Fields,
    /// By the sync word of the next one.
    Sync,
}

/// What tells a record's kind.
#[derive(Clone, Debug)]
pub(crate) struct KindKey {
    /// Where it lies.
    pub(crate) at: usize,
    /// How many bytes it takes.
    pub(crate) len: usize,
    /// The bytes of each kind that is described, sorted, and its number.
    pub(crate) values: Vec<(Vec<u8>, usize)>,
    /// The number of the kind that all others are.
    pub(crate) other: Option<usize>,
}

impl KindKey {
    /// The kind of a record with these bytes in its place.
    #[inline]
    pub(crate) fn kind(&self, bytes: &[u8]) -> Option<usize> {
        let found = self.values.binary_search_by(|(value, _)| value.as_slice().cmp(bytes));
        found.ok().and_then(|place| self.values.get(place)).map(|(_, kind)| *kind).or(self.other)
    }
}

/// What becomes of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disposition {
    /// They are events.
    Event,
    /// They are left out.
    Skip,
    /// They are damage.
    Damage,
}

/// A kind of record.
#[derive(Debug)]
pub(crate) struct RecordKind {
    /// What it is called.
    pub(crate) name: String,
    /// How long its records are, if that is always the same.
    pub(crate) fixed_len: Option<usize>,
    /// How long they are at least.
    pub(crate) min_len: usize,
    /// Its fields, where some say how long others are.
    pub(crate) walk: Option<FieldWalk>,
    /// What has to stand where.
    pub(crate) constants: Vec<(RecordOffset, Vec<u8>)>,
    /// The checksum.
    pub(crate) checksum: Option<Checksum>,
    /// How many bits of a record have to agree: those of sync word, constants and checksum.
    pub(crate) proof_bits: usize,
    /// Whether a search does not begin with such a record, as others prove more.
    pub(crate) is_doubtful: bool,
    /// What becomes of its records.
    pub(crate) disposition: Disposition,
    /// When its events were; nothing, if they do not say.
    pub(crate) timing: Option<Timing>,
    /// Their numbers.
    pub(crate) sequence: Option<(RecordOffset, BinaryNumber)>,
    /// Their channels.
    pub(crate) naming: ChannelNaming,
    /// Their columns.
    pub(crate) columns: Vec<RecordColumn>,
    /// The schema of these.
    pub(crate) schema: SchemaRef,
    /// What their rows are of.
    pub(crate) message: Arc<MessageType>,
}

impl RecordKind {
    /// How many bits of a record of this length have to agree.
    pub(crate) fn proof_bits_of(&self, len: usize) -> usize {
        match self.checksum.filter(|checksum| checksum.covers_nothing(len)) {
            Some(checksum) => self.proof_bits.saturating_sub(checksum.algorithm.bits()),
            None => self.proof_bits,
        }
    }

    /// Whether a checksum speaks for a record of this length.
    #[inline]
    pub(crate) fn is_checked(&self, len: usize) -> bool {
        self.checksum.is_some_and(|checksum| !checksum.covers_nothing(len))
    }
}

/// A place in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordOffset {
    /// So many bytes behind its start.
    Start(usize),
    /// So many bytes before its end.
    End(usize),
}

impl RecordOffset {
    /// Where that is in a record of this length.
    #[inline]
    pub(crate) fn in_record(self, len: usize) -> Option<usize> {
        match self {
            Self::Start(at) => Some(at),
            Self::End(before) => len.checked_sub(before),
        }
    }

    /// What a record has from there on.
    #[inline]
    pub(crate) fn bytes_in(self, record: &[u8]) -> &[u8] {
        self.in_record(record.len()).and_then(|at| record.get(at..)).unwrap_or_default()
    }
}

/// A checksum in a record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Checksum {
    /// Where it lies.
    pub(crate) at: RecordOffset,
    /// How it is written.
    pub(crate) word: BinaryNumber,
    /// How it is worked out.
    pub(crate) algorithm: Algorithm,
    /// Where the bytes begin that it covers.
    pub(crate) from: RecordOffset,
    /// Where they end.
    pub(crate) until: RecordOffset,
    /// A byte behind them.
    pub(crate) extra: Option<u8>,
}

/// What a record's checksum is, and what it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChecksumValues {
    /// What the record says.
    pub(crate) stored: u64,
    /// What its bytes give.
    pub(crate) computed: u64,
}

impl Checksum {
    /// Whether it covers nothing of a record of this length, and so proves no more than a constant does.
    #[inline]
    pub(crate) fn covers_nothing(&self, len: usize) -> bool {
        self.extra.is_none() && self.from.in_record(len) == self.until.in_record(len)
    }

    /// Both sums of a record; nothing if it has no room for them.
    #[inline]
    pub(crate) fn sums(&self, record: &[u8]) -> Option<ChecksumValues> {
        let stored = self.word.bits(self.at.bytes_in(record))?;
        let (from, until) =
            (self.from.in_record(record.len())?, self.until.in_record(record.len())?);
        let covered = record.get(from..until)?;
        let computed = match self.extra {
            Some(extra) => self.algorithm.compute(&[covered, &[extra]]),
            None => self.algorithm.compute(&[covered]),
        };
        Some(ChecksumValues { stored, computed })
    }
}
