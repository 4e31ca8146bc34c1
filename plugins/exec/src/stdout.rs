//! What a program gives, read on a thread of its own and handed over through a bounded channel. Knows no
//! channel of the run.

use std::io::{self, Read};
use std::process::ChildStdout;
use std::sync::atomic::Ordering;

use crossbeam_channel::{Receiver, Sender, bounded};
use sluice_core::Error;

use crate::columns::EventColumns;
use crate::process::Activity;
use crate::stream::EventStream;

/// How many batches a program may be ahead.
const QUEUE_LEN: usize = 2;

/// What is heard from a program. After the end, and after what is wrong, the channel is closed when its output
/// is.
pub(crate) enum StreamItem {
    /// Events, and how many bytes of the stream they took.
    Events(Box<EventColumns>, u64),
    /// The mark that ends its stream.
    End,
    /// No stream, or one that breaks off: what was found, and the output. As long as that is kept open, it is
    /// not what the program fails of.
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
    // Whoever does not listen any more has ended the program.
    drop(sender.send(StreamItem::End));
    if let Err(what) = stream.end() {
        drop(sender.send(StreamItem::Invalid(what, Box::new(stream))));
    }
}

/// A program's output, of which every read is a sign that the program is alive.
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
