//! The outputs of a run: opened, written in order, and completed; for a recording, piece by
//! piece.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use sluice_io::output::PublishedFile;
use sluice_kit::counts::EventCounts;
use sluice_model::{DynSink, Error, ErrorKind, OpenSink, Outputs, PreparedBatch, Written};

use super::publisher::{OutputSet, Publisher};
use super::recording::Syncer;
use super::tally::{NodeTally, RunTally};
use super::topology::SinkNode;
use crate::manifest::RunEnd;

/// What a full disk leaves of an output.
const KEPT: &str = "everything recorded before is kept";
const NOT_KEPT: &str = "its last file could not be completed, and those before it are kept";

/// All sinks of a run, with their open outputs.
pub(super) struct Writers<'r> {
    publisher: &'r Publisher<'r>,
    outputs: OutputSet,
    /// Pieces that are already published.
    published: Vec<PublishedFile>,
    syncer: Option<Syncer>,
    writers: BTreeMap<usize, Writer>,
}

struct Writer {
    name: Arc<str>,
    sink: DynSink,
    /// `None` once the disk was full.
    output: Option<OpenSink>,
    handed: u64,
    written: u64,
    left_out: u64,
    /// Events of a recording that were written since the last flush.
    unflushed: EventCounts,
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
        let mut opened = Self { publisher, outputs, published: Vec::new(), syncer, writers };
        opened.open_all()?;
        Ok(opened)
    }

    fn open_all(&mut self) -> Result<(), Error> {
        for writer in self.writers.values_mut() {
            let closed = Writer::closed(Arc::clone(&writer.name), writer.sink.clone());
            let context = self.publisher.context(&self.outputs, &writer.name)?;
            let tasks = self.publisher.setup.tasks()?;
            let output = writer.sink.open(&context, &tasks)?;
            *writer = Writer { output: Some(output), ..closed };
        }
        Ok(())
    }

    /// How often the sources have to be read.
    pub(super) fn rounds(&self) -> u64 {
        self.writers.values().map(|writer| writer.sink.traits().rounds).max().unwrap_or(1)
    }

    /// Hands a prepared block to its sink, with its events and their bytes; `tally` already counts
    /// them as written.
    pub(super) fn push(
        &mut self,
        node: usize,
        block: PreparedBatch,
        (events, bytes): (EventCounts, u64),
        tally: &mut RunTally,
    ) -> Result<(), Error> {
        let writer = self.writers.get_mut(&node);
        let writer = writer.ok_or_else(|| Error::internal("a block for no sink"))?;
        let Some(output) = &mut writer.output else {
            tally.node(node).count_lost(&events);
            return Ok(());
        };
        match output.push(block) {
            Ok(written) => {
                writer.handed += events.total();
                writer.count(written, tally.node(node));
                if self.syncer.is_some() {
                    writer.unflushed.add(&events);
                }
                self.outputs.events += events.total();
                self.outputs.held += bytes;
            }
            Err(error) => {
                self.give_up(node, error, tally)?;
                tally.node(node).count_lost(&events);
            }
        }
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
    pub(super) fn next_piece(&mut self, ended: RunEnd, tally: &mut RunTally) -> Result<(), Error> {
        self.finish_all(tally)?;
        if self.publisher.options.stop.is_requested() {
            // The disk is full: nothing follows.
            return Ok(());
        }
        let Err(error) = self.begin_next(ended) else { return Ok(()) };
        if !self.is_disk_full(&error) {
            return Err(error);
        }
        self.nodes().into_iter().for_each(|node| self.close_full(node, &error, tally));
        Ok(())
    }

    fn begin_next(&mut self, ended: RunEnd) -> Result<(), Error> {
        self.published.extend(self.publisher.publish(&self.outputs.outputs, ended)?);
        self.outputs = self.publisher.open_outputs()?;
        self.open_all()
    }

    /// Whether a flush and sync is due.
    pub(super) fn is_flush_due(&self) -> bool {
        self.syncer.as_ref().is_some_and(Syncer::is_due)
    }

    /// Flushes and syncs a recording.
    pub(super) fn flush(&mut self, tally: &mut RunTally) -> Result<(), Error> {
        for node in self.nodes() {
            let Some(writer) = self.writers.get_mut(&node) else { continue };
            let Some(output) = &mut writer.output else { continue };
            match output.flush() {
                Ok(written) => {
                    writer.count(written, tally.node(node));
                    // Other formats lose it with the whole file.
                    if writer.sink.traits().is_readable_unfinished {
                        writer.unflushed = EventCounts::default();
                    }
                }
                Err(error) => self.give_up(node, error, tally)?,
            }
        }
        let synced =
            self.syncer.as_mut().map_or(Ok(()), |syncer| syncer.sync(&self.outputs.outputs));
        match (synced, self.nodes().first()) {
            (Err(error), Some(node)) => self.give_up(*node, error, tally),
            (synced, _) => synced,
        }
    }

    /// Completes all outputs. The caller publishes them.
    pub(super) fn finish(
        &mut self,
        tally: &mut RunTally,
    ) -> Result<(Vec<PublishedFile>, Arc<Outputs>), Error> {
        self.finish_all(tally)?;
        Ok((std::mem::take(&mut self.published), Arc::clone(&self.outputs.outputs)))
    }

    fn finish_all(&mut self, tally: &mut RunTally) -> Result<(), Error> {
        for node in self.nodes() {
            self.publisher.setup.check()?;
            let Some(writer) = self.writers.get_mut(&node) else { continue };
            let Some(output) = writer.output.take() else { continue };
            if let Err(error) = writer.finish(output, tally.node(node)) {
                self.give_up(node, error, tally)?;
            }
        }
        Ok(())
    }

    /// Completes the output of a recording when the disk is full, as far as possible. Data received
    /// after that is counted but not kept, and the run ends as if stopped. `Err` for any other
    /// error.
    fn give_up(&mut self, node: usize, error: Error, tally: &mut RunTally) -> Result<(), Error> {
        if !self.is_disk_full(&error) {
            return Err(error);
        }
        self.close_full(node, &error, tally);
        Ok(())
    }

    fn is_disk_full(&self, error: &Error) -> bool {
        let is_full =
            matches!(error.kind(), ErrorKind::Io { source, .. } if is_storage_full(source));
        is_full && self.publisher.options.recording.is_some()
    }

    /// Completes an output whose disk is full, if possible, and ends the run as if stopped.
    /// Otherwise counts the events as lost that may not be in it.
    fn close_full(&mut self, node: usize, error: &Error, tally: &mut RunTally) {
        self.publisher.options.stop.drain.store(true, Ordering::Relaxed);
        let Some(writer) = self.writers.get_mut(&node) else { return };
        let closed = writer.output.take().map(|output| output.finish());
        let is_complete = matches!(closed, Some(Ok(_)));
        let tally = tally.node(node);
        if !is_complete {
            // At most the events since the last flush are missing.
            tally.count_lost(&std::mem::take(&mut writer.unflushed));
        }
        let is_kept = is_complete || writer.sink.traits().is_readable_unfinished;
        tally.note(&format!("{error}; {}", if is_kept { KEPT } else { NOT_KEPT }), 0);
    }

    fn nodes(&self) -> Vec<usize> {
        self.writers.keys().copied().collect()
    }
}

impl Writer {
    fn closed(name: Arc<str>, sink: DynSink) -> Self {
        let unflushed = EventCounts::default();
        Self { name, sink, output: None, handed: 0, written: 0, left_out: 0, unflushed }
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
        let Self { handed, written, left_out, .. } = self;
        if *written + *left_out != *handed {
            return Err(Error::internal(format!(
                "a sink was handed {handed} events, left out {left_out} and wrote {written}"
            )));
        }
        Ok(())
    }
}

/// Whether a file cannot grow because storage is full.
fn is_storage_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}
