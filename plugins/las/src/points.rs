//! Points, column by column. Knows neither their source nor the file format.

use std::ops::Range;

/// Points. All columns have the same length.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PointColumns {
    /// The coordinates.
    pub(crate) position: Vec<[f64; 3]>,
    /// Intensity.
    pub(crate) intensity: Vec<u16>,
    /// Number of the laser.
    pub(crate) laser: Vec<u16>,
    /// Time in nanoseconds since 1970.
    pub(crate) time: Vec<i64>,
    /// Red, green and blue; black without a colour.
    pub(crate) colour: Vec<[u16; 3]>,
}

impl PointColumns {
    /// Size of a point in memory, in bytes.
    pub(crate) const BYTES: usize = 24 + 2 + 2 + 8 + 6;

    /// The number of points.
    pub(crate) fn len(&self) -> usize {
        self.position.len()
    }

    /// Appends a range of other points.
    ///
    /// # Panics
    ///
    /// If the range is out of bounds.
    pub(crate) fn extend_from(&mut self, other: &Self, range: Range<usize>) {
        self.position.extend_from_slice(&other.position[range.clone()]);
        self.intensity.extend_from_slice(&other.intensity[range.clone()]);
        self.laser.extend_from_slice(&other.laser[range.clone()]);
        self.time.extend_from_slice(&other.time[range.clone()]);
        self.colour.extend_from_slice(&other.colour[range]);
    }

    /// Keeps the first `len` points.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.position.truncate(len);
        self.intensity.truncate(len);
        self.laser.truncate(len);
        self.time.truncate(len);
        self.colour.truncate(len);
    }
}
