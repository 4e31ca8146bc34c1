//! The damage that sources report: what each source's policy does with it, and its totals.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_model::{Damage, Error, ErrorKind, Outputs, RunDamage, RunOrigin};

use super::super::quarantine::{self, Quarantines};
use super::sources::RunningSource;
use crate::spec::OnDamage;

/// The damage of all sources.
pub(super) struct SourceDamage {
    /// Shared with the sinks.
    origin: Arc<RunOrigin>,
    quarantines: Quarantines,
    /// The ranges that are kept, with their sources, in reading order.
    pub(super) kept: Vec<(usize, Arc<Damage>)>,
    /// The number of all ranges.
    pub(super) ranges: u64,
    /// Their bytes, by source.
    pub(super) bytes: BTreeMap<usize, u64>,
}

impl SourceDamage {
    /// `Err` if a quarantine file cannot be written at its path.
    pub(super) fn open(
        sources: &[RunningSource],
        outputs: &Arc<Outputs>,
        origin: &Arc<RunOrigin>,
    ) -> Result<Self, Error> {
        let policies = sources.iter().map(|source| (source.node, &source.damage));
        let quarantines = quarantine::open(policies, outputs)?;
        let (kept, bytes) = (Vec::new(), BTreeMap::new());
        Ok(Self { origin: Arc::clone(origin), quarantines, kept, ranges: 0, bytes })
    }

    /// Adds a range of a source. `Err` if its policy ends the run.
    pub(super) fn add(&mut self, source: &RunningSource, damage: Damage) -> Result<(), Error> {
        let ended = (source.damage == OnDamage::Stop).then(|| damage.to_string());
        if let Some(quarantine) = self.quarantines.get_mut(&source.node) {
            quarantine.add(&damage)?;
        }
        self.ranges += 1;
        *self.bytes.entry(source.node).or_default() += damage.length;
        let damage = Arc::new(Damage { bytes: Vec::new(), ..damage });
        self.origin.damage.add(&damage);
        if self.kept.len() < RunDamage::MAX_RANGES {
            self.kept.push((source.node, damage));
        }
        ended.map_or(Ok(()), |damage| Err(ErrorKind::Damaged(damage).into()))
    }

    /// Completes the quarantine file of a source. Returns a note about that of an earlier run.
    pub(super) fn finish(&mut self, source: &RunningSource) -> Result<Option<String>, Error> {
        self.quarantines.remove(&source.node).map_or(Ok(None), |quarantine| quarantine.finish())
    }
}
