//! The driver: the one thread that sees everything in order.

mod folds;
mod polling;
mod streams;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::{Duration, Instant};

use sluice_io::files::{InputHashes, is_stream};
use sluice_io::tasks::TaskPool;
use sluice_kit::merge::MergePause;
use sluice_kit::reading::{ReadAhead, ReadStep};
use sluice_model::{
    Batch, Damage, DamageList, DamageLog, Error, Outputs, Query, RunDamage, RunOrigin, Source,
    Split,
};

use super::hashing::hash_rest;
use super::milestone::{InputLog, Milestone};
use super::publisher::Publisher;
use super::quarantine::{self, Quarantines};
use super::segment::{Branch, SegmentOutcome, SegmentOutput};
use super::setup::run_task;
use super::tally::{RunResults, RunTally};
use super::topology::{MergeNode, Port, Topology};
use super::writers::Writers;
use super::{Options, Progress, ReadPlan, Setup, Snapshot};
use crate::manifest::RunEnd;
use crate::spec::OnDamage;
use folds::RunningFold;
use streams::{Pending, StreamHead};

pub(super) struct RunDriver<'r> {
    setup: &'r Setup,
    options: &'r Options,
    writers: Writers<'r>,
    sources: Vec<RunningSource>,
    folds: Vec<RunningFold>,
    merges: Vec<MergeNode>,
    ports: Vec<Port>,
    tasks: TaskPool,
    pending: BTreeMap<StreamHead, Pending>,
    quarantines: Quarantines,
    tally: RunTally,
    damage: Vec<(usize, Arc<Damage>)>,
    origin: Arc<RunOrigin>,
    hashes: Arc<InputHashes>,
    damaged_ranges: u64,
    damaged_bytes: BTreeMap<usize, u64>,
    total_bytes: Option<u64>,
    without_bytes: bool,
    events: u64,
    /// How often the sources have been read to the end.
    rounds: u64,
    /// Whether this round began where playback was told to go.
    is_sought: bool,
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
    steps: ReadAhead<'static, SegmentOutcome>,
    inputs: InputLog,
    damage: OnDamage,
    segment: Arc<Vec<Branch>>,
    /// How often it has been polled, so that sources take turns.
    turns: u64,
    /// When it last delivered events.
    last_data: Instant,
    /// Whether data comes when others please: it is live, or reads a stream or from a program.
    may_stall: bool,
    /// Whether it is live and has been silent for a while.
    silent: bool,
    ended: bool,
    /// Whether it was ended early because no node wanted more of it.
    was_cut_short: bool,
}

/// One step of a source.
type SourceStep = ReadStep<SegmentOutcome>;

impl RunningSource {
    /// Whether asking it yields something without waiting for others.
    fn has_data(&self) -> bool {
        !self.may_stall || self.steps.is_ready()
    }
}

/// The note on events that a merge could not wait for.
const MERGED_LATE: &str = "merged out of order, because too much would have had to wait; more \
                           --memory avoids this";

impl<'r> RunDriver<'r> {
    pub(super) fn new(
        topology: Topology,
        reading: ReadPlan,
        publisher: &'r Publisher<'r>,
    ) -> Result<Self, Error> {
        let (setup, options) = (publisher.setup, publisher.options);
        let Topology { sources, folds, merges, sinks, ports } = topology;
        let total_bytes = total_bytes(&reading);
        let without_bytes = reading.sources.iter().all(|source| !source.has_files());
        let mut running = Vec::new();
        let limits = setup.read_limits(sources.len());
        for (source, reading) in sources.iter().zip(reading.sources) {
            let mut reads = setup.context(&source.name, damage_log(&source.damage));
            reads.query = reading.query.clone();
            reads.run = reads.run.sharing(&publisher.hashes);
            let (node, segment) = (source.node, Arc::clone(&source.segment));
            let shared = setup.shared.clone();
            let add = move |batch: Batch, step: &mut SourceStep| {
                shared.run(&segment, Some(node), batch, &mut step.output)?;
                step.memory = step.output.memory;
                Ok(())
            };
            let (reads_from, pool) = (Arc::clone(&source.source), setup.pool()?);
            let executor = move |task| run_task(&pool, task);
            let may_stall = reading.splits.iter().any(may_stall);
            running.push(RunningSource {
                node: source.node,
                name: Arc::clone(&source.name),
                source: Arc::clone(&source.source),
                plan: (reading.splits.clone(), reading.query),
                inputs: InputLog::new(&source.name, &reading.splits),
                steps: ReadAhead::new(reads_from, reading.splits, reads, add, executor, limits),
                damage: source.damage.clone(),
                segment: Arc::clone(&source.segment),
                turns: 0,
                last_data: Instant::now(),
                may_stall,
                silent: false,
                ended: false,
                was_cut_short: false,
            });
        }
        // Opening a recording replaces and renames files: not before its sources listen.
        let mut live = running.iter_mut().filter(|source| source.steps.is_live());
        live.try_for_each(|source| source.steps.begin())?;
        let outputs = publisher.open_outputs()?;
        let policies = running.iter().map(|source| (source.node, &*source.name, &source.damage));
        let quarantines = quarantine::open(policies, &outputs.outputs)?;
        Ok(Self {
            setup,
            options,
            writers: Writers::open(publisher, outputs, sinks)?,
            sources: running,
            folds: folds.into_iter().map(|fold| RunningFold { fold, ended: false }).collect(),
            merges,
            ports,
            tasks: setup.tasks()?,
            pending: BTreeMap::new(),
            quarantines,
            tally: RunTally::default(),
            damage: Vec::new(),
            origin: Arc::clone(&publisher.origin),
            hashes: Arc::clone(&publisher.hashes),
            damaged_ranges: 0,
            damaged_bytes: BTreeMap::new(),
            total_bytes,
            without_bytes,
            events: 0,
            rounds: 0,
            is_sought: false,
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
    pub(super) fn drive(&mut self) -> Result<Arc<Outputs>, Error> {
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
        self.finish_quarantines()?;
        self.note_growth();
        hash_rest(&self.hashes, &*self.setup.pool()?);
        let outputs = self.writers.finish(&mut self.tally);
        self.report_progress();
        self.report_losses();
        outputs
    }

    /// The results, also of a run that has failed.
    pub(super) fn into_results(self) -> RunResults {
        let losses = |source: &RunningSource| (source.node, source.steps.losses().losses());
        let (published, unpublished) = self.writers.into_published();
        RunResults {
            tally: self.tally,
            damage: self.damage,
            damaged_ranges: self.damaged_ranges,
            damaged_bytes: self.damaged_bytes,
            bytes_read: self.setup.bytes_read.load(Ordering::Relaxed),
            losses: self.sources.iter().map(losses).collect(),
            published,
            unpublished,
            is_complete: self.sources.iter().all(|source| !source.was_cut_short),
        }
    }

    fn finish_quarantines(&mut self) -> Result<(), Error> {
        for (node, quarantine) in std::mem::take(&mut self.quarantines) {
            let note = quarantine.finish()?;
            let source = self.sources.iter().find(|source| source.node == node);
            if let Some((note, source)) = note.zip(source) {
                let name = Arc::clone(&source.name);
                self.note(node, &name, &note);
            }
        }
        Ok(())
    }

    /// Notes which inputs have grown since the run began.
    fn note_growth(&mut self) {
        for source in 0..self.sources.len() {
            let RunningSource { node, name, plan, .. } = &self.sources[source];
            let (node, name) = (*node, Arc::clone(name));
            let inputs: BTreeSet<_> = plan.0.iter().map(|split| &split.input).collect();
            let growth = |path: &PathBuf| self.setup.input_files.growth(path);
            let notes: Vec<String> = inputs.into_iter().filter_map(growth).collect();
            notes.iter().for_each(|note| self.note(node, &name, note));
        }
    }

    /// Reads every source to the end, unless playback seeks elsewhere.
    fn drive_round(&mut self) -> Result<(), Error> {
        // Whoever writes to several streams may wait until each of them is opened.
        let mut streams = self.sources.iter_mut().filter(|source| source.may_stall);
        streams.try_for_each(|source| source.steps.begin())?;
        while let Some(source) = self.next_source()? {
            self.setup.check()?;
            if self.options.playback.is_redirected() {
                break;
            }
            self.sources[source].turns += 1;
            let step = self.next_step(source)?;
            // An interrupted source must not look ended.
            self.setup.check()?;
            match step {
                Poll::Pending => self.handle_silence(source)?,
                Poll::Ready(Some(step)) => self.handle_step(source, step)?,
                Poll::Ready(None) => {
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
            // Nothing follows what was sought at the end of a window.
            let may_move = moved || self.is_sought;
            if self.rounds >= self.writers.rounds() || !may_move {
                return Ok(false);
            }
            playback.begin_again();
        }
        self.is_sought = sought.is_some();
        for source in &mut self.sources {
            let (mut splits, mut query) = source.plan.clone();
            if let Some(time) = sought {
                query.start = Some(query.start.map_or(time, |start| start.max(time)));
                splits = source.source.splits(self.setup.split_bytes(), &query)?;
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
            let losses = self.has_losses();
            let exit = if losses { 3 } else { 0 };
            let ended = RunEnd { exit, losses, ..RunEnd::default() };
            self.writers.next_piece(&ended, &mut self.tally)?;
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

    fn handle_step(&mut self, source: usize, step: SourceStep) -> Result<(), Error> {
        let SourceStep { split, output: mut outcome, damage, notes, .. } = step;
        let read = outcome.tally.node(self.sources[source].node).left.total();
        self.note_reports(source, damage, notes)?;
        self.events += read;
        self.follow(source, |inputs, progress| inputs.read(split, read, progress));
        if read > 0 {
            self.sources[source].last_data = Instant::now();
        }
        self.deliver(outcome)?;
        self.drain_merges(None)?;
        self.finish_step(source, read)
    }

    /// Goes on without a source that has no data.
    fn handle_silence(&mut self, source: usize) -> Result<(), Error> {
        if let Some(split) = self.sources[source].steps.split_in_progress() {
            self.follow(source, |inputs, progress| inputs.read(split, 0, progress));
        }
        self.drain_merges(Some(source))?;
        self.finish_step(source, 0)
    }

    /// Passes on what can be, after a source was asked and so many events came.
    fn finish_step(&mut self, source: usize, read: u64) -> Result<(), Error> {
        self.note_losses(source);
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

    /// Records the notes of a live source.
    fn note_losses(&mut self, source: usize) {
        let RunningSource { node, name, steps, .. } = &self.sources[source];
        if !steps.is_live() {
            return;
        }
        for (what, count) in steps.losses().take_notes() {
            if let Some(progress) = &self.options.progress {
                progress.note(name, &what);
            }
            self.tally.node(*node).note(&what, count);
        }
    }

    /// Records what a reader reports; damage that was one event of a known channel is counted
    /// there.
    fn note_reports(
        &mut self,
        source: usize,
        damage: DamageList,
        notes: Vec<(String, u64)>,
    ) -> Result<(), Error> {
        let tally = self.tally.node(self.sources[source].node);
        for channel in damage.channels() {
            tally.damaged.add_one(channel.0);
        }
        notes.iter().for_each(|(what, count)| tally.note(what, *count));
        damage.into_iter().try_for_each(|damage| self.note_damage(source, damage))
    }

    fn note_damage(&mut self, source: usize, damage: Damage) -> Result<(), Error> {
        let RunningSource { node, damage: policy, .. } = &self.sources[source];
        let node = *node;
        match policy {
            OnDamage::Stop => {
                return Err(sluice_model::ErrorKind::Damaged(damage.to_string()).into());
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
        let damage = Arc::new(Damage { bytes: Vec::new(), ..damage });
        self.origin.damage.add(&damage);
        if self.damage.len() < RunDamage::MAX_RANGES {
            self.damage.push((node, damage));
        }
        Ok(())
    }

    fn deliver(&mut self, outcome: SegmentOutcome) -> Result<(), Error> {
        self.tally.add(&outcome.tally);
        for delivery in outcome.deliveries {
            match delivery {
                SegmentOutput::Block { node, block, events, bytes } => {
                    self.writers.push(node, block, (events, bytes), &mut self.tally)?;
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
                self.drain_merge(merge, MergePause::None)
            }
        }
    }

    /// Passes on what merges hold, after a step, or because a source is silent.
    fn drain_merges(&mut self, silent: Option<usize>) -> Result<(), Error> {
        // Merges that feed others were created after those they feed.
        for merge in (0..self.merges.len()).rev() {
            let mut roots = self.merges[merge].roots.iter();
            let is_silent = silent.is_some_and(|source| roots.any(|roots| roots.contains(&source)));
            let pause = if is_silent { MergePause::Silence } else { MergePause::StepOver };
            self.drain_merge(merge, pause)?;
        }
        Ok(())
    }

    fn end_source(&mut self, source: usize) -> Result<(), Error> {
        if std::mem::replace(&mut self.sources[source].ended, true) {
            return Ok(());
        }
        // What a receiver tells when it ends.
        self.note_losses(source);
        self.follow(source, InputLog::close);
        let segment = Arc::clone(&self.sources[source].segment);
        self.end_segment(&segment)
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

/// Whether reading a split may take as long as others please.
fn may_stall(split: &Split) -> bool {
    let is_program = split.input.as_os_str().is_empty();
    split.live || split.bytes.is_none() && (is_program || is_stream(&split.input))
}

/// The log for the damage of a source.
fn damage_log(damage: &OnDamage) -> DamageLog {
    match damage {
        OnDamage::Quarantine(_) => DamageLog::keeping_bytes(),
        _ => DamageLog::default(),
    }
}
