//! A compiled description: the layout of every kind of record. Plain data; reads nothing.

use std::sync::Arc;

use arrow_schema::SchemaRef;
use memchr::memmem::Finder;
use sluice_kit::columns::PayloadPlan;
use sluice_model::{Clock, MessageType};

use crate::checksum::Algorithm;
use crate::naming::ChannelNaming;
use crate::offset::RecordOffset;
use crate::options::{LengthCounts, Literal};
use crate::time::Timing;
use crate::walk::FieldWalk;
use crate::wire::BinaryNumber;

/// A compiled log format.
#[derive(Debug)]
pub(crate) struct RecordFormat {
    /// The bytes every log starts with.
    pub(crate) magic: Vec<u8>,
    /// What precedes the first record.
    pub(crate) header: HeaderEnd,
    /// The sync word; may be empty.
    pub(crate) sync: Finder<'static>,
    /// Length of the prefix that determines a record's kind and length.
    pub(crate) prefix_len: usize,
    /// How many bytes decide whether a record may start at a position; every record is at least as
    /// long.
    pub(crate) lookahead: usize,
    /// Length of sync word and head.
    pub(crate) head_len: usize,
    /// Length of the tail.
    pub(crate) tail_len: usize,
    /// How the length of a record is determined.
    pub(crate) extent: RecordExtent,
    /// Where the kind of a record is stored; `None` if there is only one.
    pub(crate) key: Option<KindKey>,
    /// The kinds of records; the one for undescribed kinds is last.
    pub(crate) kinds: Vec<RecordKind>,
    /// The maximum length of a record.
    pub(crate) max_len: usize,
    /// The bytes that a search looks for, and their offset in a record.
    pub(crate) anchor: Option<(usize, Finder<'static>)>,
    /// Whether records can be searched for: some have a sync word, a constant or a checksum.
    pub(crate) is_marked: bool,
    /// The epoch of timestamps.
    pub(crate) clock: Clock,
    /// Whether an event's time depends on earlier events.
    pub(crate) is_sequential: bool,
}

impl RecordFormat {
    /// Whether reading can start anywhere.
    pub(crate) fn can_be_entered(&self) -> bool {
        !self.is_sequential && (self.is_marked || self.stride().is_some())
    }

    /// Whether times have counters that wrap.
    pub(crate) fn has_counters(&self) -> bool {
        let parts =
            self.kinds.iter().flat_map(|kind| &kind.timing).flat_map(|timing| &timing.parts);
        parts.into_iter().any(|part| part.wraps.is_some())
    }

    /// Whether the next sync word ends records of this kind.
    pub(crate) fn ends_at_sync(&self, kind: &RecordKind) -> bool {
        match self.extent {
            RecordExtent::Length { .. } => false,
            RecordExtent::Fields => kind.fixed_len.is_none() && kind.walk.is_none(),
            RecordExtent::Sync => true,
        }
    }

    /// The length of every record, if it is the same for all.
    pub(crate) fn stride(&self) -> Option<usize> {
        let first = self.kinds.first()?.fixed_len?;
        self.kinds.iter().all(|kind| kind.fixed_len == Some(first)).then_some(first)
    }
}

/// What precedes the first record.
#[derive(Clone, Debug)]
pub(crate) enum HeaderEnd {
    /// This many bytes.
    Bytes(u64),
    /// Everything up to and including these bytes.
    Until(Literal),
}

/// How the end of a record is found.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RecordExtent {
    /// A field declares its length.
    Length {
        /// The offset of the field.
        at: usize,
        /// The number format of the field.
        word: BinaryNumber,
        /// Which bytes it counts.
        counts: LengthCounts,
        /// A constant to add.
        plus: i64,
    },
    /// Its fields determine it; of records of undescribed kinds, the next sync word ends them.
    Fields,
    /// The next sync word ends it.
    Sync,
}

/// The bytes that determine a record's kind.
#[derive(Clone, Debug)]
pub(crate) struct KindKey {
    /// Their offset.
    pub(crate) at: usize,
    /// How many there are.
    pub(crate) len: usize,
    /// The bytes of each described kind, sorted, and its index.
    pub(crate) values: Vec<(Vec<u8>, usize)>,
    /// The index of the kind of all other records.
    pub(crate) other: Option<usize>,
}

impl KindKey {
    /// The kind of a record with these bytes in its key.
    #[inline]
    pub(crate) fn kind(&self, bytes: &[u8]) -> Option<usize> {
        let found = self.values.binary_search_by(|(value, _)| value.as_slice().cmp(bytes));
        found.ok().and_then(|place| self.values.get(place)).map(|(_, kind)| *kind).or(self.other)
    }
}

/// What happens to records of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disposition {
    /// They become events.
    Event,
    /// They are skipped.
    Skip,
    /// They are reported as damage.
    Damage,
}

/// A kind of record.
#[derive(Debug)]
pub(crate) struct RecordKind {
    /// Its name.
    pub(crate) name: String,
    /// The length of its records, if it is fixed.
    pub(crate) fixed_len: Option<usize>,
    /// The minimum length of its records.
    pub(crate) min_len: usize,
    /// Its fields, if some declare the length of others.
    pub(crate) walk: Option<FieldWalk>,
    /// Constant bytes and their offsets.
    pub(crate) constants: Vec<(RecordOffset, Vec<u8>)>,
    /// The checksum.
    pub(crate) checksum: Option<Checksum>,
    /// How many bits identify a record: those of sync word, constants and checksum.
    pub(crate) proof_bits: usize,
    /// Whether a search must not start with such a record, because others prove more.
    pub(crate) is_doubtful: bool,
    /// What happens to its records.
    pub(crate) disposition: Disposition,
    /// How to compute event times; `None` if its records have none.
    pub(crate) timing: Option<Timing>,
    /// Where the sequence number is stored.
    pub(crate) sequence: Option<(RecordOffset, BinaryNumber)>,
    /// How its records get their channel.
    pub(crate) naming: ChannelNaming,
    /// How their columns are decoded.
    pub(crate) plan: PayloadPlan,
    /// The schema of the columns.
    pub(crate) schema: SchemaRef,
    /// The message type of its rows.
    pub(crate) message: Arc<MessageType>,
}

impl RecordKind {
    /// How many bits identify a record of this length.
    pub(crate) fn proof_bits_of(&self, len: usize) -> usize {
        match self.checksum.filter(|checksum| checksum.covers_nothing(len)) {
            Some(checksum) => self.proof_bits.saturating_sub(checksum.algorithm.bits()),
            None => self.proof_bits,
        }
    }

    /// Whether a checksum protects a record of this length.
    #[inline]
    pub(crate) fn is_checked(&self, len: usize) -> bool {
        self.checksum.is_some_and(|checksum| !checksum.covers_nothing(len))
    }

    /// Whether a checksum protects `record`, and is correct.
    pub(crate) fn has_correct_checksum(&self, record: &[u8]) -> bool {
        let sums = self.checksum.and_then(|checksum| checksum.sums(record));
        self.is_checked(record.len()) && sums.is_some_and(|sums| sums.stored == sums.computed)
    }
}

/// A checksum of a record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Checksum {
    /// The offset of the stored value.
    pub(crate) at: RecordOffset,
    /// The number format of the stored value.
    pub(crate) word: BinaryNumber,
    /// The algorithm.
    pub(crate) algorithm: Algorithm,
    /// Start of the covered bytes.
    pub(crate) from: RecordOffset,
    /// End of the covered bytes.
    pub(crate) until: RecordOffset,
    /// A byte appended to the covered bytes.
    pub(crate) extra: Option<u8>,
}

/// The stored and the computed checksum of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChecksumValues {
    /// The value in the record.
    pub(crate) stored: u64,
    /// The value of the covered bytes.
    pub(crate) computed: u64,
}

impl Checksum {
    /// Whether it covers nothing in a record of this length, so that it proves no more than a
    /// constant.
    #[inline]
    pub(crate) fn covers_nothing(&self, len: usize) -> bool {
        self.extra.is_none() && self.from.in_record(len) == self.until.in_record(len)
    }

    /// Both values for `record`; `None` if the record is too short for them.
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
