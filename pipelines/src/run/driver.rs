//! The driver: the one thread that sees everything in order.
//!
//! It polls sources for steps, passes what their tasks made to folds, merges and writers, and ends
//! what has ended. The tasks behind folds and merges are in `streams`.

mod damage;
mod folds;
mod polling;
mod progress;
mod sources;
mod streams;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::{Duration, Instant};

use sluice_io::files::InputHashes;
use sluice_io::tasks::TaskPool;
use sluice_model::{DamageList, Error, ErrorKind, Outputs, RunOrigin};

use super::hashing::hash_rest;
use super::milestone::{InputLog, Milestone};
use super::publisher::Publisher;
use super::tally::{RunResults, RunTally};
use super::topology::{MergeNode, Port, Topology};
use super::writers::Writers;
use super::{Options, ReadPlan, Setup, Snapshot};
use crate::manifest::RunEnd;
use damage::SourceDamage;
use folds::RunningFold;
use sources::{RunningSource, SourceStep};
use streams::{Pending, StreamHead};

/// How long a run that has failed takes what has arrived by then.
const RECEIVED_PATIENCE: Duration = Duration::from_secs(2);

/// The complete outputs of a run, and why it has failed if they are to be published all the same.
pub(super) struct Driven {
    pub(super) outputs: Arc<Outputs>,
    pub(super) failure: Option<Error>,
}

pub(super) struct RunDriver<'r> {
    setup: &'r Setup,
    options: &'r Options,
    sources: Vec<RunningSource>,
    folds: Vec<RunningFold>,
    merges: Vec<MergeNode>,
    ports: Vec<Port>,
    /// The running tasks of folds and merges.
    pending: BTreeMap<StreamHead, Pending>,
    /// The place of the next event of a fold or merge that gives places.
    next_place: i64,
    tasks: TaskPool,
    writers: Writers<'r>,
    tally: RunTally,
    damage: SourceDamage,
    origin: Arc<RunOrigin>,
    hashes: Arc<InputHashes>,
    /// What is known of the total.
    planned: Snapshot,
    events: u64,
    /// How often the sources have been read to the end.
    rounds: u64,
    /// Whether this round began where playback was told to go.
    is_sought: bool,
    /// When losses of live sources were last reported.
    losses_reported: Instant,
}

impl<'r> RunDriver<'r> {
    pub(super) fn new(
        topology: Topology,
        reading: ReadPlan,
        publisher: &'r Publisher<'r>,
    ) -> Result<Self, Error> {
        let setup = publisher.setup;
        let planned = progress::planned(&reading);
        let Topology { sources, folds, merges, sinks, ports } = topology;
        let limits = setup.read_limits(sources.len());
        let sources = sources.into_iter().zip(reading.sources);
        let opened =
            sources.map(|(source, plan)| RunningSource::open(source, plan, publisher, limits));
        let mut sources: Vec<RunningSource> = opened.collect::<Result<_, _>>()?;
        // Opening a recording replaces and renames files: not before its sources listen.
        let mut live = sources.iter_mut().filter(|source| source.steps.is_live());
        live.try_for_each(|source| source.begin(setup))?;
        let outputs = publisher.open_outputs()?;
        Ok(Self {
            setup,
            options: publisher.options,
            damage: SourceDamage::open(&sources, &outputs.outputs, &publisher.origin)?,
            sources,
            folds: folds.into_iter().map(|fold| RunningFold { fold, ended: false }).collect(),
            merges,
            ports,
            pending: BTreeMap::new(),
            next_place: 0,
            tasks: setup.tasks()?,
            writers: Writers::open(publisher, outputs, sinks)?,
            tally: RunTally::default(),
            origin: Arc::clone(&publisher.origin),
            hashes: Arc::clone(&publisher.hashes),
            planned,
            events: 0,
            rounds: 0,
            is_sought: false,
            losses_reported: Instant::now(),
        })
    }

    /// Runs everything to the end, or, if what was received is to be kept, until something fails.
    pub(super) fn drive(&mut self) -> Result<Driven, Error> {
        match self.drive_to_end() {
            Err(failure) if self.writers.are_receiving() && self.setup.check().is_ok() => {
                // What has panicked must not be called again.
                if !matches!(failure.kind(), ErrorKind::Internal { .. }) {
                    self.take_received();
                }
                let outputs = self.writers.finish_received(&mut self.tally);
                Ok(Driven { outputs, failure: Some(failure) })
            }
            ended => Ok(Driven { outputs: ended?, failure: None }),
        }
    }

    /// Passes on what has arrived by now, as far as that does not fail again.
    fn take_received(&mut self) {
        // What the failed step has left precedes what follows.
        self.drain_merges().ok();
        let (until, mut silent) = (Instant::now() + RECEIVED_PATIENCE, 0);
        while silent <= self.sources.len() && Instant::now() < until && self.setup.check().is_ok() {
            let Ok(Some(source)) = self.next_source() else { break };
            self.sources[source].turns += 1;
            let taken = match self.next_step(source) {
                Ok(Poll::Ready(Some(step))) => {
                    silent = 0;
                    self.handle_step(source, step)
                }
                Ok(Poll::Ready(None)) => self.finish_source(source),
                Ok(Poll::Pending) => {
                    silent += 1;
                    Ok(())
                }
                Err(error) => Err(error),
            };
            if taken.is_err() {
                return;
            }
        }
        // The run has failed already.
        (0..self.sources.len()).try_for_each(|source| self.end_source(source)).ok();
    }

    fn drive_to_end(&mut self) -> Result<Arc<Outputs>, Error> {
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
        self.options.report_milestone(&Milestone::Finishing);
        self.finish_inputs()?;
        hash_rest(&self.hashes, &*self.setup.pool()?);
        let outputs = self.writers.finish(&mut self.tally);
        self.report_progress(true);
        outputs
    }

    /// Reads every source to the end, unless playback seeks elsewhere.
    fn drive_round(&mut self) -> Result<(), Error> {
        // Whoever writes to several streams may wait until each of them is opened.
        let mut streams = self.sources.iter_mut().filter(|source| source.may_stall);
        streams.try_for_each(|source| source.begin(self.setup))?;
        while let Some(source) = self.next_source()? {
            self.setup.check()?;
            if self.options.playback.is_redirected() {
                break;
            }
            self.sources[source].turns += 1;
            let step = self.next_step(source)?;
            // An interrupted source must not look ended.
            self.setup.check()?;
            self.sources[source].note_asked(matches!(step, Poll::Ready(Some(_))));
            match step {
                Poll::Pending => self.handle_silence(source)?,
                Poll::Ready(Some(step)) => self.handle_step(source, step)?,
                Poll::Ready(None) => self.finish_source(source)?,
            }
            self.advance_recording()?;
        }
        // Batches on their way have been counted, so they are delivered.
        (0..self.sources.len()).try_for_each(|source| self.end_source(source))
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
        self.drain_merges()?;
        self.finish_step(source, read)
    }

    /// Goes on without a source that has no data.
    fn handle_silence(&mut self, source: usize) -> Result<(), Error> {
        if let Some(split) = self.sources[source].steps.split_in_progress() {
            self.follow(source, |inputs, progress| inputs.read(split, 0, progress));
        }
        self.drain_merges()?;
        self.finish_step(source, 0)
    }

    /// Passes on what can be, after a source was asked and so many events came.
    fn finish_step(&mut self, source: usize, read: u64) -> Result<(), Error> {
        self.note_losses(source);
        if read == 0 {
            // While no data arrives, nothing that has arrived may wait.
            self.deliver_all_tasks()?;
        }
        self.report_progress(false);
        Ok(())
    }

    /// Records what a reader reports; damage that was one event of a known channel is counted
    /// there.
    fn note_reports(
        &mut self,
        source: usize,
        damage: DamageList,
        notes: Vec<(String, u64)>,
    ) -> Result<(), Error> {
        let Self { sources, tally, damage: found, .. } = self;
        let source = &sources[source];
        let tally = tally.node(source.node);
        for channel in damage.channels() {
            tally.damaged.add_one(channel.0);
        }
        notes.iter().for_each(|(what, count)| tally.note(what, *count));
        damage.into_iter().try_for_each(|damage| found.add(source, damage))
    }

    /// Ends a source that has been read to its end. One that is not live has been read completely,
    /// or was asked to stop.
    fn finish_source(&mut self, source: usize) -> Result<(), Error> {
        self.follow(source, InputLog::finish);
        let is_cut_short = self.options.stop.is_requested() && !self.sources[source].is_live();
        self.sources[source].was_cut_short |= is_cut_short;
        self.end_source(source)
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
        self.damage.ranges > 0 || self.sources.iter().any(lost)
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
            source.restart(sought, self.setup)?;
        }
        for RunningFold { fold, ended } in &mut self.folds {
            let made = self.setup.shared.labels.call(fold.node, || fold.factory.make());
            (fold.fold, *ended) = (made?, false);
        }
        self.merges.iter_mut().for_each(|merge| merge.merge.begin_again());
        Ok(true)
    }

    /// Completes the quarantine files, and notes which inputs have grown since the run began.
    ///
    /// `Err` if one was overwritten.
    fn finish_inputs(&mut self) -> Result<(), Error> {
        for source in 0..self.sources.len() {
            let note = self.damage.finish(&self.sources[source])?;
            note.iter().for_each(|note| self.note_source(source, note, 0));
        }
        for source in 0..self.sources.len() {
            let change = |path: &PathBuf| self.setup.input_files.change(path).transpose();
            let notes: Result<Vec<String>, Error> =
                self.sources[source].files.iter().filter_map(change).collect();
            notes?.iter().for_each(|note| self.note_source(source, note, 0));
        }
        Ok(())
    }

    /// The results, also of a run that has failed.
    pub(super) fn into_results(self) -> RunResults {
        let losses = |source: &RunningSource| (source.node, source.steps.losses().losses());
        let (published, unpublished) = self.writers.into_published();
        RunResults {
            tally: self.tally,
            damage: self.damage.kept,
            damaged_ranges: self.damage.ranges,
            damaged_bytes: self.damage.bytes,
            bytes_read: self.setup.bytes_read.load(Ordering::Relaxed),
            losses: self.sources.iter().map(losses).collect(),
            published,
            unpublished,
            is_complete: self.sources.iter().all(|source| !source.was_cut_short),
        }
    }
}
