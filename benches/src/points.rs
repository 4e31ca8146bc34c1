//! A deterministic generated log of Velodyne HDL-64E packets, and sums for comparing point clouds.

use std::io::{self, Write};

use crate::bare::append_event;
use crate::counts::CountTable;
use crate::noise::Noise;

/// The fingerprint of `velodyne_t`.
const FINGERPRINT: u64 = 0x6d7d_fc11_eda8_2da7;
/// 2007-11-03T14:00:00Z in microseconds, and the microseconds per packet.
const START: u64 = 1_194_098_400_000_000;
const PERIOD: u64 = 384;
/// The write size.
const BLOCK: usize = 1 << 20;

/// Writes a log of this many packets: the upper and lower half in turn, 0.35 degrees per pair;
/// ranges wander, and one in sixteen is empty.
pub fn packets(packets: u64, mut to: impl Write) -> io::Result<CountTable> {
    let (mut noise, mut block, mut payload) = (Noise::new(64), Vec::new(), Vec::new());
    let mut ranges: Vec<u16> = (0..64).map(|laser| 1_500 + 400 * laser).collect();
    for n in 0..packets {
        let utime = START + n * PERIOD;
        payload.clear();
        payload.extend_from_slice(&FINGERPRINT.to_be_bytes());
        payload.extend_from_slice(&utime.to_be_bytes());
        payload.extend_from_slice(&1206_u32.to_be_bytes());
        packet(n, &mut ranges, &mut noise, &mut payload);
        append_event(&mut block, n, utime, b"VELODYNE", &payload);
        if block.len() >= BLOCK {
            to.write_all(&block)?;
            block.clear();
        }
    }
    to.write_all(&block)?;
    to.flush()?;
    let mut counts = CountTable::default();
    counts.add("VELODYNE", packets, packets * 1226);
    Ok(counts)
}

fn packet(n: u64, ranges: &mut [u16], noise: &mut Noise, out: &mut Vec<u8>) {
    for block in 0..12 {
        let (id, half) = if block % 2 == 0 { (0xEEFF_u16, 1) } else { (0xDDFF, 0) };
        let azimuth = ((n * 6 + block / 2) * 35 % 36_000) as u16;
        out.extend_from_slice(&id.to_le_bytes());
        out.extend_from_slice(&azimuth.to_le_bytes());
        for range in &mut ranges[half * 32..][..32] {
            let word = noise.word();
            *range = range.wrapping_add((word & 31) as u16).wrapping_sub(15).clamp(450, 50_000);
            let seen = if (word >> 8) & 15 == 0 { 0 } else { *range };
            out.extend_from_slice(&seen.to_le_bytes());
            out.push((word >> 16) as u8 & 0x7F);
        }
    }
    out.extend_from_slice(&(n as u16).to_le_bytes());
    out.extend_from_slice(b"v2.0");
}

/// The number of points and the sums of their columns, which other programs can also compute.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// The number of points.
    pub points: u64,
    /// x, y and z in millionths, intensity in 255ths, laser, azimuth in hundredths, and time.
    pub columns: [i64; 7],
}

impl Sums {
    /// Adds one point.
    pub fn add(&mut self, xyz: [f64; 3], intensity: f32, laser: u16, azimuth: f32, time: i64) {
        self.points += 1;
        let [x, y, z] = xyz.map(|axis| (axis * 1e6).round() as i64);
        let (intensity, azimuth) = ((intensity * 255.0).round(), (azimuth * 100.0).round());
        let all = [x, y, z, intensity as i64, i64::from(laser), azimuth as i64, time];
        for (sum, value) in self.columns.iter_mut().zip(all) {
            *sum = sum.wrapping_add(value);
        }
    }
}
