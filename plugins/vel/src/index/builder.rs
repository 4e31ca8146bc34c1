//! Builds an index from messages in file order.

use super::{SECOND, second};
use crate::wire::ENTRY_LEN;

/// Greatest time that is indexed, in milliseconds.
const MAX_MILLIS: f64 = 9e15;
/// Most bytes by which an index may exceed the messages.
const INDEX_AHEAD: u64 = 1 << 20;

/// Builds an index from messages in file order.
#[derive(Clone, Debug)]
pub struct IndexBuilder {
    first: Option<f64>,
    latest: f64,
    positions: Vec<u64>,
    most: u64,
    /// Entries that a jump in time may always fill, if the size of the index is limited by the
    /// messages.
    least: Option<u64>,
    is_full: bool,
}

impl IndexBuilder {
    /// For an index of at most `most` entries.
    pub fn new(most: u64) -> Self {
        let (first, latest, positions) = (None, f64::NEG_INFINITY, Vec::new());
        Self { first, latest, positions, most, least: None, is_full: false }
    }

    /// For an index that is written: it ends before a jump in time that would make it a mebibyte
    /// longer than the messages before the jump, but not before it has `least` entries. Positions
    /// then count from the first message.
    pub fn proportional(least: u64, most: u64) -> Self {
        Self { least: Some(least), ..Self::new(most) }
    }

    /// Adds the next message in file order. A NaN time belongs to no second.
    pub fn add_message(&mut self, position: u64, ms: f64) {
        // Beyond this, doubles cannot tell seconds apart.
        let is_counted = ms.abs() <= MAX_MILLIS;
        if !is_counted {
            return;
        }
        let first = *self.first.get_or_insert(ms);
        self.latest = self.latest.max(ms);
        if self.is_full || ms < second(first, self.positions.len() as u64) {
            return;
        }
        let most = self.max_entries(position, seconds_to(first, ms));
        while ms >= second(first, self.positions.len() as u64) {
            if self.positions.len() as u64 >= most {
                self.is_full = true;
                return;
            }
            self.positions.push(position);
        }
    }

    /// Most entries after a message at `position` that makes it `needed` long.
    fn max_entries(&self, position: u64, needed: u64) -> u64 {
        let justified = position.saturating_add(INDEX_AHEAD) / ENTRY_LEN as u64;
        match self.least {
            Some(least) if needed > justified => self.most.min(least),
            _ => self.most,
        }
    }

    /// Seconds covered by the messages so far.
    pub fn count(&self) -> u64 {
        self.first.map_or(0, |first| seconds_to(first, self.latest))
    }

    /// The entries so far.
    pub fn positions(&self) -> &[u64] {
        &self.positions
    }

    /// Whether there are seconds beyond the last possible entry.
    pub fn is_full(&self) -> bool {
        self.is_full
    }
}

/// Seconds started from `first` to `ms`.
fn seconds_to(first: f64, ms: f64) -> u64 {
    (((ms - first) / SECOND).floor().max(0.0) as u64).saturating_add(1)
}
