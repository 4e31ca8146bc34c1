//! Poses of the body as poses of a sensor on it. Moves no points.

use sluice_core::{Error, Rows};

use crate::calibration::Mount;
use crate::geometry::Quaternion;
use crate::poses::rows::{lists, of_type, with_columns};
use crate::poses::{Known, Pose, doubles};

type Vector = [f64; 3];

/// Whether these rows are poses.
pub(super) fn are_poses(rows: &Rows) -> bool {
    doubles::<3>(rows, "pos").is_some() && doubles::<4>(rows, "orientation").is_some()
}

/// The numbers of the rows that have the fields of a pose, and are none.
pub(super) fn without_pose(rows: &Rows, timestamps: &[i64]) -> Vec<u32> {
    let poses = Pose::of(rows, timestamps).unwrap_or_default();
    (0..).zip(poses).filter(|(_, pose)| pose.is_none()).map(|(row, _)| row).collect()
}

/// These poses of the body, all of which are poses, as those of a sensor that is mounted there.
///
/// Other fields stay as they are. An acceleration is left out: what a turn that gets faster adds to it
/// cannot be told from a pose. So is a velocity without a rate of turning.
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
        columns.push(lists("vel", &velocities));
        return with_columns(rows, &["accel"], columns).map(|rows| of_type(rows, "sluice.pose"));
    }
    with_columns(rows, &["accel", "vel"], columns).map(|rows| of_type(rows, "sluice.pose"))
}

/// How fast the sensor is, in the local frame: the vehicle's own velocity, and what its turning adds.
fn velocities(rows: &Rows, poses: &[Pose], mount: &Mount) -> Option<Vec<Vector>> {
    let velocities = doubles::<3>(rows, "vel")?;
    let rates = doubles::<3>(rows, "rotation_rate")?;
    let velocities = velocities.into_iter().zip(rates).zip(poses);
    velocities.map(|((v, rate), pose)| Some(plus(v?, cross(rate?, arm(pose, mount))))).collect()
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
