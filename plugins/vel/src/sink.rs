//! Sink `vel`: one log, whose index is complete once all is written.

use std::fmt;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Unexpected, Visitor};
use serde::{Deserialize, Deserializer};
use sluice_core::options::OutPath;
use sluice_core::pool::PooledBlock;
use sluice_core::time::TimePoint;
use sluice_core::{
    Batch, Clock, EncodeContext, Error, Event, OutputFile, PerChannel, Sink, SinkContext,
};

use crate::format::ROUNDED;
use crate::index::Seconds;
use crate::kind::{Hashed, Kind, Met, TypeId, decoded_types};
use crate::original::Original;
use crate::time::{to_wide_millis, to_wide_nanos};
use crate::wire::{
    END_MARK, FileHead, HEADER_LEN, Header, TIME_AT, UNUSED, VERSION, append_message,
};

/// The most seconds that an index gets.
pub(crate) const MOST_SECONDS: u32 = 10_000_000;

/// The seconds that the index of a recording gets, if nobody says how many.
const GROWING_SECONDS: u32 = 3600;

/// Writes a Koblenz VEL DataLog file.
///
/// What was read from a VEL log and not changed is written byte for byte as it was, of whatever type.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VelSink {
    /// The log; `-` is standard output, and `.zst` at its end compresses it.
    #[serde(deserialize_with = "one_log")]
    path: OutPath,
    /// The seconds that the index has: all there are (`exact`), none (`none`), or a number of them.
    #[serde(default)]
    index: Index,
    /// The time that becomes 0 ms, for events with absolute times. Without it that is the first of them.
    epoch: Option<Absolute>,
    #[serde(skip)]
    kinds: PerChannel<Kind>,
}

sluice_core::register! {
    sink "vel": VelSink,
    about: "writes Koblenz VEL DataLog files",
    sample: include_str!("../samples/vel-sink.toml"),
    extensions: &["vel"],
    keeps_names_only: true,
}

/// A path that is no folder.
fn one_log<'de, D: Deserializer<'de>>(deserializer: D) -> Result<OutPath, D::Error> {
    let path = OutPath::deserialize(deserializer)?;
    if path.is_folder() {
        let path = path.0.display();
        return Err(serde::de::Error::custom(format!(
            "one log is needed, and this is a folder: {path}"
        )));
    }
    Ok(path)
}

/// How many seconds an index has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Index {
    #[default]
    Exact,
    Seconds(u32),
}

impl<'de> Deserialize<'de> for Index {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Given)
    }
}

/// Reads how many seconds an index has.
struct Given;

impl Visitor<'_> for Given {
    type Value = Index;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`exact`, `none`, or a number of seconds up to {MOST_SECONDS}")
    }

    fn visit_str<E: serde::de::Error>(self, word: &str) -> Result<Index, E> {
        match word {
            "exact" => Ok(Index::Exact),
            "none" => Ok(Index::Seconds(0)),
            _ => Err(E::invalid_value(Unexpected::Str(word), &self)),
        }
    }

    fn visit_u64<E: serde::de::Error>(self, seconds: u64) -> Result<Index, E> {
        let fitting = u32::try_from(seconds).ok().filter(|seconds| *seconds <= MOST_SECONDS);
        let unfit = || E::invalid_value(Unexpected::Unsigned(seconds), &self);
        fitting.map(Index::Seconds).ok_or_else(unfit)
    }

    fn visit_i64<E: serde::de::Error>(self, seconds: i64) -> Result<Index, E> {
        match u64::try_from(seconds) {
            Ok(seconds) => self.visit_u64(seconds),
            Err(_) => Err(E::invalid_value(Unexpected::Signed(seconds), &self)),
        }
    }
}

impl JsonSchema for Index {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Index".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [
            { "type": "string", "enum": ["exact", "none"] },
            { "type": "integer", "minimum": 0, "maximum": MOST_SECONDS },
        ] })
    }
}

/// A point in time, in nanoseconds since 1970.
#[derive(Clone, Copy, Debug)]
struct Absolute(i64);

impl<'de> Deserialize<'de> for Absolute {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match TimePoint::deserialize(deserializer)? {
            TimePoint::At(nanos) => Ok(Self(nanos)),
            TimePoint::After(_) => Err(serde::de::Error::custom(
                "a point in time is needed, such as 2007-11-03T14:00:00Z",
            )),
        }
    }
}

impl JsonSchema for Absolute {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        TimePoint::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        TimePoint::json_schema(generator)
    }
}

/// Encoded events; their times are put in when they are appended.
pub struct Encoded {
    bytes: PooledBlock,
    messages: Vec<Message>,
    /// The names that were written as numbers.
    hashed: Hashed,
}

const COUNTED_FROM_FIRST: &str = "times are written as counted from the first event; `epoch` says from \
    when instead, and gives them back when it is given to the source, too";

/// Where a message lies in a block, and what its time is made of.
struct Message {
    at: usize,
    timestamp: i64,
    clock: Clock,
    /// Where it began in the log that it was read from, if it was read from one.
    origin: Option<i64>,
    /// Its time, where its timestamp is only the nearest to it and says nothing of where times begin.
    wide: Option<i128>,
}

impl Message {
    /// Appends the message of an event, but for its time. `Err` says why no log can hold it; `out` is then
    /// as it was.
    fn append(
        out: &mut Vec<u8>,
        event: &Event<'_>,
        kind: &Kind,
        type_id: TypeId,
    ) -> Result<Self, String> {
        let (timestamp, clock, at) = (event.timestamp, kind.clock, out.len());
        append_message(out, kind.marker, type_id, 0.0, event.payload).map_err(|e| e.to_string())?;
        let origin = kind.hashed.is_none().then_some(event.sequence);
        Ok(Self { at, timestamp, clock, origin, wide: None })
    }
}

/// The open log.
#[derive(Debug)]
pub struct Log {
    body: Body,
    /// Bytes of messages so far.
    len: u64,
    seconds: Seconds,
    /// The file's minor version.
    minor: u16,
    /// The least entries that the index gets.
    least: u32,
    /// The time that becomes 0 ms.
    epoch: Option<i64>,
    /// Whether the user said which that is.
    is_epoch_given: bool,
    original: Option<Original>,
    hashed: Hashed,
    rounded: u64,
    events: u64,
}

/// Where messages go until the head in front of them is known.
#[derive(Debug)]
enum Body {
    /// Behind an empty head, of this length, that stays or is replaced.
    Behind { file: OutputFile, head: u64 },
    /// To a file of their own.
    Aside { file: OutputFile, body: File },
}

impl VelSink {
    /// A file that can be written behind its head once that is known.
    fn body(&self, mut file: OutputFile, front: &Front<'_>) -> Result<Body, Error> {
        let is_final = self.index == Index::Seconds(0);
        if !is_final && !file.can_replace_head() {
            let fail = |e| Error::io("make a temporary file for", file.target(), e);
            let body = tempfile::tempfile().map_err(fail)?;
            return Ok(Body::Aside { file, body });
        }
        front.pieces().try_for_each(|piece| file.write_binary(&piece))?;
        Ok(Body::Behind { file, head: front.head().body() })
    }

    /// Whether times beyond 64 bits are written as they are: it has to be known what they count from.
    fn keeps_wide_times(&self, clock: Clock) -> bool {
        clock == Clock::Relative || self.epoch.is_some()
    }

    fn kinds(&self, context: &EncodeContext<'_>) -> Result<Arc<Vec<Kind>>, Error> {
        self.kinds.table(context.channels, |channel| Ok(Kind::of(channel)))
    }
}

/// What stands in front of the messages: the head, and an index of at least so many entries.
struct Front<'p> {
    minor: u16,
    least: u32,
    /// Where the messages of the first entries are, behind all this.
    places: &'p [u64],
}

impl Front<'_> {
    fn head(&self) -> FileHead {
        let entries = u32::try_from(self.places.len()).unwrap_or(u32::MAX).max(self.least);
        FileHead { minor: self.minor, ..FileHead::new(entries) }
    }

    /// Its bytes, a few at a time: there may be much of it.
    fn pieces(&self) -> impl Iterator<Item = Vec<u8>> {
        let (head, count) = (self.head(), self.head().entries as usize);
        let starts = (0..count).step_by(ENTRIES_A_PIECE);
        let entries = move |from: usize| -> Vec<u8> {
            let piece = from..count.min(from + ENTRIES_A_PIECE);
            piece.flat_map(|entry| self.entry(&head, entry).to_le_bytes()).collect()
        };
        std::iter::once(head.write().to_vec()).chain(starts.map(entries))
    }

    fn entry(&self, head: &FileHead, entry: usize) -> i64 {
        self.places.get(entry).map_or(UNUSED, |place| (head.body() + place).cast_signed())
    }

    /// All of its bytes.
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.head().body() as usize);
        self.pieces().for_each(|piece| bytes.extend(piece));
        bytes
    }
}

/// How much of an index is made at a time.
const ENTRIES_A_PIECE: usize = 8 << 10;

impl Log {
    fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        match &mut self.body {
            Body::Behind { file, .. } => file.write_binary(bytes)?,
            Body::Aside { file, body } => body
                .write_all(bytes)
                .map_err(|e| Error::io("write a temporary file for", file.target(), e))?,
        }
        self.len += bytes.len() as u64;
        Ok(())
    }

    /// The milliseconds of a message: those it was read with, if they are known and still say its time.
    fn millis(&mut self, message: &Message, header: &Header) -> Result<f64, Error> {
        let nanos: i128 = match (message.clock, message.wide) {
            (Clock::Relative, wide) => wide.unwrap_or(message.timestamp.into()),
            (Clock::Utc, Some(wide)) if self.is_epoch_given => {
                wide.saturating_sub(self.epoch.unwrap_or_default().into())
            }
            (Clock::Utc, Some(_)) => {
                message.timestamp.saturating_sub(self.epoch.unwrap_or_default()).into()
            }
            (Clock::Utc, None) => {
                let epoch = *self.epoch.get_or_insert(message.timestamp);
                since(message.timestamp, epoch)?.into()
            }
        };
        if let (Some(original), Some(at)) = (&mut self.original, message.origin)
            && let Some(ms) = original.millis(at, header)?
            && to_wide_nanos(ms) == Some(nanos)
        {
            return Ok(ms);
        }
        let ms = to_wide_millis(nanos);
        self.rounded += u64::from(to_wide_nanos(ms) != Some(nanos));
        Ok(ms)
    }

    /// Writes the mark at the end of the log that was read, if its last message was written, too.
    fn write_end_mark(&mut self) -> Result<(), Error> {
        let Some(original) = &mut self.original else { return Ok(()) };
        if original.ends_with_a_mark()? { self.write(&END_MARK.to_le_bytes()) } else { Ok(()) }
    }

    /// Puts the times of a block's messages in, and their seconds into the index.
    fn place(&mut self, bytes: &mut [u8], messages: &[Message]) -> Result<(), Error> {
        let broken = || Error::internal("a block of messages is shorter than its messages");
        for message in messages {
            let bytes = bytes.get_mut(message.at..).ok_or_else(broken)?;
            let header = bytes.first_chunk().and_then(Header::parse).ok_or_else(broken)?;
            let ms = self.millis(message, &header)?;
            bytes
                .get_mut(TIME_AT..HEADER_LEN)
                .ok_or_else(broken)?
                .copy_from_slice(&ms.to_le_bytes());
            self.seconds.feed(self.len + message.at as u64, ms);
        }
        Ok(())
    }
}

/// Nanoseconds from `epoch` to `timestamp`, if a message can hold them.
fn since(timestamp: i64, epoch: i64) -> Result<i64, Error> {
    timestamp.checked_sub(epoch).ok_or_else(|| {
        Error::invalid(format!(
            "an event at {} is more than 292 years from the time that becomes 0 ms, {}; give another \
             `epoch`",
            sluice_core::time::format(timestamp),
            sluice_core::time::format(epoch)
        ))
    })
}

impl Sink for VelSink {
    type Block = Encoded;
    type Output = Log;

    fn targets(&self) -> Vec<PathBuf> {
        vec![self.path.0.clone()]
    }

    fn accepts_wide_times(&self) -> bool {
        true
    }

    fn open(&self, context: &SinkContext) -> Result<Log, Error> {
        let original = Original::of(context)?;
        let file = context.outputs.create(&self.path.0)?;
        let (least, seconds) = match self.index {
            // What others read meanwhile cannot be moved.
            Index::Exact if file.is_growing() => {
                (GROWING_SECONDS, Seconds::new(GROWING_SECONDS.into()))
            }
            Index::Exact => {
                let least = original.as_ref().map_or(0, Original::entries);
                (least, Seconds::in_proportion(least.into(), MOST_SECONDS.into()))
            }
            Index::Seconds(seconds) => (seconds, Seconds::new(seconds.into())),
        };
        let minor = original.as_ref().map_or(VERSION.1, Original::minor);
        Ok(Log {
            body: self.body(file, &Front { minor, least, places: &[] })?,
            len: 0,
            seconds,
            minor,
            least,
            epoch: self.epoch.map(|epoch| epoch.0),
            is_epoch_given: self.epoch.is_some(),
            original,
            hashed: Hashed::new(),
            rounded: 0,
            events: 0,
        })
    }

    fn encode(&self, batch: Batch, context: &mut EncodeContext<'_>) -> Result<Encoded, Error> {
        let (kinds, decoded) = (self.kinds(context)?, decoded_types(&batch));
        let mut bytes = context.buffers.buffer();
        bytes.reserve(batch.payload_bytes() as usize + batch.len() * HEADER_LEN);
        let (mut messages, mut met) = (Vec::with_capacity(batch.len()), Met::of(kinds.len()));
        for (row, event) in batch.iter().enumerate() {
            let kind = &kinds[event.channel.index()];
            let decoded = decoded.get(row).copied().flatten();
            let written = kind.type_of(decoded).map_err(str::to_owned).and_then(|type_id| {
                let message = Message::append(&mut bytes, &event, kind, type_id)?;
                let message = Message { wide: batch.wide_time(row), ..message };
                if message.wide.is_some() && !self.keeps_wide_times(kind.clock) {
                    context.clamped.push(row as u32);
                }
                let channel = (event.channel.index(), kind);
                met.add(channel, type_id, event.payload, decoded.is_some());
                Ok(message)
            });
            match written {
                Ok(message) => messages.push(message),
                Err(reason) => context.refused.push((row as u32, reason)),
            }
        }
        met.say_losses(&kinds, &mut context.losses);
        if self.epoch.is_none() && met.channels(&kinds).any(|kind| kind.clock == Clock::Utc) {
            context.losses.insert(COUNTED_FROM_FIRST);
        }
        Ok(Encoded { bytes, messages, hashed: met.hashed(&kinds) })
    }

    fn append(&self, log: &mut Log, mut block: Encoded) -> Result<u64, Error> {
        log.place(&mut block.bytes, &block.messages)?;
        log.write(&block.bytes)?;
        for (type_id, names) in block.hashed {
            log.hashed.entry(type_id).or_default().extend(names);
        }
        let events = block.messages.len() as u64;
        log.events += events;
        Ok(events)
    }

    fn notes(&self, log: &Log) -> Vec<(String, u64)> {
        let mut notes = Vec::new();
        if log.rounded > 0 {
            notes.push((ROUNDED.to_owned(), log.rounded));
        }
        if log.seconds.is_full() && self.index != Index::Seconds(0) {
            let most = log.seconds.positions().len();
            notes.push((format!("the index ends after {most} seconds, and the events go on"), 0));
        }
        for (type_id, names) in log.hashed.iter().filter(|(_, names)| names.len() > 1) {
            let number = crate::hash::hex(*type_id);
            let names = names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
            notes.push((format!("these names have one number, {number}: {names}"), 0));
        }
        notes
    }

    fn flush(&self, log: &mut Log) -> Result<(), Error> {
        match &mut log.body {
            Body::Behind { file, .. } => file.flush(),
            Body::Aside { .. } => Ok(()),
        }
    }

    fn is_readable_unfinished(&self) -> bool {
        let is_packed = self.path.0.extension().is_some_and(|extension| extension == "zst");
        self.index == Index::Seconds(0) || !(is_packed || self.path.is_stdout())
    }

    fn finish(&self, mut log: Log) -> Result<u64, Error> {
        log.write_end_mark()?;
        let front = Front { minor: log.minor, least: log.least, places: log.seconds.positions() };
        match log.body {
            Body::Behind { mut file, head } => {
                if !front.places.is_empty() {
                    file.replace_head(head, &front.bytes())?;
                }
                file.finish(log.events)?;
            }
            Body::Aside { mut file, body } => {
                front.pieces().try_for_each(|piece| file.write_binary(&piece))?;
                copy(body, &mut file)?;
                file.finish(log.events)?;
            }
        }
        Ok(0)
    }
}

/// Writes what was kept aside to where it belongs.
fn copy(mut body: File, file: &mut OutputFile) -> Result<(), Error> {
    let target = file.target().to_owned();
    let fail = |e| Error::io("read a temporary file for", Path::new(&target), e);
    body.seek(SeekFrom::Start(0)).map_err(fail)?;
    let mut buffer = vec![0; 1 << 20];
    loop {
        let read = body.read(&mut buffer).map_err(fail)?;
        if read == 0 {
            return Ok(());
        }
        file.write_binary(buffer.get(..read).unwrap_or_default())?;
    }
}
