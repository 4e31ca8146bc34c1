//! The books of a stage that is a program: which events were sent, on which channels, and which of them came
//! back. In bounded memory, however many there are.

use std::collections::{HashMap, VecDeque};

/// Events are noted in blocks of that many.
const BLOCK: u64 = 8 << 10;
/// How many blocks are kept. Blocks of which every event came back are let go first.
const MOST_BLOCKS: usize = 1 << 10;

/// The channels an event was sent with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Sent {
    /// The channel it was read on.
    pub(crate) origin: u32,
    /// The channel it was on when it was sent.
    pub(crate) channel: u32,
}

/// What a number in what a program gives stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// An event that was sent, and comes back now.
    Back(Sent),
    /// One that came back before: it is an event of its own.
    Again,
}

/// The books.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// Events sent.
    sent: u64,
    /// Events that came back.
    back: u64,
    /// The number of the first block that is kept.
    first: u64,
    blocks: VecDeque<Block>,
    /// How many of them have events that did not come back.
    open: usize,
    /// The number of the first block of which it is still known what came back.
    known: u64,
    pairs: Vec<Sent>,
    places: HashMap<Sent, u32>,
}

#[derive(Debug, Default)]
struct Block {
    /// For each event, the place of what it was sent with.
    sent: Vec<u32>,
    /// For each event, whether it came back.
    back: Vec<bool>,
    count: u64,
}

impl Ledger {
    /// The number that the next event will have.
    pub(crate) fn next(&self) -> i64 {
        self.sent as i64
    }

    /// Notes events that are sent: for each, the channels it is on.
    pub(crate) fn send(&mut self, origins: &[u32], channels: &[u32]) {
        for (origin, channel) in origins.iter().zip(channels) {
            let place = self.place(Sent { origin: *origin, channel: *channel });
            if self.sent.is_multiple_of(BLOCK) {
                self.blocks.push_back(Block::default());
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

    /// How many events that were sent have not come back.
    pub(crate) fn missing(&self) -> u64 {
        self.sent - self.back
    }

    /// Notes that an event of this number was given. `Err` says why it cannot be.
    pub(crate) fn take(&mut self, number: i64) -> Result<Known, String> {
        let unknown = || {
            format!(
                "column `number`: no event was sent with the number {number}; new events have null there"
            )
        };
        let number = u64::try_from(number).ok().filter(|n| *n < self.sent).ok_or_else(unknown)?;
        let Some(block) = (number / BLOCK).checked_sub(self.first) else {
            if number / BLOCK >= self.known {
                return Ok(Known::Again);
            }
            let most = BLOCK * MOST_BLOCKS as u64;
            return Err(format!(
                "column `number`: {number} came back after {most} later events had been sent; where a \
                 program holds back that many, leave the column out, and all events count as new"
            ));
        };
        let at = (number % BLOCK) as usize;
        let Some(block) = self.blocks.get_mut(block as usize) else { return Err(unknown()) };
        let Some(back) = block.back.get_mut(at) else { return Ok(Known::Again) };
        if std::mem::replace(back, true) {
            return Ok(Known::Again);
        }
        let pair = block.sent.get(at).and_then(|place| self.pairs.get(*place as usize)).copied();
        let pair = pair.ok_or_else(unknown)?;
        block.count += 1;
        self.back += 1;
        if block.count == BLOCK {
            // Of a block that is complete nothing more is asked.
            (block.sent, block.back) = (Vec::new(), Vec::new());
            self.open -= 1;
        }
        Ok(Known::Back(pair))
    }

    fn place(&mut self, sent: Sent) -> u32 {
        let next = self.pairs.len() as u32;
        let place = *self.places.entry(sent).or_insert(next);
        if place == next {
            self.pairs.push(sent);
        }
        place
    }

    /// Lets go of blocks that are complete, and of the oldest where too many are not.
    fn forget(&mut self) {
        while let Some(block) = self.blocks.front() {
            let is_complete = block.count == BLOCK;
            if !is_complete && self.open <= MOST_BLOCKS {
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

    #[test]
    fn an_event_comes_back_once_and_then_is_another_one() {
        let mut ledger = Ledger::default();
        ledger.send(&[3, 4], &[3, 9]);
        assert_eq!(ledger.take(1), Ok(Known::Back(Sent { origin: 4, channel: 9 })));
        assert_eq!(ledger.take(1), Ok(Known::Again));
        assert_eq!((ledger.missing(), ledger.next()), (1, 2));
        assert!(ledger.take(2).is_err() && ledger.take(-1).is_err());
    }

    #[test]
    fn what_has_all_come_back_is_known_to_have_done_so() {
        let mut ledger = Ledger::default();
        let some = vec![1; BLOCK as usize];
        ledger.send(&some, &some);
        (0..BLOCK as i64).for_each(|number| assert!(ledger.take(number).is_ok()));
        ledger.send(&some, &some);
        assert_eq!((ledger.blocks.len(), ledger.open), (1, 1));
        assert_eq!(ledger.take(7), Ok(Known::Again));
    }

    #[test]
    fn what_never_comes_back_takes_bounded_memory() {
        let mut ledger = Ledger::default();
        let some = vec![1; BLOCK as usize];
        for _ in 0..MOST_BLOCKS + 3 {
            ledger.send(&some, &some);
        }
        assert_eq!(ledger.blocks.len(), MOST_BLOCKS);
        assert!(ledger.take(0).unwrap_err().contains("leave the column out"));
        assert_eq!(ledger.take(ledger.next() - 1), Ok(Known::Back(Sent { origin: 1, channel: 1 })));
    }

    proptest! {
        #[test]
        fn what_is_sent_is_back_or_missing(
            takes in proptest::collection::vec(-3i64..20_000, 0..200), sent in 0usize..20_000)
        {
            let mut ledger = Ledger::default();
            ledger.send(&vec![1; sent], &vec![2; sent]);
            let mut seen = std::collections::BTreeSet::new();
            for number in takes {
                let known = ledger.take(number);
                let is_sent = (0..sent as i64).contains(&number);
                prop_assert_eq!(known.is_ok(), is_sent);
                if is_sent {
                    prop_assert_eq!(known == Ok(Known::Again), !seen.insert(number));
                }
            }
            prop_assert_eq!(ledger.missing(), (sent - seen.len()) as u64);
        }
    }
}
