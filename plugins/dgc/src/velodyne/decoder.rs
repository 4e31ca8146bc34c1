//! From a packet's returns to points in the sensor's frame: x where azimuth 0 is, y to the left of it, z up.
//! Knows no events.
//!
//! Nothing is computed by point that can be had from a table: cosine and sine of the direction come by
//! azimuth, those of the laser's own turn and rise by laser, and the sum of both angles follows by the
//! theorems of addition. That differs from the cosine of the sum in the last bits only.

use std::sync::LazyLock;

use crate::points::Cloud;
use crate::ranges;

use super::lasers::Laser;
use super::model::{Model, Rhythm};
use super::wire::{BLOCKS, Block, Blocks, Factory, Half, LANES, TURN};

/// Radians in a hundredth of a degree, as the sensor's users have always written it.
const STEP: f64 = 0.00017453293;
/// Metres in one count of range.
const COUNT: f64 = 0.002;
/// Metres within which nothing is ever given: no sensor sees itself.
const NEAREST: f64 = 0.01;
/// Hundredths of a degree that a head turns in a slot at most. More is a jump, over which nothing can be
/// interpolated.
const MOST_GAP: u16 = 200;

/// Which points are given.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// The least count of range: 1 leaves out what has none.
    least_count: u16,
    /// Metres.
    nearest: f64,
    /// Metres.
    farthest: f64,
}

impl Limits {
    /// `Err` names the option at fault, and says why.
    pub(super) fn new(
        drop_zero_returns: bool,
        min_range: Option<f64>,
        max_range: Option<f64>,
    ) -> Result<Self, (&'static str, String)> {
        let (min_range, max_range) = (min_range.unwrap_or(0.0), max_range.unwrap_or(f64::INFINITY));
        let [nearest, farthest] = ranges::limits(min_range, max_range, NEAREST)?;
        Ok(Self { least_count: u16::from(drop_zero_returns), nearest, farthest })
    }

    /// The counts of a laser, from and to, whose ranges are within; from above to if none are. Ranges never
    /// get shorter as counts rise.
    fn counts(&self, laser: &Laser) -> (u16, u16) {
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
        let least = first(&|range| range < self.nearest).max(u32::from(self.least_count));
        let beyond = first(&|range| range <= self.farthest);
        match (u16::try_from(least), beyond.checked_sub(1).map(u16::try_from)) {
            (Ok(least), Some(Ok(most))) => (least, most),
            _ => (1, 0),
        }
    }
}

/// How many counts of range there are.
const COUNTS: u32 = 1 << 16;

/// What a count of range means.
#[inline]
fn metres(count: u16, offset: f64, scale: f64) -> f64 {
    (f64::from(count) * COUNT + offset) * scale
}

/// Makes points of one sensor's packets.
#[derive(Debug)]
pub(super) struct Decoder {
    rhythm: Rhythm,
    model: Model,
    directions: &'static [[f64; 2]],
    /// The lower half and the upper one, or the only one.
    banks: Vec<Bank>,
    /// Of the HDL-64E one a half; of others one a gap, since the head turns while lasers fire.
    fans: Vec<Fan>,
}

/// What is the same for all blocks of a half, return by return.
#[derive(Debug)]
struct Bank {
    laser: [u16; LANES],
    /// The counts of range, from and to, that give points: as many as are within the limits, and compared
    /// eight at a time.
    least: [u16; LANES],
    most: [u16; LANES],
    offset: [f64; LANES],
    scale: [f64; LANES],
    ahead: [f64; LANES],
    sine: [f64; LANES],
}

/// Where the lasers look beside the head's direction, shortened by how steep they look.
#[derive(Debug)]
struct Fan {
    along: [f64; LANES],
    across: [f64; LANES],
    /// Hundredths of a degree that the head has turned on.
    turned: [f32; LANES],
}

/// Cosine and sine of the head's direction by azimuth, which counts the other way round.
static DIRECTIONS: LazyLock<Vec<[f64; 2]>> = LazyLock::new(|| {
    let direction = |azimuth: u16| {
        let angle =
            if azimuth == 0 { 0.0 } else { std::f64::consts::TAU - f64::from(azimuth) * STEP };
        [angle.cos(), angle.sin()]
    };
    (0..TURN).map(direction).collect()
});

/// Intensities by byte.
static INTENSITIES: [f32; 256] = intensities();

const fn intensities() -> [f32; 256] {
    let (mut all, mut byte) = ([0.0; 256], 0);
    while byte < all.len() {
        all[byte] = byte as f32 / 255.0;
        byte += 1;
    }
    all
}

impl Decoder {
    /// `lasers` are all of the model, by number.
    pub(super) fn new(model: Model, lasers: &[Laser], limits: Limits) -> Self {
        let rhythm = model.rhythm();
        let halves: Vec<[(u16, Laser); LANES]> = match model {
            Model::Hdl64e => vec![lanes(lasers, 0), lanes(lasers, LANES)],
            Model::Hdl32e | Model::Vlp16 => vec![lanes(lasers, 0)],
        };
        let banks = halves.iter().map(|half| Bank::of(half, &limits)).collect();
        let fans = match halves.as_slice() {
            [only] => (0..=MOST_GAP).map(|gap| Fan::of(only, gap, &rhythm)).collect(),
            halves => halves.iter().map(|half| Fan::of(half, 0, &rhythm)).collect(),
        };
        Self { rhythm, model, directions: &DIRECTIONS, banks, fans }
    }

    /// Appends the points of a packet whose last slot ended at `ended` (nanoseconds) to a cloud. Gives how many
    /// returns are left out since they are too near or too far; empty ones are none.
    pub(super) fn append(
        &self,
        blocks: &Blocks<'_>,
        factory: Option<Factory>,
        ended: i64,
        cloud: &mut Cloud,
    ) -> u64 {
        let is_dual = factory.is_some_and(|factory| factory.is_dual);
        let a_slot = self.model.blocks_a_slot(is_dual);
        let began = ended.saturating_sub((BLOCKS / a_slot) as i64 * self.rhythm.slot);
        let (mut turned, mut left_out) = (None, 0);
        for block in blocks.iter() {
            let half = usize::from(block.half == Half::Upper && self.model.has_halves());
            let fan = if self.model.is_interpolated() {
                // Before the first that is known, the turn is that of those after it.
                let known = || blocks.iter().find_map(|block| gap(blocks, &block, a_slot));
                turned = gap(blocks, &block, a_slot).or(turned).or_else(known);
                usize::from(turned.unwrap_or(0))
            } else {
                half
            };
            let slot = began.saturating_add((block.number / a_slot) as i64 * self.rhythm.slot);
            left_out += self.fire(&block, (&self.banks[half], &self.fans[fan]), slot, cloud);
        }
        left_out
    }

    /// Appends the points of a block whose slot began at `slot`. All of them first, column by column, which
    /// takes several at a time; then those that are not wanted are taken out again. Gives how many of these are
    /// not empty.
    // Alone it is compiled to a tenth less time than as a part of what calls it: its arrays stay in registers.
    #[inline(never)]
    fn fire(
        &self,
        block: &Block<'_>,
        (bank, fan): (&Bank, &Fan),
        slot: i64,
        cloud: &mut Cloud,
    ) -> u64 {
        let [cosine, sine] = self.directions[usize::from(block.azimuth)];
        let count = counts(block);
        let mut range = [0.0; LANES];
        for k in 0..LANES {
            range[k] = metres(count[k], bank.offset[k], bank.scale[k]);
        }
        let x = |k: usize| {
            range[k] * (cosine * fan.along[k] - sine * fan.across[k]) - bank.ahead[k] * cosine
        };
        let y = |k: usize| {
            range[k] * (sine * fan.along[k] + cosine * fan.across[k]) - bank.ahead[k] * sine
        };
        cloud.x.extend((0..LANES).map(x));
        cloud.y.extend((0..LANES).map(y));
        // So short a loop would be taken apart, and go one by one, if it did not end in an array of its own.
        let mut z = range;
        z.iter_mut().zip(&bank.sine).for_each(|(z, sine)| *z *= sine);
        cloud.z.extend_from_slice(&z);
        let intensity = |[.., byte]: &[u8; 3]| INTENSITIES[usize::from(*byte)];
        cloud.intensity.extend(block.returns.iter().map(intensity));
        cloud.laser.extend_from_slice(&bank.laser);
        let azimuth = f32::from(block.azimuth);
        if self.model.is_interpolated() {
            cloud.azimuth.extend(fan.turned.iter().map(|turned| degrees(azimuth + turned)));
        } else {
            cloud.azimuth.extend_from_slice(&[degrees(azimuth); LANES]);
        }
        cloud.time.extend((0..LANES).map(|k| slot.wrapping_add(self.rhythm.lanes[k])));
        let keep = bank.keep(&count);
        if keep.iter().sum::<u16>() == LANES as u16 {
            return 0;
        }
        take_out(cloud, &keep, self.model.is_interpolated());
        let left_out = |(count, keep): &(u16, u16)| *count > 0 && *keep == 0;
        count.into_iter().zip(keep).filter(left_out).count() as u64
    }
}

#[inline]
fn counts(block: &Block<'_>) -> [u16; LANES] {
    let mut counts = [0; LANES];
    for (count, [low, high, _]) in counts.iter_mut().zip(block.returns) {
        *count = u16::from_le_bytes([*low, *high]);
    }
    counts
}

/// Degrees of hundredths that may have come beyond a turn.
fn degrees(hundredths: f32) -> f32 {
    let turn = f32::from(TURN);
    (if hundredths >= turn { hundredths - turn } else { hundredths }) / 100.0
}

/// Keeps those of a cloud's last points that `keep` has a 1 for. Their azimuths differ only if the sensor's
/// are interpolated.
#[inline]
fn take_out(cloud: &mut Cloud, keep: &[u16; LANES], is_interpolated: bool) {
    let len = cloud.len() - LANES;
    let kept = {
        let (x, y, z) = (last(&mut cloud.x), last(&mut cloud.y), last(&mut cloud.z));
        let (intensity, laser) = (last(&mut cloud.intensity), last(&mut cloud.laser));
        let time = last(&mut cloud.time);
        compact(keep, |from, to| {
            (x[to], y[to], z[to]) = (x[from], y[from], z[from]);
            (intensity[to], laser[to]) = (intensity[from], laser[from]);
            time[to] = time[from];
        })
    };
    if is_interpolated {
        let azimuth = last(&mut cloud.azimuth);
        compact(keep, |from, to| azimuth[to] = azimuth[from]);
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

/// Moves what is kept to the front; gives how much that is. Moved always, counted only if kept: no branch to
/// mispredict.
#[inline]
fn compact(keep: &[u16; LANES], mut shift: impl FnMut(usize, usize)) -> usize {
    let mut to = 0;
    for (from, kept) in keep.iter().enumerate() {
        // Never beyond the last lane, which spares checks.
        shift(from, to % LANES);
        to += usize::from(*kept);
    }
    to
}

/// 32 lasers from number `first` on, again from the first if there are no more.
fn lanes(lasers: &[Laser], first: usize) -> [(u16, Laser); LANES] {
    std::array::from_fn(|lane| {
        let number = (first + lane) % lasers.len();
        (number as u16, lasers[number])
    })
}

/// How far the head turns from this block to the one that is fired next, if both are known and that can be.
fn gap(blocks: &Blocks<'_>, block: &Block<'_>, a_slot: usize) -> Option<u16> {
    let next = blocks.at(block.number + a_slot)?;
    let turned =
        (u32::from(next.azimuth) + u32::from(TURN) - u32::from(block.azimuth)) % u32::from(TURN);
    u16::try_from(turned).ok().filter(|gap| *gap <= MOST_GAP)
}

impl Bank {
    /// 1 for each of these counts that gives a point, or else 0.
    #[inline]
    fn keep(&self, counts: &[u16; LANES]) -> [u16; LANES] {
        let mut keep = [0; LANES];
        for k in 0..LANES {
            keep[k] = u16::from((counts[k] >= self.least[k]) & (counts[k] <= self.most[k]));
        }
        keep
    }

    fn of(lanes: &[(u16, Laser); LANES], limits: &Limits) -> Self {
        let counts = lanes.map(|(_, laser)| limits.counts(&laser));
        Self {
            laser: lanes.map(|(number, _)| number),
            least: counts.map(|(least, _)| least),
            most: counts.map(|(_, most)| most),
            offset: lanes.map(|(_, laser)| laser.range_offset),
            scale: lanes.map(|(_, laser)| 1.0 + laser.range_scale),
            ahead: lanes.map(|(_, laser)| laser.ahead),
            sine: lanes.map(|(_, laser)| laser.rise.sin()),
        }
    }
}

impl Fan {
    /// Where lasers look if the head turns by `gap` in a slot.
    fn of(lanes: &[(u16, Laser); LANES], gap: u16, rhythm: &Rhythm) -> Self {
        let turned = rhythm.lanes.map(|lane| f64::from(gap) * lane as f64 / rhythm.slot as f64);
        let angle = |lane: usize| lanes[lane].1.turn - turned[lane] * STEP;
        let level = |lane: usize| lanes[lane].1.rise.cos();
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
    use crate::points::{Frame, Points};

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

    /// A point as it is computed without tables: with sine and cosine of the laser's own angle.
    fn plainly(block: &Block<'_>, lane: usize, lasers: &[Laser]) -> [f64; 3] {
        let half = if block.half == Half::Upper { LANES } else { 0 };
        let laser = lasers[half + lane];
        let ctheta = TAU - f64::from(block.azimuth) * STEP;
        let ctheta = if ctheta == TAU { 0.0 } else { ctheta };
        let theta = (ctheta + laser.turn).rem_euclid(TAU);
        let [low, high, _] = block.returns[lane];
        let count = f64::from(u16::from_le_bytes([low, high]));
        let range = (count * COUNT + laser.range_offset) * (1.0 + laser.range_scale);
        [
            range * theta.cos() * laser.rise.cos() - laser.ahead * ctheta.cos(),
            range * theta.sin() * laser.rise.cos() - laser.ahead * ctheta.sin(),
            range * laser.rise.sin(),
        ]
    }

    /// Tables change the last bits of numbers, and of a million points no digit of six decimals.
    #[test]
    fn tables_give_the_same_six_decimals_as_plain_sines() {
        let lasers = parse(Model::Hdl64e.table(), Model::Hdl64e).unwrap();
        let limits = Limits::new(false, None, None).unwrap();
        let decoder = Decoder::new(Model::Hdl64e, &lasers, limits);
        let mut noise = 42;
        for _ in 0..1_000_000 / 384 + 1 {
            let (packet, mut cloud) = (packet(&mut noise), Cloud::default());
            let blocks = Blocks::of(&packet, true);
            decoder.append(&blocks, None, 0, &mut cloud);
            let plain: Vec<[f64; 3]> = blocks
                .iter()
                .flat_map(|block| {
                    (0..LANES).map(|lane| plainly(&block, lane, &lasers)).collect::<Vec<_>>()
                })
                .collect();
            assert_eq!(cloud.len(), plain.len());
            for (at, plain) in plain.into_iter().enumerate() {
                let ours = [cloud.x[at], cloud.y[at], cloud.z[at]];
                for (ours, plain) in ours.into_iter().zip(plain) {
                    // What has the same bits has the same text.
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
        let odd =
            odd.map(|(range_offset, range_scale)| Laser { range_offset, range_scale, ..lasers[0] });
        let limits =
            [(false, 0.0, 1e9), (true, 0.0, 40.0), (false, 1.002, 1.004), (true, 5.0, 119.998)];
        for (drop, min, max) in limits {
            let limits = Limits::new(drop, Some(min), Some(max)).unwrap();
            for laser in lasers.iter().chain(&odd) {
                let (least, most) = limits.counts(laser);
                for count in 0..=u16::MAX {
                    let range = metres(count, laser.range_offset, 1.0 + laser.range_scale);
                    let is_within =
                        (min.max(NEAREST)..=max).contains(&range) && !(drop && count == 0);
                    assert_eq!((least..=most).contains(&count), is_within, "{count} of {laser:?}");
                }
            }
        }
    }

    #[test]
    fn an_event_that_was_ended_has_its_points() {
        let lasers = parse(Model::Hdl64e.table(), Model::Hdl64e).unwrap();
        let limits = Limits::new(false, Some(60.0), None).unwrap();
        let (packet, mut cloud) = (packet(&mut 7), Cloud::default());
        Decoder::new(Model::Hdl64e, &lasers, limits).append(
            &Blocks::of(&packet, true),
            None,
            0,
            &mut cloud,
        );
        cloud.end_event(3, 0, true).unwrap();
        let points = Points::of(&cloud.finish(Frame::Sensor)).unwrap();
        let far = points.xyz()[0].iter().zip(points.xyz()[1]).all(|(x, y)| x.hypot(*y) > 50.0);
        assert!(far && (1..384).contains(&points.len()));
    }
}
