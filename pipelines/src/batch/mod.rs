//! Batches: a pipeline whose output paths depend on the input runs once per input.
//!
//! Every input, with the outputs named after it, is a *unit*. Units are independent: each writes
//! exactly what running the pipeline on its input alone would write.

mod exact_json;
mod journal;
mod journal_record;
mod merge;
mod outcome;
mod progress;
mod record;
mod recorder;
mod resumed;
mod schedule;
mod shard;
pub(crate) mod template;
mod unfinished;
mod unit_record;
mod units;

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;
use serde_json::Value;
use sluice_io::escape::path_text;
use sluice_io::files::{self, FileIdentity, is_special};
use sluice_io::output::{MANIFEST, is_used, sweep};
use sluice_io::store::is_address;
use sluice_model::{Error, Overwrite, Registry};

use crate::dispatch::exchange::remove_abandoned;
use crate::manifest::{RunEnd, is_false};
use crate::report::{Note, Report};
use crate::run::{self, Options, Stop};
use crate::spec::Pipeline;
pub use journal::JOURNAL;
pub use journal_record::{JournalRecord, UnfinishedUnit};
pub use merge::{FileCheck, MergeOutcome, merge};
pub(crate) use outcome::{UnitKey, UnitOutcome};
pub(crate) use progress::BatchProgress;
pub use record::BatchRecord;
pub(crate) use recorder::BatchRecorder;
pub use shard::Shard;
pub(crate) use unit_record::{PlannedRun, RecordedRun, recorded_paths as recorded_outputs};
pub use unit_record::{Status, UnitRecord, actual_path};
pub use units::Unit;
pub(crate) use units::{Blueprint, FilledSlot};

use shard::ShardHeader;

/// What happens to the other units when one fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FailurePolicy {
    /// Running units finish; no further unit is started.
    #[default]
    Stop,
    /// All units run.
    Continue,
}

/// A pipeline and the units it runs for.
#[derive(Debug)]
pub struct Batch {
    /// The units, in the order of the inputs.
    pub units: Vec<Unit>,
    /// The folder that holds the record.
    pub folder: PathBuf,
    pub(crate) blueprint: Blueprint,
    /// Every file that any unit reads; no unit may replace or remove one.
    pub(crate) inputs: Arc<BTreeSet<FileIdentity>>,
    failing: FailurePolicy,
    /// The shard to run, if the batch is sharded.
    shard: Option<ShardHeader>,
}

/// The outcome of a unit.
#[derive(Clone, Debug, Serialize)]
pub struct UnitReport {
    /// The input.
    #[serde(serialize_with = "sluice_io::escape::path_as_text")]
    pub input: PathBuf,
    /// How it ended.
    pub status: Status,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The exit code of a run for this input only; `None` if the unit was not started.
    pub exit: Option<u8>,
    /// Whether there were losses, which exit code 4 does not tell.
    #[serde(skip_serializing_if = "is_false")]
    pub losses: bool,
}

/// What a batch did.
#[derive(Debug)]
pub struct BatchReport {
    /// The merged report of all units that are done; skipped units are not included.
    pub report: Report,
    /// What is known of the runs of units that failed or were interrupted.
    known: Report,
    /// The outcome of each unit, in input order.
    pub units: Vec<UnitReport>,
    /// The exit code of an interrupted batch, if units are left over.
    interrupted_exit: Option<u8>,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Done => "done",
            Self::Skipped => "done before",
            Self::Failed => "failed",
            Self::Interrupted => "interrupted",
            Self::NotStarted => "not started",
        })
    }
}

impl BatchReport {
    /// The number of units with this status.
    pub fn count(&self, status: Status) -> usize {
        self.units.iter().filter(|unit| unit.status == status).count()
    }

    /// The exit code: that of the signal if the batch was interrupted, 1 if a unit failed, 4 if
    /// expectations are not met, 3 if there were losses, otherwise 0.
    pub fn exit(&self) -> u8 {
        if let Some(exit) = self.interrupted_exit {
            return exit;
        }
        let failed = self.count(Status::Failed) > 0;
        let has_unmet = self.units.iter().any(|unit| unit.exit == Some(4));
        let complete = self.units.iter().all(|unit| unit.exit == Some(0));
        match (failed, has_unmet, complete) {
            (true, ..) => 1,
            (false, true, _) => 4,
            (false, false, false) => 3,
            (false, false, true) => 0,
        }
    }

    /// Whether the batch was interrupted with units left over.
    pub fn is_interrupted(&self) -> bool {
        self.interrupted_exit.is_some()
    }

    /// The report as `--report` writes it: that of a run, plus `units`. Of units that failed it has
    /// what is known.
    pub fn to_json(&self) -> Value {
        let mut all = self.report.clone();
        all.add(self.known.clone());
        let mut value = all.to_json();
        if let Some(fields) = value.as_object_mut() {
            fields.insert("units".into(), serde_json::to_value(&self.units).unwrap_or_default());
            fields.insert("exit".into(), self.exit().into());
            let interrupted = self.report.interrupted || self.is_interrupted();
            fields.insert("interrupted".into(), interrupted.into());
            fields.extend(self.error().map(|error| ("error".into(), error.into())));
        }
        value
    }

    /// Why the batch is not done: the first failure, or that it was interrupted.
    fn error(&self) -> Option<String> {
        if let Some(failed) = self.units.iter().find(|unit| unit.status == Status::Failed) {
            let (input, error) = (path_text(&failed.input), failed.error.as_deref());
            return Some(format!("{input} failed: {}", error.unwrap_or_default()));
        }
        self.is_interrupted().then(|| "interrupted with inputs left".to_owned())
    }
}

impl Batch {
    /// Finds the units of a pipeline whose outputs have placeholders. Reads names, lengths, and
    /// files that list other files; reads no log.
    ///
    /// `Err` if two units share an output, if an output is also an input, or if an input is
    /// missing, unless it is to fail alone.
    pub fn new(
        pipeline: &Pipeline,
        registry: &Registry,
        failing: FailurePolicy,
    ) -> Result<Self, Error> {
        let blueprint = Blueprint::from_pipeline(pipeline);
        let units = units::batch_units(pipeline, &blueprint, registry, failing)?;
        let folder = units::record_folder(pipeline);
        let in_store = units.iter().flat_map(|unit| &unit.outputs).any(|path| is_address(path));
        if in_store && folder.as_os_str().as_encoded_bytes().ends_with(b":/") {
            return Err(Error::refused(
                "the bucket of an output cannot come from a placeholder; name it, and put \
                 placeholders into the key",
            ));
        }
        let inputs = Arc::new(units::identities(pipeline, &units, registry));
        Ok(Self { units, folder, blueprint, inputs, failing, shard: None })
    }

    /// Restricts the batch to one shard. Shards may run at the same time in one shared folder, and
    /// keep separate records; see [`merge`].
    pub fn shard(
        mut self,
        shard: Shard,
        pipeline: &Pipeline,
        options: &Options,
    ) -> Result<Self, Error> {
        let memory = run::memory_cap(options, pipeline.memory);
        let mut hasher = blake3::Hasher::new();
        hasher.update(crate::resolved::text(pipeline, memory).as_bytes());
        for unit in &self.units {
            for path in std::iter::once(&unit.input.path).chain(&unit.outputs) {
                hasher.update(path.as_os_str().as_encoded_bytes()).update(&[0]);
            }
        }
        let outputs = self.units.iter().map(|unit| self.recorded_outputs(unit));
        let outputs = outputs.collect::<Result<Vec<_>, _>>()?.concat();
        let (inputs, mut place) = (self.units.len(), 0);
        self.units.retain(|_| {
            place += 1;
            shard.contains(place - 1)
        });
        let batch = hasher.finalize().to_hex().to_string();
        self.shard = Some(ShardHeader { shard, batch, inputs, outputs });
        Ok(self)
    }

    /// The pipeline of one unit.
    pub fn pipeline(&self, unit: &Unit, registry: &Registry) -> Result<Pipeline, Error> {
        self.blueprint.pipeline(&unit.input.path, unit.index, registry)
    }

    /// Runs every unit; with [`Overwrite::Redo`], only those that are not done.
    ///
    /// Units run concurrently on one thread pool, as far as memory allows. `Err` means that no unit
    /// ran or that the record could not be written; the outcome of each unit is in the report.
    pub fn run(&self, registry: &Registry, options: &Options) -> Result<BatchReport, Error> {
        let pool = run::start_pool(run::thread_count(options, self.blueprint.memory))?;
        self.run_recorded(registry, options, |recorder| {
            let litter = Arc::default();
            let scheduler =
                schedule::UnitScheduler { batch: self, registry, options, pool, recorder, litter };
            Ok(scheduler.run())
        })
    }

    /// Opens the record, lets `run` run the units, and closes the record. `run` returns the outcome
    /// of each unit and the records of those that are done.
    ///
    /// If `run` returns `Err`, nothing was done and the record is left as it was.
    pub(crate) fn run_recorded(
        &self,
        registry: &Registry,
        options: &Options,
        run: impl FnOnce(&BatchRecorder<'_>) -> Result<(Vec<UnitOutcome>, Vec<UnitRecord>), Error>,
    ) -> Result<BatchReport, Error> {
        let started = Instant::now();
        let (mut known, error) = match self.run_and_record(registry, options, run, started) {
            Ok((report, Ok(()))) => return Ok(report),
            Ok((report, Err(error))) => (report.report, error),
            Err(error) => (Report::default(), error),
        };
        known.seconds = started.elapsed().as_secs_f64();
        options.report_failure(&known);
        Err(error)
    }

    /// Returns the report, and whether the record could be written. `Err` means that no unit ran.
    fn run_and_record(
        &self,
        registry: &Registry,
        options: &Options,
        run: impl FnOnce(&BatchRecorder<'_>) -> Result<(Vec<UnitOutcome>, Vec<UnitRecord>), Error>,
        started: Instant,
    ) -> Result<(BatchReport, Result<(), Error>), Error> {
        if let Some(pipeline) = self.any_pipeline(registry)? {
            run::check_programs_allowed(&pipeline, options)?;
        }
        if options.overwrite == Overwrite::Refuse {
            self.refuse_existing(&BatchRecord::to_continue(&self.folder)?)?;
        }
        let mut recorder = BatchRecorder::open(&self.folder, self.shard.clone())?
            .with_inputs(Arc::clone(&self.inputs))
            .with_begun(|previous| self.begun(previous, (registry, options)));
        let outputs = self.units.iter().map(|unit| self.recorded_outputs(unit));
        let outputs: Vec<Vec<PathBuf>> = outputs.collect::<Result<_, _>>()?;
        let BatchRecord { shards, units, .. } = recorder.previous();
        let forgotten = shard::forgotten_shards(shards, units, &outputs);
        let forgotten = forgotten.filter(|_| self.shard.is_none());
        if options.overwrite != Overwrite::Refuse {
            recorder.remove_partial_units(&outputs.concat())?;
        }
        let (outcomes, mut done) = match run(&recorder) {
            Ok(ran) => ran,
            Err(error) => {
                recorder.abandon();
                return Err(error);
            }
        };
        let left = self.left_over(&outcomes, (registry, options), recorder.previous());
        let recorded = left.and_then(|(left, unreached)| {
            done.extend(unreached);
            let closed = recorder.close(done, left);
            closed.map_err(|error| {
                error.with_detail(
                    "outputs that are complete stay, but their record is not; the same command \
                     with --resume completes it",
                )
            })
        });
        if recorded.is_ok() {
            // Left behind by cluster runs whose driver was killed.
            remove_abandoned(&self.folder);
            // Other shards may be running, and their files look like those of killed runs.
            if options.overwrite == Overwrite::Redo && self.shard.is_none() {
                self.sweep(&outcomes);
            }
        }
        let mut report = self.report(outcomes, &options.stop, started);
        let note = |what| Note { node: "shards".to_owned(), what, count: 0 };
        report.report.notes.extend(forgotten.map(note));
        Ok((report, recorded))
    }

    /// The pipeline of any of its units, all of which have the same nodes. Those of inputs whose
    /// names are not text have none.
    pub(crate) fn any_pipeline(&self, registry: &Registry) -> Result<Option<Pipeline>, Error> {
        let unit = self.units.iter().find(|unit| unit.input.path.to_str().is_some());
        unit.map(|unit| self.pipeline(unit, registry)).transpose()
    }

    /// A unit's outputs, as its record names them.
    pub(crate) fn recorded_outputs(&self, unit: &Unit) -> Result<Vec<PathBuf>, Error> {
        recorded_outputs(&unit.outputs, &self.folder)
    }

    /// Whether a sink writes to standard output; units then run one after another, in order.
    pub(crate) fn writes_stdout(&self) -> bool {
        self.blueprint.writes_stdout()
    }

    /// The report for these outcomes.
    fn report(&self, outcomes: Vec<UnitOutcome>, stop: &Stop, started: Instant) -> BatchReport {
        let (mut report, mut known) = (Report::default(), Report::default());
        let mut units = Vec::new();
        let mut skipped = Vec::new();
        let is_left = |outcome: &UnitOutcome| {
            matches!(outcome, UnitOutcome::Interrupted(_) | UnitOutcome::NotStarted)
        };
        let given_up = (stop.is_requested() && outcomes.iter().any(is_left)).then(|| stop.exit());
        for (unit, outcome) in self.units.iter().zip(outcomes) {
            let ended = match &outcome {
                UnitOutcome::Done(done) => RunEnd::from_report(done),
                UnitOutcome::Skipped(ended) => ended.clone(),
                _ => RunEnd::default(),
            };
            let (status, error, exit) = match outcome {
                UnitOutcome::Done(done) => {
                    report.add(*done);
                    (Status::Done, None, Some(ended.exit))
                }
                UnitOutcome::Skipped(ended) => {
                    skipped.push(ended.unmatched);
                    (Status::Skipped, None, Some(ended.exit))
                }
                UnitOutcome::Failed(error, partial) => {
                    known.add(*partial);
                    (Status::Failed, Some(error), Some(1))
                }
                UnitOutcome::Interrupted(partial) => {
                    known.add(*partial);
                    (Status::Interrupted, None, Some(stop.exit()))
                }
                UnitOutcome::NotStarted => (Status::NotStarted, None, None),
            };
            let (input, losses) = (unit.input.path.clone(), ended.losses);
            units.push(UnitReport { input, status, error, exit, losses });
        }
        report.add_unmatched(skipped);
        report.seconds = started.elapsed().as_secs_f64();
        BatchReport { report, known, units, interrupted_exit: given_up }
    }

    fn refuse_existing(&self, record: &BatchRecord) -> Result<(), Error> {
        let mut folders = self.blueprint.output_folders();
        folders.insert(self.folder.clone());
        let there = ExistingOutputs::list(folders)?;
        for unit in &self.units {
            let known = self.recorded_outputs(unit)?;
            let files = record.with_outputs(&known).flat_map(|unit| &unit.files);
            let files = files.map(|file| actual_path(&self.folder, &file.path));
            let outputs = unit.outputs.iter().filter(|output| there.output_exists(output)).cloned();
            let found = outputs.chain(files.filter(|path| there.exists(path))).next();
            if let Some(found) = found {
                return Err(Error::refused(format!(
                    "the output exists; --resume completes what is missing, --overwrite replaces \
                     everything: {}",
                    found.display()
                )));
            }
        }
        Ok(())
    }

    /// Removes temporary files of killed runs next to the outputs of finished units.
    fn sweep(&self, outcomes: &[UnitOutcome]) {
        let done = self.units.iter().zip(outcomes).filter(|(_, outcome)| outcome.is_done());
        let outputs: BTreeSet<&Path> =
            done.flat_map(|(unit, _)| &unit.outputs).map(PathBuf::as_path).collect();
        sweep(outputs);
    }
}

/// The existing outputs of a batch: queried one by one on disk, listed once in object stores.
#[derive(Default)]
struct ExistingOutputs {
    /// The folders in stores that have been listed.
    folders: Vec<PathBuf>,
    objects: BTreeSet<PathBuf>,
}

impl ExistingOutputs {
    fn list(folders: impl IntoIterator<Item = PathBuf>) -> Result<Self, Error> {
        let mut there = Self::default();
        for folder in folders {
            let is_listed = there.folders.iter().any(|listed| folder.starts_with(listed));
            if !is_listed && let Some(objects) = files::objects_below(&folder)? {
                there.objects.extend(objects.into_iter().map(|object| object.path));
                there.folders.push(folder);
            }
        }
        Ok(there)
    }

    fn output_exists(&self, output: &Path) -> bool {
        if is_address(output) { self.exists(output) } else { output_exists(output) }
    }

    /// Whether the path exists, as a file or as a prefix.
    fn exists(&self, path: &Path) -> bool {
        if self.folders.iter().any(|folder| path.starts_with(folder)) {
            let mut next = self.objects.range(path.to_owned()..);
            return next.next().is_some_and(|next| next.starts_with(path));
        }
        if is_address(path) { files::exists(path) } else { path.exists() }
    }
}

/// Whether a unit would have to replace something at this path.
pub fn output_exists(output: &Path) -> bool {
    if output.is_dir() {
        return is_used(output);
    }
    output.exists() && !is_special(output)
}

/// Whether this path names a record of a batch: manifest, journal or shard record.
pub fn is_batch_record(path: &Path) -> bool {
    path.file_name().is_some_and(|name| {
        name == MANIFEST || name == JOURNAL || name.to_str().is_some_and(shard::is_shard_record)
    })
}
