//! Sink `exec`: a program writes the events. Its output file appears only if it succeeds.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::PathBuf;
use std::process::ChildStdout;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use crossbeam_channel::{Receiver, RecvTimeoutError, SendTimeoutError, bounded};
use schemars::JsonSchema;
use serde::Deserialize;
use sluice_model::options::OutPath;
use sluice_model::time::TimeSpan;
use sluice_model::{
    Batch, Error, OutputFile, PrepareContext, Sink, SinkContext, SinkTraits, Written,
};

use crate::activity::Activity;
use crate::child_stderr::ChildStderr;
use crate::events::{ProgramColumns, refuse_without_payload};
use crate::launch::{self, LaunchOptions, here, program, timeout};
use crate::process::{POLL_INTERVAL, Process, STDERR_GRACE, StdinMode};
use crate::stdin::{Delivery, StdinResult, StdinWriter};
use crate::wire::END;

/// Sends events to a program.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(try_from = "Options")]
#[schemars(with = "Options")]
pub(crate) struct ExecSink {
    launch: LaunchOptions,
    path: Option<OutPath>,
    program_columns: ProgramColumns,
}

/// The options as written.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Options {
    /// The program and its arguments, as a list; no shell is involved. It reads an Arrow stream
    /// from standard input, to the end.
    #[serde(deserialize_with = "launch::words")]
    command: Vec<String>,
    /// The file for the program's standard output, complete once the program exits with 0, or not
    /// written at all. `-` is standard output. Without it, the program's output is shown as
    /// messages.
    path: Option<OutPath>,
    /// Also send a column `fields` with the decoded fields of each event as JSON. Events without a
    /// payload are then accepted.
    #[serde(default)]
    fields: bool,
    /// The folder in which the program runs. Default: the folder of the pipeline file.
    #[serde(default = "here", deserialize_with = "launch::folder")]
    #[schemars(extend("format" = "sluice-path"))]
    folder: PathBuf,
    /// Additional environment variables.
    #[serde(default, deserialize_with = "launch::variables")]
    env: BTreeMap<String, String>,
    /// How long the program may be inactive while there is something to read or write before it is
    /// killed: seconds, or 200ms, 1m30s; 0 for no limit.
    #[serde(default = "timeout")]
    #[schemars(extend("default" = "60s"))]
    timeout: TimeSpan,
}

impl TryFrom<Options> for ExecSink {
    type Error = String;

    fn try_from(options: Options) -> Result<Self, String> {
        let Options { command, path, fields, folder, env, timeout } = options;
        let launch = LaunchOptions { command, folder, env, timeout };
        if path.as_ref().is_some_and(OutPath::is_folder) {
            return Err("`path` is a folder: the output of a program is one file".into());
        }
        Ok(Self { launch, path, program_columns: ProgramColumns { numbers: false, fields } })
    }
}

sluice_model::register! {
    sink "exec": ExecSink,
    about: "runs a program in any language that reads events as an Arrow stream",
    sample: include_str!("../samples/exec-sink.toml"),
    program: Some(program),
}

/// A program that is being sent events.
#[derive(Debug)]
pub(crate) struct ProgramWriter {
    process: Process,
    feed: StdinWriter,
    result: StdinResult,
    stdout: StdoutTarget,
    events: u64,
}

/// Where the program's standard output goes.
#[derive(Debug)]
enum StdoutTarget {
    /// To a file, which is published when it is complete.
    File(StdoutFile),
    /// To the user, as messages.
    Log(ChildStderr),
}

/// Events for the program.
#[derive(Debug)]
pub(crate) struct ProgramInput {
    messages: Vec<Vec<u8>>,
    events: u64,
}

impl Sink for ExecSink {
    type Block = ProgramInput;
    type Unit = ProgramInput;
    type Output = ProgramWriter;

    fn traits(&self) -> SinkTraits {
        let targets = self.path.iter().map(|path| path.0.clone()).collect();
        let traits = SinkTraits { targets, ..SinkTraits::default() };
        traits.with_rows(self.program_columns.fields)
    }

    fn open(&self, context: &SinkContext) -> Result<ProgramWriter, Error> {
        // Errors of the output file come before the program is started.
        let file = self.path.as_ref().map(|path| context.outputs.create(&path.0)).transpose()?;
        let (mut process, pipes) = self.launch.start(None, StdinMode::Piped, &context.run)?;
        let input = pipes.input.ok_or_else(|| Error::internal("a program without an input"))?;
        let (feed, result) = StdinWriter::start(input, process.activity())?;
        let stdout = match file {
            Some(file) => {
                // Output of its children is data, too.
                process.spare_children();
                StdoutTarget::File(save_stdout(pipes.output, file, process.activity())?)
            }
            None => {
                let (talk, activity) = (context.run.clone(), process.activity());
                StdoutTarget::Log(ChildStderr::listen(pipes.output, talk, activity)?)
            }
        };
        process.restart_timer();
        let mut writing = ProgramWriter { process, feed, result, stdout, events: 0 };
        writing.write(self.program_columns.head()?)?;
        Ok(writing)
    }

    fn prepare(
        &self,
        batch: Batch,
        context: &mut PrepareContext<'_>,
    ) -> Result<ProgramInput, Error> {
        if !self.program_columns.fields {
            refuse_without_payload(&batch, context.channels)?;
        }
        let messages = self.program_columns.messages(&batch, 0, context.channels)?;
        Ok(ProgramInput { messages, events: batch.len() as u64 })
    }

    fn write(&self, output: &mut ProgramWriter, block: ProgramInput) -> Result<Written, Error> {
        output.process.restart_timer();
        block.messages.into_iter().try_for_each(|message| output.write(message))?;
        output.events += block.events;
        // What the program makes of them is known when it has exited.
        Ok(Written::default())
    }

    fn finish(&self, mut output: ProgramWriter) -> Result<Written, Error> {
        output.process.restart_timer();
        output.write(END.to_vec())?;
        let ProgramWriter { mut process, feed, result, stdout, events } = output;
        // This closes its input.
        drop(feed);
        process.wait()?;
        process.restart_timer();
        // An error in saving its output comes before the exit code that may follow from it.
        let file = match &stdout {
            StdoutTarget::File(stdout_file) => Some(wait_for_file(stdout_file, &mut process)?),
            StdoutTarget::Log(stderr) => {
                stderr.wait(STDERR_GRACE);
                None
            }
        };
        process.kill_children();
        process.check_exit()?;
        let may_leave = match result.delivery() {
            Some(Delivery::All) => Some(END.len() as u64),
            Some(Delivery::Events) => Some(0),
            None => None,
        };
        if may_leave.is_none_or(|may_leave| process.unread() > may_leave) {
            return Err(process.error("exited with code 0 before it had read all events"));
        }
        file.map_or(Ok(()), |file| file.finish(events))?;
        Ok(Written::events(events))
    }
}

impl ProgramWriter {
    /// Sends bytes to the program as soon as it reads them.
    fn write(&mut self, mut bytes: Vec<u8>) -> Result<(), Error> {
        loop {
            match self.feed.pieces.send_timeout(bytes, POLL_INTERVAL) {
                Ok(()) => return Ok(()),
                Err(SendTimeoutError::Disconnected(_)) => return Err(self.closed_stdin_error()),
                Err(SendTimeoutError::Timeout(back)) => bytes = back,
            }
            if let StdoutTarget::File(stdout_file) = &self.stdout
                && let Some(error) = stdout_file.failed()
            {
                return Err(error);
            }
            self.process.check_alive()?;
        }
    }

    /// The error of a program that no longer reads.
    fn closed_stdin_error(&mut self) -> Error {
        if let StdoutTarget::File(stdout_file) = &self.stdout
            && let Some(error) = stdout_file.failed()
        {
            return error;
        }
        self.process.failed("stopped reading before it had all events")
    }
}

/// A file that a thread writes. Dropping this takes the file from the thread, so that a failed run
/// leaves nothing open, however long the thread waits for the program.
#[derive(Debug)]
struct StdoutFile {
    file: Arc<Mutex<Option<OutputFile>>>,
    over: Receiver<Result<(), Error>>,
}

impl StdoutFile {
    fn take(&self) -> Option<OutputFile> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Why it could not be written, if that is known by now.
    fn failed(&self) -> Option<Error> {
        self.over.try_recv().ok()?.err()
    }
}

impl Drop for StdoutFile {
    fn drop(&mut self) {
        drop(self.take());
    }
}

/// Saves a program's output to a file, on a thread of its own.
fn save_stdout(
    mut output: ChildStdout,
    file: OutputFile,
    activity: Activity,
) -> Result<StdoutFile, Error> {
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
            // The file is gone if the run has failed elsewhere.
            match &mut *shared.lock().unwrap_or_else(PoisonError::into_inner) {
                Some(file) => file.write(bytes)?,
                None => return Ok(()),
            }
        }
    };
    let thread = std::thread::Builder::new().name("sluice-save".into());
    // Nobody receives if the run has failed elsewhere.
    let spawned = thread.spawn(move || drop(sender.send(copy())));
    spawned.map_err(|e| Error::io("start a thread to read from", "a program", e))?;
    Ok(StdoutFile { file, over })
}

fn wait_for_file(stdout_file: &StdoutFile, process: &mut Process) -> Result<OutputFile, Error> {
    let not_saved = || Error::internal("the output of a program was not saved");
    loop {
        match stdout_file.over.recv_timeout(POLL_INTERVAL) {
            Ok(over) => return over.and_then(|()| stdout_file.take().ok_or_else(not_saved)),
            Err(RecvTimeoutError::Timeout) => process.check_alive()?,
            Err(RecvTimeoutError::Disconnected) => return Err(not_saved()),
        }
    }
}
