//! How far a batch is: what its units say, put together.

use std::sync::{Arc, Mutex, PoisonError};

use super::Unit;
use crate::run::{Progress, Snapshot};

/// Adds up the units' progress, and tells it on.
pub(super) struct Gauge {
    to: Option<Arc<dyn Progress>>,
    state: Mutex<State>,
}

struct State {
    /// What each unit said last.
    units: Vec<Snapshot>,
    all: Snapshot,
}

impl Gauge {
    /// The gauge of these units.
    pub(super) fn new(units: &[Unit], to: Option<Arc<dyn Progress>>) -> Self {
        let all = Snapshot {
            total_bytes: units.iter().map(|unit| unit.input.bytes).sum(),
            units: units.len() as u64,
            ..Snapshot::default()
        };
        let state = State { units: vec![Snapshot::default(); units.len()], all };
        Self { to, state: Mutex::new(state) }
    }

    /// What one unit tells its progress to.
    pub(super) fn of(self: &Arc<Self>, unit: &Unit) -> Option<Arc<dyn Progress>> {
        self.to.as_ref()?;
        let (index, most) = (unit.index, unit.input.bytes.unwrap_or(u64::MAX));
        Some(Arc::new(OfUnit { gauge: Arc::clone(self), index, most }))
    }

    /// Says that a unit is over, however it ended.
    pub(super) fn end(&self, unit: &Unit) {
        self.change(unit.index, |now| Snapshot {
            bytes: unit.input.bytes.unwrap_or(now.bytes),
            units_done: 1,
            ..now
        });
    }

    fn change(&self, index: usize, to: impl FnOnce(Snapshot) -> Snapshot) {
        let Some(progress) = &self.to else { return };
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let State { units, all } = &mut *state;
        let Some(unit) = units.get_mut(index) else { return };
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
    index: usize,
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
        self.gauge.change(self.index, |_| Snapshot { bytes, ..*snapshot });
    }
}
