//! Writes a program's standard input on a thread of its own, fed by a bounded channel.

use std::io::{PipeWriter, Write};
use std::sync::atomic::Ordering;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use sluice_model::Error;

use crate::activity::Activity;
use crate::wire::END;

/// How many messages may be queued.
const QUEUE_LEN: usize = 2;
/// How much to write at a time. Each write counts as activity.
const CHUNK: usize = 16 << 10;

/// Queues data for a program's standard input.
#[derive(Debug)]
pub(crate) struct StdinWriter {
    pub(crate) pieces: Sender<Vec<u8>>,
}

/// Whether everything was written.
#[derive(Debug)]
pub(crate) struct StdinResult(Receiver<Delivery>);

/// What was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// All events and the end mark.
    All,
    /// All events. The program had closed its input before the end mark, which it did not need.
    Events,
}

impl StdinWriter {
    /// Starts a thread that writes to `input` until the queue is closed or the program stops
    /// reading.
    pub(crate) fn start(
        mut input: PipeWriter,
        activity: Activity,
    ) -> Result<(Self, StdinResult), Error> {
        let (pieces, waiting) = bounded::<Vec<u8>>(QUEUE_LEN);
        let (sender, result) = bounded(1);
        let write = move || {
            let mut delivery = Delivery::All;
            'pieces: for piece in waiting {
                for chunk in piece.chunks(CHUNK) {
                    match input.write_all(chunk) {
                        Ok(()) => activity.fetch_add(1, Ordering::Relaxed),
                        Err(_) if piece == END => {
                            delivery = Delivery::Events;
                            break 'pieces;
                        }
                        Err(_) => return,
                    };
                }
            }
            drop(input);
            // Nobody receives if the run has failed elsewhere.
            let _asked = sender.send(delivery);
        };
        let thread = std::thread::Builder::new().name("sluice-feed".into());
        thread.spawn(write).map_err(|e| Error::io("start a thread to write to", "a program", e))?;
        Ok((Self { pieces }, StdinResult(result)))
    }
}

impl StdinResult {
    /// What was written, if it was everything. Call this after the program has exited.
    pub(crate) fn delivery(&self) -> Option<Delivery> {
        const TIMEOUT: Duration = Duration::from_secs(5);
        self.0.recv_timeout(TIMEOUT).ok()
    }
}
