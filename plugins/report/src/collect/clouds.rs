//! One scan of each laser, as points.

use sluice_model::TypeKey;
use sluice_views::ScanColumns;

use crate::CloudFigures;

/// The most points that are kept of a scan.
const MAX_POINTS: usize = 4_000;

/// The earliest scan with points.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct CloudPart {
    time: i64,
    /// The type of its message.
    of: TypeKey,
    count: u64,
    points: Vec<[f32; 3]>,
}

impl CloudPart {
    /// The points of a planar scan; `None` if there are none, or their angles are not known.
    pub(super) fn from_scan(
        scan: &ScanColumns,
        row: usize,
        (time, of): (i64, TypeKey),
    ) -> Option<Self> {
        if !scan.has_ranges(row) {
            return None;
        }
        let ranges = scan.metres(row);
        let [first, last] = scan.angles(row, ranges.len())?;
        let step = (last - first) / (ranges.len().max(2) - 1) as f64;
        let returns = ranges.iter().enumerate().filter(|(_, range)| range.is_finite());
        let points = returns.map(|(at, range)| {
            let (sin, cos) = (first + at as f64 * step).sin_cos();
            [(range * cos) as f32, (range * sin) as f32, 0.0]
        });
        Self::from_points(points.collect(), (time, of))
    }

    /// `None` without points.
    pub(super) fn from_points(
        mut points: Vec<[f32; 3]>,
        (time, of): (i64, TypeKey),
    ) -> Option<Self> {
        points.retain(|point| point.iter().all(|part| part.is_finite()));
        let count = points.len();
        let stride = count.div_ceil(MAX_POINTS).max(1);
        let points: Vec<[f32; 3]> = points.into_iter().step_by(stride).collect();
        (count > 0).then_some(Self { time, of, count: count as u64, points })
    }

    /// Adds another scan: the earlier one is kept.
    pub(super) fn keep_earlier(kept: &mut Option<Self>, other: Option<Self>) {
        let is_earlier = |other: &Self| kept.as_ref().is_none_or(|kept| other.time < kept.time);
        if other.as_ref().is_some_and(is_earlier) {
            *kept = other;
        }
    }

    /// The type of its message, and its time.
    pub(super) fn origin(&self) -> (TypeKey, i64) {
        (self.of, self.time)
    }

    /// Whether a scan of this time would not be kept.
    pub(super) fn is_until(&self, time: i64) -> bool {
        self.time <= time
    }

    pub(super) fn figures(&self, channel: String) -> CloudFigures {
        let Self { time, count, points, .. } = self.clone();
        CloudFigures { channel, time, count, points }
    }
}
