//! The world the vehicle drives through: flat ground, a barrier on either side, parked cars.
//!
//! It answers where a ray ends. What a sensor makes of that is the sensor's business.

use super::maths::{self, Vector};
use super::pose::{HALF_LENGTH, HALF_WIDTH, Pose};

/// Farther than any sensor sees, in metres.
pub(super) const NOWHERE: f64 = 10_000.0;

const BARRIER_HEIGHT: f64 = 2.35;
const CAR_HEIGHT: f64 = 1.5;
const CAR_RADIUS: f64 = 1.1;
const CARS: i32 = 32;

const OUTER: Ellipse = Ellipse::around_course(11.0);
const INNER: Ellipse = Ellipse::around_course(-8.0);

/// What a ray ends at.
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

/// A ray as far as the ground plan sees it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Bearing {
    /// Unit vector in the plane.
    pub(super) towards: [f64; 2],
    /// Metres to the nearer barrier.
    pub(super) barrier: f64,
    /// Metres to the nearest parked car, or [`NOWHERE`].
    pub(super) car: f64,
}

/// The part of the scene that matters at one place on the course.
#[derive(Debug, Clone)]
pub(super) struct Scene {
    eye: Vector,
    cars: [[f64; 2]; 4],
}

impl Scene {
    /// The scene around `pose`, seen from `eye` in the local frame.
    pub(super) fn from(pose: &Pose, eye: Vector) -> Self {
        let behind = (pose.lap * f64::from(CARS)).floor() as i32 - 1;
        Self { eye, cars: [0, 1, 2, 3].map(|next| parked_car(behind + next)) }
    }

    /// What lies in the direction of the unit vector `towards`.
    pub(super) fn bearing(&self, towards: [f64; 2]) -> Bearing {
        let eye = [self.eye[0], self.eye[1]];
        let barrier = OUTER.far_side(eye, towards).min(INNER.near_side(eye, towards));
        let car = self.cars.iter().map(|&car| car_distance(eye, towards, car));
        Bearing { towards, barrier, car: car.fold(NOWHERE, f64::min) }
    }

    /// Follows the ray on `bearing` that gains `climb` metres of height per metre of its length,
    /// of which `level` metres are along the ground.
    pub(super) fn follow(&self, bearing: &Bearing, level: f64, climb: f64) -> Hit {
        let height = self.eye[2];
        let ground = if climb < -0.001 { height / -climb } else { NOWHERE };
        let (car, barrier) = (bearing.car / level, bearing.barrier / level);
        if car < ground && height + car * climb < CAR_HEIGHT {
            Hit { range: car, surface: Surface::Car }
        } else if ground < barrier {
            Hit { range: ground, surface: self.pavement(bearing, ground * level) }
        } else if height + barrier * climb < BARRIER_HEIGHT {
            Hit { range: barrier, surface: Surface::Barrier }
        } else {
            Hit { range: NOWHERE, surface: Surface::Sky }
        }
    }

    /// Follows the ray along the unit vector `ray`.
    pub(super) fn cast(&self, [x, y, z]: Vector) -> Hit {
        let level = (x * x + y * y).sqrt().max(1e-6);
        self.follow(&self.bearing([x / level, y / level]), level, z)
    }

    /// The ground `distance` metres away on `bearing`.
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

/// An ellipse about the origin, by the squares of its inverse half axes.
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

    /// Where a ray from inside leaves.
    fn far_side(&self, from: [f64; 2], towards: [f64; 2]) -> f64 {
        let (square, half, rest) = self.quadratic(from, towards);
        ((half * half - square * rest).max(0.0).sqrt() - half) / square
    }

    /// Where a ray from outside enters, or [`NOWHERE`].
    fn near_side(&self, from: [f64; 2], towards: [f64; 2]) -> f64 {
        let (square, half, rest) = self.quadratic(from, towards);
        let discriminant = half * half - square * rest;
        if half > 0.0 || discriminant < 0.0 {
            return NOWHERE;
        }
        (-half - discriminant.sqrt()) / square
    }

    /// `square·t² + 2·half·t + rest`, which is 0 where the ray meets the ellipse.
    fn quadratic(&self, [x, y]: [f64; 2], [dx, dy]: [f64; 2]) -> (f64, f64, f64) {
        (self.level(dx, dy), x * dx * self.x + y * dy * self.y, self.level(x, y) - 1.0)
    }
}

/// The middle of a parked car; they stand along the outer edge of the road.
fn parked_car(number: i32) -> [f64; 2] {
    let (sine, cosine) = maths::sin_cos(f64::from(number) / f64::from(CARS));
    [(HALF_LENGTH + 7.0) * cosine, (HALF_WIDTH + 7.0) * sine]
}

fn car_distance(eye: [f64; 2], [dx, dy]: [f64; 2], car: [f64; 2]) -> f64 {
    let (x, y) = (car[0] - eye[0], car[1] - eye[1]);
    let (ahead, aside) = (x * dx + y * dy, x * dy - y * dx);
    let depth = CAR_RADIUS * CAR_RADIUS - aside * aside;
    if ahead > 0.0 && depth > 0.0 { ahead - depth.sqrt() } else { NOWHERE }
}
