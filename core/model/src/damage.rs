//! Damage: ranges of an input that could not be read, with the reason. Collected while reading
//! continues.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use crate::ChannelId;

/// A range of an input that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The input, as named by the user.
    pub input: Arc<str>,
    /// The byte offset of its start.
    pub offset: u64,
    /// Its length in bytes.
    pub length: u64,
    /// What is wrong.
    pub reason: String,
    /// The channel, if the range is one event whose header could be read.
    pub channel: Option<ChannelId>,
    /// The bytes, if the input cannot be read again and the run keeps damaged bytes.
    pub bytes: Vec<Bytes>,
}

impl Damage {
    /// A damaged range whose channel is unknown.
    pub fn new(input: &Arc<str>, offset: u64, length: u64, reason: impl Into<String>) -> Self {
        let (input, reason) = (Arc::clone(input), reason.into());
        Self { input, offset, length, reason, channel: None, bytes: Vec::new() }
    }
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { input, offset, length, reason, .. } = self;
        write!(f, "{input}: {length} bytes at byte {offset} could not be read: {reason}")
    }
}

/// Collects the damage that readers skip. Shared by the threads that read one split.
#[derive(Debug, Default)]
pub struct DamageLog {
    damage: Mutex<Vec<Damage>>,
    keeps_bytes: bool,
}

impl DamageLog {
    /// A log that asks for the damaged bytes of inputs that cannot be read twice.
    pub fn keeping_bytes() -> Self {
        Self { keeps_bytes: true, ..Self::default() }
    }

    /// An empty log of the same kind.
    pub fn new_log(&self) -> Self {
        Self { keeps_bytes: self.keeps_bytes, ..Self::default() }
    }

    /// Whether to report the damaged bytes of inputs that cannot be read twice.
    pub fn keeps_bytes(&self) -> bool {
        self.keeps_bytes
    }

    /// Adds one damaged range.
    pub fn report(&self, damage: Damage) {
        self.damage.lock().unwrap_or_else(PoisonError::into_inner).push(damage);
    }

    /// The damage reported since the last call, in order.
    pub fn take(&self) -> Vec<Damage> {
        std::mem::take(&mut *self.damage.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The damage that a run has found so far, in reading order. Shared with its sinks, for which it is
/// complete when they finish.
#[derive(Debug, Default)]
pub struct RunDamage(Mutex<FoundDamage>);

#[derive(Debug, Default)]
struct FoundDamage {
    ranges: Vec<Arc<Damage>>,
    totals: BTreeMap<Arc<str>, DamageTotals>,
}

/// How much of an input is damaged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DamageTotals {
    /// The number of ranges.
    pub ranges: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl RunDamage {
    /// The most ranges that are kept; a log of garbage has any number of them.
    pub const MAX_RANGES: usize = 100_000;

    /// Adds a range.
    pub fn add(&self, damage: &Arc<Damage>) {
        let mut found = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let totals = found.totals.entry(Arc::clone(&damage.input)).or_default();
        totals.ranges += 1;
        totals.bytes = totals.bytes.saturating_add(damage.length);
        if found.ranges.len() < Self::MAX_RANGES {
            found.ranges.push(Arc::clone(damage));
        }
    }

    /// The ranges of an input that are kept, in reading order, and how much of it is damaged.
    pub fn of_input(&self, input: &str) -> (Vec<Arc<Damage>>, DamageTotals) {
        let found = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let ranges = found.ranges.iter().filter(|damage| *damage.input == *input);
        (ranges.cloned().collect(), found.totals.get(input).copied().unwrap_or_default())
    }
}
