//! Source `demo`: a small synthetic robot drive, always the same for the same options.
//!
//! [`drive`] generates the messages. This module is the plugin: it emits them in slices of a tenth
//! of a second, which can be generated on any thread in any order.

pub mod drive;

use drive::{Drive, DriveOptions, DriveSlice, SLICE_NS, START_NS};
use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use sluice_model::{
    Batch, BatchBuilder, Channel, ChannelId, Encoding, Error, Input, Name, PayloadOffset, Query,
    ReadContext, Reader, Source, Split, SplitStart,
};

/// A deterministic robot drive with the sensors and message types of the MIT Urban Challenge
/// vehicle, for the quick start, for tests and for trying things out.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Demo {
    /// Length of the drive, in seconds; at most 366 days.
    #[serde(default = "default_seconds", deserialize_with = "drive_length")]
    #[schemars(range(min = 0.0, max = drive::LONGEST_S))]
    seconds: f64,
    /// Seed: another number gives another drive of the same kind.
    #[serde(default = "default_seed")]
    seed: u64,
}

fn default_seconds() -> f64 {
    10.0
}

fn drive_length<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let seconds = f64::deserialize(deserializer)?;
    match (0.0..=drive::LONGEST_S).contains(&seconds) {
        true => Ok(seconds),
        false => Err(D::Error::custom(format!("expected from 0 to {} seconds", drive::LONGEST_S))),
    }
}

fn default_seed() -> u64 {
    1
}

sluice_model::register! {
    source "demo": Demo,
    about: "generates a small robot drive: poses, GPS, laser scanners, cameras, a Velodyne",
    sample: include_str!("../samples/demo.toml"),
}

/// Approximate size of a slice, in bytes.
const SLICE_BYTES: u64 = 500_000;
/// Tolerance for events received outside the time of their slice.
const RECEIVE_SLACK_NS: i64 = 100_000_000;

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
        let slices_per_split = (target / SLICE_BYTES).max(1);
        let split_from = |start: u64| {
            let end = (start + slices_per_split).min(slices);
            Split {
                input: "demo".into(),
                start,
                end: Some(end),
                bytes: Some((end - start) * SLICE_BYTES),
                live: false,
            }
        };
        let start_ns = |slice: u64| START_NS.saturating_add(SLICE_NS.saturating_mul(slice as i64));
        let overlaps_query = |split: &Split| {
            let end = start_ns(split.end.unwrap_or(slices)).saturating_add(RECEIVE_SLACK_NS);
            query.start.is_none_or(|start| end >= start)
                && query.end.is_none_or(|stop| {
                    start_ns(split.start).saturating_sub(RECEIVE_SLACK_NS) < stop
                })
        };
        Ok((0..slices)
            .step_by(slices_per_split as usize)
            .map(split_from)
            .filter(overlaps_query)
            .collect())
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
        let mut slice = DriveSlice::default();
        Ok(Box::new(slices.map(move |index| {
            slice.clear();
            drive.slice(index as usize, &mut slice);
            context.run.count_read(SLICE_BYTES);
            Ok(batch(&mut slice, drive.sequence_at(index as usize), &ids))
        })))
    }
}

fn batch(slice: &mut DriveSlice, first: u64, ids: &[ChannelId]) -> Batch {
    let mut builder = BatchBuilder::with_capacity(slice.events.len());
    for (n, event) in slice.events.iter().enumerate() {
        let (offset, sequence) =
            (PayloadOffset { segment: 0, offset: event.payload.start as u32 }, first + n as u64);
        let payload = &slice.payloads[event.payload.clone()];
        builder.push(event.timestamp_ns, sequence as i64, ids[event.channel], payload, offset);
    }
    builder.segment(std::mem::take(&mut slice.payloads).into());
    builder.finish()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use sluice_model::options;

    use super::*;

    #[test]
    fn a_drive_that_cannot_be_is_refused() {
        let seconds = |seconds: f64| options::read::<Demo>(json!({ "seconds": seconds }));
        for length in [-1.0, -1e-9, drive::LONGEST_S + 1.0, 1e300] {
            let error = seconds(length).unwrap_err();
            assert_eq!(error.path, ["seconds"]);
            assert_eq!(error.message, "expected from 0 to 31622400 seconds");
        }
        assert_eq!(seconds(0.0).unwrap().seconds, 0.0);
        assert!(options::read::<Demo>(json!({ "seconds": 3 })).is_ok());
    }
}
