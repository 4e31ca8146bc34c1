//! Checks that the order and number of `encode` calls do not matter. Calls the sink without the
//! engine, in which that would be up to a race.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use sluice_io::tasks::TaskPool;
use sluice_model::{BlockPool, Error, Outputs, Overwrite, PrepareContext, SinkContext, panics};

use super::files::DirSnapshot;
use super::{SinkBench, run_fault};
use crate::Promise;
use crate::finding::{Fault, FindingSet};
use crate::pipe::RunFailure;

/// How many events a batch has.
const SIZE: usize = 7;
/// The memory of a buffering sink.
const MEMORY: usize = 4 << 20;

impl SinkBench<'_> {
    /// Encodes batches in order, and backwards with each one twice; both are appended in order.
    pub(super) fn any_order(&self, found: &mut FindingSet) {
        let (forward, backward) = (self.encoded(false), self.encoded(true));
        let case = "batches that are encoded backwards, and twice";
        match (forward, backward) {
            (Ok(forward), Ok(backward)) => {
                if let Some(what) = forward.difference(&backward) {
                    found.add(Fault::new(Promise::Threads, "the output differs", what), case);
                }
            }
            (Err(failure), _) => found.add(run_fault(&failure), "its steps called one by one"),
            (_, Err(failure)) => found.add(run_fault(&failure), case),
        }
    }

    fn encoded(&self, backwards: bool) -> Result<DirSnapshot, RunFailure> {
        self.reset(&DirSnapshot::default());
        let worked = catch_unwind(AssertUnwindSafe(|| self.encode_all(backwards)));
        match worked {
            Ok(Ok(())) => Ok(DirSnapshot::read(&self.out())),
            Ok(Err(error)) => Err(RunFailure::Error(error.to_string())),
            Err(panic) => Err(RunFailure::Panic(panics::message_of(&*panic).to_owned())),
        }
    }

    fn encode_all(&self, backwards: bool) -> Result<(), Error> {
        let Some(sink) = self.make_sink() else { return Ok(()) };
        let outputs = Arc::new(Outputs::new(Overwrite::Refuse, false, &[]));
        let channels = Arc::clone(&self.events.channels);
        let context = SinkContext {
            outputs: Arc::clone(&outputs),
            channels: Arc::clone(&channels),
            memory: MEMORY,
            ..SinkContext::standalone()
        };
        let mut output = sink.open(&context, &TaskPool::default())?;
        let (pool, batches) = (BlockPool::new(1 << 16, 1 << 20), self.events.in_batches(SIZE));
        let encode = |at: usize| {
            let batch = batches.get(at).cloned().unwrap_or_default();
            sink.prepare(batch, &mut PrepareContext::new(&channels, &pool))
        };
        let mut blocks = Vec::new();
        for at in 0..batches.len() {
            if backwards {
                encode(batches.len() - 1 - at)?;
                blocks.insert(0, encode(batches.len() - 1 - at)?);
            } else {
                blocks.push(encode(at)?);
            }
        }
        for block in blocks {
            output.push(block)?;
        }
        output.finish()?;
        outputs.publish(|_, _| Ok("{}".to_owned())).map(drop)
    }
}
