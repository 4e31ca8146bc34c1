//! Decides what is an event where the fast path could not: at damage and at the edges of blocks.
//!
//! It does no I/O of its own, keeps no state between calls, and does not hand out payloads. The
//! answer depends on the bytes of the log and the position only, never on how they were read.
//!
//! # What counts as a believable event
//!
//! The format has no checksum. What it has is a sync word in front of each event and, in an
//! undamaged log, another one right after it.
//!
//! | | what is at `p` | verdict |
//! |---|---|---|
//! | 1 | fewer than 28 bytes, or no sync word | damage |
//! | | channel length negative or above 1 MiB; data length negative | damage |
//! | | whole event longer than [`Limits::max_event`], or ends after the end of the log | damage |
//! | 2 | right after it: the end of the log, a sync word, or a sync word cut off by the end of the log | **event**, and nothing inside it is looked at |
//! | 3 | something else follows; channel length is 0 or above 1000, or the channel has a NUL byte | damage: a sync word in front of a hole, not an event |
//! | | something else follows, and an event inside it proves that its length is wrong | damage |
//! | | something else follows, and there is no such proof | **event**, intact, with damage after it |
//! | 4 | damage goes on to | the next sync word that rules 1 to 3 believe, or the end of the log |
//!
//! So a sync word or whole events in a payload never split an intact event; an intact event keeps
//! its place whatever follows it; and a wrong length does not swallow the events behind it.
//!
//! **The proof of rule 3.** Look at the headers with possible lengths (rule 1 without the end of
//! the log) that begin inside the event, behind its sync word. From each, step from event to
//! event. The length is proven wrong by
//!
//! - an event that begins inside and ends outside, if rule 2 confirms it or its channel is
//!   1 to 1000 bytes of UTF-8 without control characters (it may be cut off by the end of the log);
//! - 64 events inside, counted over all starts. An event that holds so many others in its payload
//!   is believed only by rule 2.
//!
//! A walk that stops inside, or exactly at the end, proves nothing: whole events in a payload do
//! that. At most 8 walks are begun; a header that an earlier walk has met begins none.
//!
//! What these rules cannot see: a wrong length that ends exactly before a later event (rule 2
//! confirms it), and a length that is too short (the event is believed, its lost end is damage).
//!
//! # Cost
//!
//! Linear in the damage, whatever the log says. Only an unconfirmed header searches inside its
//! event, and only until 8 walks are begun. Let two such headers lie in front of a byte, the first
//! of them searching it: the second has begun a walk of the first or ended one. So at most 16 lie
//! between, and no byte is searched by more than 17 headers and the scan itself. A search reads
//! its bytes at most twice, and a header's worth at each sync word. Besides its search a header
//! costs at most 64 headers and 9 channels of 1000 bytes. Nothing is allocated by a length from the
//! log: a search holds one window of at most 64 KiB.

#![warn(clippy::indexing_slicing)]

use std::io;
use std::ops::Range;

use memchr::memmem::Finder;

use sluice_core::window::{ReadAt, Search, bytes_from};

use crate::wire::{HEADER_LEN, Header, SYNC};

/// Channel names above this length make a header impossible.
pub const MAX_CHANNEL_LEN: i32 = 1 << 20;

/// Channel lengths that an event may have which nothing confirms.
const USUAL_CHANNEL_LEN: Range<usize> = 1..1001;
/// Walks begun inside one event.
const MAX_WALKS: usize = 8;
/// Events met inside one event that prove its length wrong.
const MAX_INNER: usize = 64;
/// Channels are read in small pieces: one that runs over other headers fails at the first of them.
const CHANNEL_PIECE: usize = 64;

/// How long an event may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes of a whole event, header included.
    pub max_event: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_event: 256 << 20 }
    }
}

impl Limits {
    /// Bytes of the whole event, or why the lengths of this header are impossible.
    ///
    /// This is rule 1 as far as the header alone can tell; the fast path has to ask it, too.
    #[inline]
    pub fn event_len(&self, header: &Header) -> Result<u64, Reason> {
        match header.record_len() {
            None => Err(negative(header)),
            Some(_) if header.channel_len > MAX_CHANNEL_LEN => {
                Err(Reason::ChannelLength(header.channel_len))
            }
            Some(len) if len > self.max_event => {
                Err(Reason::AboveLimit { len, max_event: self.max_event })
            }
            Some(len) => Ok(len),
        }
    }
}

/// What is at a position of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// An event begins here.
    Event {
        /// Its header.
        header: Header,
        /// The position after its last byte.
        end: u64,
    },
    /// No event that can be believed begins here.
    Damage {
        /// Where the next believed event begins, or the end of the log.
        end: u64,
        /// What was found instead of an event.
        reason: Reason,
    },
    /// The log ends exactly here.
    End,
}

/// Why the bytes at a position are not believed to be an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// Something else is where a sync word should be.
    #[error("not an event (no sync word)")]
    NoSync,
    /// The event, or already its header, goes on after the end of the log.
    #[error("cut off by the end of the log (needs {needs} bytes, {has} are there)")]
    CutOff {
        /// Bytes of the event by its header; of the header, if that is cut off.
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
    #[error("channel length {0} is not believable")]
    ChannelLength(i32),
    /// The channel has a NUL byte, and no event follows to confirm it.
    #[error("channel name with a NUL byte is not believable")]
    NulInChannel,
    /// The event is longer than the reader was told to accept.
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
        /// Where the event inside begins.
        at: u64,
    },
}

/// Says what is at `pos`: an event, damage up to the next event, or the end of the log.
///
/// Confirming an event takes three small reads. Damage is scanned up to its end, see the module.
/// `Err` comes from `log` only.
pub fn judge(log: &mut dyn ReadAt, pos: u64, limits: &Limits) -> io::Result<Verdict> {
    if log.read_at(pos, &mut [0])? == 0 {
        return Ok(Verdict::End);
    }
    let reason = match believe(log, pos, limits)? {
        Ok((header, end)) => return Ok(Verdict::Event { header, end }),
        Err(Doubt::CutOff { needs }) => Reason::CutOff { needs, has: bytes_from(log, pos, needs)? },
        Err(Doubt::Because(reason)) => reason,
    };
    // A position at the last byte that can be named has nothing behind it.
    let mut search = search_from(pos.saturating_add(1)..u64::MAX);
    let next = first_believed(log, &mut search, limits)?;
    Ok(Verdict::Damage { end: next.unwrap_or(search.reached()), reason })
}

/// Where the first believed event that begins in `range` begins; `None` if there is none.
///
/// In the middle of an event, an event inside its payload cannot be told from one of the log.
pub fn next_event(
    log: &mut dyn ReadAt,
    range: Range<u64>,
    limits: &Limits,
) -> io::Result<Option<u64>> {
    first_believed(log, &mut search_from(range), limits)
}

/// Why a header is not believed, as far as the header itself can tell.
enum Doubt {
    /// How many bytes are there is worth finding out for the first header of a damage only.
    CutOff {
        needs: u64,
    },
    Because(Reason),
}

/// What stands right after an event.
#[derive(PartialEq, Eq)]
enum Follows {
    /// The end of the log or (the beginning of) a sync word.
    Confirms,
    /// Other bytes.
    Other,
    /// The log ended before the event did.
    Missing,
}

fn first_believed(
    log: &mut dyn ReadAt,
    search: &mut Search,
    limits: &Limits,
) -> io::Result<Option<u64>> {
    search.forget();
    let finder = Finder::new(&SYNC);
    while let Some(at) = search.next(log, |bytes| sync_in(&finder, bytes))? {
        if believe(log, at, limits)?.is_ok() {
            return Ok(Some(at));
        }
    }
    Ok(None)
}

/// Rules 1 to 3: the header at `pos` and the end of its event.
fn believe(
    log: &mut dyn ReadAt,
    pos: u64,
    limits: &Limits,
) -> io::Result<Result<(Header, u64), Doubt>> {
    let (header, len) = match header_at(log, pos, limits)? {
        Ok(found) => found,
        Err(doubt) => return Ok(Err(doubt)),
    };
    let end = pos.saturating_add(len);
    let doubt = match what_follows(log, end)? {
        Follows::Confirms => None,
        Follows::Missing => Some(Doubt::CutOff { needs: len }),
        Follows::Other => disbelief(log, pos..end, &header, limits)?.map(Doubt::Because),
    };
    Ok(doubt.map_or(Ok((header, end)), Err))
}

/// A header with possible lengths and the length of its event.
fn header_at(
    log: &mut dyn ReadAt,
    pos: u64,
    limits: &Limits,
) -> io::Result<Result<(Header, u64), Doubt>> {
    let mut bytes = [0; HEADER_LEN];
    let there = log.read_at(pos, &mut bytes)?;
    if there < HEADER_LEN {
        return Ok(Err(cut_header(bytes.get(..there).unwrap_or_default())));
    }
    let Some(header) = Header::parse(&bytes) else {
        return Ok(Err(Doubt::Because(Reason::NoSync)));
    };
    Ok(limits.event_len(&header).map(|len| (header, len)).map_err(Doubt::Because))
}

fn cut_header(bytes: &[u8]) -> Doubt {
    if bytes.starts_with(&SYNC) || SYNC.starts_with(bytes) {
        Doubt::CutOff { needs: HEADER_LEN as u64 }
    } else {
        Doubt::Because(Reason::NoSync)
    }
}

fn negative(header: &Header) -> Reason {
    if header.channel_len < 0 {
        Reason::NegativeChannelLength(header.channel_len)
    } else {
        Reason::NegativeDataLength(header.data_len)
    }
}

/// Looks at the last byte of an event and the four after it, so that one read tells all.
fn what_follows(log: &mut dyn ReadAt, end: u64) -> io::Result<Follows> {
    let mut bytes = [0; 1 + SYNC.len()];
    let there = log.read_at(end.saturating_sub(1), &mut bytes)?;
    let after = bytes.get(..there).unwrap_or_default().split_first();
    Ok(match after {
        None => Follows::Missing,
        Some((_, after)) if SYNC.starts_with(after) => Follows::Confirms,
        Some(_) => Follows::Other,
    })
}

/// Rule 3: why an event that nothing confirms is not to be believed.
fn disbelief(
    log: &mut dyn ReadAt,
    event: Range<u64>,
    header: &Header,
    limits: &Limits,
) -> io::Result<Option<Reason>> {
    let Some(channel_len) = usual_channel_len(header) else {
        return Ok(Some(Reason::ChannelLength(header.channel_len)));
    };
    let mut channel = [0; USUAL_CHANNEL_LEN.end];
    if read_channel(log, event.start, channel_len, &mut channel, |b| b == 0)?.is_none() {
        return Ok(Some(Reason::NulInChannel));
    }
    let len = event.end - event.start;
    let proof = contradiction(log, event, limits)?;
    Ok(proof.map(|at| Reason::Contradicted { len, at }))
}

/// Where an event begins inside `event` which proves that its length is wrong.
fn contradiction(
    log: &mut dyn ReadAt,
    event: Range<u64>,
    limits: &Limits,
) -> io::Result<Option<u64>> {
    let finder = Finder::new(&SYNC);
    let mut search = search_from(event.start + SYNC.len() as u64..event.end);
    let mut met = Vec::with_capacity(MAX_INNER);
    let mut walks = 0;
    while walks < MAX_WALKS
        && let Some(at) = search.next(log, |bytes| sync_in(&finder, bytes))?
    {
        let known = met.len();
        if let Some(proof) = walk(log, at, event.end, &mut met, limits)? {
            return Ok(Some(proof));
        }
        walks += usize::from(met.len() > known);
    }
    Ok(None)
}

/// Steps from event to event until one proves that no event ends at `end`.
///
/// Stops at an event it has `met` before: what that one leads to is known to prove nothing.
fn walk(
    log: &mut dyn ReadAt,
    mut at: u64,
    end: u64,
    met: &mut Vec<u64>,
    limits: &Limits,
) -> io::Result<Option<u64>> {
    while !met.contains(&at)
        && let Ok((header, len)) = header_at(log, at, limits)?
    {
        met.push(at);
        let next = at.saturating_add(len);
        if next > end {
            return Ok(is_strong(log, at, &header, next)?.then_some(at));
        }
        if met.len() == MAX_INNER {
            return Ok(Some(at));
        }
        at = next;
    }
    Ok(None)
}

/// Whether the event at `at` is better proof than another event's unconfirmed length.
fn is_strong(log: &mut dyn ReadAt, at: u64, header: &Header, end: u64) -> io::Result<bool> {
    if what_follows(log, end)? == Follows::Confirms {
        return Ok(true);
    }
    let Some(channel_len) = usual_channel_len(header) else { return Ok(false) };
    let mut channel = [0; USUAL_CHANNEL_LEN.end];
    let channel = read_channel(log, at, channel_len, &mut channel, |b| b.is_ascii_control())?;
    let name = channel.and_then(|bytes| str::from_utf8(bytes).ok());
    Ok(name.is_some_and(|name| !name.contains(char::is_control)))
}

fn usual_channel_len(header: &Header) -> Option<usize> {
    usize::try_from(header.channel_len).ok().filter(|len| USUAL_CHANNEL_LEN.contains(len))
}

/// The channel of the event at `at`; `None` if the log ends in it or a byte is refused.
fn read_channel<'b>(
    log: &mut dyn ReadAt,
    at: u64,
    len: usize,
    buf: &'b mut [u8],
    refused: impl Fn(u8) -> bool,
) -> io::Result<Option<&'b [u8]>> {
    let Some(channel) = buf.get_mut(..len) else { return Ok(None) };
    let mut pos = at.saturating_add(HEADER_LEN as u64);
    for piece in channel.chunks_mut(CHANNEL_PIECE) {
        let there = log.read_at(pos, piece)?;
        if there < piece.len() || piece.iter().any(|&b| refused(b)) {
            return Ok(None);
        }
        pos += there as u64;
    }
    Ok(Some(channel))
}

/// Finds sync words in a range of a log, front to back.
fn search_from(range: Range<u64>) -> Search {
    Search::new(range, SYNC.len() - 1)
}

/// The first sync word in these bytes, and how many of them have been searched then.
fn sync_in(finder: &Finder<'_>, bytes: &[u8]) -> Option<(usize, usize)> {
    finder.find(bytes).map(|at| (at, at + SYNC.len()))
}
