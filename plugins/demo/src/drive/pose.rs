//! The pose of the vehicle as a closed form of time, so any instant can be computed on its own.
//!
//! The course is an ellipse, driven at a slowly changing speed. It does not depend on the seed.

use std::f64::consts::TAU;

use super::encode::{self, PayloadEncoder};
use super::maths::{self, Matrix, Quaternion, Vector};

/// Half the length of the course, along local x, in metres.
pub(super) const HALF_LENGTH: f64 = 300.0;
/// Half the width of the course, along local y, in metres.
pub(super) const HALF_WIDTH: f64 = 200.0;

const LAP_US: u64 = 160_000_000;
const LAP_S: f64 = 160.0;

/// Position and motion at one instant, in the local frame.
#[derive(Debug, Clone)]
pub(super) struct Pose {
    /// Fraction of the lap completed, 0 to 1.
    pub(super) lap: f64,
    pub(super) position: Vector,
    velocity: Vector,
    acceleration: Vector,
    rotation_rate: Vector,
    pub(super) orientation: Quaternion,
    pub(super) rotation: Matrix,
}

/// A sinusoid with a whole number of periods per lap, and its first two derivatives.
struct Sinusoid {
    value: f64,
    rate: f64,
    acceleration: f64,
}

impl Sinusoid {
    fn at(lap: f64, amplitude: f64, times: f64) -> Self {
        let (sine, cosine) = maths::sin_cos(lap * times);
        let omega = TAU * times / LAP_S;
        let value = amplitude * sine;
        Self { value, rate: amplitude * omega * cosine, acceleration: -omega * omega * value }
    }
}

/// The motion in the plane.
struct PlanarMotion {
    position: [f64; 2],
    velocity: [f64; 2],
    acceleration: [f64; 2],
}

impl PlanarMotion {
    fn at(angle: &Sinusoid) -> Self {
        let (sine, cosine) = maths::sin_cos(angle.value);
        let (omega, alpha) = (angle.rate * TAU, angle.acceleration * TAU);
        let (x, y) = (HALF_LENGTH * cosine, HALF_WIDTH * sine);
        let (dx, dy) = (-HALF_LENGTH * sine, HALF_WIDTH * cosine);
        Self {
            position: [x, y],
            velocity: [dx * omega, dy * omega],
            acceleration: [dx * alpha - x * omega * omega, dy * alpha - y * omega * omega],
        }
    }

    fn speed(&self) -> f64 {
        (self.velocity[0] * self.velocity[0] + self.velocity[1] * self.velocity[1]).sqrt()
    }

    fn yaw_rate(&self) -> f64 {
        let [vx, vy] = self.velocity;
        let [ax, ay] = self.acceleration;
        (vx * ay - vy * ax) / (vx * vx + vy * vy)
    }
}

impl Pose {
    /// The pose `us` microseconds after the start of the drive.
    pub(super) fn at(us: u64) -> Self {
        let lap = (us % LAP_US) as f64 / LAP_US as f64;
        let ease = Sinusoid::at(lap, 0.004, 8.0);
        let angle = Sinusoid {
            value: lap + ease.value,
            rate: 1.0 / LAP_S + ease.rate,
            acceleration: ease.acceleration,
        };
        let plane = PlanarMotion::at(&angle);
        let (bounce, pitch, roll) = (
            Sinusoid::at(lap, 0.02, 96.0),
            Sinusoid::at(lap, 0.004, 48.0),
            Sinusoid::at(lap, 0.006, 40.0),
        );
        let heading = plane.velocity.map(|v| v / plane.speed());
        let tilt = maths::from_roll_pitch_yaw([roll.value / TAU, pitch.value / TAU, 0.0]);
        let orientation = maths::product(maths::from_heading(heading[0], heading[1]), tilt);
        Self {
            lap: angle.value.rem_euclid(1.0),
            position: [plane.position[0], plane.position[1], bounce.value],
            velocity: [plane.velocity[0], plane.velocity[1], bounce.rate],
            acceleration: [plane.acceleration[0], plane.acceleration[1], bounce.acceleration],
            rotation_rate: rotation_rate(heading, plane.yaw_rate(), &pitch, &roll),
            orientation,
            rotation: maths::matrix(orientation),
        }
    }

    /// Appends this pose as a `pose_t`.
    pub(super) fn append_pose(&self, utime: i64, out: &mut Vec<u8>) {
        let mut payload = PayloadEncoder::new(out, encode::POSE, utime);
        payload.doubles(&self.position);
        payload.doubles(&self.velocity);
        payload.doubles(&self.orientation);
        payload.doubles(&self.rotation_rate);
        payload.doubles(&self.acceleration);
    }

    /// Appends this position in the local frame and on the globe as a `gps_to_local_t`.
    pub(super) fn append_gps_to_local(&self, utime: i64, out: &mut Vec<u8>) {
        let mut payload = PayloadEncoder::new(out, encode::GPS_TO_LOCAL, utime);
        payload.doubles(&self.position);
        payload.doubles(&geodetic(self.position, self.lap));
        payload.floats(&GPS_COVARIANCE);
    }
}

/// The sum of the three angular velocities, each about its own axis of the yaw-pitch-roll chain.
fn rotation_rate(
    [cosine, sine]: [f64; 2],
    yaw_rate: f64,
    pitch: &Sinusoid,
    roll: &Sinusoid,
) -> Vector {
    let (nose_down, level) = maths::sin_cos(pitch.value / TAU);
    [
        -sine * pitch.rate + cosine * level * roll.rate,
        cosine * pitch.rate + sine * level * roll.rate,
        yaw_rate - nose_down * roll.rate,
    ]
}

const REFERENCE_LATITUDE: f64 = 34.5845;
const REFERENCE_LONGITUDE: f64 = -117.359;
const METRES_PER_DEGREE_NORTH: f64 = 110_932.946;
const METRES_PER_DEGREE_EAST: f64 = 91_747.189;

const GPS_COVARIANCE: [f32; 16] = [
    0.04, 0.0, 0.0, 0.0, //
    0.0, 0.04, 0.0, 0.0, //
    0.0, 0.0, 0.09, 0.0, //
    0.0, 0.0, 0.0, 0.0001,
];

/// Latitude and longitude in degrees, elevation in metres, and the angle from north to local y.
fn geodetic([x, y, z]: Vector, lap: f64) -> [f64; 4] {
    // The local frame drifts slowly relative to the globe, as dead reckoning does.
    let theta = 0.35 + Sinusoid::at(lap, 0.002, 1.0).value;
    let (sine, cosine) = maths::sin_cos(theta / TAU);
    let (east, north) = (cosine * x + sine * y, cosine * y - sine * x);
    [
        REFERENCE_LATITUDE + north / METRES_PER_DEGREE_NORTH,
        REFERENCE_LONGITUDE + east / METRES_PER_DEGREE_EAST,
        872.0 + z,
        theta,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn difference(before: Vector, after: Vector, seconds: f64) -> Vector {
        [0, 1, 2].map(|axis| (after[axis] - before[axis]) / seconds)
    }

    fn assert_near(found: Vector, expected: Vector, tolerance: f64) {
        for axis in 0..3 {
            let error = (found[axis] - expected[axis]).abs();
            assert!(error < tolerance, "{found:?} is not {expected:?}");
        }
    }

    #[test]
    fn velocity_and_acceleration_are_the_derivatives_of_position() {
        for second in 0..160 {
            let [before, now, after] =
                [0, 1, 2].map(|step| Pose::at(second * 1_000_000 + step * 1_000));
            assert_near(difference(before.position, after.position, 0.002), now.velocity, 1e-4);
            assert_near(difference(before.velocity, after.velocity, 0.002), now.acceleration, 1e-3);
        }
    }

    #[test]
    fn the_vehicle_faces_where_it_goes() {
        for second in 0..160 {
            let pose = Pose::at(second * 1_000_000);
            let ahead = maths::rotate(&pose.rotation, [1.0, 0.0, 0.0]);
            let sideways = ahead[0] * pose.velocity[1] - ahead[1] * pose.velocity[0];
            assert!(sideways.abs() < 0.01, "slides at {second} s");
        }
    }

    #[test]
    fn orientation_is_a_unit_quaternion() {
        for step in 0..1_600 {
            let norm: f64 = Pose::at(step * 100_000).orientation.iter().map(|q| q * q).sum();
            assert!((norm - 1.0).abs() < 1e-14);
        }
    }

    #[test]
    fn a_turn_follows_the_rotation_rate() {
        for second in 0..160 {
            let [before, now, after] =
                [0, 1, 2].map(|step| Pose::at(second * 1_000_000 + step * 1_000));
            let ahead = |pose: &Pose| maths::rotate(&pose.rotation, [1.0, 0.0, 0.0]);
            let [x, y, z] = ahead(&now);
            let [p, q, r] = now.rotation_rate;
            let expected = [q * z - r * y, r * x - p * z, p * y - q * x];
            assert_near(difference(ahead(&before), ahead(&after), 0.002), expected, 1e-5);
        }
    }

    #[test]
    fn the_course_stays_inside_its_box() {
        for second in 0..160 {
            let pose = Pose::at(second * 1_000_000);
            let [latitude, longitude, ..] = geodetic(pose.position, pose.lap);
            assert!((34.579..34.590).contains(&latitude), "latitude {latitude}");
            assert!((-117.370..-117.348).contains(&longitude), "longitude {longitude}");
        }
    }
}
