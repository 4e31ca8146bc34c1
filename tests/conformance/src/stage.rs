//! Trials of stages: their result depends only on the events, not on how these arrive, and no event
//! is lost unreported.

mod direct;
mod pushdown;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use arrow_array::BinaryArray;
use serde_json::{Value, json};
use sluice_model::{Batch, Plugin, PluginKind, Registry, panics};
use sluice_pipeline::run::Options;

use crate::events::{Events, GatherSink, ReplaySource, concat};
use crate::finding::{Fault, FindingSet, expect_none};
use crate::hostile::SeededRandom;
use crate::isolation::Isolation;
use crate::kit_plugins::registry;
use crate::pipe::{
    EVENTS, PipelineText, RunFailure, gather_events, read_pipeline, run, stable_report,
};
use crate::{Finding, Promise, options};

use direct::{DirectStage, StageOutcome};
use pushdown::sample_queries;

/// A stage under test.
#[derive(Clone, Debug)]
#[must_use = "nothing is tried before `check` or `findings`"]
pub struct StageTrial {
    plugin: String,
    options: Value,
    fed_by: Option<String>,
}

/// Tests the stage registered under this name.
///
/// It gets the kit's mix of events unless [`fed_by`](StageTrial::fed_by) says otherwise, directly
/// and in the real engine. It checks these promises:
///
/// - **Options, Sample**: unknown options are refused, and the sample shows all there are.
/// - **Batches**: batches of any size, with empty ones between, yield the same events, rows, counts
///   and notes. A map may get its batches in any order.
/// - **Threads**: any number of threads yields the same.
/// - **Accounting**: events pass or are counted as filtered; delayed ones come out at the end. It
///   needs no more than it declares (`query`), and delays nothing if it says so (`delays_events`).
/// - **WholeRows**: rows belong to existing events, one row per event.
/// - **NoPanic, Memory**: garbage payloads do no harm. The rest is tried in the process of the
///   test, so not with a stage that takes too much memory or time.
pub fn stage(plugin: &str) -> StageTrial {
    StageTrial { plugin: plugin.to_owned(), options: json!({}), fed_by: None }
}

impl StageTrial {
    /// Sets the options.
    pub fn options(mut self, options: Value) -> Self {
        self.options = options;
        self
    }

    /// Feeds it the events of this pipeline, whose last node is called `events`.
    pub fn fed_by(mut self, pipeline: &str) -> Self {
        self.fed_by = Some(pipeline.to_owned());
        self
    }

    /// Lists all broken promises.
    pub fn findings(&self) -> Vec<Finding> {
        let registry = registry();
        let Some(plugin) = registry.get(PluginKind::Stage, &self.plugin) else {
            return vec![options::unregistered(PluginKind::Stage, &self.plugin)];
        };
        let events = match &self.fed_by {
            Some(text) => gather_events(text, &registry),
            None => Ok(Events::mix()),
        };
        let events = match events {
            Ok(events) if events.len() > 0 => Arc::new(events),
            Ok(_) => {
                let what = "there are no events to try it with";
                return vec![Finding::new(Promise::Options, what)];
            }
            Err(what) => {
                let what = format!("the events could not be made: {what}");
                return vec![Finding::new(Promise::Options, what)];
            }
        };
        let bench = StageBench { trial: self, plugin, registry: &registry, events };
        // The child process comes first: it repeats everything before it.
        let mut findings = bench.hostile();
        let is_safe_here = findings
            .iter()
            .all(|found| !matches!(found.promise, Promise::Memory | Promise::Termination));
        findings.extend(options::findings(plugin, &self.options, &registry));
        if is_safe_here {
            findings.extend(bench.run_here());
        }
        findings
    }

    /// Fails the test if a promise is broken.
    ///
    /// # Panics
    ///
    /// If any promise is broken, with the list of all of them.
    #[track_caller]
    pub fn check(self) {
        expect_none(&self.plugin, &self.findings());
    }
}

/// A stage with its events.
struct StageBench<'t> {
    trial: &'t StageTrial,
    plugin: &'t Plugin,
    registry: &'t Registry,
    events: Arc<Events>,
}

/// The standard batch size.
const STANDARD_BATCH: usize = 64;
/// Other sizes.
const SIZES: [usize; 4] = [1, 2, 7, STANDARD_BATCH];

impl StageBench<'_> {
    fn direct<'e>(&'e self, events: &'e Events) -> DirectStage<'e> {
        DirectStage { plugin: self.plugin, options: &self.trial.options, events }
    }

    /// Findings with valid events.
    fn run_here(&self) -> Vec<Finding> {
        catch_unwind(AssertUnwindSafe(|| self.findings())).unwrap_or_else(|panic| {
            let message = panics::message_of(&*panic);
            let what = format!("it panics on the events it is tried with: {message}");
            vec![Finding::new(Promise::NoPanic, what)]
        })
    }

    fn findings(&self) -> Vec<Finding> {
        let mut found = FindingSet::default();
        let tried = self.direct(&self.events);
        match tried.whole() {
            Ok(whole) => {
                whole.faults().into_iter().for_each(|fault| found.add(fault, "all events at once"));
                self.batches(&tried, &whole, &mut found);
                self.any_order(&tried, &whole, &mut found);
                self.check_pushdown(&tried, &whole, &mut found);
                self.threads(&whole, &mut found);
            }
            Err(what) => {
                let kind = "it fails on the events it is tried with";
                found.add(Fault::new(Promise::Batches, kind, what), "all events at once");
            }
        }
        found.findings()
    }

    fn batches(&self, tried: &DirectStage<'_>, whole: &StageOutcome, found: &mut FindingSet) {
        for size in SIZES {
            let case = format!("batches of {size} events");
            compare(whole, tried.in_batches(size, false), Promise::Batches, &case, found);
        }
        let case = "empty batches between others";
        compare(whole, tried.in_batches(7, true), Promise::Batches, case, found);
    }

    fn any_order(&self, tried: &DirectStage<'_>, whole: &StageOutcome, found: &mut FindingSet) {
        if let Some(backwards) = tried.backwards(7) {
            let case = "batches of 7 events that come in another order";
            compare(whole, backwards, Promise::Batches, case, found);
        }
    }

    /// Checks that it needs no more than it declares, because sources skip the rest.
    fn check_pushdown(
        &self,
        tried: &DirectStage<'_>,
        whole: &StageOutcome,
        found: &mut FindingSet,
    ) {
        for (case, after) in sample_queries(&whole.events) {
            match tried.with_pushdown(&after) {
                Ok([all, few]) => {
                    let differs = all.events.difference(&few.events);
                    let kind = "events are lost or changed if sources skip what it says it does \
                                not need (`query`)";
                    let fault = differs.map(|what| Fault::new(Promise::Accounting, kind, what));
                    fault.into_iter().for_each(|fault| found.add(fault, &*case));
                }
                Err(what) => found.add(Fault::new(Promise::Accounting, "it fails", what), case),
            }
        }
    }

    /// Checks the result in the engine.
    fn threads(&self, whole: &StageOutcome, found: &mut FindingSet) {
        let mut first: Option<Value> = None;
        for jobs in [1, 2, 8] {
            let case = format!("{jobs} threads");
            let mut add = |promise, kind: &str, what: String| {
                found.add(Fault::new(promise, kind, what), case.clone());
            };
            match self.engine(jobs) {
                Err(RunFailure::Panic(what)) => add(Promise::NoPanic, "it panics", what),
                Err(RunFailure::Error(what)) if what.contains("internal:") => {
                    add(Promise::Accounting, "the run fails", what);
                }
                Err(RunFailure::Error(what)) => add(Promise::Threads, "the run fails", what),
                Ok((events, report)) => {
                    if let Some(what) = whole.events.difference(&events) {
                        add(Promise::Threads, "other events come out of a run", what);
                    }
                    if first.get_or_insert_with(|| report.clone()) != &report {
                        add(Promise::Threads, "the report differs", String::new());
                    }
                }
            }
        }
    }

    fn engine(&self, jobs: usize) -> Result<(Events, Value), RunFailure> {
        let tried = "tried";
        let pipe = PipelineText::from_events();
        let pipe = pipe.with("stages", tried, self.plugin.name, Some(EVENTS), &self.trial.options);
        let replay = ReplaySource {
            events: Arc::clone(&self.events),
            size: 16,
            each: 2,
            reversed: jobs > 1,
        };
        let gather = GatherSink::default();
        let text = pipe.with_end(tried).text();
        let pipeline = read_pipeline(&text, self.registry, Some(replay), &gather);
        let options = Options { jobs: Some(jobs), ..Options::default() };
        let report = run(pipeline.map_err(RunFailure::Error)?, options)?;
        let events = gather.take().unwrap_or_default();
        Ok((events, stable_report(&report)))
    }

    /// Feeds it garbage payloads.
    fn hostile(&self) -> Vec<Finding> {
        let isolation = Isolation {
            plugin: &self.trial.plugin,
            patience: Duration::from_secs(30),
            memory: 512 << 20,
        };
        isolation.run(&|cases| {
            for (round, what) in CORRUPTIONS.iter().enumerate() {
                cases.case(what, |_| self.garbage(round));
            }
        })
    }

    fn garbage(&self, round: usize) -> Vec<Fault> {
        let spoilt = corrupt_payloads(&self.events, round);
        let tried = self.direct(&spoilt);
        // Refusing them is allowed.
        let (Ok(whole), cut) = (tried.whole(), tried.in_batches(1, false)) else {
            return Vec::new();
        };
        let mut faults = whole.faults();
        match cut {
            Ok(cut) => faults.extend(whole.difference(&cut, Promise::Batches)),
            Err(what) => {
                let kind = "it fails on events in batches of one only";
                faults.push(Fault::new(Promise::Batches, kind, what));
            }
        }
        faults
    }
}

fn compare(
    whole: &StageOutcome,
    other: Result<StageOutcome, String>,
    promise: Promise,
    case: &str,
    found: &mut FindingSet,
) {
    match other {
        Ok(other) => {
            let faults = other.faults().into_iter().chain(whole.difference(&other, promise));
            faults.for_each(|fault| found.add(fault, case));
        }
        Err(what) => found.add(Fault::new(promise, "it fails", what), case),
    }
}

/// The ways of corrupting payloads.
const CORRUPTIONS: [&str; 5] = [
    "payloads of random bytes",
    "payloads that are cut off",
    "payloads of which a bit is another one",
    "payloads with lengths that cannot be",
    "payloads that are empty",
];

/// The events with payloads corrupted in this way, and without rows.
fn corrupt_payloads(events: &Events, way: usize) -> Events {
    let mut dice = SeededRandom::new(way as u64);
    let payloads: Vec<Vec<u8>> = events
        .batch
        .iter()
        .map(|event| {
            let mut payload = event.payload.to_vec();
            let at = dice.below(payload.len());
            match way {
                0 => payload = dice.bytes(payload.len().min(2000)),
                1 => payload.truncate(at),
                2 => {
                    payload.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << dice.below(8))
                }
                3 => payload.iter_mut().skip(at & !3).take(4).for_each(|byte| *byte = 0x7f),
                _ => payload.clear(),
            }
            payload
        })
        .collect();
    let rows: Vec<u32> = (0..events.len() as u32).collect();
    let payloads = BinaryArray::from_iter_values(payloads);
    let batch: Batch = events.batch.clone().with_rows(Vec::new()).with_payloads(&rows, &payloads);
    Events { channels: Arc::clone(&events.channels), batch: concat(&[batch.owned()]) }
}
