//! Tells events from damage where the fast path cannot: at damage and at block boundaries.
//!
//! It does no I/O of its own, keeps no state between calls, and returns no payloads. The result
//! depends only on the bytes of the log and the position, not on how they were read.
//!
//! # What counts as an event
//!
//! The format has no checksum. It has a sync word before each event and so, in an undamaged log,
//! another one right after it.
//!
//! | | bytes at `p` | result |
//! |---|---|---|
//! | 1 | fewer than 28 bytes, or no sync word | damage |
//! | | channel length negative or above 1 MiB; data length negative | damage |
//! | | whole event longer than [`ScanLimits::max_event`], or ends after the end of the log | damage |
//! | 2 | right after it: the end of the log, a sync word, or a sync word cut off by the end of the log | **event**; its contents are not inspected |
//! | 3 | something else follows; channel length is 0 or above 1000, or the channel contains a NUL byte | damage: a sync word before a gap, not an event |
//! | | something else follows, and an event inside it proves that its length is wrong | damage |
//! | | something else follows, without such proof | **event**, intact, with damage after it |
//! | 4 | damage extends to | the next event by rules 1 to 3, or the end of the log |
//!
//! So sync words or whole events in a payload never split an intact event, an intact event survives
//! whatever follows it, and a wrong length does not swallow the events after it.
//!
//! **The proof of rule 3.** Consider the headers with possible lengths (rule 1 without the end of
//! the log) that start inside the event, after its sync word. From each, step from event to event.
//! The length is proven wrong by
//!
//! - an event that starts inside and ends outside, if rule 2 confirms it or its channel is 1 to
//!   1000 bytes of UTF-8 without control characters (it may be cut off by the end of the log);
//! - 64 events inside, counted over all starts. An event with that many others in its payload is
//!   accepted by rule 2 only;
//! - a walk that stops inside and begins with two events that continue the log: their numbers are
//!   the next two, and their times do not fall.
//!
//! Any other walk that stops inside, or exactly at the end, proves nothing: whole events in a
//! payload do that. At most 8 walks are started; a header met by an earlier walk starts none.
//!
//! These rules cannot detect a wrong length that ends exactly before a later event (rule 2 confirms
//! it), nor one that is too short (the event is accepted, its lost end is damage). One that ends in
//! another damage may swallow a single event, or those that do not continue its number.
//!
//! # Cost
//!
//! Linear in the damage, whatever the log contains. Only an unconfirmed header searches inside its
//! event, and only until 8 walks are started. Take two such headers before a byte, both searching
//! it: the second has started a walk of the first or ended one. So at most 16 lie between, and no
//! byte is searched by more than 17 headers and the scan itself. A search reads its bytes at most
//! twice, and a header at each sync word. Besides its search a header costs at most 80 headers and
//! 9 channels of 1000 bytes. No allocation depends on a length in the log: a search holds one
//! window of at most 64 KiB.

#![warn(clippy::indexing_slicing)]

use std::ops::Range;

use memchr::memmem::Finder;

use sluice_kit::window::{ReadAt, Search, bytes_from};
use sluice_model::Error;

use crate::wire::{HEADER_LEN, LcmHeader, SYNC};

/// Longer channel names make a header impossible.
pub(crate) const MAX_CHANNEL_LEN: i32 = 1 << 20;

/// Channel lengths accepted in an unconfirmed event.
const PLAUSIBLE_CHANNEL_LEN: Range<usize> = 1..1001;
/// Most walks started inside one event.
const MAX_WALKS: usize = 8;
/// Events inside one event that prove its length wrong.
const MAX_INNER: usize = 64;
/// Events at the start of a walk that prove a length wrong if they continue the log.
const MIN_CONTINUING: usize = 2;
/// Channels are read in small chunks: one that runs over other headers fails at the first of them.
const CHANNEL_CHUNK: usize = 64;

/// Limits on the length of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanLimits {
    /// Most bytes of an event, header included.
    pub max_event: u64,
}

impl Default for ScanLimits {
    fn default() -> Self {
        Self { max_event: 256 << 20 }
    }
}

impl ScanLimits {
    /// Bytes of the whole event, or why the lengths are impossible.
    ///
    /// This is the part of rule 1 that needs only the header; the fast path applies it too.
    #[inline]
    pub fn event_len(&self, header: &LcmHeader) -> Result<u64, EventDamage> {
        match header.record_len() {
            None => Err(negative_length(header)),
            Some(_) if header.channel_len > MAX_CHANNEL_LEN => {
                Err(EventDamage::ChannelLength(header.channel_len))
            }
            Some(len) if len > self.max_event => {
                Err(EventDamage::AboveLimit { len, max_event: self.max_event })
            }
            Some(len) => Ok(len),
        }
    }
}

/// What is at a position of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventScan {
    /// An event starts here.
    Event {
        /// Its header.
        header: LcmHeader,
        /// The position after its last byte.
        end: u64,
    },
    /// No plausible event starts here.
    Damage {
        /// Start of the next plausible event, or the end of the log.
        end: u64,
        /// What was found instead of an event.
        reason: EventDamage,
    },
    /// The log ends exactly here.
    End,
}

/// Why the bytes at a position are not a plausible event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EventDamage {
    /// There is no sync word.
    #[error("not an event (no sync word)")]
    NoSync,
    /// The event or its header extends beyond the end of the log.
    #[error("cut off by the end of the log (needs {needs} bytes, {has} are there)")]
    CutOff {
        /// Bytes of the event by its header, or of the header if that is cut off.
        needs: u64,
        /// Bytes up to the end of the log.
        has: u64,
    },
    /// The channel length is below zero.
    #[error("negative channel length {0}")]
    NegativeChannelLength(i32),
    /// The data length is below zero.
    #[error("negative data length {0}")]
    NegativeDataLength(i32),
    /// The channel length is above 1 MiB, or unusual and nothing confirms it.
    #[error("channel length {0} is not plausible")]
    ChannelLength(i32),
    /// The channel contains a NUL byte, and no event follows to confirm it.
    #[error("channel name with a NUL byte is not plausible")]
    NulInChannel,
    /// The event is longer than the reader accepts.
    #[error("length {len} is above the limit max_event = {max_event}")]
    AboveLimit {
        /// Bytes of the event by its header.
        len: u64,
        /// The limit.
        max_event: u64,
    },
    /// An event inside proves the length wrong.
    #[error("length {len} contradicts the event that begins at byte {at} of the log")]
    Contradicted {
        /// Bytes of the event by its header.
        len: u64,
        /// Start of the event inside.
        at: u64,
    },
}

/// Classifies what is at `pos`: an event, damage up to the next event, or the end of the log.
///
/// Confirming an event takes three small reads. Damage is scanned to its end, see the module. `Err`
/// comes only from `log`.
pub fn classify(log: &mut dyn ReadAt, pos: u64, limits: &ScanLimits) -> Result<EventScan, Error> {
    if log.read_at(pos, &mut [0])? == 0 {
        return Ok(EventScan::End);
    }
    let reason = match validate(log, pos, limits)? {
        Ok((header, end)) => return Ok(EventScan::Event { header, end }),
        Err(HeaderRejection::CutOff { needs }) => {
            EventDamage::CutOff { needs, has: bytes_from(log, pos, needs)? }
        }
        Err(HeaderRejection::Damaged(reason)) => reason,
    };
    // Nothing follows the last position.
    let mut search = search_from(pos.saturating_add(1)..u64::MAX);
    let next = first_plausible(log, &mut search, limits)?;
    Ok(EventScan::Damage { end: next.unwrap_or(search.reached()), reason })
}

/// Start of the first plausible event in `range`; `None` if there is none.
///
/// Inside an event, an event in its payload cannot be told from one of the log.
pub fn next_event(
    log: &mut dyn ReadAt,
    range: Range<u64>,
    limits: &ScanLimits,
) -> Result<Option<u64>, Error> {
    first_plausible(log, &mut search_from(range), limits)
}

/// Why a header is not plausible, as far as the header itself can tell.
enum HeaderRejection {
    /// The available bytes are only counted for the first header of a damage.
    CutOff {
        needs: u64,
    },
    Damaged(EventDamage),
}

/// What follows an event.
#[derive(PartialEq, Eq)]
enum Successor {
    /// The end of the log or (the start of) a sync word.
    Confirms,
    /// Other bytes.
    Other,
    /// The log ends before the event does.
    Missing,
}

fn first_plausible(
    log: &mut dyn ReadAt,
    search: &mut Search,
    limits: &ScanLimits,
) -> Result<Option<u64>, Error> {
    search.forget();
    let finder = Finder::new(&SYNC);
    while let Some(at) = search.next(log, |bytes| find_sync(&finder, bytes))? {
        if validate(log, at, limits)?.is_ok() {
            return Ok(Some(at));
        }
    }
    Ok(None)
}

/// Rules 1 to 3: the header at `pos` and the end of its event.
fn validate(
    log: &mut dyn ReadAt,
    pos: u64,
    limits: &ScanLimits,
) -> Result<Result<(LcmHeader, u64), HeaderRejection>, Error> {
    let (header, len) = match header_at(log, pos, limits)? {
        Ok(found) => found,
        Err(doubt) => return Ok(Err(doubt)),
    };
    let end = pos.saturating_add(len);
    let doubt = match successor(log, end)? {
        Successor::Confirms => None,
        Successor::Missing => Some(HeaderRejection::CutOff { needs: len }),
        Successor::Other => {
            unconfirmed_damage(log, pos..end, &header, limits)?.map(HeaderRejection::Damaged)
        }
    };
    Ok(doubt.map_or(Ok((header, end)), Err))
}

/// A header with possible lengths and the length of its event.
fn header_at(
    log: &mut dyn ReadAt,
    pos: u64,
    limits: &ScanLimits,
) -> Result<Result<(LcmHeader, u64), HeaderRejection>, Error> {
    let mut bytes = [0; HEADER_LEN];
    let there = log.read_at(pos, &mut bytes)?;
    if there < HEADER_LEN {
        return Ok(Err(truncated_header(bytes.get(..there).unwrap_or_default())));
    }
    let Some(header) = LcmHeader::parse(&bytes) else {
        return Ok(Err(HeaderRejection::Damaged(EventDamage::NoSync)));
    };
    Ok(limits.event_len(&header).map(|len| (header, len)).map_err(HeaderRejection::Damaged))
}

fn truncated_header(bytes: &[u8]) -> HeaderRejection {
    if bytes.starts_with(&SYNC) || SYNC.starts_with(bytes) {
        HeaderRejection::CutOff { needs: HEADER_LEN as u64 }
    } else {
        HeaderRejection::Damaged(EventDamage::NoSync)
    }
}

fn negative_length(header: &LcmHeader) -> EventDamage {
    if header.channel_len < 0 {
        EventDamage::NegativeChannelLength(header.channel_len)
    } else {
        EventDamage::NegativeDataLength(header.data_len)
    }
}

/// Reads the last byte of an event and the four after it: one read tells both.
fn successor(log: &mut dyn ReadAt, end: u64) -> Result<Successor, Error> {
    let mut bytes = [0; 1 + SYNC.len()];
    let there = log.read_at(end.saturating_sub(1), &mut bytes)?;
    let after = bytes.get(..there).unwrap_or_default().split_first();
    Ok(match after {
        None => Successor::Missing,
        Some((_, after)) if SYNC.starts_with(after) => Successor::Confirms,
        Some(_) => Successor::Other,
    })
}

/// Rule 3: why an unconfirmed event is not plausible.
fn unconfirmed_damage(
    log: &mut dyn ReadAt,
    event: Range<u64>,
    header: &LcmHeader,
    limits: &ScanLimits,
) -> Result<Option<EventDamage>, Error> {
    let Some(channel_len) = plausible_channel_len(header) else {
        return Ok(Some(EventDamage::ChannelLength(header.channel_len)));
    };
    let mut channel = [0; PLAUSIBLE_CHANNEL_LEN.end];
    if read_channel(log, event.start, channel_len, &mut channel, |b| b == 0)?.is_none() {
        return Ok(Some(EventDamage::NulInChannel));
    }
    let len = event.end - event.start;
    let proof = contradiction(log, event, header, limits)?;
    Ok(proof.map(|at| EventDamage::Contradicted { len, at }))
}

/// Start of an event inside `event` that proves its length wrong.
fn contradiction(
    log: &mut dyn ReadAt,
    event: Range<u64>,
    header: &LcmHeader,
    limits: &ScanLimits,
) -> Result<Option<u64>, Error> {
    let finder = Finder::new(&SYNC);
    let mut search = search_from(event.start + SYNC.len() as u64..event.end);
    let mut visited = Vec::with_capacity(MAX_INNER);
    let mut walks = 0;
    while walks < MAX_WALKS
        && let Some(at) = search.next(log, |bytes| find_sync(&finder, bytes))?
    {
        let before = visited.len();
        if let Some(proof) = walk(log, at, (header, event.end), &mut visited, limits)? {
            return Ok(Some(proof));
        }
        walks += usize::from(visited.len() > before);
    }
    Ok(None)
}

/// Steps from event to event until one proves that no event with the header `outer` ends at `end`.
///
/// Stops at an event in `visited`: what follows it is known to prove nothing.
fn walk(
    log: &mut dyn ReadAt,
    start: u64,
    (outer, end): (&LcmHeader, u64),
    visited: &mut Vec<u64>,
    limits: &ScanLimits,
) -> Result<Option<u64>, Error> {
    let mut at = start;
    while !visited.contains(&at) {
        let Ok((header, len)) = header_at(log, at, limits)? else {
            let is_proof = at != start && at != end && continues(log, start, outer, limits)?;
            return Ok(is_proof.then_some(start));
        };
        visited.push(at);
        let next = at.saturating_add(len);
        if next > end {
            return Ok(is_strong_proof(log, at, &header, next)?.then_some(at));
        }
        if visited.len() == MAX_INNER {
            return Ok(Some(at));
        }
        at = next;
    }
    Ok(None)
}

/// Whether the events from `at` on are such as follow one with the header `outer` in a log.
fn continues(
    log: &mut dyn ReadAt,
    mut at: u64,
    outer: &LcmHeader,
    limits: &ScanLimits,
) -> Result<bool, Error> {
    let mut last = *outer;
    for _ in 0..MIN_CONTINUING {
        let Ok((header, len)) = header_at(log, at, limits)? else { return Ok(false) };
        let is_next = last.number.checked_add(1) == Some(header.number);
        if !is_next || header.utime < last.utime {
            return Ok(false);
        }
        (at, last) = (at.saturating_add(len), header);
    }
    Ok(true)
}

/// Whether the event at `at` is stronger evidence than another event's unconfirmed length.
fn is_strong_proof(
    log: &mut dyn ReadAt,
    at: u64,
    header: &LcmHeader,
    end: u64,
) -> Result<bool, Error> {
    if successor(log, end)? == Successor::Confirms {
        return Ok(true);
    }
    let Some(channel_len) = plausible_channel_len(header) else { return Ok(false) };
    let mut channel = [0; PLAUSIBLE_CHANNEL_LEN.end];
    let channel = read_channel(log, at, channel_len, &mut channel, |b| b.is_ascii_control())?;
    let name = channel.and_then(|bytes| str::from_utf8(bytes).ok());
    Ok(name.is_some_and(|name| !name.contains(char::is_control)))
}

fn plausible_channel_len(header: &LcmHeader) -> Option<usize> {
    usize::try_from(header.channel_len).ok().filter(|len| PLAUSIBLE_CHANNEL_LEN.contains(len))
}

/// The channel of the event at `at`; `None` if the log ends in it or a byte is refused.
fn read_channel<'b>(
    log: &mut dyn ReadAt,
    at: u64,
    len: usize,
    buf: &'b mut [u8],
    refused: impl Fn(u8) -> bool,
) -> Result<Option<&'b [u8]>, Error> {
    let Some(channel) = buf.get_mut(..len) else { return Ok(None) };
    let mut pos = at.saturating_add(HEADER_LEN as u64);
    for piece in channel.chunks_mut(CHANNEL_CHUNK) {
        let there = log.read_at(pos, piece)?;
        if there < piece.len() || piece.iter().any(|&b| refused(b)) {
            return Ok(None);
        }
        pos += there as u64;
    }
    Ok(Some(channel))
}

/// A search for sync words in a range of a log, front to back.
fn search_from(range: Range<u64>) -> Search {
    Search::new(range, SYNC.len() - 1)
}

/// The first sync word in these bytes, and how many of them have then been searched.
fn find_sync(finder: &Finder<'_>, bytes: &[u8]) -> Option<(usize, usize)> {
    finder.find(bytes).map(|at| (at, at + SYNC.len()))
}
