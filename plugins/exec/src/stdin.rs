//! Giving a program its input: a thread that writes what comes through a bounded channel, so that whoever has
//! something for the program never waits for it in vain. Judges nothing.

use std::io::{PipeWriter, Write};
use std::sync::atomic::Ordering;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use sluice_core::Error;

use crate::process::Activity;
use crate::wire::END;

/// How many pieces wait for a program.
const QUEUE_LEN: usize = 2;
/// How much is written in one go. Each time is a sign that the program is alive.
const CHUNK: usize = 16 << 10;

/// The way to a program's input.
#[derive(Debug)]
pub(crate) struct StdinWriter {
    pub(crate) pieces: Sender<Vec<u8>>,
}

/// Tells whether a program was given everything.
#[derive(Debug)]
pub(crate) struct StdinResult(Receiver<Delivery>);

/// What a program was given that was given everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// All events, and the mark that ends them.
    All,
    /// All events. It had closed its input when the mark came, which is nothing that it would have needed.
    Events,
}

impl StdinWriter {
    /// A thread that writes to this input until there is no more, or until nobody takes it.
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
            // Nobody asks where the run has failed elsewhere.
            let _asked = sender.send(delivery);
        };
        let thread = std::thread::Builder::new().name("sluice-feed".into());
        thread.spawn(write).map_err(|e| Error::io("start a thread to write to", "a program", e))?;
        Ok((Self { pieces }, StdinResult(result)))
    }
}

impl StdinResult {
    /// What has been written if it was everything, asked when the program has ended.
    pub(crate) fn delivery(&self) -> Option<Delivery> {
        const TIMEOUT: Duration = Duration::from_secs(5);
        self.0.recv_timeout(TIMEOUT).ok()
    }
}
