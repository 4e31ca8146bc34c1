//! The object-safe form of [`Sink`], and the part of a sink that works in order: gathers blocks,
//! has jobs run, and writes their results.

use std::any::Any;
use std::sync::Arc;

use sluice_io::tasks::{OrderedTasks, TaskPool};

use super::sink::{PrepareContext, Sink, SinkContext, SinkInput, SinkTraits, Written};
use crate::{Batch, Error};

/// The object-safe form of [`Sink`], implemented for every sink.
pub trait DynSink: Send + Sync {
    /// See [`Sink::traits`].
    fn traits(&self) -> SinkTraits;

    /// Opens an output whose jobs run on `tasks`.
    fn open(
        self: Arc<Self>,
        context: &SinkContext,
        tasks: &TaskPool,
    ) -> Result<Box<dyn OpenSink>, Error>;

    /// Prepares a batch for [`OpenSink::push`]; see [`Sink::prepare`]. Refuses what the sink does
    /// not accept.
    fn prepare(
        &self,
        batch: Batch,
        context: &mut PrepareContext<'_>,
    ) -> Result<Box<dyn Any + Send>, Error>;
}

/// A sink with its open output.
///
/// Must not be used inside a task: it waits for jobs.
pub trait OpenSink: Send {
    /// Gathers the next prepared batch, in the order of the events, and writes the units that are
    /// due.
    fn push(&mut self, block: Box<dyn Any + Send>) -> Result<Written, Error>;

    /// Makes everything pushed so far visible to readers of the unfinished output.
    fn flush(&mut self) -> Result<Written, Error>;

    /// Writes the rest, and completes the output.
    fn finish(self: Box<Self>) -> Result<Written, Error>;
}

struct RunningSink<S: Sink> {
    sink: Arc<S>,
    /// Jobs end before the output is dropped.
    jobs: OrderedTasks<S::Unit>,
    output: S::Output,
}

impl<S: Sink> RunningSink<S> {
    fn advance(&mut self, input: SinkInput<S::Block>) -> Result<Written, Error> {
        let Self { sink, jobs, output } = self;
        let mut written = Written::default();
        for job in sink.gather(output, input)? {
            while let Some(unit) = jobs.make_room(&job)? {
                written.add(sink.write(output, unit)?);
            }
            jobs.start(job);
        }
        // What runs is written as late as possible, so that nothing depends on timing.
        while let Some(unit) = jobs.take_done() {
            written.add(sink.write(output, unit)?);
        }
        Ok(written)
    }

    fn write_all(&mut self, input: SinkInput<S::Block>) -> Result<Written, Error> {
        let mut written = self.advance(input)?;
        while let Some(unit) = self.jobs.take_oldest()? {
            written.add(self.sink.write(&mut self.output, unit)?);
        }
        Ok(written)
    }
}

impl<S: Sink> OpenSink for RunningSink<S> {
    fn push(&mut self, block: Box<dyn Any + Send>) -> Result<Written, Error> {
        let block = block.downcast().expect("a sink is only given the blocks it prepared");
        self.advance(SinkInput::Block(*block))
    }

    fn flush(&mut self) -> Result<Written, Error> {
        let written = self.write_all(SinkInput::Flush)?;
        self.sink.flush(&mut self.output)?;
        Ok(written)
    }

    fn finish(mut self: Box<Self>) -> Result<Written, Error> {
        let mut written = self.write_all(SinkInput::End)?;
        written.add(self.sink.finish(self.output)?);
        Ok(written)
    }
}

const NO_PAYLOAD: &str =
    "the event has decoded fields but no payload; put the stage `encode` before the sink";

const NO_WHOLE_MESSAGE: &str =
    "the event has only elements or selected fields of a message, which cannot be encoded";

/// Why a sink of payloads cannot write an event that has only decoded rows.
fn why_refused(batch: &Batch, event: u32) -> String {
    let parts = batch.rows().iter().filter(|rows| rows.message.is_part());
    let is_part = parts.into_iter().any(|rows| rows.events.binary_search(&event).is_ok());
    if is_part { NO_WHOLE_MESSAGE } else { NO_PAYLOAD }.to_owned()
}

impl<S: Sink> DynSink for S {
    fn traits(&self) -> SinkTraits {
        Sink::traits(self)
    }

    fn open(
        self: Arc<Self>,
        context: &SinkContext,
        tasks: &TaskPool,
    ) -> Result<Box<dyn OpenSink>, Error> {
        let output = Sink::open(&*self, context)?;
        // A unit may take as much memory again when it is encoded.
        let max_bytes = context.memory / 8 * tasks.width().min(4);
        let jobs = OrderedTasks::new(tasks, 2 * tasks.width(), max_bytes);
        Ok(Box::new(RunningSink { sink: self, jobs, output }))
    }

    fn prepare(
        &self,
        batch: Batch,
        context: &mut PrepareContext<'_>,
    ) -> Result<Box<dyn Any + Send>, Error> {
        let traits = Sink::traits(self);
        if !traits.accepts_wide_times {
            context.note_clamped_times(&batch);
        }
        let given = if traits.accepts_rows { None } else { batch.split_off_decoded_only() };
        let Some((kept, alone)) = given else {
            return Ok(Box::new(Sink::prepare(self, batch, context)?));
        };
        let mut own = PrepareContext::new(context.channels, context.buffers);
        let places: Vec<u32> = (0..batch.len())
            .map(|row| row as u32)
            .filter(|row| alone.binary_search(row).is_err())
            .collect();
        let block = Sink::prepare(self, kept, &mut own)?;
        context.report.losses.append(&mut own.report.losses);
        context.report.without_sources.add(&own.report.without_sources);
        let refused = own.report.refused.into_iter().map(|(row, why)| (places[row as usize], why));
        context.report.refused.extend(refused);
        context
            .report
            .clamped
            .extend(own.report.clamped.into_iter().map(|row| places[row as usize]));
        context.report.refused.extend(alone.into_iter().map(|row| (row, why_refused(&batch, row))));
        Ok(Box::new(block))
    }
}
