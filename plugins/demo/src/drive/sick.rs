//! The twelve planar laser scanners: 181 ranges over a half circle, one degree apart.
//!
//! Successive scans are interlaced by a quarter of a degree, as in the real ones.

use std::f64::consts::PI;

use super::encode::{self, PayloadEncoder};
use super::maths::{self, Quaternion, Vector};
use super::noise::Noise;
use super::pose::Pose;
use super::scene::{Scene, Surface};

const SAMPLES: usize = 181;
/// The range reported without a return, in centimetres.
const NO_RETURN: u16 = 8191;
const MAX_COUNT: u16 = 7900;

/// A mounted scanner: channel, position in metres, roll, pitch and yaw in degrees.
type ScannerMount = (&'static str, Vector, Vector);

const MOUNTS: [ScannerMount; 12] = [
    ("BROOM_C", [2.014, 0.047, 2.1], [-179.139, 23.745, 0.061]),
    ("BROOM_CL", [1.820, 0.375, 2.1], [-178.709, 8.355, 0.441]),
    ("BROOM_CR", [1.902, -0.399, 2.1], [-179.963, 12.068, 0.751]),
    ("BROOM_L", [1.861, 0.720, 2.1], [-177.623, 17.593, 45.235]),
    ("BROOM_R", [1.780, -0.507, 2.1], [178.842, 16.295, -44.258]),
    ("SKIRT_FC", [3.852, 0.048, 0.87], [-180.831, 2.686, -0.962]),
    ("SKIRT_FL", [3.814, 0.732, 0.685], [-179.048, 2.159, 45.541]),
    ("SKIRT_FR", [3.812, -0.702, 0.52], [177.945, 0.578, -46.906]),
    ("SKIRT_RC_HI", [-0.991, 0.547, 0.96], [180.491, -2.434, 175.662]),
    ("SKIRT_RC_LO", [-1.062, 0.148, 0.49], [0.306, -2.863, 178.948]),
    ("SKIRT_RL", [-0.524, 1.019, 0.53], [2.205, -0.875, 94.712]),
    ("SKIRT_RR", [-0.525, -0.789, 0.54], [-1.891, -2.421, -96.143]),
];

/// The channels of the scanners. Every second one also reports intensities.
pub(super) fn channels() -> impl Iterator<Item = &'static str> {
    MOUNTS.iter().map(|mount| mount.0)
}

/// What all scans share.
#[derive(Debug)]
pub(super) struct Scanners {
    mounts: Vec<(Vector, Quaternion)>,
    /// Cosine and sine of every quarter of a degree from -90° on.
    beams: Vec<[f64; 2]>,
}

impl Scanners {
    pub(super) fn new() -> Self {
        let turn = |mount: &ScannerMount| {
            (mount.1, maths::from_roll_pitch_yaw(mount.2.map(|degrees| degrees / 360.0)))
        };
        let beam = |quarter: u32| {
            let (sine, cosine) = maths::sin_cos(f64::from(quarter) / 1440.0 - 0.25);
            [cosine, sine]
        };
        Self { mounts: MOUNTS.iter().map(turn).collect(), beams: (0..4 * 182).map(beam).collect() }
    }

    /// Appends scan `index` of scanner `number`, taken at `pose`, as a `laser_t`.
    pub(super) fn append(&self, number: usize, at: ScanInput, out: &mut Vec<u8>) {
        let mut ranges = [0.0; SAMPLES];
        let mut intensities = [0.0; SAMPLES];
        let shift = (at.index % 4) as usize;
        self.sweep(number, shift, at.pose, at.noise, |sample, range, intensity| {
            ranges[sample] = range;
            intensities[sample] = intensity;
        });
        let mut payload = PayloadEncoder::new(out, encode::LASER, at.utime);
        payload.count(SAMPLES);
        payload.floats(&ranges);
        let reported = if number.is_multiple_of(2) { &intensities[..0] } else { &intensities };
        payload.count(reported.len());
        payload.floats(reported);
        let first = (shift as f64 / 4.0 - 90.0) * PI / 180.0;
        payload.floats(&[first as f32, (PI / 180.0) as f32]);
    }

    fn sweep(
        &self,
        number: usize,
        shift: usize,
        pose: &Pose,
        mut noise: Noise,
        mut take: impl FnMut(usize, f32, f32),
    ) {
        let (position, turn) = self.mounts[number];
        let eye = maths::sum(pose.position, maths::rotate(&pose.rotation, position));
        let scene = Scene::around(pose, eye);
        let rotation = maths::matrix(maths::product(pose.orientation, turn));
        for sample in 0..SAMPLES {
            let [x, y] = self.beams[sample * 4 + shift];
            let hit = scene.cast(maths::rotate(&rotation, [x, y, 0.0]));
            let bits = noise.bits();
            let range = centimetres(hit.range, bits);
            let intensity = if range == NO_RETURN { 0 } else { brightness(hit.surface, bits) };
            take(sample, f32::from(range) / 100.0, f32::from(intensity) / 256.0);
        }
    }
}

/// What differs between scans.
#[derive(Debug)]
pub(super) struct ScanInput<'a> {
    pub(super) index: u64,
    pub(super) utime: i64,
    pub(super) pose: &'a Pose,
    pub(super) noise: Noise,
}

fn centimetres(range: f64, bits: u64) -> u16 {
    // One in eight ranges is a centimetre off.
    let error = match bits & 15 {
        0 => -1.0,
        1 => 1.0,
        _ => 0.0,
    };
    let count = (range * 100.0 + error + 0.5).clamp(0.0, f64::from(NO_RETURN)) as u16;
    if count > MAX_COUNT { NO_RETURN } else { count }
}

fn brightness(surface: Surface, bits: u64) -> u16 {
    let base = match surface {
        Surface::Asphalt | Surface::Sky => 40,
        Surface::Paint => 180,
        Surface::Dirt => 64,
        Surface::Barrier => 120,
        Surface::Car => 150,
    };
    base + (bits >> 4 & 3) as u16
}
