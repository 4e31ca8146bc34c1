//! Batches: a pipeline whose outputs are named after its inputs, run for each of them by itself.
//!
//! Every input is a *unit*, with the outputs that are named after it. Units know nothing of each other:
//! what each one writes is what running the pipeline for its input alone would write.

mod book;
mod journal;
mod outcome;
mod plain;
mod progress;
mod record;
mod schedule;
mod shard;
pub(crate) mod template;
mod units;

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sluice_core::files::{self, FileIdentity, is_special};
use sluice_core::output::{MANIFEST, is_used, sweep};
use sluice_core::store::is_address;
use sluice_core::{Error, Input, Overwrite, Registry};

use crate::dispatch::remove_deserted;
use crate::report::Report;
use crate::run::{self, Options, Stop};
use crate::spec::Pipeline;
pub(crate) use book::Book;
pub(crate) use outcome::{Errand, Outcome};
pub(crate) use progress::Gauge;
pub(crate) use record::{Claim, Due, relative_all as recorded_outputs};
pub use record::{JOURNAL, Record, UnitLeft, UnitRecord};
pub use shard::{Looking, Merged, Shard, merge};
pub(crate) use units::{Blueprint, Fill};

use shard::Heading;

/// What becomes of the other units when one has failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Failing {
    /// Those that run are run to their end; no other one is begun.
    #[default]
    Stop,
    /// All are run.
    GoOn,
}

/// A pipeline and the units it is run for.
#[derive(Debug)]
pub struct Batch {
    /// The units, in the order of the inputs.
    pub units: Vec<Unit>,
    /// The folder that has the record.
    pub folder: PathBuf,
    pub(crate) blueprint: Blueprint,
    /// Every file that a unit reads: none may be replaced or removed by another one.
    pub(crate) inputs: Arc<BTreeSet<FileIdentity>>,
    /// What it is a part of, if it is one.
    part: Option<Heading>,
}

/// One input, and what is written of it.
#[derive(Clone, Debug)]
pub struct Unit {
    /// The input.
    pub input: Input,
    /// The files and folders that are named after it.
    pub outputs: Vec<PathBuf>,
    /// Its place among the inputs.
    pub index: usize,
}

/// What became of a unit.
#[derive(Clone, Debug, Serialize)]
pub struct UnitReport {
    /// The input.
    pub input: PathBuf,
    /// How it ended.
    pub status: Status,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The exit code that a run for this input alone would have had; nothing if it was not started.
    pub exit: Option<u8>,
}

/// How a unit ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// It was run.
    Done,
    /// An earlier run had done it.
    Skipped,
    /// It was run and failed, and published nothing.
    Failed,
    /// It was given up, as the batch was asked to end, and published nothing.
    Interrupted,
    /// It was not run.
    #[serde(rename = "not started")]
    NotStarted,
}

/// What a batch did.
#[derive(Debug)]
pub struct BatchReport {
    /// What its units did, put together. Has nothing of those that were skipped.
    pub report: Report,
    /// What became of each unit, in the order of the inputs.
    pub units: Vec<UnitReport>,
    /// The exit code that says so, if it was asked to end and units are left over.
    given_up: Option<u8>,
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
    /// How many units ended so.
    pub fn count(&self, status: Status) -> usize {
        self.units.iter().filter(|unit| unit.status == status).count()
    }

    /// The exit code: that of the signal if it left units over, 1 if a unit failed, 3 if there were losses.
    pub fn exit(&self) -> u8 {
        if let Some(exit) = self.given_up {
            return exit;
        }
        let failed = self.count(Status::Failed) > 0;
        let complete = self.units.iter().all(|unit| unit.exit == Some(0));
        match (failed, complete) {
            (true, _) => 1,
            (false, false) => 3,
            (false, true) => 0,
        }
    }

    /// Whether it was asked to end, and units are left over.
    pub fn is_given_up(&self) -> bool {
        self.given_up.is_some()
    }

    /// The report as `--report` writes it: that of a run, and `units`.
    pub fn to_json(&self) -> Value {
        let mut value = self.report.to_json();
        if let Some(fields) = value.as_object_mut() {
            fields.insert("units".into(), serde_json::to_value(&self.units).unwrap_or_default());
            fields.insert("exit".into(), self.exit().into());
        }
        value
    }
}

impl Batch {
    /// The units of a pipeline that has templates. Looks at names and lengths, and at files that name others.
    ///
    /// `Err` if two units would write to one place, or one to an input.
    pub fn of(pipeline: &Pipeline, registry: &Registry) -> Result<Self, Error> {
        let blueprint = Blueprint::of(pipeline);
        let units = units::all(pipeline, &blueprint, registry)?;
        let folder = units::folder(pipeline);
        let in_store = units.iter().flat_map(|unit| &unit.outputs).any(|path| is_address(path));
        if in_store && folder.as_os_str().as_encoded_bytes().ends_with(b":/") {
            return Err(Error::refused(
                "the bucket of an output cannot come from a placeholder; name it, and put placeholders \
                 into the key",
            ));
        }
        let inputs = Arc::new(units::identities(pipeline, &units));
        Ok(Self { units, folder, blueprint, inputs, part: None })
    }

    /// A part of the batch of this pipeline: some of its units. Parts may be run at the same time, in one folder that all
    /// see, and have records of their own: see [`merge`].
    pub fn shard(mut self, shard: Shard, pipeline: &Pipeline, options: &Options) -> Self {
        let memory = run::memory(options, pipeline.memory);
        let mut hasher = blake3::Hasher::new();
        hasher.update(crate::resolved::text(pipeline, memory).as_bytes());
        for unit in &self.units {
            for path in std::iter::once(&unit.input.path).chain(&unit.outputs) {
                hasher.update(path.as_os_str().as_encoded_bytes()).update(&[0]);
            }
        }
        let (inputs, mut place) = (self.units.len(), 0);
        self.units.retain(|_| {
            place += 1;
            shard.has(place - 1)
        });
        let batch = hasher.finalize().to_hex().to_string();
        self.part = Some(Heading { shard, batch, inputs, due: Vec::new() });
        self
    }

    /// What its record is headed with, if it is a part of a batch.
    fn heading(&self) -> Result<Option<Heading>, Error> {
        let Some(part) = &self.part else { return Ok(None) };
        let due = self
            .units
            .iter()
            .map(|unit| Ok((unit.input.path.clone(), self.recorded_outputs(unit)?)));
        Ok(Some(Heading { due: due.collect::<Result<_, Error>>()?, ..part.clone() }))
    }

    /// The pipeline of one unit.
    pub fn pipeline(&self, unit: &Unit, registry: &Registry) -> Result<Pipeline, Error> {
        self.blueprint.pipeline(&unit.input.path, unit.index, registry)
    }

    /// Runs every unit; with [`Overwrite::Redo`] those that are not done.
    ///
    /// Units run beside each other, on the same threads, as far as memory allows. `Err` means that none
    /// was run, or that the record could not be written; what became of each is in the report.
    pub fn run(
        &self,
        registry: &Registry,
        options: &Options,
        failing: Failing,
    ) -> Result<BatchReport, Error> {
        let pool = run::start_pool(run::jobs(options))?;
        self.recorded(registry, options, |book| {
            let litter = Arc::default();
            let crew =
                schedule::Crew { batch: self, registry, options, failing, pool, book, litter };
            Ok(crew.run())
        })
    }

    /// Has the units run, beside the record of them: gives what became of each, and the records of those that are
    /// done.
    ///
    /// `Err` of `run` means that nothing was done.
    pub(crate) fn recorded(
        &self,
        registry: &Registry,
        options: &Options,
        run: impl FnOnce(&Book) -> Result<(Vec<Outcome>, Vec<UnitRecord>), Error>,
    ) -> Result<BatchReport, Error> {
        let started = Instant::now();
        if let Some(unit) = self.units.first() {
            run::allowed(&self.pipeline(unit, registry)?, options)?;
        }
        if options.overwrite == Overwrite::Refuse {
            self.refuse_existing(&Record::to_continue(&self.folder)?)?;
        }
        let book = Book::open(&self.folder, self.heading()?)?.sparing(Arc::clone(&self.inputs));
        let (outcomes, done) = match run(&book) {
            Ok(ran) => ran,
            Err(error) => {
                book.abandon();
                return Err(error);
            }
        };
        book.close(done, self.left_of(&outcomes)?)?;
        // Of runs on a cluster whose drivers were killed.
        remove_deserted(&self.folder);
        // Beside a part others may be running, whose files cannot always be told from those of killed runs.
        if options.overwrite == Overwrite::Redo && self.part.is_none() {
            self.sweep(&outcomes);
        }
        Ok(self.report(outcomes, &options.stop, started))
    }

    /// The units of which nothing was made, as the record names them.
    fn left_of(&self, outcomes: &[Outcome]) -> Result<Vec<UnitLeft>, Error> {
        let mut left = Vec::new();
        for (unit, outcome) in self.units.iter().zip(outcomes) {
            let (status, error) = match outcome {
                Outcome::Done(_) | Outcome::Skipped(_) => continue,
                Outcome::Failed(error) => (Status::Failed, Some(error.clone())),
                Outcome::Interrupted => (Status::Interrupted, None),
                Outcome::NotStarted => (Status::NotStarted, None),
            };
            let (input, outputs) = (unit.input.path.clone(), self.recorded_outputs(unit)?);
            left.push(UnitLeft { input, outputs, status, error });
        }
        Ok(left)
    }

    /// What a unit is to write, as its record names it.
    pub(crate) fn recorded_outputs(&self, unit: &Unit) -> Result<Vec<PathBuf>, Error> {
        recorded_outputs(&unit.outputs, &self.folder)
    }

    /// Whether a sink writes to standard output: units then come one after another, in order.
    pub(crate) fn prints(&self) -> bool {
        self.blueprint.prints()
    }

    /// The report of units that came to this.
    fn report(&self, outcomes: Vec<Outcome>, stop: &Stop, started: Instant) -> BatchReport {
        let (mut report, mut units) = (Report::default(), Vec::new());
        let is_left =
            |outcome: &Outcome| matches!(outcome, Outcome::Interrupted | Outcome::NotStarted);
        let given_up = (stop.is_requested() && outcomes.iter().any(is_left)).then(|| stop.exit());
        for (unit, outcome) in self.units.iter().zip(outcomes) {
            let (status, error, exit) = match outcome {
                Outcome::Done(done) => {
                    let exit = done.exit();
                    report.add(*done);
                    (Status::Done, None, Some(exit))
                }
                Outcome::Skipped(exit) => (Status::Skipped, None, Some(exit)),
                Outcome::Failed(error) => (Status::Failed, Some(error), Some(1)),
                Outcome::Interrupted => (Status::Interrupted, None, Some(stop.exit())),
                Outcome::NotStarted => (Status::NotStarted, None, None),
            };
            units.push(UnitReport { input: unit.input.path.clone(), status, error, exit });
        }
        report.seconds = started.elapsed().as_secs_f64();
        report.interrupted |= given_up.is_some();
        BatchReport { report, units, given_up }
    }

    fn refuse_existing(&self, record: &Record) -> Result<(), Error> {
        let there = There::of(&self.folder)?;
        for unit in &self.units {
            let known = self.recorded_outputs(unit)?;
            let files = record.of(&known).flat_map(|unit| &unit.files);
            let files = files.map(|file| self.folder.join(&file.path));
            let outputs = unit.outputs.iter().filter(|output| there.has_output(output)).cloned();
            let found = outputs.chain(files.filter(|path| there.has(path))).next();
            if let Some(found) = found {
                return Err(Error::refused(format!(
                    "the output exists; --resume goes on with what is missing, --overwrite replaces \
                     everything: {}",
                    found.display()
                )));
            }
        }
        Ok(())
    }

    /// Removes what killed runs left where everything is done now.
    fn sweep(&self, outcomes: &[Outcome]) {
        let done = self.units.iter().zip(outcomes).filter(|(_, outcome)| outcome.is_done());
        let outputs: BTreeSet<&Path> =
            done.flat_map(|(unit, _)| &unit.outputs).map(PathBuf::as_path).collect();
        sweep(outputs);
    }
}

/// What is in the folder of a batch: looked at one by one, or listed once where asking takes long.
enum There {
    Disk,
    Objects(BTreeSet<PathBuf>),
}

impl There {
    fn of(folder: &Path) -> Result<Self, Error> {
        let objects = files::objects_below(folder)?;
        let paths = |objects: Vec<Input>| objects.into_iter().map(|object| object.path).collect();
        Ok(objects.map_or(Self::Disk, |objects| Self::Objects(paths(objects))))
    }

    fn has_output(&self, output: &Path) -> bool {
        match self {
            Self::Disk => exists(output),
            Self::Objects(_) => self.has(output),
        }
    }

    /// Whether something is at a path, or below it.
    fn has(&self, path: &Path) -> bool {
        match self {
            Self::Objects(objects) if is_address(path) => {
                objects.range(path.to_owned()..).next().is_some_and(|next| next.starts_with(path))
            }
            _ => path.exists(),
        }
    }
}

/// Whether something is there that a unit would have to replace.
pub fn exists(output: &Path) -> bool {
    if output.is_dir() {
        return is_used(output);
    }
    output.exists() && !is_special(output)
}

/// Whether a batch has its record in this folder, or is about to have it.
pub fn is_record(path: &Path) -> bool {
    path.file_name().is_some_and(|name| {
        name == MANIFEST || name == JOURNAL || name.to_str().is_some_and(shard::is_record)
    })
}
