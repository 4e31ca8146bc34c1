//! Sink `exec`: events are written by a program, into a file that appears only if the program succeeds.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::PathBuf;
use std::process::ChildStdout;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use crossbeam_channel::{Receiver, RecvTimeoutError, SendTimeoutError, bounded};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use sluice_core::options::OutPath;
use sluice_core::time::TimeLength;
use sluice_core::{Batch, EncodeContext, Error, OutputFile, Sink, SinkContext};

use crate::events::{Wanted, refuse_rows_alone};
use crate::feed::{self, Feed, Given};
use crate::launch::{self, Fed, Launch, here, program, timeout};
use crate::process::{Activity, LAST_WORDS, LOOK, Process};
use crate::voice::Voice;
use crate::wire::END;

/// Has a program write events.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "Options")]
pub struct ExecSink {
    launch: Launch,
    path: Option<OutPath>,
    wanted: Wanted,
}

impl JsonSchema for ExecSink {
    fn schema_name() -> Cow<'static, str> {
        "ExecSink".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Options::json_schema(generator)
    }
}

/// The options as they are written.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Options {
    /// The program and its arguments, as a list; no shell is between. It reads an Arrow stream from its
    /// standard input, to the end.
    #[serde(deserialize_with = "launch::words")]
    command: Vec<String>,
    /// The file that the program's standard output becomes: whole, when the program has ended with 0, or not
    /// at all. `-` is standard output. Without it, what the program prints is talk.
    path: Option<OutPath>,
    /// Also give the program a column `fields`: what is decoded of each event, as JSON. Events of which
    /// nothing else is there then have no payload.
    #[serde(default)]
    fields: bool,
    /// The folder in which the program runs. The folder of the pipeline file if left out.
    #[serde(default = "here", deserialize_with = "launch::folder")]
    #[schemars(extend("format" = "sluice-path"))]
    folder: PathBuf,
    /// Variables of the environment that the program gets beside those that are there.
    #[serde(default, deserialize_with = "launch::variables")]
    env: BTreeMap<String, String>,
    /// How long the program may neither take nor give anything before it is ended, when there is something to
    /// take or to give: seconds, or 200ms, 1m30s; 0 is no limit.
    #[serde(default = "timeout", deserialize_with = "launch::patience")]
    #[schemars(extend("default" = "60s"))]
    timeout: TimeLength,
}

impl TryFrom<Options> for ExecSink {
    type Error = String;

    fn try_from(options: Options) -> Result<Self, String> {
        let Options { command, path, fields, folder, env, timeout } = options;
        let launch = Launch { command, folder, env, timeout };
        if path.as_ref().is_some_and(OutPath::is_folder) {
            return Err("`path` is a folder: what a program prints becomes one file".into());
        }
        Ok(Self { launch, path, wanted: Wanted { numbers: false, fields } })
    }
}

sluice_core::register! {
    sink "exec": ExecSink,
    about: "runs a program in any language that takes events as an Arrow stream",
    sample: include_str!("../samples/exec-sink.toml"),
    program: Some(program),
}

/// A program that is given events.
#[derive(Debug)]
pub struct Writing {
    process: Process,
    feed: Feed,
    fed: feed::Fed,
    printed: Printed,
    events: u64,
}

/// Where what the program prints goes.
#[derive(Debug)]
enum Printed {
    /// Into a file, which comes when all is in it.
    File(Saved),
    /// To people.
    Talk(Voice),
}

/// Events for the program.
#[derive(Debug)]
pub struct Piece {
    messages: Vec<Vec<u8>>,
    events: u64,
}

impl Sink for ExecSink {
    type Block = Piece;
    type Output = Writing;

    fn targets(&self) -> Vec<PathBuf> {
        self.path.iter().map(|path| path.0.clone()).collect()
    }

    fn takes_rows(&self) -> bool {
        self.wanted.fields
    }

    fn open(&self, context: &SinkContext) -> Result<Writing, Error> {
        // What cannot be written is said before anything is started.
        let file = self.path.as_ref().map(|path| context.outputs.create(&path.0)).transpose()?;
        let (mut process, pipes) = self.launch.start(None, Fed::Yes, &context.talk)?;
        let input = pipes.input.ok_or_else(|| Error::broken("a program without an input"))?;
        let (feed, fed) = Feed::start(input, process.activity())?;
        let printed = match file {
            Some(file) => {
                // What it prints is data, whoever prints it.
                process.spare_rest();
                Printed::File(save(pipes.output, file, process.activity())?)
            }
            None => {
                let (talk, activity) = (context.talk.clone(), process.activity());
                Printed::Talk(Voice::listen(pipes.output, talk, activity)?)
            }
        };
        process.begin_to_wait();
        let mut writing = Writing { process, feed, fed, printed, events: 0 };
        writing.give(self.wanted.head()?)?;
        Ok(writing)
    }

    fn encode(&self, batch: Batch, context: &mut EncodeContext<'_>) -> Result<Piece, Error> {
        if !self.wanted.fields {
            refuse_rows_alone(&batch, context.channels)?;
        }
        let messages = self.wanted.messages(&batch, 0, context.channels)?;
        Ok(Piece { messages, events: batch.len() as u64 })
    }

    fn append(&self, output: &mut Writing, block: Piece) -> Result<u64, Error> {
        output.process.begin_to_wait();
        block.messages.into_iter().try_for_each(|message| output.give(message))?;
        output.events += block.events;
        // What the program makes of them is known when it has ended.
        Ok(0)
    }

    fn finish(&self, mut output: Writing) -> Result<u64, Error> {
        output.process.begin_to_wait();
        output.give(END.to_vec())?;
        let Writing { mut process, feed, fed, printed, events } = output;
        // Its input ends here.
        drop(feed);
        process.wait()?;
        process.begin_to_wait();
        // Why its output could not be saved is told before what became of it for that.
        let file = match &printed {
            Printed::File(saved) => Some(wait_for(saved, &mut process)?),
            Printed::Talk(voice) => {
                voice.settle(LAST_WORDS);
                None
            }
        };
        process.end_rest();
        process.judge()?;
        let may_leave = match fed.given() {
            Some(Given::All) => Some(END.len() as u64),
            Some(Given::Events) => Some(0),
            None => None,
        };
        if may_leave.is_none_or(|may_leave| process.untaken() > may_leave) {
            return Err(process.error("ended with exit code 0 before it had taken all events"));
        }
        file.map_or(Ok(()), |file| file.finish(events))?;
        Ok(events)
    }
}

impl Writing {
    /// Gives the program some bytes, as soon as it takes them.
    fn give(&mut self, mut bytes: Vec<u8>) -> Result<(), Error> {
        loop {
            match self.feed.pieces.send_timeout(bytes, LOOK) {
                Ok(()) => return Ok(()),
                Err(SendTimeoutError::Disconnected(_)) => return Err(self.deaf()),
                Err(SendTimeoutError::Timeout(back)) => bytes = back,
            }
            if let Printed::File(saved) = &self.printed
                && let Some(error) = saved.failed()
            {
                return Err(error);
            }
            self.process.look()?;
        }
    }

    /// The error of a program that takes nothing any more.
    fn deaf(&mut self) -> Error {
        if let Printed::File(saved) = &self.printed
            && let Some(error) = saved.failed()
        {
            return error;
        }
        self.process.failed("stopped taking events before it had all")
    }
}

/// A file that a thread writes. Whoever drops this takes the file away from it, so that nothing of a run that fails
/// stays open, however long the thread still waits for the program.
#[derive(Debug)]
struct Saved {
    file: Arc<Mutex<Option<OutputFile>>>,
    over: Receiver<Result<(), Error>>,
}

impl Saved {
    fn take(&self) -> Option<OutputFile> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Why it could not be written, if that is known by now.
    fn failed(&self) -> Option<Error> {
        self.over.try_recv().ok()?.err()
    }
}

impl Drop for Saved {
    fn drop(&mut self) {
        drop(self.take());
    }
}

/// Writes what a program prints into a file, on a thread of its own.
fn save(mut output: ChildStdout, file: OutputFile, activity: Activity) -> Result<Saved, Error> {
    let (sender, over) = bounded(1);
    let file = Arc::new(Mutex::new(Some(file)));
    let shared = Arc::clone(&file);
    let mut copy = move || -> Result<(), Error> {
        let mut buffer = vec![0; 64 << 10];
        loop {
            let read = output.read(&mut buffer).map_err(|e| Error::io("read", "a program", e))?;
            activity.fetch_add(1, Ordering::Relaxed);
            let bytes = match buffer.get(..read) {
                Some([]) | None => return Ok(()),
                Some(bytes) => bytes,
            };
            // It is gone where the run has failed elsewhere.
            match &mut *shared.lock().unwrap_or_else(PoisonError::into_inner) {
                Some(file) => file.write(bytes)?,
                None => return Ok(()),
            }
        }
    };
    let thread = std::thread::Builder::new().name("sluice-save".into());
    // Nobody asks where the run has failed elsewhere.
    let spawned = thread.spawn(move || drop(sender.send(copy())));
    spawned.map_err(|e| Error::io("start a thread to read from", "a program", e))?;
    Ok(Saved { file, over })
}

fn wait_for(saved: &Saved, process: &mut Process) -> Result<OutputFile, Error> {
    let not_saved = || Error::broken("what a program printed was not saved");
    loop {
        match saved.over.recv_timeout(LOOK) {
            Ok(over) => return over.and_then(|()| saved.take().ok_or_else(not_saved)),
            Err(RecvTimeoutError::Timeout) => process.look()?,
            Err(RecvTimeoutError::Disconnected) => return Err(not_saved()),
        }
    }
}
