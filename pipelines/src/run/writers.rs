//! The outputs of a run: opened, appended to in order, and completed; of a recording, piece by piece.

use std::any::Any;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use sluice_core::counts::EventCounts;
use sluice_core::output::PublishedFile;
use sluice_core::{DynSink, Error, ErrorKind, Outputs};

use super::publisher::{Publisher, Room};
use super::recording::Syncer;
use super::segment::Block;
use super::tally::Tally;
use super::topology::SinkNode;
use crate::manifest::Ended;

/// Every sink of a run, with its open output.
pub(super) struct Writers<'r> {
    publisher: &'r Publisher<'r>,
    room: Room,
    /// What was complete before the end.
    published: Vec<PublishedFile>,
    syncer: Option<Syncer>,
    writers: BTreeMap<usize, Writer>,
}

struct Writer {
    name: Arc<str>,
    sink: Arc<dyn DynSink>,
    /// Nothing, once the disk was full.
    output: Option<Box<dyn Any + Send>>,
    handed: u64,
    written: u64,
    left_out: u64,
    /// What was written of a recording since it was flushed last.
    unflushed: EventCounts,
}

impl<'r> Writers<'r> {
    pub(super) fn open(
        publisher: &'r Publisher<'r>,
        room: Room,
        sinks: Vec<SinkNode>,
    ) -> Result<Self, Error> {
        let recording = publisher.options.recording.as_ref();
        let syncer = recording.map(|recording| Syncer::start(recording.flush)).transpose()?;
        let writer = |sink: SinkNode| (sink.node, Writer::closed(sink.name, sink.sink));
        let writers = sinks.into_iter().map(writer).collect();
        let mut opened = Self { publisher, room, published: Vec::new(), syncer, writers };
        opened.open_all()?;
        Ok(opened)
    }

    fn open_all(&mut self) -> Result<(), Error> {
        for writer in self.writers.values_mut() {
            let closed = Writer::closed(Arc::clone(&writer.name), Arc::clone(&writer.sink));
            let context = self.publisher.context(&self.room, &writer.name)?;
            *writer = Writer { output: Some(writer.sink.open(&context)?), ..closed };
        }
        Ok(())
    }

    /// How often the sources are to be read.
    pub(super) fn rounds(&self) -> u64 {
        self.writers.values().map(|writer| writer.sink.rounds()).max().unwrap_or(1)
    }

    /// Appends a block, whose events `tally` has as written.
    pub(super) fn append(
        &mut self,
        node: usize,
        Block { block, events, bytes }: Block,
        tally: &mut Tally,
    ) -> Result<(), Error> {
        let writer = self.writers.get_mut(&node);
        let writer = writer.ok_or_else(|| Error::internal("a block for no sink"))?;
        let Some(output) = &mut writer.output else {
            tally.node(node).lose(&events);
            return Ok(());
        };
        match writer.sink.append(&mut **output, block) {
            Ok(written) => {
                writer.handed += events.total();
                writer.written += written;
                for channel in writer.sink.take_skipped(&mut **output) {
                    writer.left_out += 1;
                    tally.node(node).left.remove_one(channel);
                }
                if self.syncer.is_some() {
                    writer.unflushed.add(&events);
                }
                self.room.events += events.total();
                self.room.held += bytes;
            }
            Err(error) => {
                self.give_up(node, error, tally)?;
                tally.node(node).lose(&events);
            }
        }
        Ok(())
    }

    /// Whether the piece that is recorded now is complete.
    pub(super) fn is_piece_complete(&self) -> bool {
        let Some(recording) = &self.publisher.options.recording else { return false };
        // What ends now ends with the piece it is in.
        let goes_on = !self.publisher.options.stop.is_requested();
        goes_on && recording.pieces.is_complete(&self.room.piece())
    }

    /// Completes and publishes the piece that is recorded now, and begins the next one.
    pub(super) fn next_piece(&mut self, ended: Ended, tally: &mut Tally) -> Result<(), Error> {
        self.finish_all(tally)?;
        if self.publisher.options.stop.is_requested() {
            // There was no more room for it: nothing follows.
            return Ok(());
        }
        let Err(error) = self.begin_next(ended) else { return Ok(()) };
        if !self.is_for_want_of_room(&error) {
            return Err(error);
        }
        for node in self.nodes() {
            self.note_full(node, &error, tally);
            self.close(node, tally);
        }
        Ok(())
    }

    fn begin_next(&mut self, ended: Ended) -> Result<(), Error> {
        self.published.extend(self.publisher.publish(&self.room.outputs, ended)?);
        self.room = self.publisher.room()?;
        self.open_all()
    }

    /// Whether what was recorded is due to be flushed and synced.
    pub(super) fn is_flush_due(&self) -> bool {
        self.syncer.as_ref().is_some_and(Syncer::is_due)
    }

    /// Has what was recorded flushed and synced.
    pub(super) fn flush(&mut self, tally: &mut Tally) -> Result<(), Error> {
        for node in self.nodes() {
            let Some(writer) = self.writers.get_mut(&node) else { continue };
            let Some(output) = &mut writer.output else { continue };
            match writer.sink.flush(&mut **output) {
                // Of others it is lost with the whole.
                Ok(()) if writer.sink.is_readable_unfinished() => {
                    writer.unflushed = EventCounts::default();
                }
                Ok(()) => {}
                Err(error) => self.give_up(node, error, tally)?,
            }
        }
        let synced = self.syncer.as_mut().map_or(Ok(()), |syncer| syncer.sync(&self.room.outputs));
        match (synced, self.nodes().first()) {
            (Err(error), Some(node)) => self.give_up(*node, error, tally),
            (synced, _) => synced,
        }
    }

    /// Completes everything. What is complete then has to be published.
    pub(super) fn finish(
        &mut self,
        tally: &mut Tally,
    ) -> Result<(Vec<PublishedFile>, Arc<Outputs>), Error> {
        self.finish_all(tally)?;
        Ok((std::mem::take(&mut self.published), Arc::clone(&self.room.outputs)))
    }

    fn finish_all(&mut self, tally: &mut Tally) -> Result<(), Error> {
        for node in self.nodes() {
            self.publisher.setup.check()?;
            let Some(writer) = self.writers.get_mut(&node) else { continue };
            let Some(output) = writer.output.take() else { continue };
            for (what, count) in writer.sink.notes(&*output) {
                tally.node(node).note(&what, count);
            }
            if let Err(error) = writer.finish(output) {
                self.give_up(node, error, tally)?;
            }
        }
        Ok(())
    }

    /// Completes an output that takes no more, as far as that goes; `Err` if the reason is not that a
    /// recording has no more room. What is received from then on is counted and not kept, and the run
    /// ends as if it had been asked to.
    fn give_up(&mut self, node: usize, error: Error, tally: &mut Tally) -> Result<(), Error> {
        if !self.is_for_want_of_room(&error) {
            return Err(error);
        }
        self.note_full(node, &error, tally);
        self.close(node, tally);
        Ok(())
    }

    fn is_for_want_of_room(&self, error: &Error) -> bool {
        let is_full = matches!(error.kind(), ErrorKind::Io { source, .. } if is_full(source));
        is_full && self.publisher.options.recording.is_some()
    }

    fn note_full(&self, node: usize, error: &Error, tally: &mut Tally) {
        let what = format!("{error}; what was recorded until then is there");
        tally.node(node).note(&what, 0);
        self.publisher.options.stop.drain.store(true, Ordering::Relaxed);
    }

    /// Completes an output, if that is possible; else counts as lost what may not be in it.
    fn close(&mut self, node: usize, tally: &mut Tally) {
        let Some(writer) = self.writers.get_mut(&node) else { return };
        let closed = writer.output.take().map(|output| writer.sink.finish(output));
        if !matches!(closed, Some(Ok(_))) {
            // What is missing at its end was held in memory: no more than what came since the last flush.
            tally.node(node).lose(&std::mem::take(&mut writer.unflushed));
        }
    }

    fn nodes(&self) -> Vec<usize> {
        self.writers.keys().copied().collect()
    }
}

impl Writer {
    fn closed(name: Arc<str>, sink: Arc<dyn DynSink>) -> Self {
        let unflushed = EventCounts::default();
        Self { name, sink, output: None, handed: 0, written: 0, left_out: 0, unflushed }
    }

    fn finish(&mut self, output: Box<dyn Any + Send>) -> Result<(), Error> {
        let Self { sink, handed, written, left_out, .. } = self;
        let written = *written + sink.finish(output)?;
        if written + *left_out != *handed {
            return Err(Error::internal(format!(
                "a sink was handed {handed} events, left out {left_out} and wrote {written}"
            )));
        }
        Ok(())
    }
}

/// Whether a file cannot grow because there is no more room for it.
fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}
