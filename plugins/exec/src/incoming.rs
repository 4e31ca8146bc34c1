//! What a program gives, read on a thread of its own and handed over through a bounded channel. Knows no
//! channel of the run.

use std::io::{self, Read};
use std::process::ChildStdout;
use std::sync::atomic::Ordering;

use crossbeam_channel::{Receiver, Sender, bounded};
use sluice_core::Error;

use crate::columns::Given;
use crate::process::Activity;
use crate::stream::Stream;

/// How many batches a program may be ahead.
const AHEAD: usize = 2;

/// What is heard from a program. After the end, and after what is wrong, the channel is closed when its output
/// is.
pub(crate) enum Heard {
    /// Events, and how many bytes of the stream they took.
    Events(Box<Given>, u64),
    /// The mark that ends its stream.
    End,
    /// No stream, or one that breaks off: what was found, and the output. As long as that is kept open, it is
    /// not what the program fails of.
    Wrong(String, Box<dyn Send>),
}

/// Reads a program's output from now on.
pub(crate) fn listen(output: ChildStdout, activity: Activity) -> Result<Receiver<Heard>, Error> {
    let (sender, heard) = bounded(AHEAD);
    let read = move || hear(Stream::new(Alive { output, activity }), &sender);
    let thread = std::thread::Builder::new().name("sluice-hear".into());
    thread.spawn(read).map_err(|e| Error::io("start a thread to read from", "a program", e))?;
    Ok(heard)
}

fn hear(mut stream: Stream<impl Read + Send + 'static>, sender: &Sender<Heard>) {
    let mut read = 0;
    loop {
        let next = match stream.next() {
            Ok(Some(given)) => {
                let since = stream.position() - std::mem::replace(&mut read, stream.position());
                Heard::Events(Box::new(given), since)
            }
            Ok(None) => break,
            Err(what) => return drop(sender.send(Heard::Wrong(what, Box::new(stream)))),
        };
        if sender.send(next).is_err() {
            return;
        }
    }
    // Whoever does not listen any more has ended the program.
    drop(sender.send(Heard::End));
    if let Err(what) = stream.end() {
        drop(sender.send(Heard::Wrong(what, Box::new(stream))));
    }
}

/// A program's output, of which every read is a sign that the program is alive.
struct Alive {
    output: ChildStdout,
    activity: Activity,
}

impl Read for Alive {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.output.read(buffer)?;
        self.activity.fetch_add(1, Ordering::Relaxed);
        Ok(read)
    }
}
