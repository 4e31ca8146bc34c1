//! Deterministic generated logs of three kinds: what a robot car records, only small events, and
//! many equally busy channels.
//!
//! Payloads have realistic sizes and compressibility. Those of the car and of the scans are
//! messages of the types in `plugins/dgc/types` and of `words_t` in `types/bench.lcm`; the small
//! ones have no meaning.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, Write};

use crate::bare::append_event;
use crate::counts::CountTable;
use crate::noise::Noise;

/// 2007-11-03T14:00:00Z in microseconds.
const START: u64 = 1_194_098_400_000_000;
/// The write size.
const BLOCK: usize = 1 << 20;

// Fingerprints of types.
const VELODYNE: u64 = 0x6d7d_fc11_eda8_2da7;
const LASER: u64 = 0xe3d1_7423_180b_5e8d;
const IMAGE: u64 = 0xcc27_dfe2_9341_1b79;
const POSE: u64 = 0x2e16_efb0_52b0_105e;
const GPS_TO_LOCAL: u64 = 0x4d0c_279a_87b8_ec9d;
const WORDS: u64 = 0x9973_46d4_72b8_0897;

/// Writes at least `bytes` of the log of a robot car: 61 channels, 4576 events and 5.1 MB a second;
/// of its bytes, 64 % are of a Velodyne, 18 % of cameras and 14 % of laser scanners.
pub fn drive(bytes: u64, to: impl Write) -> io::Result<CountTable> {
    by_time(drive_channels(), bytes, to)
}

/// Writes at least `bytes` of scans of 232 to 1824 bytes, on channels with about as many bytes
/// each.
pub fn many(channels: u64, bytes: u64, to: impl Write) -> io::Result<CountTable> {
    // As many lengths for each number of channels, as far as there are enough.
    let lengths = channels.clamp(1, 200);
    let channels = (0..channels).map(|n| {
        let ranges = 50 + 2 * (n % lengths * 200 / lengths);
        let scanner = Content::Scanner { ranges, noise: Noise::new(400 + n) };
        MadeUpChannel::new(format!("SCAN_{n:03}"), 20_000 / ranges, scanner)
    });
    by_time(channels.collect(), bytes, to)
}

/// Writes the events of all channels in time order.
fn by_time(mut channels: Vec<MadeUpChannel>, bytes: u64, to: impl Write) -> io::Result<CountTable> {
    let mut log = LogWriter::new(to);
    let mut due: BinaryHeap<Reverse<(u64, usize)>> =
        channels.iter().enumerate().map(|(n, channel)| Reverse((channel.phase(n), n))).collect();
    let mut payload = Vec::new();
    while log.written < bytes
        && let Some(Reverse((time, n))) = due.pop()
    {
        let channel = &mut channels[n];
        payload.clear();
        channel.content.append(channel.events, START + time / 1_000, &mut payload);
        channel.events += 1;
        channel.bytes += payload.len() as u64;
        log.event(START + time / 1_000, channel.name.as_bytes(), &payload)?;
        due.push(Reverse((time + channel.period, n)));
    }
    log.finish(&channels)
}

/// Writes `events` events of 81 bytes of payload on average, on 32 channels in no order.
pub fn small(events: u64, to: impl Write) -> io::Result<CountTable> {
    const KINDS: [&str; 16] = [
        "IMU", "POSE", "TWIST", "JOINT", "FORCE", "TORQUE", "TEMP", "GRIP", "VOLT", "AMP", "MODE",
        "CMD", "ACK", "LIMIT", "CLOCK", "ALARM",
    ];
    let names =
        ["ARM", "BASE"].into_iter().flat_map(|part| KINDS.map(|kind| format!("{part}_{kind}")));
    let mut channels: Vec<MadeUpChannel> = names
        .zip(0..)
        .map(|(name, n)| {
            MadeUpChannel::new(name, 1, Content::Status { size: 19 + 4 * n, noise: Noise::new(n) })
        })
        .collect();
    let mut log = LogWriter::new(to);
    let (mut order, mut payload) = (Noise::new(99), Vec::new());
    for n in 0..events {
        let channel = &mut channels[order.below(32) as usize];
        payload.clear();
        channel.content.append(channel.events, START + n * 50, &mut payload);
        channel.events += 1;
        channel.bytes += payload.len() as u64;
        log.event(START + n * 50, channel.name.as_bytes(), &payload)?;
    }
    log.finish(&channels)
}

/// A log being written.
struct LogWriter<W> {
    to: W,
    block: Vec<u8>,
    events: u64,
    written: u64,
}

impl<W: Write> LogWriter<W> {
    fn new(to: W) -> Self {
        Self { to, block: Vec::with_capacity(2 * BLOCK), events: 0, written: 0 }
    }

    fn event(&mut self, utime: u64, channel: &[u8], payload: &[u8]) -> io::Result<()> {
        let before = self.block.len();
        append_event(&mut self.block, self.events, utime, channel, payload);
        self.events += 1;
        self.written += (self.block.len() - before) as u64;
        if self.block.len() < BLOCK {
            return Ok(());
        }
        self.to.write_all(&self.block)?;
        self.block.clear();
        Ok(())
    }

    fn finish(mut self, channels: &[MadeUpChannel]) -> io::Result<CountTable> {
        self.to.write_all(&self.block)?;
        self.to.flush()?;
        let mut counts = CountTable::default();
        for channel in channels.iter().filter(|channel| channel.events > 0) {
            counts.add(&channel.name, channel.events, channel.bytes);
        }
        Ok(counts)
    }
}

struct MadeUpChannel {
    name: String,
    /// Nanoseconds from one event to the next.
    period: u64,
    content: Content,
    events: u64,
    bytes: u64,
}

impl MadeUpChannel {
    fn new(name: impl Into<String>, hertz: u64, content: Content) -> Self {
        Self { name: name.into(), period: 1_000_000_000 / hertz, content, events: 0, bytes: 0 }
    }

    /// The time of the first event, different for each channel.
    fn phase(&self, n: usize) -> u64 {
        (n as u64 * 7_654_321) % self.period
    }
}

fn drive_channels() -> Vec<MadeUpChannel> {
    let mut channels = vec![MadeUpChannel::new("VELODYNE", 2600, Content::velodyne())];
    let corners = ["FL", "FC", "FR", "RL", "RC", "RR"];
    for (n, corner) in corners.into_iter().flat_map(|c| [("BROOM", c), ("SKIRT", c)]).enumerate() {
        let (kind, corner) = corner;
        let ranges = if n == 0 { 361 } else { 180 };
        let scanner = Content::Scanner { ranges, noise: Noise::new(100 + n as u64) };
        channels.push(MadeUpChannel::new(format!("{kind}_{corner}"), 75, scanner));
    }
    for (n, side) in ["RFC", "RFL", "RFR", "RRC", "LFC"].into_iter().enumerate() {
        let camera = Content::Camera { noise: Noise::new(200 + n as u64) };
        channels.push(MadeUpChannel::new(format!("CAM_THUMB_{side}"), 10, camera));
    }
    let pose = Content::Pose { values: [0.0; 16], noise: Noise::new(300) };
    channels.push(MadeUpChannel::new("POSE", 100, pose));
    let fix = Content::Fix { values: [0.0; 7], noise: Noise::new(301) };
    channels.push(MadeUpChannel::new("GPS_TO_LOCAL", 10, fix));
    for n in 0..41 {
        // 916 events a second of 28 to 288 bytes.
        let hertz = if n < 21 { 20 } else { 24 } + if n < 16 { 1 } else { 0 };
        let words = Content::Words { count: 2 + n * 67 / 41, noise: Noise::new(302 + n) };
        channels.push(MadeUpChannel::new(format!("STATUS_{n:02}"), hertz, words));
    }
    channels
}

/// The payloads of a channel.
enum Content {
    Velodyne { ranges: Vec<u16>, noise: Noise },
    Scanner { ranges: u64, noise: Noise },
    Camera { noise: Noise },
    Pose { values: [f64; 16], noise: Noise },
    Fix { values: [f64; 7], noise: Noise },
    Words { count: u64, noise: Noise },
    Status { size: u64, noise: Noise },
}

impl Content {
    fn velodyne() -> Self {
        let ranges = (0..64).map(|laser| 1_500 + 400 * laser).collect();
        Self::Velodyne { ranges, noise: Noise::new(1) }
    }

    fn append(&mut self, event: u64, utime: u64, out: &mut Vec<u8>) {
        match self {
            Self::Velodyne { ranges, noise } => velodyne(event, utime, ranges, noise, out),
            Self::Scanner { ranges, noise } => scanner(event, utime, *ranges, noise, out),
            Self::Camera { noise } => camera(utime, noise, out),
            Self::Pose { values, noise } => pose(utime, values, noise, out),
            Self::Fix { values, noise } => fix(utime, values, noise, out),
            Self::Words { count, noise } => words(event, utime, *count, noise, out),
            Self::Status { size, noise } => status(event, utime, *size as usize, noise, out),
        }
    }
}

/// A fingerprint and a time, with which all messages start.
fn head(fingerprint: u64, utime: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(&fingerprint.to_be_bytes());
    out.extend_from_slice(&utime.to_be_bytes());
}

/// A `velodyne_t`. A packet of 1206 bytes, 20 bytes in front of it: 12 blocks of 32 ranges that
/// wander from block to block.
fn velodyne(event: u64, utime: u64, ranges: &mut [u16], noise: &mut Noise, out: &mut Vec<u8>) {
    head(VELODYNE, utime, out);
    out.extend_from_slice(&1206_u32.to_be_bytes());
    for block in 0..12 {
        let lower = block % 2;
        let azimuth = ((event * 6 + block / 2) * 35 % 36_000) as u16;
        out.extend_from_slice(&if lower == 0 { [0xFF, 0xEE] } else { [0xFF, 0xDD] });
        out.extend_from_slice(&azimuth.to_le_bytes());
        let lasers = &mut ranges[lower as usize * 32..][..32];
        for range in lasers {
            let word = noise.word();
            *range = range.wrapping_add((word & 31) as u16).wrapping_sub(15).clamp(450, 50_000);
            let seen = if (word >> 8) & 15 == 0 { 0 } else { *range };
            let [low, high] = seen.to_le_bytes();
            out.extend_from_slice(&[low, high, (word >> 16) as u8 & 0x7F]);
        }
    }
    out.extend_from_slice(&(utime as u32).to_le_bytes());
    out.extend_from_slice(&[0, 0]);
}

/// A `laser_t`: a scan of ranges as 32-bit floats of whole centimetres.
fn scanner(event: u64, utime: u64, ranges: u64, noise: &mut Noise, out: &mut Vec<u8>) {
    head(LASER, utime, out);
    out.extend_from_slice(&(ranges as u32).to_be_bytes());
    let mut centimetres = 800 + event % 97;
    for _ in 0..ranges {
        let word = noise.word();
        centimetres = (centimetres + (word & 7)).saturating_sub(3).clamp(50, 8_000);
        let metres = if (word >> 8) & 31 == 0 { 81.91 } else { centimetres as f32 * 0.01 };
        out.extend_from_slice(&metres.to_be_bytes());
    }
    out.extend_from_slice(&0_u32.to_be_bytes());
    out.extend_from_slice(&(-1.5_f32).to_be_bytes());
    out.extend_from_slice(&(3.0 / ranges as f32).to_be_bytes());
}

/// An `image_t` of 10 to 25 kB that cannot be compressed.
fn camera(utime: u64, noise: &mut Noise, out: &mut Vec<u8>) {
    head(IMAGE, utime, out);
    for pixels in [376_u16, 240, 376] {
        out.extend_from_slice(&pixels.to_be_bytes());
    }
    let words = 1_300 + noise.below(1_825);
    out.extend_from_slice(b"MJPG");
    out.extend_from_slice(&(8 * words as u32).to_be_bytes());
    for _ in 0..words {
        out.extend_from_slice(&noise.word().to_le_bytes());
    }
}

/// A `pose_t`: numbers that wander.
fn pose(utime: u64, values: &mut [f64; 16], noise: &mut Noise, out: &mut Vec<u8>) {
    head(POSE, utime, out);
    wander(values, noise, out);
}

/// A `gps_to_local_t`: numbers that wander, and a covariance that stays.
fn fix(utime: u64, values: &mut [f64; 7], noise: &mut Noise, out: &mut Vec<u8>) {
    head(GPS_TO_LOCAL, utime, out);
    wander(values, noise, out);
    for n in 0..16 {
        let variance = if n % 5 == 0 { 0.25_f32 } else { 0.0 };
        out.extend_from_slice(&variance.to_be_bytes());
    }
}

fn wander(values: &mut [f64], noise: &mut Noise, out: &mut Vec<u8>) {
    for value in values {
        *value += (noise.below(2_001) as f64 - 1_000.0) * 1e-5;
        out.extend_from_slice(&value.to_be_bytes());
    }
}

/// A `words_t`: words that change a little from event to event.
fn words(event: u64, utime: u64, count: u64, noise: &mut Noise, out: &mut Vec<u8>) {
    head(WORDS, utime, out);
    out.extend_from_slice(&(count as u32).to_be_bytes());
    append_words(event, out.len() + 4 * count as usize, noise, out);
}

/// A fingerprint, a time, and words that change a little from event to event.
fn status(event: u64, utime: u64, size: usize, noise: &mut Noise, out: &mut Vec<u8>) {
    let end = out.len() + size;
    head(0x77c2_91d3_5a60_0000 + size as u64, utime, out);
    append_words(event, end, noise, out);
    out.truncate(end);
}

/// Words up to `end`, or a little more.
fn append_words(event: u64, end: usize, noise: &mut Noise, out: &mut Vec<u8>) {
    let mut word = 0;
    while out.len() < end {
        if word % 4 == 0 {
            word = noise.word() & !3;
        }
        let value = 1_000_000 * (word % 4) + event + (word >> (8 + 8 * (word % 4)) & 0xFF);
        out.extend_from_slice(&(value as u32).to_be_bytes());
        word += 1;
    }
}

#[cfg(test)]
mod tests {
    use sluice_kit::TypeFile;
    use sluice_lcm::LcmCodec;
    use sluice_lcm::fuzzing::fingerprint_of;
    use sluice_model::{BatchBuilder, ChannelId, Codec};

    use super::*;
    use crate::bare;

    const TYPES: [&str; 6] = [
        include_str!("../../plugins/dgc/types/gps_to_local_t.lcm"),
        include_str!("../../plugins/dgc/types/image_t.lcm"),
        include_str!("../../plugins/dgc/types/laser_t.lcm"),
        include_str!("../../plugins/dgc/types/pose_t.lcm"),
        include_str!("../../plugins/dgc/types/velodyne_t.lcm"),
        include_str!("../types/bench.lcm"),
    ];

    #[test]
    fn a_drive_is_clean_has_61_channels_and_most_bytes_are_of_the_velodyne() {
        let mut log = Vec::new();
        let counts = drive(20_000_000, &mut log).unwrap();
        assert_eq!(bare::count(&log[..]).unwrap(), counts);
        assert_eq!(counts.0.len(), 61);
        let share = |name| counts.0[name].bytes as f64 / counts.total().bytes as f64;
        assert!((0.60..0.68).contains(&share("VELODYNE")));
    }

    #[test]
    fn every_event_of_a_drive_is_a_message_of_a_type() {
        let mut log = Vec::new();
        drive(2_000_000, &mut log).unwrap();
        let file = |text: &&str| TypeFile { path: "types.lcm".into(), text: (*text).to_owned() };
        let codec = LcmCodec::from_files(TYPES.iter().map(file).collect(), 1);
        bare::for_each_event(&log[..], |_, payload, _| {
            let mut batch = BatchBuilder::default();
            batch.push_copy(0, 0, ChannelId(0), payload);
            let key = fingerprint_of(payload).unwrap();
            let mut types = codec.types().iter();
            let known = types.find(|known| known.message_type.key == key).unwrap();
            let mut bad = Vec::new();
            known.payload_type.as_ref().unwrap().decode(&batch.finish(), &[0], &mut bad).unwrap();
            assert!(bad.is_empty(), "{}: {bad:?}", known.message_type.name);
            Ok(())
        })
        .unwrap();
    }

    #[test]
    fn many_channels_share_the_bytes_evenly() {
        let mut log = Vec::new();
        let counts = many(200, 20_000_000, &mut log).unwrap();
        assert_eq!(bare::count(&log[..]).unwrap(), counts);
        assert_eq!(counts.0.len(), 200);
        assert!(counts.0.values().all(|count| (70_000..130_000).contains(&count.bytes)));
    }

    #[test]
    fn small_events_have_81_bytes_on_average() {
        let mut log = Vec::new();
        let counts = small(100_000, &mut log).unwrap();
        assert_eq!(bare::count(&log[..]).unwrap(), counts);
        let total = counts.total();
        assert_eq!((counts.0.len(), total.events), (32, 100_000));
        assert!((8_050_000..8_150_000).contains(&total.bytes));
    }
}
