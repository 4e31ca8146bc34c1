//! A synthetic drive of a robot car: the events of a log, in the order they were received.
//!
//! Every event follows from the options and its index, so any slice can be computed on its own, on
//! any thread, with the same bytes on every machine. This module knows neither log files nor
//! splits; it fills buffers.

mod camera;
mod encode;
mod jpeg;
mod maths;
mod noise;
mod pose;
mod scene;
mod sick;
mod timetable;
mod velodyne;

use std::ops::Range;

use camera::Cameras;
use noise::Noise;
use pose::Pose;
use sick::{ScanInput, Scanners};
use timetable::{ChannelTiming, Timetable};
use velodyne::Velodyne;

/// When every drive starts: 2007-11-03T14:00:00Z, in nanoseconds since 1970.
pub const START_NS: i64 = START_US * 1_000;

/// The length of one slice of the log, in nanoseconds of receive time.
pub const SLICE_NS: i64 = SLICE_US as i64 * 1_000;

const START_US: i64 = 1_194_098_400_000_000;
const SLICE_US: u64 = 100_000;
const SLICES_PER_SECOND: u64 = 10;
/// The longest drive, in seconds.
pub const LONGEST_S: f64 = 366.0 * 86_400.0;

/// Options of a drive.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DriveOptions {
    /// Length in seconds. Negative values and NaN count as 0; the maximum is 366 days.
    pub seconds: f64,
    /// Seed of the noise, the receive lags and the images. The course is always the same.
    pub seed: u64,
}

impl Default for DriveOptions {
    fn default() -> Self {
        Self { seconds: 10.0, seed: 1 }
    }
}

/// One event of a slice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriveEvent {
    /// Receive time in nanoseconds since 1970, a multiple of 1000.
    pub timestamp_ns: i64,
    /// Index into [`Drive::channels`].
    pub channel: usize,
    /// Where the payload lies in [`DriveSlice::payloads`].
    pub payload: Range<usize>,
}

/// Events and the buffer they share. Meant to be reused.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DriveSlice {
    /// The concatenated payloads of all events.
    pub payloads: Vec<u8>,
    /// The events in log order.
    pub events: Vec<DriveEvent>,
}

impl DriveSlice {
    /// Removes the events but keeps the allocations.
    pub fn clear(&mut self) {
        self.payloads.clear();
        self.events.clear();
    }
}

/// A drive that is computed slice by slice.
///
/// Holds no events: its size does not depend on its length.
#[derive(Debug)]
pub struct Drive {
    seed: u64,
    slices: usize,
    /// Name, sensor and timetable of every channel.
    channels: Vec<Channel>,
    velodyne: Velodyne,
    scanners: Scanners,
    cameras: Cameras,
}

#[derive(Debug)]
struct Channel {
    name: &'static str,
    sensor: Sensor,
    timetable: Timetable,
}

/// The sensor that fills a channel's payloads.
#[derive(Debug, Clone, Copy)]
enum Sensor {
    Velodyne,
    Scanner(usize),
    Camera(usize),
    Pose,
    GpsToLocal,
    LoggerString,
    SelfTest,
}

/// An event without its payload. The field order is the log order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Receipt {
    received_us: u64,
    channel: usize,
    index: u64,
}

impl Drive {
    /// Prepares a drive. Takes about a millisecond, whatever its length.
    pub fn new(options: DriveOptions) -> Self {
        // NaN passes the clamp, and the cast turns it into 0.
        let length_us = (options.seconds.clamp(0.0, LONGEST_S) * 1e6) as u64;
        Self {
            seed: options.seed,
            slices: length_us.div_ceil(SLICE_US) as usize,
            channels: channels(options.seed, length_us),
            velodyne: Velodyne::new(),
            scanners: Scanners::new(),
            cameras: Cameras::new(options.seed),
        }
    }

    /// The names of all channels, in an order that does not depend on the options.
    pub fn channels(&self) -> impl ExactSizeIterator<Item = &'static str> {
        self.channels.iter().map(|channel| channel.name)
    }

    /// The number of slices in the log.
    pub fn slices(&self) -> usize {
        self.slices
    }

    /// Fills `out` with the events of slice `i` in log order, or with none if there is no such
    /// slice.
    ///
    /// Slice `i` has the events received from `i` to `i + 1` times [`SLICE_NS`] after the start.
    /// The last slice also has everything received later. Times step back now and then, as in real
    /// logs, but never out of their slice.
    pub fn slice(&self, i: usize, out: &mut DriveSlice) {
        out.clear();
        for receipt in self.receipts(i) {
            let start = out.payloads.len();
            self.append_payload(&receipt, &mut out.payloads);
            out.events.push(DriveEvent {
                timestamp_ns: START_NS + receipt.received_us as i64 * 1_000,
                channel: receipt.channel,
                payload: start..out.payloads.len(),
            });
        }
    }

    /// The number of events before slice `i`, which is the event number of its first event.
    ///
    /// Returns the number of all events if `i` is [`Drive::slices`] or more. Computes no payload
    /// and takes microseconds.
    pub fn sequence_at(&self, i: usize) -> u64 {
        let below =
            |channel: &Channel| channel.timetable.received_below(self.first_index(channel, i));
        self.channels.iter().map(below).sum()
    }

    /// The events of slice `i` in log order.
    fn receipts(&self, i: usize) -> Vec<Receipt> {
        let mut receipts = Vec::new();
        for (number, channel) in self.channels.iter().enumerate() {
            let indices = self.first_index(channel, i)..self.first_index(channel, i + 1);
            receipts.extend(channel.timetable.received(indices).map(|index| Receipt {
                received_us: channel.timetable.received_us(index),
                channel: number,
                index,
            }));
        }
        receipts.sort_unstable();
        self.delay_one_event(i as u64, &mut receipts);
        receipts
    }

    /// The index of the channel's first event in slice `i` or later.
    fn first_index(&self, channel: &Channel, i: usize) -> u64 {
        if i >= self.slices {
            return channel.timetable.end();
        }
        channel.timetable.first_received_from(i as u64 * SLICE_US)
    }

    /// Once a second, delays one event past others received up to a few milliseconds later.
    fn delay_one_event(&self, slice: u64, receipts: &mut [Receipt]) {
        let mut noise = Noise::new(self.seed, STEP_BACK_STREAM, slice / SLICES_PER_SECOND);
        if noise.below(SLICES_PER_SECOND) != slice % SLICES_PER_SECOND {
            return;
        }
        let delay_us = 1_000 + noise.below(2_500);
        // A channel whose period is shorter than the delay would lose its own order.
        let is_slow = |receipt: &Receipt| receipt.channel != VELODYNE;
        let Some(from) = receipts.iter().position(is_slow) else { return };
        let late = receipts[from].received_us + delay_us;
        let behind = receipts.partition_point(|receipt| receipt.received_us < late);
        receipts[from..behind].rotate_left(1);
    }

    fn append_payload(&self, receipt: &Receipt, out: &mut Vec<u8>) {
        let Channel { sensor, timetable, .. } = &self.channels[receipt.channel];
        let index = receipt.index;
        let noise = timetable.noise(index);
        let us = timetable.measured_us(index);
        let utime = START_US + us as i64;
        match *sensor {
            Sensor::Velodyne => self.velodyne.append(index, utime, &Pose::at(us), noise, out),
            Sensor::Scanner(number) => {
                let scan = ScanInput { index, utime, pose: &Pose::at(us), noise };
                self.scanners.append(number, scan, out);
            }
            Sensor::Camera(number) => self.cameras.append(number, index, utime, noise, out),
            Sensor::Pose => Pose::at(us).append_pose(utime, out),
            Sensor::GpsToLocal => Pose::at(us).append_gps_to_local(utime, out),
            Sensor::LoggerString => out.extend_from_slice(logger_string(index, noise).as_bytes()),
            Sensor::SelfTest => out.extend_from_slice(b"lcm self test"),
        }
    }
}

const VELODYNE: usize = 0;
const STEP_BACK_STREAM: u64 = 3000;

fn logger_string(second: u64, mut noise: Noise) -> String {
    let (load, tenths) = (30 + noise.below(20), noise.below(10));
    format!("logger: up {second} s, load {load}.{tenths} %, 0 events dropped")
}

/// All channels of a drive; the first one is the Velodyne.
fn channels(seed: u64, length_us: u64) -> Vec<Channel> {
    let silence = velodyne_silence(length_us);
    let rear_end_us = length_us / 10 * 6;
    channel_timings()
        .into_iter()
        .enumerate()
        .map(|(number, (name, sensor, timing))| {
            let end_us = if name == camera::REAR { rear_end_us } else { length_us };
            let lost = if number == VELODYNE { silence.clone() } else { 0..0 };
            let timetable = Timetable::new(seed, number as u64, timing, end_us, lost);
            let once = matches!(sensor, Sensor::SelfTest);
            Channel { name, sensor, timetable: if once { timetable.once() } else { timetable } }
        })
        .collect()
}

/// The Velodyne's drop-out at two fifths of the drive: 1.5 s, or less if the drive is shorter than
/// 5 s.
fn velodyne_silence(length_us: u64) -> Range<u64> {
    let start = length_us / 10 * 4;
    start..start + (length_us / 10 * 3).min(1_500_000)
}

/// Every channel with its sensor and timing.
fn channel_timings() -> Vec<(&'static str, Sensor, ChannelTiming)> {
    let timing =
        |hertz, phase_us, lag_us, jitter_us| ChannelTiming { hertz, phase_us, lag_us, jitter_us };
    let mut rows = vec![("VELODYNE", Sensor::Velodyne, timing(2600, 0, 150, 300))];
    rows.extend(sick::channels().enumerate().map(|(number, name)| {
        (name, Sensor::Scanner(number), timing(75, 900 + number as u64 * 1_070, 900, 900))
    }));
    rows.extend(camera::channels().enumerate().map(|(number, name)| {
        (name, Sensor::Camera(number), timing(10, 5_000 + number as u64 * 130, 2_100, 900))
    }));
    rows.extend([
        ("POSE", Sensor::Pose, timing(100, 400, 250, 400)),
        ("GPS_TO_LOCAL", Sensor::GpsToLocal, timing(10, 1_700, 300, 500)),
        ("LOGGER_STRING", Sensor::LoggerString, timing(1, 2_500, 200, 200)),
        ("LCM_SELF_TEST", Sensor::SelfTest, timing(1, 0, 100, 1)),
    ]);
    rows
}

#[cfg(test)]
mod tests;
