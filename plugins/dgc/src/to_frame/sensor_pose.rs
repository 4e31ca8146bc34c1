//! Poses of the body as poses of a sensor on it. Moves no points.

use sluice_core::{Error, Rows};

use crate::calibration::Mount;
use crate::geometry::Quaternion;
use crate::poses::rows::{lists, of_type, some_lists, with_columns};
use crate::poses::{Known, Pose, SENSOR_POSE, doubles, is_of_sensor};

type Vector = [f64; 3];

/// Whether these rows are poses of the body.
pub(super) fn are_poses(rows: &Rows) -> bool {
    !is_of_sensor(rows)
        && doubles::<3>(rows, "pos").is_some()
        && doubles::<4>(rows, "orientation").is_some()
}

/// The numbers of the rows that have the fields of a pose, and are none.
pub(super) fn without_pose(rows: &Rows, timestamps: &[i64]) -> Vec<u32> {
    let poses = Pose::of(rows, timestamps).unwrap_or_default();
    (0..).zip(poses).filter(|(_, pose)| pose.is_none()).map(|(row, _)| row).collect()
}

/// These poses of the body, all of which are poses, as those of a sensor that is mounted there.
///
/// Other fields stay as they are. An acceleration is left out: what a turn that gets faster adds to it
/// cannot be told from a pose. So is a velocity where there is no column of rates of turning; a row without
/// one of the two has no velocity.
pub(super) fn of_sensor(rows: &Rows, timestamps: &[i64], mount: &Mount) -> Result<Rows, Error> {
    let poses = Pose::of(rows, timestamps).unwrap_or_default();
    let poses: Vec<Pose> = poses.into_iter().flatten().collect();
    let (mut positions, mut orientations) = (Vec::new(), Vec::new());
    for pose in &poses {
        let Quaternion { w, x, y, z } = pose.orientation.product(mount.orientation);
        positions.push(plus(pose.position, arm(pose, mount)));
        orientations.push([w, x, y, z]);
    }
    let mut columns = vec![lists("pos", &positions), lists("orientation", &orientations)];
    if let Some(velocities) = velocities(rows, &poses, mount) {
        columns.push(some_lists("vel", &velocities));
        return with_columns(rows, &["accel"], columns).map(|rows| of_type(rows, SENSOR_POSE));
    }
    with_columns(rows, &["accel", "vel"], columns).map(|rows| of_type(rows, SENSOR_POSE))
}

/// How fast the sensor is, in the local frame: the vehicle's own velocity, and what its turning adds.
fn velocities(rows: &Rows, poses: &[Pose], mount: &Mount) -> Option<Vec<Option<Vector>>> {
    let velocities = doubles::<3>(rows, "vel")?;
    let rates = doubles::<3>(rows, "rotation_rate")?;
    let velocities = velocities.into_iter().zip(rates).zip(poses);
    let one = |v, rate, pose| Some(plus(v?, cross(rate?, arm(pose, mount))));
    Some(velocities.map(|((v, rate), pose)| one(v, rate, pose)).collect())
}

/// From the body's origin to the sensor, in the local frame.
fn arm(pose: &Pose, mount: &Mount) -> Vector {
    pose.orientation.rotate(mount.position)
}

fn plus(a: Vector, b: Vector) -> Vector {
    [a[0] + b[0], a[1] + b[1], a[2] + b[2]]
}

fn cross([a, b, c]: Vector, [x, y, z]: Vector) -> Vector {
    [b * z - c * y, c * x - a * z, a * y - b * x]
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{Array, RecordBatch};
    use arrow_schema::Schema;
    use sluice_core::{MessageType, Payloads, TypeKey};

    use super::*;

    #[test]
    fn a_row_without_a_velocity_takes_no_other_row_its_own() {
        let columns = [
            lists("pos", &[[0.0; 3]; 3]),
            lists("orientation", &[[1.0, 0.0, 0.0, 0.0]; 3]),
            some_lists("vel", &[Some([5.0, 0.0, 0.0]), None, Some([6.0, 0.0, 0.0])]),
            some_lists("rotation_rate", &[Some([0.0, 0.0, 1.0]), Some([0.0; 3]), None]),
        ];
        let (fields, columns): (Vec<_>, Vec<_>) = columns.into_iter().unzip();
        let columns = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap();
        let message = Arc::new(MessageType::named("pose_t", TypeKey(1)));
        let rows = Rows { message, payloads: Payloads::Kept, events: vec![0, 1, 2], columns };
        let [w, x, y, z] = [1.0, 0.0, 0.0, 0.0];
        let mount = Mount { position: [2.0, 0.0, 0.0], orientation: Quaternion { w, x, y, z } };
        let of_sensor = of_sensor(&rows, &[0; 3], &mount).unwrap();
        let found = doubles::<3>(&of_sensor, "vel").unwrap();
        assert_eq!(found, [Some([5.0, 2.0, 0.0]), None, None]);
        // The same columns, whatever of them is there.
        let whole = super::of_sensor(&rows.pick(&[0]), &[0; 3], &mount).unwrap();
        assert_eq!(whole.columns.schema(), of_sensor.columns.schema());
        assert_eq!(whole.message.key, of_sensor.message.key);
        assert_eq!(whole.columns.column_by_name("vel").unwrap().null_count(), 0);
    }
}
