//! Runs the units of a batch concurrently, as many as memory allows. Concurrency does not change
//! what units write.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, Scope};

use rayon::ThreadPool;
use sluice_io::output::ListedLitter;
use sluice_kit::reading::ReadLimits;
use sluice_model::{Error, ErrorKind, Overwrite, PluginKind, Query, Registry, RunOrigin};

use super::outcome::{UnitKey, UnitOutcome};
use super::progress::BatchProgress;
use super::recorder::BatchRecorder;
use super::unit_record::UnitRecord;
use super::{Batch, FailurePolicy, Unit};
use crate::manifest::{self, RunEnd};
use crate::report::Report;
use crate::run::{self, Milestone, Options, ParentRun};
use crate::spec::{Pipeline, PipelineNode};

/// The memory that every unit takes, however small its input.
const MIN_UNIT_MEMORY: u64 = 16 << 20;
/// The memory that a unit takes per input byte, if it may keep events.
const MEMORY_PER_INPUT_BYTE: u64 = 4;
/// The input for each byte that a sink keeps until the end, such as the index of an archive.
const INPUT_PER_INDEX_BYTE: u64 = 8;
/// The split size for asking a source how much an input holds.
const PROBE_SPLIT: u64 = 2 << 20;

/// Runs the units of a batch.
pub(super) struct UnitScheduler<'b> {
    pub(super) batch: &'b Batch,
    pub(super) registry: &'b Registry,
    pub(super) options: &'b Options,
    pub(super) pool: Arc<ThreadPool>,
    pub(super) recorder: &'b BatchRecorder<'b>,
    pub(super) litter: Arc<ListedLitter>,
}

/// The state of the running batch.
#[derive(Default)]
struct State {
    running: usize,
    /// Bytes reserved by running units.
    reserved: u64,
    has_failed: bool,
    outcomes: Vec<Option<UnitOutcome>>,
    done: Vec<UnitRecord>,
}

/// How a unit came to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Admission {
    AtOnce,
    /// It had to wait for others, perhaps for long.
    Waited,
}

#[derive(Default)]
struct UnitBoard {
    state: Mutex<State>,
    changed: Condvar,
}

impl UnitBoard {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UnitScheduler<'_> {
    /// Runs all units; returns the outcome of each, and the records of those that are done.
    pub(super) fn run(&self) -> (Vec<UnitOutcome>, Vec<UnitRecord>) {
        let board = UnitBoard::default();
        let units = &self.batch.units;
        board.state().outcomes.resize_with(units.len(), || None);
        let bytes = units.iter().map(|unit| unit.input.bytes).collect();
        let progress = Arc::new(BatchProgress::new(bytes, self.options.progress.clone()));
        std::thread::scope(|scope| {
            for (place, unit) in units.iter().enumerate() {
                let pipeline = self.pipeline(unit);
                let need = pipeline.as_ref().map_or(0, |made| self.memory_needed(unit, made));
                let Some(admission) = self.admit(&board, need) else { break };
                // A source that was asked may remember its inputs as they were before.
                let pipeline = Some(pipeline).filter(|_| admission == Admission::AtOnce);
                self.start(scope, (place, unit, pipeline), need, (&board, &progress));
            }
        });
        let state = std::mem::take(&mut *board.state());
        let outcomes = state.outcomes.into_iter().map(|one| one.unwrap_or(UnitOutcome::NotStarted));
        (outcomes.collect(), state.done)
    }

    /// The pipeline of a unit; `Err` if it fails without one.
    fn pipeline(&self, unit: &Unit) -> Result<Pipeline, Error> {
        match &unit.failure {
            Some(failure) => Err(Error::refused(failure)),
            None => self.batch.pipeline(unit, self.registry),
        }
    }

    /// Waits until a unit that needs this much memory can start; `None` if it should not start any
    /// more.
    fn admit(&self, board: &UnitBoard, need: u64) -> Option<Admission> {
        let from_file = self.batch.blueprint.memory;
        let memory = run::memory_cap(self.options, from_file).0;
        let threads = run::thread_count(self.options, from_file);
        let most = if self.batch.writes_stdout() { 1 } else { threads };
        let full = |state: &State| {
            state.running > 0 && (state.running >= most || state.reserved + need > memory)
        };
        let state = board.state();
        let over = |state: &State| state.has_failed && self.batch.failing == FailurePolicy::Stop;
        let mut admission = Admission::AtOnce;
        let waits = |state: &mut State| {
            let waits = full(state) && !over(state);
            if waits {
                admission = Admission::Waited;
            }
            waits
        };
        let waited = board.changed.wait_while(state, waits);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        if over(&state) || self.options.stop.is_requested() {
            return None;
        }
        state.running += 1;
        state.reserved += need;
        Some(admission)
    }

    /// Starts a unit; its pipeline is made then if there is none.
    fn start<'s>(
        &'s self,
        scope: &'s Scope<'s, '_>,
        (place, unit, pipeline): (usize, &'s Unit, Option<Result<Pipeline, Error>>),
        need: u64,
        (board, progress): (&'s UnitBoard, &'s Arc<BatchProgress>),
    ) {
        let work = move || {
            let pipeline = || pipeline.unwrap_or_else(|| self.pipeline(unit));
            let mut known = Report::default();
            let run = || self.run_unit((place, unit), pipeline()?, progress, &mut known);
            let ended = Error::catching(run);
            progress.end_unit(place);
            finish(board, place, need, (ended, known));
        };
        if let Err(error) = Builder::new().name("sluice-unit".into()).spawn_scoped(scope, work) {
            let error = Error::io("start a thread for", &unit.input.path, error);
            finish(board, place, need, (Err(error), Report::default()));
        }
    }

    /// Runs a unit, unless an earlier run has done it. If it fails, `known` gets what is known of
    /// the run.
    fn run_unit(
        &self,
        (place, unit): (usize, &Unit),
        pipeline: Pipeline,
        progress: &Arc<BatchProgress>,
        known: &mut Report,
    ) -> Result<FinishedUnit, Error> {
        if self.options.overwrite == Overwrite::Redo
            && let Some(record) = self.done_before(unit, &pipeline)?
        {
            self.recorder.remove_stale_files(&record)?;
            progress.milestone(&Milestone::InputSkipped { input: &unit.input.path });
            return Ok(FinishedUnit {
                outcome: UnitOutcome::Skipped(record.ended.clone()),
                record: Some(record),
            });
        }
        self.recorder.begin()?;
        let plugins = manifest::plugin_names(&pipeline.nodes);
        let record = Mutex::new(None);
        let announce = |origin: &RunOrigin, ended: &RunEnd, files: &[_]| {
            let outputs = &unit.outputs;
            let made = UnitRecord::from_run(
                origin,
                (&plugins, ended),
                outputs,
                files,
                &self.batch.folder,
            )?;
            self.recorder.append(&made)?;
            *record.lock().unwrap_or_else(PoisonError::into_inner) = Some(made);
            Ok(())
        };
        let pool = Some(Arc::clone(&self.pool));
        let spared = Arc::clone(&self.batch.inputs);
        let litter = Arc::clone(&self.litter);
        let parent = ParentRun {
            pool,
            hash: true,
            spared,
            shared_folders: &unit.shared_folders,
            litter,
            staging: None,
            announce: &announce,
        };
        let options = Options { progress: progress.for_unit(place), ..self.options.clone() };
        let report = run::run_in_parent(pipeline, &options, Some(&parent), known)?;
        let record = record.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some(record) = record.as_ref().filter(|_| options.overwrite != Overwrite::Refuse) {
            self.recorder.remove_stale_files(record)?;
        }
        Ok(FinishedUnit { outcome: UnitOutcome::Done(Box::new(report)), record })
    }

    /// The record of this unit, if an earlier run has done it and its inputs and outputs are
    /// unchanged.
    fn done_before(&self, unit: &Unit, pipeline: &Pipeline) -> Result<Option<UnitRecord>, Error> {
        // Standard output cannot be reused.
        if self.batch.writes_stdout() {
            return Ok(None);
        }
        let memory = run::memory_cap(self.options, pipeline.memory);
        let outputs = self.batch.recorded_outputs(unit)?;
        let key = UnitKey { pipeline, memory, outputs: &outputs };
        let records = self.recorder.previous().with_outputs(&outputs);
        Ok(key.find_done(records, &self.batch.folder).cloned())
    }

    /// The estimated memory of a unit, in bytes.
    fn memory_needed(&self, unit: &Unit, pipeline: &Pipeline) -> u64 {
        let from_file = self.batch.blueprint.memory;
        let memory = run::memory_cap(self.options, from_file).0;
        let held = unit.input.bytes.and_then(|bytes| Some(bytes.max(input_bytes(pipeline)?)));
        let reading = keeps_nothing(pipeline).then(|| {
            let jobs = run::thread_count(self.options, from_file);
            let limits = ReadLimits::new(memory as usize, memory as usize, jobs);
            (limits.memory() + limits.max_lent_bytes) as u64
        });
        expected_memory(held, reading).min(memory)
    }
}

/// The number of bytes to read from a unit's input, if its source knows. A source that fails here
/// fails again when the unit runs, which reports it.
fn input_bytes(pipeline: &Pipeline) -> Option<u64> {
    let sources = pipeline.nodes.iter().filter_map(PipelineNode::source);
    let splits =
        sources.filter_map(|source| source.splits(PROBE_SPLIT, &Query::default()).ok()).flatten();
    splits.map(|split| split.bytes).sum()
}

/// Whether events are written as they are read, by sinks that do not buffer them. What a stage
/// makes of events is not known beforehand, and events of several sources wait for each other.
fn keeps_nothing(pipeline: &Pipeline) -> bool {
    let count = |kind| pipeline.nodes.iter().filter(|node| node.kind == kind).count();
    count(PluginKind::Source) == 1
        && count(PluginKind::Stage) == 0
        && run::holding_sinks(&pipeline.nodes) == 0
}

/// The memory of a unit with this much input, if that is known. `reading` is what reading takes if
/// nothing is kept of the events.
fn expected_memory(input: Option<u64>, reading: Option<u64>) -> u64 {
    // Compressed and unbounded inputs may hold anything.
    let Some(input) = input else { return u64::MAX / 2 };
    let kept = input.saturating_mul(MEMORY_PER_INPUT_BYTE);
    let most = reading.map_or(kept, |reading| kept.min(reading + input / INPUT_PER_INDEX_BYTE));
    most.saturating_add(MIN_UNIT_MEMORY)
}

/// The result of running a unit.
struct FinishedUnit {
    outcome: UnitOutcome,
    record: Option<UnitRecord>,
}

fn finish(
    board: &UnitBoard,
    place: usize,
    need: u64,
    (ended, known): (Result<FinishedUnit, Error>, Report),
) {
    let mut state = board.state();
    state.running -= 1;
    state.reserved -= need;
    let outcome = match ended {
        Ok(FinishedUnit { outcome, record }) => {
            state.done.extend(record);
            outcome
        }
        Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::Aborted) => {
            UnitOutcome::Interrupted(Box::new(known))
        }
        Err(error) => {
            state.has_failed = true;
            UnitOutcome::Failed(error.to_string(), Box::new(known))
        }
    };
    if let Some(place) = state.outcomes.get_mut(place) {
        *place = Some(outcome);
    }
    board.changed.notify_all();
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn units_that_keep_nothing_take_little_of_long_inputs() {
        let long = expected_memory(Some(1000 * MIB), Some(70 * MIB));
        assert_eq!(long, MIN_UNIT_MEMORY + 70 * MIB + 125 * MIB);
        assert_eq!(expected_memory(Some(1000 * MIB), None), MIN_UNIT_MEMORY + 4000 * MIB);
        // Short ones cannot take more than before.
        assert_eq!(expected_memory(Some(MIB), Some(70 * MIB)), MIN_UNIT_MEMORY + 4 * MIB);
        for reading in [None, Some(70 * MIB)] {
            assert!(expected_memory(None, reading) > u64::MAX / 4);
            assert!(expected_memory(Some(u64::MAX), reading) > u64::MAX / 16);
        }
    }
}
