//! Which units a batch begins and which it leaves over, as its journal and its record list them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use sluice_model::{Error, Overwrite, Registry};

use super::journal_record::UnfinishedUnit;
use super::outcome::{UnitKey, UnitOutcome};
use super::record::BatchRecord;
use super::unit_record::{Status, UnitRecord};
use super::{Batch, Unit};
use crate::manifest::VERSION;
use crate::resolved;
use crate::run::{self, Options};

impl Batch {
    /// The units that the batch begins, as its journal lists them: all but those that a resumed
    /// batch finds done, as far as the records tell.
    pub(super) fn begun(
        &self,
        previous: &BatchRecord,
        (registry, options): (&Registry, &Options),
    ) -> Result<Vec<UnfinishedUnit>, Error> {
        let known = self.records_to_reuse(previous, options);
        let left: BTreeSet<&[PathBuf]> = previous.left.iter().map(|unit| &*unit.outputs).collect();
        let mut begun = Vec::new();
        for unit in &self.units {
            let outputs = self.recorded_outputs(unit)?;
            let records = known.get(&*outputs).filter(|_| !left.contains(&*outputs));
            if !records.is_some_and(|records| self.has_run(unit, records, (registry, options))) {
                let (input, status) = (unit.input.path.clone(), Status::Interrupted);
                begun.push(UnfinishedUnit { input, outputs, status, error: None });
            }
        }
        Ok(begun)
    }

    /// The records of units that this batch may find done, by their outputs, latest first.
    fn records_to_reuse<'r>(
        &self,
        previous: &'r BatchRecord,
        options: &Options,
    ) -> BTreeMap<&'r [PathBuf], Vec<&'r UnitRecord>> {
        let mut known = BTreeMap::<&[PathBuf], Vec<&UnitRecord>>::new();
        if options.overwrite == Overwrite::Redo && !self.writes_stdout() {
            previous.latest_first().for_each(|unit| {
                known.entry(&unit.outputs).or_default().push(unit);
            });
        }
        known
    }

    /// Whether one of these records is of a run of this unit's pipeline.
    fn has_run(
        &self,
        unit: &Unit,
        records: &[&UnitRecord],
        (registry, options): (&Registry, &Options),
    ) -> bool {
        let Ok(pipeline) = self.pipeline(unit, registry) else { return false };
        let text = resolved::text(&pipeline, run::memory_cap(options, pipeline.memory));
        records.iter().any(|record| record.pipeline == text && record.sluice == VERSION)
    }

    /// The units without outputs, as the record lists them, and the records of those that a resumed
    /// batch did not come to, and that were done before.
    pub(super) fn left_over(
        &self,
        outcomes: &[UnitOutcome],
        run: (&Registry, &Options),
        previous: &BatchRecord,
    ) -> Result<(Vec<UnfinishedUnit>, Vec<UnitRecord>), Error> {
        let known = self.records_to_reuse(previous, run.1);
        let (mut left, mut unreached) = (Vec::new(), Vec::new());
        for (unit, outcome) in self.units.iter().zip(outcomes) {
            let (status, error) = match outcome {
                UnitOutcome::Done(_) | UnitOutcome::Skipped(_) => continue,
                UnitOutcome::Failed(error, _) => (Status::Failed, Some(error.clone())),
                UnitOutcome::Interrupted(_) => (Status::Interrupted, None),
                UnitOutcome::NotStarted => (Status::NotStarted, None),
            };
            let (input, outputs) = (unit.input.path.clone(), self.recorded_outputs(unit)?);
            // An input that was being compared may have changed.
            let records = known.get(&*outputs).filter(|_| status == Status::NotStarted);
            match records.and_then(|records| self.find_done((unit, &outputs), records, run)) {
                Some(record) => unreached.push(record),
                None => left.push(UnfinishedUnit { input, outputs, status, error }),
            }
        }
        Ok((left, unreached))
    }

    /// The one of these records that says that a unit is done. Reads neither inputs nor outputs.
    fn find_done(
        &self,
        (unit, outputs): (&Unit, &[PathBuf]),
        records: &[&UnitRecord],
        (registry, options): (&Registry, &Options),
    ) -> Option<UnitRecord> {
        let pipeline = self.pipeline(unit, registry).ok()?;
        let memory = run::memory_cap(options, pipeline.memory);
        let key = UnitKey { pipeline: &pipeline, memory, outputs };
        key.find_by_length(records.iter().copied(), &self.folder).cloned()
    }
}
