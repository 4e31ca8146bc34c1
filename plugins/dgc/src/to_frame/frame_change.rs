//! The transform from one frame to another, and what it depends on. Moves no points.

use sluice_model::Error;

use crate::geometry::Transform;
use crate::points::PointFrame;

/// A change from one frame to another.
#[derive(Clone, Copy)]
pub(super) struct FrameChange {
    pub(super) from: PointFrame,
    pub(super) to: PointFrame,
}

impl FrameChange {
    pub(super) fn needs_pose(self) -> bool {
        needs_pose(self.from, self.to)
    }

    pub(super) fn needs_mount(self) -> bool {
        (self.from == PointFrame::Sensor) != (self.to == PointFrame::Sensor)
    }

    /// The transform, through the body frame.
    pub(super) fn transform(
        self,
        mount: Option<Transform>,
        pose: Option<Transform>,
    ) -> Result<Transform, Error> {
        let missing = || Error::internal("an event without a mount or a pose was not dropped");
        let to_body = |frame: PointFrame| match frame {
            PointFrame::Sensor => mount.ok_or_else(missing),
            PointFrame::Body => Ok(Transform::IDENTITY),
            PointFrame::Local => pose.map(|pose| pose.inverse()).ok_or_else(missing),
        };
        // Avoids inverting the pose twice, which would round twice.
        match (self.from, self.to) {
            (from, PointFrame::Local) => Ok(to_body(from)?.then(&pose.ok_or_else(missing)?)),
            (from, to) => Ok(to_body(from)?.then(&to_body(to)?.inverse())),
        }
    }
}

/// Whether a change between two frames depends on the vehicle's pose.
pub(super) fn needs_pose(from: PointFrame, to: PointFrame) -> bool {
    (from == PointFrame::Local) != (to == PointFrame::Local)
}
