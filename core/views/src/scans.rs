//! The columns of planar scans.

use arrow_array::RecordBatch;

use crate::columns::{Lists, Numbers, optional};
use crate::fields::ScanFields;

/// No scanner has more; hostile lists would take many times their memory.
const MAX_RANGES: usize = 1 << 20;

/// The columns of scans.
#[derive(Debug)]
pub struct ScanColumns {
    ranges: Lists,
    scale: f64,
    min_range: f64,
    max_range: Option<Numbers>,
    intensities: Option<Lists>,
    start: Option<Numbers>,
    step: Option<Numbers>,
    field_of_view: Option<Numbers>,
    degrees: bool,
}

impl ScanColumns {
    /// `None` if there is no list of ranges, or another field does not exist.
    pub fn resolve(fields: &ScanFields, columns: &RecordBatch) -> Option<Self> {
        let ScanFields { scale, min_range, degrees, .. } = *fields;
        let intensities = fields.intensities.as_ref();
        Some(Self {
            ranges: Lists::resolve(&fields.ranges, f64::NAN, columns)?,
            scale,
            min_range,
            max_range: optional(fields.max_range.as_ref(), columns)?,
            intensities: intensities.and_then(|path| Lists::resolve(path, 0.0, columns)),
            start: optional(fields.start.as_ref(), columns)?,
            step: optional(fields.step.as_ref(), columns)?,
            field_of_view: optional(fields.field_of_view.as_ref(), columns)?,
            degrees,
        })
    }

    /// Whether a row has ranges, and not absurdly many.
    pub fn has_ranges(&self, row: usize) -> bool {
        (1..=MAX_RANGES).contains(&self.ranges.at(row).len())
    }

    /// The intensities of a row, 0 where they are null; empty unless there is one for each range.
    pub fn intensities(&self, row: usize) -> &[f64] {
        let intensities = self.intensities.as_ref().map_or(&[][..], |lists| lists.at(row));
        if intensities.len() == self.ranges.at(row).len() { intensities } else { &[] }
    }

    /// Whether the map says what the angles are.
    pub fn has_angles(&self) -> bool {
        self.step.is_some() || self.field_of_view.is_some()
    }

    /// The ranges in metres; infinite where nothing returned, and where they are null.
    pub fn metres(&self, row: usize) -> Vec<f64> {
        let max = self.max_range.as_ref().and_then(|max| max.at(row)).filter(|max| *max > 0.0);
        let max = max.unwrap_or(f64::INFINITY);
        let metres = self.ranges.at(row).iter().map(|range| range * self.scale);
        let is_return = |range: &f64| *range > self.min_range && *range < max;
        metres.map(|range| if is_return(&range) { range } else { f64::INFINITY }).collect()
    }

    /// The angles of the first and the last of `len` ranges, in radians.
    pub fn angles(&self, row: usize, len: usize) -> Option<[f64; 2]> {
        let unit = if self.degrees { std::f64::consts::PI / 180.0 } else { 1.0 };
        let last = len.saturating_sub(1) as f64;
        let span = match (&self.step, &self.field_of_view) {
            (Some(step), _) => step.at(row)? * last,
            (None, Some(span)) => span.at(row)?,
            (None, None) => return None,
        };
        let start = match &self.start {
            Some(start) => start.at(row)?,
            None => -span / 2.0,
        };
        let angles = [start * unit, (start + span) * unit];
        angles.iter().all(|angle| angle.is_finite()).then_some(angles)
    }
}
