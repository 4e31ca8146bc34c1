//! How events are moved: the options of the map, and what it does with each channel.

use sluice_model::{Error, Patterns, PerChannel, StageContext};

use super::mounts::SensorMounts;
use crate::calibration::Mount;
use crate::dataset_decoder::DatasetDecoder;
use crate::geometry::Transform;
use crate::points::PointFrame;
use crate::poses::options::MissingPolicy;
use crate::poses::{Pose, ReadFromRows};

/// The channel of the dataset's poses.
pub(super) const POSE: &str = "POSE";

/// Advice for errors that end the run.
pub(super) const DROP_ADVICE: &str = "`without_pose = \"drop\"` drops such events";

/// The map that moves points.
pub(super) struct ToFrame {
    pub(super) frame: PointFrame,
    pub(super) mounts: SensorMounts,
    pub(super) plans: PerChannel<Option<ChannelPlan>>,
    pub(super) channels: Patterns,
    /// The sensor to convert poses to.
    pub(super) sensor: Option<Mount>,
    pub(super) without_mount: MissingPolicy,
    pub(super) without_pose: MissingPolicy,
    /// Whether the fold attaches poses.
    pub(super) has_poses: bool,
    pub(super) decoder: DatasetDecoder,
}

/// How the events of a channel are processed.
#[derive(Clone, Copy)]
pub(super) struct ChannelPlan {
    /// Whether `channels` names the channel, rather than being empty.
    pub(super) is_named: bool,
    /// The transform from its sensor to the body.
    pub(super) mount: Option<Transform>,
}

/// Why an event is dropped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum DropReason {
    NoMount,
    NoPose,
    BadPose,
}

impl ToFrame {
    pub(super) fn report(
        &self,
        channel: &str,
        wrong: DropReason,
        count: u64,
        context: &mut StageContext<'_>,
    ) -> Result<(), Error> {
        match wrong {
            DropReason::NoMount => {
                let what = format!(
                    "{channel}: the calibration has no sensor of this name; name its sensor in \
                     `mounts`"
                );
                if self.without_mount == MissingPolicy::Stop {
                    return Err(Error::invalid(what));
                }
                context.note(what, count);
            }
            DropReason::BadPose => {
                let what = format!("{channel}: {}", <Pose as ReadFromRows>::INVALID);
                if self.without_pose == MissingPolicy::Stop {
                    return Err(Error::invalid(format!("{what}; {DROP_ADVICE}")));
                }
                context.note(what, count);
            }
            // The fold has already noted it.
            DropReason::NoPose => {}
        }
        Ok(())
    }
}
