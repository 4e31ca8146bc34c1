//! A small robot drive, made up on the spot and always the same: source `demo`.
//!
//! [`drive`] makes the messages; this is the plugin that gives them out, in pieces of a tenth of a
//! second that can be made on any thread in any order.

pub mod drive;

use drive::{Drive, DriveOptions, SLICE_NS, START_NS, Slice};
use schemars::JsonSchema;
use serde::Deserialize;
use sluice_core::{
    Batch, BatchBuilder, Channel, ChannelId, Encoding, Error, Input, Name, PayloadOffset, Query,
    ReadContext, Reader, Source, Split, SplitStart,
};

/// A deterministic robot drive with the sensors and message types of the MIT Urban Challenge vehicle:
/// for the quick start, for tests and for trying things out.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Demo {
    /// How long the drive is, in seconds.
    #[serde(default = "ten")]
    #[schemars(range(min = 0.0))]
    seconds: f64,
    /// Another number gives another drive of the same kind.
    #[serde(default = "one")]
    seed: u64,
}

fn ten() -> f64 {
    10.0
}

fn one() -> u64 {
    1
}

sluice_core::register! {
    source "demo": Demo,
    about: "makes up a small robot drive: poses, GPS, laser scanners, cameras, a Velodyne",
    sample: include_str!("../samples/demo.toml"),
}

/// About how many bytes a slice has.
const SLICE_BYTES: u64 = 500_000;
/// How far an event may lie outside its slice's time.
const SLACK: i64 = 100_000_000;

impl Demo {
    fn drive(&self) -> Drive {
        Drive::new(DriveOptions { seconds: self.seconds, seed: self.seed })
    }
}

impl Source for Demo {
    fn is_undecoded(&self) -> bool {
        true
    }

    fn inputs(&self) -> Result<Vec<Input>, Error> {
        Ok(Vec::new())
    }

    fn splits(&self, target: u64, query: &Query) -> Result<Vec<Split>, Error> {
        let slices = self.drive().slices() as u64;
        let many = (target / SLICE_BYTES).max(1);
        let whole = |start: u64| {
            let end = (start + many).min(slices);
            Split {
                input: "demo".into(),
                start,
                end: Some(end),
                bytes: Some((end - start) * SLICE_BYTES),
                live: false,
            }
        };
        let begins = |slice: u64| START_NS.saturating_add(SLICE_NS.saturating_mul(slice as i64));
        let wanted = |split: &Split| {
            let end = begins(split.end.unwrap_or(slices)).saturating_add(SLACK);
            query.start.is_none_or(|start| end >= start)
                && query.end.is_none_or(|stop| begins(split.start).saturating_sub(SLACK) < stop)
        };
        Ok((0..slices).step_by(many as usize).map(whole).filter(wanted).collect())
    }

    fn read<'s>(
        &'s self,
        split: &Split,
        _: SplitStart,
        context: &ReadContext,
    ) -> Result<Box<dyn Reader + 's>, Error> {
        let (drive, context) = (self.drive(), context.clone());
        let mut ids = Vec::new();
        for name in drive.channels() {
            let encoding = if name == "LOGGER_STRING" { Encoding::Text } else { Encoding::Lcm };
            let channel = Channel::new(Name::from_text(name), context.source.clone(), encoding);
            ids.push(context.channels.intern(channel)?);
        }
        let slices = split.start..split.end.unwrap_or(drive.slices() as u64);
        let mut slice = Slice::default();
        Ok(Box::new(slices.map(move |place| {
            slice.clear();
            drive.slice(place as usize, &mut slice);
            context.count_read(SLICE_BYTES);
            Ok(batch(&mut slice, drive.sequence_at(place as usize), &ids))
        })))
    }
}

fn batch(slice: &mut Slice, first: u64, ids: &[ChannelId]) -> Batch {
    let mut builder = BatchBuilder::with_capacity(slice.events.len());
    for (n, event) in slice.events.iter().enumerate() {
        let (place, sequence) =
            (PayloadOffset { segment: 0, offset: event.payload.start as u32 }, first + n as u64);
        let payload = &slice.payloads[event.payload.clone()];
        builder.push(event.timestamp_ns, sequence as i64, ids[event.channel], payload, place);
    }
    builder.segment(std::mem::take(&mut slice.payloads).into());
    builder.finish()
}
