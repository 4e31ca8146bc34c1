//! The engine: runs a pipeline on this machine.
//!
//! One thread, the driver, polls sources for steps in order, hands prepared blocks to the sinks,
//! writes the units they make of them, and runs whatever needs order (folds and merges). Reading,
//! maps, preparing and encoding are tasks on a rayon pool. The driver's decisions depend only on
//! the events, never on which task finishes first, so the output is the same for any number of
//! threads.

mod driver;
mod hashing;
mod milestone;
mod node_calls;
mod observed;
mod options;
pub(crate) mod plan;
mod programs;
mod publisher;
mod pushdown;
mod quarantine;
mod recording;
mod reporting;
mod segment;
mod setup;
mod stop;
pub(crate) mod tally;
mod topology;
mod unflushed;
mod windows;
mod writers;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use sluice_io::files::InputHashes;
use sluice_io::output::PublishedFile;
use sluice_model::{DynSink, Error, Outputs, RunOrigin};

use crate::manifest::{self, RunEnd};
use crate::report::Report;
use crate::spec::{Pipeline, PipelineNode};
use crate::{equal_source_names, resolved, unused_rows};
pub use milestone::{Milestone, Progress, Snapshot};
pub use options::{DEFAULT_MEMORY, Options};
pub(crate) use options::{ParentRun, memory_cap, thread_count};
pub use plan::{ReadPlan, SourcePlan};
pub use programs::check_programs_allowed;
pub use recording::{PiecePolicy, PieceProgress, Recording};
pub(crate) use setup::start_pool;
pub use stop::Stop;
pub(crate) use tally::RunResults;

use driver::{Driven, RunDriver};
use node_calls::NodeCalls;
use observed::NamingNodes;
use publisher::Publisher;
use reporting::ReportContext;
use setup::Setup;
use stop::Interruption;
use topology::Topology;
use windows::StoredSources;

/// Runs a pipeline.
///
/// `Err` means that the run failed and nothing was published, except what a live source has
/// received for sinks that have not failed. Damage and events that could not be written are in the
/// report: a run that was stopped may have published a part ([`Report::interrupted`]). A pipeline
/// that runs programs is refused upfront, unless the options allow it, and so is one whose outputs
/// are named after inputs.
///
/// Plugin calls that are in progress when a run fails or is stopped may go on after the return, on
/// other threads: a call that never returns does not keep the run from ending.
pub fn run(pipeline: Pipeline, options: &Options) -> Result<Report, Error> {
    if let Some(node) = pipeline.templates.first().and_then(|slot| pipeline.nodes.get(slot.node)) {
        return Err(Error::refused(format!(
            "{} `{}`: the output is named after inputs, so that the pipeline is a batch: run it by \
             `sluice_pipeline::batch`",
            node.kind, node.name
        )));
    }
    run_in_parent(pipeline, options, None, &mut Report::default())
}

/// Like [`run`], for a run embedded in a batch or worker. If it fails, `known` gets what is known
/// of the run.
pub(crate) fn run_in_parent(
    pipeline: Pipeline,
    options: &Options,
    within: Option<&ParentRun<'_>>,
    known: &mut Report,
) -> Result<Report, Error> {
    report_failed(options, known, |known| {
        // What a plugin may do where no node is known, such as panicking when it is dropped.
        Error::catching(|| plan_and_run(pipeline, options, within, known))
    })
}

/// Sets the duration of a run. If it fails, reports what is `known` of it.
pub(crate) fn report_failed(
    options: &Options,
    known: &mut Report,
    run: impl FnOnce(&mut Report) -> Result<Report, Error>,
) -> Result<Report, Error> {
    let started = Instant::now();
    let ran = run(known);
    let seconds = started.elapsed().as_secs_f64();
    if ran.is_err() {
        known.seconds = seconds;
        options.report_failure(known);
    }
    Ok(Report { seconds, ..ran? })
}

/// Plans what is read, and runs the pipeline. If that fails, `known` gets what is known of the run.
fn plan_and_run(
    pipeline: Pipeline,
    options: &Options,
    within: Option<&ParentRun<'_>>,
    known: &mut Report,
) -> Result<Report, Error> {
    check_programs_allowed(&pipeline, options)?;
    let pool = within.and_then(|within| within.pool.clone());
    let mut setup = Setup::new(options, pipeline.memory, holding_sinks(&pipeline.nodes), pool);
    setup.is_sent_live = is_sent_live(&pipeline.nodes);
    setup.note_sinks(&pipeline.nodes);
    setup.shared.labels = NodeCalls::of_pipeline(&pipeline);
    let reading = setup.prepare(&pipeline.nodes)?;
    let is_recording = options.recording.is_some();
    setup.shared.naming = NamingNodes::from_nodes(&pipeline.nodes);
    setup.interruption = Interruption::from_plan(&reading, setup.is_sent_live, is_recording);
    let is_discardable = setup.interruption == Interruption::Discards;
    let _counted = is_discardable.then(|| options.stop.discardable());
    setup.shared.run = setup.run_handle("");
    let ran = run_prepared(pipeline, (reading, within), &setup, options, known);
    ran.map_err(|error| match setup.check() {
        // A failure during shutdown does not matter: nothing would have been published.
        Err(given_up) => given_up,
        Ok(()) => error,
    })?
}

/// Whether all sinks send live, so that nothing is stored.
fn is_sent_live(nodes: &[PipelineNode]) -> bool {
    nodes.iter().filter_map(PipelineNode::sink).all(|sink| sink.traits().is_live)
}

/// Runs a pipeline whose inputs have been planned. The inner error is that of publishing: it may
/// say what is left of the outputs.
fn run_prepared(
    pipeline: Pipeline,
    (reading, within): (ReadPlan, Option<&ParentRun<'_>>),
    setup: &Setup,
    options: &Options,
    known: &mut Report,
) -> Result<Result<Report, Error>, Error> {
    let started = Instant::now();
    let text = resolved::text(&pipeline, memory_cap(options, pipeline.memory));
    let Pipeline { name, nodes, files, .. } = pipeline;
    let is_hashed = within.is_some_and(|within| within.hash);
    let reporting = ReportContext::from_plan(&nodes, &reading, setup);
    let inputs = &reporting.inputs;
    // The units of a batch are checked together, and what was received live is not thrown away.
    let may_refuse =
        options.strict && within.is_none() && !reading.sources.iter().any(SourcePlan::is_live);
    for source in &reading.sources {
        let name = nodes.get(source.node).map_or("", |node| &node.name);
        options.report_milestone(&Milestone::planned(name, source));
    }
    let wants_hashes =
        is_hashed || writes_folder(&nodes) || sinks(&nodes).any(|sink| sink.traits().wants_hashes);
    let hashed = if wants_hashes { &**inputs } else { &[] };
    let hashes = Arc::new(InputHashes::of_inputs(hashed));
    let publisher = Publisher {
        setup,
        options,
        parent: within,
        origin: Arc::new(RunOrigin {
            name,
            pipeline: text,
            inputs: hashing::with_hashes(inputs, &hashes),
            ..RunOrigin::default()
        }),
        hashes,
        plugins: manifest::plugin_names(&nodes),
        inputs: inputs.iter().map(|input| input.path.clone()).chain(files).collect(),
        targets: sinks(&nodes).flat_map(|sink| &sink.traits().targets).cloned().collect(),
        // Pieces of a recording are published as they are complete.
        receiving: match &options.recording {
            None => receiving_sinks(&nodes, &reading),
            Some(_) => BTreeSet::new(),
        },
        grows: sinks(&nodes).all(|sink| sink.traits().is_readable_unfinished),
        hash: options.hash || is_hashed || writes_folder(&nodes),
    };
    let notes = initial_notes(&nodes, &reading);
    let topology =
        Topology::build(nodes, &reading.origins, &reading.pushdown, setup.merge_limit())?;
    let stored = StoredSources::from_plan(&topology.sources, &reading);
    let mut driver = RunDriver::new(topology, reading, &publisher)?;
    for (node, what) in notes {
        driver.note(node, &reporting.labels[node].0, &what, 0);
    }
    let driven = driver.drive().map_err(|error| reporting.name_only_input(error));
    let mut results = driver.into_results();
    let ended = driven.and_then(|Driven { outputs, failure }| {
        if let Some(failure) = failure {
            setup.check()?;
            // If that fails as well, nothing is kept, and the cause matters more.
            results
                .published
                .extend(publisher.publish(&outputs, &RunEnd::failed()).into_iter().flatten());
            report_outputs(&results.published, options);
            return Ok(Err(reporting.name_only_input(failure)));
        }
        let mut report = reporting.report(&results, &stored)?;
        report.refused = may_refuse && report.unmatched().next().is_some();
        Ok(match publish_outputs(report, &outputs, &publisher, started) {
            Err(error) if publisher.is_disk_full(&error) => {
                results.lose_last_piece(&error);
                reporting.report(&results, &stored)
            }
            published => published,
        })
    });
    if !matches!(ended, Ok(Ok(_))) {
        *known = reporting.failed(&results);
    }
    ended
}

/// Publishes the outputs of a completed run, unless that is refused.
fn publish_outputs(
    mut report: Report,
    outputs: &Arc<Outputs>,
    publisher: &Publisher<'_>,
    started: Instant,
) -> Result<Report, Error> {
    let options = publisher.options;
    if report.refused {
        return Ok(report);
    }
    let ended = RunEnd::from_report(&report);
    options.report_milestone(&Milestone::Publishing { seconds: started.elapsed().as_secs_f64() });
    report.files.extend(publisher.publish(outputs, &ended)?);
    report.note_leftover(outputs);
    report_outputs(&report.files, options);
    Ok(report)
}

fn report_outputs(files: &[PublishedFile], options: &Options) {
    for PublishedFile { path, rows, bytes, .. } in files {
        options.report_milestone(&Milestone::Output { path, rows: *rows, bytes: *bytes });
    }
}

/// The sinks that get what is received live, by node index.
fn receiving_sinks(nodes: &[PipelineNode], reading: &ReadPlan) -> BTreeSet<usize> {
    let live = reading.sources.iter().filter(|source| source.is_live());
    let mut receiving: BTreeSet<usize> = live.map(|source| source.node).collect();
    let reaches = |receiving: &BTreeSet<usize>, node: &PipelineNode| {
        node.from.iter().any(|from| receiving.contains(from))
    };
    // A node may be written before those that it reads from.
    for _ in nodes {
        let more = (0..).zip(nodes).filter(|(_, node)| reaches(&receiving, node));
        receiving = more.map(|(place, _)| place).chain(receiving.iter().copied()).collect();
    }
    receiving.retain(|node| nodes.get(*node).is_some_and(|node| node.sink().is_some()));
    receiving
}

/// Notes from before the first event, by node index.
fn initial_notes(nodes: &[PipelineNode], reading: &ReadPlan) -> Vec<(usize, String)> {
    let notes = |(place, node): (usize, &PipelineNode)| {
        node.notes().into_iter().map(move |what| (place, what)).collect::<Vec<_>>()
    };
    let mut all: Vec<_> = nodes.iter().enumerate().flat_map(notes).collect();
    all.append(&mut unused_rows::notes(nodes));
    all.append(&mut equal_source_names::notes(nodes, &reading.sources));
    all
}

/// Plans what running this pipeline would read, with as little reading as possible.
pub fn plan(pipeline: &Pipeline, options: &Options) -> Result<ReadPlan, Error> {
    let mut setup = Setup::new(options, pipeline.memory, holding_sinks(&pipeline.nodes), None);
    setup.shared.labels = NodeCalls::of_pipeline(pipeline);
    Error::catching(|| setup.prepare(&pipeline.nodes))
}

/// The sinks among these nodes.
fn sinks(nodes: &[PipelineNode]) -> impl Iterator<Item = &DynSink> {
    nodes.iter().filter_map(PipelineNode::sink)
}

/// The number of sinks that buffer events.
pub(crate) fn holding_sinks(nodes: &[PipelineNode]) -> usize {
    sinks(nodes).filter(|sink| sink.traits().buffers_events).count()
}

/// Whether a sink writes a folder, whose manifest holds hashes.
fn writes_folder(nodes: &[PipelineNode]) -> bool {
    let mut targets = sinks(nodes).flat_map(|sink| &sink.traits().targets);
    targets.any(|target| target.as_os_str().as_encoded_bytes().ends_with(b"/"))
}
