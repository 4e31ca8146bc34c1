//! How far a batch is: what its units say, put together.

use std::sync::{Arc, Mutex, PoisonError};

use crate::report::Report;
use crate::run::{Milestone, Progress, Snapshot};

/// Adds up the units' progress, and tells it on.
pub(crate) struct Gauge {
    to: Option<Arc<dyn Progress>>,
    /// How long the input of each unit is, where it has a length.
    bytes: Vec<Option<u64>>,
    state: Mutex<State>,
}

struct State {
    /// What each unit said last.
    units: Vec<Snapshot>,
    all: Snapshot,
}

impl Gauge {
    /// The gauge of units whose inputs are so long.
    pub(crate) fn new(bytes: Vec<Option<u64>>, to: Option<Arc<dyn Progress>>) -> Self {
        let all = Snapshot {
            total_bytes: bytes.iter().copied().sum(),
            units: bytes.len() as u64,
            without_bytes: false,
            ..Snapshot::default()
        };
        let state = State { units: vec![Snapshot::default(); bytes.len()], all };
        Self { to, bytes, state: Mutex::new(state) }
    }

    /// What the unit at this place tells its progress to.
    pub(super) fn of(self: &Arc<Self>, place: usize) -> Option<Arc<dyn Progress>> {
        self.to.as_ref()?;
        let most = self.length(place).unwrap_or(u64::MAX);
        Some(Arc::new(OfUnit { gauge: Arc::clone(self), place, most }))
    }

    /// Says that the unit at this place is over, however it ended.
    pub(super) fn end(&self, place: usize) {
        self.change(place, |now| Snapshot {
            bytes: self.length(place).unwrap_or(now.bytes),
            units_done: 1,
            ..now
        });
    }

    /// Passes on what a unit has come to.
    pub(super) fn milestone(&self, milestone: &Milestone<'_>) {
        if let Some(progress) = &self.to {
            progress.milestone(milestone);
        }
    }

    /// Says that the unit at this place is over, and what came of it, where nothing was told before.
    pub(crate) fn settle(&self, place: usize, report: &Report) {
        let events = report.sources.values().map(|source| source.events).sum();
        let damage = report.damaged_ranges;
        self.change(place, |now| Snapshot { bytes: report.bytes_read, events, damage, ..now });
        self.end(place);
    }

    fn length(&self, place: usize) -> Option<u64> {
        self.bytes.get(place).copied().flatten()
    }

    fn change(&self, place: usize, to: impl FnOnce(Snapshot) -> Snapshot) {
        let Some(progress) = &self.to else { return };
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let State { units, all } = &mut *state;
        let Some(unit) = units.get_mut(place) else { return };
        let before = std::mem::replace(unit, to(*unit));
        all.bytes = all.bytes - before.bytes + unit.bytes;
        all.events = all.events - before.events + unit.events;
        all.damage = all.damage - before.damage + unit.damage;
        all.units_done = all.units_done - before.units_done + unit.units_done;
        // Under the lock, so that one is told at a time.
        progress.update(all);
    }
}

/// What one unit tells its progress to.
struct OfUnit {
    gauge: Arc<Gauge>,
    place: usize,
    most: u64,
}

impl Progress for OfUnit {
    fn update(&self, snapshot: &Snapshot) {
        // Bytes of what is compressed are counted as they are read, and are more than the file has.
        let bytes = match snapshot.total_bytes {
            Some(_) => snapshot.bytes.min(self.most),
            None if self.most == u64::MAX => snapshot.bytes,
            None => 0,
        };
        self.gauge.change(self.place, |_| Snapshot { bytes, ..*snapshot });
    }

    fn milestone(&self, milestone: &Milestone<'_>) {
        self.gauge.milestone(milestone);
    }
}
