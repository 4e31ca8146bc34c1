//! Stage `exec`: events go through a program, which may leave out, change and add some.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;

use crossbeam_channel::{Receiver, RecvTimeoutError, TryRecvError};
use schemars::JsonSchema;
use serde::Deserialize;
use sluice_core::time::Length;
use sluice_core::{
    Batch, Channel, ChannelId, Channels, Error, Fold, OptionsError, Stage, StageContext,
};

use crate::columns::Given;
use crate::events::{Defaults, Wanted, batch_of, refuse_rows_alone, with_origins};
use crate::feed::Feed;
use crate::incoming::{Heard, listen};
use crate::launch::{Fed, Launch, here, program, timeout};
use crate::ledger::{Known, Ledger, Sent};
use crate::process::{LOOK, Process};
use crate::wire::END;

/// Has a program change events.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExecStage {
    /// The program and its arguments, as a list; no shell is between. It reads an Arrow stream from its
    /// standard input, and writes one to its standard output.
    command: Vec<String>,
    /// Also give the program a column `fields`: what is decoded of each event, as JSON.
    #[serde(default)]
    fields: bool,
    /// The folder in which the program runs. The folder of the pipeline file if left out.
    #[serde(default = "here")]
    #[schemars(extend("format" = "sluice-path"))]
    folder: PathBuf,
    /// Variables of the environment that the program gets beside those that are there.
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// How long the program may neither take nor give anything before it is ended, when there is something to
    /// take or to give: seconds, or 200ms, 1m30s; 0 is no limit.
    #[serde(default = "timeout")]
    timeout: Length,
}

impl TryFrom<ExecStage> for Stage {
    type Error = OptionsError;

    fn try_from(options: ExecStage) -> Result<Self, OptionsError> {
        let ExecStage { command, fields, folder, env, timeout } = options;
        let launch = Launch { command, folder, env, timeout };
        launch.judge().map_err(|what| OptionsError::at("command", what))?;
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

/// A run's talk with its program.
struct Conversation {
    launch: Launch,
    wanted: Wanted,
    partner: Option<Partner>,
    state: State,
    /// What was not yet handed to the program.
    unsent: VecDeque<Vec<u8>>,
    ledger: Ledger,
    /// The sequence of the next event that comes without one.
    sequence: i64,
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
            ledger: Ledger::default(),
            sequence: 0,
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
        while bytes < ENOUGH && self.state != State::Over {
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
        context.filtered += self.ledger.missing();
        Ok(())
    }

    /// What a program gave, as events of the run.
    fn events(&mut self, given: &Given, context: &mut StageContext<'_>) -> Result<Batch, Error> {
        let known = match self.known(given) {
            Ok(known) => known,
            Err(what) => return Err(self.wrong(&what, context)),
        };
        let sent = channels_of(&known, given, context.channels);
        let batch = batch_of(given, self.sequence, &Defaults::Sent(&sent), context.channels);
        let batch = match batch {
            Ok(batch) => batch,
            Err(error) => return Err(self.wrong(&error.to_string(), context)),
        };
        self.sequence = self.sequence.saturating_add(batch.len() as i64);
        let mut origins = batch.channels().to_vec();
        for (row, origin) in origins.iter_mut().enumerate() {
            match known.get(row).copied().flatten() {
                Some(Sent { origin: read, .. }) => *origin = read,
                None => context.added.push(*origin),
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

/// The channels events were sent on, where a program leaves out what else is said of them.
fn channels_of(
    known: &[Option<Sent>],
    given: &Given,
    channels: &Channels,
) -> Vec<Option<Arc<Channel>>> {
    let says_all = given.source.is_some() && given.encoding.is_some() && given.attributes.is_some();
    if says_all {
        return Vec::new();
    }
    known.iter().map(|sent| sent.map(|sent| channels.get(ChannelId(sent.channel)))).collect()
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
        self.partner(context)?;
        let first = self.ledger.next();
        self.unsent.extend(self.wanted.messages(&batch, first, context.channels)?);
        self.ledger.send(batch.origins(), batch.channels());
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
