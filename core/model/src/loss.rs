//! Losses: messages of a live input that never arrived, or arrived incomplete. Counted while
//! reading continues.
//!
//! Errors in a file are [`Damage`](crate::Damage), with a position. What a network loses leaves
//! only a gap in sequence numbers, so it is just counted, by reason.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Collects the losses of a live reader. Shared by the reader and the engine.
#[derive(Debug, Default)]
pub struct LossLog(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    losses: BTreeMap<String, u64>,
    /// The losses of earlier rounds.
    before: BTreeMap<String, u64>,
    notes: Vec<(String, u64)>,
}

impl LossLog {
    /// Sets the total number of messages lost so far, by reason. A number may decrease: a missing
    /// message may arrive late.
    pub fn set<'r>(&self, losses: impl IntoIterator<Item = (&'r str, u64)>) {
        let mut state = self.state();
        state.losses.values_mut().for_each(|count| *count = 0);
        for (reason, count) in losses {
            match state.losses.get_mut(reason) {
                Some(so_far) => *so_far += count,
                None if count == 0 => {}
                None => drop(state.losses.insert(reason.to_owned(), count)),
            }
        }
    }

    /// Adds a note to the report that is not a loss, with a count; 0 if a count is meaningless.
    pub fn note(&self, what: impl Into<String>, count: u64) {
        self.state().notes.push((what.into(), count));
    }

    /// Starts counting on top of the losses so far, because the input is read again.
    pub fn begin_again(&self) {
        let mut state = self.state();
        for (reason, count) in std::mem::take(&mut state.losses) {
            *state.before.entry(reason).or_default() += count;
        }
    }

    /// The losses so far, by reason.
    pub fn losses(&self) -> BTreeMap<String, u64> {
        let state = self.state();
        let mut losses = state.before.clone();
        for (reason, count) in &state.losses {
            *losses.entry(reason.clone()).or_default() += count;
        }
        losses.into_iter().filter(|(_, count)| *count > 0).collect()
    }

    /// The number of messages lost so far.
    pub fn total(&self) -> u64 {
        let state = self.state();
        state.losses.values().chain(state.before.values()).sum()
    }

    /// The notes since the last call.
    pub fn take_notes(&self) -> Vec<(String, u64)> {
        std::mem::take(&mut self.state().notes)
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_what_was_said_last_and_notes_are_given_once() {
        let log = LossLog::default();
        log.set([("missing", 5), ("late", 0), ("dropped", 7)]);
        log.set([("missing", 3)]);
        assert_eq!((log.total(), log.losses().len()), (3, 1));
        log.begin_again();
        log.set([("missing", 2)]);
        assert_eq!((log.total(), log.losses()["missing"]), (5, 5));
        log.note("small buffer", 0);
        assert_eq!(log.take_notes(), [("small buffer".to_owned(), 0)]);
        assert!(log.take_notes().is_empty());
    }
}
