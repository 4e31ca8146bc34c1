//! The worker's side: runs one order with the ordinary engine, stages the outputs in the attempt's
//! folder and leaves a delivery. Writes nowhere else.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use sluice_io::files::path_kind;
use sluice_io::output::staging::StagingDir;
use sluice_io::output::{remove_file, replace_file};
use sluice_io::store::is_address;
use sluice_model::{Error, ErrorKind, Overwrite, Registry, RunOrigin};

use super::ProgramIdentity;
use super::delivery::{AttemptResult, DeliveredFile, UnitDelivery, UnitOutputs};
use super::exchange::ExchangePath;
use super::exchange_names::{host, unique};
use super::exchange_objects::ExchangeObjects;
use super::order::{ATTEMPTS, OrderOutcome, UnitOrder};
use crate::batch::{UnitKey, UnitRecord, recorded_outputs};
use crate::manifest::{self, RunEnd};
use crate::report::Report;
use crate::run::{self, Options, ParentRun};
use crate::spec::Pipeline;

impl UnitOrder {
    /// Runs the order in this process, whose current folder is [`folder`](Self::folder), and leaves
    /// outputs and a delivery in the exchange directory. Of `options`, only threads, stop, progress
    /// and `allow_exec` apply.
    ///
    /// `Err` if not even a failure could be delivered; retry, elsewhere if possible.
    pub fn execute(&self, registry: &Registry, options: &Options) -> Result<OrderOutcome, Error> {
        let site = &self.shared.site;
        if let Some(why) = site.abandoned_reason()? {
            return Ok(OrderOutcome::Abandoned(why));
        }
        let Some(attempt) = Attempt::begin(site, self.unit())? else {
            return Ok(OrderOutcome::Abandoned("the run is over".to_owned()));
        };
        let ended = run_attempt(self, &attempt, registry, options);
        attempt.remove_if_over();
        ended
    }

    /// Delivers a failure on behalf of a worker process that died.
    pub fn give_up(&self, why: &str) -> Result<(), Error> {
        let site = self.shared.site.clone();
        // A separate attempt: the dead one's leftovers are meaningless.
        let attempt = Attempt { folder: PathBuf::new(), name: unique(), site, unit: self.unit() };
        let error = Error::refused(why.to_owned());
        let given_up = attempt.deliver(AttemptResult::failed(&error, Report::default()));
        attempt.remove_if_over();
        given_up.map(drop)
    }
}

/// Makes one attempt.
fn run_attempt(
    order: &UnitOrder,
    attempt: &Attempt,
    registry: &Registry,
    options: &Options,
) -> Result<OrderOutcome, Error> {
    let mut known = Report::default();
    let ran = Error::catching(|| run(order, attempt, registry, options, &mut known));
    if options.stop.is_requested() {
        attempt.withdraw();
        return Ok(OrderOutcome::Retry("the worker was stopped".to_owned()));
    }
    match ran {
        Ok(what) => attempt.deliver(what),
        Err(error) if is_retryable(&error) && order.attempts()? < ATTEMPTS => {
            attempt.clear();
            Ok(OrderOutcome::Retry(error.to_string()))
        }
        Err(error) => {
            attempt.clear();
            attempt.deliver(AttemptResult::failed(&error, known))
        }
    }
}

/// Whether a retry, here or elsewhere, may succeed after this error.
fn is_retryable(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Io { .. })
}

fn run(
    order: &UnitOrder,
    attempt: &Attempt,
    registry: &Registry,
    options: &Options,
    known: &mut Report,
) -> Result<AttemptResult, Error> {
    if let Some(differs) = ProgramIdentity::new(registry).mismatch(order.identity()) {
        let why = format!("the executor on {} cannot take part: {differs}", host());
        return Ok(AttemptResult::Refused { why });
    }
    let pipeline = order.pipeline(registry)?;
    check_programs_allowed(order, &pipeline, options)?;
    check_inputs_visible(order)?;
    if let Some(record) = done_before(order, &pipeline)? {
        return Ok(AttemptResult::Skipped(Box::new(record)));
    }
    let made = run_unit(order, attempt, pipeline, options, known)?;
    Ok(AttemptResult::Done(Box::new(made)))
}

fn check_programs_allowed(
    order: &UnitOrder,
    pipeline: &Pipeline,
    options: &Options,
) -> Result<(), Error> {
    run::check_programs_allowed(
        pipeline,
        &Options { allow_exec: order.shared.allow_exec, ..Options::default() },
    )?;
    if run::check_programs_allowed(pipeline, options).is_err() {
        let what = format!(
            "this pipeline runs programs, which the executor on {} does not allow: start \
             executors with --allow-exec to allow it",
            host()
        );
        return Err(ErrorKind::NotAllowed(what).into());
    }
    Ok(())
}

/// Checks that the inputs the driver saw are visible here.
fn check_inputs_visible(order: &UnitOrder) -> Result<(), Error> {
    let Some(missing) =
        order.inputs().into_iter().find(|input| matches!(path_kind(input), Ok(None)))
    else {
        return Ok(());
    };
    let what = format!(
        "it does not exist on {}: inputs and outputs must be visible to every executor",
        host()
    );
    Err(Error::io("open", missing, io::Error::new(io::ErrorKind::NotFound, what)))
}

/// The record of the unit, if an earlier run has done it and its inputs and outputs are unchanged.
fn done_before(order: &UnitOrder, pipeline: &Pipeline) -> Result<Option<UnitRecord>, Error> {
    let (Some(folder), Overwrite::Redo) = (&order.shared.record, order.shared.overwrite) else {
        return Ok(None);
    };
    let outputs = recorded_outputs(&order.own.outputs, folder)?;
    let key = UnitKey { pipeline, memory: order.shared.memory, outputs: &outputs };
    Ok(key.find_done(order.known_records()?.iter(), folder).cloned())
}

/// Runs the unit and stages its outputs in the attempt's folder.
fn run_unit(
    order: &UnitOrder,
    attempt: &Attempt,
    pipeline: Pipeline,
    options: &Options,
    known: &mut Report,
) -> Result<UnitOutputs, Error> {
    let shared = &order.shared;
    let staging = Arc::new(StagingDir::new(attempt.folder.clone(), &order.own.outputs));
    let plugins = manifest::plugin_names(&pipeline.nodes);
    let record = Mutex::new(None);
    let announce = |origin: &RunOrigin, ended: &RunEnd, files: &[_]| {
        let Some(folder) = &shared.record else { return Ok(()) };
        let made =
            UnitRecord::from_run(origin, (&plugins, ended), &order.own.outputs, files, folder)?;
        *record.lock().unwrap_or_else(PoisonError::into_inner) = Some(made);
        Ok(())
    };
    let parent = ParentRun {
        pool: None,
        hash: shared.record.is_some(),
        // The driver, which publishes, knows what other units read.
        spared: Arc::default(),
        shared_folders: &order.own.shared_folders,
        litter: Arc::default(),
        staging: Some(Arc::clone(&staging)),
        announce: &announce,
    };
    let options = Options {
        jobs: options.jobs.or(shared.jobs),
        memory: Some(shared.memory),
        overwrite: shared.overwrite,
        hash: shared.hash,
        recording: None,
        ..options.clone()
    };
    let mut report = run::run_in_parent(pipeline, &options, Some(&parent), known)?;
    report.files.clear();
    let handed =
        staging.put().into_iter().map(|put| DeliveredFile::from_staged(put, &attempt.folder));
    let handed = handed.collect::<Result<_, _>>()?;
    let record = record.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(UnitOutputs { report, record, handed })
}

/// One attempt at a unit, with its own folder.
struct Attempt {
    site: ExchangePath,
    unit: usize,
    name: String,
    folder: PathBuf,
}

impl Attempt {
    /// Starts an attempt; `None` if the exchange directory is gone, which must not be recreated.
    fn begin(site: &ExchangePath, unit: usize) -> Result<Option<Self>, Error> {
        let (folder, name) = (site.unit(unit), unique());
        if let Some(objects) = ExchangeObjects::open(site.path())? {
            objects.begin_attempt(unit, &name)?;
            return Ok(Some(Self { site: site.clone(), unit, folder: folder.join(&name), name }));
        }
        match fs::create_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(Error::io("create", folder, error));
            }
            _ => {}
        }
        let folder = folder.join(&name);
        fs::create_dir(&folder).map_err(|e| Error::io("create", &folder, e))?;
        Ok(Some(Self { site: site.clone(), unit, name, folder }))
    }

    /// Removes its outputs; the attempt still counts.
    fn clear(&self) {
        self.site.clear(&self.folder);
        if !is_address(&self.folder) {
            drop(fs::create_dir(&self.folder));
        }
    }

    /// Removes the attempt without a trace.
    fn withdraw(&self) {
        self.site.clear(&self.folder);
        if let Ok(Some(objects)) = ExchangeObjects::open(self.site.path()) {
            drop(objects.forget_attempt(self.unit, &self.name));
        }
    }

    /// Removes its objects if the run is over: nobody else would.
    fn remove_if_over(&self) {
        if is_address(self.site.path()) && !self.site.exists() {
            drop(remove_file(&self.site.delivery(self.unit, &self.name)));
            self.withdraw();
        }
    }

    /// Writes the delivery, atomically.
    fn deliver(&self, what: AttemptResult) -> Result<OrderOutcome, Error> {
        let path = self.site.delivery(self.unit, &self.name);
        let delivery = UnitDelivery { unit: self.unit, attempt: self.name.clone(), what };
        let text = serde_json::to_vec(&delivery).map_err(|e| {
            Error::refused(format!("the result of a unit cannot be serialised: {e}"))
        })?;
        match replace_file(&path, &text) {
            Err(_) if !self.site.exists() => {
                Ok(OrderOutcome::Abandoned("the run is over".to_owned()))
            }
            delivered => delivered.map(|()| OrderOutcome::Delivered),
        }
    }
}
