//! Findings: what queries report besides their results.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use sluice_model::{Damage, DamageList};

/// What a query reports besides its result.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// Damaged ranges of inputs, each once, in the order found.
    pub damage: Vec<Damage>,
    /// The number of further damaged ranges.
    pub more_damage: u64,
    /// Events that are missing in results: reasons, with the number of events. For a log that was
    /// read several times, the largest number of one read.
    pub left_out: BTreeMap<String, u64>,
    /// Other notes of readers and codecs. They concern no missing events.
    pub notes: BTreeMap<String, u64>,
}

impl Findings {
    /// Whether no event is missing.
    pub fn is_complete(&self) -> bool {
        self.damage.is_empty() && self.more_damage == 0 && self.left_out.is_empty()
    }

    /// Adds the findings of another log.
    pub(crate) fn extend(&mut self, other: Self) {
        self.damage.extend(other.damage);
        self.more_damage += other.more_damage;
        add(&mut self.left_out, other.left_out);
        add(&mut self.notes, other.notes);
    }
}

fn add(all: &mut BTreeMap<String, u64>, more: BTreeMap<String, u64>) {
    for (what, count) in more {
        *all.entry(what).or_default() += count;
    }
}

fn keep_larger(all: &mut BTreeMap<String, u64>, more: &BTreeMap<String, u64>) {
    for (what, count) in more {
        let known = all.entry(what.clone()).or_default();
        *known = (*count).max(*known);
    }
}

/// What one read of a whole table found, in a form that can be stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TableFindings {
    damage: Vec<DamagedRange>,
    left_out: BTreeMap<String, u64>,
    notes: BTreeMap<String, u64>,
}

/// [`Damage`] of an input that can be read again, without its channel, whose id is only valid in
/// one process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct DamagedRange {
    input: String,
    offset: u64,
    length: u64,
    reason: String,
}

impl TableFindings {
    pub(super) fn add_damage(&mut self, damage: &DamageList) {
        self.damage.extend(damage.iter().map(|damage| DamagedRange {
            input: damage.input.to_string(),
            offset: damage.offset,
            length: damage.length,
            reason: damage.reason,
        }));
    }

    pub(super) fn set_counts(
        &mut self,
        left_out: &BTreeMap<String, u64>,
        notes: &BTreeMap<String, u64>,
    ) {
        (self.left_out, self.notes) = (left_out.clone(), notes.clone());
    }

    /// Whether nothing was found.
    pub(super) fn is_empty(&self) -> bool {
        self.damage.is_empty() && !self.has_counts()
    }

    /// Whether events are missing, or there are notes.
    pub(super) fn has_counts(&self) -> bool {
        !self.left_out.is_empty() || !self.notes.is_empty()
    }
}

/// The most damaged ranges that are listed; the rest are counted.
const MAX_DAMAGE: usize = 1 << 16;

/// Collects the findings of one log from all its readers.
#[derive(Debug, Default)]
pub(crate) struct FindingsLog(Mutex<FindingsState>);

#[derive(Debug, Default)]
struct FindingsState {
    findings: Findings,
    /// The known damage: input, offset and length.
    known: HashSet<(std::sync::Arc<str>, u64, u64)>,
}

impl FindingsLog {
    /// Adds damage that is not known yet.
    pub(crate) fn add_damage(&self, damage: impl IntoIterator<Item = Damage>) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for damage in damage {
            let place = (std::sync::Arc::clone(&damage.input), damage.offset, damage.length);
            if state.known.contains(&place) {
                continue;
            }
            if state.known.len() >= MAX_DAMAGE {
                state.findings.more_damage += 1;
                continue;
            }
            state.known.insert(place);
            state.findings.damage.push(damage);
        }
    }

    /// Adds the counts of one reader so far.
    pub(crate) fn add_counts(
        &self,
        left_out: &BTreeMap<String, u64>,
        notes: &BTreeMap<String, u64>,
    ) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        keep_larger(&mut state.findings.left_out, left_out);
        keep_larger(&mut state.findings.notes, notes);
    }

    /// Adds what an earlier read of the same table found.
    pub(crate) fn add_table(&self, found: &TableFindings) {
        self.add_damage(found.damage.iter().map(|range| {
            Damage::new(&range.input.as_str().into(), range.offset, range.length, &*range.reason)
        }));
        self.add_counts(&found.left_out, &found.notes);
    }

    /// Takes the findings since the last call.
    pub(crate) fn take(&self) -> Findings {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner)).findings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_events_of_two_logs_add_up() {
        let findings = || {
            let log = FindingsLog::default();
            let left_out = BTreeMap::from([("events of another type".to_owned(), 5)]);
            // One query may read a log twice.
            (0..2).for_each(|_| log.add_counts(&left_out, &BTreeMap::new()));
            log.take()
        };
        let mut all = Findings::default();
        all.extend(findings());
        all.extend(findings());
        assert_eq!(all.left_out["events of another type"], 10);
        assert!(!all.is_complete());
    }
}
