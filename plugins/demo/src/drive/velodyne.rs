//! The rotating scanner: packets of 12 firings, each by one half of its 64 lasers.
//!
//! A packet is computed as if the vehicle stood still during its 0.4 ms.

use std::f64::consts::TAU;

use super::encode::{self, PayloadEncoder};
use super::maths::{self, Matrix, Quaternion};
use super::noise::Noise;
use super::pose::Pose;
use super::scene::{Bearing, Scene, Surface};

const PACKET_LEN: usize = 1206;
const PAIRS: usize = 6;
/// Rotation of the head between two firings of the same laser, in hundredths of a degree.
const STEP: u64 = 35;
const CIRCLE: u64 = 36_000;
/// Every azimuth is a multiple of this many hundredths of a degree.
const GRAIN: u64 = 5;

const UPPER: u16 = 0xeeff;
const LOWER: u16 = 0xddff;

/// Bearings on either side of a packet that its lasers' own angles reach, in steps.
const BEARING_MARGIN: usize = 28;
const BEARINGS: usize = BEARING_MARGIN + PAIRS + BEARING_MARGIN;

const MAX_RANGE: f64 = 120.0;
const COUNTS_PER_METRE: f64 = 500.0;

const POSITION: [f64; 3] = [1.56, -0.00408, 2.55];
const ROLL_PITCH_YAW_DEGREES: [f64; 3] = [2.683_627, -0.076_601, 91.026_067];

/// A laser, prepared for the packet loop.
#[derive(Debug)]
struct Laser {
    /// Index of its direction in the bearings of the packet's first firing.
    first_bearing: usize,
    sine: f64,
    cosine: f64,
    range_offset: f64,
    /// Lasers differ in the intensity they report for the same surface.
    gain: u64,
}

/// What all packets share.
#[derive(Debug)]
pub(super) struct Velodyne {
    lasers: Vec<Laser>,
    turn: Quaternion,
    /// Cosine and sine of the direction the head faces, by azimuth in grains.
    directions: Vec<[f64; 2]>,
}

impl Velodyne {
    pub(super) fn new() -> Self {
        let direction = |grain: u64| {
            // Azimuth counts clockwise, angles counter-clockwise.
            let (sine, cosine) = maths::sin_cos(-((grain * GRAIN) as f64) / CIRCLE as f64);
            [cosine, sine]
        };
        Self {
            lasers: LASERS.iter().map(laser).collect(),
            turn: maths::from_roll_pitch_yaw(ROLL_PITCH_YAW_DEGREES.map(|angle| angle / 360.0)),
            directions: (0..CIRCLE / GRAIN).map(direction).collect(),
        }
    }

    /// Appends packet `index`, measured at `pose`, as a `velodyne_t`.
    pub(super) fn append(
        &self,
        index: u64,
        utime: i64,
        pose: &Pose,
        noise: Noise,
        out: &mut Vec<u8>,
    ) {
        let mut payload = PayloadEncoder::new(out, encode::VELODYNE, utime);
        payload.count(PACKET_LEN);
        let first_pair = index * PAIRS as u64;
        self.append_blocks(first_pair, pose, noise, out);
        let revolution = (first_pair * STEP / CIRCLE) as u16;
        out.extend_from_slice(&revolution.to_le_bytes());
        out.extend_from_slice(b"v2.0");
    }

    fn append_blocks(&self, first_pair: u64, pose: &Pose, mut noise: Noise, out: &mut Vec<u8>) {
        let view = self.view(first_pair, pose);
        let (lower, upper) = self.lasers.split_at(32);
        for pair in 0..PAIRS {
            let azimuth = ((first_pair + pair as u64) * STEP % CIRCLE) as u16;
            for (id, lasers) in [(UPPER, upper), (LOWER, lower)] {
                let mut block = [0; 100];
                block[..2].copy_from_slice(&id.to_le_bytes());
                block[2..4].copy_from_slice(&azimuth.to_le_bytes());
                for (laser, sample) in lasers.iter().zip(block[4..].chunks_exact_mut(3)) {
                    let (range, intensity) = view.measure(laser, pair, noise.bits());
                    sample[..2].copy_from_slice(&range.to_le_bytes());
                    sample[2] = intensity;
                }
                out.extend_from_slice(&block);
            }
        }
    }

    /// The scene as seen by the packet that starts at `first_pair`.
    fn view(&self, first_pair: u64, pose: &Pose) -> PacketView {
        let eye = maths::sum(pose.position, maths::rotate(&pose.rotation, POSITION));
        let rotation = maths::matrix(maths::product(pose.orientation, self.turn));
        let mut view = PacketView {
            scene: Scene::around(pose, eye),
            bearings: [Bearing::default(); BEARINGS],
            slopes: [0.0; BEARINGS],
            uprightness: rotation[2][2],
        };
        let first = first_pair * STEP + CIRCLE - BEARING_MARGIN as u64 * STEP;
        for step in 0..BEARINGS {
            let azimuth = (first + step as u64 * STEP) % CIRCLE;
            view.set_bearing(step, self.directions[(azimuth / GRAIN) as usize], &rotation);
        }
        view
    }
}

/// What one packet can see, by bearing.
struct PacketView {
    scene: Scene,
    bearings: [Bearing; BEARINGS],
    /// Climb of a level ray due to the tilt of the head.
    slopes: [f64; BEARINGS],
    uprightness: f64,
}

impl PacketView {
    fn set_bearing(&mut self, step: usize, [cosine, sine]: [f64; 2], rotation: &Matrix) {
        let [x, y, z] = maths::rotate(rotation, [cosine, sine, 0.0]);
        let level = (x * x + y * y).sqrt();
        self.bearings[step] = self.scene.bearing([x / level, y / level]);
        self.slopes[step] = z;
    }

    /// Range count and intensity of `laser` in this firing, or zeros without a return.
    fn measure(&self, laser: &Laser, pair: usize, bits: u64) -> (u16, u8) {
        let step = laser.first_bearing + pair;
        let climb = self.slopes[step] * laser.cosine + self.uprightness * laser.sine;
        let hit = self.scene.follow(&self.bearings[step], laser.cosine, climb);
        if hit.range > MAX_RANGE || is_missed(hit.range, bits) {
            return (0, 0);
        }
        // The sum of two uniform values is bell-shaped enough.
        let error = (bits & RANGE_NOISE) + (bits >> 8 & RANGE_NOISE);
        let exact = (hit.range - laser.range_offset) * COUNTS_PER_METRE;
        let count = (exact + error as f64 - RANGE_NOISE as f64 + 0.5).clamp(1.0, 65_535.0);
        (count as u16, brightness(&hit.surface, laser.gain, bits >> 16))
    }
}

/// Maximum of each uniform value of the range error, in counts. One less than a power of two.
const RANGE_NOISE: u64 = 7;
/// The same for the intensity.
const INTENSITY_NOISE: u64 = 1;

/// Whether a return is too weak to be detected, which is likelier from afar.
fn is_missed(range: f64, bits: u64) -> bool {
    (bits >> 48) as f64 > 65_536.0 * (0.995 - range * 0.0005)
}

fn brightness(surface: &Surface, gain: u64, bits: u64) -> u8 {
    let base = match surface {
        Surface::Asphalt | Surface::Sky => 6,
        Surface::Paint => 60,
        Surface::Dirt => 10,
        Surface::Barrier => 14,
        Surface::Car => 36,
    };
    (base + gain + (bits & INTENSITY_NOISE)) as u8
}

/// Prepares a row of [`LASERS`] for the packet loop.
fn laser(row: &[f64; 3]) -> Laser {
    let [rotation, elevation, range_offset] = *row;
    let (sine, cosine) = maths::sin_cos(elevation / TAU);
    let steps = rotation / TAU * CIRCLE as f64 / STEP as f64;
    Laser {
        first_bearing: (BEARING_MARGIN as f64 - steps + 0.5) as usize,
        sine,
        cosine,
        range_offset,
        gain: (range_offset * 10.0) as u64,
    }
}

/// Rotation and elevation in radians, and range offset in metres: the 32 lower lasers, then the
/// upper ones.
const LASERS: [[f64; 3]; 64] = [
    [-0.129905, -0.396851, 0.5],
    [-0.073727, -0.387918, 0.5],
    [0.083776, -0.200956, 0.4],
    [0.130900, -0.192023, 0.53],
    [-0.006981, -0.378993, 0.36],
    [0.038397, -0.370074, 0.42],
    [-0.038109, -0.432672, 0.54],
    [0.017781, -0.423702, 0.47],
    [0.109956, -0.361162, 0.46],
    [0.165806, -0.352254, 0.52],
    [0.075049, -0.414742, 0.45],
    [0.136136, -0.405792, 0.57],
    [-0.127409, -0.289992, 0.47],
    [-0.073727, -0.281102, 0.49],
    [-0.150427, -0.343352, 0.5],
    [-0.094119, -0.334453, 0.5],
    [-0.008727, -0.272210, 0.32],
    [0.041888, -0.263317, 0.4],
    [-0.026180, -0.325557, 0.42],
    [0.017781, -0.316664, 0.38],
    [0.104720, -0.254421, 0.42],
    [0.152716, -0.245523, 0.43],
    [0.091630, -0.307772, 0.55],
    [0.136136, -0.298882, 0.6],
    [-0.122173, -0.183082, 0.33],
    [-0.075922, -0.174132, 0.38],
    [-0.150098, -0.236620, 0.51],
    [-0.098611, -0.227713, 0.52],
    [-0.011345, -0.165172, 0.38],
    [0.038109, -0.156202, 0.54],
    [-0.033161, -0.218800, 0.53],
    [0.015708, -0.209881, 0.5],
    [-0.078540, -0.124933, 0.38],
    [-0.049126, -0.118993, 0.5],
    [0.058469, 0.005547, 0.24],
    [0.086468, 0.011486, 0.46],
    [-0.001745, -0.113056, 0.3],
    [0.028798, -0.107121, 0.42],
    [-0.017453, -0.148716, 0.42],
    [0.013090, -0.142766, 0.43],
    [0.074176, -0.101188, 0.44],
    [0.099484, -0.095256, 0.5],
    [0.056723, -0.136819, 0.43],
    [0.090757, -0.130875, 0.53],
    [-0.078889, -0.053760, 0.34],
    [-0.049126, -0.047833, 0.4],
    [-0.094248, -0.089326, 0.35],
    [-0.060214, -0.083396, 0.42],
    [-0.004363, -0.041906, 0.38],
    [0.025403, -0.035978, 0.44],
    [-0.017453, -0.077468, 0.32],
    [0.011854, -0.071540, 0.4],
    [0.071558, -0.030050, 0.3],
    [0.100356, -0.024121, 0.32],
    [0.055851, -0.065613, 0.43],
    [0.090757, -0.059687, 0.45],
    [-0.078540, 0.017428, 0.35],
    [-0.052360, 0.023372, 0.075],
    [-0.092502, -0.018190, 0.4],
    [-0.062694, -0.012259, 0.48],
    [-0.001745, 0.029320, 0.35],
    [0.025403, 0.035270, 0.39],
    [-0.017453, -0.006325, 0.36],
    [0.011854, -0.000390, 0.42],
];
