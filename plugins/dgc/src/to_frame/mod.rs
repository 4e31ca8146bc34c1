//! Stage `to-frame`: moves points between the frames of the sensor, the vehicle and its
//! surroundings. Makes no points, and knows nothing of the globe.
//!
//! A fold, which sees events in log order, attaches to each event the pose it needs; a map moves
//! the points. If no pose is needed, there is only the map.

mod batch;
mod frame_change;
pub(crate) mod mounts;
mod plan;
mod sensor_pose;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sluice_model::options::CHANNELS_FORMAT;
use sluice_model::time::TimeSpan;
use sluice_model::{
    Batch, Channel, Error, Map, MapQuery, OptionsError, Pattern, Patterns, PerChannel,
    PluginFactory, Registry, Rows, Stage, StageContext,
};

use crate::calibration::CalibrationPath;
use crate::dataset_decoder::DatasetDecoder;
use crate::points::{PointFrame, Points};
use crate::poses::attach::{AttachFold, AttachPlan, LookupFn, LookupTimes, RowFilter};
use crate::poses::lookup;
use crate::poses::options::{MaxAge, MissingPolicy};
use crate::poses::{ChannelReader, Pose, PoseHistory};
use batch::BatchMove;
use frame_change::needs_pose;
use mounts::SensorMounts;
use plan::{ChannelPlan, DROP_ADVICE, POSE, ToFrame};

/// Options of `to-frame`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ToFrameOptions {
    /// The target frame.
    pub(crate) frame: PointFrame,
    /// Channel of the poses. Default: `POSE` for the frame `local`. For the other frames it is only
    /// needed if points come from the local frame; without it the stage is stateless.
    pub(crate) pose: Option<Pattern>,
    /// Which pose an event uses.
    pub(crate) choose: PoseChoice,
    /// Maximum time between an event and its pose, or `none` for no limit. Not for `interpolate`.
    pub(crate) max_age: MaxAge,
    /// For `interpolate`: maximum gap between two poses.
    pub(crate) max_gap: TimeSpan,
    /// For `at` and `interpolate`: how long, in log time, events wait for a later pose.
    pub(crate) wait: TimeSpan,
    /// The calibration with the mounts of the sensors: `mit-dgc`, or a file.
    pub(crate) calibration: CalibrationPath,
    /// Names of sensors in the calibration, by channel or pattern; other sensors have the name of
    /// their channel.
    #[schemars(extend("propertyNames" = { "type": "string", "format": CHANNELS_FORMAT }))]
    pub(crate) mounts: BTreeMap<String, String>,
    /// With `frame = "sensor"`: converts poses on channels that `channels` names to poses of this
    /// sensor.
    pub(crate) sensor: Option<String>,
    /// Channels whose points are moved. Default: all.
    pub(crate) channels: Patterns,
    /// What happens to events that need a pose and have none.
    pub(crate) without_pose: MissingPolicy,
    /// What happens to events whose sensor is not in the calibration.
    pub(crate) without_mount: MissingPolicy,
}

/// Which pose an event uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PoseChoice {
    /// The last one before the event in the log.
    #[default]
    Last,
    /// The newest one that is not after the event, by the times of the messages.
    At,
    /// Interpolated between the two around the event, by the times of the messages.
    Interpolate,
}

impl Default for ToFrameOptions {
    fn default() -> Self {
        Self {
            frame: PointFrame::default(),
            pose: None,
            choose: PoseChoice::default(),
            max_age: MaxAge::seconds(1),
            max_gap: TimeSpan(100_000_000),
            wait: TimeSpan(1_000_000_000),
            calibration: CalibrationPath::default(),
            mounts: BTreeMap::new(),
            sensor: None,
            channels: Patterns::default(),
            without_pose: MissingPolicy::default(),
            without_mount: MissingPolicy::default(),
        }
    }
}

sluice_model::register! {
    stage "to-frame": ToFrameOptions,
    make: PluginFactory::Stage(|value, registry| stage(sluice_model::options::read(value)?, registry)),
    about: "moves points between the frames of sensors, vehicle and surroundings",
    sample: include_str!("../../samples/to-frame.toml"),
}

/// The note if no event had points.
const NOTHING_TO_MOVE: &str = "no event had points: add `velodyne` or `laser` before this stage";

fn stage(mut options: ToFrameOptions, registry: &Registry) -> Result<Stage, OptionsError> {
    let pose = options.pose.take().or_else(|| match options.frame {
        PointFrame::Local => Pattern::parse(POSE).ok(),
        _ => None,
    });
    let fold = pose.map(|pose| fold(pose, &options, registry)).transpose()?;
    let map = Stage::Map(Box::new(ToFrame::new(options, fold.is_some(), registry)?));
    Ok(match fold {
        Some(fold) => Stage::Chain(vec![Stage::Fold(Box::new(fold)), map]),
        None => map,
    })
}

/// The fold that attaches poses to the events that need one.
fn fold(
    pose: Pattern,
    options: &ToFrameOptions,
    registry: &Registry,
) -> Result<AttachFold<Pose>, OptionsError> {
    let ToFrameOptions { frame, choose, max_age, .. } = *options;
    let (max_gap, wait) = (options.max_gap.nanos(), options.wait.nanos());
    let usual = ToFrameOptions::default();
    if choose != PoseChoice::Interpolate && options.max_gap != usual.max_gap {
        return Err(OptionsError::needs("max_gap", "choose = \"interpolate\""));
    }
    if choose == PoseChoice::Last && options.wait != usual.wait {
        return Err(OptionsError::needs("wait", "choose = \"at\"` or `choose = \"interpolate\""));
    }
    let wait = (choose != PoseChoice::Last).then_some(wait);
    let reach = match choose {
        PoseChoice::Interpolate => Some(max_gap),
        PoseChoice::Last | PoseChoice::At => max_age.0.map(TimeSpan::nanos),
    };
    Ok(AttachFold::new(AttachPlan {
        reader: ChannelReader::new(pose, registry)?,
        channels: options.channels.clone(),
        lookup_times: Box::new(move |rows, timestamps| lookup_times(rows, timestamps, frame)),
        lookup: lookup_fn(choose, max_age, max_gap),
        work: options.sensor.is_none().then(|| (is_points(), NOTHING_TO_MOVE)),
        wait,
        reach: lookup::query_reach(reach, wait),
        describe_miss: Box::new(move |miss| lookup::describe_miss(miss, "pose", max_age, max_gap)),
        stop_advice: (options.without_pose == MissingPolicy::Stop).then_some(DROP_ADVICE),
    }))
}

fn is_points() -> RowFilter {
    Box::new(|rows| Points::from_rows(rows).is_some())
}

/// The lookup times of points that need a pose to reach a frame.
fn lookup_times(rows: &Rows, timestamps: &[i64], frame: PointFrame) -> Option<LookupTimes> {
    Points::from_rows(rows)
        .filter(|points| needs_pose(points.frame(), frame))
        .map(|points| LookupTimes::from_points(&points, timestamps))
}

fn lookup_fn(choose: PoseChoice, max_age: MaxAge, max_gap: i64) -> LookupFn<Pose> {
    match choose {
        PoseChoice::Last => Box::new(move |poses: &PoseHistory, time| {
            lookup::within_max_age(poses.last(), time, max_age)
        }),
        PoseChoice::At => Box::new(move |poses: &PoseHistory, time| {
            lookup::within_max_age(poses.at(time), time, max_age)
        }),
        PoseChoice::Interpolate => {
            Box::new(move |poses: &PoseHistory, time| poses.interpolate(time, max_gap))
        }
    }
}

impl ToFrame {
    fn new(
        options: ToFrameOptions,
        has_poses: bool,
        registry: &Registry,
    ) -> Result<Self, OptionsError> {
        let wrong = |key: &'static str| move |message: String| OptionsError::at(key, message);
        let calibration = options.calibration.load().map_err(wrong("calibration"))?;
        let mounts = SensorMounts::new(calibration, options.mounts)?;
        let sensor = options.sensor.as_deref().map(|name| mounts.mount_by_name(name));
        let sensor = sensor.transpose().map_err(wrong("sensor"))?;
        if sensor.is_some() && (options.frame != PointFrame::Sensor || options.channels.is_empty())
        {
            let message = "`sensor` needs `frame = \"sensor\"`, and the channels of the poses in \
                           `channels`";
            return Err(OptionsError::at("sensor", message));
        }
        Ok(Self {
            frame: options.frame,
            mounts,
            plans: PerChannel::default(),
            channels: options.channels,
            sensor,
            without_mount: options.without_mount,
            without_pose: options.without_pose,
            has_poses,
            decoder: DatasetDecoder::new(registry)?,
        })
    }

    fn plan(&self, channel: &Channel) -> Option<ChannelPlan> {
        let name = channel.name.text();
        let is_named = self.channels.matches(name);
        if !is_named && !self.channels.is_empty() {
            return None;
        }
        let mount = self.mounts.mount_of(name).map(|mount| mount.to_body());
        Some(ChannelPlan { is_named, mount })
    }
}

impl Map for ToFrame {
    fn apply(&self, batch: Batch, context: &mut StageContext<'_>) -> Result<Batch, Error> {
        let plans = self.plans.table(context.channels, |channel| Ok(self.plan(channel)))?;
        let work = BatchMove { stage: self, plans, batch }.decode_named_poses(context)?;
        work.refuse_unknown_frame(context)?;
        work.note_idle_events(context);
        let wrong = work.events_to_drop()?;
        work.drop_events(&wrong, context)?.move_batch()
    }

    fn query(&self) -> MapQuery {
        MapQuery { keeps_times: true, keeps_channels: true, ..MapQuery::default() }
    }

    fn fingerprint(&self) -> Option<String> {
        Some(self.mounts.fingerprint().to_owned())
    }
}
