//! Poses of the vehicle: reading them from a channel and looking them up by time. Moves no points.

pub(crate) mod attach;
pub(crate) mod lookup;
pub(crate) mod options;
pub(crate) mod rows;

mod history;
mod reader;
mod sources;
mod weight;

use sluice_model::Rows;

use crate::geometry::{Quaternion, Transform};
pub(crate) use history::{History, Timestamped};
pub(crate) use lookup::LookupMiss;
pub(crate) use reader::{ChannelReader, ReadFromRows, double_lists, finite, row_times};

/// The type of poses of a sensor, as opposed to the body. They have the same fields.
pub(crate) const SENSOR_POSE: &str = "sluice.pose";

/// Whether these rows are poses of a sensor.
pub(crate) fn is_sensor_pose(rows: &Rows) -> bool {
    &*rows.message.name == SENSOR_POSE
}

/// Pose of the body in the local frame.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Pose {
    /// Time in nanoseconds since 1970: the message's own, or else that of its event.
    pub(crate) time: i64,
    /// Position of the body's origin, in metres.
    pub(crate) position: [f64; 3],
    /// Rotation from the body axes to the local axes; a unit quaternion.
    pub(crate) orientation: Quaternion,
}

/// The newest poses, with lookup by log order ([`History::last`]) and by time.
pub(crate) type PoseHistory = History<Pose>;

impl Pose {
    /// Parses the numbers of [`AttachedValue::append`](attach::AttachedValue::append). The time is
    /// lost.
    pub(crate) fn from_values(values: &[f64]) -> Option<Self> {
        let [px, py, pz, w, x, y, z] = *values.first_chunk::<7>()?;
        Some(Self { time: 0, position: [px, py, pz], orientation: Quaternion { w, x, y, z } })
    }

    /// From the body frame to the local frame.
    pub(crate) fn transform(&self) -> Transform {
        Transform::new(self.position, &self.orientation)
    }

    /// Interpolates linearly between two positions and spherically between two orientations.
    pub(crate) fn interpolate(before: &Self, after: &Self, time: i64) -> Self {
        let whole = after.time.saturating_sub(before.time).max(1) as f64;
        let part = time.saturating_sub(before.time) as f64 / whole;
        let along = |at: usize| {
            let (from, to) = (before.position[at], after.position[at]);
            from + part * (to - from)
        };
        Self {
            time,
            position: [along(0), along(1), along(2)],
            orientation: before.orientation.slerp(after.orientation, part),
        }
    }
}

impl attach::AttachedValue for Pose {
    const COLUMN: &str = "sluice.pose";
    const WIDTH: usize = 7;
    const PLURAL: &str = "poses";

    fn append(&self, to: &mut Vec<f64>) {
        let Quaternion { w, x, y, z } = self.orientation;
        to.extend(self.position);
        to.extend([w, x, y, z]);
    }
}

impl PoseHistory {
    /// The pose at `time`, interpolated unless there is one at exactly that time. `Err` if the
    /// poses around it are more than `max_gap` nanoseconds apart, or if one side is missing.
    pub(crate) fn interpolate(&self, time: i64, max_gap: i64) -> Result<Pose, LookupMiss> {
        match self.around(time) {
            (Some(exact), _) if exact.time == time => Ok(*exact),
            (None, _) => Err(LookupMiss::Before),
            (_, None) => Err(LookupMiss::After),
            (Some(a), Some(b)) if b.time.saturating_sub(a.time) > max_gap => {
                Err(LookupMiss::GapTooWide)
            }
            (Some(a), Some(b)) => Ok(Pose::interpolate(a, b, time)),
        }
    }
}

impl Timestamped for Pose {
    fn time(&self) -> i64 {
        self.time
    }
}

impl ReadFromRows for Pose {
    const REQUIRED_FIELDS: &str =
        "`pos` (3 numbers) and `orientation` (4 numbers) of the vehicle rather than of a sensor";
    const INVALID: &str = "poses with an orientation of length 0 or a number that is not finite";

    fn read_rows(rows: &Rows, timestamps: &[i64]) -> Option<Vec<Option<Self>>> {
        if is_sensor_pose(rows) {
            return None;
        }
        let positions = double_lists::<3>(rows, "pos")?;
        let orientations = double_lists::<4>(rows, "orientation")?;
        let turned = |[w, x, y, z]: [f64; 4]| Quaternion { w, x, y, z }.normalized();
        let rows = row_times(rows, timestamps).zip(positions).zip(orientations);
        let poses = rows.map(|((time, position), orientation)| {
            let (position, orientation) = (finite(position?)?, turned(orientation?)?);
            Some(Self { time, position, orientation })
        });
        Some(poses.collect())
    }
}
