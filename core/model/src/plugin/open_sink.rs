//! Sinks without their types, for those that run them, and the part of a sink that works in order:
//! gathers blocks, has jobs run, and writes their results.

use std::any::Any;
use std::sync::Arc;

use sluice_io::tasks::{OrderedTasks, TaskPool};

use super::sink::{PrepareContext, Sink, SinkContext, SinkInput, SinkTraits, Written};
use crate::{Batch, Error};

/// With so many threads, a unit may wait to be written beside those that are made. Of the sink's
/// memory, the jobs of a thread take an eighth, their units another, and a unit that waits one
/// more. With more threads, the others have work while a unit is written.
const EARLY_WIDTH: usize = 2;

/// A batch that a sink has prepared, for its [`OpenSink`].
pub type PreparedBatch = Box<dyn Any + Send>;

/// A sink of any type, to run it. Clones share it.
#[derive(Clone)]
pub struct DynSink {
    traits: Arc<SinkTraits>,
    prepare: Arc<Prepare>,
    open: Arc<Open>,
}

type Prepare = dyn Fn(Batch, &mut PrepareContext<'_>) -> Result<PreparedBatch, Error> + Send + Sync;
type Open = dyn Fn(&SinkContext, &TaskPool) -> Result<OpenSink, Error> + Send + Sync;

/// A sink with its open output.
///
/// Must not be used inside a task: it waits for jobs.
pub struct OpenSink(Box<dyn FnMut(SinkInput<PreparedBatch>) -> Result<Written, Error> + Send>);

impl DynSink {
    /// This sink.
    pub fn new(sink: impl Sink) -> Self {
        let sink = Arc::new(sink);
        let (traits, preparing) = (Arc::new(sink.traits()), Arc::clone(&sink));
        let prepare = move |batch, context: &mut PrepareContext<'_>| {
            Ok(Box::new(preparing.prepare(batch, context)?) as PreparedBatch)
        };
        let open = move |context: &SinkContext, tasks: &TaskPool| {
            // A unit may take as much memory again when it is encoded.
            let max_bytes = context.memory / 8 * tasks.width().min(4);
            let mut running = RunningSink {
                output: Some(sink.open(context)?),
                jobs: OrderedTasks::new(tasks, 2 * tasks.width(), max_bytes),
                starts_early: tasks.width() == EARLY_WIDTH,
                sink: Arc::clone(&sink),
                has_failed: false,
            };
            Ok(OpenSink(Box::new(move |input| running.take(input))))
        };
        Self { traits, prepare: Arc::new(prepare), open: Arc::new(open) }
    }

    /// See [`Sink::traits`].
    pub fn traits(&self) -> &SinkTraits {
        &self.traits
    }

    /// Opens an output whose jobs run on `tasks`.
    pub fn open(&self, context: &SinkContext, tasks: &TaskPool) -> Result<OpenSink, Error> {
        (self.open)(context, tasks)
    }

    /// Prepares a batch for [`OpenSink::push`]; see [`Sink::prepare`]. Refuses what the sink does
    /// not accept.
    pub fn prepare(
        &self,
        batch: Batch,
        context: &mut PrepareContext<'_>,
    ) -> Result<PreparedBatch, Error> {
        if !self.traits.accepts_wide_times {
            context.note_clamped_times(&batch);
        }
        let given = if self.traits.accepts_rows { None } else { batch.decoded_only_mask() };
        let Some(is_alone) = given else { return (self.prepare)(batch, context) };
        let mut own = PrepareContext::new(context.channels, context.buffers);
        let rows = 0..batch.len() as u32;
        let (alone, places): (Vec<u32>, Vec<u32>) = rows.partition(|row| is_alone[*row as usize]);
        let block = (self.prepare)(batch.retain(|row| !is_alone[row]), &mut own)?;
        context.report.losses.append(&mut own.report.losses);
        context.report.without_sources.add(&own.report.without_sources);
        let refused = own.report.refused.into_iter().map(|(row, why)| (places[row as usize], why));
        context.report.refused.extend(refused);
        context
            .report
            .clamped
            .extend(own.report.clamped.into_iter().map(|row| places[row as usize]));
        context.report.refused.extend(alone.into_iter().map(|row| (row, why_refused(&batch, row))));
        Ok(block)
    }
}

impl OpenSink {
    /// Gathers the next prepared batch, in the order of the events, and writes the units that are
    /// due.
    pub fn push(&mut self, block: PreparedBatch) -> Result<Written, Error> {
        (self.0)(SinkInput::Block(block))
    }

    /// Makes everything pushed so far visible to readers of the unfinished output.
    pub fn flush(&mut self) -> Result<Written, Error> {
        (self.0)(SinkInput::Flush)
    }

    /// Writes the rest, and completes the output. After an error, only this may be called; nothing
    /// is then written behind what is missing.
    pub fn finish(mut self) -> Result<Written, Error> {
        (self.0)(SinkInput::End)
    }
}

struct RunningSink<S: Sink> {
    sink: Arc<S>,
    /// Jobs end before the output is dropped.
    jobs: OrderedTasks<S::Unit>,
    /// Whether a job starts before the last unit that makes room for it is written.
    starts_early: bool,
    /// `None` once it is complete.
    output: Option<S::Output>,
    /// Whether a unit could not be written: nothing is written behind it.
    has_failed: bool,
}

impl<S: Sink> RunningSink<S> {
    fn take(&mut self, input: SinkInput<PreparedBatch>) -> Result<Written, Error> {
        if self.has_failed {
            let output = self.output.take_if(|_| matches!(input, SinkInput::End));
            let output =
                output.ok_or_else(|| Error::internal("a sink used after it has failed"))?;
            return self.sink.finish(output);
        }
        let taken = self.advance(input);
        self.has_failed = taken.is_err();
        taken
    }

    fn advance(&mut self, input: SinkInput<PreparedBatch>) -> Result<Written, Error> {
        let Self { sink, jobs, output: place, starts_early, .. } = self;
        let output = place.as_mut().ok_or_else(|| Error::internal("a sink used after its end"))?;
        let (is_flush, is_end) =
            (matches!(input, SinkInput::Flush), matches!(input, SinkInput::End));
        let input = match input {
            SinkInput::Block(block) => {
                let block = block.downcast().expect("a sink is only given what it prepared");
                SinkInput::Block(*block)
            }
            SinkInput::Flush => SinkInput::Flush,
            SinkInput::End => SinkInput::End,
        };
        let mut written = Written::default();
        for job in sink.gather(output, input)? {
            let mut last = None;
            let has_room = loop {
                let unit = match jobs.make_room(&job) {
                    Ok(Some(unit)) => unit,
                    Ok(None) => break Ok(()),
                    Err(error) => break Err(error),
                };
                let due = if *starts_early { last.replace(unit) } else { Some(unit) };
                if let Some(unit) = due {
                    written.add(sink.write(output, unit)?);
                }
            };
            if has_room.is_ok() {
                jobs.start(job);
            }
            // Also before a unit that could not be made.
            if let Some(unit) = last {
                written.add(sink.write(output, unit)?);
            }
            has_room?;
        }
        // What runs is written as late as possible, so that nothing depends on timing.
        let is_due = is_flush || is_end;
        while let Some(unit) = if is_due { jobs.take_oldest()? } else { jobs.take_done() } {
            written.add(sink.write(output, unit)?);
        }
        if is_flush {
            sink.flush(output)?;
        }
        if let Some(output) = place.take_if(|_| is_end) {
            written.add(sink.finish(output)?);
        }
        Ok(written)
    }
}

const NO_PAYLOAD: &str = "the event has decoded fields but no payload; put the stage `encode` \
    before the sink, or see its note on why it has made none";

const NO_WHOLE_MESSAGE: &str = "the event has only elements or selected fields of a message, \
    which cannot be encoded; write it as a table, CSV or JSON lines, or put the stage \
    `to-protobuf` before the sink";

/// Why a sink of payloads cannot write an event that has only decoded rows.
fn why_refused(batch: &Batch, event: u32) -> String {
    let parts = batch.rows().iter().filter(|rows| rows.message.is_part());
    let is_part = parts.into_iter().any(|rows| rows.events.binary_search(&event).is_ok());
    if is_part { NO_WHOLE_MESSAGE } else { NO_PAYLOAD }.to_owned()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use sluice_io::tasks::Job;

    use super::*;
    use crate::{BatchBuilder, BlockPool, ChannelId};

    type Log = Arc<Mutex<Vec<String>>>;

    /// Logs what is made and written. Its jobs take so many eighths of its memory; one that takes
    /// none fails.
    struct LoggingSink(Log, [usize; 3]);

    impl Sink for LoggingSink {
        type Block = i64;
        type Unit = i64;
        type Output = usize;

        fn traits(&self) -> SinkTraits {
            SinkTraits::writing("-")
        }

        fn open(&self, context: &SinkContext) -> Result<usize, Error> {
            Ok(context.memory / 8)
        }

        fn prepare(&self, batch: Batch, _: &mut PrepareContext<'_>) -> Result<i64, Error> {
            Ok(batch.sequences()[0])
        }

        fn gather(&self, bytes: &mut usize, input: SinkInput<i64>) -> Result<Vec<Job<i64>>, Error> {
            let SinkInput::Block(number) = input else { return Ok(Vec::new()) };
            let (log, eighths) = (Arc::clone(&self.0), self.1[number as usize]);
            Ok(vec![Job::new(*bytes * eighths, move || {
                log.lock().unwrap().push(format!("make {number}"));
                if eighths > 0 { Ok(number) } else { Err(Error::internal("not made")) }
            })])
        }

        fn write(&self, _: &mut usize, number: i64) -> Result<Written, Error> {
            self.0.lock().unwrap().push(format!("write {number}"));
            Ok(Written::events(1))
        }

        fn finish(&self, _: usize) -> Result<Written, Error> {
            Ok(Written::default())
        }
    }

    /// What a sink does with three blocks, by a pool of this width that runs a task when it is
    /// started, and whether it can be finished.
    fn steps(width: usize, eighths: [usize; 3]) -> (Vec<String>, bool) {
        let log = Log::default();
        let sink = DynSink::new(LoggingSink(Arc::clone(&log), eighths));
        let (context, buffers) = (SinkContext::standalone(), BlockPool::new(1 << 10, 1));
        let mut output = sink.open(&context, &TaskPool::new(width, |task| task())).unwrap();
        let pushed = (0..3).try_for_each(|number| {
            let mut batch = BatchBuilder::default();
            batch.push_copy(0, number, ChannelId(0), b"payload");
            let mut preparing = PrepareContext::new(&context.channels, &buffers);
            output.push(sink.prepare(batch.finish(), &mut preparing).unwrap()).map(drop)
        });
        let finished = pushed.and_then(|()| output.finish().map(drop));
        (std::mem::take(&mut *log.lock().unwrap()), finished.is_ok())
    }

    #[test]
    fn with_two_threads_a_job_starts_before_the_unit_that_made_room_is_written() {
        let early = ["make 0", "make 1", "make 2", "write 0", "write 1", "write 2"];
        assert_eq!(steps(2, [1; 3]), (early.map(str::to_owned).into(), true));
        // One thread has no other work to do meanwhile, and less memory.
        let late = ["make 0", "write 0", "make 1", "write 1", "make 2", "write 2"];
        assert_eq!(steps(1, [1; 3]), (late.map(str::to_owned).into(), true));
    }

    #[test]
    fn a_unit_is_written_before_the_error_of_the_one_behind_it() {
        let steps = steps(2, [1, 0, 8]);
        assert_eq!(steps, (["make 0", "make 1", "write 0"].map(str::to_owned).into(), false));
    }
}
