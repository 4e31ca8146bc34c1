//! Reads a program's standard output on a thread of its own, into a bounded channel.

use std::io::{self, Read};
use std::process::ChildStdout;
use std::sync::atomic::Ordering;

use crossbeam_channel::{Receiver, Sender, bounded};
use sluice_model::Error;

use crate::activity::Activity;
use crate::columns::EventColumns;
use crate::stream::EventStream;

/// How many batches may be queued.
const QUEUE_LEN: usize = 2;

/// An item of a program's output. After the end or an error, the channel closes with the output.
pub(crate) enum StreamItem {
    /// Events, and how many bytes of the stream they took.
    Events(Box<EventColumns>, u64),
    /// The end mark of the stream.
    End,
    /// Not a valid stream: the message, and the output. While that is held open, the program does
    /// not fail for writing to it.
    Invalid(String, Box<dyn Send>),
}

/// Reads a program's output from now on.
pub(crate) fn listen(
    output: ChildStdout,
    activity: Activity,
) -> Result<Receiver<StreamItem>, Error> {
    let (sender, heard) = bounded(QUEUE_LEN);
    let read = move || read_stream(EventStream::new(ActiveReader { output, activity }), &sender);
    let thread = std::thread::Builder::new().name("sluice-hear".into());
    thread.spawn(read).map_err(|e| Error::io("start a thread to read from", "a program", e))?;
    Ok(heard)
}

fn read_stream(mut stream: EventStream<impl Read + Send + 'static>, sender: &Sender<StreamItem>) {
    let mut read = 0;
    loop {
        let next = match stream.next() {
            Ok(Some(event_columns)) => {
                let since = stream.position() - std::mem::replace(&mut read, stream.position());
                StreamItem::Events(Box::new(event_columns), since)
            }
            Ok(None) => break,
            Err(what) => return drop(sender.send(StreamItem::Invalid(what, Box::new(stream)))),
        };
        if sender.send(next).is_err() {
            return;
        }
    }
    // If nobody receives, the program has been killed.
    drop(sender.send(StreamItem::End));
    if let Err(what) = stream.end() {
        drop(sender.send(StreamItem::Invalid(what, Box::new(stream))));
    }
}

/// A program's output; each read counts as activity.
struct ActiveReader {
    output: ChildStdout,
    activity: Activity,
}

impl Read for ActiveReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.output.read(buffer)?;
        self.activity.fetch_add(1, Ordering::Relaxed);
        Ok(read)
    }
}
