//! Stage `exec`: a program that may drop, change and add events.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, TryRecvError};
use schemars::JsonSchema;
use serde::Deserialize;
use sluice_model::time::TimeLength;
use sluice_model::{
    Batch, ChannelId, Channels, Error, Fold, OptionsError, ReadContext, Stage, StageContext,
};

use crate::columns::EventColumns;
use crate::events::{Defaults, ProgramColumns, refuse_without_payload, to_batch, with_origins};
use crate::in_flight::{Answer, InFlight, SentEvent};
use crate::launch::{self, LaunchOptions, here, program, timeout};
use crate::process::{POLL_INTERVAL, Process, StdinMode};
use crate::sent_rows::{ReturnedRows, SentRows};
use crate::stdin::StdinWriter;
use crate::stdout::{StreamItem, listen};
use crate::stream::EventStream;
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
    #[serde(default = "timeout", deserialize_with = "launch::patience")]
    #[schemars(extend("default" = "60s"))]
    timeout: TimeLength,
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

const CHANGED: &str = "events lost their decoded fields because a program changed their payloads; \
                       `decode` after it decodes payloads that have a type";
const LATE: &str = "events that a program holds back for long return without decoded fields; put \
                    `decode` after it";
const WITHOUT_PAYLOAD: &str =
    "events that are sent to a program without payloads return without decoded fields";
const NEW: &str = "new events of a program (without a `number`, or with one that has returned \
                   before) have no decoded fields; `decode` after it decodes payloads that have a \
                   type";

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

/// Matches a program's output with the events that were sent to it.
#[derive(Debug, Default)]
struct AnswerTracker {
    in_flight: InFlight,
    sent_rows: SentRows,
    /// Whether any event that was sent had decoded fields.
    has_decoded: bool,
    /// The sequence number of the next event that has none.
    sequence: i64,
}

/// A program's output as events of the run.
struct AnsweredEvents {
    /// The events, without rows.
    batch: Batch,
    rows: ReturnedRows,
    /// How many of them are new, if any that were sent had decoded fields.
    new: u64,
}

impl AnsweredEvents {
    /// Which events have no decoded fields, and why.
    fn notes(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let ReturnedRows { changed, late, without_payload, .. } = self.rows;
        let counts = [changed, late, without_payload, self.new];
        [CHANGED, LATE, WITHOUT_PAYLOAD, NEW]
            .into_iter()
            .zip(counts)
            .filter(|(_, count)| *count > 0)
    }
}

impl AnswerTracker {
    /// Records events that are sent.
    fn send(&mut self, batch: &Batch) {
        self.has_decoded |= !batch.rows().is_empty();
        self.sent_rows.send(self.in_flight.next(), batch);
        let channels = batch.origins().iter().zip(batch.channels()).zip(batch.decoded_mask());
        self.in_flight.send(channels.map(|((origin, channel), is_decoded)| SentEvent {
            origin: *origin,
            channel: *channel,
            is_decoded,
        }));
    }

    /// A program's output as events of the run. Adds the origins of new events to `added`. `Err`
    /// says what is wrong.
    fn take(
        &mut self,
        event_columns: &EventColumns,
        node: &str,
        channels: &Channels,
        added: &mut Vec<u32>,
    ) -> Result<AnsweredEvents, String> {
        let known = self.known(event_columns)?;
        let sent = known.iter().map(|sent| sent.map(|sent| ChannelId(sent.channel)));
        let defaults = Defaults::new(node, event_columns).sent(sent, channels);
        let batch = to_batch(event_columns, self.sequence, &defaults, channels);
        let batch = batch.map_err(|error| error.to_string())?;
        self.sequence = self.sequence.saturating_add(batch.len() as i64);
        let rows = event_columns.numbers.as_ref().map_or_else(ReturnedRows::default, |numbers| {
            let sent = |event: usize| known.get(event).copied().flatten();
            self.sent_rows
                .take(&batch, numbers, |event| sent(event).is_some_and(|sent| sent.is_decoded))
        });
        let new = known.iter().filter(|sent| sent.is_none() && self.has_decoded).count() as u64;
        let mut origins = batch.channels().to_vec();
        for (origin, sent) in origins.iter_mut().zip(known) {
            match sent {
                Some(SentEvent { origin: read, .. }) => *origin = read,
                None => added.push(*origin),
            }
        }
        let batch = with_origins(&batch, event_columns, origins);
        Ok(AnsweredEvents { batch, rows, new })
    }

    /// What is known of each event that was sent; `None` for new events.
    fn known(&mut self, event_columns: &EventColumns) -> Result<Vec<Option<SentEvent>>, String> {
        let Some(numbers) = &event_columns.numbers else {
            return Ok(vec![None; event_columns.len()]);
        };
        let known = numbers.iter().map(|number| match number.map(|n| self.in_flight.take(n)) {
            Some(Ok(Answer::Returned(sent))) => Ok(Some(sent)),
            Some(Ok(Answer::Repeat)) | None => Ok(None),
            Some(Err(what)) => Err(what),
        });
        known.collect()
    }
}

/// The result of a program for tests: its output matched with the events that were sent.
#[derive(Debug)]
pub struct ReturnedEvents {
    /// Its output.
    pub batches: Vec<Batch>,
    /// The origins of new events.
    pub added: Vec<u32>,
    /// How many of the events that were sent did not return.
    pub missing: u64,
}

/// What a stage returns if its program gets `sent` and then writes `bytes`. For tests and fuzzing.
///
/// `Err` says what is wrong with the bytes.
pub fn read_answers(
    bytes: &[u8],
    sent: &[Batch],
    context: &ReadContext,
) -> Result<ReturnedEvents, String> {
    let (mut answers, mut stream) = (AnswerTracker::default(), EventStream::new(bytes));
    sent.iter().for_each(|batch| answers.send(batch));
    let (mut batches, mut added) = (Vec::new(), Vec::new());
    while let Some(event_columns) = stream.next()? {
        let (source, channels) = (&context.source, &context.channels);
        let answered = answers.take(&event_columns, source, channels, &mut added)?;
        batches.push(answered.batch.with_rows(answered.rows.rows));
    }
    stream.end()?;
    Ok(ReturnedEvents { batches, added, missing: answers.in_flight.missing() })
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::events::write_stream;
    use arrow_array::*;
    use arrow_ipc::writer::StreamWriter;
    use sluice_model::{
        BatchBuilder, Channel, Encoding, MessageType, Name, Payloads, Rows, TypeKey,
    };

    /// Three events on two channels.
    fn sent(context: &ReadContext) -> Batch {
        let mut left = Channel::new(Name::from_text("A"), "left", Encoding::Lcm);
        left.type_name = Some("robot.pose".into());
        let right = Channel::new(Name::from_text("B"), "right", Encoding::Vel);
        let channels = [left, right].map(|channel| context.channels.intern(channel).unwrap());
        let mut batch = BatchBuilder::default();
        for (n, channel) in [0, 1, 0].into_iter().enumerate() {
            batch.push_copy(n as i64, n as i64, channels[channel], &[n as u8]);
        }
        batch.finish()
    }

    fn answer(numbers: Vec<Option<i64>>, more: Vec<(&str, ArrayRef)>) -> Vec<u8> {
        let len = numbers.len();
        let mut columns: Vec<(&str, ArrayRef, bool)> = vec![
            ("number", Arc::new(Int64Array::from(numbers)), true),
            ("timestamp", Arc::new(Int64Array::from(vec![7; len])), true),
            ("channel", Arc::new(StringArray::from(vec!["C"; len])), true),
            ("payload", Arc::new(BinaryArray::from(vec![&b"x"[..]; len])), true),
        ];
        columns.extend(more.into_iter().map(|(name, column)| (name, column, true)));
        stream(columns)
    }

    fn without_numbers(len: usize) -> Vec<u8> {
        stream(vec![
            ("timestamp", Arc::new(Int64Array::from(vec![7; len])), true),
            ("channel", Arc::new(StringArray::from(vec!["C"; len])), true),
            ("payload", Arc::new(BinaryArray::from(vec![&b"x"[..]; len])), true),
        ])
    }

    fn stream(columns: Vec<(&str, ArrayRef, bool)>) -> Vec<u8> {
        let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
        let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema()).unwrap();
        writer.write(&batch).unwrap();
        writer.into_inner().unwrap()
    }

    /// Source, encoding and type name of each event.
    fn said(
        answered: &ReturnedEvents,
        context: &ReadContext,
    ) -> Vec<(String, Encoding, Option<String>)> {
        let events = answered.batches.iter().flat_map(Batch::iter);
        let said = events.map(|event| {
            let channel = context.channels.get(event.channel);
            let kind = channel.type_name.as_ref().map(ToString::to_string);
            (channel.source.to_string(), channel.encoding.clone(), kind)
        });
        said.collect()
    }

    #[test]
    fn nulls_keep_what_an_event_had_and_new_events_get_the_nodes_name() {
        let context = ReadContext::standalone("keep");
        let sent = [sent(&context)];
        let numbers = vec![Some(1), None, Some(0), Some(1)];
        let mine = |name| -> Vec<(&str, ArrayRef)> {
            vec![(name, Arc::new(StringArray::from(vec![Some("mine"), None, None, None])))]
        };
        let was = [
            ("right".to_owned(), Encoding::Vel, None),
            ("keep".to_owned(), Encoding::Unknown, None),
            ("left".to_owned(), Encoding::Lcm, Some("robot.pose".to_owned())),
            ("keep".to_owned(), Encoding::Unknown, None),
        ];
        let nothing: ArrayRef = Arc::new(StringArray::from(vec![None::<&str>; 4]));
        let nulls = ["source", "encoding", "attributes"].map(|name| (name, Arc::clone(&nothing)));
        for more in [Vec::new(), nulls.to_vec(), mine("source"), mine("encoding")] {
            let name = more.first().map(|(name, _)| *name).filter(|_| more.len() == 1);
            let answered = read_answers(&answer(numbers.clone(), more), &sent, &context).unwrap();
            let mut expected = was.clone();
            match name {
                Some("source") => expected[0].0 = "mine".to_owned(),
                Some(_) => expected[0].1 = Encoding::Unknown,
                None => {}
            }
            assert_eq!(said(&answered, &context), expected, "{name:?}");
            assert_eq!((answered.added.len(), answered.missing), (2, 1));
            let origins: Vec<u32> = answered.batches[0].origins().to_vec();
            assert_eq!([origins[0], origins[2]], [sent[0].channels()[1], sent[0].channels()[0]]);
        }
    }

    #[test]
    fn events_that_return_unchanged_are_the_same() {
        let context = ReadContext::standalone("keep");
        let sent = [sent(&context)];
        let bytes = write_stream(&sent, &context.channels).unwrap();
        let answered = read_answers(&bytes, &sent, &context).unwrap();
        let plain = |batches: &[Batch]| -> Vec<_> {
            let events = batches.iter().flat_map(Batch::iter);
            events.map(|e| (e.timestamp, e.sequence, e.channel, e.payload.to_vec())).collect()
        };
        assert_eq!(plain(&answered.batches), plain(&sent));
        assert_eq!((answered.added.len(), answered.missing), (0, 0));
    }

    #[test]
    fn events_that_lose_their_fields_are_noted() {
        let context = ReadContext::standalone("keep");
        let lens: ArrayRef = Arc::new(Int64Array::from(vec![1, 1]));
        let decoded = |payloads| Rows {
            message: Arc::new(MessageType::named("t", TypeKey(1))),
            payloads,
            events: vec![0, 2],
            columns: RecordBatch::try_from_iter([("len", Arc::clone(&lens))]).unwrap(),
        };
        let notes = |rows: Vec<Rows>, bytes: &[u8]| {
            let mut answers = AnswerTracker::default();
            answers.send(&sent(&context).with_rows(rows));
            let event_columns = EventStream::new(bytes).next().unwrap().unwrap();
            let added = &mut Vec::new();
            let answered = answers.take(&event_columns, "keep", &context.channels, added).unwrap();
            answered.notes().collect::<Vec<_>>()
        };
        let (kept, gone) = (decoded(Payloads::Kept), decoded(Payloads::Gone));
        // All payloads are changed. Number 1 is not decoded, and 0 returns twice.
        let bytes = answer(vec![Some(0), Some(1), None, Some(0)], Vec::new());
        assert_eq!(notes(vec![kept.clone()], &bytes), [(CHANGED, 1), (NEW, 2)]);
        assert_eq!(notes(vec![gone], &bytes), [(WITHOUT_PAYLOAD, 1), (NEW, 2)]);
        assert_eq!(notes(Vec::new(), &bytes), []);
        let without_numbers = without_numbers(3);
        assert_eq!(notes(vec![kept], &without_numbers), [(NEW, 3)]);
        assert_eq!(notes(Vec::new(), &without_numbers), []);
    }

    #[test]
    fn numbers_that_were_not_sent_are_an_error() {
        let context = ReadContext::standalone("keep");
        let sent = [sent(&context)];
        let said = read_answers(&answer(vec![Some(3)], Vec::new()), &sent, &context).unwrap_err();
        assert!(said.contains("no event was sent with the number 3"), "{said}");
    }
}
