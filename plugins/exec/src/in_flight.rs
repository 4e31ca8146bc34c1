//! Tracks which events a stage sent to its program, on which channels, and which have returned.
//! Bounded in memory.

use std::collections::{HashMap, VecDeque};

/// Events per block.
const BLOCK: u64 = 8 << 10;
/// The maximum number of blocks. Complete blocks are dropped first.
const MAX_BLOCKS: usize = 1 << 10;

/// What is known of an event that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SentEvent {
    /// The channel it was read on.
    pub(crate) origin: u32,
    /// The channel it was sent on.
    pub(crate) channel: u32,
    /// Whether it had decoded fields.
    pub(crate) is_decoded: bool,
}

/// What a number in a program's output stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// An event that was sent and now returns.
    Returned(SentEvent),
    /// An event that returned before; this one counts as new.
    Repeat,
}

/// The events that were sent to a program.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    /// The number of events sent.
    sent: u64,
    /// The number of events that returned.
    back: u64,
    /// The index of the first block kept.
    first: u64,
    blocks: VecDeque<SentBlock>,
    /// How many blocks have events that did not return.
    open: usize,
    /// The index of the first block whose returned events are known.
    known: u64,
    distinct: Vec<SentEvent>,
    places: HashMap<SentEvent, u32>,
}

#[derive(Debug, Default)]
struct SentBlock {
    /// The index of what is known of each event in `distinct`.
    sent: Vec<u32>,
    /// Whether each event has returned.
    back: Vec<bool>,
    count: u64,
}

impl InFlight {
    /// The number of the next event.
    pub(crate) fn next(&self) -> i64 {
        self.sent as i64
    }

    /// Records events that are sent.
    pub(crate) fn send(&mut self, events: impl IntoIterator<Item = SentEvent>) {
        for event in events {
            let place = self.place(event);
            if self.sent.is_multiple_of(BLOCK) {
                self.blocks.push_back(SentBlock::default());
                self.open += 1;
            }
            if let Some(block) = self.blocks.back_mut() {
                block.sent.push(place);
                block.back.push(false);
            }
            self.sent += 1;
        }
        self.forget();
    }

    /// How many events did not return.
    pub(crate) fn missing(&self) -> u64 {
        self.sent - self.back
    }

    /// Records that an event of this number returned. `Err` says why it cannot be.
    pub(crate) fn take(&mut self, number: i64) -> Result<Answer, String> {
        let unknown = || {
            format!(
                "column `number`: no event was sent with the number {number}; new events must have \
                 null there"
            )
        };
        let number = u64::try_from(number).ok().filter(|n| *n < self.sent).ok_or_else(unknown)?;
        let Some(block) = (number / BLOCK).checked_sub(self.first) else {
            if number / BLOCK >= self.known {
                return Ok(Answer::Repeat);
            }
            let most = BLOCK * MAX_BLOCKS as u64;
            return Err(format!(
                "column `number`: {number} returned after {most} later events had been sent; if \
                 the program holds back that many, leave the column out, and all events count as \
                 new"
            ));
        };
        let at = (number % BLOCK) as usize;
        let Some(block) = self.blocks.get_mut(block as usize) else { return Err(unknown()) };
        let Some(back) = block.back.get_mut(at) else { return Ok(Answer::Repeat) };
        if std::mem::replace(back, true) {
            return Ok(Answer::Repeat);
        }
        let event = block.sent.get(at).and_then(|place| self.distinct.get(*place as usize));
        let event = *event.ok_or_else(unknown)?;
        block.count += 1;
        self.back += 1;
        if block.count == BLOCK {
            // A complete block needs no details.
            (block.sent, block.back) = (Vec::new(), Vec::new());
            self.open -= 1;
        }
        Ok(Answer::Returned(event))
    }

    fn place(&mut self, sent: SentEvent) -> u32 {
        let next = self.distinct.len() as u32;
        let place = *self.places.entry(sent).or_insert(next);
        if place == next {
            self.distinct.push(sent);
        }
        place
    }

    /// Drops complete blocks, and the oldest if too many are incomplete.
    fn forget(&mut self) {
        while let Some(block) = self.blocks.front() {
            let is_complete = block.count == BLOCK;
            if !is_complete && self.open <= MAX_BLOCKS {
                return;
            }
            self.blocks.pop_front();
            self.first += 1;
            if !is_complete {
                self.open -= 1;
                self.known = self.first;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Events that were read and sent on the same channel.
    fn events(count: u64) -> impl Iterator<Item = SentEvent> {
        (0..count).map(|_| SentEvent { origin: 1, channel: 1, is_decoded: false })
    }

    #[test]
    fn an_event_returns_once_and_then_counts_as_new() {
        let mut in_flight = InFlight::default();
        let sent = [(3, 3, false), (4, 9, true)];
        let sent =
            sent.map(|(origin, channel, is_decoded)| SentEvent { origin, channel, is_decoded });
        in_flight.send(sent);
        assert_eq!(in_flight.take(1), Ok(Answer::Returned(sent[1])));
        assert_eq!(in_flight.take(1), Ok(Answer::Repeat));
        assert_eq!((in_flight.missing(), in_flight.next()), (1, 2));
        assert!(in_flight.take(2).is_err() && in_flight.take(-1).is_err());
    }

    #[test]
    fn complete_blocks_are_dropped_but_remembered() {
        let mut in_flight = InFlight::default();
        in_flight.send(events(BLOCK));
        (0..BLOCK as i64).for_each(|number| assert!(in_flight.take(number).is_ok()));
        in_flight.send(events(BLOCK));
        assert_eq!((in_flight.blocks.len(), in_flight.open), (1, 1));
        assert_eq!(in_flight.take(7), Ok(Answer::Repeat));
    }

    #[test]
    fn events_that_never_return_take_bounded_memory() {
        let mut in_flight = InFlight::default();
        for _ in 0..MAX_BLOCKS + 3 {
            in_flight.send(events(BLOCK));
        }
        assert_eq!(in_flight.blocks.len(), MAX_BLOCKS);
        assert!(in_flight.take(0).unwrap_err().contains("leave the column out"));
        assert_eq!(
            in_flight.take(in_flight.next() - 1),
            Ok(events(1).next().map(Answer::Returned).unwrap())
        );
    }

    proptest! {
        #[test]
        fn every_event_returns_or_is_missing(
            takes in proptest::collection::vec(-3i64..20_000, 0..200), sent in 0usize..20_000)
        {
            let mut in_flight = InFlight::default();
            in_flight.send(events(sent as u64));
            let mut seen = std::collections::BTreeSet::new();
            for number in takes {
                let known = in_flight.take(number);
                let is_sent = (0..sent as i64).contains(&number);
                prop_assert_eq!(known.is_ok(), is_sent);
                if is_sent {
                    prop_assert_eq!(known == Ok(Answer::Repeat), !seen.insert(number));
                }
            }
            prop_assert_eq!(in_flight.missing(), (sent - seen.len()) as u64);
        }
    }
}
