//! Classifies bytes: a record, too few bytes to tell, or no record, and why. Looks at one position
//! only.

#![warn(clippy::indexing_slicing)]

use std::fmt;

use sluice_model::units;

use crate::format::{Checksum, ChecksumValues, RecordExtent, RecordFormat, RecordKind};
use crate::literal::display_bytes;
use crate::offset::RecordOffset;
use crate::options::LengthCounts;
use crate::walk::{FieldWalk, WalkResult};
use crate::wire::BinaryNumber;

/// Longer records are examined in full only if something confirms their length.
pub(crate) const LONG_RECORD: usize = 64 << 10;

/// What bytes start with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Classification {
    /// A record, judging by itself.
    Record {
        /// Its length.
        len: usize,
        /// The index of its kind.
        kind: usize,
    },
    /// At least this many bytes are needed to tell.
    Incomplete(usize),
    /// No record.
    Rejected(Rejection),
}

/// Why bytes are not a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Rejection {
    /// The sync word is missing.
    NoSync,
    /// Its kind is not described; the bytes of the key.
    UnknownKind(Vec<u8>),
    /// Its length is not allowed.
    Length {
        /// The declared length.
        len: i128,
        /// The minimum length of its kind.
        min_len: usize,
        /// The maximum length of a record.
        max_len: usize,
    },
    /// No sync word follows.
    NoNextSync(usize),
    /// Its fields do not end at its end.
    FieldMismatch(usize),
    /// It is intact, but its fields do not match the description; the message.
    DescriptionMismatch(String),
    /// A constant has another value; its offset.
    Constant(usize),
    /// Its checksum is wrong.
    Checksum(ChecksumValues),
    /// The log ends inside it.
    Truncated(u64),
    /// No record follows it that confirms its length.
    Unconfirmed(usize),
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSync => f.write_str("expected a record, but there is no sync word"),
            Self::UnknownKind(found) => {
                write!(f, "a record of kind {}, which is not described", display_bytes(found))
            }
            Self::Length { len, min_len, max_len } => {
                write!(
                    f,
                    "expected a length from {min_len} to {max_len} bytes (`max_record`), found \
                     {len}"
                )
            }
            Self::NoNextSync(max_len) => {
                write!(f, "no record starts within {max_len} bytes (`max_record`)")
            }
            Self::FieldMismatch(len) => write!(
                f,
                "the fields do not end with the record, after \
                 {len} bytes"
            ),
            Self::DescriptionMismatch(words) => f.write_str(words),
            Self::Constant(at) => {
                write!(f, "byte {at} of the record differs from its constant `value`")
            }
            Self::Checksum(ChecksumValues { stored, computed }) => {
                write!(
                    f,
                    "the stored checksum is {stored:#x}, but the computed one is \
                           {computed:#x}"
                )
            }
            Self::Truncated(len) => {
                write!(f, "the log ends {} into a record", units::pluralize(*len, "byte"))
            }
            Self::Unconfirmed(len) => {
                write!(f, "no record follows its {len} bytes, so its length is not trusted")
            }
        }
    }
}

impl RecordFormat {
    /// The kind of the record at the start of `bytes`; `None` if it is not described or there are
    /// too few bytes.
    #[inline]
    pub(crate) fn kind_of(&self, bytes: &[u8]) -> Option<usize> {
        let Some(key) = &self.key else { return Some(0) };
        key.kind(bytes.get(key.at..key.at.checked_add(key.len)?)?)
    }

    /// Classifies the start of `bytes`. `is_all` means that the log ends with them.
    #[inline]
    pub(crate) fn classify(&self, bytes: &[u8], is_all: bool) -> Classification {
        let sync = self.sync.needle();
        // Comparing empty slices is slow: some processors stall on the dangling address.
        if !sync.is_empty() && !bytes.starts_with(sync) {
            let may_be = bytes.len() < sync.len() && sync.starts_with(bytes);
            return if may_be {
                Classification::Incomplete(self.prefix_len)
            } else {
                Classification::Rejected(Rejection::NoSync)
            };
        }
        if bytes.len() < self.prefix_len {
            return Classification::Incomplete(self.prefix_len);
        }
        let Some((number, kind)) = self.kind_of(bytes).and_then(|n| Some((n, self.kinds.get(n)?)))
        else {
            return Classification::Rejected(Rejection::UnknownKind(self.key_of(bytes)));
        };
        let (outcome, end) = match self.len(kind, bytes, is_all) {
            Ok(len) => {
                let outcome = self.classify_len((number, kind), bytes, len);
                (outcome, usize::try_from(len).unwrap_or(usize::MAX))
            }
            Err(outcome) => (outcome, usize::MAX),
        };
        if matches!(outcome, Classification::Rejected(_))
            && self.may_contain_sync(kind)
            && !kind.has_correct_checksum(bytes.get(..end).unwrap_or_default())
        {
            let found = self.end_past_sync((number, kind), bytes, is_all, end);
            return found.unwrap_or(outcome);
        }
        outcome
    }

    /// Classifies the start of `bytes` as a record of this kind and length.
    #[inline]
    fn classify_len(
        &self,
        (number, kind): (usize, &RecordKind),
        bytes: &[u8],
        len: i128,
    ) -> Classification {
        if let Err(rejection) = self.check_len(kind, len) {
            return Classification::Rejected(rejection);
        }
        let len = len as usize;
        match bytes.get(..len) {
            None => Classification::Incomplete(len),
            Some(record) => match self.check(kind, record) {
                Ok(()) => Classification::Record { len, kind: number },
                Err(rejection) => Classification::Rejected(rejection),
            },
        }
    }

    /// Whether records of this kind may contain the sync word that ends them, because a checksum
    /// tells the end.
    fn may_contain_sync(&self, kind: &RecordKind) -> bool {
        let is_strong = |checksum: &Checksum| checksum.algorithm.bits() >= MIN_CHECKSUM_BITS;
        self.ends_at_sync(kind) && kind.checksum.as_ref().is_some_and(is_strong)
    }

    /// Classifies the start of `bytes` as a record that ends after `end`, where the first sync word
    /// is: at the first of the next sync words, or at the end of the log, where its checksum is
    /// correct. If it is wrong at all of these, or up to where two records with correct checksums
    /// end, the record ends at a damaged sync word before that, or nowhere: `None`. The two records
    /// are not part of it, and readers of live logs need not wait for more.
    ///
    /// It must not end later, even if it is rejected there: after an intact record, some CRCs start
    /// anew, so that they are correct after the next one, too.
    #[cold]
    fn end_past_sync(
        &self,
        kind: (usize, &RecordKind),
        bytes: &[u8],
        is_all: bool,
        mut end: usize,
    ) -> Option<Classification> {
        let longest = self.max_len.min(LONG_RECORD);
        let most = longest.saturating_add(self.sync.needle().len());
        let searched = bytes.get(..most).unwrap_or(bytes);
        let mut intact = 0;
        for _ in 0..MAX_INNER_SYNCS {
            let (start, from) = (end, end.saturating_add(1));
            match self.sync.find(searched.get(from..).unwrap_or_default()) {
                Some(at) => end = from + at,
                None if bytes.len() >= most => {
                    end = longest + 1;
                    break;
                }
                None if is_all && end < bytes.len() => end = bytes.len(),
                None if is_all => break,
                None => return Some(Classification::Incomplete(next_search(bytes, most))),
            }
            if kind.1.has_correct_checksum(bytes.get(..end)?) {
                return Some(self.classify_len(kind, bytes, end as i128));
            }
            let next = bytes.get(start..end)?;
            let kind = self.kind_of(next).and_then(|number| self.kinds.get(number));
            let is_intact = kind.is_some_and(|kind| kind.has_correct_checksum(next));
            intact = if is_intact { intact + 1 } else { 0 };
            if intact == INTACT_SUCCESSORS {
                break;
            }
        }
        self.end_at_damaged_sync(kind, bytes, end)
    }

    /// Classifies the start of `bytes` as a record that ends before `until`, where its checksum is
    /// correct and the next sync word is damaged.
    fn end_at_damaged_sync(
        &self,
        kind: (usize, &RecordKind),
        bytes: &[u8],
        until: usize,
    ) -> Option<Classification> {
        let ends = self.sync.needle().len()..until.min(bytes.len());
        let mut ends = ends
            .filter(|end| bytes.get(*end..).is_some_and(|next| self.is_damaged_sync(next)))
            .take(MAX_DAMAGED_SYNCS);
        let end = ends.find(|end| {
            bytes.get(..*end).is_some_and(|record| kind.1.has_correct_checksum(record))
        })?;
        Some(self.classify_len(kind, bytes, end as i128))
    }

    /// Whether `bytes` start with a sync word but for one bit, or are the start of one at the end
    /// of the log.
    fn is_damaged_sync(&self, bytes: &[u8]) -> bool {
        let sync = self.sync.needle();
        let wrong_bits: u32 = sync.iter().zip(bytes).map(|(a, b)| (a ^ b).count_ones()).sum();
        wrong_bits == u32::from(bytes.len() >= sync.len())
    }

    /// The declared length of the record at the start of `bytes`, if it is above `min_len`,
    /// allowed, and protected by a checksum.
    #[inline]
    pub(crate) fn claimed_len(&self, bytes: &[u8], min_len: usize) -> Option<usize> {
        let RecordExtent::Length { at, word, counts, plus } = self.extent else { return None };
        let len = self.declared_len((at, word), counts, plus, bytes)?;
        if len <= min_len as i128 {
            return None;
        }
        let sync = self.sync.needle();
        let kind = self.kinds.get(self.kind_of(bytes)?)?;
        let can_be = bytes.starts_with(sync) && self.check_len(kind, len).is_ok();
        (can_be && kind.checksum.is_some()).then_some(len as usize)
    }

    /// Whether a record may start with `bytes`, as far as they go.
    pub(crate) fn may_start(&self, bytes: &[u8]) -> bool {
        let sync = self.sync.needle();
        let len = sync.len().min(bytes.len());
        if bytes.get(..len) != sync.get(..len) {
            return false;
        }
        if bytes.len() < self.prefix_len {
            return true;
        }
        let Some(kind) = self.kind_of(bytes).and_then(|kind| self.kinds.get(kind)) else {
            return false;
        };
        if let RecordExtent::Length { at, word, counts, plus } = self.extent {
            let len = self.declared_len((at, word), counts, plus, bytes);
            if len.is_none_or(|len| !self.may_have_len(kind, len)) {
                return false;
            }
        }
        kind.constants.iter().all(|(spot, value)| match spot {
            RecordOffset::Start(at) => {
                let there = bytes.get(*at..).unwrap_or_default();
                there.iter().zip(value).all(|(found, wanted)| found == wanted)
            }
            RecordOffset::End(_) => true,
        })
    }

    #[cold]
    pub(crate) fn key_of(&self, bytes: &[u8]) -> Vec<u8> {
        let key = self.key.as_ref().and_then(|key| bytes.get(key.at..key.at + key.len));
        key.unwrap_or_default().to_vec()
    }

    /// The length of the record at the start of `bytes`, unchecked.
    #[inline]
    fn len(&self, kind: &RecordKind, bytes: &[u8], is_all: bool) -> Result<i128, Classification> {
        match (self.extent, kind.fixed_len) {
            (RecordExtent::Length { at, word, counts, plus }, _) => {
                let declared = self.declared_len((at, word), counts, plus, bytes);
                declared.ok_or(Classification::Incomplete(self.prefix_len))
            }
            (RecordExtent::Fields, Some(fixed_len)) => Ok(fixed_len as i128),
            (RecordExtent::Fields, None) => match &kind.walk {
                Some(walk) => self.walk_len(kind, walk, bytes),
                None => self.len_to_sync(bytes, is_all),
            },
            (RecordExtent::Sync, _) => self.len_to_sync(bytes, is_all),
        }
    }

    #[inline]
    fn declared_len(
        &self,
        (at, word): (usize, BinaryNumber),
        counts: LengthCounts,
        plus: i64,
        bytes: &[u8],
    ) -> Option<i128> {
        let declared = word.whole(bytes.get(at..)?)? + i128::from(plus);
        let beside = match counts {
            LengthCounts::Payload => self.head_len + self.tail_len,
            LengthCounts::Record => 0,
            LengthCounts::Follows => at + word.number.width(),
        };
        Some(declared + beside as i128)
    }

    fn walk_len(
        &self,
        kind: &RecordKind,
        walk: &FieldWalk,
        bytes: &[u8],
    ) -> Result<i128, Classification> {
        match walk.run(bytes, self.head_len, None, self.max_len, |_, _| ()) {
            WalkResult::End(end) => Ok((end + self.tail_len) as i128),
            WalkResult::Needs(more) => Err(Classification::Incomplete(more)),
            WalkResult::Mismatch => Err(Classification::Rejected(self.too_long(kind))),
        }
    }

    #[cold]
    fn too_long(&self, kind: &RecordKind) -> Rejection {
        let (min_len, max_len) = (kind.min_len, self.max_len);
        Rejection::Length { len: max_len as i128 + 1, min_len, max_len }
    }

    fn len_to_sync(&self, bytes: &[u8], is_all: bool) -> Result<i128, Classification> {
        let sync = self.sync.needle().len();
        let most = self.max_len.saturating_add(sync);
        let searched = bytes.get(..most).unwrap_or(bytes);
        let found = searched.get(sync..).and_then(|behind| self.sync.find(behind));
        match found {
            Some(at) => Ok((at + sync) as i128),
            None if bytes.len() >= most => {
                Err(Classification::Rejected(Rejection::NoNextSync(self.max_len)))
            }
            None if is_all => Ok(bytes.len() as i128),
            None => Err(Classification::Incomplete(next_search(bytes, most))),
        }
    }

    #[inline]
    fn check_len(&self, kind: &RecordKind, len: i128) -> Result<(), Rejection> {
        let (min_len, max_len) = (kind.min_len, self.max_len);
        if len < min_len as i128 || len > max_len as i128 {
            return Err(Rejection::Length { len, min_len, max_len });
        }
        match kind.fixed_len {
            Some(fixed_len) if fixed_len as i128 != len => {
                Err(Rejection::FieldMismatch(len as usize))
            }
            _ => Ok(()),
        }
    }

    /// Whether a possible record of this kind may have this length. After a sync word, only head
    /// and tail have to fit.
    #[inline]
    fn may_have_len(&self, kind: &RecordKind, len: i128) -> bool {
        if self.sync.needle().is_empty() {
            return self.check_len(kind, len).is_ok();
        }
        len >= (self.head_len + self.tail_len) as i128 && len <= self.max_len as i128
    }

    /// The length of a record that was rejected only for its length.
    #[cold]
    pub(crate) fn mismatched_len(&self, rejection: &Rejection) -> Option<usize> {
        let len = match rejection {
            Rejection::Length { len, .. } => usize::try_from(*len).ok()?,
            Rejection::FieldMismatch(len) => *len,
            _ => return None,
        };
        let is_whole = len >= self.head_len + self.tail_len && len <= self.max_len;
        (is_whole && !matches!(self.extent, RecordExtent::Fields)).then_some(len)
    }

    /// How the description fails to match this record, whose length its kind cannot have; `None` if
    /// anything else in it is wrong, too.
    #[cold]
    pub(crate) fn description_mismatch(&self, record: &[u8]) -> Option<(&RecordKind, Rejection)> {
        let number = self.kind_of(record)?;
        let is_other = self.key.as_ref().is_some_and(|key| key.other == Some(number));
        let kind = self.kinds.get(number).filter(|_| !is_other)?;
        let lies_in_head = |spot: &RecordOffset, value: &[u8]| match spot {
            RecordOffset::Start(at) => at + value.len() <= self.head_len,
            RecordOffset::End(before) => *before <= self.tail_len,
        };
        let mut constants = kind.constants.iter().filter(|(spot, value)| lies_in_head(spot, value));
        if !constants.all(|(spot, value)| spot.bytes_in(record).starts_with(value)) {
            return None;
        }
        if let Some(checksum) = &kind.checksum {
            checksum.sums(record).filter(|sums| sums.stored == sums.computed)?;
        }
        Some((kind, Rejection::DescriptionMismatch(self.mismatch_message(kind, record))))
    }

    fn mismatch_message(&self, kind: &RecordKind, record: &[u8]) -> String {
        let (name, beside) = (&kind.name, self.head_len + self.tail_len);
        let has = record.len().saturating_sub(beside);
        let walked = kind.walk.as_ref().map(|walk| {
            let body = record.get(..self.head_len + has).unwrap_or_default();
            walk.run(body, self.head_len, None, self.max_len, |_, _| ())
        });
        let needs = match walked {
            None => kind.fixed_len.map(|fixed_len| fixed_len.saturating_sub(beside).to_string()),
            Some(WalkResult::End(end)) => Some(end.saturating_sub(self.head_len).to_string()),
            Some(WalkResult::Needs(_) | WalkResult::Mismatch) if kind.min_len > record.len() => {
                Some(format!("at least {}", kind.min_len.saturating_sub(beside)))
            }
            Some(_) => None,
        };
        match needs {
            Some(needs) => format!("{name}: its fields need {needs} bytes, its payload has {has}"),
            None => {
                format!("{name}: its payload of {has} bytes is not a whole number of elements")
            }
        }
    }

    /// Checks a record of this length against its kind.
    #[inline]
    fn check(&self, kind: &RecordKind, record: &[u8]) -> Result<(), Rejection> {
        for (spot, value) in &kind.constants {
            if !spot.bytes_in(record).starts_with(value) {
                return Err(Rejection::Constant(spot.in_record(record.len()).unwrap_or_default()));
            }
        }
        if let Some(checksum) = &kind.checksum {
            match checksum.sums(record) {
                Some(sums) if sums.stored == sums.computed => {}
                Some(sums) => return Err(Rejection::Checksum(sums)),
                None => return Err(Rejection::FieldMismatch(record.len())),
            }
        }
        let Some(walk) = &kind.walk else { return Ok(()) };
        let Some(end) = record.len().checked_sub(self.tail_len) else {
            return Err(Rejection::FieldMismatch(record.len()));
        };
        match walk.run(record, self.head_len, Some(end), record.len(), |_, _| ()) {
            WalkResult::End(found) if found == end => Ok(()),
            _ => Err(Rejection::FieldMismatch(record.len())),
        }
    }
}

/// How many bytes to search for the next sync word, `most` at most, if there is none in `bytes`.
fn next_search(bytes: &[u8], most: usize) -> usize {
    bytes.len().saturating_mul(2).max(FIRST_SEARCH).min(most)
}

/// How far to look for the next sync word at first.
const FIRST_SEARCH: usize = 256;
/// How many sync words a record may contain.
const MAX_INNER_SYNCS: usize = 8;
/// At how many damaged sync words to look for the end of a record.
const MAX_DAMAGED_SYNCS: usize = 8;
/// How many consecutive records with correct checksums do not belong to the record before them.
const INTACT_SUCCESSORS: usize = 2;
/// The weakest checksum that may tell where such a record ends: with weaker ones, damaged records
/// would swallow intact ones.
const MIN_CHECKSUM_BITS: usize = 16;
