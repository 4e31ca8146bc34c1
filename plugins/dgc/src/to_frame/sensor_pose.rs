//! Converts poses of the body to poses of a sensor. Moves no points.

use sluice_model::{Error, Rows};

use crate::calibration::Mount;
use crate::geometry::Quaternion;
use crate::poses::rows::{list_column, nullable_lists, with_columns, with_type};
use crate::poses::{Pose, ReadFromRows, SENSOR_POSE, double_lists, is_sensor_pose};

type Vector = [f64; 3];

/// Whether these rows are poses of the body.
pub(super) fn are_poses(rows: &Rows) -> bool {
    !is_sensor_pose(rows)
        && double_lists::<3>(rows, "pos").is_some()
        && double_lists::<4>(rows, "orientation").is_some()
}

/// The rows that have the fields of a pose but no valid pose.
pub(super) fn invalid_rows(rows: &Rows, timestamps: &[i64]) -> Vec<u32> {
    let poses = Pose::read_rows(rows, timestamps).unwrap_or_default();
    (0..).zip(poses).filter(|(_, pose)| pose.is_none()).map(|(row, _)| row).collect()
}

/// Converts valid poses of the body to poses of a sensor.
///
/// Other fields stay as they are. The acceleration is dropped, since the part due to angular
/// acceleration is unknown. So is the velocity without a column of rotation rates; rows that lack
/// one of the two have no velocity.
pub(super) fn to_sensor_poses(
    rows: &Rows,
    timestamps: &[i64],
    mount: &Mount,
) -> Result<Rows, Error> {
    let poses = Pose::read_rows(rows, timestamps).unwrap_or_default();
    let poses: Vec<Pose> = poses.into_iter().flatten().collect();
    let (mut positions, mut orientations) = (Vec::new(), Vec::new());
    for pose in &poses {
        let Quaternion { w, x, y, z } = pose.orientation.product(mount.orientation);
        positions.push(plus(pose.position, lever_arm(pose, mount)));
        orientations.push([w, x, y, z]);
    }
    let mut columns =
        vec![list_column("pos", &positions), list_column("orientation", &orientations)];
    if let Some(velocities) = velocities(rows, &poses, mount) {
        columns.push(nullable_lists("vel", &velocities));
        return with_columns(rows, &["accel"], columns).map(|rows| with_type(rows, SENSOR_POSE));
    }
    with_columns(rows, &["accel", "vel"], columns).map(|rows| with_type(rows, SENSOR_POSE))
}

/// The velocity of the sensor in the local frame: that of the vehicle plus that of its rotation.
fn velocities(rows: &Rows, poses: &[Pose], mount: &Mount) -> Option<Vec<Option<Vector>>> {
    let velocities = double_lists::<3>(rows, "vel")?;
    let rates = double_lists::<3>(rows, "rotation_rate")?;
    let velocities = velocities.into_iter().zip(rates).zip(poses);
    let one = |v, rate, pose| Some(plus(v?, cross(rate?, lever_arm(pose, mount))));
    Some(velocities.map(|((v, rate), pose)| one(v, rate, pose)).collect())
}

/// The vector from the body's origin to the sensor, in the local frame.
fn lever_arm(pose: &Pose, mount: &Mount) -> Vector {
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
    use sluice_model::{MessageType, Payloads, TypeKey};

    use super::*;

    #[test]
    fn a_row_without_a_velocity_does_not_affect_other_rows() {
        let columns = [
            list_column("pos", &[[0.0; 3]; 3]),
            list_column("orientation", &[[1.0, 0.0, 0.0, 0.0]; 3]),
            nullable_lists("vel", &[Some([5.0, 0.0, 0.0]), None, Some([6.0, 0.0, 0.0])]),
            nullable_lists("rotation_rate", &[Some([0.0, 0.0, 1.0]), Some([0.0; 3]), None]),
        ];
        let (fields, columns): (Vec<_>, Vec<_>) = columns.into_iter().unzip();
        let columns = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap();
        let message = Arc::new(MessageType::named("pose_t", TypeKey(1)));
        let rows = Rows { message, payloads: Payloads::Kept, events: vec![0, 1, 2], columns };
        let [w, x, y, z] = [1.0, 0.0, 0.0, 0.0];
        let mount = Mount { position: [2.0, 0.0, 0.0], orientation: Quaternion { w, x, y, z } };
        let to_sensor_poses = to_sensor_poses(&rows, &[0; 3], &mount).unwrap();
        let found = double_lists::<3>(&to_sensor_poses, "vel").unwrap();
        assert_eq!(found, [Some([5.0, 2.0, 0.0]), None, None]);
        // The same columns, whatever the values.
        let whole = super::to_sensor_poses(&rows.pick(&[0]), &[0; 3], &mount).unwrap();
        assert_eq!(whole.columns.schema(), to_sensor_poses.columns.schema());
        assert_eq!(whole.message.key, to_sensor_poses.message.key);
        assert_eq!(whole.columns.column_by_name("vel").unwrap().null_count(), 0);
    }
}
