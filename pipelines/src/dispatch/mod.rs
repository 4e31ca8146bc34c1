//! Running units elsewhere. A unit of a batch becomes an *order*: plain data that any worker with
//! the same program can execute. The worker leaves a *delivery*, which the driver publishes exactly
//! once.
//!
//! Driver and workers communicate through an *exchange directory*: a hidden folder next to the
//! batch record that all of them can see. A worker writes only into its own folder there, so
//! workers that run twice, late, or die half-way disturb nobody. The driver takes the first
//! delivery of each unit and publishes it like a local run: the journal line first, then all names
//! at once.
//!
//! How orders travel, where they run and when they are retried is up to a [`Carrier`]. Nothing here
//! depends on a network or a scheduler.
//!
//! For outputs in an object store, the exchange directory is in the store too, and delivered files
//! are copied within the store.

mod delivery;
mod driver;
mod eligibility;
pub(crate) mod exchange;
mod exchange_names;
mod exchange_objects;
mod heartbeat;
mod identity;
mod order;
mod publish;
mod worker;

use std::sync::Arc;

use sluice_model::{Error, ErrorKind, Registry};

use crate::batch::{Batch, BatchProgress, BatchReport, UnitOutcome};
use crate::report::Report;
use crate::run::{self, Options, Progress, Snapshot};
use crate::spec::Pipeline;
pub use driver::Carrier;
use driver::DispatchDriver;
use exchange::ExchangeDir;
pub use identity::ProgramIdentity;
pub use order::{ATTEMPTS, OrderOutcome, UnitOrder};
use order::{RunSpec, UnitSpec};
use publish::DeliveryPublisher;

impl Batch {
    /// Like [`run`](Self::run), on workers that `carrier` reaches. A failing unit does not stop the
    /// others.
    ///
    /// `Err` also if the carrier reached no worker.
    pub fn run_by(
        &self,
        carrier: &dyn Carrier,
        registry: &Registry,
        options: &Options,
    ) -> Result<BatchReport, Error> {
        if let Some(pipeline) = self.any_pipeline(registry)? {
            // The permission to run programs is checked before anything else.
            run::check_programs_allowed(&pipeline, options)?;
            eligibility::check_pipeline(&pipeline, registry, options)?;
        }
        eligibility::check_units(self)?;
        self.run_recorded(registry, options, |recorder| {
            let exchange = ExchangeDir::create(&self.folder)?;
            exchange.refuse_second_driver()?;
            let shared = RunSpec::new(&exchange, &self.blueprint, registry, options)?;
            let shared = Arc::new(shared.recorded_in(&self.folder));
            let orders = self.units.iter().enumerate();
            let orders = orders.map(|(place, unit)| {
                let own = UnitSpec::from_unit(place, unit, &self.blueprint)?;
                let outputs = self.recorded_outputs(unit)?;
                let own = own.with_known_records(
                    recorder.previous().with_outputs(&outputs),
                    &exchange,
                    options,
                )?;
                Ok(UnitOrder::new(&shared, own))
            });
            let orders = orders.collect::<Result<Vec<_>, Error>>()?;
            let bytes = self.units.iter().map(|unit| unit.input.bytes).collect();
            let progress = BatchProgress::new(bytes, options.progress.clone());
            let mut done = Vec::new();
            let outcomes =
                DispatchDriver { carrier, options, exchange: &exchange, is_recorded: true }.run(
                    &orders,
                    |place, delivery| {
                        let publishing = DeliveryPublisher {
                            options,
                            inputs: orders[place].inputs(),
                            spared: Arc::clone(&self.inputs),
                        };
                        let (outcome, record) = publishing.settle(delivery, Some(recorder));
                        done.extend(record);
                        match &outcome {
                            UnitOutcome::Done(report) => progress.finish_unit(place, report),
                            _ => progress.finish_unit(place, &Report::default()),
                        }
                        outcome
                    },
                )?;
            Ok((outcomes, done))
        })
    }
}

/// Runs a pipeline without placeholders on one worker that `carrier` reaches.
pub fn run_by(
    pipeline: Pipeline,
    carrier: &dyn Carrier,
    registry: &Registry,
    options: &Options,
) -> Result<Report, Error> {
    run::report_failed(options, &mut Report::default(), |known| {
        run_on_worker(pipeline, carrier, registry, options, known)
    })
}

/// Runs a pipeline on one worker. If that fails, `known` gets what is known of the run.
fn run_on_worker(
    pipeline: Pipeline,
    carrier: &dyn Carrier,
    registry: &Registry,
    options: &Options,
    known: &mut Report,
) -> Result<Report, Error> {
    run::check_programs_allowed(&pipeline, options)?;
    eligibility::check_pipeline(&pipeline, registry, options)?;
    let own = UnitSpec::from_pipeline(&pipeline)?;
    eligibility::check_inputs(&own.inputs)?;
    eligibility::check_outputs(&own.outputs)?;
    let exchange = ExchangeDir::create(own.output_folder())?;
    let blueprint = crate::batch::Blueprint::from_pipeline(&pipeline);
    let shared = Arc::new(RunSpec::new(&exchange, &blueprint, registry, options)?);
    let orders = [UnitOrder::new(&shared, own)];
    let inputs = [orders[0].inputs(), pipeline.files].concat();
    let mut refused = None;
    let outcomes = DispatchDriver { carrier, options, exchange: &exchange, is_recorded: false }
        .run(&orders, |_, delivery| {
            let spared = Arc::default();
            let publishing = DeliveryPublisher { options, inputs: inputs.clone(), spared };
            refused = delivery.refusal();
            *known = delivery.known();
            publishing.settle(delivery, None).0
        })?;
    match outcomes.into_iter().next() {
        Some(UnitOutcome::Done(report)) => {
            report_progress(&report, options.progress.as_deref());
            Ok(*report)
        }
        Some(UnitOutcome::Failed(..)) if refused.is_some() => Err(refused.unwrap_or_else(aborted)),
        Some(UnitOutcome::Failed(why, _)) => Err(Error::refused(why)),
        _ if options.stop.is_requested() && !options.stop.is_aborted() => {
            Err(ErrorKind::Interrupted.into())
        }
        _ => Err(aborted()),
    }
}

/// Reports the final progress of a run of one unit, which reports none while it runs.
fn report_progress(report: &Report, progress: Option<&dyn Progress>) {
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
