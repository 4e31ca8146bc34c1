//! Stage `exec`: events go through a program, which may leave out, change and add some.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, TryRecvError};
use schemars::JsonSchema;
use serde::Deserialize;
use sluice_core::time::TimeLength;
use sluice_core::{
    Batch, ChannelId, Channels, Error, Fold, OptionsError, ReadContext, Stage, StageContext,
};

use crate::columns::Given;
use crate::events::{Defaults, Wanted, batch_of, refuse_rows_alone, with_origins};
use crate::feed::Feed;
use crate::incoming::{Heard, listen};
use crate::launch::{self, Fed, Launch, here, program, timeout};
use crate::ledger::{Known, Ledger, Sent};
use crate::process::{LOOK, Process};
use crate::stream::Stream;
use crate::wire::END;

/// Has a program change events.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExecStage {
    /// The program and its arguments, as a list; no shell is between. It reads an Arrow stream from its
    /// standard input, and writes one to its standard output.
    #[serde(deserialize_with = "launch::words")]
    command: Vec<String>,
    /// Also give the program a column `fields`: what is decoded of each event, as JSON.
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

impl TryFrom<ExecStage> for Stage {
    type Error = OptionsError;

    fn try_from(options: ExecStage) -> Result<Self, OptionsError> {
        let ExecStage { command, fields, folder, env, timeout } = options;
        let launch = Launch { command, folder, env, timeout };
        Ok(Self::Fold(Box::new(Conversation::new(launch, Wanted { numbers: true, fields }))))
    }
}

sluice_core::register! {
    stage "exec": ExecStage,
    about: "passes events through a program in any language, as Arrow streams",
    sample: include_str!("../samples/exec-stage.toml"),
    program: Some(program),
}

/// How many bytes of what a program gives are handed on in one go.
const ENOUGH: usize = 8 << 20;
/// How long what a program gives may wait for more of it, before it is handed on.
const SOON: Duration = Duration::from_millis(250);

/// A run's talk with its program.
struct Conversation {
    launch: Launch,
    wanted: Wanted,
    partner: Option<Partner>,
    state: State,
    /// What was not yet handed to the program.
    unsent: VecDeque<Vec<u8>>,
    answers: Answers,
    /// Whether it was told that decoded fields do not come back.
    told_rows: bool,
}

/// How far the talk has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    /// There is more to come for the program.
    Open,
    /// The end of its input has been put behind what is unsent.
    Closing,
    /// The program has ended its stream: nothing more comes.
    Done,
    /// It has ended, and the books are closed.
    Over,
}

/// The program at work.
struct Partner {
    process: Process,
    /// Nothing, once it takes nothing more.
    feed: Option<Feed>,
    heard: Receiver<Heard>,
}

/// What came of waiting for the program.
enum Step {
    /// It took a piece.
    Taken,
    /// It takes nothing any more.
    Deaf,
    Heard(Heard),
    /// Its output is closed.
    Silent,
    /// Nothing for a while.
    Nothing,
}

impl Conversation {
    fn new(launch: Launch, wanted: Wanted) -> Self {
        Self {
            launch,
            wanted,
            partner: None,
            state: State::Open,
            unsent: VecDeque::new(),
            answers: Answers::default(),
            told_rows: false,
        }
    }

    /// The program, started if it was not.
    fn partner(&mut self, context: &StageContext<'_>) -> Result<&mut Partner, Error> {
        if self.partner.is_none() {
            let (process, pipes) = self.launch.start(None, Fed::Yes, &context.talk)?;
            let input = pipes.input.ok_or_else(|| Error::broken("a program without an input"))?;
            let (feed, _) = Feed::start(input, process.activity())?;
            let heard = listen(pipes.output, process.activity())?;
            self.unsent.push_front(self.wanted.head()?);
            self.partner = Some(Partner { process, feed: Some(feed), heard });
        }
        self.partner.as_mut().ok_or_else(|| Error::broken("a program that was not started"))
    }

    /// Goes on until everything is handed over, and if there is no more, until the program has ended; or
    /// until there is enough to be handed on.
    fn exchange(&mut self, context: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        let (mut batches, mut bytes) = (Vec::new(), 0);
        self.partner(context)?.process.begin_to_wait();
        let begun = Instant::now();
        let waits = |batches: &[Batch]| batches.is_empty() || begun.elapsed() < SOON;
        while bytes < ENOUGH && waits(&batches) && self.state != State::Over {
            let is_idle = self.unsent.is_empty() && self.state == State::Open;
            match self.step(is_idle, context)? {
                Step::Nothing if is_idle => break,
                Step::Nothing => self.partner(context)?.process.look()?,
                Step::Taken => {}
                // It may have had enough, which it then says at the end of what it gives.
                Step::Deaf => {
                    self.stop_sending();
                    self.state = self.state.max(State::Closing);
                }
                Step::Heard(Heard::Events(given, _)) => {
                    bytes += given.bytes;
                    batches.push(self.events(&given, context)?);
                }
                Step::Heard(Heard::End) => {
                    self.stop_sending();
                    self.state = State::Done;
                }
                Step::Heard(Heard::Wrong(what, _output)) => {
                    let process = &mut self.partner(context)?.process;
                    return Err(process.failed(&format!("gave wrong events: {what}")));
                }
                Step::Silent => self.close(context)?,
            }
        }
        Ok(batches)
    }

    /// Hands over the next piece, or hears what the program gives: whichever comes first.
    fn step(&mut self, is_idle: bool, context: &StageContext<'_>) -> Result<Step, Error> {
        self.partner(context)?;
        let Some(Partner { feed, heard, .. }) = &mut self.partner else { return Ok(Step::Silent) };
        if is_idle {
            return Ok(match heard.try_recv() {
                Ok(said) => Step::Heard(said),
                Err(TryRecvError::Empty) => Step::Nothing,
                Err(TryRecvError::Disconnected) => Step::Silent,
            });
        }
        let (Some(sender), Some(piece)) = (feed.as_ref(), self.unsent.front_mut()) else {
            if self.state == State::Closing {
                // Its input ends here.
                *feed = None;
            }
            return Ok(match heard.recv_timeout(LOOK) {
                Ok(said) => Step::Heard(said),
                Err(RecvTimeoutError::Timeout) => Step::Nothing,
                Err(RecvTimeoutError::Disconnected) => Step::Silent,
            });
        };
        let piece = std::mem::take(piece);
        let (taken, step) = hand_over(sender, heard, piece);
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
        if let Some(partner) = &mut self.partner {
            partner.feed = None;
        }
    }

    /// The program's output is closed: waits for its end, and closes the books.
    fn close(&mut self, context: &mut StageContext<'_>) -> Result<(), Error> {
        self.stop_sending();
        let is_done = self.state == State::Done;
        let process = &mut self.partner(context)?.process;
        process.wait()?;
        process.judge()?;
        if !is_done {
            return Err(process.error("ended without the mark that ends its stream"));
        }
        self.state = State::Over;
        context.filtered += self.answers.ledger.missing();
        Ok(())
    }

    /// What a program gave, as events of the run.
    fn events(&mut self, given: &Given, context: &mut StageContext<'_>) -> Result<Batch, Error> {
        let node = context.talk.node();
        match self.answers.take(given, node, context.channels, &mut context.added) {
            Ok(batch) => Ok(batch),
            Err(what) => Err(self.wrong(&what, context)),
        }
    }

    fn wrong(&mut self, what: &str, context: &StageContext<'_>) -> Error {
        match self.partner(context) {
            Ok(partner) => partner.process.failed(&format!("gave wrong events: {what}")),
            Err(error) => error,
        }
    }
}

/// Gives a piece to the program, unless it gives something first. `Err` has the piece back.
fn hand_over(feed: &Feed, heard: &Receiver<Heard>, piece: Vec<u8>) -> (Result<(), Vec<u8>>, Step) {
    // The piece cannot be had back from a `send` in a `select`: its turn is waited for instead.
    match feed.pieces.try_send(piece) {
        Ok(()) => (Ok(()), Step::Taken),
        Err(crossbeam_channel::TrySendError::Disconnected(_)) => (Ok(()), Step::Deaf),
        Err(crossbeam_channel::TrySendError::Full(piece)) => {
            let mut wait = crossbeam_channel::Select::new();
            let hears = wait.recv(heard);
            wait.send(&feed.pieces);
            match wait.ready_timeout(LOOK) {
                Ok(ready) if ready == hears => match heard.try_recv() {
                    Ok(said) => (Err(piece), Step::Heard(said)),
                    Err(TryRecvError::Disconnected) => (Err(piece), Step::Silent),
                    Err(TryRecvError::Empty) => (Err(piece), Step::Taken),
                },
                Ok(_) => (Err(piece), Step::Taken),
                Err(_) => (Err(piece), Step::Nothing),
            }
        }
    }
}

/// What a program answers to events that were sent to it.
#[derive(Debug, Default)]
struct Answers {
    ledger: Ledger,
    /// The sequence of the next event that comes without one.
    sequence: i64,
}

impl Answers {
    /// What a program of this node gave, as events of the run. Those that are new are put to `added` by their
    /// origins. `Err` says what is wrong with them.
    fn take(
        &mut self,
        given: &Given,
        node: &str,
        channels: &Channels,
        added: &mut Vec<u32>,
    ) -> Result<Batch, String> {
        let known = self.known(given)?;
        let sent = known.iter().map(|sent| sent.map(|sent| ChannelId(sent.channel)));
        let defaults = Defaults::of(node, given).sent(sent, channels);
        let batch = batch_of(given, self.sequence, &defaults, channels);
        let batch = batch.map_err(|error| error.to_string())?;
        self.sequence = self.sequence.saturating_add(batch.len() as i64);
        let mut origins = batch.channels().to_vec();
        for (origin, sent) in origins.iter_mut().zip(known) {
            match sent {
                Some(Sent { origin: read, .. }) => *origin = read,
                None => added.push(*origin),
            }
        }
        Ok(with_origins(&batch, given, origins))
    }

    /// For each event, what it was sent with; nothing for those that are new.
    fn known(&mut self, given: &Given) -> Result<Vec<Option<Sent>>, String> {
        let Some(numbers) = &given.numbers else { return Ok(vec![None; given.len()]) };
        let known = numbers.iter().map(|number| match number.map(|n| self.ledger.take(n)) {
            Some(Ok(Known::Back(sent))) => Ok(Some(sent)),
            Some(Ok(Known::Again)) | None => Ok(None),
            Some(Err(what)) => Err(what),
        });
        known.collect()
    }
}

/// What became of events that were sent to a program, by what it answered.
#[derive(Debug)]
pub struct Answered {
    /// What it gave.
    pub batches: Vec<Batch>,
    /// Those that are new, by their origins.
    pub added: Vec<u32>,
    /// How many of those that were sent did not come back.
    pub missing: u64,
}

/// What a stage makes of a program that gets `sent` and then writes `bytes`, whatever these are. For tests and
/// fuzzing: nothing is run.
///
/// `Err` says what is wrong with them.
pub fn answers_of(bytes: &[u8], sent: &[Batch], context: &ReadContext) -> Result<Answered, String> {
    let (mut answers, mut stream) = (Answers::default(), Stream::new(bytes));
    sent.iter().for_each(|batch| answers.ledger.send(batch.origins(), batch.channels()));
    let (mut batches, mut added) = (Vec::new(), Vec::new());
    while let Some(given) = stream.next()? {
        batches.push(answers.take(&given, &context.source, &context.channels, &mut added)?);
    }
    stream.end()?;
    Ok(Answered { batches, added, missing: answers.ledger.missing() })
}

impl Fold for Conversation {
    fn push(&mut self, batch: Batch, context: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        if self.state >= State::Done {
            context.filtered += batch.len() as u64;
            return Ok(Vec::new());
        }
        if !self.wanted.fields {
            refuse_rows_alone(&batch, context.channels)?;
        }
        if !batch.rows().is_empty() && !std::mem::replace(&mut self.told_rows, true) {
            context.note("decoded fields do not come back from a program; decode behind it", 0);
        }
        // What comes back has the times that the program was told.
        context.clamps_times(&batch);
        self.partner(context)?;
        let first = self.answers.ledger.next();
        self.unsent.extend(self.wanted.messages(&batch, first, context.channels)?);
        self.answers.ledger.send(batch.origins(), batch.channels());
        self.exchange(context)
    }

    fn more(&mut self, context: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        if self.partner.is_none() || self.state == State::Over {
            return Ok(Vec::new());
        }
        self.exchange(context)
    }

    fn finish(&mut self, context: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        self.partner(context)?;
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
    use crate::events::stream_of;
    use arrow_array::*;
    use arrow_ipc::writer::StreamWriter;
    use sluice_core::{BatchBuilder, Channel, Encoding, Name};

    /// Three events of two channels.
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
        let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
        let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema()).unwrap();
        writer.write(&batch).unwrap();
        writer.into_inner().unwrap()
    }

    /// Source, encoding and type name of each event.
    fn said(answered: &Answered, context: &ReadContext) -> Vec<(String, Encoding, Option<String>)> {
        let events = answered.batches.iter().flat_map(Batch::iter);
        let said = events.map(|event| {
            let channel = context.channels.get(event.channel);
            let kind = channel.type_name.as_ref().map(ToString::to_string);
            (channel.source.to_string(), channel.encoding.clone(), kind)
        });
        said.collect()
    }

    #[test]
    fn what_a_program_leaves_null_is_as_it_was_and_new_events_are_the_nodes() {
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
            let answered = answers_of(&answer(numbers.clone(), more), &sent, &context).unwrap();
            let mut wanted = was.clone();
            match name {
                Some("source") => wanted[0].0 = "mine".to_owned(),
                Some(_) => wanted[0].1 = Encoding::Unknown,
                None => {}
            }
            assert_eq!(said(&answered, &context), wanted, "{name:?}");
            assert_eq!((answered.added.len(), answered.missing), (2, 1));
            let origins: Vec<u32> = answered.batches[0].origins().to_vec();
            assert_eq!([origins[0], origins[2]], [sent[0].channels()[1], sent[0].channels()[0]]);
        }
    }

    #[test]
    fn events_that_come_back_as_they_were_sent_are_the_same() {
        let context = ReadContext::standalone("keep");
        let sent = [sent(&context)];
        let bytes = stream_of(&sent, &context.channels).unwrap();
        let answered = answers_of(&bytes, &sent, &context).unwrap();
        let told = |batches: &[Batch]| -> Vec<_> {
            let events = batches.iter().flat_map(Batch::iter);
            events.map(|e| (e.timestamp, e.sequence, e.channel, e.payload.to_vec())).collect()
        };
        assert_eq!(told(&answered.batches), told(&sent));
        assert_eq!((answered.added.len(), answered.missing), (0, 0));
    }

    #[test]
    fn numbers_that_were_not_sent_are_wrong() {
        let context = ReadContext::standalone("keep");
        let sent = [sent(&context)];
        let said = answers_of(&answer(vec![Some(3)], Vec::new()), &sent, &context).unwrap_err();
        assert!(said.contains("no event was sent with the number 3"), "{said}");
    }
}
