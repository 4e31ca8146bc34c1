//! Points, column by column. Knows neither where they come from nor how files hold them.

use std::ops::Range;

/// Some points, all columns equally long.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Points {
    /// The coordinates.
    pub(crate) place: Vec<[f64; 3]>,
    /// How strongly they reflect.
    pub(crate) intensity: Vec<u16>,
    /// The laser that saw them.
    pub(crate) laser: Vec<u16>,
    /// When, in nanoseconds since 1970.
    pub(crate) time: Vec<i64>,
    /// Red, green and blue; black where there is no colour.
    pub(crate) colour: Vec<[u16; 3]>,
}

impl Points {
    /// About how many bytes a point takes here.
    pub(crate) const BYTES: usize = 24 + 2 + 2 + 8 + 6;

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.place.len()
    }

    /// Appends some of the others.
    ///
    /// # Panics
    ///
    /// If there are not so many.
    pub(crate) fn extend_from(&mut self, other: &Self, range: Range<usize>) {
        self.place.extend_from_slice(&other.place[range.clone()]);
        self.intensity.extend_from_slice(&other.intensity[range.clone()]);
        self.laser.extend_from_slice(&other.laser[range.clone()]);
        self.time.extend_from_slice(&other.time[range.clone()]);
        self.colour.extend_from_slice(&other.colour[range]);
    }

    /// Takes the points from number `len` on away.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.place.truncate(len);
        self.intensity.truncate(len);
        self.laser.truncate(len);
        self.time.truncate(len);
        self.colour.truncate(len);
    }
}
