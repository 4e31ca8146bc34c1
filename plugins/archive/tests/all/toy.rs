//! A byte format for these tests, as another crate would provide it: `toy`.
//!
//! An event is `E`, its time in microseconds, its number, the lengths of its channel and payload,
//! the channel, and the payload. On the channel `AT`, the number is instead the event's position.

use std::path::Path;

use bytes::Bytes;
use serde::Deserialize;
use sluice_io::escape::escaped_path;
use sluice_io::files::{self, LogFile};
use sluice_model::options::InPaths;
use sluice_model::schemars::JsonSchema;
use sluice_model::{
    Batch, BatchBuilder, ByteFormat, Channel, Channels, Damage, Encoding, Error, Input, Name,
    PrepareContext, ReadContext, Reader, SniffResult, Source, Split, SplitStart,
};

pub(crate) struct ToyFormat;

const HEADER: usize = 1 + 8 + 8 + 1 + 4;

impl ByteFormat for ToyFormat {
    fn stored_time(&self, time: i64) -> i64 {
        time - time.rem_euclid(1_000)
    }

    fn lengths(&self, batch: &Batch, context: &mut PrepareContext<'_>) -> Result<Vec<u32>, Error> {
        let mut lengths = Vec::new();
        for (row, event) in batch.iter().enumerate() {
            let name = context.channels.get(event.channel);
            let name = name.name.as_bytes();
            if name == b"REFUSED" {
                context.report.refused.push((row as u32, "this name is refused".into()));
            }
            lengths.push((HEADER + name.len() + event.payload.len()) as u32);
        }
        Ok(lengths)
    }

    fn encode(
        &self,
        events: &[Batch],
        channels: &Channels,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        for event in events.iter().flat_map(Batch::iter) {
            let channel = channels.get(event.channel);
            let name = channel.name.as_bytes();
            assert_ne!(name, b"REFUSED");
            out.push(b'E');
            out.extend(event.timestamp.div_euclid(1_000).to_le_bytes());
            out.extend(event.sequence.to_le_bytes());
            out.push(name.len() as u8);
            out.extend((event.payload.len() as u32).to_le_bytes());
            out.extend(name);
            out.extend(event.payload);
        }
        Ok(())
    }

    fn decode(
        &self,
        piece: Bytes,
        position: u64,
        _: &Path,
        context: &ReadContext,
    ) -> Result<Result<Vec<Batch>, String>, Error> {
        let (batch, read) = events(&piece, position, context)?;
        let whole = read == piece.len();
        Ok(if whole { Ok(vec![batch]) } else { Err(format!("no event at {read}")) })
    }
}

/// The whole events at the front of a piece at this position, and how many bytes they take.
fn events(mut log: &[u8], position: u64, context: &ReadContext) -> Result<(Batch, usize), Error> {
    let (all, mut batch) = (log.len(), BatchBuilder::default());
    let next = |log: &[u8]| {
        let (head, rest) = log.split_first_chunk::<HEADER>()?;
        let number = |at: usize| Some(i64::from_le_bytes(*head.get(at..)?.first_chunk()?));
        let (name, payload) = (usize::from(head[17]), u32::from_le_bytes(*head.last_chunk()?));
        let (name, rest) = rest.split_at_checked(name)?;
        let (payload, _) = rest.split_at_checked(payload as usize)?;
        let is_event = head[0] == b'E';
        is_event.then_some((
            number(1)?.checked_mul(1_000)?,
            number(9)?,
            name.to_vec(),
            payload.to_vec(),
        ))
    };
    while let Some((time, number, name, payload)) = next(log) {
        let at = position + (all - log.len()) as u64;
        let number = if name == b"AT" { at.cast_signed() } else { number };
        let channel = Channel::new(Name::from_bytes(&name), &*context.source, Encoding::Unknown);
        batch.push_copy(time, number, context.channels.intern(channel)?, &payload);
        log = &log[HEADER + name.len() + payload.len()..];
    }
    Ok((batch.finish(), all - log.len()))
}

/// Reads toy logs, plain or compressed.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "sluice_model::schemars")]
pub(crate) struct ToyLogSource {
    path: InPaths,
}

sluice_model::register! {
    source "toy": ToyLogSource,
    about: "reads the logs of these tests",
    sniff: |head| if head.first() == Some(&b'E') { SniffResult::Yes } else { SniffResult::No },
    byte_format: Some(&ToyFormat),
}

impl Source for ToyLogSource {
    fn inputs(&self) -> Result<Vec<Input>, Error> {
        files::expand(&self.path.0)
    }

    fn read<'s>(
        &'s self,
        split: &Split,
        _: SplitStart,
        context: &ReadContext,
    ) -> Result<Box<dyn Reader + 's>, Error> {
        let mut log = vec![0; 16 << 20];
        let mut file = LogFile::open(&split.input)?;
        let len = file.read_at(0, &mut log)?;
        let (batch, read) = events(&log[..len], 0, context)?;
        if read < len || file.decompression_error().is_some() {
            let input = escaped_path(&split.input).into();
            let damage = Damage::new(&input, read as u64, (len - read) as u64, "no event");
            context.damage.report(damage);
        }
        Ok(Box::new(std::iter::once(Ok(batch))))
    }
}
