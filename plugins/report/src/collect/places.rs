//! Where things were: at most one place per bucket of time.

use super::grid::{BucketValue, BucketWidth, Buckets};
use crate::{FixFigures, Point, TrackFigures};

/// The first place of each bucket: metres, or degrees.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Places(Buckets<Place>);

#[derive(Clone, Copy, Debug, PartialEq)]
struct Place {
    time: i64,
    at: [f64; 2],
}

impl BucketValue for Place {
    fn append(&mut self, next: Self) {
        if next.time < self.time {
            *self = next;
        }
    }
}

impl Places {
    pub(super) fn add(&mut self, time: i64, at: [f64; 2], width: BucketWidth) {
        self.0.add(width.bucket(time), Place { time, at });
    }

    pub(super) fn append(&mut self, next: &Self) {
        self.0.append(&next.0);
    }

    pub(super) fn widen(&mut self, from: BucketWidth, to: BucketWidth) {
        self.0.widen(from, to);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().next().is_none()
    }

    /// The places as a way in metres.
    pub(super) fn track(&self, channel: String) -> TrackFigures {
        let point = |place: &Place| Point { time: place.time, x: place.at[0], y: place.at[1] };
        let points: Vec<Point> = self.0.iter().map(point).collect();
        let (mut length, mut greatest_speed) = (0.0, 0.0f64);
        for pair in points.windows(2) {
            let [from, to] = pair else { continue };
            let metres = (to.x - from.x).hypot(to.y - from.y);
            let seconds = to.time.abs_diff(from.time) as f64 / 1e9;
            length += metres;
            greatest_speed = greatest_speed.max(metres / seconds);
        }
        TrackFigures { channel, points, length, greatest_speed }
    }

    /// The places as degrees of longitude and latitude, and in metres on the plane that touches the
    /// globe at the first.
    pub(super) fn fixes(&self, channel: String) -> FixFigures {
        let positions: Vec<[f64; 2]> = self.0.iter().map(|place| place.at).collect();
        let origin = positions.first().copied().unwrap_or_default();
        let radii = Radii::at_latitude(origin[1].to_radians());
        let point = |place: &Place| {
            let east = (place.at[0] - origin[0]).to_radians();
            let north = (place.at[1] - origin[1]).to_radians();
            Point { time: place.time, x: east * radii.of_parallel, y: north * radii.of_meridian }
        };
        FixFigures { channel, points: self.0.iter().map(point).collect(), positions }
    }
}

/// Radii of curvature of WGS 84, in metres.
struct Radii {
    of_parallel: f64,
    of_meridian: f64,
}

impl Radii {
    fn at_latitude(latitude: f64) -> Self {
        const EQUATOR: f64 = 6_378_137.0;
        const ECCENTRICITY_SQUARED: f64 = 0.006_694_379_990_141_32;
        let (sin, cos) = latitude.sin_cos();
        let root = (1.0 - ECCENTRICITY_SQUARED * sin * sin).sqrt();
        Self {
            of_parallel: EQUATOR / root * cos,
            of_meridian: EQUATOR * (1.0 - ECCENTRICITY_SQUARED) / (root * root * root),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_has_its_length_and_speed() {
        let mut places = Places::default();
        let width = BucketWidth::for_times(0, 3);
        places.add(2, [3.0, 4.0], width);
        places.add(0, [0.0, 0.0], width);
        let track = places.track("P".into());
        assert_eq!((track.length, track.greatest_speed), (5.0, 2.5e9));
        assert_eq!(track.points[0].time, 0);
    }

    #[test]
    fn a_minute_of_latitude_is_a_nautical_mile() {
        let mut places = Places::default();
        let width = BucketWidth::for_times(0, 3);
        places.add(0, [8.0, 45.0], width);
        places.add(1, [8.0, 45.0 + 1.0 / 60.0], width);
        let fixes = places.fixes("G".into());
        assert!((fixes.points[1].y - 1_852.0).abs() < 1.0, "{fixes:?}");
    }
}
