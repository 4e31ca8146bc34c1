//! Progress of a batch: the sum of its units' progress.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::report::Report;
use crate::run::{Milestone, Progress, Snapshot};

/// Sums the units' progress and forwards it.
pub(crate) struct BatchProgress {
    listener: Option<Arc<dyn Progress>>,
    /// The input length of each unit, if known.
    bytes: Vec<Option<u64>>,
    state: Mutex<State>,
}

struct State {
    /// The last snapshot of each unit.
    units: Vec<Snapshot>,
    all: Snapshot,
}

impl BatchProgress {
    /// Progress of units with these input lengths.
    pub(crate) fn new(bytes: Vec<Option<u64>>, to: Option<Arc<dyn Progress>>) -> Self {
        let all = Snapshot {
            total_bytes: bytes.iter().copied().sum(),
            units: bytes.len() as u64,
            without_bytes: false,
            ..Snapshot::default()
        };
        let state = State { units: vec![Snapshot::default(); bytes.len()], all };
        Self { listener: to, bytes, state: Mutex::new(state) }
    }

    /// The listener for the unit at this index.
    pub(super) fn for_unit(self: &Arc<Self>, place: usize) -> Option<Arc<dyn Progress>> {
        self.listener.as_ref()?;
        let max_bytes = self.input_bytes(place).unwrap_or(u64::MAX);
        Some(Arc::new(UnitProgress { progress: Arc::clone(self), place, max_bytes }))
    }

    /// Marks the unit at this index as finished, successful or not.
    pub(super) fn end_unit(&self, place: usize) {
        self.change(place, |now| Snapshot {
            bytes: self.input_bytes(place).unwrap_or(now.bytes),
            units_done: 1,
            ..now
        });
    }

    /// Forwards a milestone of a unit, but not its failure: that is not the end of the batch.
    pub(super) fn milestone(&self, milestone: &Milestone<'_>) {
        if let Some(progress) = &self.listener
            && !matches!(milestone, Milestone::Failed { .. })
        {
            progress.milestone(milestone);
        }
    }

    /// Marks a unit that reported no progress while it ran as finished, with its report.
    pub(crate) fn finish_unit(&self, place: usize, report: &Report) {
        let events = report.sources.values().map(|source| source.events).sum();
        let damage = report.damaged_ranges;
        self.change(place, |now| Snapshot { bytes: report.bytes_read, events, damage, ..now });
        self.end_unit(place);
    }

    fn input_bytes(&self, place: usize) -> Option<u64> {
        self.bytes.get(place).copied().flatten()
    }

    fn change(&self, place: usize, to: impl FnOnce(Snapshot) -> Snapshot) {
        let Some(progress) = &self.listener else { return };
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let State { units, all } = &mut *state;
        let Some(unit) = units.get_mut(place) else { return };
        let before = std::mem::replace(unit, to(*unit));
        all.bytes = all.bytes - before.bytes + unit.bytes;
        all.events = all.events - before.events + unit.events;
        all.damage = all.damage - before.damage + unit.damage;
        all.units_done = all.units_done - before.units_done + unit.units_done;
        // Under the lock, so that updates are sequential.
        progress.update(all);
    }
}

/// The listener of one unit.
struct UnitProgress {
    progress: Arc<BatchProgress>,
    place: usize,
    max_bytes: u64,
}

#[deny(clippy::missing_trait_methods)]
impl Progress for UnitProgress {
    fn update(&self, snapshot: &Snapshot) {
        // Compressed input counts as decompressed bytes, which exceed the file length.
        let bytes = match snapshot.total_bytes {
            Some(_) => snapshot.bytes.min(self.max_bytes),
            None if self.max_bytes == u64::MAX => snapshot.bytes,
            None => 0,
        };
        self.progress.change(self.place, |_| Snapshot { bytes, ..*snapshot });
    }

    /// The reports of the units have these.
    fn losses(&self, _: &str, _: &BTreeMap<String, u64>) {}

    fn program_output(&self, node: &str, line: &str) {
        if let Some(progress) = &self.progress.listener {
            progress.program_output(node, line);
        }
    }

    /// The reports of the units have these.
    fn note(&self, _: &str, _: &str, _: u64) {}

    fn milestone(&self, milestone: &Milestone<'_>) {
        self.progress.milestone(milestone);
    }
}
