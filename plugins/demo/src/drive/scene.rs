//! The world the vehicle drives through: flat ground, a barrier on either side, parked cars.
//!
//! Finds where a ray ends. How a sensor measures that is up to the sensor.

use super::maths::{self, Vector};
use super::pose::{HALF_LENGTH, HALF_WIDTH, Pose};

/// Farther than any sensor sees, in metres.
pub(super) const OUT_OF_RANGE: f64 = 10_000.0;

const BARRIER_HEIGHT: f64 = 2.35;
const CAR_HEIGHT: f64 = 1.5;
const CAR_RADIUS: f64 = 1.1;
const CARS: i32 = 32;

const OUTER: Ellipse = Ellipse::around_course(11.0);
const INNER: Ellipse = Ellipse::around_course(-8.0);

/// The surface a ray hits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Surface {
    Asphalt,
    Paint,
    Dirt,
    Barrier,
    Car,
    Sky,
}

/// The end of a ray.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hit {
    pub(super) range: f64,
    pub(super) surface: Surface,
}

/// A ray projected onto the ground plane.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Bearing {
    /// Unit vector in the plane.
    pub(super) towards: [f64; 2],
    /// Metres to the nearer barrier.
    pub(super) barrier: f64,
    /// Metres to the nearest parked car, or [`OUT_OF_RANGE`].
    pub(super) car: f64,
}

/// The part of the scene that is visible from one place on the course.
#[derive(Debug, Clone)]
pub(super) struct Scene {
    eye: Vector,
    cars: [[f64; 2]; 4],
}

impl Scene {
    /// The scene around `pose`, seen from `eye` in the local frame.
    pub(super) fn around(pose: &Pose, eye: Vector) -> Self {
        let behind = (pose.lap * f64::from(CARS)).floor() as i32 - 1;
        Self { eye, cars: [0, 1, 2, 3].map(|next| parked_car(behind + next)) }
    }

    /// Distances to the barriers and cars in the direction of the unit vector `towards`.
    pub(super) fn bearing(&self, towards: [f64; 2]) -> Bearing {
        let eye = [self.eye[0], self.eye[1]];
        let barrier = OUTER.far_side(eye, towards).min(INNER.near_side(eye, towards));
        let car = self.cars.iter().map(|&car| car_distance(eye, towards, car));
        Bearing { towards, barrier, car: car.fold(OUT_OF_RANGE, f64::min) }
    }

    /// Follows the ray on `bearing` that gains `climb` metres of height per metre of its length.
    /// `level` is the length of its projection onto the ground, per metre.
    pub(super) fn follow(&self, bearing: &Bearing, level: f64, climb: f64) -> Hit {
        let height = self.eye[2];
        let ground = if climb < -0.001 { height / -climb } else { OUT_OF_RANGE };
        let (car, barrier) = (bearing.car / level, bearing.barrier / level);
        if car < ground && height + car * climb < CAR_HEIGHT {
            Hit { range: car, surface: Surface::Car }
        } else if ground < barrier {
            Hit { range: ground, surface: self.pavement(bearing, ground * level) }
        } else if height + barrier * climb < BARRIER_HEIGHT {
            Hit { range: barrier, surface: Surface::Barrier }
        } else {
            Hit { range: OUT_OF_RANGE, surface: Surface::Sky }
        }
    }

    /// Follows the ray along the unit vector `ray`.
    pub(super) fn cast(&self, [x, y, z]: Vector) -> Hit {
        let level = (x * x + y * y).sqrt().max(1e-6);
        self.follow(&self.bearing([x / level, y / level]), level, z)
    }

    /// The ground surface `distance` metres away on `bearing`.
    fn pavement(&self, bearing: &Bearing, distance: f64) -> Surface {
        let x = self.eye[0] + bearing.towards[0] * distance;
        let y = self.eye[1] + bearing.towards[1] * distance;
        let aside = (COURSE.level(x, y) - 1.0).abs();
        if aside > 0.044 {
            Surface::Dirt
        } else if (aside - 0.016).abs() < 0.0006 {
            Surface::Paint
        } else {
            Surface::Asphalt
        }
    }
}

/// An ellipse around the origin, given by the squares of its inverse semi-axes.
#[derive(Debug, Clone, Copy)]
struct Ellipse {
    x: f64,
    y: f64,
}

const COURSE: Ellipse = Ellipse::around_course(0.0);

impl Ellipse {
    const fn around_course(metres: f64) -> Self {
        let (length, width) = (HALF_LENGTH + metres, HALF_WIDTH + metres);
        Self { x: 1.0 / (length * length), y: 1.0 / (width * width) }
    }

    /// 1 on the ellipse, less inside.
    fn level(&self, x: f64, y: f64) -> f64 {
        x * x * self.x + y * y * self.y
    }

    /// The distance at which a ray from inside leaves.
    fn far_side(&self, from: [f64; 2], towards: [f64; 2]) -> f64 {
        let (square, half, rest) = self.quadratic(from, towards);
        ((half * half - square * rest).max(0.0).sqrt() - half) / square
    }

    /// The distance at which a ray from outside enters, or [`OUT_OF_RANGE`].
    fn near_side(&self, from: [f64; 2], towards: [f64; 2]) -> f64 {
        let (square, half, rest) = self.quadratic(from, towards);
        let discriminant = half * half - square * rest;
        if half > 0.0 || discriminant < 0.0 {
            return OUT_OF_RANGE;
        }
        (-half - discriminant.sqrt()) / square
    }

    /// Coefficients of `square·t² + 2·half·t + rest`, which is 0 where the ray meets the ellipse.
    fn quadratic(&self, [x, y]: [f64; 2], [dx, dy]: [f64; 2]) -> (f64, f64, f64) {
        (self.level(dx, dy), x * dx * self.x + y * dy * self.y, self.level(x, y) - 1.0)
    }
}

/// The centre of a parked car. Cars are parked along the outer edge of the road.
fn parked_car(number: i32) -> [f64; 2] {
    let (sine, cosine) = maths::sin_cos(f64::from(number) / f64::from(CARS));
    [(HALF_LENGTH + 7.0) * cosine, (HALF_WIDTH + 7.0) * sine]
}

fn car_distance(eye: [f64; 2], [dx, dy]: [f64; 2], car: [f64; 2]) -> f64 {
    let (x, y) = (car[0] - eye[0], car[1] - eye[1]);
    let (ahead, aside) = (x * dx + y * dy, x * dy - y * dx);
    let depth = CAR_RADIUS * CAR_RADIUS - aside * aside;
    if ahead > 0.0 && depth > 0.0 { ahead - depth.sqrt() } else { OUT_OF_RANGE }
}
