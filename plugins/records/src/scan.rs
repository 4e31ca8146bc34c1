//! Decides what is to be believed, and where reading goes on after damage.
//!
//! Its answers depend on the bytes of the log and the position only. It hands out no events.
//!
//! # What is at a position
//!
//! A record is *sound* if its sync word, its kind, its length, what is always the same, its checksum and its fields
//! are what the description says, as far as it says anything of them.
//!
//! | what is at `p` | verdict |
//! |---|---|
//! | the end of the log | end |
//! | a record that claims more than 64 KiB, with neither the end of the log nor what may be a record behind it, and with a record that a search believes in it | damage |
//! | a sound record with a checksum that covers something | record |
//! | a sound record of a format without any mark: no sync word, nothing constant, no checksum | record |
//! | any other sound record, and right behind it is the end of the log, or what may be a record | record |
//! | a record that is sound but for its length, which its kind cannot have, or its fields do not take up; with a checksum that is right, or a sync word or constants, a length and what may be a record behind it | damage: this record, and no more |
//! | anything else | damage, up to the next record that a search believes, or the end of the log |
//!
//! *What may be a record* has the sync word, a kind, a length and constants that can be, as far as the log goes. Behind
//! a sync word its length only has to hold head and tail: the description may not fit it.
//!
//! # What a search believes
//!
//! So many sound records in a row that their sync words, constants and checksums are 32 bits together; or fewer that
//! lead exactly to the end of the log. It begins with no record that proves nothing, and with none of a kind that is
//! not described if it has no checksum and others have. Of a format without any mark nothing can be searched for:
//! damage goes on to the end of the log.
//!
//! # Cost
//!
//! A search looks at places where the sync word or a constant is, or at each byte where there are none. It looks at
//! most at 256 bytes for each that it goes on by, a MiB, and the last record more: a log that pretends to have a long
//! record at every byte ends in damage, not in days. To find a checksum wrong takes as many bytes as the record claims
//! to have: mostly at most 64 KiB for each damage, and at most `max_record` where a claim leads to a record, or to where
//! nothing else is. Nothing is allocated beyond the longest record.

#![warn(clippy::indexing_slicing)]

use std::io;
use std::ops::Range;

use sluice_core::window::{ReadAt, Search};

use crate::classify::{Classification, Rejection};
use crate::format::{HeaderEnd, RecordExtent, RecordFormat, RecordKind};
use crate::literal::display_bytes;

/// What a search may look at beyond what it goes on by.
const SEARCH_ALLOWANCE: u64 = 1 << 20;
/// How many bytes it may look at for each that it goes on by.
const SEARCH_RATIO: u64 = 256;
/// So many bits have to agree before a search believes what it finds.
const MIN_PROOF_BITS: usize = 32;
/// So many records in a row are looked at for that; four are enough where each proves something.
const MAX_CHAIN: usize = 8;
/// Records that claim more than this are worked through only where something speaks for them.
pub(crate) const LONG_RECORD: usize = 64 << 10;
/// The longest header whose end is searched for.
const MAX_HEADER: u64 = 1 << 20;
/// What is read of a record at first, if its head is shorter.
const FIRST_READ: usize = 128;

/// What is at a position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ScanOutcome {
    /// A record.
    Record {
        /// The position behind it.
        end: u64,
    },
    /// No record.
    Damage {
        /// Where the next record begins, or the end of the log.
        end: u64,
        /// What was found instead.
        rejection: Rejection,
    },
    /// The end of the log.
    End,
}

/// How a log begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LogStart {
    /// As it should; where its first record is.
    Valid(u64),
    /// Not as it should, and why.
    Invalid(String),
}

/// Looks at a log.
#[derive(Debug)]
pub(crate) struct RecordScanner<'f> {
    format: &'f RecordFormat,
    record: &'f mut Vec<u8>,
    /// How many bytes have been looked at.
    examined: u64,
}

/// A record that the description does not fit.
struct DescriptionMismatch {
    /// Where it ends, if that can be believed.
    end: Option<u64>,
    rejection: Rejection,
}

enum Probe {
    End,
    Record { len: u64, kind: usize },
    Rejected(Rejection),
}

impl<'f> RecordScanner<'f> {
    /// For logs of this format; `record` is room for one.
    pub(crate) fn new(format: &'f RecordFormat, record: &'f mut Vec<u8>) -> Self {
        Self { format, record, examined: 0 }
    }

    /// How a log begins.
    pub(crate) fn start_of_log(&mut self, log: &mut dyn ReadAt) -> io::Result<LogStart> {
        let magic = &self.format.magic;
        let found = self.read(log, 0, magic.len().max(1))?;
        let found = self.record.get(..found.min(magic.len())).unwrap_or_default();
        if found != magic.as_slice() {
            let is_empty = found.is_empty();
            let reason =
                format!("{} was expected, {} is there", display_bytes(magic), display_bytes(found));
            return Ok(if is_empty { LogStart::Valid(0) } else { LogStart::Invalid(reason) });
        }
        match &self.format.header {
            HeaderEnd::Bytes(len) => self.after_header(log, *len),
            HeaderEnd::Until(text) => header_end(log, &text.0),
        }
    }

    /// The first record behind a header of this length.
    fn after_header(&mut self, log: &mut dyn ReadAt, len: u64) -> io::Result<LogStart> {
        let is_there = len == 0 || self.read(log, len - 1, 1)? == 1;
        let is_empty = self.read(log, 0, 1)? == 0;
        if is_there || is_empty {
            return Ok(LogStart::Valid(if is_there { len } else { 0 }));
        }
        Ok(LogStart::Invalid(format!("the log ends in its header of {len} bytes")))
    }

    /// What is at `pos`.
    pub(crate) fn classify_at(
        &mut self,
        log: &mut dyn ReadAt,
        pos: u64,
    ) -> io::Result<ScanOutcome> {
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

    /// Whether what is wrong with the record at `pos` is that the description does not fit it: whatever else tells
    /// that it is a record does so.
    fn description_mismatch(
        &mut self,
        log: &mut dyn ReadAt,
        pos: u64,
        rejection: &Rejection,
    ) -> io::Result<Option<DescriptionMismatch>> {
        let Some(len) = self.format.mismatched_len(rejection).filter(|len| *len <= LONG_RECORD)
        else {
            return Ok(None);
        };
        let there = self.read(log, pos, len)?;
        let Some(record) = self.record.get(..len).filter(|_| there == len) else { return Ok(None) };
        let Some((kind, rejection)) = self.format.description_mismatch(record) else {
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

    /// What a long record at `pos` claims to have, and where in it another one begins that speaks against that, as
    /// nothing behind it speaks for it.
    fn find_contradiction(
        &mut self,
        log: &mut dyn ReadAt,
        pos: u64,
    ) -> io::Result<Option<(usize, u64)>> {
        let there = self.read(log, pos, self.format.prefix_len)?;
        let bytes = self.record.get(..there).unwrap_or_default();
        let Some(len) = self.format.claimed_len(bytes, LONG_RECORD) else { return Ok(None) };
        let end = pos.saturating_add(len as u64);
        let is_whole = self.read(log, end - 1, 1)? == 1;
        if is_whole && self.is_followed(log, end)? {
            return Ok(None);
        }
        let from = pos.saturating_add(1);
        let mut search = self.search(from..end);
        let found = self.first_trusted(log, from, &mut search)?;
        Ok(found.map(|found| (len, found)))
    }

    /// Where the first record that a search believes begins at `from` or later, or the end of the log.
    pub(crate) fn next(&mut self, log: &mut dyn ReadAt, from: u64) -> io::Result<u64> {
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

    /// Where the first record begins in this range, in which nothing is known.
    pub(crate) fn find(
        &mut self,
        log: &mut dyn ReadAt,
        begin: u64,
        range: Range<u64>,
    ) -> io::Result<Option<u64>> {
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

    fn search(&self, range: Range<u64>) -> Search {
        let anchor = self.format.anchor.as_ref();
        let pattern_len = anchor.map_or(1, |(at, bytes)| at + bytes.needle().len());
        Search::new(range, pattern_len.saturating_sub(1))
    }

    /// Records that are all of one length mostly go on where they did, although one of them is damaged.
    fn next_aligned(&mut self, log: &mut dyn ReadAt, from: u64) -> io::Result<Option<u64>> {
        let Some(stride) = self.format.stride() else { return Ok(None) };
        let at = (from - 1).saturating_add(stride as u64);
        let is_end = self.read(log, at, 1)? == 0;
        if is_end || self.format.anchor.is_some() {
            return Ok(None);
        }
        Ok(self.is_trusted(log, at)?.then_some(at))
    }

    fn first_trusted(
        &mut self,
        log: &mut dyn ReadAt,
        from: u64,
        search: &mut Search,
    ) -> io::Result<Option<u64>> {
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

    /// Whether a search believes the record at `at`.
    fn is_trusted(&mut self, log: &mut dyn ReadAt, mut at: u64) -> io::Result<bool> {
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

    /// Whether what ends at `end` may be believed for what follows it, if that is needed.
    fn is_confirmed(
        &mut self,
        log: &mut dyn ReadAt,
        end: u64,
        (kind, len): (usize, usize),
    ) -> io::Result<bool> {
        match self.format.kinds.get(kind) {
            Some(kind) if self.format.needs_successor(kind, len) => self.is_followed(log, end),
            _ => Ok(true),
        }
    }

    /// Whether the log ends at `end`, or what is there may be a record.
    fn is_followed(&mut self, log: &mut dyn ReadAt, end: u64) -> io::Result<bool> {
        let there = self.read(log, end, self.format.lookahead)?;
        Ok(self.format.may_start(self.record.get(..there).unwrap_or_default()))
    }

    /// What the bytes at `pos` are by themselves.
    fn probe(&mut self, log: &mut dyn ReadAt, pos: u64) -> io::Result<Probe> {
        let mut want = self.format.prefix_len.max(FIRST_READ);
        loop {
            let there = self.read(log, pos, want)?;
            if there == 0 {
                return Ok(Probe::End);
            }
            let (bytes, is_all) = (self.record.get(..there).unwrap_or_default(), there < want);
            match self.format.classify(bytes, is_all) {
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

    /// Reads so many bytes into the room for a record; says how many there are.
    fn read(&mut self, log: &mut dyn ReadAt, pos: u64, want: usize) -> io::Result<usize> {
        if self.record.len() < want {
            self.record.resize(want, 0);
        }
        let there = log.read_at(pos, self.record.get_mut(..want).unwrap_or_default())?;
        self.examined = self.examined.saturating_add(there as u64);
        Ok(there)
    }
}

impl RecordFormat {
    /// Whether a record of this kind and length is believed only for what follows it.
    #[inline]
    pub(crate) fn needs_successor(&self, kind: &RecordKind, len: usize) -> bool {
        self.is_marked && !kind.is_checked(len)
    }
}

/// Where a header ends that ends with `text`.
fn header_end(log: &mut dyn ReadAt, text: &[u8]) -> io::Result<LogStart> {
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
