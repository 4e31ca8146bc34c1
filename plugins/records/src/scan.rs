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
//! | a sound record with a checksum | record |
//! | a sound record of a format without any mark: no sync word, nothing constant, no checksum | record |
//! | any other sound record, and right behind it is the end of the log, or what may be a record | record |
//! | anything else | damage, up to the next record that a search believes, or the end of the log |
//!
//! *What may be a record* has the sync word, a kind, a length and constants that can be, as far as the log goes.
//!
//! # What a search believes
//!
//! So many sound records in a row that their sync words, constants and checksums are 32 bits together, at most four;
//! or fewer that lead exactly to the end of the log. Of a format without any mark nothing can be searched for: damage
//! goes on to the end of the log.
//!
//! # Cost
//!
//! A search looks at places where the sync word or a constant is, or at each byte where there are none. It looks at
//! most at 256 bytes for each that it goes on by, a MiB, and the last record more: a log that pretends to have a long
//! record at every byte ends in damage, not in days. To find a checksum wrong takes as many bytes as the record claims
//! to have: at most `max_record` for each damage. Nothing is allocated beyond the longest record.

#![warn(clippy::indexing_slicing)]

use std::io;
use std::ops::Range;

use sluice_core::window::{ReadAt, Search};

use crate::format::{Format, Skip};
use crate::literal::spelled;
use crate::look::{Look, Wrong};

/// What a search may look at beyond what it goes on by.
const ALLOWANCE: u64 = 1 << 20;
/// How many bytes it may look at for each that it goes on by.
const LOOKS: u64 = 256;
/// The longest header whose end is searched for.
const LONGEST_HEADER: u64 = 1 << 20;
/// What is read of a record at first, if its head is shorter.
const FIRST_READ: usize = 128;

/// What is at a position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
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
        wrong: Wrong,
    },
    /// The end of the log.
    End,
}

/// How a log begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Front {
    /// As it should; where its first record is.
    Sound(u64),
    /// Not as it should, and why.
    Wrong(String),
}

/// Looks at a log.
#[derive(Debug)]
pub struct Scan<'f> {
    format: &'f Format,
    record: &'f mut Vec<u8>,
    /// How many bytes have been looked at.
    looked: u64,
}

enum Glance {
    End,
    Record { len: u64, has_checksum: bool },
    Wrong(Wrong),
}

impl<'f> Scan<'f> {
    /// For logs of this format; `record` is room for one.
    pub fn new(format: &'f Format, record: &'f mut Vec<u8>) -> Self {
        Self { format, record, looked: 0 }
    }

    /// How a log begins.
    pub fn front(&mut self, log: &mut dyn ReadAt) -> io::Result<Front> {
        let magic = &self.format.magic;
        let found = self.read(log, 0, magic.len().max(1))?;
        let found = self.record.get(..found.min(magic.len())).unwrap_or_default();
        if found != magic.as_slice() {
            let is_empty = found.is_empty();
            let reason = format!("{} was expected, {} is there", spelled(magic), spelled(found));
            return Ok(if is_empty { Front::Sound(0) } else { Front::Wrong(reason) });
        }
        match &self.format.header {
            Skip::Bytes(len) => self.behind(log, *len),
            Skip::Until(text) => header_end(log, &text.0),
        }
    }

    /// The first record behind a header of this length.
    fn behind(&mut self, log: &mut dyn ReadAt, len: u64) -> io::Result<Front> {
        let is_there = len == 0 || self.read(log, len - 1, 1)? == 1;
        let is_empty = self.read(log, 0, 1)? == 0;
        if is_there || is_empty {
            return Ok(Front::Sound(if is_there { len } else { 0 }));
        }
        Ok(Front::Wrong(format!("the log ends in its header of {len} bytes")))
    }

    /// What is at `pos`.
    pub fn judge(&mut self, log: &mut dyn ReadAt, pos: u64) -> io::Result<Verdict> {
        let wrong = match self.glance(log, pos)? {
            Glance::End => return Ok(Verdict::End),
            Glance::Record { len, has_checksum } => {
                let end = pos.saturating_add(len);
                if self.is_confirmed(log, end, has_checksum)? {
                    return Ok(Verdict::Record { end });
                }
                Wrong::Unconfirmed(len as usize)
            }
            Glance::Wrong(wrong) => wrong,
        };
        Ok(Verdict::Damage { end: self.next(log, pos.saturating_add(1))?, wrong })
    }

    /// Where the first record that a search believes begins at `from` or later, or the end of the log.
    pub fn next(&mut self, log: &mut dyn ReadAt, from: u64) -> io::Result<u64> {
        let mut search = self.search(from..u64::MAX);
        search.forget();
        if self.format.chain == 0 {
            search.run_out(log)?;
            return Ok(search.reached());
        }
        if let Some(at) = self.aligned(log, from)? {
            return Ok(at);
        }
        let found = self.first_believed(log, from, &mut search)?;
        Ok(found.unwrap_or(search.reached()))
    }

    /// Where the first record begins in this range, in which nothing is known.
    pub fn find(
        &mut self,
        log: &mut dyn ReadAt,
        begin: u64,
        range: Range<u64>,
    ) -> io::Result<Option<u64>> {
        if let (0, Some(stride)) = (self.format.chain, self.format.stride()) {
            let into = (range.start - begin) % stride as u64;
            let at = if into == 0 { range.start } else { range.start - into + stride as u64 };
            return Ok(Some(at).filter(|at| *at < range.end));
        }
        if self.format.chain == 0 {
            return Ok(None);
        }
        let from = range.start;
        let mut search = self.search(range);
        self.first_believed(log, from, &mut search)
    }

    fn search(&self, range: Range<u64>) -> Search {
        let anchor = self.format.anchor.as_ref();
        let told_by = anchor.map_or(1, |(at, bytes)| at + bytes.needle().len());
        Search::new(range, told_by.saturating_sub(1))
    }

    /// Records that are all of one length mostly go on where they did, although one of them is damaged.
    fn aligned(&mut self, log: &mut dyn ReadAt, from: u64) -> io::Result<Option<u64>> {
        let Some(stride) = self.format.stride() else { return Ok(None) };
        let at = (from - 1).saturating_add(stride as u64);
        let is_end = self.read(log, at, 1)? == 0;
        if is_end || self.format.anchor.is_some() {
            return Ok(None);
        }
        Ok(self.is_believed(log, at)?.then_some(at))
    }

    fn first_believed(
        &mut self,
        log: &mut dyn ReadAt,
        from: u64,
        search: &mut Search,
    ) -> io::Result<Option<u64>> {
        let anchor = self.format.anchor.as_ref();
        let before = self.looked;
        let place = |bytes: &[u8]| match anchor {
            Some((at, wanted)) => {
                let found = wanted.find(bytes.get(*at..)?)?;
                Some((found, found + 1))
            }
            None => (!bytes.is_empty()).then_some((0, 1)),
        };
        while let Some(at) = search.next(log, place)? {
            let allowed = ALLOWANCE.saturating_add((at - from).saturating_mul(LOOKS));
            if self.looked - before > allowed {
                continue;
            }
            if self.is_believed(log, at)? {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    /// Whether a search believes the record at `at`.
    fn is_believed(&mut self, log: &mut dyn ReadAt, mut at: u64) -> io::Result<bool> {
        for met in 1..=self.format.chain {
            match self.glance(log, at)? {
                Glance::Record { len, has_checksum } => {
                    at = at.saturating_add(len);
                    if met == self.format.chain {
                        return self.is_confirmed(log, at, has_checksum);
                    }
                }
                Glance::End => return Ok(met > 1),
                Glance::Wrong(_) => return Ok(false),
            }
        }
        Ok(false)
    }

    /// Whether what ends at `end` may be believed for what follows it, if that is needed.
    fn is_confirmed(
        &mut self,
        log: &mut dyn ReadAt,
        end: u64,
        has_checksum: bool,
    ) -> io::Result<bool> {
        if has_checksum || self.format.chain == 0 {
            return Ok(true);
        }
        let there = self.read(log, end, self.format.glimpse)?;
        Ok(self.format.may_begin(self.record.get(..there).unwrap_or_default()))
    }

    /// What the bytes at `pos` are by themselves.
    fn glance(&mut self, log: &mut dyn ReadAt, pos: u64) -> io::Result<Glance> {
        let mut want = self.format.reach.max(FIRST_READ);
        loop {
            let there = self.read(log, pos, want)?;
            if there == 0 {
                return Ok(Glance::End);
            }
            let (bytes, is_all) = (self.record.get(..there).unwrap_or_default(), there < want);
            match self.format.look(bytes, is_all) {
                Look::Record { len, kind } => {
                    let kind = self.format.kinds.get(kind);
                    let has_checksum = kind.is_some_and(|kind| kind.checksum.is_some());
                    return Ok(Glance::Record { len: len as u64, has_checksum });
                }
                Look::Wrong(wrong) => return Ok(Glance::Wrong(wrong)),
                Look::Needs(_) if is_all => return Ok(Glance::Wrong(Wrong::CutOff(there as u64))),
                Look::Needs(more) => want = more.max(want + 1),
            }
        }
    }

    /// Reads so many bytes into the room for a record; says how many there are.
    fn read(&mut self, log: &mut dyn ReadAt, pos: u64, want: usize) -> io::Result<usize> {
        self.record.resize(want, 0);
        let there = log.read_at(pos, self.record)?;
        self.looked = self.looked.saturating_add(there as u64);
        Ok(there)
    }
}

/// Where a header ends that ends with `text`.
fn header_end(log: &mut dyn ReadAt, text: &[u8]) -> io::Result<Front> {
    let finder = memchr::memmem::Finder::new(text);
    let mut search = Search::new(0..LONGEST_HEADER, text.len().saturating_sub(1));
    let found = search.next(log, |bytes| finder.find(bytes).map(|at| (at, at + 1)))?;
    Ok(match found {
        Some(at) => Front::Sound(at.saturating_add(text.len() as u64)),
        None if search.reached() == 0 => Front::Sound(0),
        None => Front::Wrong(format!(
            "the header does not end: no {} within {} bytes",
            spelled(text),
            search.reached()
        )),
    })
}
