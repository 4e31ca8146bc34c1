//! Decides which records are trusted, and where reading resumes after damage.
//!
//! The answers depend only on the bytes of the log and the position.
//!
//! # Positions
//!
//! A record is *intact* if its sync word, kind, length, constants, checksum and fields are as
//! described.
//!
//! | at `p` | outcome |
//! |---|---|
//! | the end of the log | end |
//! | a record that declares more than 64 KiB, is followed by neither the end of the log nor a possible record, and contains a record that a search trusts | damage |
//! | an intact record with a checksum that covers something | record |
//! | an intact record of an unmarked format: no sync word, no constant, no checksum | record |
//! | any other intact record that is followed by the end of the log or a possible record | record |
//! | a record that is intact but for its length, which its kind cannot have or its fields do not fill; with a correct checksum, or with a sync word or constants, a declared length and a possible record after it | damage: this record only |
//! | anything else | damage, up to the next record that a search trusts, or the end of the log |
//!
//! The next sync word ends a record without a length. If its checksum has at least 16 bits and is
//! wrong there, one of the eight after that within 64 KiB does: the first where it is correct,
//! unless two consecutive records with correct checksums end before it. If none does, a damaged
//! sync word before these does, one of the first eight with one wrong bit or cut off by the end of
//! the log: again the first where the checksum is correct.
//!
//! A *possible record* has the sync word, and a kind, a length and constants that are allowed, as
//! far as the log goes. After a sync word, its length only has to hold head and tail, because the
//! description may not match it.
//!
//! # Searches
//!
//! A search trusts consecutive intact records whose sync words, constants and checksums have 32
//! bits in total, or fewer that lead exactly to the end of the log. It does not start with a record
//! that proves nothing, nor with one of an undescribed kind without a checksum if other kinds have
//! one. In an unmarked format nothing can be searched for: damage extends to the end of the log.
//!
//! # Cost
//!
//! A search looks where the sync word or a constant is, or at every byte if there are none. Per
//! byte of progress it examines at most 256 bytes, plus 1 MiB and the last record, so that a log
//! that pretends to have a long record at every byte ends in damage, not after days. Rejecting a
//! checksum reads the whole record: at most 64 KiB per damage, or `max_record` if the declared
//! length leads to a record or contains no trusted one; and if sync words end records, seventeen
//! times the bytes up to the next eight, at most 64 KiB, per sync word that starts no record.
//! Memory is limited to the longest record.

#![warn(clippy::indexing_slicing)]

use std::ops::Range;

use sluice_io::ReadBuffer;
use sluice_kit::window::{ReadAt, Search};
use sluice_model::Error;

use crate::classify::{Classification, LONG_RECORD, Rejection};
use crate::format::{HeaderEnd, RecordExtent, RecordFormat, RecordKind};
use crate::literal::display_bytes;

/// What a search may examine in addition to its progress.
const SEARCH_ALLOWANCE: u64 = 1 << 20;
/// How many bytes a search may examine per byte of progress.
const SEARCH_RATIO: u64 = 256;
/// How many bits must match before a search trusts what it found.
const MIN_PROOF_BITS: usize = 32;
/// How many consecutive records a search examines; four suffice if each proves something.
const MAX_CHAIN: usize = 8;
/// The maximum length of a header whose end is searched for.
const MAX_HEADER: u64 = 1 << 20;
/// How many bytes of a record to read at first, if its head is shorter.
const FIRST_READ: usize = 128;

/// What is at a position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ScanOutcome {
    /// A record.
    Record {
        /// The position after it.
        end: u64,
    },
    /// Not a record.
    Damage {
        /// Where the next record starts, or the end of the log.
        end: u64,
        /// Why it is not a record.
        rejection: Rejection,
    },
    /// The end of the log.
    End,
}

/// The start of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LogStart {
    /// As described; the position of the first record.
    Valid(u64),
    /// Not as described; the reason.
    Invalid(String),
}

/// Scans a log for records.
#[derive(Debug)]
pub(crate) struct RecordScanner<'f> {
    format: &'f RecordFormat,
    record: &'f mut ReadBuffer,
    /// How many bytes were read so far.
    examined: u64,
}

/// A record that the description does not match.
struct DescriptionMismatch {
    /// Where it ends, if that is trusted.
    end: Option<u64>,
    rejection: Rejection,
}

enum Probe {
    End,
    Record { len: u64, kind: usize },
    Rejected(Rejection),
}

impl<'f> RecordScanner<'f> {
    /// A scanner for logs of this format; `record` is its buffer.
    pub(crate) fn new(format: &'f RecordFormat, record: &'f mut ReadBuffer) -> Self {
        Self { format, record, examined: 0 }
    }

    /// Checks the start of a log.
    pub(crate) fn start_of_log(&mut self, log: &mut dyn ReadAt) -> Result<LogStart, Error> {
        let magic = &self.format.magic;
        let found = self.read(log, 0, magic.len().max(1))?;
        let found = found.get(..magic.len()).unwrap_or(found);
        if found != magic.as_slice() {
            let is_empty = found.is_empty();
            let reason =
                format!("expected {}, found {}", display_bytes(magic), display_bytes(found));
            return Ok(if is_empty { LogStart::Valid(0) } else { LogStart::Invalid(reason) });
        }
        match &self.format.header {
            HeaderEnd::Bytes(len) => self.after_header(log, *len),
            HeaderEnd::Until(text) => header_end(log, &text.0),
        }
    }

    /// The first record after a header of this length.
    fn after_header(&mut self, log: &mut dyn ReadAt, len: u64) -> Result<LogStart, Error> {
        let is_there = len == 0 || self.read(log, len - 1, 1)?.len() == 1;
        let is_empty = self.read(log, 0, 1)?.is_empty();
        if is_there || is_empty {
            return Ok(LogStart::Valid(if is_there { len } else { 0 }));
        }
        Ok(LogStart::Invalid(format!("the log ends inside its header of {len} bytes")))
    }

    /// Classifies what is at `pos`.
    pub(crate) fn classify_at(
        &mut self,
        log: &mut dyn ReadAt,
        pos: u64,
    ) -> Result<ScanOutcome, Error> {
        if let Some((len, end)) = self.find_contradiction(log, pos)? {
            return Ok(ScanOutcome::Damage { end, rejection: Rejection::Unconfirmed(len) });
        }
        let rejection = match self.probe(log, pos)? {
            Probe::End => return Ok(ScanOutcome::End),
            Probe::Record { len, kind } => {
                let end = pos.saturating_add(len);
                if self.is_confirmed(log, end, (kind, len as usize))? {
                    return Ok(ScanOutcome::Record { end });
                }
                Rejection::Unconfirmed(len as usize)
            }
            Probe::Rejected(rejection) => match self.description_mismatch(log, pos, &rejection)? {
                Some(DescriptionMismatch { end: Some(end), rejection }) => {
                    return Ok(ScanOutcome::Damage { end, rejection });
                }
                Some(DescriptionMismatch { end: None, rejection }) => rejection,
                None => rejection,
            },
        };
        Ok(ScanOutcome::Damage { end: self.next(log, pos.saturating_add(1))?, rejection })
    }

    /// Checks whether the record at `pos` was rejected only because the description does not match
    /// it.
    fn description_mismatch(
        &mut self,
        log: &mut dyn ReadAt,
        pos: u64,
        rejection: &Rejection,
    ) -> Result<Option<DescriptionMismatch>, Error> {
        let Some(len) = self.format.mismatched_len(rejection).filter(|len| *len <= LONG_RECORD)
        else {
            return Ok(None);
        };
        let format = self.format;
        let record = self.read(log, pos, len)?;
        let mismatch = || format.description_mismatch(record);
        let Some((kind, rejection)) = (record.len() == len).then(mismatch).flatten() else {
            return Ok(None);
        };
        let end = pos.saturating_add(len as u64);
        let has_length = matches!(self.format.extent, RecordExtent::Length { .. });
        Ok(if kind.is_checked(len) {
            Some(DescriptionMismatch { end: Some(end), rejection })
        } else if !has_length || !self.format.is_marked {
            Some(DescriptionMismatch { end: None, rejection })
        } else {
            self.is_followed(log, end)?.then_some(DescriptionMismatch { end: Some(end), rejection })
        })
    }

    /// The length that a long record at `pos` declares, and the position of a record inside it that
    /// contradicts it; `None` if something follows that confirms the length.
    fn find_contradiction(
        &mut self,
        log: &mut dyn ReadAt,
        pos: u64,
    ) -> Result<Option<(usize, u64)>, Error> {
        let format = self.format;
        let bytes = self.read(log, pos, format.prefix_len)?;
        let Some(len) = format.claimed_len(bytes, LONG_RECORD) else { return Ok(None) };
        let end = pos.saturating_add(len as u64);
        let is_whole = self.read(log, end - 1, 1)?.len() == 1;
        if is_whole && self.is_followed(log, end)? {
            return Ok(None);
        }
        let from = pos.saturating_add(1);
        let mut search = self.search(from..end);
        let found = self.first_trusted(log, from, &mut search)?;
        Ok(found.map(|found| (len, found)))
    }

    /// The position of the first trusted record at `from` or later, or the end of the log.
    pub(crate) fn next(&mut self, log: &mut dyn ReadAt, from: u64) -> Result<u64, Error> {
        let mut search = self.search(from..u64::MAX);
        search.forget();
        if !self.format.is_marked {
            search.skip_to_end(log)?;
            return Ok(search.reached());
        }
        if let Some(at) = self.next_aligned(log, from)? {
            return Ok(at);
        }
        let found = self.first_trusted(log, from, &mut search)?;
        Ok(found.unwrap_or(search.reached()))
    }

    /// The position of the first record in `range`, without knowledge of what precedes it.
    pub(crate) fn find(
        &mut self,
        log: &mut dyn ReadAt,
        begin: u64,
        range: Range<u64>,
    ) -> Result<Option<u64>, Error> {
        if let (false, Some(stride)) = (self.format.is_marked, self.format.stride()) {
            let into = (range.start - begin) % stride as u64;
            let at = if into == 0 { range.start } else { range.start - into + stride as u64 };
            return Ok(Some(at).filter(|at| *at < range.end));
        }
        if !self.format.is_marked {
            return Ok(None);
        }
        let from = range.start;
        let mut search = self.search(range);
        self.first_trusted(log, from, &mut search)
    }

    /// The position of the first record behind missing bytes that end before `from`; `None` if
    /// nothing marks records.
    pub(crate) fn find_after_gap(
        &mut self,
        log: &mut dyn ReadAt,
        from: u64,
    ) -> Result<Option<u64>, Error> {
        if !self.format.is_marked {
            return Ok(None);
        }
        let mut search = self.search(from..u64::MAX);
        search.forget();
        self.first_trusted(log, from, &mut search)
    }

    fn search(&self, range: Range<u64>) -> Search {
        let anchor = self.format.anchor.as_ref();
        let pattern_len = anchor.map_or(1, |(at, bytes)| at + bytes.needle().len());
        Search::new(range, pattern_len.saturating_sub(1))
    }

    /// The next record of fixed length after a damaged one that starts before `from`; usually they
    /// stay aligned. The start of the log is not a record.
    fn next_aligned(&mut self, log: &mut dyn ReadAt, from: u64) -> Result<Option<u64>, Error> {
        let (Some(stride), Some(damaged)) = (self.format.stride(), from.checked_sub(1)) else {
            return Ok(None);
        };
        let at = damaged.saturating_add(stride as u64);
        if self.format.anchor.is_some() || self.read(log, at, 1)?.is_empty() {
            return Ok(None);
        }
        Ok(self.is_trusted(log, at)?.then_some(at))
    }

    fn first_trusted(
        &mut self,
        log: &mut dyn ReadAt,
        from: u64,
        search: &mut Search,
    ) -> Result<Option<u64>, Error> {
        let anchor = self.format.anchor.as_ref();
        let before = self.examined;
        let place = |bytes: &[u8]| match anchor {
            Some((at, wanted)) => {
                let found = wanted.find(bytes.get(*at..)?)?;
                Some((found, found + 1))
            }
            None => (!bytes.is_empty()).then_some((0, 1)),
        };
        while let Some(at) = search.next(log, place)? {
            let allowed = SEARCH_ALLOWANCE.saturating_add((at - from).saturating_mul(SEARCH_RATIO));
            if self.examined - before > allowed {
                continue;
            }
            if self.is_trusted(log, at)? {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    /// Whether a search trusts the record at `at`.
    fn is_trusted(&mut self, log: &mut dyn ReadAt, mut at: u64) -> Result<bool, Error> {
        let mut bits = 0;
        for met in 1..=MAX_CHAIN {
            match self.probe(log, at)? {
                Probe::Record { len, kind: number } => {
                    let kind = self.format.kinds.get(number);
                    let proof_bits = kind.map_or(0, |kind| kind.proof_bits_of(len as usize));
                    if met == 1 && (proof_bits == 0 || kind.is_none_or(|kind| kind.is_doubtful)) {
                        return Ok(false);
                    }
                    at = at.saturating_add(len);
                    bits += proof_bits;
                    if bits >= MIN_PROOF_BITS {
                        return self.is_confirmed(log, at, (number, len as usize));
                    }
                }
                Probe::End => return Ok(met > 1),
                Probe::Rejected(_) => return Ok(false),
            }
        }
        Ok(false)
    }

    /// Whether the record that ends at `end` is confirmed by what follows, if it needs to be.
    fn is_confirmed(
        &mut self,
        log: &mut dyn ReadAt,
        end: u64,
        (kind, len): (usize, usize),
    ) -> Result<bool, Error> {
        match self.format.kinds.get(kind) {
            Some(kind) if self.format.needs_successor(kind, len) => self.is_followed(log, end),
            _ => Ok(true),
        }
    }

    /// Whether the log ends at `end`, or a possible record is there.
    fn is_followed(&mut self, log: &mut dyn ReadAt, end: u64) -> Result<bool, Error> {
        let format = self.format;
        Ok(format.may_start(self.read(log, end, format.lookahead)?))
    }

    /// Classifies the bytes at `pos` by themselves.
    fn probe(&mut self, log: &mut dyn ReadAt, pos: u64) -> Result<Probe, Error> {
        let format = self.format;
        let mut want = format.prefix_len.max(FIRST_READ);
        loop {
            let bytes = self.read(log, pos, want)?;
            let (there, is_all) = (bytes.len(), bytes.len() < want);
            if there == 0 {
                return Ok(Probe::End);
            }
            match format.classify(bytes, is_all) {
                Classification::Record { len, kind } => {
                    return Ok(Probe::Record { len: len as u64, kind });
                }
                Classification::Rejected(rejection) => return Ok(Probe::Rejected(rejection)),
                Classification::Incomplete(_) if is_all => {
                    return Ok(Probe::Rejected(Rejection::Truncated(there as u64)));
                }
                Classification::Incomplete(more) => want = more.max(want + 1),
            }
        }
    }

    /// Up to `want` bytes.
    fn read(&mut self, log: &mut dyn ReadAt, pos: u64, want: usize) -> Result<&[u8], Error> {
        let bytes = self.record.replace(want, |space| log.read_at(pos, space))?;
        self.examined = self.examined.saturating_add(bytes.len() as u64);
        Ok(bytes)
    }
}

impl RecordFormat {
    /// Whether a record of this kind and length is trusted only if a possible record follows.
    #[inline]
    pub(crate) fn needs_successor(&self, kind: &RecordKind, len: usize) -> bool {
        self.is_marked && !kind.is_checked(len)
    }
}

/// The end of a header that ends with `text`.
fn header_end(log: &mut dyn ReadAt, text: &[u8]) -> Result<LogStart, Error> {
    let finder = memchr::memmem::Finder::new(text);
    let mut search = Search::new(0..MAX_HEADER, text.len().saturating_sub(1));
    let found = search.next(log, |bytes| finder.find(bytes).map(|at| (at, at + 1)))?;
    Ok(match found {
        Some(at) => LogStart::Valid(at.saturating_add(text.len() as u64)),
        None if search.reached() == 0 => LogStart::Valid(0),
        None => LogStart::Invalid(format!(
            "the header does not end: no {} within {} bytes",
            display_bytes(text),
            search.reached()
        )),
    })
}
