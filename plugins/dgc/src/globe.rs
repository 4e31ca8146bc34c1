//! Places in the local frame as places on the Earth, by a point that is known in both. Reads no events
//! but these ties, and makes no columns.
//!
//! The Earth is that of the vehicle's own viewer: a plane that touches its ellipsoid at the tie, with the
//! sines of angles as lengths. From the plane that touches WGS84 that is off by 14 cm a kilometre at the
//! course, which lies 870 m above the ellipsoid, and by the square of the distance: within 120 m of a tie, as
//! far as a Velodyne sees, by less than 2 cm, and 1.2 km from it by 20 cm.

use std::f64::consts::PI;

use sluice_core::Rows;

use crate::geometry::Quaternion;
use crate::poses::attach::Attached;
use crate::poses::{Known, Timed, doubles, finite, times};

/// The ellipsoid's radius at the equator, in metres.
const A: f64 = 6_378_135.0;
/// Its radius to the poles.
const B: f64 = 6_356_750.0;

/// How far from the equator a tie may be, in degrees: east means nothing at a pole.
const NORTHMOST: f64 = 89.9;

/// A point that is known both in the local frame and on the Earth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Tie {
    /// In nanoseconds since 1970.
    pub(crate) time: i64,
    /// In metres.
    pub(crate) local: [f64; 3],
    /// In degrees.
    pub(crate) latitude: f64,
    /// In degrees.
    pub(crate) longitude: f64,
    /// In metres.
    pub(crate) elevation: f64,
    /// From true north to the local y, clockwise, in radians.
    pub(crate) theta: f64,
}

/// A way from the local frame to the globe.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Globe {
    tie: Tie,
    sin: f64,
    cos: f64,
    /// Metres to the north for a radian of latitude.
    north: f64,
    /// Metres to the east for a radian of longitude.
    east: f64,
}

impl Globe {
    /// The way by this tie.
    pub(crate) fn new(tie: Tie) -> Self {
        let (sin, cos) = tie.theta.sin_cos();
        let (sin_lat, cos_lat) = tie.latitude.to_radians().sin_cos();
        let d = A * A * cos_lat * cos_lat + B * B * sin_lat * sin_lat;
        let (north, east) = (A * A * B * B / (d * d.sqrt()), A * A / d.sqrt() * cos_lat);
        Self { tie, sin, cos, north, east }
    }

    /// Latitude and longitude in degrees and altitude in metres of a place in the local frame; no numbers
    /// where the Earth has no such place.
    pub(crate) fn of_local(&self, [x, y, z]: [f64; 3]) -> [f64; 3] {
        let place = self.offset(x, y);
        [self.latitude(place, arc_sine), self.longitude(place, arc_sine), self.altitude(z)]
    }

    /// Appends those of places, coordinate by coordinate: exactly what [`Globe::of_local`] gives for each.
    pub(crate) fn append_all(&self, [x, y, z]: [&[f64]; 3], to: &mut [Vec<f64>; 3]) {
        let near = NEAR * self.north.min(self.east);
        let is_near = |(x, y): (&f64, &f64)| {
            (x - self.tie.local[0]).abs() + (y - self.tie.local[1]).abs() < near
        };
        // Where all are near no sine has to be looked at: the loops are plain sums.
        let is_near = x.iter().zip(y).fold(true, |all, place| all & is_near(place));
        if is_near {
            self.append_by([x, y, z], to, series)
        } else {
            self.append_by([x, y, z], to, arc_sine)
        }
    }

    #[inline]
    fn append_by(
        &self,
        [x, y, z]: [&[f64]; 3],
        [latitudes, longitudes, altitudes]: &mut [Vec<f64>; 3],
        arc: impl Fn(f64) -> f64 + Copy,
    ) {
        let offsets = || x.iter().zip(y).map(|(x, y)| self.offset(*x, *y));
        latitudes.extend(offsets().map(|offset| self.latitude(offset, arc)));
        longitudes.extend(offsets().map(|offset| self.longitude(offset, arc)));
        altitudes.extend(z.iter().map(|z| self.altitude(*z)));
    }

    /// How far to the east and to the north of the tie.
    #[inline]
    fn offset(&self, x: f64, y: f64) -> [f64; 2] {
        let (x, y) = (x - self.tie.local[0], y - self.tie.local[1]);
        [self.cos * x + self.sin * y, self.cos * y - self.sin * x]
    }

    #[inline]
    fn latitude(&self, [_, north]: [f64; 2], arc: impl Fn(f64) -> f64) -> f64 {
        in_range(self.tie.latitude + arc(north / self.north).to_degrees())
    }

    #[inline]
    fn longitude(&self, [east, _]: [f64; 2], arc: impl Fn(f64) -> f64) -> f64 {
        around(self.tie.longitude + arc(east / self.east).to_degrees())
    }

    /// The viewer adds the elevation and its local height. The elevation is that of the tie, so only what is
    /// above or below the tie comes on top of it.
    #[inline]
    fn altitude(&self, z: f64) -> f64 {
        self.tie.elevation + (z - self.tie.local[2])
    }

    /// Where the body's x points to, in degrees from true north, clockwise, from 0 to below 360.
    pub(crate) fn heading(&self, orientation: Quaternion) -> f64 {
        let [x, y, _] = orientation.rotate([1.0, 0.0, 0.0]);
        let from_north = PI / 2.0 - (y.atan2(x) - self.tie.theta);
        let degrees = from_north.to_degrees().rem_euclid(360.0);
        // A tiny negative angle is rounded up to a whole turn.
        if degrees < 360.0 { degrees } else { 0.0 }
    }
}

/// Sines up to this have their arc by the series.
const NEAR: f64 = 0.01;

/// The arc sine.
#[inline]
fn arc_sine(sine: f64) -> f64 {
    if sine.abs() < NEAR { series(sine) } else { sine.asin() }
}

/// The arc sine of what is near 0, by its series: as exact as a double is.
#[inline]
fn series(sine: f64) -> f64 {
    let square = sine * sine;
    let sum = 15.0 / 336.0 + square * (105.0 / 3456.0);
    let sum = 3.0 / 40.0 + square * sum;
    let sum = 1.0 / 6.0 + square * sum;
    sine + sine * square * sum
}

#[inline]
fn in_range(latitude: f64) -> f64 {
    if latitude.abs() <= 90.0 { latitude } else { f64::NAN }
}

#[inline]
fn around(longitude: f64) -> f64 {
    let turns = if longitude >= 180.0 { -360.0 } else { 0.0 };
    let turns = if longitude < -180.0 { 360.0 } else { turns };
    longitude + turns
}

impl Timed for Tie {
    fn time(&self) -> i64 {
        self.time
    }
}

impl Known for Tie {
    const NEEDS: &str = "`local` of 3 numbers and `lat_lon_el_theta` of 4";
    const WRONG: &str =
        "a tie to the globe with a number that is not finite, at a pole, or beyond the globe";

    fn of(rows: &Rows, timestamps: &[i64]) -> Option<Vec<Option<Self>>> {
        let locals = doubles::<3>(rows, "local")?;
        let globes = doubles::<4>(rows, "lat_lon_el_theta")?;
        let ties = times(rows, timestamps).zip(locals).zip(globes).map(|((time, local), globe)| {
            let [latitude, longitude, elevation, theta] = finite(globe?)?;
            let is_on_globe = latitude.abs() <= NORTHMOST && longitude.abs() <= 180.0;
            let local = finite(local?)?;
            is_on_globe.then_some(Self { time, local, latitude, longitude, elevation, theta })
        });
        Some(ties.collect())
    }
}

impl Attached for Tie {
    const COLUMN: &str = "sluice.tie";
    const WIDTH: usize = 7;
    const PLURAL: &str = "ties";

    fn append(&self, to: &mut Vec<f64>) {
        to.extend(self.local);
        to.extend([self.latitude, self.longitude, self.elevation, self.theta]);
    }
}

impl Tie {
    /// What [`Attached::append`] appended; its time is lost.
    pub(crate) fn of_values(values: &[f64]) -> Option<Self> {
        let [x, y, z, latitude, longitude, elevation, theta] = *values.first_chunk::<7>()?;
        Some(Self { time: 0, local: [x, y, z], latitude, longitude, elevation, theta })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const COURSE: Tie = Tie {
        time: 0,
        local: [100.0, -50.0, 7.0],
        latitude: 34.5845,
        longitude: -117.359,
        elevation: 872.0,
        theta: 0.35,
    };

    /// The viewer's direction, as it has it, but for the height.
    fn to_local(tie: &Tie, [latitude, longitude, altitude]: [f64; 3]) -> [f64; 3] {
        let phi = tie.latitude.to_radians();
        let d = A.powi(2) * phi.cos().powi(2) + B.powi(2) * phi.sin().powi(2);
        let (r_ns, r_ew) = (A.powi(2) * B.powi(2) / d.powf(1.5), A.powi(2) / d.sqrt());
        let east = (longitude - tie.longitude).to_radians().sin() * r_ew * phi.cos();
        let north = (latitude - tie.latitude).to_radians().sin() * r_ns;
        let (sin, cos) = tie.theta.sin_cos();
        [
            cos * east - sin * north + tie.local[0],
            sin * east + cos * north + tie.local[1],
            altitude - tie.elevation + tie.local[2],
        ]
    }

    /// A place of WGS84 as metres east, north and up of another, by way of the Earth's middle.
    fn wgs84([lat, lon, height]: [f64; 3], [lat0, lon0, height0]: [f64; 3]) -> [f64; 3] {
        let earth = |lat: f64, lon: f64, height: f64| {
            let (a, f) = (6_378_137.0_f64, 1.0 / 298.257_223_563);
            let e2 = f * (2.0 - f);
            let ((sp, cp), (sl, cl)) = (lat.to_radians().sin_cos(), lon.to_radians().sin_cos());
            let n = a / (1.0 - e2 * sp * sp).sqrt();
            [(n + height) * cp * cl, (n + height) * cp * sl, (n * (1.0 - e2) + height) * sp]
        };
        let (there, here) = (earth(lat, lon, height), earth(lat0, lon0, height0));
        let [x, y, z] = [there[0] - here[0], there[1] - here[1], there[2] - here[2]];
        let ((sp, cp), (sl, cl)) = (lat0.to_radians().sin_cos(), lon0.to_radians().sin_cos());
        [-sl * x + cl * y, -sp * cl * x - sp * sl * y + cp * z, cp * cl * x + cp * sl * y + sp * z]
    }

    fn turn(degrees: f64) -> Quaternion {
        Quaternion::from_roll_pitch_yaw_degrees([0.0, 0.0, degrees])
    }

    #[test]
    fn the_tie_itself_is_where_it_says() {
        assert_eq!(Globe::new(COURSE).of_local(COURSE.local), [34.5845, -117.359, 872.0]);
    }

    #[test]
    fn a_kilometre_to_the_north_and_one_to_the_east_are_as_many_degrees_as_by_hand() {
        // D = 40592861304357.95 m², so that r_ns = 6355989.640829 m and r_ew cos φ0 = 5256726.703925 m.
        let tie = Tie { theta: 0.0, local: [0.0; 3], ..COURSE };
        let [latitude, longitude, altitude] = Globe::new(tie).of_local([1000.0, 1000.0, 5.0]);
        assert!((latitude - 34.593_514_454_551_88).abs() < 1e-12, "{latitude:.15}");
        assert!((longitude - -117.348_100_483_421_39).abs() < 1e-12, "{longitude:.15}");
        assert_eq!(altitude, 877.0);
    }

    #[test]
    fn theta_turns_the_local_y_clockwise_from_north() {
        // Turned a quarter, its y points east, so that its x points south.
        let tie = Tie { theta: PI / 2.0, local: [0.0; 3], ..COURSE };
        let [latitude, longitude, _] = Globe::new(tie).of_local([1000.0, 0.0, 0.0]);
        assert!(latitude < tie.latitude - 0.009 && (longitude - tie.longitude).abs() < 1e-12);
    }

    #[test]
    fn headings_count_from_north_and_clockwise() {
        let heading = |theta: f64, yaw| Globe::new(Tie { theta, ..COURSE }).heading(turn(yaw));
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(near(heading(0.0, 90.0), 0.0) || near(heading(0.0, 90.0), 360.0));
        assert!(near(heading(0.0, 0.0), 90.0) && near(heading(0.0, 180.0), 270.0));
        assert!(near(heading(0.25, 0.0), 90.0 + 0.25_f64.to_degrees()));
    }

    #[test]
    fn places_that_the_earth_does_not_have_are_no_numbers() {
        let globe = Globe::new(COURSE);
        assert!(globe.of_local([f64::NAN, 0.0, 0.0])[0].is_nan());
        assert!(globe.of_local([1e9, 0.0, 0.0])[0..2].iter().all(|degrees| degrees.is_nan()));
        let north = Globe::new(Tie { latitude: 89.9, theta: 0.0, ..COURSE });
        assert!(north.of_local([100.0, 20_000.0, 0.0])[0].is_nan());
    }

    #[test]
    fn longitudes_go_on_behind_the_date_line() {
        let globe = Globe::new(Tie { longitude: 179.999, theta: 0.0, ..COURSE });
        let longitude = globe.of_local([COURSE.local[0] + 1000.0, 0.0, 0.0])[1];
        assert!((-180.0..-179.98).contains(&longitude), "{longitude}");
    }

    /// How far, in metres, places so far from a tie at the course are from where WGS84 has them.
    fn off_from_wgs84(x: f64, y: f64) -> f64 {
        let tie = Tie { theta: 0.0, local: [0.0; 3], ..COURSE };
        let here = [tie.latitude, tie.longitude, tie.elevation];
        let off = [[x, y], [-x, y], [x, -y], [0.0, y], [x, 0.0]].map(|[x, y]| {
            let [east, north, _] = wgs84(Globe::new(tie).of_local([x, y, 0.0]), here);
            (east - x).hypot(north - y)
        });
        off.into_iter().fold(0.0, f64::max)
    }

    #[test]
    fn what_is_seen_is_off_from_wgs84_by_centimetres_and_the_course_by_decimetres() {
        let (seen, course) = (off_from_wgs84(85.0, 85.0), off_from_wgs84(1000.0, 600.0));
        assert!((0.01..0.02).contains(&seen) && (0.1..0.21).contains(&course), "{seen} {course}");
    }

    proptest! {
        #[test]
        fn there_and_back_is_where_it_was(
            (latitude, longitude) in (-80.0..80.0, -179.0..179.0),
            (theta, elevation) in (-7.0..7.0, -100.0..5e3),
            local in prop::array::uniform3(-1e4..1e4),
            offset in prop::array::uniform3(-3e4..3e4),
        ) {
            let tie = Tie { time: 0, local, latitude, longitude, elevation, theta };
            let place = [0, 1, 2].map(|at| local[at] + offset[at]);
            let globe = Globe::new(tie).of_local(place);
            prop_assume!((globe[1] - longitude).abs() < 180.0);
            let back = to_local(&tie, globe);
            // A double of 180 degrees counts steps of 2.8e-14 degrees, 3 nanometres.
            prop_assert!(place.iter().zip(back).all(|(a, b)| (a - b).abs() < 2e-8), "{back:?}");
            let again = Globe::new(tie).of_local(back);
            prop_assert!(again.iter().zip(globe).all(|(a, b)| (a - b).abs() < 1e-9));
        }

        #[test]
        fn many_places_are_where_each_is(
            tie in (prop::array::uniform2(-80.0..80.0), -7.0..7.0),
            places in prop::collection::vec(prop::array::uniform3(-1e5..1e5), 0..20),
        ) {
            let ([latitude, longitude], theta) = tie;
            let globe = Globe::new(Tie { latitude, longitude, theta, ..COURSE });
            let axis = |at: usize| places.iter().map(|place| place[at]).collect::<Vec<f64>>();
            let mut found = [(); 3].map(|()| Vec::new());
            globe.append_all([&axis(0), &axis(1), &axis(2)], &mut found);
            for (at, place) in places.iter().enumerate() {
                let one = globe.of_local(*place);
                prop_assert_eq!(one, [found[0][at], found[1][at], found[2][at]]);
            }
        }

        #[test]
        fn the_series_is_the_arc_sine(sine in -0.0105..0.0105) {
            prop_assert!((arc_sine(sine) - f64::asin(sine)).abs() <= 2.0 * f64::EPSILON * sine.abs());
        }
    }
}
