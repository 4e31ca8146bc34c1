//! Writes a program's standard input on a thread of its own, fed by a bounded channel.

use std::io::{PipeReader, PipeWriter, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use rustix::io::ioctl_fionread;
use sluice_model::Error;

use crate::activity::Activity;
use crate::wire::END;

/// How many messages may be queued.
const QUEUE_LEN: usize = 2;
/// How much to write at a time. Each write counts as activity.
const CHUNK: usize = 16 << 10;

/// Our end of a program's standard input.
pub(crate) struct ProgramInput {
    pub(crate) pipe: PipeWriter,
    pub(crate) sent: Arc<SentBytes>,
}

/// How much was written to a program.
#[derive(Debug, Default)]
pub(crate) struct SentBytes {
    begun: AtomicU64,
    done: AtomicU64,
}

impl SentBytes {
    fn write(&self, pipe: &mut PipeWriter, bytes: &[u8]) -> std::io::Result<()> {
        self.begun.fetch_add(bytes.len() as u64, Ordering::SeqCst);
        pipe.write_all(bytes)?;
        self.done.fetch_add(bytes.len() as u64, Ordering::SeqCst);
        Ok(())
    }

    /// How much a program that has exited had read. What is written while this looks into the pipe
    /// counts as not read.
    pub(crate) fn read_from(&self, pipe: &PipeReader) -> u64 {
        const TRIES: u32 = 1000;
        let mut read = 0;
        for _ in 0..TRIES {
            let (begun, done) =
                (self.begun.load(Ordering::SeqCst), self.done.load(Ordering::SeqCst));
            let unread = ioctl_fionread(pipe).unwrap_or_default();
            read = done.saturating_sub(unread);
            let is_exact = begun == done && self.begun.load(Ordering::SeqCst) == begun;
            // A write into a pipe that is full waits for nobody.
            if is_exact || unread > CHUNK as u64 {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        read
    }

    pub(crate) fn total(&self) -> u64 {
        self.done.load(Ordering::SeqCst)
    }
}

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
        input: ProgramInput,
        activity: Activity,
    ) -> Result<(Self, StdinResult), Error> {
        let (pieces, waiting) = bounded::<Vec<u8>>(QUEUE_LEN);
        let (sender, result) = bounded(1);
        let ProgramInput { mut pipe, sent } = input;
        let write = move || {
            let mut delivery = Delivery::All;
            'pieces: for piece in waiting {
                for chunk in piece.chunks(CHUNK) {
                    match sent.write(&mut pipe, chunk) {
                        Ok(()) => activity.fetch_add(1, Ordering::Relaxed),
                        Err(_) if piece == END => {
                            delivery = Delivery::Events;
                            break 'pieces;
                        }
                        Err(_) => return,
                    };
                }
            }
            drop(pipe);
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn what_is_written_after_a_program_exited_was_not_read() {
        let (mut reader, mut pipe) = std::io::pipe().unwrap();
        let sent = SentBytes::default();
        sent.write(&mut pipe, b"events").unwrap();
        reader.read_exact(&mut [0; 5]).unwrap();
        let read = sent.read_from(&reader);
        sent.write(&mut pipe, &END).unwrap();
        assert_eq!((read, sent.total() - read), (5, 1 + END.len() as u64));
    }

    #[test]
    fn a_writer_that_waits_for_room_holds_nobody_up() {
        let (reader, mut pipe) = std::io::pipe().unwrap();
        let sent = SentBytes::default();
        std::thread::scope(|scope| {
            scope.spawn(|| while sent.write(&mut pipe, &[0; CHUNK]).is_ok() {});
            while ioctl_fionread(&reader).unwrap() <= CHUNK as u64 {
                std::thread::yield_now();
            }
            assert_eq!(sent.read_from(&reader), 0);
            drop(reader);
        });
        assert!(sent.total() >= CHUNK as u64);
    }
}
