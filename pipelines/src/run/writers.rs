//! The outputs of a run: opened, written in order, and completed; for a recording, piece by
//! piece.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use sluice_io::output::{Displacement, PublishedFile, free_space};
use sluice_kit::counts::EventCounts;
use sluice_model::{DynSink, Error, OpenSink, Outputs, Overwrite, PreparedBatch, Written, units};

use super::publisher::{OutputSet, Publisher};
use super::recording::{CompletionRoom, SyncStart, Syncer};
use super::segment::BlockEvents;
use super::tally::{NodeTally, RunTally};
use super::topology::SinkNode;
use super::unflushed::Unflushed;
use crate::manifest::RunEnd;

/// All sinks of a run, with their open outputs.
pub(super) struct Writers<'r> {
    publisher: &'r Publisher<'r>,
    outputs: OutputSet,
    /// Pieces that are already published.
    published: Vec<PublishedFile>,
    /// The pieces that others truncated or removed while they were written.
    damaged: Vec<PathBuf>,
    syncer: Option<Syncer>,
    room: CompletionRoom,
    writers: BTreeMap<usize, Writer>,
}

struct Writer {
    name: Arc<str>,
    sink: DynSink,
    /// `None` once it has failed.
    output: Option<OpenSink>,
    handed: u64,
    written: u64,
    left_out: u64,
    /// Events of a recording that are lost if its output cannot be completed: those since the last
    /// flush that are not in the file, or all of a piece that is not readable before its end.
    unflushed: Unflushed,
    /// Events of the current piece of a recording that no successful sync is known to cover.
    unsynced: EventCounts,
    /// Those of them that the running sync covers.
    syncing: EventCounts,
}

impl<'r> Writers<'r> {
    pub(super) fn open(
        publisher: &'r Publisher<'r>,
        outputs: OutputSet,
        sinks: Vec<SinkNode>,
    ) -> Result<Self, Error> {
        let recording = publisher.options.recording.as_ref();
        let syncer = recording.map(|recording| Syncer::new(recording.flush));
        let writer = |sink: SinkNode| (sink.node, Writer::closed(sink.name, sink.sink));
        let writers = sinks.into_iter().map(writer).collect();
        let (published, damaged) = (Vec::new(), Vec::new());
        let room = CompletionRoom::default();
        let mut opened = Self { publisher, outputs, published, damaged, syncer, room, writers };
        opened.open_all()?;
        Ok(opened)
    }

    fn open_all(&mut self) -> Result<(), Error> {
        let opened = self.open_each();
        if let Some(recording) = &self.publisher.options.recording {
            recording.pieces.opened();
        }
        opened
    }

    fn open_each(&mut self) -> Result<(), Error> {
        for (node, writer) in &mut self.writers {
            let closed = Writer::closed(Arc::clone(&writer.name), writer.sink.clone());
            let context = self.publisher.context(&self.outputs, &writer.name)?;
            let tasks = self.publisher.setup.tasks()?;
            let labels = &self.publisher.setup.shared.labels;
            let output = labels.call(*node, || writer.sink.open(&context, &tasks))?;
            let traits = writer.sink.traits();
            let mut in_file = traits
                .targets
                .iter()
                .filter_map(|target| self.outputs.outputs.events_in_growing(target));
            let unflushed = Unflushed::new(in_file.next());
            *writer = Writer { output: Some(output), unflushed, ..closed };
        }
        Ok(())
    }

    /// How often the sources have to be read.
    pub(super) fn rounds(&self) -> u64 {
        self.writers.values().map(|writer| writer.sink.traits().rounds).max().unwrap_or(1)
    }

    /// Hands a prepared block to its sink; `tally` already counts its events as written.
    pub(super) fn push(
        &mut self,
        node: usize,
        block: PreparedBatch,
        events: BlockEvents,
        tally: &mut RunTally,
    ) -> Result<(), Error> {
        let writer = self.writers.get_mut(&node);
        let writer = writer.ok_or_else(|| Error::internal("a block for no sink"))?;
        let BlockEvents { counts, channels, bytes } = events;
        let Some(output) = &mut writer.output else {
            tally.node(node).count_lost(&counts);
            return Ok(());
        };
        let pushed = self.publisher.setup.shared.labels.call(node, || output.push(block));
        writer.handed += counts.total();
        if self.syncer.is_some() {
            // Also of one that could not be written as a whole: a part may be in the file.
            writer.unsynced.add(&counts);
            writer.unflushed.add(&counts, channels);
        }
        match pushed {
            Ok(written) => {
                if writer.sink.traits().is_live {
                    // Its end may be far.
                    self.publisher.options.report_notes(&writer.name, &written.notes);
                }
                writer.count(written, tally.node(node));
            }
            Err(error) => return self.give_up(node, error, tally),
        }
        self.outputs.events += counts.total();
        self.outputs.held += bytes;
        Ok(())
    }

    /// Whether the current piece of a recording is complete.
    pub(super) fn is_piece_complete(&self) -> bool {
        let Some(recording) = &self.publisher.options.recording else { return false };
        // A stopped run ends with its current piece.
        let goes_on = !self.publisher.options.stop.is_requested();
        goes_on && recording.pieces.is_complete(&self.outputs.piece())
    }

    /// Completes and publishes the current piece, and starts the next one.
    pub(super) fn next_piece(&mut self, ended: &RunEnd, tally: &mut RunTally) -> Result<(), Error> {
        self.finish_all(tally)?;
        if self.publisher.options.stop.is_requested() {
            // The disk is full: nothing follows.
            return Ok(());
        }
        let displaced = self.outputs.outputs.displaced().into_iter();
        let damaged = displaced.filter(|(_, how)| *how != Displacement::Moved);
        self.damaged.extend(damaged.map(|(path, _)| path));
        match self.publisher.publish(&self.outputs.outputs, ended) {
            Ok(published) => self.published.extend(published),
            Err(error) => {
                // It cannot be tried again: files that were renamed already are gone.
                self.outputs.outputs = Arc::new(Outputs::new(Overwrite::Refuse, false, &[]));
                return self.give_up_unsynced(error, tally);
            }
        }
        self.writers.values_mut().for_each(Writer::clear_piece);
        let Err(error) = self.open_next() else { return Ok(()) };
        if !self.publisher.is_disk_full(&error) {
            return Err(error);
        }
        self.nodes().into_iter().for_each(|node| self.close_full(node, &error, tally));
        Ok(())
    }

    fn open_next(&mut self) -> Result<(), Error> {
        self.outputs = self.publisher.open_outputs()?;
        self.open_all()
    }

    /// Whether a flush and sync is due.
    pub(super) fn is_flush_due(&self) -> bool {
        self.syncer.as_ref().is_some_and(Syncer::is_due)
    }

    /// Flushes and syncs a recording.
    pub(super) fn flush(&mut self, tally: &mut RunTally) -> Result<(), Error> {
        self.end_before_full(tally);
        for node in self.nodes() {
            self.flush_node(node, tally)?;
        }
        let Some(syncer) = &mut self.syncer else { return Ok(()) };
        match syncer.sync(&self.outputs.outputs) {
            Ok(SyncStart::Started) if self.publisher.grows => {
                self.writers.values_mut().for_each(Writer::start_sync);
                Ok(())
            }
            Ok(_) => Ok(()),
            Err(error) => self.give_up_unsynced(error, tally),
        }
    }

    /// Ends a recording as on a full disk, as long as there is room to complete outputs that cannot
    /// be read before.
    fn end_before_full(&mut self, tally: &mut RunTally) {
        let setup = self.publisher.setup;
        let besides = self.room.needed(&self.outputs.piece(), setup.shared.channels.len());
        for node in self.nodes() {
            let Some(writer) = self.writers.get(&node) else { continue };
            let traits = writer.sink.traits();
            if traits.is_readable_unfinished || writer.handed == 0 || writer.output.is_none() {
                continue;
            }
            let unwritten = writer.handed.saturating_sub(writer.written + writer.left_out);
            let held = u128::from(self.outputs.held) * u128::from(unwritten);
            let held = u64::try_from(held / u128::from(writer.handed)).unwrap_or(u64::MAX);
            let needed = besides + 2 * held.min(setup.sink_memory() as u64);
            let targets = traits.targets.iter().map(|at| self.outputs.outputs.actual_path(at));
            // Without an answer, writing shows whether there is room.
            let lacks = |at: &PathBuf| {
                free_space(at).is_ok_and(|free| free.is_some_and(|free| free < needed))
            };
            if let Some(target) = { targets }.find(lacks) {
                let what = format!(
                    "the disk has less free than the {} that completing the file may need",
                    units::bytes(needed)
                );
                let full = io::Error::new(io::ErrorKind::StorageFull, what);
                self.close_full(node, &Error::io("write", target, full), tally);
            }
        }
    }

    fn flush_node(&mut self, node: usize, tally: &mut RunTally) -> Result<(), Error> {
        let Some(writer) = self.writers.get_mut(&node) else { return Ok(()) };
        let Some(output) = &mut writer.output else { return Ok(()) };
        match self.publisher.setup.shared.labels.call(node, || output.flush()) {
            Ok(written) => {
                writer.count(written, tally.node(node));
                // Others lose it with the whole file.
                if self.publisher.grows {
                    writer.unflushed.clear();
                }
                Ok(())
            }
            Err(error) => self.give_up(node, error, tally),
        }
    }

    /// Completes all outputs. The caller publishes them.
    ///
    /// `Err` if others have truncated or removed a piece of a recording, or moved the last one:
    /// earlier ones are mostly moved before the next one is asked for.
    pub(super) fn finish(&mut self, tally: &mut RunTally) -> Result<Arc<Outputs>, Error> {
        self.finish_all(tally)?;
        let displaced = self.outputs.outputs.displaced();
        let displaced = displaced.iter().map(|(path, _)| path);
        if let Some(path) = self.damaged.iter().chain(displaced).next() {
            return Err(Error::refused(format!(
                "the recording is incomplete under its name, because another program has moved, \
                 deleted or truncated the file meanwhile; if it was moved, it is whole where it is \
                 now: {}",
                path.display()
            )));
        }
        Ok(Arc::clone(&self.outputs.outputs))
    }

    /// The pieces that are published, and the events, by node, that may be lost if the last one
    /// cannot be.
    pub(super) fn into_published(self) -> (Vec<PublishedFile>, BTreeMap<usize, EventCounts>) {
        let unpublished = self.writers.into_iter().map(|(node, writer)| (node, writer.unsynced));
        (self.published, unpublished.collect())
    }

    fn finish_all(&mut self, tally: &mut RunTally) -> Result<(), Error> {
        match self.syncer.as_mut().map_or(Ok(()), Syncer::wait) {
            Ok(()) => self.writers.values_mut().for_each(Writer::end_sync),
            Err(error) => self.give_up_unsynced(error, tally)?,
        }
        for node in self.nodes() {
            self.publisher.setup.check()?;
            if self.syncer.is_some() && self.publisher.grows {
                // An output whose last events find no room can still be completed without them.
                self.flush_node(node, tally)?;
            }
            let Some(writer) = self.writers.get_mut(&node) else { continue };
            let Some(output) = writer.output.take() else { continue };
            let labels = &self.publisher.setup.shared.labels;
            if let Err(error) = labels.call(node, || writer.finish(output, tally.node(node))) {
                self.give_up(node, error, tally)?;
            }
        }
        Ok(())
    }

    /// Completes the output of a recording when the disk is full, as far as possible. Data received
    /// after that is counted but not kept, and the run ends as if stopped. `Err` for any other
    /// error.
    fn give_up(&mut self, node: usize, error: Error, tally: &mut RunTally) -> Result<(), Error> {
        if self.publisher.is_disk_full(&error) {
            self.close_full(node, &error, tally);
            return Ok(());
        }
        if let Some(writer) = self.writers.get_mut(&node) {
            writer.output = None;
        }
        Err(error)
    }

    /// Whether a sink has not failed that gets what is received live.
    pub(super) fn are_receiving(&self) -> bool {
        let is_open =
            |node: &usize| self.writers.get(node).is_some_and(|writer| writer.output.is_some());
        self.publisher.receiving.iter().any(is_open)
    }

    /// Completes the outputs of a run that has failed, of the sinks that have got something live
    /// and do not fail. The caller publishes them.
    pub(super) fn finish_received(&mut self, tally: &mut RunTally) -> Arc<Outputs> {
        let (outputs, mut kept) = (Arc::clone(&self.outputs.outputs), Vec::new());
        let labels = &self.publisher.setup.shared.labels;
        for (node, writer) in &mut self.writers {
            let Some(output) = writer.output.take() else { continue };
            if writer.handed == 0 || !self.publisher.receiving.contains(node) {
                continue;
            }
            let before = outputs.complete();
            if labels.call(*node, || writer.finish(output, tally.node(*node))).is_ok() {
                let targets = &writer.sink.traits().targets;
                let places: Vec<PathBuf> =
                    targets.iter().map(|target| outputs.actual_path(target)).collect();
                // Whose files are beside their targets may have others there that are not complete.
                let is_inside = |path: &PathBuf| places.iter().any(|place| path.starts_with(place));
                if outputs.complete().difference(&before).all(is_inside) {
                    kept.extend(targets.iter().cloned());
                }
            }
        }
        outputs.keep_only(&kept);
        outputs
    }

    /// Like [`give_up`](Self::give_up), for all outputs, if what was written since the last sync
    /// may not be on the disk.
    fn give_up_unsynced(&mut self, error: Error, tally: &mut RunTally) -> Result<(), Error> {
        if !self.publisher.is_disk_full(&error) {
            return Err(error);
        }
        for node in self.nodes() {
            let is_kept = self.complete_full(node, tally) && self.publisher.grows;
            let Some(writer) = self.writers.get_mut(&node) else { continue };
            let lost = std::mem::take(&mut writer.unsynced);
            writer.clear_piece();
            tally.node(node).count_lost_to_full_disk(&lost, &error, is_kept);
        }
        Ok(())
    }

    /// Completes an output whose disk is full, if possible, and ends the run as if stopped. Counts
    /// the events as lost that may not be in it.
    fn close_full(&mut self, node: usize, error: &Error, tally: &mut RunTally) {
        let is_closed = self.complete_full(node, tally);
        let Some(writer) = self.writers.get_mut(&node) else { return };
        let is_whole = is_closed && writer.has_written_all();
        // A file that grew is also complete without its last events; a table is not.
        let grew = self.publisher.grows;
        let is_kept = is_whole || (grew && (is_closed || !writer.is_growing(&self.outputs)));
        let lost = match is_kept {
            true if is_whole => EventCounts::default(),
            true => writer.unflushed.take(),
            false => writer.unsynced.clone(),
        };
        writer.unsynced.subtract(&lost);
        // The piece before is published if this one could not even be opened.
        let is_kept = is_kept || writer.handed == 0;
        tally.node(node).count_lost_to_full_disk(&lost, error, is_kept);
    }

    /// Ends the run as if stopped, and completes an output. Returns whether it was complete.
    fn complete_full(&mut self, node: usize, tally: &mut RunTally) -> bool {
        self.publisher.options.stop.drain.store(true, Ordering::Relaxed);
        let Some(writer) = self.writers.get_mut(&node) else { return false };
        let Some(output) = writer.output.take() else { return false };
        let labels = &self.publisher.setup.shared.labels;
        let Ok(written) = labels.call(node, || output.finish()) else { return false };
        writer.count(written, tally.node(node));
        true
    }

    fn nodes(&self) -> Vec<usize> {
        self.writers.keys().copied().collect()
    }
}

impl Writer {
    fn closed(name: Arc<str>, sink: DynSink) -> Self {
        let [unsynced, syncing] = std::array::from_fn(|_| EventCounts::default());
        let (handed, written, left_out) = (0, 0, 0);
        let (output, unflushed) = (None, Unflushed::default());
        Self { name, sink, output, handed, written, left_out, unflushed, unsynced, syncing }
    }

    /// Forgets the events of a piece that is published or lost.
    fn clear_piece(&mut self) {
        (self.handed, self.written, self.left_out) = (0, 0, 0);
        self.unflushed.clear();
        (self.unsynced, self.syncing) = (EventCounts::default(), EventCounts::default());
    }

    /// The last sync has succeeded.
    fn end_sync(&mut self) {
        self.unsynced.subtract(&std::mem::take(&mut self.syncing));
    }

    /// The last sync has succeeded, and one of everything flushed was started.
    fn start_sync(&mut self) {
        self.end_sync();
        self.syncing = self.unsynced.clone();
    }

    /// Whether one of its files grows that is not complete.
    fn is_growing(&self, outputs: &OutputSet) -> bool {
        let targets = self.sink.traits().targets.iter();
        let targets: Vec<_> = targets.map(|path| outputs.outputs.actual_path(path)).collect();
        let growing = outputs.outputs.growing();
        growing.iter().any(|path| targets.iter().any(|target| path.starts_with(target)))
    }

    fn count(&mut self, done: Written, tally: &mut NodeTally) {
        let Written { events, skipped, notes, unmet } = done;
        self.written += events;
        self.left_out += skipped.len() as u64;
        skipped.into_iter().for_each(|channel| tally.left.remove_one(channel));
        notes.iter().for_each(|(what, count)| tally.note(what, *count));
        tally.unmet.extend(unmet);
    }

    fn finish(&mut self, output: OpenSink, tally: &mut NodeTally) -> Result<(), Error> {
        self.count(output.finish()?, tally);
        if !self.has_written_all() {
            let Self { handed, written, left_out, .. } = self;
            return Err(Error::internal(format!(
                "a sink was handed {handed} events, left out {left_out} and wrote {written}"
            )));
        }
        Ok(())
    }

    fn has_written_all(&self) -> bool {
        self.written + self.left_out == self.handed
    }
}
