//! The driver: the one thread that sees everything in order.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, bounded};
use sluice_core::counts::EventCounts;
use sluice_core::output::PublishedFile;
use sluice_core::{Batch, Damage, Error, Fold, Outputs, Query, Source, Split, StageContext};

use super::delivered::Delivered;
use super::met::NamingNodes;
use super::milestone::{InputLog, Milestone};
use super::publisher::{Publisher, Room};
use super::quarantine::Quarantines;
use super::segment::{Branch, Delivery, Outcome, account};
use super::steps::{Limits, Step, Steps};
use super::tally::Tally;
use super::topology::{FoldNode, MergeNode, Port, Topology, ports_of};
use super::writers::Writers;
use super::{Options, Progress, Reading, Setup, Snapshot, keeps_bytes};
use crate::manifest::Ended;
use crate::report::MOST_DAMAGE;
use crate::spec::OnDamage;

/// A stream's head inside the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Head {
    Fold(usize),
    Merge(usize),
}

/// The tasks of a head that are under way, in order, and what those before them gave.
#[derive(Default)]
struct Pending {
    tasks: VecDeque<Receiver<Result<Outcome, Error>>>,
    /// Noted when a task is settled, so that it depends on the events alone when the next one is.
    delivered: Delivered,
}

pub(super) struct Driver<'r> {
    setup: &'r Setup,
    options: &'r Options,
    writers: Writers<'r>,
    sources: Vec<RunningSource>,
    folds: Vec<RunningFold>,
    merges: Vec<MergeNode>,
    ports: Vec<Port>,
    pending: BTreeMap<Head, Pending>,
    quarantines: Quarantines,
    tally: Tally,
    damage: Vec<(usize, Damage)>,
    damaged_ranges: u64,
    damaged_bytes: BTreeMap<usize, u64>,
    total_bytes: Option<u64>,
    without_bytes: bool,
    events: u64,
    /// How often the sources have been read to their ends.
    rounds: u64,
    /// When it was told last what live sources lost.
    told_losses: Instant,
}

/// How often it is told what live sources lost.
const LOSSES_EVERY: Duration = Duration::from_millis(100);

struct RunningSource {
    node: usize,
    name: Arc<str>,
    source: Arc<dyn Source>,
    /// What is read when it is read from the beginning again.
    reading: (Vec<Split>, Query),
    steps: Steps,
    inputs: InputLog,
    damage: OnDamage,
    segment: Arc<Vec<Branch>>,
    /// How often it has been asked, so that sources take turns.
    turns: u64,
    /// When it brought something last.
    heard: Instant,
    /// Whether it is live, and has brought nothing for a while.
    silent: bool,
    ended: bool,
    /// Whether it had not come to its end when nobody wanted any more of it.
    is_cut: bool,
}

/// How long to wait for a live source before looking after everything else.
const LIVE_PATIENCE: Duration = Duration::from_millis(20);

/// How long a live source may bring nothing before merges go on without it.
const SILENCE: Duration = Duration::from_millis(50);

/// How many batches may be between a stage with memory and the next one.
const MOST_BETWEEN_FOLDS: usize = 16;

/// What is told of events that a merge could not wait for.
const MERGED_LATE: &str = "merged out of order, as too much would have waited for them; a larger --memory \
                           would avoid it";

/// How long a stage with memory whose input has ended may go on giving what nobody wants any more.
const UNWANTED: Duration = Duration::from_secs(5);

struct RunningFold {
    fold: FoldNode,
    ended: bool,
}

/// What is in the place of a stage that was dropped.
struct Dropped;

impl Fold for Dropped {
    fn push(&mut self, batch: Batch, context: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        context.filtered += batch.len() as u64;
        Ok(Vec::new())
    }

    fn is_done(&self) -> bool {
        true
    }
}

/// What a run that went through leaves for its report.
pub(crate) struct Finished {
    pub(crate) tally: Tally,
    pub(crate) damage: Vec<(usize, Damage)>,
    pub(crate) damaged_ranges: u64,
    pub(crate) damaged_bytes: BTreeMap<usize, u64>,
    pub(crate) bytes_read: u64,
    /// For each live source, the messages it lost by reason.
    pub(crate) losses: BTreeMap<usize, BTreeMap<String, u64>>,
    /// What has been published before the end.
    pub(crate) published: Vec<PublishedFile>,
    /// Whether everything was read that was to be: nobody had enough before.
    pub(crate) is_complete: bool,
}

/// Notes what a stage with memory let go on of what its options name.
fn note_left(naming: &NamingNodes, node: usize, given: &[Batch], tally: &mut Tally) {
    given.iter().for_each(|batch| tally.node(node).meet(naming.left(node, batch)));
}

impl<'r> Driver<'r> {
    pub(super) fn new(
        topology: Topology,
        reading: Reading,
        publisher: &'r Publisher<'r>,
        (room, quarantines): (Room, Quarantines),
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
            let limits =
                Limits { window, task_bytes: setup.piece as u64 * 4, most_lent: setup.most_lent() };
            running.push(RunningSource {
                node: source.node,
                name: Arc::clone(&source.name),
                source: Arc::clone(&source.source),
                reading: (reading.splits.clone(), reading.query),
                inputs: InputLog::new(&source.name, &reading.splits),
                steps: Steps::new(source, reading.splits, reads, shared, limits),
                damage: source.damage.clone(),
                segment: Arc::clone(&source.segment),
                turns: 0,
                heard: Instant::now(),
                silent: false,
                ended: false,
                is_cut: false,
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
            tally: Tally::default(),
            damage: Vec::new(),
            damaged_ranges: 0,
            damaged_bytes: BTreeMap::new(),
            total_bytes,
            without_bytes,
            events: 0,
            rounds: 0,
            told_losses: Instant::now(),
        })
    }

    /// Notes what a node has to say before anything is read.
    pub(super) fn note(&mut self, node: usize, name: &str, what: &str) {
        if let Some(progress) = &self.options.progress {
            progress.note(name, what);
        }
        self.tally.node(node).note(what, 0);
    }

    /// Runs everything to its end. What is complete then has to be published.
    pub(super) fn drive(mut self) -> Result<(Finished, Arc<Outputs>), Error> {
        loop {
            let before = (self.events, self.options.playback.played());
            self.drive_round()?;
            let after = (self.events, self.options.playback.played());
            // Where nothing was read, or nothing played of it, there will be nothing the next time.
            if !self.next_round(after.0 > before.0 && after.1 > before.1)? {
                break;
            }
        }
        self.setup.check()?;
        if let Some(progress) = &self.options.progress {
            progress.milestone(&Milestone::Finishing);
        }
        let finished = self.writers.finish(&mut self.tally);
        self.tell();
        self.tell_losses();
        let (published, outputs) = finished?;
        for quarantine in self.quarantines.into_values() {
            quarantine.finish()?;
        }
        let losses = |source: &RunningSource| (source.node, source.steps.losses().losses());
        let finished = Finished {
            tally: self.tally,
            damage: self.damage,
            damaged_ranges: self.damaged_ranges,
            damaged_bytes: self.damaged_bytes,
            bytes_read: self.setup.bytes_read.load(Ordering::Relaxed),
            losses: self.sources.iter().map(losses).collect(),
            published,
            is_complete: self.sources.iter().all(|source| !source.is_cut),
        };
        Ok((finished, outputs))
    }

    /// Reads every source to its end, unless somebody wants to be elsewhere.
    fn drive_round(&mut self) -> Result<(), Error> {
        while let Some(source) = self.next_source()? {
            self.setup.check()?;
            if self.options.playback.is_redirected() {
                break;
            }
            self.sources[source].turns += 1;
            let (patience, room) = (self.patience(source), self.room_for(source));
            let step = self.sources[source].steps.next_step(patience, room)?;
            // What was not read to its end must not be taken for its end.
            self.setup.check()?;
            match step {
                Some(step) => self.take(source, step)?,
                None => {
                    self.follow(source, InputLog::finish);
                    self.come_to_end(source)?;
                }
            }
            self.look_after_recording()?;
        }
        // What is on its way has been counted, and goes where it was going to.
        (0..self.sources.len()).try_for_each(|source| self.end_source(source))
    }

    /// Ends a source that has nothing more. One that is not live has then been asked to end, or is read whole.
    fn come_to_end(&mut self, source: usize) -> Result<(), Error> {
        let is_live = self.sources[source].reading.0.iter().any(|split| split.live);
        self.sources[source].is_cut |= self.options.stop.is_requested() && !is_live;
        self.end_source(source)
    }

    /// Begins anew where somebody wants to be, or where a sink wants everything once more. Gives whether
    /// there is another round.
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
            let (mut splits, mut query) = source.reading.clone();
            if let Some(time) = sought {
                query.start = Some(query.start.map_or(time, |start| start.max(time)));
                splits = source.source.splits(self.setup.piece as u64, &query)?;
            }
            source.inputs = InputLog::new(&source.name, &splits);
            source.steps.begin_again(splits, query);
            source.ended = false;
        }
        for RunningFold { fold, ended } in &mut self.folds {
            (fold.fold, *ended) = (fold.again.make()?, false);
        }
        self.merges.iter_mut().for_each(|merge| merge.merge.begin_again());
        Ok(true)
    }

    /// Has recordings flushed when that is due, and begins the next piece when one is complete.
    fn look_after_recording(&mut self) -> Result<(), Error> {
        if self.writers.is_piece_complete() {
            self.settle_all()?;
            let exit = if self.has_losses() { 3 } else { 0 };
            self.writers.next_piece(Ended { exit, partial: false }, &mut self.tally)?;
        }
        if self.writers.is_flush_due() {
            self.settle_all()?;
            self.writers.flush(&mut self.tally)?;
        }
        Ok(())
    }

    fn has_losses(&self) -> bool {
        let lost = |source: &RunningSource| source.steps.losses().total() > 0;
        self.damaged_ranges > 0 || self.sources.iter().any(lost)
    }

    /// The source to go on with: one that a merge waits for, or else the one that had the fewest turns.
    /// A live one that has nothing now is only waited for where all have nothing.
    fn next_source(&mut self) -> Result<Option<usize>, Error> {
        let mut asked = BTreeMap::new();
        for source in 0..self.sources.len() {
            if !self.is_wanted(&self.sources[source].segment, &mut asked) {
                self.sources[source].is_cut |= !self.sources[source].ended;
                self.end_source(source)?;
            }
        }
        self.note_silence();
        let open = |source: &usize| !self.sources[*source].ended;
        let turn = |source: &usize| {
            let RunningSource { steps, turns, .. } = &self.sources[*source];
            (!steps.has_news(), self.is_held_back(*source), *turns, *source)
        };
        // What a merge does not wait for, since it was silent, would never have its turn.
        let back =
            |source: &usize| self.sources[*source].silent && self.sources[*source].steps.has_news();
        let back = (0..self.sources.len()).filter(open).filter(back).min_by_key(turn);
        let starved = (0..self.merges.len())
            .filter_map(|merge| self.awaited(merge)?.iter().copied().filter(open).min_by_key(turn));
        let starved = back.or_else(|| starved.min_by_key(turn));
        Ok(starved.or_else(|| (0..self.sources.len()).filter(open).min_by_key(turn)))
    }

    /// The sources of which one has to bring something before a merge can go on.
    ///
    /// Where a merge waits for another one, it is what that one waits for: everything else would only wait
    /// there, too.
    fn awaited(&self, mut merge: usize) -> Option<&BTreeSet<usize>> {
        let mut input = self.merges[merge].merge.starved()?;
        while let Some(before) = self.merges[merge].fed_by[input]
            && let Some(starved) = self.merges[before].merge.starved()
        {
            (merge, input) = (before, starved);
        }
        Some(&self.merges[merge].roots[input])
    }

    /// How long to wait for a live source that has been chosen: not at all where there is something else
    /// to do.
    fn patience(&self, chosen: usize) -> Duration {
        let others =
            self.sources.iter().enumerate().filter(|(n, other)| *n != chosen && !other.ended);
        let (mut count, mut busy) = (0, false);
        for (_, other) in others {
            count += 1;
            busy |= other.steps.has_news();
        }
        match (busy, count) {
            (true, _) => Duration::ZERO,
            (false, 0) => LIVE_PATIENCE,
            (false, _) => LIVE_PATIENCE / 10,
        }
    }

    /// How many bytes what is under way from a source may take: what others leave.
    fn room_for(&self, source: usize) -> usize {
        let others = self.sources.iter().enumerate().filter(|(n, _)| *n != source);
        let others: usize = others.map(|(_, other)| other.steps.likely()).sum();
        let heads = self.pending.values();
        let heads: usize = heads.map(|pending| pending.delivered.likely(pending.tasks.len())).sum();
        let merges: usize = self.merges.iter().map(|merge| merge.merge.bytes()).sum();
        self.setup.room.saturating_sub(others.saturating_add(heads).saturating_add(merges))
    }

    /// Whether what a source brings would only wait, at a merge where much of it waits already for
    /// another source. Two merges that share a source would otherwise fill memory at one of them.
    fn is_held_back(&self, source: usize) -> bool {
        let limit = self.setup.merge_limit();
        self.merges.iter().any(|MergeNode { merge, roots, .. }| {
            let feeds = roots.iter().enumerate().filter(|(_, roots)| roots.contains(&source));
            let mut waits = feeds.filter(|(input, _)| merge.waiting_bytes(*input) > limit);
            waits.any(|(input, _)| merge.starved().is_some_and(|starved| starved != input))
        })
    }

    fn take(&mut self, source: usize, step: Step) -> Result<(), Error> {
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
            self.sources[source].heard = Instant::now();
        }
        self.deliver(step.outcome)?;
        self.end_step()?;
        if read == 0 {
            // While nothing comes, nothing that has come is to wait.
            self.settle_all()?;
        }
        self.tell();
        if self.told_losses.elapsed() >= LOSSES_EVERY {
            self.tell_losses();
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
        if self.damage.len() < MOST_DAMAGE {
            self.damage.push((node, Damage { bytes: Vec::new(), ..damage }));
        }
        Ok(())
    }

    /// Tells merges which inputs have had nothing for a while, as their live sources are silent: they do
    /// not wait for these.
    fn note_silence(&mut self) {
        for source in &mut self.sources {
            let silent = source.steps.is_live() && source.heard.elapsed() >= SILENCE;
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

    /// Delivers everything that heads inside the graph have under way, and what comes of it.
    fn settle_all(&mut self) -> Result<(), Error> {
        let busy =
            |(head, pending): (&Head, &Pending)| (!pending.tasks.is_empty()).then_some(*head);
        // Heads that others feed were made before those that feed them.
        while let Some(head) = self.pending.iter().rev().find_map(busy) {
            self.settle(head, usize::MAX)?;
        }
        Ok(())
    }

    fn deliver(&mut self, outcome: Outcome) -> Result<(), Error> {
        self.tally.add(&outcome.tally);
        for delivery in outcome.deliveries {
            match delivery {
                Delivery::Block { node, block } => {
                    self.writers.append(node, block, &mut self.tally)?;
                }
                Delivery::Batch { port, batch } => self.arrive(port, batch)?,
            }
        }
        Ok(())
    }

    fn arrive(&mut self, port: usize, batch: Batch) -> Result<(), Error> {
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

    /// Gives a stage with memory its next batch, or tells it that there is none.
    fn fold(&mut self, place: usize, batch: Option<Batch>) -> Result<(), Error> {
        let RunningFold { fold, .. } = &mut self.folds[place];
        let mut context = self.setup.stage_context(fold);
        let before =
            batch.as_ref().map(|batch| EventCounts::count(batch.origins())).unwrap_or_default();
        let naming = &self.setup.shared.naming;
        let met = batch.as_ref().and_then(|batch| naming.entered(fold.node, batch));
        self.tally.node(fold.node).meet(met);
        let given = match batch {
            Some(batch) => fold.fold.push(batch, &mut context)?,
            None => fold.fold.finish(&mut context)?,
        };
        let mut after = EventCounts::default();
        given.iter().for_each(|batch| after.add(&EventCounts::count(batch.origins())));
        note_left(naming, fold.node, &given, &mut self.tally);
        let mut outcome = Outcome::default();
        account(fold.node, &context, &before, &after, &mut outcome);
        self.tally.add(&outcome.tally);
        given.into_iter().try_for_each(|batch| self.emit(Head::Fold(place), batch))?;
        self.drain_fold(place)
    }

    /// Takes what a stage with memory did not give at once; not all of it where that is not what the run is
    /// about any more.
    fn drain_fold(&mut self, place: usize) -> Result<(), Error> {
        let begun = Instant::now();
        loop {
            let RunningFold { fold, .. } = &mut self.folds[place];
            let mut context = self.setup.stage_context(fold);
            let given = fold.fold.more(&mut context)?;
            let mut after = EventCounts::default();
            given.iter().for_each(|batch| after.add(&EventCounts::count(batch.origins())));
            note_left(&self.setup.shared.naming, fold.node, &given, &mut self.tally);
            let mut outcome = Outcome::default();
            account(fold.node, &context, &EventCounts::default(), &after, &mut outcome);
            self.tally.add(&outcome.tally);
            if given.is_empty() {
                return Ok(());
            }
            given.into_iter().try_for_each(|batch| self.emit(Head::Fold(place), batch))?;
            self.setup.check()?;
            let is_asked_to_end = self.options.stop.is_requested();
            let is_wanted = self.is_head_wanted(Head::Fold(place), &mut BTreeMap::new());
            match (self.folds[place].ended, is_wanted) {
                // What goes on giving until its input ends has to be told of that first.
                (false, true) if is_asked_to_end => return Ok(()),
                (false, false) => {
                    self.end_fold(place)?;
                    // Others may still want what it hears.
                    self.folds[place].fold.fold = Box::new(Dropped);
                    return Ok(());
                }
                (true, false) if is_asked_to_end || begun.elapsed() >= UNWANTED => {
                    self.drop_fold(place);
                    return Ok(());
                }
                _ => {}
            }
        }
    }

    /// Tells a stage with memory that there is nothing more for it, and what is behind it.
    fn end_fold(&mut self, place: usize) -> Result<(), Error> {
        self.folds[place].ended = true;
        self.fold(place, None)?;
        self.end_head(Head::Fold(place))
    }

    /// Drops a stage with memory of which nobody wants anything more, with all it holds.
    fn drop_fold(&mut self, place: usize) {
        let FoldNode { node, fold, .. } = &mut self.folds[place].fold;
        *fold = Box::new(Dropped);
        let tally = self.tally.node(*node);
        let came = tally.entered.total().saturating_add(tally.added.total());
        tally.filtered = came.saturating_sub(tally.left.total());
        tally.note("went on giving what nobody wants any more, and was ended", 0);
    }

    fn drain_merge(&mut self, merge: usize, step_over: bool) -> Result<(), Error> {
        while let Some(batch) = self.merges[merge].merge.take(step_over) {
            self.emit(Head::Merge(merge), batch)?;
        }
        Ok(())
    }

    /// Runs a batch through the segment of a head: as a task, of which the outcomes are delivered in order.
    /// At once where a merge follows, which has to have everything of a step when the step is over.
    fn emit(&mut self, head: Head, batch: Batch) -> Result<(), Error> {
        if batch.is_empty() {
            return Ok(());
        }
        let (segment, shared) = (self.segment(head), self.setup.shared.clone());
        if self.leads_to_merge(&segment) {
            let mut outcome = Outcome::default();
            shared.run(&segment, None, batch, &mut outcome)?;
            return self.deliver(outcome);
        }
        self.make_room(head)?;
        let (sender, result) = bounded(1);
        self.setup.pool()?.spawn(move || {
            let mut outcome = Outcome::default();
            let ran = shared.run(&segment, None, batch, &mut outcome).map(|()| outcome);
            // Nobody listens any more when the run has failed elsewhere.
            drop(sender.send(ran));
        });
        self.pending.entry(head).or_default().tasks.push_back(result);
        Ok(())
    }

    /// Delivers the oldest tasks of a head, until there is room for another one.
    fn make_room(&mut self, head: Head) -> Result<(), Error> {
        // What is read from sources takes the rest.
        let room = self.setup.room / 4 * 3 / self.pending.len().max(1);
        // When a stage with memory hears that it is done must not depend on the number of threads.
        let leads_on = !ports_of(&self.segment(head)).is_empty();
        let most = if leads_on { MOST_BETWEEN_FOLDS } else { self.setup.window + 1 };
        while let Some(Pending { tasks, delivered }) = self.pending.get(&head)
            && tasks.len() >= delivered.steps_within(room).min(most)
        {
            self.settle(head, 1)?;
        }
        Ok(())
    }

    /// Delivers the oldest `count` tasks of a head.
    fn settle(&mut self, head: Head, count: usize) -> Result<(), Error> {
        for _ in 0..count {
            let Some(pending) = self.pending.get_mut(&head) else { break };
            let Some(result) = pending.tasks.pop_front() else { break };
            let outcome =
                result.recv().unwrap_or_else(|_| Err(Error::internal("a task panicked")))?;
            pending.delivered.note(outcome.memory);
            self.deliver(outcome)?;
        }
        Ok(())
    }

    fn end_step(&mut self) -> Result<(), Error> {
        // Merges that feed others were made after those they feed.
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

    /// Tells everything that a segment leads to that its stream has ended.
    fn end_segment(&mut self, segment: &[Branch]) -> Result<(), Error> {
        for port in ports_of(segment) {
            match self.ports[port] {
                Port::Fold(fold) if !self.folds[fold].ended => self.end_fold(fold)?,
                Port::Fold(_) => {}
                Port::Merge(merge, input) => {
                    self.merges[merge].merge.end(input);
                    self.drain_merge(merge, false)?;
                    if self.merges[merge].merge.is_over() {
                        self.end_head(Head::Merge(merge))?;
                    }
                }
            }
        }
        Ok(())
    }

    fn end_head(&mut self, head: Head) -> Result<(), Error> {
        self.settle(head, usize::MAX)?;
        let segment = self.segment(head);
        self.end_segment(&segment)
    }

    fn segment(&self, head: Head) -> Arc<Vec<Branch>> {
        Arc::clone(match head {
            Head::Fold(fold) => &self.folds[fold].fold.segment,
            Head::Merge(merge) => &self.merges[merge].segment,
        })
    }

    /// Whether anything a segment leads to can still use events.
    fn is_wanted(&self, segment: &[Branch], asked: &mut BTreeMap<Head, bool>) -> bool {
        segment.iter().any(|branch| match branch {
            Branch::Sink { .. } => true,
            Branch::Map { next, .. } => self.is_wanted(next, asked),
            Branch::Port(port) => match self.ports[*port] {
                Port::Fold(fold) if self.folds[fold].fold.fold.is_done() => false,
                Port::Fold(fold) => self.is_head_wanted(Head::Fold(fold), asked),
                Port::Merge(merge, _) => self.is_head_wanted(Head::Merge(merge), asked),
            },
        })
    }

    /// Asks once: the ways through a graph that parts and meets again double each time it does.
    fn is_head_wanted(&self, head: Head, asked: &mut BTreeMap<Head, bool>) -> bool {
        if let Some(known) = asked.get(&head) {
            return *known;
        }
        let wanted = self.is_wanted(&self.segment(head), asked);
        asked.insert(head, wanted);
        wanted
    }

    /// Whether anything a segment leads to, at whatever distance, is a merge.
    fn leads_to_merge(&self, segment: &[Branch]) -> bool {
        ports_of(segment).into_iter().any(|port| match self.ports[port] {
            Port::Fold(fold) => self.leads_to_merge(&self.folds[fold].fold.segment),
            Port::Merge(..) => true,
        })
    }

    fn tell_losses(&mut self) {
        self.told_losses = Instant::now();
        let Some(progress) = &self.options.progress else { return };
        for source in self.sources.iter().filter(|source| source.steps.is_live()) {
            progress.losses(&source.name, &source.steps.losses().losses());
        }
    }

    /// Follows a source through its inputs, where somebody wants to know.
    fn follow(&mut self, source: usize, step: impl FnOnce(&mut InputLog, &dyn Progress)) {
        if let Some(progress) = &self.options.progress {
            step(&mut self.sources[source].inputs, &**progress);
        }
    }

    fn tell(&self) {
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

/// The bytes that will be read, if every split says how long it is.
fn total_bytes(reading: &Reading) -> Option<u64> {
    let splits = reading.sources.iter().flat_map(|source| {
        // Places in what is no file are no bytes.
        let has_files = source.has_files();
        source.splits.iter().map(move |split| (has_files, split))
    });
    let length = |(has_files, split): (bool, &Split)| match split.end.filter(|_| has_files) {
        // What is compressed holds more than is read of it.
        Some(end) => Some(end.saturating_sub(split.start)),
        None => split.bytes,
    };
    splits.map(length).sum()
}
