//! Converts positions in the local frame to latitude, longitude and altitude, by a point that is
//! known in both. Reads only the GPS references, and builds no columns.
//!
//! The model is that of the vehicle's own viewer: a plane tangent to its ellipsoid at the
//! reference, with the sines of angles as lengths. Compared with the tangent plane of WGS84 it is
//! off by 14 cm per kilometre at the course, which is 870 m above the ellipsoid, and by the square
//! of the distance: by less than 2 cm within 120 m of the reference, which is the range of a
//! Velodyne, and by 20 cm at 1.2 km.

use std::f64::consts::PI;

use sluice_model::Rows;

use crate::geometry::Quaternion;
use crate::poses::attach::AttachedValue;
use crate::poses::{ReadFromRows, Timestamped, double_lists, finite, row_times};

/// Equatorial radius of the ellipsoid, in metres.
const A: f64 = 6_378_135.0;
/// Polar radius, in metres.
const B: f64 = 6_356_750.0;

/// Maximum latitude of a reference, in degrees: east is undefined at the poles.
const MAX_LATITUDE: f64 = 89.9;

/// A point that is known both in the local frame and on the globe.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct GpsReference {
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
    /// Angle from true north to the local y axis, clockwise, in radians.
    pub(crate) theta: f64,
}

/// A projection from the local frame to the globe.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GlobeProjection {
    reference: GpsReference,
    sin: f64,
    cos: f64,
    /// Metres per radian of latitude.
    north: f64,
    /// Metres per radian of longitude.
    east: f64,
}

impl GlobeProjection {
    /// The projection around this reference.
    pub(crate) fn new(reference: GpsReference) -> Self {
        let (sin, cos) = reference.theta.sin_cos();
        let (sin_lat, cos_lat) = reference.latitude.to_radians().sin_cos();
        let d = A * A * cos_lat * cos_lat + B * B * sin_lat * sin_lat;
        let (north, east) = (A * A * B * B / (d * d.sqrt()), A * A / d.sqrt() * cos_lat);
        Self { reference, sin, cos, north, east }
    }

    /// Latitude and longitude in degrees and altitude in metres of a local position. NaN outside
    /// the valid range.
    pub(crate) fn geodetic(&self, [x, y, z]: [f64; 3]) -> [f64; 3] {
        let position = self.offset(x, y);
        [self.latitude(position, arc_sine), self.longitude(position, arc_sine), self.altitude(z)]
    }

    /// Appends the coordinates of many positions. Bit-identical to [`GlobeProjection::geodetic`].
    pub(crate) fn append_all(&self, [x, y, z]: [&[f64]; 3], to: &mut [Vec<f64>; 3]) {
        let near = SERIES_LIMIT * self.north.min(self.east);
        let is_near = |(x, y): (&f64, &f64)| {
            (x - self.reference.local[0]).abs() + (y - self.reference.local[1]).abs() < near
        };
        // If all are near, the loops need no branch per point.
        let is_near = x.iter().zip(y).fold(true, |all, position| all & is_near(position));
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

    /// Offset from the reference: metres east and north.
    #[inline]
    fn offset(&self, x: f64, y: f64) -> [f64; 2] {
        let (x, y) = (x - self.reference.local[0], y - self.reference.local[1]);
        [self.cos * x + self.sin * y, self.cos * y - self.sin * x]
    }

    #[inline]
    fn latitude(&self, [_, north]: [f64; 2], arc: impl Fn(f64) -> f64) -> f64 {
        valid_latitude(self.reference.latitude + arc(north / self.north).to_degrees())
    }

    #[inline]
    fn longitude(&self, [east, _]: [f64; 2], arc: impl Fn(f64) -> f64) -> f64 {
        wrap_longitude(self.reference.longitude + arc(east / self.east).to_degrees())
    }

    /// The dataset's viewer adds the elevation and the local height. The elevation is that of the
    /// reference, so only the height above the reference is added here.
    #[inline]
    fn altitude(&self, z: f64) -> f64 {
        self.reference.elevation + (z - self.reference.local[2])
    }

    /// Direction of the body's x axis, in degrees from true north, clockwise, from 0 to below 360.
    pub(crate) fn heading(&self, orientation: Quaternion) -> f64 {
        let [x, y, _] = orientation.rotate([1.0, 0.0, 0.0]);
        let from_north = PI / 2.0 - (y.atan2(x) - self.reference.theta);
        let degrees = from_north.to_degrees().rem_euclid(360.0);
        // A tiny negative angle rounds up to a full turn.
        if degrees < 360.0 { degrees } else { 0.0 }
    }
}

/// Sines up to this use the series.
const SERIES_LIMIT: f64 = 0.01;

/// The arc sine.
#[inline]
fn arc_sine(sine: f64) -> f64 {
    if sine.abs() < SERIES_LIMIT { series(sine) } else { sine.asin() }
}

/// The arc sine near 0 by its Taylor series, exact to double precision.
#[inline]
fn series(sine: f64) -> f64 {
    let square = sine * sine;
    let sum = 15.0 / 336.0 + square * (105.0 / 3456.0);
    let sum = 3.0 / 40.0 + square * sum;
    let sum = 1.0 / 6.0 + square * sum;
    sine + sine * square * sum
}

#[inline]
fn valid_latitude(latitude: f64) -> f64 {
    if latitude.abs() <= 90.0 { latitude } else { f64::NAN }
}

#[inline]
fn wrap_longitude(longitude: f64) -> f64 {
    let turns = if longitude >= 180.0 { -360.0 } else { 0.0 };
    let turns = if longitude < -180.0 { 360.0 } else { turns };
    longitude + turns
}

impl Timestamped for GpsReference {
    fn time(&self) -> i64 {
        self.time
    }
}

impl ReadFromRows for GpsReference {
    const REQUIRED_FIELDS: &str = "`local` (3 numbers) and `lat_lon_el_theta` (4 numbers)";
    const INVALID: &str =
        "GPS references with a number that is not finite, at a pole, or out of range";

    fn read_rows(rows: &Rows, timestamps: &[i64]) -> Option<Vec<Option<Self>>> {
        let locals = double_lists::<3>(rows, "local")?;
        let globes = double_lists::<4>(rows, "lat_lon_el_theta")?;
        let references =
            row_times(rows, timestamps).zip(locals).zip(globes).map(|((time, local), globe)| {
                let [latitude, longitude, elevation, theta] = finite(globe?)?;
                let is_on_globe = latitude.abs() <= MAX_LATITUDE && longitude.abs() <= 180.0;
                let local = finite(local?)?;
                is_on_globe.then_some(Self { time, local, latitude, longitude, elevation, theta })
            });
        Some(references.collect())
    }
}

impl AttachedValue for GpsReference {
    const COLUMN: &str = "sluice.tie";
    const WIDTH: usize = 7;
    const PLURAL: &str = "GPS references";

    fn append(&self, to: &mut Vec<f64>) {
        to.extend(self.local);
        to.extend([self.latitude, self.longitude, self.elevation, self.theta]);
    }
}

impl GpsReference {
    /// Parses the numbers of [`AttachedValue::append`]. The time is lost.
    pub(crate) fn from_values(values: &[f64]) -> Option<Self> {
        let [x, y, z, latitude, longitude, elevation, theta] = *values.first_chunk::<7>()?;
        Some(Self { time: 0, local: [x, y, z], latitude, longitude, elevation, theta })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const COURSE: GpsReference = GpsReference {
        time: 0,
        local: [100.0, -50.0, 7.0],
        latitude: 34.5845,
        longitude: -117.359,
        elevation: 872.0,
        theta: 0.35,
    };

    /// The inverse as in the dataset's viewer, except for the height.
    fn to_local(reference: &GpsReference, [latitude, longitude, altitude]: [f64; 3]) -> [f64; 3] {
        let phi = reference.latitude.to_radians();
        let d = A.powi(2) * phi.cos().powi(2) + B.powi(2) * phi.sin().powi(2);
        let (r_ns, r_ew) = (A.powi(2) * B.powi(2) / d.powf(1.5), A.powi(2) / d.sqrt());
        let east = (longitude - reference.longitude).to_radians().sin() * r_ew * phi.cos();
        let north = (latitude - reference.latitude).to_radians().sin() * r_ns;
        let (sin, cos) = reference.theta.sin_cos();
        [
            cos * east - sin * north + reference.local[0],
            sin * east + cos * north + reference.local[1],
            altitude - reference.elevation + reference.local[2],
        ]
    }

    /// A WGS84 position in metres east, north and up of another, computed through geocentric
    /// coordinates.
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
    fn the_reference_itself_is_at_its_own_position() {
        assert_eq!(GlobeProjection::new(COURSE).geodetic(COURSE.local), [34.5845, -117.359, 872.0]);
    }

    #[test]
    fn a_kilometre_to_the_north_and_one_to_the_east_are_as_many_degrees_as_by_hand() {
        // D = 40592861304357.95 m², so that r_ns = 6355989.640829 m and r_ew cos φ0 =
        // 5256726.703925 m.
        let reference = GpsReference { theta: 0.0, local: [0.0; 3], ..COURSE };
        let [latitude, longitude, altitude] =
            GlobeProjection::new(reference).geodetic([1000.0, 1000.0, 5.0]);
        assert!((latitude - 34.593_514_454_551_88).abs() < 1e-12, "{latitude:.15}");
        assert!((longitude - -117.348_100_483_421_39).abs() < 1e-12, "{longitude:.15}");
        assert_eq!(altitude, 877.0);
    }

    #[test]
    fn theta_turns_the_local_y_clockwise_from_north() {
        // Turned by a quarter: y points east and x south.
        let reference = GpsReference { theta: PI / 2.0, local: [0.0; 3], ..COURSE };
        let [latitude, longitude, _] = GlobeProjection::new(reference).geodetic([1000.0, 0.0, 0.0]);
        assert!(
            latitude < reference.latitude - 0.009
                && (longitude - reference.longitude).abs() < 1e-12
        );
    }

    #[test]
    fn headings_count_from_north_and_clockwise() {
        let heading = |theta: f64, yaw| {
            GlobeProjection::new(GpsReference { theta, ..COURSE }).heading(turn(yaw))
        };
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(near(heading(0.0, 90.0), 0.0) || near(heading(0.0, 90.0), 360.0));
        assert!(near(heading(0.0, 0.0), 90.0) && near(heading(0.0, 180.0), 270.0));
        assert!(near(heading(0.25, 0.0), 90.0 + 0.25_f64.to_degrees()));
    }

    #[test]
    fn positions_out_of_range_are_nan() {
        let globe = GlobeProjection::new(COURSE);
        assert!(globe.geodetic([f64::NAN, 0.0, 0.0])[0].is_nan());
        assert!(globe.geodetic([1e9, 0.0, 0.0])[0..2].iter().all(|degrees| degrees.is_nan()));
        let north = GlobeProjection::new(GpsReference { latitude: 89.9, theta: 0.0, ..COURSE });
        assert!(north.geodetic([100.0, 20_000.0, 0.0])[0].is_nan());
    }

    #[test]
    fn longitudes_wrap_at_the_date_line() {
        let globe = GlobeProjection::new(GpsReference { longitude: 179.999, theta: 0.0, ..COURSE });
        let longitude = globe.geodetic([COURSE.local[0] + 1000.0, 0.0, 0.0])[1];
        assert!((-180.0..-179.98).contains(&longitude), "{longitude}");
    }

    /// The distance in metres between our positions and those of WGS84, near a reference at the
    /// course.
    fn off_from_wgs84(x: f64, y: f64) -> f64 {
        let reference = GpsReference { theta: 0.0, local: [0.0; 3], ..COURSE };
        let here = [reference.latitude, reference.longitude, reference.elevation];
        let off = [[x, y], [-x, y], [x, -y], [0.0, y], [x, 0.0]].map(|[x, y]| {
            let [east, north, _] =
                wgs84(GlobeProjection::new(reference).geodetic([x, y, 0.0]), here);
            (east - x).hypot(north - y)
        });
        off.into_iter().fold(0.0, f64::max)
    }

    #[test]
    fn the_error_from_wgs84_is_centimetres_in_sensor_range_and_decimetres_on_the_course() {
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
            let reference = GpsReference { time: 0, local, latitude, longitude, elevation, theta };
            let position = [0, 1, 2].map(|at| local[at] + offset[at]);
            let globe = GlobeProjection::new(reference).geodetic(position);
            prop_assume!((globe[1] - longitude).abs() < 180.0);
            let back = to_local(&reference, globe);
            // At 180 degrees a double has steps of 2.8e-14 degrees, 3 nanometres.
            prop_assert!(position.iter().zip(back).all(|(a, b)| (a - b).abs() < 2e-8), "{back:?}");
            let again = GlobeProjection::new(reference).geodetic(back);
            prop_assert!(again.iter().zip(globe).all(|(a, b)| (a - b).abs() < 1e-9));
        }

        #[test]
        fn append_all_matches_geodetic(
            reference in (prop::array::uniform2(-80.0..80.0), -7.0..7.0),
            places in prop::collection::vec(prop::array::uniform3(-1e5..1e5), 0..20),
        ) {
            let ([latitude, longitude], theta) = reference;
            let globe = GlobeProjection::new(GpsReference { latitude, longitude, theta, ..COURSE });
            let axis = |at: usize| places.iter().map(|position| position[at]).collect::<Vec<f64>>();
            let mut found = [(); 3].map(|()| Vec::new());
            globe.append_all([&axis(0), &axis(1), &axis(2)], &mut found);
            for (at, position) in places.iter().enumerate() {
                let one = globe.geodetic(*position);
                prop_assert_eq!(one, [found[0][at], found[1][at], found[2][at]]);
            }
        }

        #[test]
        fn the_series_is_the_arc_sine(sine in -0.0105..0.0105) {
            let error = (arc_sine(sine) - f64::asin(sine)).abs();
            prop_assert!(error <= 2.0 * f64::EPSILON * sine.abs());
        }
    }
}
