//! Running units elsewhere: a unit of a batch becomes an *order*, plain data that any worker with the same program
//! can fulfil; what it leaves is a *delivery*, which the driver publishes exactly once.
//!
//! Driver and workers meet in a *room*: a hidden folder beside the record of the batch, which all of them see. A
//! worker writes only into a folder of its own in there, so whoever runs twice, late, or dies half-way disturbs
//! nobody. The driver takes the first delivery of each unit and publishes it as a run on this machine does: the
//! journal's line first, then all names at once.
//!
//! How orders travel, when and where they are run and tried again is the business of a [`Carrier`]. Nothing here
//! knows a network or a scheduler.
//!
//! Where outputs lie in an object store, so does the room, and what was put together there is copied by the store.

mod delivery;
mod driver;
mod greeting;
mod heartbeat;
mod objects;
mod order;
mod publish;
mod refusals;
mod room;
mod worker;

use std::sync::Arc;
use std::time::Instant;

use sluice_core::{Error, ErrorKind, Registry};

use crate::batch::{Batch, BatchReport, Gauge, Outcome};
use crate::report::Report;
use crate::run::{self, Options, Progress, Snapshot, Stop};
use crate::spec::Pipeline;
use driver::Driver;
pub use greeting::Greeting;
pub use order::Order;
use order::{Own, Shared};
use publish::Publishing;
use room::Room;
pub(crate) use room::remove_deserted;

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

/// How often a unit is tried in all, and how often what is left over is brought to workers again.
pub const ATTEMPTS: usize = 3;

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
    ///
    /// `Err` also if the carrier reached nobody.
    pub fn run_by(
        &self,
        carrier: &dyn Carrier,
        registry: &Registry,
        options: &Options,
    ) -> Result<BatchReport, Error> {
        if let Some(unit) = self.units.first() {
            let pipeline = self.pipeline(unit, registry)?;
            // Whoever runs programs has to be allowed to, before anything else is said of them.
            run::allowed(&pipeline, options)?;
            refusals::judge(&pipeline, registry, options)?;
        }
        refusals::judge_units(self)?;
        self.recorded(registry, options, |book| {
            let room = Room::make(&self.folder)?;
            room.expect_alone()?;
            let shared = Shared::of(&room, &self.blueprint, registry, options)?;
            let shared = Arc::new(shared.recorded_in(&self.folder));
            let orders = self.units.iter().enumerate();
            let orders = orders.map(|(place, unit)| {
                let own = Own::of_unit(place, unit, &self.blueprint)?;
                let outputs = self.recorded_outputs(unit)?;
                let own = own.known(book.before().of(&outputs), &room, options)?;
                Ok(Order::of(&shared, own))
            });
            let orders = orders.collect::<Result<Vec<_>, Error>>()?;
            let bytes = self.units.iter().map(|unit| unit.input.bytes).collect();
            let gauge = Gauge::new(bytes, options.progress.clone());
            let mut done = Vec::new();
            let outcomes = Driver { carrier, options, room: &room, is_recorded: true }.run(
                &orders,
                |place, came| {
                    let publishing = Publishing {
                        options,
                        inputs: orders[place].inputs(),
                        spared: Arc::clone(&self.inputs),
                    };
                    let (outcome, record) = publishing.settle(came, Some(book));
                    done.extend(record);
                    match &outcome {
                        Outcome::Done(report) => gauge.settle(place, report),
                        _ => gauge.settle(place, &Report::default()),
                    }
                    outcome
                },
            )?;
            Ok((outcomes, done))
        })
    }
}

/// Runs a pipeline without placeholders by one worker that `carrier` reaches.
pub fn run_by(
    pipeline: Pipeline,
    carrier: &dyn Carrier,
    registry: &Registry,
    options: &Options,
) -> Result<Report, Error> {
    let started = Instant::now();
    run::allowed(&pipeline, options)?;
    refusals::judge(&pipeline, registry, options)?;
    let own = Own::of_pipeline(&pipeline)?;
    refusals::judge_inputs(&own.inputs)?;
    refusals::judge_outputs(&own.outputs)?;
    let room = Room::make(own.folder())?;
    let blueprint = crate::batch::Blueprint::of(&pipeline);
    let shared = Arc::new(Shared::of(&room, &blueprint, registry, options)?);
    let orders = [Order::of(&shared, own)];
    let inputs = orders[0].inputs();
    let mut refused = None;
    let outcomes =
        Driver { carrier, options, room: &room, is_recorded: false }.run(&orders, |_, came| {
            let spared = Arc::default();
            let publishing = Publishing { options, inputs: inputs.clone(), spared };
            refused = came.refused();
            publishing.settle(came, None).0
        })?;
    match outcomes.into_iter().next() {
        Some(Outcome::Done(mut report)) => {
            tell(&report, options.progress.as_deref());
            report.seconds = started.elapsed().as_secs_f64();
            Ok(*report)
        }
        Some(Outcome::Failed(_)) if refused.is_some() => Err(refused.unwrap_or_else(aborted)),
        Some(Outcome::Failed(why)) => Err(Error::refused(why)),
        _ if options.stop.is_requested() && !options.stop.is_aborted() => {
            Err(ErrorKind::Interrupted.into())
        }
        _ => Err(aborted()),
    }
}

/// The last word on a run of one unit, of which nothing was told before.
fn tell(report: &Report, progress: Option<&dyn Progress>) {
    let Some(progress) = progress else { return };
    progress.update(&Snapshot {
        bytes: report.bytes_read,
        events: report.sources.values().map(|source| source.events).sum(),
        damage: report.damaged_ranges,
        ..Snapshot::default()
    });
}

fn aborted() -> Error {
    ErrorKind::Aborted.into()
}
