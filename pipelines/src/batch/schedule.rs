//! Runs the units of a batch beside each other, as many as memory allows. Which ones run beside which
//! changes nothing of what they write.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, Scope};

use rayon::ThreadPool;
use sluice_core::output::ListedLitter;
use sluice_core::{Error, ErrorKind, Overwrite, Query, Registry, RunOrigin};

use super::book::Book;
use super::outcome::{Errand, Outcome};
use super::progress::Gauge;
use super::record::UnitRecord;
use super::{Batch, Failing, Unit};
use crate::manifest;
use crate::run::{self, Milestone, Options, Within};
use crate::spec::{Part, Pipeline};

/// What every unit takes, however small its input.
const LEAST_NEED: u64 = 16 << 20;
/// What a unit takes for each byte of its input.
const NEED_PER_BYTE: u64 = 4;
/// The pieces in which an input is asked for to find out how much it holds.
const PIECE: u64 = 2 << 20;

/// Runs the units of a batch.
pub(super) struct Crew<'b> {
    pub(super) batch: &'b Batch,
    pub(super) registry: &'b Registry,
    pub(super) options: &'b Options,
    pub(super) failing: Failing,
    pub(super) pool: Arc<ThreadPool>,
    pub(super) book: &'b Book,
    pub(super) litter: Arc<ListedLitter>,
}

/// What is going on.
#[derive(Default)]
struct State {
    running: usize,
    /// The bytes that running units take.
    taken: u64,
    has_failed: bool,
    outcomes: Vec<Option<Outcome>>,
    done: Vec<UnitRecord>,
}

#[derive(Default)]
struct Board {
    state: Mutex<State>,
    changed: Condvar,
}

impl Board {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Crew<'_> {
    /// Runs them all; gives what became of each, and the records of those that are done.
    pub(super) fn run(&self) -> (Vec<Outcome>, Vec<UnitRecord>) {
        let board = Board::default();
        let units = &self.batch.units;
        board.state().outcomes.resize_with(units.len(), || None);
        let bytes = units.iter().map(|unit| unit.input.bytes).collect();
        let gauge = Arc::new(Gauge::new(bytes, self.options.progress.clone()));
        std::thread::scope(|scope| {
            for (place, unit) in units.iter().enumerate() {
                let need = self.need(unit);
                if !self.admit(&board, need) {
                    break;
                }
                self.start(scope, (place, unit), need, (&board, &gauge));
            }
        });
        let state = std::mem::take(&mut *board.state());
        let outcomes = state.outcomes.into_iter().map(|one| one.unwrap_or(Outcome::NotStarted));
        (outcomes.collect(), state.done)
    }

    /// Waits until a unit that takes this much can run; gives whether it still should.
    fn admit(&self, board: &Board, need: u64) -> bool {
        let memory = run::memory(self.options, self.batch.blueprint.memory).0;
        let most = if self.batch.prints() { 1 } else { run::jobs(self.options) };
        let full = |state: &State| {
            state.running > 0 && (state.running >= most || state.taken + need > memory)
        };
        let state = board.state();
        let over = |state: &State| state.has_failed && self.failing == Failing::Stop;
        let waits = |state: &mut State| full(state) && !over(state);
        let waited = board.changed.wait_while(state, waits);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        if over(&state) || self.options.stop.is_requested() {
            return false;
        }
        state.running += 1;
        state.taken += need;
        true
    }

    fn start<'s>(
        &'s self,
        scope: &'s Scope<'s, '_>,
        (place, unit): (usize, &'s Unit),
        need: u64,
        (board, gauge): (&'s Board, &'s Arc<Gauge>),
    ) {
        let work = move || {
            let ended = catch_unwind(AssertUnwindSafe(|| self.work((place, unit), gauge)));
            let panicked = |_| Err(Error::internal("a unit panicked; what it said is above"));
            gauge.end(place);
            finish(board, place, need, ended.unwrap_or_else(panicked));
        };
        if let Err(error) = Builder::new().name("sluice-unit".into()).spawn_scoped(scope, work) {
            let error = Error::io("start a thread for", &unit.input.path, error);
            finish(board, place, need, Err(error));
        }
    }

    /// Runs a unit, unless it is known to be done.
    fn work(&self, (place, unit): (usize, &Unit), gauge: &Arc<Gauge>) -> Result<Ended, Error> {
        let pipeline = self.batch.pipeline(unit, self.registry)?;
        if self.options.overwrite == Overwrite::Redo
            && let Some(record) = self.done_before(unit, &pipeline)?
        {
            self.book.clear(&record)?;
            gauge.milestone(&Milestone::InputSkipped { input: &unit.input.path });
            return Ok(Ended { outcome: Outcome::Skipped(record.exit), record: Some(record) });
        }
        self.book.begin()?;
        let plugins = manifest::plugins(&pipeline.nodes);
        let record = Mutex::new(None);
        let announce = |origin: &RunOrigin, ended, files: &[_]| {
            let outputs = &unit.outputs;
            let made =
                UnitRecord::of(origin, (&plugins, ended), outputs, files, &self.batch.folder)?;
            self.book.note(&made)?;
            *record.lock().unwrap_or_else(PoisonError::into_inner) = Some(made);
            Ok(())
        };
        let pool = Some(Arc::clone(&self.pool));
        let spared = Arc::clone(&self.batch.inputs);
        let litter = Arc::clone(&self.litter);
        let within =
            Within { pool, hash: true, spared, litter, staging: None, announce: &announce };
        let options = Options { progress: gauge.of(place), ..self.options.clone() };
        let report = run::run_within(pipeline, &options, Some(&within))?;
        let record = record.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some(record) = record.as_ref().filter(|_| options.overwrite != Overwrite::Refuse) {
            self.book.clear(record)?;
        }
        Ok(Ended { outcome: Outcome::Done(Box::new(report)), record })
    }

    /// The record of a unit that has been done, and whose inputs and outputs are what they were.
    fn done_before(&self, unit: &Unit, pipeline: &Pipeline) -> Result<Option<UnitRecord>, Error> {
        // What went to standard output is gone.
        if self.batch.prints() {
            return Ok(None);
        }
        let memory = run::memory(self.options, pipeline.memory);
        let outputs = self.batch.recorded_outputs(unit)?;
        let errand = Errand { pipeline, memory, input: &unit.input, outputs: &outputs };
        let records = self.book.before().of(&outputs);
        Ok(errand.settled(records, &self.batch.folder).cloned())
    }

    /// How many bytes a unit is likely to take.
    fn need(&self, unit: &Unit) -> u64 {
        let held = unit.input.bytes.and_then(|bytes| Some(bytes.max(self.held(unit)?)));
        // What is compressed, and what has no length, may hold anything.
        held.map_or(u64::MAX / 2, |held| LEAST_NEED.saturating_add(NEED_PER_BYTE * held))
            .min(run::memory(self.options, self.batch.blueprint.memory).0)
    }

    /// How many bytes there are to read in a unit's input, if its source can tell.
    fn held(&self, unit: &Unit) -> Option<u64> {
        let Ok(pipeline) = self.batch.pipeline(unit, self.registry) else { return Some(0) };
        let sources = pipeline.nodes.iter().filter_map(|node| match &node.part {
            Part::Source(source) => Some(source.splits(PIECE, &Query::default())),
            _ => None,
        });
        // What cannot be looked at will not be read either: running it says why.
        let splits = sources.filter_map(Result::ok).flatten();
        splits.map(|split| split.bytes).sum()
    }
}

/// What running a unit gave.
struct Ended {
    outcome: Outcome,
    record: Option<UnitRecord>,
}

fn finish(board: &Board, place: usize, need: u64, ended: Result<Ended, Error>) {
    let mut state = board.state();
    state.running -= 1;
    state.taken -= need;
    let outcome = match ended {
        Ok(Ended { outcome, record }) => {
            state.done.extend(record);
            outcome
        }
        Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::Aborted) => {
            Outcome::Interrupted
        }
        Err(error) => {
            state.has_failed = true;
            Outcome::Failed(error.to_string())
        }
    };
    if let Some(place) = state.outcomes.get_mut(place) {
        *place = Some(outcome);
    }
    board.changed.notify_all();
}
