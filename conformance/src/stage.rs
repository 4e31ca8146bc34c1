//! Trials of stages: what they do depends on the events, never on how these come, and none is lost unsaid.

mod direct;
mod wanted;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use arrow_array::BinaryArray;
use serde_json::{Value, json};
use sluice_core::{Batch, Plugin, PluginKind, Registry};
use sluice_pipeline::run::Options;

use crate::events::{Events, Gather, Replay, joined};
use crate::finding::{Fault, Gathered, expect_none};
use crate::hostile::Dice;
use crate::isolation::Isolation;
use crate::pipe::{EVENTS, Failure, Pipe, gathered, lasting, read, run, said};
use crate::private::registry;
use crate::{Finding, Promise, options};

use direct::{Outcome, Tried};
use wanted::samples;

/// A stage to be tried.
#[derive(Clone, Debug)]
#[must_use = "nothing is tried before `check` or `findings`"]
pub struct StageTrial {
    plugin: String,
    options: Value,
    fed_by: Option<String>,
}

/// Tries the stage that is registered under this name.
///
/// It is given the kit's own mix of events unless [`fed_by`](StageTrial::fed_by) says otherwise, by itself and by
/// the real engine. It is held to this:
///
/// - **Options, Sample**: unknown options are refused, and the sample shows all there are.
/// - **Batches**: events in batches of any size, with empty ones between, give the same events, rows, counts and
///   notes. A stage without memory may be given its batches in any order.
/// - **Threads**: any number gives the same.
/// - **Books**: events are passed on or counted as filtered; what is held back comes out at the end. What it says it
///   needs (`query`) is all it needs, and it holds nothing back if it says so (`holds`).
/// - **WholeRows**: rows lie beside events that are there, one row an event.
/// - **NoPanic, Memory**: payloads of garbage do no harm.
pub fn stage(plugin: &str) -> StageTrial {
    StageTrial { plugin: plugin.to_owned(), options: json!({}), fed_by: None }
}

impl StageTrial {
    /// Options.
    pub fn options(mut self, options: Value) -> Self {
        self.options = options;
        self
    }

    /// The events it is given: those that this pipeline gives, whose last node is called `events`.
    pub fn fed_by(mut self, pipeline: &str) -> Self {
        self.fed_by = Some(pipeline.to_owned());
        self
    }

    /// All promises that are not kept.
    pub fn findings(&self) -> Vec<Finding> {
        let registry = registry();
        let Some(plugin) = registry.get(PluginKind::Stage, &self.plugin) else {
            return vec![options::unregistered(PluginKind::Stage, &self.plugin)];
        };
        let events = match &self.fed_by {
            Some(text) => gathered(text, &registry),
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
        let bench = Bench { trial: self, plugin, registry: &registry, events };
        // What is tried in a process of its own comes first: all before it is done there once more.
        let mut findings = bench.hostile();
        findings.extend(options::findings(plugin, &self.options, &registry));
        findings.extend(bench.tried_here());
        findings
    }

    /// Fails the test if a promise is not kept.
    ///
    /// # Panics
    ///
    /// If one is not, with all that are not.
    #[track_caller]
    pub fn check(self) {
        expect_none(&self.plugin, &self.findings());
    }
}

/// A stage with its events.
struct Bench<'t> {
    trial: &'t StageTrial,
    plugin: &'t Plugin,
    registry: &'t Registry,
    events: Arc<Events>,
}

/// Most events of a batch, where sizes are not what is tried.
const USUAL: usize = 64;
/// Other sizes.
const SIZES: [usize; 4] = [1, 2, 7, USUAL];

impl Bench<'_> {
    fn tried<'e>(&'e self, events: &'e Events) -> Tried<'e> {
        Tried { plugin: self.plugin, options: &self.trial.options, events }
    }

    /// What sound events show.
    fn tried_here(&self) -> Vec<Finding> {
        catch_unwind(AssertUnwindSafe(|| self.findings())).unwrap_or_else(|panic| {
            let what = format!("it panics on the events it is tried with: {}", said(&*panic));
            vec![Finding::new(Promise::NoPanic, what)]
        })
    }

    fn findings(&self) -> Vec<Finding> {
        let mut found = Gathered::default();
        let tried = self.tried(&self.events);
        match tried.whole() {
            Ok(whole) => {
                whole.faults().into_iter().for_each(|fault| found.add(fault, "all events at once"));
                self.batches(&tried, &whole, &mut found);
                self.any_order(&tried, &whole, &mut found);
                self.wanted(&tried, &whole, &mut found);
                self.threads(&whole, &mut found);
            }
            Err(what) => {
                let kind = "it fails on the events it is tried with";
                found.add(Fault::new(Promise::Batches, kind, what), "all events at once");
            }
        }
        found.findings()
    }

    fn batches(&self, tried: &Tried<'_>, whole: &Outcome, found: &mut Gathered) {
        for size in SIZES {
            let case = format!("batches of {size} events");
            compare(whole, tried.cut(size, false), Promise::Batches, &case, found);
        }
        let case = "empty batches between others";
        compare(whole, tried.cut(7, true), Promise::Batches, case, found);
    }

    fn any_order(&self, tried: &Tried<'_>, whole: &Outcome, found: &mut Gathered) {
        if let Some(backwards) = tried.backwards(7) {
            let case = "batches of 7 events that come in another order";
            compare(whole, backwards, Promise::Batches, case, found);
        }
    }

    /// What it says it needs is all it needs: sources skip the rest.
    fn wanted(&self, tried: &Tried<'_>, whole: &Outcome, found: &mut Gathered) {
        for (case, after) in samples(&whole.events) {
            match tried.wanted(&after) {
                Ok([all, few]) => {
                    let differs = all.events.difference(&few.events);
                    let kind = "events are lost or changed if sources skip what it says it does not need (`query`)";
                    let fault = differs.map(|what| Fault::new(Promise::Books, kind, what));
                    fault.into_iter().for_each(|fault| found.add(fault, &*case));
                }
                Err(what) => found.add(Fault::new(Promise::Books, "it fails", what), case),
            }
        }
    }

    /// What the engine makes of it.
    fn threads(&self, whole: &Outcome, found: &mut Gathered) {
        let mut first: Option<Value> = None;
        for jobs in [1, 2, 8] {
            let case = format!("{jobs} threads");
            let mut add = |promise, kind: &str, what: String| {
                found.add(Fault::new(promise, kind, what), case.clone());
            };
            match self.engine(jobs) {
                Err(Failure::Panic(what)) => add(Promise::NoPanic, "it panics", what),
                Err(Failure::Error(what)) if what.contains("internal:") => {
                    add(Promise::Books, "the run fails", what);
                }
                Err(Failure::Error(what)) => add(Promise::Threads, "the run fails", what),
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

    fn engine(&self, jobs: usize) -> Result<(Events, Value), Failure> {
        let tried = "tried";
        let pipe = Pipe::of_events();
        let pipe = pipe.with("stages", tried, self.plugin.name, Some(EVENTS), &self.trial.options);
        let replay =
            Replay { events: Arc::clone(&self.events), size: 16, each: 2, reversed: jobs > 1 };
        let gather = Gather::default();
        let text = pipe.ending(tried).text();
        let pipeline = read(&text, self.registry, Some(replay), &gather);
        let options = Options { jobs: Some(jobs), ..Options::default() };
        let report = run(pipeline.map_err(Failure::Error)?, options)?;
        let events = gather.take().unwrap_or_default();
        Ok((events, lasting(&report)))
    }

    /// Gives it payloads that hold nothing it could expect.
    fn hostile(&self) -> Vec<Finding> {
        let isolation = Isolation {
            plugin: &self.trial.plugin,
            patience: Duration::from_secs(30),
            memory: 512 << 20,
        };
        isolation.run(&|cases| {
            for (round, what) in GARBAGE.iter().enumerate() {
                cases.case(what, |_| self.garbage(round));
            }
        })
    }

    fn garbage(&self, round: usize) -> Vec<Fault> {
        let spoilt = spoilt(&self.events, round);
        let tried = self.tried(&spoilt);
        // What the stage refuses it may refuse.
        let (Ok(whole), cut) = (tried.whole(), tried.cut(1, false)) else { return Vec::new() };
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
    whole: &Outcome,
    other: Result<Outcome, String>,
    promise: Promise,
    case: &str,
    found: &mut Gathered,
) {
    match other {
        Ok(other) => {
            let faults = other.faults().into_iter().chain(whole.difference(&other, promise));
            faults.for_each(|fault| found.add(fault, case));
        }
        Err(what) => found.add(Fault::new(promise, "it fails", what), case),
    }
}

/// The ways in which payloads are spoilt.
const GARBAGE: [&str; 5] = [
    "payloads of random bytes",
    "payloads that are cut off",
    "payloads of which a bit is another one",
    "payloads with lengths that cannot be",
    "payloads that are empty",
];

/// The events with payloads that are spoilt in this way, and without rows.
fn spoilt(events: &Events, way: usize) -> Events {
    let mut dice = Dice::new(way as u64);
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
    Events { channels: Arc::clone(&events.channels), batch: joined(&[batch.owned()]) }
}
