//! Stage `exec`: a program that may drop, change and add events.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, TryRecvError};
use schemars::JsonSchema;
use serde::Deserialize;
use sluice_model::time::TimeSpan;
use sluice_model::{Batch, Error, Fold, OptionsError, Stage, StageContext};

use crate::answers::AnswerTracker;
use crate::columns::EventColumns;
use crate::events::{ProgramColumns, refuse_without_payload};
use crate::launch::{self, LaunchOptions, here, program, timeout};
use crate::process::{POLL_INTERVAL, Process, StdinMode};
use crate::stdin::StdinWriter;
use crate::stdout::{StreamItem, listen};
use crate::wire::END;

/// Passes events through a program.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExecStage {
    /// The program and its arguments, as a list; no shell is involved. It reads an Arrow stream
    /// from standard input, and writes one to standard output.
    #[serde(deserialize_with = "launch::words")]
    command: Vec<String>,
    /// Also send a column `fields` with the decoded fields of each event as JSON.
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

impl TryFrom<ExecStage> for Stage {
    type Error = OptionsError;

    fn try_from(options: ExecStage) -> Result<Self, OptionsError> {
        let ExecStage { command, fields, folder, env, timeout } = options;
        let launch = LaunchOptions { command, folder, env, timeout };
        Ok(Self::Fold(Box::new(ProgramSession::new(
            launch,
            ProgramColumns { numbers: true, fields },
        ))))
    }
}

sluice_model::register! {
    stage "exec": ExecStage,
    about: "passes events through a program in any language, as Arrow streams",
    sample: include_str!("../samples/exec-stage.toml"),
    program: Some(program),
}

/// How many bytes of a program's output to pass on at a time.
const MAX_BYTES: usize = 8 << 20;
/// How long to collect a program's output before it is passed on.
const MAX_DELAY: Duration = Duration::from_millis(250);

/// The exchange of a run with its program.
struct ProgramSession {
    launch: LaunchOptions,
    program_columns: ProgramColumns,
    program: Option<RunningProgram>,
    state: State,
    /// Messages that the program has not received yet.
    unsent: VecDeque<Vec<u8>>,
    answers: AnswerTracker,
}

/// The progress of the exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    /// More input may follow.
    Open,
    /// The end of its input was queued.
    Closing,
    /// The program has ended its stream.
    Done,
    /// The program has exited, and missing events were counted.
    Over,
}

/// A running program.
struct RunningProgram {
    process: Process,
    /// `None` after its input was closed.
    feed: Option<StdinWriter>,
    items: Receiver<StreamItem>,
}

/// The result of waiting for the program.
enum ExchangeStep {
    /// It received a message.
    Taken,
    /// It has closed its input.
    StdinClosed,
    Received(StreamItem),
    /// It has closed its output.
    StdoutClosed,
    /// Nothing for a while.
    Nothing,
}

impl ProgramSession {
    fn new(launch: LaunchOptions, program_columns: ProgramColumns) -> Self {
        Self {
            launch,
            program_columns,
            program: None,
            state: State::Open,
            unsent: VecDeque::new(),
            answers: AnswerTracker::default(),
        }
    }

    /// The program, started on first use.
    fn program(&mut self, context: &StageContext<'_>) -> Result<&mut RunningProgram, Error> {
        if self.program.is_none() {
            let (process, pipes) = self.launch.start(None, StdinMode::Piped, &context.run)?;
            let input = pipes.input.ok_or_else(|| Error::internal("a program without an input"))?;
            let (feed, _) = StdinWriter::start(input, process.activity())?;
            let items = listen(pipes.output, process.activity())?;
            self.unsent.push_front(self.program_columns.head()?);
            self.program = Some(RunningProgram { process, feed: Some(feed), items });
        }
        self.program.as_mut().ok_or_else(|| Error::internal("a program that was not started"))
    }

    /// Exchanges data until everything was sent (and, after the end of input, until the program has
    /// exited), or until there is enough to pass on.
    fn exchange(&mut self, context: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        let (mut batches, mut bytes) = (Vec::new(), 0);
        self.program(context)?.process.restart_timer();
        let begun = Instant::now();
        let waits = |batches: &[Batch]| batches.is_empty() || begun.elapsed() < MAX_DELAY;
        while bytes < MAX_BYTES && waits(&batches) && self.state != State::Over {
            let is_idle = self.unsent.is_empty() && self.state == State::Open;
            match self.step(is_idle, context)? {
                ExchangeStep::Nothing if is_idle => break,
                ExchangeStep::Nothing => self.program(context)?.process.check_alive()?,
                ExchangeStep::Taken => {}
                // It may have read enough, and will end its output properly.
                ExchangeStep::StdinClosed => {
                    self.stop_sending();
                    self.state = self.state.max(State::Closing);
                }
                ExchangeStep::Received(StreamItem::Events(event_columns, _)) => {
                    bytes += event_columns.bytes;
                    batches.push(self.events(&event_columns, context)?);
                }
                ExchangeStep::Received(StreamItem::End) => {
                    self.stop_sending();
                    self.state = State::Done;
                }
                ExchangeStep::Received(StreamItem::Invalid(what, _output)) => {
                    let process = &mut self.program(context)?.process;
                    return Err(process.failed(&format!("wrote invalid events: {what}")));
                }
                ExchangeStep::StdoutClosed => self.close(context)?,
            }
        }
        Ok(batches)
    }

    /// Sends the next message or receives output, whichever comes first.
    fn step(&mut self, is_idle: bool, context: &StageContext<'_>) -> Result<ExchangeStep, Error> {
        self.program(context)?;
        let Some(RunningProgram { feed, items, .. }) = &mut self.program else {
            return Ok(ExchangeStep::StdoutClosed);
        };
        if is_idle {
            return Ok(match items.try_recv() {
                Ok(said) => ExchangeStep::Received(said),
                Err(TryRecvError::Empty) => ExchangeStep::Nothing,
                Err(TryRecvError::Disconnected) => ExchangeStep::StdoutClosed,
            });
        }
        let (Some(sender), Some(piece)) = (feed.as_ref(), self.unsent.front_mut()) else {
            if self.state == State::Closing {
                // This closes its input.
                *feed = None;
            }
            return Ok(match items.recv_timeout(POLL_INTERVAL) {
                Ok(said) => ExchangeStep::Received(said),
                Err(RecvTimeoutError::Timeout) => ExchangeStep::Nothing,
                Err(RecvTimeoutError::Disconnected) => ExchangeStep::StdoutClosed,
            });
        };
        let piece = std::mem::take(piece);
        let (taken, step) = send(sender, items, piece);
        match taken {
            Ok(()) => drop(self.unsent.pop_front()),
            Err(piece) => {
                if let Some(front) = self.unsent.front_mut() {
                    *front = piece;
                }
            }
        }
        Ok(step)
    }

    fn stop_sending(&mut self) {
        self.unsent.clear();
        if let Some(program) = &mut self.program {
            program.feed = None;
        }
    }

    /// The program's output is closed: waits for its exit, and counts missing events.
    fn close(&mut self, context: &mut StageContext<'_>) -> Result<(), Error> {
        self.stop_sending();
        let is_done = self.state == State::Done;
        let process = &mut self.program(context)?.process;
        process.wait()?;
        process.check_exit()?;
        if !is_done {
            return Err(process.error("ended its stream without an end mark"));
        }
        self.state = State::Over;
        context.report.filtered += self.answers.in_flight.missing();
        Ok(())
    }

    /// A program's output as events of the run.
    fn events(
        &mut self,
        event_columns: &EventColumns,
        context: &mut StageContext<'_>,
    ) -> Result<Batch, Error> {
        let node = context.run.node();
        let added = &mut context.report.added;
        match self.answers.take(event_columns, node, context.channels, added) {
            Ok(answered) => {
                for (note, count) in answered.notes() {
                    context.note(note, count);
                }
                Ok(answered.batch.with_rows(answered.rows.rows))
            }
            Err(what) => Err(self.wrong(&what, context)),
        }
    }

    fn wrong(&mut self, what: &str, context: &StageContext<'_>) -> Error {
        match self.program(context) {
            Ok(program) => program.process.failed(&format!("wrote invalid events: {what}")),
            Err(error) => error,
        }
    }
}

/// Sends a message unless the program writes something first. `Err` returns the message.
fn send(
    feed: &StdinWriter,
    items: &Receiver<StreamItem>,
    piece: Vec<u8>,
) -> (Result<(), Vec<u8>>, ExchangeStep) {
    // A `send` in a `select` would not return the message, so this only waits until it is possible.
    match feed.pieces.try_send(piece) {
        Ok(()) => (Ok(()), ExchangeStep::Taken),
        Err(crossbeam_channel::TrySendError::Disconnected(_)) => {
            (Ok(()), ExchangeStep::StdinClosed)
        }
        Err(crossbeam_channel::TrySendError::Full(piece)) => {
            let mut wait = crossbeam_channel::Select::new();
            let hears = wait.recv(items);
            wait.send(&feed.pieces);
            match wait.ready_timeout(POLL_INTERVAL) {
                Ok(ready) if ready == hears => match items.try_recv() {
                    Ok(said) => (Err(piece), ExchangeStep::Received(said)),
                    Err(TryRecvError::Disconnected) => (Err(piece), ExchangeStep::StdoutClosed),
                    Err(TryRecvError::Empty) => (Err(piece), ExchangeStep::Taken),
                },
                Ok(_) => (Err(piece), ExchangeStep::Taken),
                Err(_) => (Err(piece), ExchangeStep::Nothing),
            }
        }
    }
}

impl Fold for ProgramSession {
    fn push(&mut self, batch: Batch, context: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        if self.state >= State::Done {
            context.report.filtered += batch.len() as u64;
            return Ok(Vec::new());
        }
        if !self.program_columns.fields {
            refuse_without_payload(&batch, context.channels)?;
        }
        // Events return with the times that the program was sent.
        context.note_clamped_times(&batch);
        self.program(context)?;
        let first = self.answers.in_flight.next();
        self.unsent.extend(self.program_columns.messages(&batch, first, context.channels)?);
        self.answers.send(&batch);
        self.exchange(context)
    }

    fn more(&mut self, context: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        if self.program.is_none() || self.state == State::Over {
            return Ok(Vec::new());
        }
        self.exchange(context)
    }

    fn finish(&mut self, context: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        self.program(context)?;
        if self.state == State::Open {
            self.unsent.push_back(END.to_vec());
            self.state = State::Closing;
        }
        self.exchange(context)
    }

    fn is_done(&self) -> bool {
        self.state >= State::Done
    }
}
