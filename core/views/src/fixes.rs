//! The columns of positions on the globe.

use arrow_array::RecordBatch;

use crate::columns::Numbers;
use crate::fields::FixFields;

/// A position on the globe.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Position {
    /// Degrees.
    pub latitude: f64,
    /// Degrees.
    pub longitude: f64,
    /// Metres.
    pub altitude: f64,
    /// Radians, clockwise from north.
    pub heading: Option<f64>,
    /// Standard deviations in metres: horizontal and vertical.
    pub errors: Option<[f64; 2]>,
}

/// The columns of positions on the globe.
#[derive(Debug)]
pub struct FixColumns {
    latitude: Numbers,
    longitude: Numbers,
    altitude: Option<Numbers>,
    heading: Option<Numbers>,
    errors: Option<[Numbers; 2]>,
}

impl FixColumns {
    /// `None` if there is no latitude or longitude.
    pub fn resolve(fields: &FixFields, columns: &RecordBatch) -> Option<Self> {
        // What only some versions of a type have is left out, rather than the position.
        let extra =
            |scalar: &Option<_>| scalar.as_ref().and_then(|one| Numbers::resolve(one, columns));
        let errors = extra(&fields.horizontal_error).zip(extra(&fields.vertical_error));
        Some(Self {
            latitude: Numbers::resolve(&fields.latitude, columns)?,
            longitude: Numbers::resolve(&fields.longitude, columns)?,
            altitude: extra(&fields.altitude),
            heading: extra(&fields.heading),
            errors: errors.map(|(horizontal, vertical)| [horizontal, vertical]),
        })
    }

    /// `None` unless the row has a place on the globe.
    pub fn position(&self, row: usize) -> Option<Position> {
        let (latitude, longitude) = (self.latitude.at(row)?, self.longitude.at(row)?);
        let is_on_globe = latitude.abs() <= 90.0 && longitude.abs() <= 360.0;
        let finite = |numbers: &Numbers| numbers.at(row).filter(|number| number.is_finite());
        let errors = self.errors.as_ref().and_then(|[horizontal, vertical]| {
            let errors = [finite(horizontal)?, finite(vertical)?];
            // Receivers that know none report zeros.
            errors.iter().all(|error| *error > 0.0).then_some(errors)
        });
        is_on_globe.then(|| Position {
            latitude,
            longitude,
            altitude: self.altitude.as_ref().and_then(finite).unwrap_or(0.0),
            heading: self.heading.as_ref().and_then(finite).map(f64::to_radians),
            errors,
        })
    }
}
