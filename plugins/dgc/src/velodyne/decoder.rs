//! Turns the returns of a packet into points in the sensor's frame: x towards azimuth 0, y to the
//! left, z up. Knows nothing of events.
//!
//! Trigonometry per point is avoided: cosine and sine of the head's direction come from a table by
//! azimuth, those of each laser's own angles from a table by laser, and the angle sum identities
//! combine them. This differs from the cosine of the sum in the last bits only.

use std::sync::LazyLock;

use crate::points::CloudBuilder;
use crate::ranges;

use super::PacketCounts;
use super::lasers::LaserCalibration;
use super::model::{FiringTimes, Model};
use super::wire::{BLOCKS, DataBlock, DataBlocks, FactoryBytes, HeadHalf, LANES, TURN};

/// Radians per hundredth of a degree, with the digits that users of the sensor have always used.
const STEP: f64 = 0.00017453293;
/// Metres per range count.
const COUNT: f64 = 0.002;
/// Lower limit of the minimum range, in metres.
const MIN_RANGE: f64 = 0.01;
/// Maximum rotation of the head per slot, in hundredths of a degree. More is a jump, which cannot
/// be interpolated.
const MAX_GAP: u16 = 200;

/// The range limits of points.
#[derive(Clone, Copy, Debug)]
pub(super) struct RangeLimits {
    /// Minimum range count: 1 drops empty returns.
    least_count: u16,
    /// Metres.
    nearest: f64,
    /// Metres.
    farthest: f64,
}

impl RangeLimits {
    /// `Err` has the option at fault and the reason.
    pub(super) fn new(
        drop_zero_returns: bool,
        min_range: Option<f64>,
        max_range: Option<f64>,
    ) -> Result<Self, (&'static str, String)> {
        let (min_range, max_range) = (min_range.unwrap_or(0.0), max_range.unwrap_or(f64::INFINITY));
        let [nearest, farthest] = ranges::range_limits(min_range, max_range, MIN_RANGE)?;
        Ok(Self { least_count: u16::from(drop_zero_returns), nearest, farthest })
    }

    /// The inclusive interval of counts of a laser within the limits; empty if none are. Ranges
    /// grow monotonically with counts.
    fn counts(&self, laser: &LaserCalibration) -> (u16, u16) {
        let range = |count: u32| {
            let count = u16::try_from(count).unwrap_or(u16::MAX);
            metres(count, laser.range_offset, 1.0 + laser.range_scale)
        };
        let first = |is_before: &dyn Fn(f64) -> bool| {
            let (mut from, mut to) = (0, COUNTS);
            while from < to {
                let middle = from.midpoint(to);
                (from, to) =
                    if is_before(range(middle)) { (middle + 1, to) } else { (from, middle) };
            }
            from
        };
        let min_count = first(&|range| range < self.nearest).max(u32::from(self.least_count));
        let beyond = first(&|range| range <= self.farthest);
        match (u16::try_from(min_count), beyond.checked_sub(1).map(u16::try_from)) {
            (Ok(min_count), Some(Ok(max_count))) => (min_count, max_count),
            _ => (1, 0),
        }
    }
}

/// Number of distinct range counts.
const COUNTS: u32 = 1 << 16;

/// The range of a count, in metres.
#[inline]
fn metres(count: u16, offset: f64, scale: f64) -> f64 {
    (f64::from(count) * COUNT + offset) * scale
}

/// Decodes the packets of one sensor.
#[derive(Debug)]
pub(super) struct PacketDecoder {
    firing_times: FiringTimes,
    model: Model,
    directions: &'static [[f64; 2]],
    /// The lower and the upper half, or the only one.
    banks: Vec<LaserBank>,
    /// For the HDL-64E one per half; for others one per gap, since the head turns while the lasers
    /// fire.
    beams: Vec<BeamDirections>,
}

/// What all blocks of a half share, by lane. Aligned for loads of two numbers at a time.
#[derive(Debug)]
#[repr(align(64))]
struct LaserBank {
    laser: [u16; LANES],
    /// The lowest range count that yields a point.
    min_count: [u16; LANES],
    /// How many do, from that one on.
    count_width: [u32; LANES],
    offset: [f64; LANES],
    scale: [f64; LANES],
    horizontal_offset: [f64; LANES],
    sine: [f64; LANES],
    /// Whether every range count yields a point.
    keeps_all: bool,
    /// Whether every range count but 0 does.
    keeps_returns: bool,
}

/// Directions of the lasers relative to the head, scaled by the cosine of their elevation.
#[derive(Debug)]
#[repr(align(64))]
struct BeamDirections {
    along: [f64; LANES],
    across: [f64; LANES],
    /// Rotation of the head since the start of the slot, in hundredths of a degree.
    turned: [f32; LANES],
}

/// Cosine and sine of the head's direction by azimuth, which counts clockwise.
static DIRECTIONS: LazyLock<Vec<[f64; 2]>> = LazyLock::new(|| {
    let direction = |azimuth: u16| {
        let angle =
            if azimuth == 0 { 0.0 } else { std::f64::consts::TAU - f64::from(azimuth) * STEP };
        [angle.cos(), angle.sin()]
    };
    (0..TURN).map(direction).collect()
});

impl PacketDecoder {
    /// `lasers` has all lasers of the model, by number.
    pub(super) fn new(model: Model, lasers: &[LaserCalibration], limits: RangeLimits) -> Self {
        let firing_times = model.firing_times();
        let halves: Vec<[(u16, LaserCalibration); LANES]> = match model {
            Model::Hdl64e => vec![lanes(lasers, 0), lanes(lasers, LANES)],
            Model::Hdl32e | Model::Vlp16 => vec![lanes(lasers, 0)],
        };
        let banks = halves.iter().map(|half| LaserBank::new(half, &limits)).collect();
        let beams = match halves.as_slice() {
            [only] => {
                (0..=MAX_GAP).map(|gap| BeamDirections::new(only, gap, &firing_times)).collect()
            }
            halves => {
                halves.iter().map(|half| BeamDirections::new(half, 0, &firing_times)).collect()
            }
        };
        Self { firing_times, model, directions: &DIRECTIONS, banks, beams }
    }

    /// Appends the points of a packet whose last slot ended at `ended` (nanoseconds).
    pub(super) fn append(
        &self,
        blocks: &DataBlocks<'_>,
        factory: Option<FactoryBytes>,
        ended: i64,
        cloud: &mut CloudBuilder,
    ) -> PacketCounts {
        let is_dual = factory.is_some_and(|factory| factory.is_dual);
        let per_slot = self.model.blocks_per_slot(is_dual);
        let began = ended.saturating_sub((BLOCKS / per_slot) as i64 * self.firing_times.slot);
        let (mut turned, mut counts) = (None, PacketCounts::default());
        for block in blocks.iter() {
            counts.blocks += 1;
            if !block.is_valid() {
                counts.invalid_azimuths += 1;
                continue;
            }
            let half = usize::from(block.half == HeadHalf::Upper && self.model.has_halves());
            let beam = if self.model.is_interpolated() {
                // Before the first known rotation, uses the next known one.
                let known = || blocks.iter().find_map(|block| gap(blocks, &block, per_slot));
                turned = gap(blocks, &block, per_slot).or(turned).or_else(known);
                usize::from(turned.unwrap_or(0))
            } else {
                half
            };
            let slot =
                began.saturating_add((block.number / per_slot) as i64 * self.firing_times.slot);
            counts.left_out +=
                self.append_block(block, (&self.banks[half], &self.beams[beam]), slot, cloud);
        }
        counts
    }

    /// Appends the points of a block whose slot started at `slot`. Returns the number of non-empty
    /// returns out of range.
    ///
    /// Appends all points first, column by column, which vectorises, and then removes the unwanted
    /// ones.
    ///
    /// Columns are written once, and never copied from arrays or read at another width than they
    /// were written: such a load waits until the stores before it have reached the cache.
    // As a separate function it is 10 % faster than inlined: its arrays stay in registers.
    #[inline(never)]
    fn append_block(
        &self,
        DataBlock { azimuth, returns, .. }: DataBlock<'_>,
        (bank, beam): (&LaserBank, &BeamDirections),
        slot: i64,
        cloud: &mut CloudBuilder,
    ) -> u64 {
        let [cosine, sine] = self.directions[usize::from(azimuth)];
        let range = &bank.ranges(returns);
        let lanes = &self.firing_times.lanes;
        cloud.x.extend((0..LANES).map(move |k| {
            range[k] * (cosine * beam.along[k] - sine * beam.across[k])
                - bank.horizontal_offset[k] * cosine
        }));
        cloud.y.extend((0..LANES).map(move |k| {
            range[k] * (sine * beam.along[k] + cosine * beam.across[k])
                - bank.horizontal_offset[k] * sine
        }));
        cloud.z.extend((0..LANES).map(move |k| range[k] * bank.sine[k]));
        // Divided instead of looked up, so that four are stored at a time.
        let intensity = |[.., byte]: &[u8; 3]| f32::from(*byte) / 255.0;
        cloud.intensity.extend(returns.iter().map(intensity));
        cloud.laser.extend_from_slice(&bank.laser);
        let start = f32::from(azimuth);
        if self.model.is_interpolated() {
            cloud.azimuth.extend(beam.turned.iter().map(move |turned| degrees(start + turned)));
        } else {
            cloud.azimuth.resize(cloud.len(), degrees(start));
        }
        cloud.time.extend((0..LANES).map(move |k| slot.wrapping_add(lanes[k])));
        if bank.keeps_all {
            return 0;
        }
        retain_last(cloud, bank, returns, self.model.is_interpolated());
        if bank.keeps_returns { 0 } else { bank.left_out(returns) }
    }
}

/// The range count of a return.
#[inline]
fn count([low, high, _]: [u8; 3]) -> u16 {
    u16::from_le_bytes([low, high])
}

/// Hundredths of a degree, possibly beyond a full turn, as degrees.
fn degrees(hundredths: f32) -> f32 {
    let turn = f32::from(TURN);
    (if hundredths >= turn { hundredths - turn } else { hundredths }) / 100.0
}

/// Keeps the points of the last block within the limits. Azimuths only differ if the sensor's are
/// interpolated.
#[inline]
fn retain_last(
    cloud: &mut CloudBuilder,
    bank: &LaserBank,
    returns: &[[u8; 3]; LANES],
    is_interpolated: bool,
) {
    let len = cloud.len() - LANES;
    let kept = {
        let (x, y, z) = (last(&mut cloud.x), last(&mut cloud.y), last(&mut cloud.z));
        let (intensity, laser) = (last(&mut cloud.intensity), last(&mut cloud.laser));
        let time = last(&mut cloud.time);
        bank.compact(returns, |from, to| {
            (x[to], y[to], z[to]) = (x[from], y[from], z[from]);
            (intensity[to], laser[to]) = (intensity[from], laser[from]);
            time[to] = time[from];
        })
    };
    if is_interpolated {
        let azimuth = last(&mut cloud.azimuth);
        bank.compact(returns, |from, to| azimuth[to] = azimuth[from]);
    }
    cloud.x.truncate(len + kept);
    cloud.y.truncate(len + kept);
    cloud.z.truncate(len + kept);
    cloud.intensity.truncate(len + kept);
    cloud.laser.truncate(len + kept);
    cloud.azimuth.truncate(len + kept);
    cloud.time.truncate(len + kept);
}

fn last<T>(column: &mut [T]) -> &mut [T; LANES] {
    column.last_chunk_mut().expect("the points of a block were appended")
}

/// 32 lasers starting from number `first`, wrapping around.
fn lanes(lasers: &[LaserCalibration], first: usize) -> [(u16, LaserCalibration); LANES] {
    std::array::from_fn(|lane| {
        let number = (first + lane) % lasers.len();
        (number as u16, lasers[number])
    })
}

/// Rotation of the head from this block to the next one fired, if both are valid and it is
/// plausible.
fn gap(blocks: &DataBlocks<'_>, block: &DataBlock<'_>, per_slot: usize) -> Option<u16> {
    let next = blocks.iter_from(block.number + 1).nth(per_slot - 1)?;
    if !(block.is_valid() && next.is_valid()) {
        return None;
    }
    let turned =
        (u32::from(next.azimuth) + u32::from(TURN) - u32::from(block.azimuth)) % u32::from(TURN);
    u16::try_from(turned).ok().filter(|gap| *gap <= MAX_GAP)
}

impl LaserBank {
    /// Whether a return of this lane yields a point.
    #[inline]
    fn keeps(&self, lane: usize, count: u16) -> bool {
        u32::from(count.wrapping_sub(self.min_count[lane])) < self.count_width[lane]
    }

    /// Moves the lanes that yield points to the front and returns their number. Moves
    /// unconditionally and counts only the kept ones, to avoid branch mispredictions.
    #[inline]
    fn compact(&self, returns: &[[u8; 3]; LANES], mut shift: impl FnMut(usize, usize)) -> usize {
        let mut to = 0;
        for (from, sample) in returns.iter().enumerate() {
            // The index stays in bounds, which avoids bounds checks.
            shift(from, to % LANES);
            to += usize::from(self.keeps(from, count(*sample)));
        }
        to
    }

    /// The number of non-empty returns that yield no point.
    fn left_out(&self, returns: &[[u8; 3]; LANES]) -> u64 {
        let counts = returns.iter().map(|sample| count(*sample)).enumerate();
        counts.filter(|(lane, count)| *count > 0 && !self.keeps(*lane, *count)).count() as u64
    }

    /// The ranges of the returns, in metres.
    #[inline]
    fn ranges(&self, returns: &[[u8; 3]; LANES]) -> [f64; LANES] {
        let mut ranges = [0.0; LANES];
        for k in 0..LANES {
            ranges[k] = metres(count(returns[k]), self.offset[k], self.scale[k]);
        }
        ranges
    }

    fn new(lanes: &[(u16, LaserCalibration); LANES], limits: &RangeLimits) -> Self {
        let counts = lanes.map(|(_, laser)| limits.counts(&laser));
        Self {
            laser: lanes.map(|(number, _)| number),
            min_count: counts.map(|(min_count, _)| min_count),
            count_width: counts
                .map(|(min, max)| (u32::from(max) + 1).saturating_sub(u32::from(min))),
            offset: lanes.map(|(_, laser)| laser.range_offset),
            scale: lanes.map(|(_, laser)| 1.0 + laser.range_scale),
            horizontal_offset: lanes.map(|(_, laser)| laser.horizontal_offset),
            sine: lanes.map(|(_, laser)| laser.elevation.sin()),
            keeps_all: counts == [(0, u16::MAX); LANES],
            keeps_returns: counts.iter().all(|(min, max)| *min <= 1 && *max == u16::MAX),
        }
    }
}

impl BeamDirections {
    /// The directions if the head turns by `gap` per slot.
    fn new(lanes: &[(u16, LaserCalibration); LANES], gap: u16, firing_times: &FiringTimes) -> Self {
        let turned =
            firing_times.lanes.map(|lane| f64::from(gap) * lane as f64 / firing_times.slot as f64);
        let angle = |lane: usize| lanes[lane].1.rotation - turned[lane] * STEP;
        let level = |lane: usize| lanes[lane].1.elevation.cos();
        Self {
            along: std::array::from_fn(|lane| angle(lane).cos() * level(lane)),
            across: std::array::from_fn(|lane| angle(lane).sin() * level(lane)),
            turned: turned.map(|turned| turned as f32),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::f64::consts::TAU;

    use super::super::lasers::parse;
    use super::super::wire::{PACKET, Packet};
    use super::*;
    use crate::points::{PointFrame, Points};

    /// A packet of noise with known blocks.
    fn packet(noise: &mut u64) -> Packet {
        let mut packet = [0; PACKET];
        for (number, block) in packet.as_chunks_mut::<100>().0.iter_mut().enumerate() {
            for byte in block.iter_mut() {
                *noise = noise
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                *byte = (*noise >> 56) as u8;
            }
            let azimuth = (*noise >> 20) as u16 % TURN;
            block[..2].copy_from_slice(if number % 2 == 0 { &[0xFF, 0xEE] } else { &[0xFF, 0xDD] });
            block[2..4].copy_from_slice(&azimuth.to_le_bytes());
        }
        packet
    }

    /// A point computed without tables, from sine and cosine of the laser's own angle.
    fn point_without_tables(
        block: &DataBlock<'_>,
        lane: usize,
        lasers: &[LaserCalibration],
    ) -> [f64; 3] {
        let half = if block.half == HeadHalf::Upper { LANES } else { 0 };
        let laser = lasers[half + lane];
        let ctheta = TAU - f64::from(block.azimuth) * STEP;
        let ctheta = if ctheta == TAU { 0.0 } else { ctheta };
        let theta = (ctheta + laser.rotation).rem_euclid(TAU);
        let [low, high, _] = block.returns[lane];
        let count = f64::from(u16::from_le_bytes([low, high]));
        let range = (count * COUNT + laser.range_offset) * (1.0 + laser.range_scale);
        [
            range * theta.cos() * laser.elevation.cos() - laser.horizontal_offset * ctheta.cos(),
            range * theta.sin() * laser.elevation.cos() - laser.horizontal_offset * ctheta.sin(),
            range * laser.elevation.sin(),
        ]
    }

    /// Tables change the last bits only: no digit of six decimals in a million points.
    #[test]
    fn tables_give_the_same_six_decimals_as_plain_sines() {
        let lasers = parse(Model::Hdl64e.table(), Model::Hdl64e).unwrap();
        let limits = RangeLimits::new(false, None, None).unwrap();
        let decoder = PacketDecoder::new(Model::Hdl64e, &lasers, limits);
        let mut noise = 42;
        for _ in 0..1_000_000 / 384 + 1 {
            let (packet, mut cloud) = (packet(&mut noise), CloudBuilder::default());
            let blocks = DataBlocks::from_packet(&packet, true);
            decoder.append(&blocks, None, 0, &mut cloud);
            let plain: Vec<[f64; 3]> = blocks
                .iter()
                .flat_map(|block| {
                    (0..LANES)
                        .map(|lane| point_without_tables(&block, lane, &lasers))
                        .collect::<Vec<_>>()
                })
                .collect();
            assert_eq!(cloud.len(), plain.len());
            for (at, plain) in plain.into_iter().enumerate() {
                let ours = [cloud.x[at], cloud.y[at], cloud.z[at]];
                for (ours, plain) in ours.into_iter().zip(plain) {
                    // Equal values have equal texts.
                    let is_same = ours == plain || format!("{ours:.6}") == format!("{plain:.6}");
                    assert!(is_same, "{ours} is not {plain}");
                }
            }
        }
    }

    #[test]
    fn limits_in_counts_are_those_in_metres() {
        let lasers = parse(Model::Hdl64e.table(), Model::Hdl64e).unwrap();
        let odd = [(0.0, -1.0), (-50.0, 0.5), (100.0, 1.0), (-100.0, -0.999)];
        let odd = odd.map(|(range_offset, range_scale)| LaserCalibration {
            range_offset,
            range_scale,
            ..lasers[0]
        });
        let limits =
            [(false, 0.0, 1e9), (true, 0.0, 40.0), (false, 1.002, 1.004), (true, 5.0, 119.998)];
        for (drop, min, max) in limits {
            let limits = RangeLimits::new(drop, Some(min), Some(max)).unwrap();
            for laser in lasers.iter().chain(&odd) {
                let (min_count, max_count) = limits.counts(laser);
                for count in 0..=u16::MAX {
                    let range = metres(count, laser.range_offset, 1.0 + laser.range_scale);
                    let is_within =
                        (min.max(MIN_RANGE)..=max).contains(&range) && !(drop && count == 0);
                    assert_eq!(
                        (min_count..=max_count).contains(&count),
                        is_within,
                        "{count} of {laser:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_finished_event_has_its_points() {
        let lasers = parse(Model::Hdl64e.table(), Model::Hdl64e).unwrap();
        let limits = RangeLimits::new(false, Some(60.0), None).unwrap();
        let (packet, mut cloud) = (packet(&mut 7), CloudBuilder::default());
        PacketDecoder::new(Model::Hdl64e, &lasers, limits).append(
            &DataBlocks::from_packet(&packet, true),
            None,
            0,
            &mut cloud,
        );
        cloud.end_event(3, 0, true).unwrap();
        let points = Points::from_rows(&cloud.finish(PointFrame::Sensor)).unwrap();
        let far = points.xyz()[0].iter().zip(points.xyz()[1]).all(|(x, y)| x.hypot(*y) > 50.0);
        assert!(far && (1..384).contains(&points.len()));
    }
}
