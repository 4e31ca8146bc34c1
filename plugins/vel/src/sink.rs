//! Sink `vel`: writes one log, and completes its index at the end.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use sluice_model::options::OutPath;
use sluice_model::pool::PooledBlock;
use sluice_model::time::AbsoluteTime;
use sluice_model::{
    Batch, Clock, Error, Event, OutputFile, PerChannel, PrepareContext, Sink, SinkContext,
    SinkTraits, Written,
};

use crate::format::TIMES_ROUNDED;
use crate::front::HeadAndIndex;
use crate::index::IndexBuilder;
use crate::mapping::{BatchUsage, ChannelMapping, HashedNames, TypeVersion, decoded_types};
use crate::original::OriginalLog;
use crate::sink_options::{IndexLen, MAX_SECONDS};
use crate::time::{to_wide_millis, to_wide_nanos};
use crate::wire::{END_MARK, HEADER_LEN, MessageHeader, TIME_AT, VERSION, append_message};

/// Seconds in the index of a recording by default.
const RECORDING_SECONDS: u32 = 3600;

/// Writes a Koblenz VEL DataLog file.
///
/// Unchanged messages of a VEL log are written byte for byte as they were read, whatever their
/// type.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VelSink {
    /// The log; `-` is standard output, and a name ending in `.zst` is compressed.
    #[serde(deserialize_with = "OutPath::without_folder")]
    path: OutPath,
    /// Seconds in the index: all (`exact`), none (`none`), or a number.
    #[serde(default)]
    index: IndexLen,
    /// The time that becomes 0 ms, for events with absolute times. Default: the first of them.
    epoch: Option<AbsoluteTime>,
    #[serde(skip)]
    mappings: PerChannel<ChannelMapping>,
}

sluice_model::register! {
    sink "vel": VelSink,
    about: "writes Koblenz VEL DataLog files",
    sample: include_str!("../samples/vel-sink.toml"),
    extensions: &["vel"],
    keeps_names_only: true,
}

/// Encoded events; their times are filled in when they are appended.
pub struct VelBlock {
    bytes: PooledBlock,
    messages: Vec<PendingMessage>,
    /// The names written as numbers.
    hashed: HashedNames,
}

const EPOCH_IS_FIRST_EVENT: &str = "times are written relative to the first event; set `epoch` \
    here and \
    in the source to keep absolute times";

/// Position of a message in a block, and what its time is computed from.
struct PendingMessage {
    at: usize,
    timestamp: i64,
    clock: Clock,
    /// Its position in the log it was read from, if any.
    origin: Option<i64>,
    /// Its exact time, if 64 bits cannot hold it.
    wide: Option<i128>,
}

impl PendingMessage {
    /// Appends the message of an event, without its time. `Err` says why no log can hold it; `out`
    /// is then unchanged.
    fn append(
        out: &mut Vec<u8>,
        event: &Event<'_>,
        mapping: &ChannelMapping,
        type_id: TypeVersion,
    ) -> Result<Self, String> {
        let (timestamp, clock, at) = (event.timestamp, mapping.clock, out.len());
        append_message(out, mapping.marker, type_id, 0.0, event.payload)
            .map_err(|e| e.to_string())?;
        let origin = mapping.hashed_name.is_none().then_some(event.sequence);
        Ok(Self { at, timestamp, clock, origin, wide: None })
    }
}

/// The open log.
#[derive(Debug)]
pub struct VelOutput {
    body: BodyFile,
    /// Bytes of messages so far.
    len: u64,
    seconds: IndexBuilder,
    /// The file's minor version.
    minor: u16,
    /// Least number of index entries.
    least: u32,
    /// The time that becomes 0 ms.
    epoch: Option<i64>,
    /// Whether the user set the epoch.
    is_epoch_given: bool,
    original: Option<OriginalLog>,
    hashed: HashedNames,
    rounded: u64,
    events: u64,
}

/// Where messages are written until the index is known.
#[derive(Debug)]
enum BodyFile {
    /// After an empty head of this length, which is kept or replaced.
    InPlace { file: OutputFile, head: u64 },
    /// To a temporary file.
    Temporary { file: OutputFile, body: File },
}

impl VelSink {
    /// Opens the body of a file whose head is not known yet.
    fn open_body(&self, mut file: OutputFile, front: &HeadAndIndex<'_>) -> Result<BodyFile, Error> {
        let is_final = self.index == IndexLen::Seconds(0);
        if !is_final && !file.can_replace_head() {
            let fail = |e| Error::io("make a temporary file for", file.target(), e);
            let body = tempfile::tempfile().map_err(fail)?;
            return Ok(BodyFile::Temporary { file, body });
        }
        front.chunks().try_for_each(|piece| file.write_binary(&piece))?;
        Ok(BodyFile::InPlace { file, head: front.head().body() })
    }

    /// Whether times beyond 64 bits are written exactly: that requires a known epoch.
    fn keeps_wide_times(&self, clock: Clock) -> bool {
        clock == Clock::Relative || self.epoch.is_some()
    }

    fn mappings(&self, context: &PrepareContext<'_>) -> Result<Arc<Vec<ChannelMapping>>, Error> {
        self.mappings.table(context.channels, |channel| Ok(ChannelMapping::from_channel(channel)))
    }
}

impl VelOutput {
    fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        match &mut self.body {
            BodyFile::InPlace { file, .. } => file.write_binary(bytes)?,
            BodyFile::Temporary { file, body } => body
                .write_all(bytes)
                .map_err(|e| Error::io("write a temporary file for", file.target(), e))?,
        }
        self.len += bytes.len() as u64;
        Ok(())
    }

    /// The milliseconds of a message: those it was read with, if they are known and still match its
    /// time.
    fn millis(&mut self, message: &PendingMessage, header: &MessageHeader) -> Result<f64, Error> {
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
                nanos_since(message.timestamp, epoch)?.into()
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

    /// Writes the end mark if the input had one and its last message was written.
    fn write_end_mark(&mut self) -> Result<(), Error> {
        let Some(original) = &mut self.original else { return Ok(()) };
        if original.ends_with_a_mark()? { self.write(&END_MARK.to_le_bytes()) } else { Ok(()) }
    }

    /// Fills in the times of a block's messages, and returns them.
    fn set_times(
        &mut self,
        bytes: &mut [u8],
        messages: &[PendingMessage],
    ) -> Result<Vec<f64>, Error> {
        let broken = || Error::internal("a block of messages is shorter than its messages");
        let mut times = Vec::with_capacity(messages.len());
        for message in messages {
            let bytes = bytes.get_mut(message.at..).ok_or_else(broken)?;
            let header = bytes.first_chunk().and_then(MessageHeader::parse).ok_or_else(broken)?;
            let ms = self.millis(message, &header)?;
            bytes
                .get_mut(TIME_AT..HEADER_LEN)
                .ok_or_else(broken)?
                .copy_from_slice(&ms.to_le_bytes());
            times.push(ms);
        }
        Ok(times)
    }
}

/// Nanoseconds from `epoch` to `timestamp`, if a message can hold them.
fn nanos_since(timestamp: i64, epoch: i64) -> Result<i64, Error> {
    timestamp.checked_sub(epoch).ok_or_else(|| {
        Error::invalid(format!(
            "an event at {} is more than 292 years from the time that becomes 0 ms, {}; set \
             another \
             `epoch`",
            sluice_model::time::format(timestamp),
            sluice_model::time::format(epoch)
        ))
    })
}

impl VelSink {
    /// Notes about the whole output.
    fn notes(&self, log: &VelOutput) -> Vec<(String, u64)> {
        let mut notes = Vec::new();
        if log.rounded > 0 {
            notes.push((TIMES_ROUNDED.to_owned(), log.rounded));
        }
        if log.seconds.is_full() && self.index != IndexLen::Seconds(0) {
            let most = log.seconds.positions().len();
            notes.push((format!("the index ends after {most} seconds, before the last event"), 0));
        }
        for (type_id, names) in log.hashed.iter().filter(|(_, names)| names.len() > 1) {
            let number = crate::hash::hex(*type_id);
            let names = names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
            notes.push((format!("these names have the same number, {number}: {names}"), 0));
        }
        notes
    }
}

impl Sink for VelSink {
    type Block = VelBlock;
    type Unit = VelBlock;
    type Output = VelOutput;

    fn traits(&self) -> SinkTraits {
        let is_packed = self.path.0.extension().is_some_and(|extension| extension == "zst");
        let is_rewritten = self.index != IndexLen::Seconds(0);
        SinkTraits {
            accepts_wide_times: true,
            is_readable_unfinished: !(is_rewritten && (is_packed || self.path.is_stdout())),
            ..SinkTraits::writing(&self.path.0)
        }
    }

    fn open(&self, context: &SinkContext) -> Result<VelOutput, Error> {
        let original = OriginalLog::open(context)?;
        let file = context.outputs.create(&self.path.0)?;
        let (least, seconds) = match self.index {
            // Others may read the file meanwhile, so the index cannot grow.
            IndexLen::Exact if file.is_growing() => {
                (RECORDING_SECONDS, IndexBuilder::new(RECORDING_SECONDS.into()))
            }
            IndexLen::Exact => {
                let least = original.as_ref().map_or(0, OriginalLog::entries);
                (least, IndexBuilder::proportional(least.into(), MAX_SECONDS.into()))
            }
            IndexLen::Seconds(seconds) => (seconds, IndexBuilder::new(seconds.into())),
        };
        let minor = original.as_ref().map_or(VERSION.1, OriginalLog::minor);
        Ok(VelOutput {
            body: self.open_body(file, &HeadAndIndex { minor, least, positions: &[] })?,
            len: 0,
            seconds,
            minor,
            least,
            epoch: self.epoch.map(|epoch| epoch.0),
            is_epoch_given: self.epoch.is_some(),
            original,
            hashed: HashedNames::new(),
            rounded: 0,
            events: 0,
        })
    }

    fn prepare(&self, batch: Batch, context: &mut PrepareContext<'_>) -> Result<VelBlock, Error> {
        context.note_schemas_lost(&batch);
        let (mappings, decoded) = (self.mappings(context)?, decoded_types(&batch));
        let mut bytes = context.buffers.buffer();
        bytes.reserve(batch.payload_bytes() as usize + batch.len() * HEADER_LEN);
        let (mut messages, mut usage) =
            (Vec::with_capacity(batch.len()), BatchUsage::new(mappings.len()));
        for (row, event) in batch.iter().enumerate() {
            let mapping = &mappings[event.channel.index()];
            let decoded = decoded.get(row).copied().flatten();
            let written = mapping.type_of(decoded).map_err(str::to_owned).and_then(|type_id| {
                let message = PendingMessage::append(&mut bytes, &event, mapping, type_id)?;
                let message = PendingMessage { wide: batch.wide_time(row), ..message };
                if message.wide.is_some() && !self.keeps_wide_times(mapping.clock) {
                    context.report.clamped.push(row as u32);
                }
                let channel = (event.channel.index(), mapping);
                usage.add(channel, type_id, event.payload, decoded.is_some());
                Ok(message)
            });
            match written {
                Ok(message) => messages.push(message),
                Err(reason) => context.report.refused.push((row as u32, reason)),
            }
        }
        usage.report_losses(&mappings, &mut context.report.losses);
        if self.epoch.is_none()
            && usage.channels(&mappings).any(|mapping| mapping.clock == Clock::Utc)
        {
            context.report.losses.insert(EPOCH_IS_FIRST_EVENT);
        }
        Ok(VelBlock { bytes, messages, hashed: usage.hashed(&mappings) })
    }

    fn write(&self, log: &mut VelOutput, mut block: VelBlock) -> Result<Written, Error> {
        let (times, start) = (log.set_times(&mut block.bytes, &block.messages)?, log.len);
        log.write(&block.bytes)?;
        for (message, ms) in block.messages.iter().zip(times) {
            log.seconds.add_message(start + message.at as u64, ms);
        }
        for (type_id, names) in block.hashed {
            log.hashed.entry(type_id).or_default().extend(names);
        }
        let events = block.messages.len() as u64;
        log.events += events;
        if let BodyFile::InPlace { file, .. } = &mut log.body {
            file.set_rows(log.events, log.events);
        }
        Ok(Written::events(events))
    }

    fn flush(&self, log: &mut VelOutput) -> Result<(), Error> {
        match &mut log.body {
            BodyFile::InPlace { file, .. } => file.flush(),
            BodyFile::Temporary { .. } => Ok(()),
        }
    }

    fn finish(&self, mut log: VelOutput) -> Result<Written, Error> {
        let notes = self.notes(&log);
        let marked = log.write_end_mark();
        let front =
            HeadAndIndex { minor: log.minor, least: log.least, positions: log.seconds.positions() };
        match log.body {
            BodyFile::InPlace { mut file, head } => {
                let mut indexed = Ok(());
                if !front.positions.is_empty() {
                    indexed = file.replace_head(head, &front.bytes());
                }
                if indexed.is_err() && file.is_growing() {
                    // A log without an index is whole, too. What matters is the first error.
                    drop(
                        file.replace_head(head, &HeadAndIndex { positions: &[], ..front }.bytes()),
                    );
                }
                marked.and(indexed).and(file.finish(log.events))?;
            }
            BodyFile::Temporary { mut file, body } => {
                marked?;
                front.chunks().try_for_each(|piece| file.write_binary(&piece))?;
                append_body(body, &mut file)?;
                file.finish(log.events)?;
            }
        }
        Ok(Written { notes, ..Written::default() })
    }
}

/// Copies the temporary file to the output.
fn append_body(mut body: File, file: &mut OutputFile) -> Result<(), Error> {
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
