//! From a packet's returns to points in the sensor's frame: x where azimuth 0 is, y to the left of it, z up.
//! Knows no events.
//!
//! Nothing is computed by point that can be had from a table: cosine and sine of the direction come by
//! azimuth, those of the laser's own turn and rise by laser, and the sum of both angles follows by the
//! theorems of addition. That differs from the cosine of the sum in the last bits only.

use std::sync::LazyLock;

use crate::points::Cloud;

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
/// Points of a packet.
const POINTS: usize = BLOCKS * LANES;

/// Which points are given.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// The least count of range: 1 leaves out what has none.
    pub(super) least_count: i32,
    /// Metres.
    pub(super) nearest: f64,
    /// Metres.
    pub(super) farthest: f64,
}

impl Limits {
    /// `Err` names the option at fault, and says why.
    pub(super) fn new(
        drop_zero_returns: bool,
        min_range: Option<f64>,
        max_range: Option<f64>,
    ) -> Result<Self, (&'static str, String)> {
        let limit = |name, value: Option<f64>, or: f64| match value.unwrap_or(or) {
            value if value >= 0.0 => Ok(value),
            value => Err((name, format!("expected metres, from 0 on, found {value}"))),
        };
        let nearest = limit("min_range", min_range, 0.0)?;
        let farthest = limit("max_range", max_range, f64::INFINITY)?;
        if farthest < nearest {
            let what =
                format!("{farthest} is less than `min_range`, {nearest}: nothing is between");
            return Err(("max_range", what));
        }
        let least_count = i32::from(drop_zero_returns);
        Ok(Self { least_count, nearest: nearest.max(NEAREST), farthest })
    }
}

/// Makes points of one sensor's packets.
#[derive(Debug)]
pub(super) struct Decoder {
    rhythm: Rhythm,
    model: Model,
    limits: Limits,
    /// The lower half and the upper one, or the only one.
    banks: Vec<Bank>,
    /// Of the HDL-64E one a half; of others one a gap, since the head turns while lasers fire.
    fans: Vec<Fan>,
}

/// What is the same for all blocks of a half, return by return.
#[derive(Debug)]
struct Bank {
    laser: [u16; LANES],
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
        let banks = halves.iter().map(Bank::of).collect();
        let fans = match halves.as_slice() {
            [only] => (0..=MOST_GAP).map(|gap| Fan::of(only, gap, &rhythm)).collect(),
            halves => halves.iter().map(|half| Fan::of(half, 0, &rhythm)).collect(),
        };
        Self { rhythm, model, limits, banks, fans }
    }

    /// Appends the points of a packet whose last slot ended at `ended` (nanoseconds) to a cloud.
    pub(super) fn append(
        &self,
        blocks: &Blocks<'_>,
        factory: Option<Factory>,
        ended: i64,
        points: &mut Scratch,
        cloud: &mut Cloud,
    ) {
        let is_dual = factory.is_some_and(|factory| factory.is_dual);
        let a_slot = self.model.blocks_a_slot(is_dual);
        let began = ended.saturating_sub((BLOCKS / a_slot) as i64 * self.rhythm.slot);
        let mut gap = blocks.iter().find_map(|block| gap(blocks, block, a_slot)).unwrap_or(0);
        points.len = 0;
        for block in blocks.iter() {
            gap = self::gap(blocks, block, a_slot).unwrap_or(gap);
            let half = usize::from(block.half == Half::Upper && self.model.has_halves());
            let fan = if self.model.is_interpolated() { usize::from(gap) } else { half };
            let slot = began.saturating_add((block.number / a_slot) as i64 * self.rhythm.slot);
            self.fire(block, &self.banks[half], &self.fans[fan], slot, points);
        }
        points.append_to(cloud);
    }

    /// The points of a block whose slot began at `slot`.
    #[inline]
    fn fire(&self, block: &Block<'_>, bank: &Bank, fan: &Fan, slot: i64, points: &mut Scratch) {
        let [cosine, sine] = DIRECTIONS[usize::from(block.azimuth)];
        let Limits { least_count, nearest, farthest } = self.limits;
        let lanes = points.lanes();
        let (mut counts, mut keep) = ([0_i32; LANES], [0_u8; LANES]);
        for (k, [low, high, intensity]) in block.returns.iter().enumerate() {
            counts[k] = i32::from(u16::from_le_bytes([*low, *high]));
            lanes.intensity[k] = INTENSITIES[usize::from(*intensity)];
        }
        for k in 0..LANES {
            let range = (f64::from(counts[k]) * COUNT + bank.offset[k]) * bank.scale[k];
            lanes.x[k] =
                range * (cosine * fan.along[k] - sine * fan.across[k]) - bank.ahead[k] * cosine;
            lanes.y[k] =
                range * (sine * fan.along[k] + cosine * fan.across[k]) - bank.ahead[k] * sine;
            lanes.z[k] = range * bank.sine[k];
            keep[k] =
                u8::from((counts[k] >= least_count) & (range >= nearest) & (range <= farthest));
        }
        let (azimuth, turn) = (f32::from(block.azimuth), f32::from(TURN));
        for k in 0..LANES {
            let azimuth = azimuth + fan.turned[k];
            lanes.azimuth[k] = if azimuth >= turn { azimuth - turn } else { azimuth } / 100.0;
            lanes.time[k] = slot.wrapping_add(self.rhythm.lanes[k]);
        }
        *lanes.laser = bank.laser;
        let kept: usize = keep.iter().map(|kept| usize::from(*kept)).sum();
        if kept < LANES {
            lanes.keep(&keep);
        }
        points.len += kept;
    }
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
    fn of(lanes: &[(u16, Laser); LANES]) -> Self {
        Self {
            laser: lanes.map(|(number, _)| number),
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

/// The points of one packet in the making: they stay in the core's own cache until they are done.
#[derive(Debug)]
pub(super) struct Scratch {
    x: [f64; POINTS],
    y: [f64; POINTS],
    z: [f64; POINTS],
    intensity: [f32; POINTS],
    laser: [u16; POINTS],
    azimuth: [f32; POINTS],
    time: [i64; POINTS],
    len: usize,
}

impl Default for Scratch {
    fn default() -> Self {
        Self {
            x: [0.0; POINTS],
            y: [0.0; POINTS],
            z: [0.0; POINTS],
            intensity: [0.0; POINTS],
            laser: [0; POINTS],
            azimuth: [0.0; POINTS],
            time: [0; POINTS],
            len: 0,
        }
    }
}

/// Room for the points of a block.
struct Lanes<'s> {
    x: &'s mut [f64; LANES],
    y: &'s mut [f64; LANES],
    z: &'s mut [f64; LANES],
    intensity: &'s mut [f32; LANES],
    laser: &'s mut [u16; LANES],
    azimuth: &'s mut [f32; LANES],
    time: &'s mut [i64; LANES],
}

impl Scratch {
    fn lanes(&mut self) -> Lanes<'_> {
        fn room<T>(column: &mut [T; POINTS], len: usize) -> &mut [T; LANES] {
            column[len..].first_chunk_mut().expect("there is room for all blocks of a packet")
        }
        Lanes {
            x: room(&mut self.x, self.len),
            y: room(&mut self.y, self.len),
            z: room(&mut self.z, self.len),
            intensity: room(&mut self.intensity, self.len),
            laser: room(&mut self.laser, self.len),
            azimuth: room(&mut self.azimuth, self.len),
            time: room(&mut self.time, self.len),
        }
    }

    fn append_to(&self, cloud: &mut Cloud) {
        cloud.x.extend_from_slice(&self.x[..self.len]);
        cloud.y.extend_from_slice(&self.y[..self.len]);
        cloud.z.extend_from_slice(&self.z[..self.len]);
        cloud.intensity.extend_from_slice(&self.intensity[..self.len]);
        cloud.laser.extend_from_slice(&self.laser[..self.len]);
        cloud.azimuth.extend_from_slice(&self.azimuth[..self.len]);
        cloud.time.extend_from_slice(&self.time[..self.len]);
    }
}

impl Lanes<'_> {
    /// Moves what is kept to the front. Written always, counted only if kept: no branch to mispredict.
    fn keep(self, keep: &[u8; LANES]) {
        let mut to = 0;
        for (from, kept) in keep.iter().enumerate() {
            // Never beyond the last lane, which spares a check.
            let at = to % LANES;
            self.x[at] = self.x[from];
            self.y[at] = self.y[from];
            self.z[at] = self.z[from];
            self.intensity[at] = self.intensity[from];
            self.laser[at] = self.laser[from];
            self.azimuth[at] = self.azimuth[from];
            self.time[at] = self.time[from];
            to += usize::from(*kept);
        }
    }
}
