//! Running units elsewhere: a unit of a batch becomes an *order*, plain data that any worker with the same program
//! can fulfil; what it leaves is a *delivery*, which the driver publishes exactly once.
//!
//! How orders travel, when and where they are run and tried again is the business of a [`Carrier`]. Nothing here
//! knows a network or a scheduler.

mod greeting;

use std::path::Path;

use serde::{Deserialize, Serialize};
use sluice_core::{Error, Registry};

use crate::batch::{Batch, BatchReport};
use crate::report::Report;
use crate::run::{self, Options, Stop};
use crate::spec::Pipeline;
pub use greeting::Greeting;

/// A unit to be run: everything that decides what is written, as plain data.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    unit: usize,
    folder: std::path::PathBuf,
    input: std::path::PathBuf,
    greeting: Greeting,
}

/// How fulfilling an order ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fulfilled {
    /// There is a delivery, good or bad: there is nothing more to do.
    Delivered,
    /// It failed in a way that another attempt may not: worth one, elsewhere if possible.
    Again(String),
    /// Nobody waits for it any more; nothing was done.
    Abandoned(String),
}

/// How often a unit is tried in all.
pub const ATTEMPTS: usize = 3;

impl Order {
    /// The unit's number, from 0: its place among the orders of a run.
    pub fn unit(&self) -> usize {
        self.unit
    }

    /// The folder to run in: that of the driver, so that relative paths mean what they mean there.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What the unit is called where it is talked of: its input, or the pipeline's name.
    pub fn input(&self) -> &Path {
        &self.input
    }

    /// Who ordered it.
    pub fn greeting(&self) -> &Greeting {
        &self.greeting
    }

    /// Runs it in this process, whose current folder is [`folder`](Self::folder), and leaves outputs and
    /// a delivery in the driver's room. Of `options`, threads, stop, progress, and whether programs may be run count.
    ///
    /// `Err` if not even a delivery could be left that says why.
    pub fn fulfil(&self, registry: &Registry, options: &run::Options) -> Result<Fulfilled, Error> {
        let _ = (registry, options);
        Err(Error::broken("orders cannot be fulfilled yet"))
    }

    /// Leaves a delivery that says that it failed, and why: for whoever started a process that died.
    pub fn give_up(&self, why: &str) -> Result<(), Error> {
        let _ = why;
        Err(Error::broken("orders cannot be given up yet"))
    }

    /// How many attempts there have been, by what is in the driver's room.
    pub fn attempts(&self) -> Result<usize, Error> {
        Err(Error::broken("attempts cannot be counted yet"))
    }
}

/// Brings orders to workers. All of scheduling and trying again is its business.
pub trait Carrier: Sync {
    /// Has every order run by somebody. Returns when none will be run any more, or may as well be given up: what
    /// came of each is told by what is in the driver's room alone. Returns soon once `stop` is requested.
    /// `say` tells the user something at once, a line without its end.
    ///
    /// `Err` if they could not all be brought to an end, with the reason.
    fn carry(
        &self,
        orders: &[Order],
        stop: &Stop,
        say: &(dyn Fn(&str) + Sync),
    ) -> Result<(), Error>;
}

impl Batch {
    /// As [`run`](Self::run), by workers that `carrier` reaches. A unit that fails does not stop the others.
    pub fn run_by(
        &self,
        carrier: &dyn Carrier,
        registry: &Registry,
        options: &Options,
    ) -> Result<BatchReport, Error> {
        let _ = (carrier, registry, options);
        Err(Error::broken("batches cannot be carried yet"))
    }
}

/// Runs a pipeline without placeholders by one worker that `carrier` reaches.
pub fn run_by(
    pipeline: Pipeline,
    carrier: &dyn Carrier,
    registry: &Registry,
    options: &Options,
) -> Result<Report, Error> {
    let _ = (pipeline, carrier, registry, options);
    Err(Error::broken("pipelines cannot be carried yet"))
}
