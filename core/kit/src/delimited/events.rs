//! Validates what a format's `parse` returns, and presents its events as a framed log. The rules
//! are documented in the parent module.

#![warn(clippy::indexing_slicing)]

use std::ops::Range;
use std::sync::Arc;

use sluice_io::ReadBuffer;
use sluice_model::{ChannelId, Error, ReadContext};

use super::candidates::CandidateStarts;
use super::{Delimited, EventMarker, ParseOutcome, ParsedEvent};
use crate::KeyedChannelIds;
use crate::framed::{EventHeader, Framing, Peek, PositionContent, RecordContent, RecordOutline};
use crate::window::ReadAt;

/// Bytes read first at a candidate position: usually enough to reject it.
const FIRST_READ: usize = 64;
/// The longest event of any format: offsets in a batch are 32 bits.
const MAX_EVENT: usize = 1 << 30;
/// Consecutive events needed to resynchronise after damage without a marker.
const CHAIN: usize = 3;
/// The most chains of events followed inside one event.
const MAX_WALKS: usize = 8;
/// Events inside one event that prove its length wrong.
const MAX_INNER: usize = 64;
/// Bytes a search may pass to `parse` regardless of its progress, plus this many of the longest
/// events.
const ALLOWANCE: u64 = 64 << 10;
const ALLOWED_EVENTS: u64 = 3;
/// Bytes it may pass per byte of progress.
const EXAMINED_PER_BYTE: u64 = 256;
/// Bytes it may pass at every position, whatever the total.
const EXAMINED_PER_PLACE: u64 = 1 << 10;

const TOO_LONG: &str = "it is longer than the longest event of this format";
const NO_BYTES: &str = "its plugin returned an event without bytes";
const NO_MARK: &str = "the marker of an event is missing";
const CUT_OFF: &str = "cut off by the end of the log";
const BEYOND_END: &str = "it would extend beyond the end of the log";
const TOO_COSTLY: &str = "the limit of bytes to examine was reached";
const CONTRADICTED: &str = "its length contradicts the events inside it";

/// The events of a format.
pub(super) struct Events<'s, D> {
    format: &'s D,
    mark: EventMarker<'s>,
    longest: usize,
    ids: KeyedChannelIds,
    /// The bytes examined away from the fast path.
    bytes: ReadBuffer,
    /// The number of bytes examined there.
    examined: u64,
    /// The most that may be; what needs more is rejected.
    examine_limit: u64,
}

/// What is at a position, judging by its own bytes only.
enum Lookahead {
    /// A record that ends here; and what is wrong with it, if it is a damaged event.
    Whole { end: u64, wrong: Option<&'static str> },
    /// No record, and the reason.
    Unknown(&'static str),
    /// A record that is cut off.
    CutOff,
    /// The end of the log.
    End,
}

impl<'s, D: Delimited> Events<'s, D> {
    pub(super) fn new(format: &'s D, context: &ReadContext) -> Self {
        let (source, channels) = (Arc::clone(&context.source), Arc::clone(&context.channels));
        let mark = match format.mark() {
            // An empty marker is no marker.
            EventMarker::Begins(b"") | EventMarker::Ends(b"") => EventMarker::None,
            mark => mark,
        };
        Self {
            format,
            mark,
            longest: format.longest().clamp(1, MAX_EVENT),
            ids: KeyedChannelIds::new(source, channels),
            bytes: ReadBuffer::default(),
            examined: 0,
            examine_limit: u64::MAX,
        }
    }

    /// Parses these bytes, which may be more than the longest event.
    fn parse<'b>(&self, bytes: &'b [u8]) -> ParseOutcome<'b> {
        let bytes = bytes.get(..self.longest).unwrap_or(bytes);
        match self.format.parse(bytes) {
            ParseOutcome::More if bytes.len() >= self.longest => ParseOutcome::NotAnEvent(TOO_LONG),
            ParseOutcome::Event(event) if !self.is_marked(bytes, event.len) => {
                ParseOutcome::NotAnEvent(NO_MARK)
            }
            ParseOutcome::Damaged { len, .. } if !self.is_marked(bytes, len) => {
                ParseOutcome::NotAnEvent(NO_MARK)
            }
            outcome => self.bounded(outcome),
        }
    }

    /// Parses the last bytes of a log.
    fn parse_last<'b>(&self, bytes: &'b [u8]) -> ParseOutcome<'b> {
        let outcome = self.bounded(self.format.last(bytes));
        match (len_of(&outcome), &outcome) {
            // What is skipped needs no marker, nor does the end of the last event.
            (_, ParseOutcome::Event(_) | ParseOutcome::Damaged { .. } | ParseOutcome::More)
                if !self.has_first_mark(bytes) =>
            {
                ParseOutcome::NotAnEvent(NO_MARK)
            }
            (Some(len), _) if len > bytes.len() => ParseOutcome::More,
            _ => outcome,
        }
    }

    fn bounded<'b>(&self, outcome: ParseOutcome<'b>) -> ParseOutcome<'b> {
        match len_of(&outcome) {
            Some(0) => ParseOutcome::NotAnEvent(NO_BYTES),
            Some(len) if len > self.longest => ParseOutcome::NotAnEvent(TOO_LONG),
            _ => outcome,
        }
    }

    /// Whether an event of `len` bytes has its marker, as far as its bytes are there.
    fn is_marked(&self, bytes: &[u8], len: usize) -> bool {
        match self.mark {
            EventMarker::None | EventMarker::Begins(_) => self.has_first_mark(bytes),
            EventMarker::Ends(mark) => bytes.get(..len).is_none_or(|event| event.ends_with(mark)),
        }
    }

    /// Whether bytes start with the marker of events that begin with one, as far as they are there.
    fn has_first_mark(&self, bytes: &[u8]) -> bool {
        match self.mark {
            EventMarker::None | EventMarker::Ends(_) => true,
            EventMarker::Begins(mark) => {
                bytes.iter().zip(mark).all(|(byte, wanted)| byte == wanted)
            }
        }
    }

    /// Classifies what is at `pos`.
    fn look_ahead(&mut self, log: &mut dyn ReadAt, pos: u64) -> Result<Lookahead, Error> {
        let mut want = FIRST_READ.min(self.longest);
        loop {
            if self.examined.saturating_add(want as u64) > self.examine_limit {
                return Ok(Lookahead::Unknown(TOO_COSTLY));
            }
            let read = self.bytes.replace(want, |space| log.read_at(pos, space))?.len();
            self.examined += read as u64;
            let is_end = read < want;
            let outcome = match self.parse(&self.bytes) {
                _ if read == 0 => return Ok(Lookahead::End),
                ParseOutcome::More if is_end => self.parse_last(&self.bytes),
                outcome => outcome,
            };
            let wrong = match &outcome {
                ParseOutcome::Damaged { reason, .. } => Some(*reason),
                _ => None,
            };
            match (len_of(&outcome), outcome) {
                (Some(len), _) => {
                    let end = pos.saturating_add(len as u64);
                    let is_there = len <= read
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

    /// Whether what is at `end` may follow an event.
    fn may_follow(&mut self, log: &mut dyn ReadAt, end: u64) -> Result<bool, Error> {
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

    /// Whether an event at `at` is accepted after damage.
    fn is_plausible(&mut self, log: &mut dyn ReadAt, at: u64) -> Result<bool, Error> {
        let Lookahead::Whole { end, wrong } = self.look_ahead(log, at)? else { return Ok(false) };
        let is_followed = match self.mark {
            EventMarker::None => self.is_followed_by_chain(log, end)?,
            EventMarker::Begins(_) | EventMarker::Ends(_) => self.may_follow(log, end)?,
        };
        Ok(is_followed || wrong.is_none() && self.stands_alone(log, at..end)?)
    }

    /// Whether enough events are at `end`, where there is no marker.
    fn is_followed_by_chain(&mut self, log: &mut dyn ReadAt, mut end: u64) -> Result<bool, Error> {
        for _ in 1..CHAIN {
            match self.look_ahead(log, end)? {
                Lookahead::Whole { end: next, .. } => end = next,
                Lookahead::End => return Ok(true),
                Lookahead::Unknown(_) | Lookahead::CutOff => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Whether an event is accepted after damage without a valid successor.
    fn stands_alone(&mut self, log: &mut dyn ReadAt, event: Range<u64>) -> Result<bool, Error> {
        if !self.format.is_unmistakable() {
            return Ok(false);
        }
        // All of it is searched for other events.
        self.examined = self.examined.saturating_add(event.end - event.start);
        let is_contradicted = self.is_contradicted(log, event)?;
        Ok(!is_contradicted && self.examined <= self.examine_limit)
    }

    /// The first of these positions at which an event is accepted.
    fn first_plausible(
        &mut self,
        log: &mut dyn ReadAt,
        places: &mut CandidateStarts<'s>,
    ) -> Result<Option<u64>, Error> {
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

    /// The limit of examined bytes at this distance from the start of a search: a log that looks
    /// like long events everywhere must end in damage, not take days.
    fn examine_limit_at(&self, before: u64, distance: u64) -> u64 {
        let allowed = ALLOWANCE.saturating_add(ALLOWED_EVENTS * self.longest as u64);
        let allowed = allowed.saturating_add(distance.saturating_mul(EXAMINED_PER_BYTE));
        before.saturating_add(allowed).max(self.examined.saturating_add(EXAMINED_PER_PLACE))
    }

    /// Whether an event inside this one proves that its length is wrong.
    fn is_contradicted(&mut self, log: &mut dyn ReadAt, event: Range<u64>) -> Result<bool, Error> {
        let mut places = CandidateStarts::after(self.mark, event.start, event.end);
        let (mut visited, mut walks) = (Vec::new(), 0);
        let (before, limit) = (self.examined, self.examine_limit);
        let mut is_proved = false;
        while !is_proved
            && walks < MAX_WALKS
            && self.examined <= limit
            && let Some(at) = places.next(log)?
        {
            self.examine_limit = self.examine_limit_at(before, at - places.from).min(limit);
            let known = visited.len();
            is_proved = self.chain_leaves(log, at, event.end, &mut visited)?;
            walks += usize::from(visited.len() > known);
        }
        self.examine_limit = limit;
        Ok(is_proved)
    }

    /// Follows consecutive events until one extends beyond `end` and is plausible.
    fn chain_leaves(
        &mut self,
        log: &mut dyn ReadAt,
        mut at: u64,
        end: u64,
        visited: &mut Vec<u64>,
    ) -> Result<bool, Error> {
        while !visited.contains(&at)
            && let Lookahead::Whole { end: next, wrong: None } = self.look_ahead(log, at)?
        {
            visited.push(at);
            if next > end {
                return self.may_follow(log, next);
            }
            if visited.len() == MAX_INNER {
                return Ok(true);
            }
            at = next;
        }
        Ok(false)
    }

    /// Damage at `pos`, up to the next event that is accepted.
    fn resync(
        &mut self,
        log: &mut dyn ReadAt,
        pos: u64,
        reason: &str,
    ) -> Result<PositionContent, Error> {
        let (end, _) = self.damage_end(log, pos)?;
        Ok(PositionContent::Damage { end, reason: reason.to_owned() })
    }

    /// Where damage at `pos` ends, and whether no event follows it.
    fn damage_end(&mut self, log: &mut dyn ReadAt, pos: u64) -> Result<(u64, bool), Error> {
        let mut places = CandidateStarts::after(self.mark, pos, u64::MAX);
        let next = self.first_plausible(log, &mut places)?;
        Ok((next.unwrap_or_else(|| places.search.reached()), next.is_none()))
    }

    /// Whether the bytes after an event confirm it; `None` if the block has too few.
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

    fn header(&mut self, pos: u64, event: ParsedEvent<'_>) -> Result<EventHeader, Error> {
        let ParsedEvent { len, timestamp, sequence, channel, payload } = event;
        if payload.start > payload.end || payload.end > len {
            return Err(Error::internal(format!(
                "the source's `parse` returned a payload at {payload:?} for an event of {len} bytes"
            )));
        }
        let place = i64::try_from(pos).unwrap_or(i64::MAX);
        let (timestamp, sequence) = (timestamp.unwrap_or(place), sequence.unwrap_or(place));
        Ok(EventHeader { timestamp, sequence, channel: self.id(&channel)?, payload })
    }

    fn id(&mut self, name: &[u8]) -> Result<ChannelId, Error> {
        let format = self.format;
        self.ids.resolve(name, |name, source| format.channel(name, source))
    }
}

impl<D: Delimited> Framing for Events<'_, D> {
    fn peek(&mut self, pos: u64, bytes: &[u8]) -> Result<Peek, Error> {
        let outcome = self.parse(bytes);
        let len = match len_of(&outcome) {
            Some(len) => len,
            None if outcome == ParseOutcome::More => return Ok(Peek::More),
            None => return Ok(Peek::Ambiguous),
        };
        let Some(after) = bytes.get(len..) else { return Ok(Peek::More) };
        match self.is_confirmed_by(after) {
            None => return Ok(Peek::More),
            Some(false) => return Ok(Peek::Ambiguous),
            Some(true) => {}
        }
        Ok(match outcome {
            ParseOutcome::Event(event) => Peek::Event { len, head: self.header(pos, event)? },
            ParseOutcome::Skip { len } => Peek::Skip { len },
            _ => Peek::Ambiguous,
        })
    }

    fn classify(&mut self, log: &mut dyn ReadAt, pos: u64) -> Result<PositionContent, Error> {
        let (end, wrong) = match self.look_ahead(log, pos)? {
            Lookahead::End => return Ok(PositionContent::End { mark: 0 }),
            Lookahead::CutOff => {
                let (end, is_last) = self.damage_end(log, pos)?;
                let reason = if is_last { CUT_OFF } else { BEYOND_END };
                return Ok(PositionContent::Damage { end, reason: reason.to_owned() });
            }
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
        // Its channel exists whether or not the event is wanted.
        self.id(&channel)?;
        Ok(Some(RecordOutline { len: len as u64, timestamp }))
    }

    fn confirms(&self, bytes: &[u8]) -> bool {
        self.is_confirmed_by(bytes) == Some(true)
    }

    fn find(&mut self, log: &mut dyn ReadAt, range: Range<u64>) -> Result<Option<u64>, Error> {
        // The bytes before the range may show that an event starts here.
        if !range.is_empty() && range.start == 0 && self.is_plausible(log, 0)? {
            return Ok(Some(0));
        }
        self.first_plausible(log, &mut CandidateStarts::within(self.mark, range))
    }

    fn find_after_gap(
        &mut self,
        log: &mut dyn ReadAt,
        range: Range<u64>,
    ) -> Result<Option<u64>, Error> {
        // From the gap on, which is no marker: with one at the end, the first event may be cut.
        let gap = range.start.saturating_sub(1);
        self.first_plausible(log, &mut CandidateStarts::after(self.mark, gap, range.end))
    }

    fn event(&mut self, pos: u64, record: &[u8]) -> Result<RecordContent, Error> {
        let outcome = match self.parse(record) {
            ParseOutcome::More => self.parse_last(record),
            outcome => outcome,
        };
        match outcome {
            outcome if len_of(&outcome) != Some(record.len()) => Err(Error::internal(format!(
                "the source's `parse` accepted {} bytes at byte {pos} as an event, but not when \
                 it was passed only these",
                record.len()
            ))),
            ParseOutcome::Event(event) => Ok(RecordContent::Event(self.header(pos, event)?)),
            ParseOutcome::Damaged { reason, .. } => {
                Ok(RecordContent::Damage(reason.to_owned(), None))
            }
            _ => Ok(RecordContent::Skip),
        }
    }
}

/// Whether the marker is at `pos`, as far as the log goes.
fn begins_at(log: &mut dyn ReadAt, pos: u64, mark: &[u8]) -> Result<bool, Error> {
    let mut bytes = vec![0; mark.len()];
    let read = log.read_at(pos, &mut bytes)?;
    Ok(bytes.get(..read).is_some_and(|bytes| mark.starts_with(bytes)))
}

/// The length of a record that has one.
pub(super) fn len_of(outcome: &ParseOutcome<'_>) -> Option<usize> {
    match outcome {
        ParseOutcome::Event(event) => Some(event.len),
        ParseOutcome::Skip { len } | ParseOutcome::Damaged { len, .. } => Some(*len),
        ParseOutcome::More | ParseOutcome::NotAnEvent(_) => None,
    }
}
