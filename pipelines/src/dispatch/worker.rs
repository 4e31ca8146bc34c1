//! The worker's side: fulfils one order by the ordinary engine, with its outputs put into a folder of the attempt,
//! and leaves a delivery. Writes nowhere else.

use std::fs;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use sluice_core::files::path_kind;
use sluice_core::output::staging::StagingDir;
use sluice_core::output::{remove_file, replace_file};
use sluice_core::store::is_address;
use sluice_core::{Error, ErrorKind, Overwrite, Registry, RunOrigin};

use super::delivery::{Delivery, Handed, Made, What};
use super::objects::Objects;
use super::order::Order;
use super::room::{Site, host, unique};
use super::{ATTEMPTS, Fulfilled, Greeting};
use crate::batch::{Errand, UnitRecord, recorded_outputs};
use crate::manifest;
use crate::run::{self, Options, Within};
use crate::spec::Pipeline;

/// See [`Order::fulfil`].
pub(super) fn fulfil(
    order: &Order,
    registry: &Registry,
    options: &Options,
) -> Result<Fulfilled, Error> {
    let site = &order.shared.site;
    if let Some(why) = site.is_deserted()? {
        return Ok(Fulfilled::Abandoned(why));
    }
    let Some(attempt) = Attempt::begin(site, order.unit())? else {
        return Ok(Fulfilled::Abandoned("the run is over".to_owned()));
    };
    let ended = attempted(order, &attempt, registry, options);
    attempt.leave_if_over();
    ended
}

/// Makes an attempt.
fn attempted(
    order: &Order,
    attempt: &Attempt,
    registry: &Registry,
    options: &Options,
) -> Result<Fulfilled, Error> {
    let ran = catch_unwind(AssertUnwindSafe(|| run(order, attempt, registry, options)));
    let panicked = |_| Err(Error::internal("the unit panicked"));
    if options.stop.is_requested() {
        attempt.withdraw();
        return Ok(Fulfilled::Again("the worker was asked to end".to_owned()));
    }
    match ran.unwrap_or_else(panicked) {
        Ok(what) => attempt.deliver(what),
        Err(error) if is_worth_another(&error) && order.attempts()? < ATTEMPTS => {
            attempt.clear();
            Ok(Fulfilled::Again(error.to_string()))
        }
        Err(error) => {
            attempt.clear();
            attempt.deliver(What::failed(&error))
        }
    }
}

/// See [`Order::give_up`].
pub(super) fn give_up(order: &Order, why: &str) -> Result<(), Error> {
    let site = order.shared.site.clone();
    // One of its own: what the one that died has left says nothing.
    let attempt = Attempt { folder: PathBuf::new(), name: unique(), site, unit: order.unit() };
    let gave_up = attempt.deliver(What::Failed { why: why.to_owned(), is_not_allowed: false });
    attempt.leave_if_over();
    gave_up.map(drop)
}

/// Whether a unit that failed so may go through the next time, or elsewhere.
fn is_worth_another(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Io { .. })
}

fn run(
    order: &Order,
    attempt: &Attempt,
    registry: &Registry,
    options: &Options,
) -> Result<What, Error> {
    if let Some(differs) = Greeting::of(registry).differs(order.greeting()) {
        let why = format!("the executor on {} cannot take part: {differs}", host());
        return Ok(What::Refused { why });
    }
    let pipeline = order.pipeline(registry)?;
    judge_programs(order, &pipeline, options)?;
    judge_inputs(order)?;
    if let Some(record) = done_before(order, &pipeline)? {
        return Ok(What::Skipped(Box::new(record)));
    }
    made(order, attempt, pipeline, options).map(|made| What::Done(Box::new(made)))
}

fn judge_programs(order: &Order, pipeline: &Pipeline, options: &Options) -> Result<(), Error> {
    run::allowed(pipeline, &Options { allow_exec: order.shared.allow_exec, ..Options::default() })?;
    if run::allowed(pipeline, options).is_err() {
        let what = format!(
            "this pipeline runs programs, and the executor on {} does not let it: start executors with \
             --allow-exec if they may",
            host()
        );
        return Err(ErrorKind::NotAllowed(what).into());
    }
    Ok(())
}

/// Judges whether what the driver saw is here, too.
fn judge_inputs(order: &Order) -> Result<(), Error> {
    let Some(missing) =
        order.inputs().into_iter().find(|input| matches!(path_kind(input), Ok(None)))
    else {
        return Ok(());
    };
    let what = format!(
        "it is not there on {}: inputs and outputs must be visible to every executor",
        host()
    );
    Err(Error::io("open", missing, io::Error::new(io::ErrorKind::NotFound, what)))
}

/// The record of the unit, if that has been done, and its inputs and outputs are what they were.
fn done_before(order: &Order, pipeline: &Pipeline) -> Result<Option<UnitRecord>, Error> {
    let (Some(folder), Overwrite::Redo) = (&order.shared.record, order.shared.overwrite) else {
        return Ok(None);
    };
    let Some(input) = order.own.inputs.first() else { return Ok(None) };
    let outputs = recorded_outputs(&order.own.outputs, folder)?;
    let errand = Errand { pipeline, memory: order.shared.memory, input, outputs: &outputs };
    Ok(errand.settled(order.known()?.iter(), folder).cloned())
}

/// Runs the unit, and leaves what it made in the attempt's folder.
fn made(
    order: &Order,
    attempt: &Attempt,
    pipeline: Pipeline,
    options: &Options,
) -> Result<Made, Error> {
    let shared = &order.shared;
    let staging = Arc::new(StagingDir::new(attempt.folder.clone(), &order.own.outputs));
    let plugins = manifest::plugins(&pipeline.nodes);
    let record = Mutex::new(None);
    let announce = |origin: &RunOrigin, ended, files: &[_]| {
        let Some(folder) = &shared.record else { return Ok(()) };
        let made = UnitRecord::of(origin, (&plugins, ended), &order.own.outputs, files, folder)?;
        *record.lock().unwrap_or_else(PoisonError::into_inner) = Some(made);
        Ok(())
    };
    let within = Within {
        pool: None,
        hash: shared.record.is_some(),
        // Whoever publishes knows what the others read.
        spared: Arc::default(),
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
    let mut report = run::run_within(pipeline, &options, Some(&within))?;
    report.files.clear();
    let handed = staging.put().into_iter().map(|put| Handed::of(put, &attempt.folder));
    let handed = handed.collect::<Result<_, _>>()?;
    let record = record.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(Made { report, record, handed })
}

/// One attempt at a unit, with a folder of its own.
struct Attempt {
    site: Site,
    unit: usize,
    name: String,
    folder: PathBuf,
}

impl Attempt {
    /// Begins one; nothing if the room is gone, which is not to be made again.
    fn begin(site: &Site, unit: usize) -> Result<Option<Self>, Error> {
        let (folder, name) = (site.unit(unit), unique());
        if let Some(objects) = Objects::of(site.path())? {
            objects.begin(unit, &name)?;
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

    /// Removes what it made; that it was, still counts.
    fn clear(&self) {
        self.site.clear(&self.folder);
        if !is_address(&self.folder) {
            drop(fs::create_dir(&self.folder));
        }
    }

    /// Removes it, as if it had not been.
    fn withdraw(&self) {
        self.site.clear(&self.folder);
        if let Ok(Some(objects)) = Objects::of(self.site.path()) {
            drop(objects.forget(self.unit, &self.name));
        }
    }

    /// Takes away what it has put into a room of objects that is there no more: nobody else would.
    fn leave_if_over(&self) {
        if is_address(self.site.path()) && !self.site.is_there() {
            drop(remove_file(&self.site.delivery(self.unit, &self.name)));
            self.withdraw();
        }
    }

    /// Says what came of it. What it says is whole, or is not there.
    fn deliver(&self, what: What) -> Result<Fulfilled, Error> {
        let path = self.site.delivery(self.unit, &self.name);
        let delivery = Delivery { unit: self.unit, attempt: self.name.clone(), what };
        let text = serde_json::to_vec(&delivery)
            .map_err(|e| Error::refused(format!("what a unit made cannot be told as text: {e}")))?;
        match replace_file(&path, &text) {
            Err(_) if !self.site.is_there() => {
                Ok(Fulfilled::Abandoned("the run is over".to_owned()))
            }
            delivered => delivered.map(|()| Fulfilled::Delivered),
        }
    }
}
