//! Poses: where the vehicle was, read off a channel, and which of them belongs to a moment. Moves no points.

pub(crate) mod attach;
pub(crate) mod lookup;
pub mod options;
pub(crate) mod rows;

mod history;
mod reader;
mod sources;
mod weight;

use sluice_core::Rows;

use crate::geometry::{Quaternion, Transform};
pub(crate) use history::{History, Timed};
pub(crate) use reader::{Known, Reader, doubles, finite, times};

/// The type of rows that are poses of a sensor: not those of the body, though they have the same fields.
pub(crate) const SENSOR_POSE: &str = "sluice.pose";

/// Whether these rows are poses of a sensor.
pub(crate) fn is_of_sensor(rows: &Rows) -> bool {
    &*rows.message.name == SENSOR_POSE
}

/// Where the body was at a moment, in the local frame.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Pose {
    /// In nanoseconds since 1970: its message's own time, or that of its event where it has none.
    pub(crate) time: i64,
    /// Of the body's origin, in metres.
    pub(crate) position: [f64; 3],
    /// From the body's axes to those of the local frame; its length is 1.
    pub(crate) orientation: Quaternion,
}

/// The poses that came last, with lookups by log order ([`History::last`]) and by time.
pub(crate) type Poses = History<Pose>;

/// Why there is no pose for a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Miss {
    /// There is none before it.
    Before,
    /// There is none after it.
    After,
    /// The one that there is is too far away.
    Far,
    /// The two around it are too far from each other.
    Gap,
    /// Its source has none, and several others have some.
    Several,
}

impl Pose {
    /// What [`Attached::append`](attach::Attached::append) appended; its time is lost.
    pub(crate) fn of_values(values: &[f64]) -> Option<Self> {
        let [px, py, pz, w, x, y, z] = *values.first_chunk::<7>()?;
        Some(Self { time: 0, position: [px, py, pz], orientation: Quaternion { w, x, y, z } })
    }

    /// From the body frame to the local frame.
    pub(crate) fn transform(&self) -> Transform {
        Transform::new(self.position, &self.orientation)
    }

    /// The pose between two, at a moment between theirs: an even motion on a straight line, and an even
    /// turn.
    pub(crate) fn between(before: &Self, after: &Self, time: i64) -> Self {
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

impl attach::Attached for Pose {
    const COLUMN: &str = "sluice.pose";
    const WIDTH: usize = 7;
    const PLURAL: &str = "poses";

    fn append(&self, to: &mut Vec<f64>) {
        let Quaternion { w, x, y, z } = self.orientation;
        to.extend(self.position);
        to.extend([w, x, y, z]);
    }
}

impl Poses {
    /// The pose at `time`, between the two around it if none is of just that moment. `Err` if these are
    /// more than `max_gap` nanoseconds apart, or if there is none on one side.
    pub(crate) fn interpolate(&self, time: i64, max_gap: i64) -> Result<Pose, Miss> {
        match self.around(time) {
            (Some(exact), _) if exact.time == time => Ok(*exact),
            (None, _) => Err(Miss::Before),
            (_, None) => Err(Miss::After),
            (Some(a), Some(b)) if b.time.saturating_sub(a.time) > max_gap => Err(Miss::Gap),
            (Some(a), Some(b)) => Ok(Pose::between(a, b, time)),
        }
    }
}

impl Timed for Pose {
    fn time(&self) -> i64 {
        self.time
    }
}

impl Known for Pose {
    const NEEDS: &str =
        "`pos` of 3 numbers and `orientation` of 4 that are the vehicle's and not a sensor's";
    const WRONG: &str =
        "a pose whose orientation has no direction, or with a number that is not finite";

    fn of(rows: &Rows, timestamps: &[i64]) -> Option<Vec<Option<Self>>> {
        if is_of_sensor(rows) {
            return None;
        }
        let positions = doubles::<3>(rows, "pos")?;
        let orientations = doubles::<4>(rows, "orientation")?;
        let turned = |[w, x, y, z]: [f64; 4]| Quaternion { w, x, y, z }.normalized();
        let rows = times(rows, timestamps).zip(positions).zip(orientations);
        let poses = rows.map(|((time, position), orientation)| {
            let (position, orientation) = (finite(position?)?, turned(orientation?)?);
            Some(Self { time, position, orientation })
        });
        Some(poses.collect())
    }
}
