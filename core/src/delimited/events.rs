//! What is believed of what a format says: its events as a framed log. The rules are in the module above.

#![warn(clippy::indexing_slicing)]

use std::io;
use std::ops::Range;
use std::sync::Arc;

use super::{Delimited, EventMarker, ParseOutcome, ParsedEvent};
use crate::framed::{EventHeader, Framing, Peek, PositionContent, RecordContent, RecordOutline};
use crate::window::{ReadAt, Search};
use crate::{ChannelId, ChannelIds, Encoding, Error, ReadContext};

/// What is read at first where something may begin: mostly enough to refuse it.
const FIRST_READ: usize = 64;
/// No format is allowed longer events: places in a batch are 32 bits.
const MOST: usize = 1 << 30;
/// Events in a row that are believed after damage where no mark tells.
const CHAIN: usize = 3;
/// Walks begun inside one event.
const MOST_WALKS: usize = 8;
/// Events met inside one event that prove its length wrong.
const MOST_INNER: usize = 64;
/// What a search may show `parse` beyond what it goes on by: so much, and that of so many of the longest events.
const ALLOWANCE: u64 = 64 << 10;
const LONGEST_ALLOWED: u64 = 3;
/// How many bytes it may show for each that it goes on by.
const EXAMINED_PER_BYTE: u64 = 256;
/// What it may show of every place, however much it has shown.
const EXAMINED_PER_PLACE: u64 = 1 << 10;

const TOO_LONG: &str = "it is longer than events of this format are";
const NO_BYTES: &str = "its plugin says that an event without bytes is here";
const NO_MARK: &str = "the mark of an event is missing";
const CUT_OFF: &str = "cut off by the end of the log";
const TOO_COSTLY: &str = "too much would have to be looked at to tell";
const CONTRADICTED: &str = "its length contradicts the events inside of it";

/// The events of a format.
pub(super) struct Events<'s, D> {
    format: &'s D,
    mark: EventMarker<'s>,
    longest: usize,
    ids: ChannelIds,
    /// What is being looked at away from the fast path.
    bytes: Vec<u8>,
    /// How many bytes have been looked at there.
    examined: u64,
    /// How many may be; what would need more is not believed.
    examine_limit: u64,
}

/// What is at a place, as far as it alone can tell.
enum Lookahead {
    /// What ends here; and what is wrong with it, if it is a damaged event.
    Whole { end: u64, wrong: Option<&'static str> },
    /// Nothing known, and why.
    Unknown(&'static str),
    /// Something whose end is not there.
    CutOff,
    /// The end of the log.
    End,
}

impl<'s, D: Delimited> Events<'s, D> {
    pub(super) fn new(format: &'s D, context: &ReadContext) -> Self {
        let (source, channels) = (Arc::clone(&context.source), Arc::clone(&context.channels));
        let mark = match format.mark() {
            // What is always there tells nothing.
            EventMarker::Begins(b"") | EventMarker::Ends(b"") => EventMarker::None,
            mark => mark,
        };
        Self {
            format,
            mark,
            longest: format.longest().clamp(1, MOST),
            ids: ChannelIds::new(source, Encoding::Unknown, channels),
            bytes: Vec::new(),
            examined: 0,
            examine_limit: u64::MAX,
        }
    }

    /// What the format says of these bytes, which may be more than the longest event.
    fn parse<'b>(&self, bytes: &'b [u8]) -> ParseOutcome<'b> {
        let bytes = bytes.get(..self.longest).unwrap_or(bytes);
        match self.format.parse(bytes) {
            ParseOutcome::More if bytes.len() >= self.longest => ParseOutcome::NotAnEvent(TOO_LONG),
            ParseOutcome::Event(told) if !self.is_marked(bytes, told.len) => {
                ParseOutcome::NotAnEvent(NO_MARK)
            }
            ParseOutcome::Damaged { len, .. } if !self.is_marked(bytes, len) => {
                ParseOutcome::NotAnEvent(NO_MARK)
            }
            said => self.bounded(said),
        }
    }

    /// What the format says of the last bytes of a log.
    fn parse_last<'b>(&self, bytes: &'b [u8]) -> ParseOutcome<'b> {
        let said = self.bounded(self.format.last(bytes));
        match len_of(&said) {
            Some(len) if len > bytes.len() => ParseOutcome::More,
            _ => said,
        }
    }

    fn bounded<'b>(&self, said: ParseOutcome<'b>) -> ParseOutcome<'b> {
        match len_of(&said) {
            Some(0) => ParseOutcome::NotAnEvent(NO_BYTES),
            Some(len) if len > self.longest => ParseOutcome::NotAnEvent(TOO_LONG),
            _ => said,
        }
    }

    /// Whether an event of `len` bytes has its mark, as far as it is there.
    fn is_marked(&self, bytes: &[u8], len: usize) -> bool {
        match self.mark {
            EventMarker::None => true,
            EventMarker::Begins(mark) => {
                bytes.iter().zip(mark).all(|(byte, wanted)| byte == wanted)
            }
            EventMarker::Ends(mark) => bytes.get(..len).is_none_or(|event| event.ends_with(mark)),
        }
    }

    /// What is at `pos`.
    fn look_ahead(&mut self, log: &mut dyn ReadAt, pos: u64) -> io::Result<Lookahead> {
        let mut want = FIRST_READ.min(self.longest);
        loop {
            if self.examined.saturating_add(want as u64) > self.examine_limit {
                return Ok(Lookahead::Unknown(TOO_COSTLY));
            }
            self.bytes.resize(want, 0);
            let there = log.read_at(pos, &mut self.bytes)?;
            self.bytes.truncate(there);
            self.examined += there as u64;
            let is_end = there < want;
            let said = match self.parse(&self.bytes) {
                _ if there == 0 => return Ok(Lookahead::End),
                ParseOutcome::More if is_end => self.parse_last(&self.bytes),
                said => said,
            };
            let wrong = match &said {
                ParseOutcome::Damaged { reason, .. } => Some(*reason),
                _ => None,
            };
            match (len_of(&said), said) {
                (Some(len), _) => {
                    let end = pos.saturating_add(len as u64);
                    let is_there = len <= there
                        || !is_end && log.read_at(end.saturating_sub(1), &mut [0])? == 1;
                    return Ok(if is_there {
                        Lookahead::Whole { end, wrong }
                    } else {
                        Lookahead::CutOff
                    });
                }
                (None, ParseOutcome::NotAnEvent(why)) => return Ok(Lookahead::Unknown(why)),
                (None, _) if is_end => return Ok(Lookahead::CutOff),
                (None, _) => want = want.saturating_mul(4).min(self.longest),
            }
        }
    }

    /// Whether what is at `end` is what may follow an event.
    fn may_follow(&mut self, log: &mut dyn ReadAt, end: u64) -> io::Result<bool> {
        match self.mark {
            EventMarker::Ends(_) => return Ok(true),
            EventMarker::Begins(mark) if begins_at(log, end, mark)? => return Ok(true),
            EventMarker::Begins(_) | EventMarker::None => {}
        }
        Ok(match self.look_ahead(log, end)? {
            Lookahead::Whole { .. } | Lookahead::End => true,
            Lookahead::CutOff => self.mark == EventMarker::None,
            Lookahead::Unknown(_) => false,
        })
    }

    /// Whether an event that begins at `at` is to be believed after damage.
    fn is_plausible(&mut self, log: &mut dyn ReadAt, at: u64) -> io::Result<bool> {
        let Lookahead::Whole { mut end, .. } = self.look_ahead(log, at)? else { return Ok(false) };
        if self.mark != EventMarker::None {
            return self.may_follow(log, end);
        }
        for _ in 1..CHAIN {
            match self.look_ahead(log, end)? {
                Lookahead::Whole { end: next, .. } => end = next,
                Lookahead::End => return Ok(true),
                Lookahead::Unknown(_) | Lookahead::CutOff => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Where the first event that can be believed begins at one of these places.
    fn first_plausible(
        &mut self,
        log: &mut dyn ReadAt,
        places: &mut CandidateStarts<'s>,
    ) -> io::Result<Option<u64>> {
        places.search.forget();
        let before = self.examined;
        let mut found = None;
        while found.is_none()
            && let Some(at) = places.next(log)?
        {
            self.examine_limit = self.examine_limit_at(before, at - places.from);
            found = self.is_plausible(log, at)?.then_some(at);
        }
        self.examine_limit = u64::MAX;
        Ok(found)
    }

    /// How far a search may look at a place, so far from where it began: so that what pretends to be long
    /// events everywhere ends in damage, not in days.
    fn examine_limit_at(&self, before: u64, distance: u64) -> u64 {
        let allowed = ALLOWANCE.saturating_add(LONGEST_ALLOWED * self.longest as u64);
        let allowed = allowed.saturating_add(distance.saturating_mul(EXAMINED_PER_BYTE));
        before.saturating_add(allowed).max(self.examined.saturating_add(EXAMINED_PER_PLACE))
    }

    /// Whether an event inside of this one proves that its length is wrong.
    fn is_contradicted(&mut self, log: &mut dyn ReadAt, event: Range<u64>) -> io::Result<bool> {
        let mut places = CandidateStarts::after(self.mark, event.start, event.end);
        let (mut met, mut walks) = (Vec::new(), 0);
        let before = self.examined;
        let mut is_proved = false;
        while !is_proved
            && walks < MOST_WALKS
            && let Some(at) = places.next(log)?
        {
            self.examine_limit = self.examine_limit_at(before, at - places.from);
            let known = met.len();
            is_proved = self.chain_leaves(log, at, event.end, &mut met)?;
            walks += usize::from(met.len() > known);
        }
        self.examine_limit = u64::MAX;
        Ok(is_proved)
    }

    /// Steps from event to event, until one ends outside of `end` and is right as far as anybody can tell.
    fn chain_leaves(
        &mut self,
        log: &mut dyn ReadAt,
        mut at: u64,
        end: u64,
        met: &mut Vec<u64>,
    ) -> io::Result<bool> {
        while !met.contains(&at)
            && let Lookahead::Whole { end: next, wrong: None } = self.look_ahead(log, at)?
        {
            met.push(at);
            if next > end {
                return self.may_follow(log, next);
            }
            if met.len() == MOST_INNER {
                return Ok(true);
            }
            at = next;
        }
        Ok(false)
    }

    /// Damage at `pos`, up to the next event that can be believed.
    fn resync(
        &mut self,
        log: &mut dyn ReadAt,
        pos: u64,
        reason: &str,
    ) -> io::Result<PositionContent> {
        let mut places = CandidateStarts::after(self.mark, pos, u64::MAX);
        let next = self.first_plausible(log, &mut places)?;
        let end = next.unwrap_or_else(|| places.search.reached());
        Ok(PositionContent::Damage { end, reason: reason.to_owned() })
    }

    /// Whether what stands behind an event, in a block, confirms it; nothing if the block has too little.
    fn is_confirmed_by(&self, after: &[u8]) -> Option<bool> {
        match self.mark {
            EventMarker::Ends(_) => Some(true),
            EventMarker::Begins(mark) if after.len() >= mark.len() => Some(after.starts_with(mark)),
            EventMarker::Begins(_) => None,
            EventMarker::None => match self.parse(after) {
                ParseOutcome::Event(_) | ParseOutcome::Skip { .. } => Some(true),
                ParseOutcome::More => None,
                ParseOutcome::Damaged { .. } | ParseOutcome::NotAnEvent(_) => Some(false),
            },
        }
    }

    fn header(&mut self, pos: u64, told: ParsedEvent<'_>) -> Result<EventHeader, Error> {
        let ParsedEvent { len, timestamp, sequence, channel, payload } = told;
        if payload.start > payload.end || payload.end > len {
            return Err(Error::internal(format!(
                "the source's `parse` says that the payload of an event of {len} bytes is at {payload:?}"
            )));
        }
        let place = i64::try_from(pos).unwrap_or(i64::MAX);
        let (timestamp, sequence) = (timestamp.unwrap_or(place), sequence.unwrap_or(place));
        Ok(EventHeader { timestamp, sequence, channel: self.id(&channel)?, payload })
    }

    fn id(&mut self, name: &[u8]) -> Result<ChannelId, Error> {
        let format = self.format;
        self.ids.resolve_with(name, |name, source| format.channel(name, source))
    }
}

impl<D: Delimited> Framing for Events<'_, D> {
    fn peek(&mut self, pos: u64, bytes: &[u8]) -> Result<Peek, Error> {
        let said = self.parse(bytes);
        let len = match len_of(&said) {
            Some(len) => len,
            None if said == ParseOutcome::More => return Ok(Peek::More),
            None => return Ok(Peek::Ambiguous),
        };
        let Some(after) = bytes.get(len..) else { return Ok(Peek::More) };
        match self.is_confirmed_by(after) {
            None => return Ok(Peek::More),
            Some(false) => return Ok(Peek::Ambiguous),
            Some(true) => {}
        }
        Ok(match said {
            ParseOutcome::Event(told) => Peek::Event { len, head: self.header(pos, told)? },
            ParseOutcome::Skip { len } => Peek::Skip { len },
            _ => Peek::Ambiguous,
        })
    }

    fn classify(&mut self, log: &mut dyn ReadAt, pos: u64) -> io::Result<PositionContent> {
        let (end, wrong) = match self.look_ahead(log, pos)? {
            Lookahead::End => return Ok(PositionContent::End { mark: 0 }),
            Lookahead::CutOff => return self.resync(log, pos, CUT_OFF),
            Lookahead::Unknown(why) => return self.resync(log, pos, why),
            Lookahead::Whole { end, wrong } => (end, wrong),
        };
        if self.may_follow(log, end)? {
            return Ok(PositionContent::Record { end });
        }
        match wrong {
            Some(reason) => self.resync(log, pos, reason),
            None if self.is_contradicted(log, pos..end)? => self.resync(log, pos, CONTRADICTED),
            None => Ok(PositionContent::Record { end }),
        }
    }

    fn outline(&mut self, bytes: &[u8]) -> Result<Option<RecordOutline>, Error> {
        if !self.format.has_complete_header() {
            return Ok(None);
        }
        let ParseOutcome::Event(ParsedEvent { len, timestamp: Some(timestamp), channel, .. }) =
            self.parse(bytes)
        else {
            return Ok(None);
        };
        // Its channel is one of the log's, whether or not the event is wanted.
        self.id(&channel)?;
        Ok(Some(RecordOutline { len: len as u64, timestamp }))
    }

    fn confirms(&self, bytes: &[u8]) -> bool {
        self.is_confirmed_by(bytes) == Some(true)
    }

    fn find(&mut self, log: &mut dyn ReadAt, range: Range<u64>) -> io::Result<Option<u64>> {
        // What stands in front of the range may tell that an event begins with it.
        if !range.is_empty() && range.start == 0 && self.is_plausible(log, 0)? {
            return Ok(Some(0));
        }
        self.first_plausible(log, &mut CandidateStarts::within(self.mark, range))
    }

    fn event(&mut self, pos: u64, record: &[u8]) -> Result<RecordContent, Error> {
        let said = match self.parse(record) {
            ParseOutcome::More => self.parse_last(record),
            said => said,
        };
        match said {
            said if len_of(&said) != Some(record.len()) => Err(Error::internal(format!(
                "the source's `parse` says that {} bytes at byte {pos} are an event, and something else when \
                 it is shown no more than these",
                record.len()
            ))),
            ParseOutcome::Event(told) => Ok(RecordContent::Event(self.header(pos, told)?)),
            ParseOutcome::Damaged { reason, .. } => {
                Ok(RecordContent::Damage(reason.to_owned(), None))
            }
            _ => Ok(RecordContent::Skip),
        }
    }
}

/// Whether the mark is at `pos`, or as much of it as the log has.
fn begins_at(log: &mut dyn ReadAt, pos: u64, mark: &[u8]) -> io::Result<bool> {
    let mut bytes = vec![0; mark.len()];
    let there = log.read_at(pos, &mut bytes)?;
    Ok(bytes.get(..there).is_some_and(|bytes| mark.starts_with(bytes)))
}

/// How many bytes something has that has an end.
fn len_of(said: &ParseOutcome<'_>) -> Option<usize> {
    match said {
        ParseOutcome::Event(told) => Some(told.len),
        ParseOutcome::Skip { len } | ParseOutcome::Damaged { len, .. } => Some(*len),
        ParseOutcome::More | ParseOutcome::NotAnEvent(_) => None,
    }
}

/// Where events may begin, front to back.
struct CandidateStarts<'m> {
    /// No place is before this.
    from: u64,
    search: Search,
    mark: EventMarker<'m>,
}

impl<'m> CandidateStarts<'m> {
    /// Places in this range of a log all of which can be read.
    fn within(mark: EventMarker<'m>, range: Range<u64>) -> Self {
        let before = match mark {
            EventMarker::Ends(mark) => mark.len() as u64,
            EventMarker::Begins(_) | EventMarker::None => 0,
        };
        let marks = range.start.saturating_sub(before)..range.end.saturating_sub(before);
        Self { from: marks.start, search: Search::new(marks, overlap(mark)), mark }
    }

    /// Places behind `pos` and before `end`; nothing before `pos` is read.
    fn after(mark: EventMarker<'m>, pos: u64, end: u64) -> Self {
        let from = match mark {
            EventMarker::Ends(_) => pos,
            EventMarker::Begins(_) | EventMarker::None => pos.saturating_add(1),
        };
        Self { from, search: Search::new(from..end, overlap(mark)), mark }
    }

    fn next(&mut self, log: &mut dyn ReadAt) -> io::Result<Option<u64>> {
        let first = |mark: &[u8], bytes: &[u8]| {
            memchr::memmem::find(bytes, mark).map(|at| (at, at.saturating_add(1)))
        };
        let found = match self.mark {
            EventMarker::None => {
                self.search.next(log, |bytes| (!bytes.is_empty()).then_some((0, 1)))?
            }
            EventMarker::Begins(mark) | EventMarker::Ends(mark) => {
                self.search.next(log, |bytes| first(mark, bytes))?
            }
        };
        let behind = match self.mark {
            EventMarker::Ends(mark) => mark.len() as u64,
            EventMarker::Begins(_) | EventMarker::None => 0,
        };
        Ok(found.map(|at| at.saturating_add(behind)))
    }
}

/// How many bytes more than its first a mark is told by.
fn overlap(mark: EventMarker<'_>) -> usize {
    match mark {
        EventMarker::None => 0,
        EventMarker::Begins(mark) | EventMarker::Ends(mark) => mark.len().saturating_sub(1),
    }
}
