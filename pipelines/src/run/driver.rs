//! The driver: the one thread that sees everything in order.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, bounded};
use sluice_core::counts::EventCounts;
use sluice_core::output::PublishedFile;
use sluice_core::{Batch, Damage, Error, Fold, Outputs, Query, Source, Split, StageContext};

use super::milestone::{InputLog, Milestone};
use super::observed::NamingNodes;
use super::publisher::{OutputSet, Publisher};
use super::quarantine::Quarantines;
use super::segment::{Branch, SegmentOutcome, SegmentOutput, count_stage};
use super::step_sizes::StepSizes;
use super::steps::{ReadAheadLimits, SourceStep, SourceSteps};
use super::tally::RunTally;
use super::topology::{FoldNode, MergeNode, Port, Topology, ports_of};
use super::writers::Writers;
use super::{Options, Progress, ReadPlan, Setup, Snapshot, keeps_bytes};
use crate::manifest::RunEnd;
use crate::report::MAX_DAMAGE;
use crate::spec::OnDamage;

/// The head of a stream inside the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum StreamHead {
    Fold(usize),
    Merge(usize),
}

/// The running tasks of a head, in order, and the sizes of earlier ones.
#[derive(Default)]
struct Pending {
    tasks: VecDeque<Receiver<Result<SegmentOutcome, Error>>>,
    /// Updated when a task is delivered, so that starting the next one depends only on the events.
    step_sizes: StepSizes,
}

pub(super) struct RunDriver<'r> {
    setup: &'r Setup,
    options: &'r Options,
    writers: Writers<'r>,
    sources: Vec<RunningSource>,
    folds: Vec<RunningFold>,
    merges: Vec<MergeNode>,
    ports: Vec<Port>,
    pending: BTreeMap<StreamHead, Pending>,
    quarantines: Quarantines,
    tally: RunTally,
    damage: Vec<(usize, Damage)>,
    damaged_ranges: u64,
    damaged_bytes: BTreeMap<usize, u64>,
    total_bytes: Option<u64>,
    without_bytes: bool,
    events: u64,
    /// How often the sources have been read to the end.
    rounds: u64,
    /// When losses of live sources were last reported.
    losses_reported: Instant,
}

/// How often to report losses of live sources.
const LOSS_REPORT_INTERVAL: Duration = Duration::from_millis(100);

struct RunningSource {
    node: usize,
    name: Arc<str>,
    source: Arc<dyn Source>,
    /// What to read when it restarts.
    plan: (Vec<Split>, Query),
    steps: SourceSteps,
    inputs: InputLog,
    damage: OnDamage,
    segment: Arc<Vec<Branch>>,
    /// How often it has been polled, so that sources take turns.
    turns: u64,
    /// When it last delivered events.
    last_data: Instant,
    /// Whether it is live and has been silent for a while.
    silent: bool,
    ended: bool,
    /// Whether it was ended early because no node wanted more of it.
    was_cut_short: bool,
}

/// How long to wait for a live source before doing something else.
const LIVE_PATIENCE: Duration = Duration::from_millis(20);

/// How long a live source may be silent before merges go on without it.
const SILENCE_TIMEOUT: Duration = Duration::from_millis(50);

/// The maximum number of batches between two folds.
const MAX_BETWEEN_FOLDS: usize = 16;

/// The note on events that a merge could not wait for.
const MERGED_LATE: &str = "merged out of order, because too much would have had to wait; more \
                           --memory avoids this";

/// How long a fold may go on after the end of its input, if no node wants its output.
const UNWANTED_TIMEOUT: Duration = Duration::from_secs(5);

struct RunningFold {
    fold: FoldNode,
    ended: bool,
}

/// Replaces a fold that was dropped.
struct DroppedFold;

impl Fold for DroppedFold {
    fn push(&mut self, batch: Batch, context: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        context.filtered += batch.len() as u64;
        Ok(Vec::new())
    }

    fn is_done(&self) -> bool {
        true
    }
}

/// The results of a completed run, for its report.
pub(crate) struct FinishedRun {
    pub(crate) tally: RunTally,
    pub(crate) damage: Vec<(usize, Damage)>,
    pub(crate) damaged_ranges: u64,
    pub(crate) damaged_bytes: BTreeMap<usize, u64>,
    pub(crate) bytes_read: u64,
    /// The messages each live source lost, by reason.
    pub(crate) losses: BTreeMap<usize, BTreeMap<String, u64>>,
    /// Files published before the end.
    pub(crate) published: Vec<PublishedFile>,
    /// Whether everything requested was read: no source was cut short.
    pub(crate) is_complete: bool,
}

/// Records which of the names in its options left a fold.
fn observe_left(naming: &NamingNodes, node: usize, given: &[Batch], tally: &mut RunTally) {
    given.iter().for_each(|batch| tally.node(node).observe(naming.left(node, batch)));
}

impl<'r> RunDriver<'r> {
    pub(super) fn new(
        topology: Topology,
        reading: ReadPlan,
        publisher: &'r Publisher<'r>,
        (room, quarantines): (OutputSet, Quarantines),
    ) -> Result<Self, Error> {
        let (setup, options) = (publisher.setup, publisher.options);
        let Topology { sources, folds, merges, sinks, ports } = topology;
        let total_bytes = total_bytes(&reading);
        let without_bytes = reading.sources.iter().all(|source| !source.has_files());
        let mut running = Vec::new();
        let window = (setup.window / sources.len().max(1)).max(1);
        for (source, reading) in sources.iter().zip(reading.sources) {
            let mut reads = setup.context(&source.name, keeps_bytes(&source.damage));
            reads.query = reading.query.clone();
            let shared = (setup.shared.clone(), setup.pool()?);
            let limits = ReadAheadLimits {
                window,
                task_bytes: setup.split_bytes as u64 * 4,
                max_lent_bytes: setup.max_lent_bytes(),
            };
            running.push(RunningSource {
                node: source.node,
                name: Arc::clone(&source.name),
                source: Arc::clone(&source.source),
                plan: (reading.splits.clone(), reading.query),
                inputs: InputLog::new(&source.name, &reading.splits),
                steps: SourceSteps::new(source, reading.splits, reads, shared, limits),
                damage: source.damage.clone(),
                segment: Arc::clone(&source.segment),
                turns: 0,
                last_data: Instant::now(),
                silent: false,
                ended: false,
                was_cut_short: false,
            });
        }
        Ok(Self {
            setup,
            options,
            writers: Writers::open(publisher, room, sinks)?,
            sources: running,
            folds: folds.into_iter().map(|fold| RunningFold { fold, ended: false }).collect(),
            merges,
            ports,
            pending: BTreeMap::new(),
            quarantines,
            tally: RunTally::default(),
            damage: Vec::new(),
            damaged_ranges: 0,
            damaged_bytes: BTreeMap::new(),
            total_bytes,
            without_bytes,
            events: 0,
            rounds: 0,
            losses_reported: Instant::now(),
        })
    }

    /// Records a note of a node from before the first event.
    pub(super) fn note(&mut self, node: usize, name: &str, what: &str) {
        if let Some(progress) = &self.options.progress {
            progress.note(name, what);
        }
        self.tally.node(node).note(what, 0);
    }

    /// Runs everything to the end. The caller publishes the outputs.
    pub(super) fn drive(mut self) -> Result<(FinishedRun, Arc<Outputs>), Error> {
        loop {
            let before = (self.events, self.options.playback.played());
            self.drive_round()?;
            let after = (self.events, self.options.playback.played());
            // If nothing was read or played, the next round would do nothing either.
            if !self.next_round(after.0 > before.0 && after.1 > before.1)? {
                break;
            }
        }
        self.setup.check()?;
        if let Some(progress) = &self.options.progress {
            progress.milestone(&Milestone::Finishing);
        }
        let finished = self.writers.finish(&mut self.tally);
        self.report_progress();
        self.report_losses();
        let (published, outputs) = finished?;
        for quarantine in self.quarantines.into_values() {
            quarantine.finish()?;
        }
        let losses = |source: &RunningSource| (source.node, source.steps.losses().losses());
        let finished = FinishedRun {
            tally: self.tally,
            damage: self.damage,
            damaged_ranges: self.damaged_ranges,
            damaged_bytes: self.damaged_bytes,
            bytes_read: self.setup.bytes_read.load(Ordering::Relaxed),
            losses: self.sources.iter().map(losses).collect(),
            published,
            is_complete: self.sources.iter().all(|source| !source.was_cut_short),
        };
        Ok((finished, outputs))
    }

    /// Reads every source to the end, unless playback seeks elsewhere.
    fn drive_round(&mut self) -> Result<(), Error> {
        while let Some(source) = self.next_source()? {
            self.setup.check()?;
            if self.options.playback.is_redirected() {
                break;
            }
            self.sources[source].turns += 1;
            let (patience, room) = (self.patience(source), self.budget_for(source));
            let step = self.sources[source].steps.next_step(patience, room)?;
            // An interrupted source must not look ended.
            self.setup.check()?;
            match step {
                Some(step) => self.handle_step(source, step)?,
                None => {
                    self.follow(source, InputLog::finish);
                    self.finish_source(source)?;
                }
            }
            self.advance_recording()?;
        }
        // Batches on their way have been counted, so they are delivered.
        (0..self.sources.len()).try_for_each(|source| self.end_source(source))
    }

    /// Ends an exhausted source. One that is not live has been read completely, or was asked to
    /// stop.
    fn finish_source(&mut self, source: usize) -> Result<(), Error> {
        let is_live = self.sources[source].plan.0.iter().any(|split| split.live);
        self.sources[source].was_cut_short |= self.options.stop.is_requested() && !is_live;
        self.end_source(source)
    }

    /// Starts the next round, at the seek target or from the start, if playback or a sink asks for
    /// one. Returns whether there is another round.
    fn next_round(&mut self, moved: bool) -> Result<bool, Error> {
        let playback = &self.options.playback;
        if self.options.stop.is_requested() || playback.is_over() {
            return Ok(false);
        }
        let sought = playback.take_seek();
        if sought.is_none() {
            self.rounds += 1;
            if self.rounds >= self.writers.rounds() || !moved {
                return Ok(false);
            }
        }
        if sought.is_none() {
            playback.begin_again();
        }
        for source in &mut self.sources {
            let (mut splits, mut query) = source.plan.clone();
            if let Some(time) = sought {
                query.start = Some(query.start.map_or(time, |start| start.max(time)));
                splits = source.source.splits(self.setup.split_bytes as u64, &query)?;
            }
            source.inputs = InputLog::new(&source.name, &splits);
            source.steps.restart(splits, query);
            source.ended = false;
        }
        for RunningFold { fold, ended } in &mut self.folds {
            (fold.fold, *ended) = (fold.factory.make()?, false);
        }
        self.merges.iter_mut().for_each(|merge| merge.merge.begin_again());
        Ok(true)
    }

    /// Flushes recordings when due, and starts the next piece when one is complete.
    fn advance_recording(&mut self) -> Result<(), Error> {
        if self.writers.is_piece_complete() {
            self.deliver_all_tasks()?;
            let exit = if self.has_losses() { 3 } else { 0 };
            self.writers.next_piece(RunEnd { exit, partial: false }, &mut self.tally)?;
        }
        if self.writers.is_flush_due() {
            self.deliver_all_tasks()?;
            self.writers.flush(&mut self.tally)?;
        }
        Ok(())
    }

    fn has_losses(&self) -> bool {
        let lost = |source: &RunningSource| source.steps.losses().total() > 0;
        self.damaged_ranges > 0 || self.sources.iter().any(lost)
    }

    /// The source to poll next: one that a merge waits for, otherwise the one with the fewest
    /// turns. A live source without data is waited for only if none has any.
    fn next_source(&mut self) -> Result<Option<usize>, Error> {
        let mut asked = BTreeMap::new();
        for source in 0..self.sources.len() {
            if !self.has_demand(&self.sources[source].segment, &mut asked) {
                self.sources[source].was_cut_short |= !self.sources[source].ended;
                self.end_source(source)?;
            }
        }
        self.note_silence();
        let open = |source: &usize| !self.sources[*source].ended;
        let turn = |source: &usize| {
            let RunningSource { steps, turns, .. } = &self.sources[*source];
            (!steps.has_data(), self.is_held_back(*source), *turns, *source)
        };
        // A silent source that no merge waits for would otherwise never get its turn.
        let back =
            |source: &usize| self.sources[*source].silent && self.sources[*source].steps.has_data();
        let back = (0..self.sources.len()).filter(open).filter(back).min_by_key(turn);
        let starved = (0..self.merges.len())
            .filter_map(|merge| self.awaited(merge)?.iter().copied().filter(open).min_by_key(turn));
        let starved = back.or_else(|| starved.min_by_key(turn));
        Ok(starved.or_else(|| (0..self.sources.len()).filter(open).min_by_key(turn)))
    }

    /// The sources of which one must deliver before a merge can continue.
    ///
    /// If the merge waits for another merge, these are the sources that the other one waits for:
    /// anything else would only queue up.
    fn awaited(&self, mut merge: usize) -> Option<&BTreeSet<usize>> {
        let mut input = self.merges[merge].merge.starved()?;
        while let Some(before) = self.merges[merge].fed_by[input]
            && let Some(starved) = self.merges[before].merge.starved()
        {
            (merge, input) = (before, starved);
        }
        Some(&self.merges[merge].roots[input])
    }

    /// How long to wait for the chosen live source: not at all if there is other work.
    fn patience(&self, chosen: usize) -> Duration {
        let others =
            self.sources.iter().enumerate().filter(|(n, other)| *n != chosen && !other.ended);
        let (mut count, mut busy) = (0, false);
        for (_, other) in others {
            count += 1;
            busy |= other.steps.has_data();
        }
        match (busy, count) {
            (true, _) => Duration::ZERO,
            (false, 0) => LIVE_PATIENCE,
            (false, _) => LIVE_PATIENCE / 10,
        }
    }

    /// The bytes that running steps of a source may take: what the others leave.
    fn budget_for(&self, source: usize) -> usize {
        let others = self.sources.iter().enumerate().filter(|(n, _)| *n != source);
        let others: usize = others.map(|(_, other)| other.steps.estimated_bytes()).sum();
        let heads = self.pending.values();
        let heads: usize =
            heads.map(|pending| pending.step_sizes.estimated_bytes(pending.tasks.len())).sum();
        let merges: usize = self.merges.iter().map(|merge| merge.merge.bytes()).sum();
        self.setup.step_budget.saturating_sub(others.saturating_add(heads).saturating_add(merges))
    }

    /// Whether events of a source would only queue up at a merge that already holds many of them
    /// and waits for another source. Otherwise two merges that share a source could fill memory at
    /// one of them.
    fn is_held_back(&self, source: usize) -> bool {
        let limit = self.setup.merge_limit();
        self.merges.iter().any(|MergeNode { merge, roots, .. }| {
            let feeds = roots.iter().enumerate().filter(|(_, roots)| roots.contains(&source));
            let mut waits = feeds.filter(|(input, _)| merge.waiting_bytes(*input) > limit);
            waits.any(|(input, _)| merge.starved().is_some_and(|starved| starved != input))
        })
    }

    fn handle_step(&mut self, source: usize, step: SourceStep) -> Result<(), Error> {
        for damage in step.damage {
            self.note_damage(source, damage)?;
        }
        let RunningSource { node, name, steps, .. } = &self.sources[source];
        let read = step.outcome.tally.get(*node).left.total();
        let split = steps.current();
        self.events += read;
        if steps.is_live() {
            for (what, count) in steps.losses().take_notes() {
                if let Some(progress) = &self.options.progress {
                    progress.note(name, &what);
                }
                self.tally.node(*node).note(&what, count);
            }
        }
        self.follow(source, |inputs, progress| inputs.read(split, read, progress));
        if read > 0 {
            self.sources[source].last_data = Instant::now();
        }
        self.deliver(step.outcome)?;
        self.end_step()?;
        if read == 0 {
            // While no data arrives, nothing that has arrived may wait.
            self.deliver_all_tasks()?;
        }
        self.report_progress();
        if self.losses_reported.elapsed() >= LOSS_REPORT_INTERVAL {
            self.report_losses();
        }
        Ok(())
    }

    fn note_damage(&mut self, source: usize, damage: Damage) -> Result<(), Error> {
        let RunningSource { node, damage: policy, .. } = &self.sources[source];
        let node = *node;
        match policy {
            OnDamage::Stop => {
                return Err(sluice_core::ErrorKind::Damaged(damage.to_string()).into());
            }
            OnDamage::Quarantine(_) => {
                if let Some(quarantine) = self.quarantines.get_mut(&node) {
                    quarantine.add(&damage)?;
                }
            }
            OnDamage::Skip => {}
        }
        self.damaged_ranges += 1;
        *self.damaged_bytes.entry(node).or_default() += damage.length;
        if self.damage.len() < MAX_DAMAGE {
            self.damage.push((node, Damage { bytes: Vec::new(), ..damage }));
        }
        Ok(())
    }

    /// Marks merge inputs as idle whose live sources are all silent; merges do not wait for these.
    fn note_silence(&mut self) {
        for source in &mut self.sources {
            let silent = source.steps.is_live() && source.last_data.elapsed() >= SILENCE_TIMEOUT;
            source.silent = silent && !source.ended;
        }
        let sources = &self.sources;
        for MergeNode { merge, roots, .. } in &mut self.merges {
            for (input, roots) in roots.iter().enumerate() {
                let mut open = roots.iter().map(|root| &sources[*root]).filter(|root| !root.ended);
                merge.set_idle(input, open.all(|root| root.silent));
            }
        }
    }

    /// Delivers all running tasks of heads inside the graph, and what follows from them.
    fn deliver_all_tasks(&mut self) -> Result<(), Error> {
        let busy =
            |(head, pending): (&StreamHead, &Pending)| (!pending.tasks.is_empty()).then_some(*head);
        // Heads that others feed were created before those that feed them.
        while let Some(head) = self.pending.iter().rev().find_map(busy) {
            self.deliver_tasks(head, usize::MAX)?;
        }
        Ok(())
    }

    fn deliver(&mut self, outcome: SegmentOutcome) -> Result<(), Error> {
        self.tally.add(&outcome.tally);
        for delivery in outcome.deliveries {
            match delivery {
                SegmentOutput::Block { node, block } => {
                    self.writers.append(node, block, &mut self.tally)?;
                }
                SegmentOutput::Batch { port, batch } => self.deliver_to_port(port, batch)?,
            }
        }
        Ok(())
    }

    fn deliver_to_port(&mut self, port: usize, batch: Batch) -> Result<(), Error> {
        match self.ports[port] {
            Port::Fold(fold) => self.fold(fold, Some(batch)),
            Port::Merge(merge, input) => {
                let MergeNode { node, merge: into, .. } = &mut self.merges[merge];
                let late = into.push(input, batch);
                if late > 0 {
                    self.tally.node(*node).note(MERGED_LATE, late);
                }
                self.drain_merge(merge, false)
            }
        }
    }

    /// Passes the next batch to a fold, or `None` at the end of its input.
    fn fold(&mut self, place: usize, batch: Option<Batch>) -> Result<(), Error> {
        let RunningFold { fold, .. } = &mut self.folds[place];
        let mut context = self.setup.stage_context(fold);
        let before =
            batch.as_ref().map(|batch| EventCounts::count(batch.origins())).unwrap_or_default();
        let naming = &self.setup.shared.naming;
        let met = batch.as_ref().and_then(|batch| naming.entered(fold.node, batch));
        self.tally.node(fold.node).observe(met);
        let given = match batch {
            Some(batch) => fold.fold.push(batch, &mut context)?,
            None => fold.fold.finish(&mut context)?,
        };
        let mut after = EventCounts::default();
        given.iter().for_each(|batch| after.add(&EventCounts::count(batch.origins())));
        observe_left(naming, fold.node, &given, &mut self.tally);
        let mut outcome = SegmentOutcome::default();
        count_stage(fold.node, &context, &before, &after, &mut outcome);
        self.tally.add(&outcome.tally);
        given.into_iter().try_for_each(|batch| self.emit(StreamHead::Fold(place), batch))?;
        self.drain_fold(place)
    }

    /// Drains output that a fold did not return at once; stops early if no node wants it any more.
    fn drain_fold(&mut self, place: usize) -> Result<(), Error> {
        let begun = Instant::now();
        loop {
            let RunningFold { fold, .. } = &mut self.folds[place];
            let mut context = self.setup.stage_context(fold);
            let given = fold.fold.more(&mut context)?;
            let mut after = EventCounts::default();
            given.iter().for_each(|batch| after.add(&EventCounts::count(batch.origins())));
            observe_left(&self.setup.shared.naming, fold.node, &given, &mut self.tally);
            let mut outcome = SegmentOutcome::default();
            count_stage(fold.node, &context, &EventCounts::default(), &after, &mut outcome);
            self.tally.add(&outcome.tally);
            if given.is_empty() {
                return Ok(());
            }
            given.into_iter().try_for_each(|batch| self.emit(StreamHead::Fold(place), batch))?;
            self.setup.check()?;
            let is_asked_to_end = self.options.stop.is_requested();
            let is_wanted = self.head_has_demand(StreamHead::Fold(place), &mut BTreeMap::new());
            match (self.folds[place].ended, is_wanted) {
                // A fold that produces until its input ends must be told of the end first.
                (false, true) if is_asked_to_end => return Ok(()),
                (false, false) => {
                    self.end_fold(place)?;
                    // Other readers of the same input may still want it.
                    self.folds[place].fold.fold = Box::new(DroppedFold);
                    return Ok(());
                }
                (true, false) if is_asked_to_end || begun.elapsed() >= UNWANTED_TIMEOUT => {
                    self.drop_fold(place);
                    return Ok(());
                }
                _ => {}
            }
        }
    }

    /// Ends a fold, and everything after it.
    fn end_fold(&mut self, place: usize) -> Result<(), Error> {
        self.folds[place].ended = true;
        self.fold(place, None)?;
        self.end_head(StreamHead::Fold(place))
    }

    /// Drops a fold whose output no node wants, with all that it holds.
    fn drop_fold(&mut self, place: usize) {
        let FoldNode { node, fold, .. } = &mut self.folds[place].fold;
        *fold = Box::new(DroppedFold);
        let tally = self.tally.node(*node);
        let came = tally.entered.total().saturating_add(tally.added.total());
        tally.filtered = came.saturating_sub(tally.left.total());
        tally.note("kept producing output that no node reads, and was stopped", 0);
    }

    fn drain_merge(&mut self, merge: usize, step_over: bool) -> Result<(), Error> {
        while let Some(batch) = self.merges[merge].merge.take(step_over) {
            self.emit(StreamHead::Merge(merge), batch)?;
        }
        Ok(())
    }

    /// Runs a batch through a head's segment as a task; outcomes are delivered in order. Runs
    /// inline if a merge follows, because a merge needs everything of a step when the step ends.
    fn emit(&mut self, head: StreamHead, batch: Batch) -> Result<(), Error> {
        if batch.is_empty() {
            return Ok(());
        }
        let (segment, shared) = (self.segment(head), self.setup.shared.clone());
        if self.leads_to_merge(&segment) {
            let mut outcome = SegmentOutcome::default();
            shared.run(&segment, None, batch, &mut outcome)?;
            return self.deliver(outcome);
        }
        self.await_capacity(head)?;
        let (sender, result) = bounded(1);
        self.setup.pool()?.spawn(move || {
            let mut outcome = SegmentOutcome::default();
            let ran = shared.run(&segment, None, batch, &mut outcome).map(|()| outcome);
            // The receiver is gone if the run has failed elsewhere.
            drop(sender.send(ran));
        });
        self.pending.entry(head).or_default().tasks.push_back(result);
        Ok(())
    }

    /// Delivers a head's oldest tasks until another one fits its budget.
    fn await_capacity(&mut self, head: StreamHead) -> Result<(), Error> {
        // The rest is for the sources.
        let room = self.setup.step_budget / 4 * 3 / self.pending.len().max(1);
        // The point at which a fold learns that it is done must not depend on the number of
        // threads.
        let leads_on = !ports_of(&self.segment(head)).is_empty();
        let most = if leads_on { MAX_BETWEEN_FOLDS } else { self.setup.window + 1 };
        while let Some(Pending { tasks, step_sizes: delivered }) = self.pending.get(&head)
            && tasks.len() >= delivered.max_steps(room).min(most)
        {
            self.deliver_tasks(head, 1)?;
        }
        Ok(())
    }

    /// Delivers a head's oldest `count` tasks.
    fn deliver_tasks(&mut self, head: StreamHead, count: usize) -> Result<(), Error> {
        for _ in 0..count {
            let Some(pending) = self.pending.get_mut(&head) else { break };
            let Some(result) = pending.tasks.pop_front() else { break };
            let outcome =
                result.recv().unwrap_or_else(|_| Err(Error::internal("a task panicked")))?;
            pending.step_sizes.note(outcome.memory);
            self.deliver(outcome)?;
        }
        Ok(())
    }

    fn end_step(&mut self) -> Result<(), Error> {
        // Merges that feed others were created after those they feed.
        (0..self.merges.len()).rev().try_for_each(|merge| self.drain_merge(merge, true))
    }

    fn end_source(&mut self, source: usize) -> Result<(), Error> {
        if std::mem::replace(&mut self.sources[source].ended, true) {
            return Ok(());
        }
        self.follow(source, InputLog::close);
        let segment = Arc::clone(&self.sources[source].segment);
        self.end_segment(&segment)
    }

    /// Ends everything that a segment leads to.
    fn end_segment(&mut self, segment: &[Branch]) -> Result<(), Error> {
        for port in ports_of(segment) {
            match self.ports[port] {
                Port::Fold(fold) if !self.folds[fold].ended => self.end_fold(fold)?,
                Port::Fold(_) => {}
                Port::Merge(merge, input) => {
                    self.merges[merge].merge.end(input);
                    self.drain_merge(merge, false)?;
                    if self.merges[merge].merge.is_over() {
                        self.end_head(StreamHead::Merge(merge))?;
                    }
                }
            }
        }
        Ok(())
    }

    fn end_head(&mut self, head: StreamHead) -> Result<(), Error> {
        self.deliver_tasks(head, usize::MAX)?;
        let segment = self.segment(head);
        self.end_segment(&segment)
    }

    fn segment(&self, head: StreamHead) -> Arc<Vec<Branch>> {
        Arc::clone(match head {
            StreamHead::Fold(fold) => &self.folds[fold].fold.segment,
            StreamHead::Merge(merge) => &self.merges[merge].segment,
        })
    }

    /// Whether any node that a segment leads to can still use events.
    fn has_demand(&self, segment: &[Branch], asked: &mut BTreeMap<StreamHead, bool>) -> bool {
        segment.iter().any(|branch| match branch {
            Branch::Sink { .. } => true,
            Branch::Map { next, .. } => self.has_demand(next, asked),
            Branch::Port(port) => match self.ports[*port] {
                Port::Fold(fold) if self.folds[fold].fold.fold.is_done() => false,
                Port::Fold(fold) => self.head_has_demand(StreamHead::Fold(fold), asked),
                Port::Merge(merge, _) => self.head_has_demand(StreamHead::Merge(merge), asked),
            },
        })
    }

    /// Memoised: the number of paths doubles each time the graph splits and joins again.
    fn head_has_demand(&self, head: StreamHead, asked: &mut BTreeMap<StreamHead, bool>) -> bool {
        if let Some(known) = asked.get(&head) {
            return *known;
        }
        let wanted = self.has_demand(&self.segment(head), asked);
        asked.insert(head, wanted);
        wanted
    }

    /// Whether a segment leads to a merge, directly or not.
    fn leads_to_merge(&self, segment: &[Branch]) -> bool {
        ports_of(segment).into_iter().any(|port| match self.ports[port] {
            Port::Fold(fold) => self.leads_to_merge(&self.folds[fold].fold.segment),
            Port::Merge(..) => true,
        })
    }

    fn report_losses(&mut self) {
        self.losses_reported = Instant::now();
        let Some(progress) = &self.options.progress else { return };
        for source in self.sources.iter().filter(|source| source.steps.is_live()) {
            progress.losses(&source.name, &source.steps.losses().losses());
        }
    }

    /// Updates a source's input log, if the run has a progress listener.
    fn follow(&mut self, source: usize, step: impl FnOnce(&mut InputLog, &dyn Progress)) {
        if let Some(progress) = &self.options.progress {
            step(&mut self.sources[source].inputs, &**progress);
        }
    }

    fn report_progress(&self) {
        let Some(progress) = &self.options.progress else { return };
        progress.update(&Snapshot {
            bytes: self.setup.bytes_read.load(Ordering::Relaxed),
            total_bytes: self.total_bytes,
            events: self.events,
            damage: self.damaged_ranges,
            lost: self.sources.iter().map(|source| source.steps.losses().total()).sum(),
            without_bytes: self.without_bytes,
            ..Snapshot::default()
        });
    }
}

/// The bytes to read, if every split knows its length.
fn total_bytes(reading: &ReadPlan) -> Option<u64> {
    let splits = reading.sources.iter().flat_map(|source| {
        // Positions of sources without files are not bytes.
        let has_files = source.has_files();
        source.splits.iter().map(move |split| (has_files, split))
    });
    let length = |(has_files, split): (bool, &Split)| match split.end.filter(|_| has_files) {
        // Compressed splits hold more bytes than are read.
        Some(end) => Some(end.saturating_sub(split.start)),
        None => split.bytes,
    };
    splits.map(length).sum()
}
