//! `to-frame`: points of the frame of a sensor, of the vehicle, or of the local frame, in another of them.
//! Makes no points, and knows no globe.
//!
//! A fold looks at events in the order of the log and puts beside each the pose it needs; a map moves the
//! points. Where no pose is needed there is only the map.

pub(crate) mod mounts;
mod sensor_pose;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array};
use schemars::JsonSchema;
use serde::Deserialize;
use sluice_core::time::TimeLength;
use sluice_core::{
    Batch, Channel, ChannelId, Error, Map, MapQuery, OptionsError, Pattern, Patterns, PerChannel,
    Rows, Stage, StageContext,
};

use crate::calibration::{CalibrationPath, Mount};
use crate::geometry::Transform;
use crate::messages::Messages;
use crate::points::{Frame, Points, refuse_unknown};
use crate::poses::attach::{Attach, Attached, Column, Find, IsWork, Needs, Plan};
use crate::poses::lookup;
use crate::poses::options::{MaxAge, Without, forward};
use crate::poses::rows::{change_some, decoded, each_in_place};
use crate::poses::{Known, Pose, Poses, Reader};
use mounts::Mounts;

/// Options of `to-frame`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ToFrameOptions {
    /// The frame that points are to be in.
    pub frame: Frame,
    /// The channel of the poses. `POSE` if left out and `frame` is `local`. For the other frames it is only
    /// needed where points come from the local frame: without it the stage needs no order.
    pub pose: Option<Pattern>,
    /// Which pose an event has.
    pub choose: Choose,
    /// A pose that is further than this from the event's own time is not used, or `none`. Not for
    /// `interpolate`.
    pub max_age: MaxAge,
    /// For `interpolate`: poses further apart than this have nothing between them.
    pub max_gap: TimeLength,
    /// For `at` and `interpolate`: how long, in the log's time, events wait for a pose after them.
    pub wait: TimeLength,
    /// Where the sensors are mounted: `mit-dgc`, or a file.
    pub calibration: CalibrationPath,
    /// Channels, or patterns of them, and what the calibration calls their sensors. Others have the names of
    /// their channels.
    pub mounts: BTreeMap<String, String>,
    /// With `frame = "sensor"`: poses on channels that `channels` names become those of this sensor.
    pub sensor: Option<String>,
    /// Channels whose points are moved. None given: all.
    pub channels: Patterns,
    /// What becomes of events that need a pose and have none.
    pub without_pose: Without,
    /// What becomes of events whose sensor the calibration does not have.
    pub without_mount: Without,
}

/// Which pose an event has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Choose {
    /// The last before it in the log.
    #[default]
    Last,
    /// The newest that is not after it, by the times of the messages.
    At,
    /// That between the two around it, by the times of the messages.
    Interpolate,
}

impl Default for ToFrameOptions {
    fn default() -> Self {
        Self {
            frame: Frame::default(),
            pose: None,
            choose: Choose::default(),
            max_age: MaxAge::seconds(1),
            max_gap: TimeLength(100_000_000),
            wait: TimeLength(1_000_000_000),
            calibration: CalibrationPath::default(),
            mounts: BTreeMap::new(),
            sensor: None,
            channels: Patterns::default(),
            without_pose: Without::default(),
            without_mount: Without::default(),
        }
    }
}

sluice_core::register! {
    stage "to-frame": ToFrameOptions,
    about: "moves points between the frames of sensors, vehicle and surroundings",
    sample: include_str!("../../samples/to-frame.toml"),
}

/// The channel of the dataset's poses.
const POSE: &str = "POSE";

/// What to do about what ends a run.
const LEAVE_OUT: &str = "`without_pose = \"drop\"` would leave it out";
/// What is said where there was nothing to move.
const IDLE: &str = "no event had points: put `velodyne` or `laser` before";

impl TryFrom<ToFrameOptions> for Stage {
    type Error = OptionsError;

    fn try_from(mut options: ToFrameOptions) -> Result<Self, OptionsError> {
        let pose = options.pose.take().or_else(|| match options.frame {
            Frame::Local => Pattern::parse(POSE).ok(),
            _ => None,
        });
        let fold = pose.map(|pose| fold(pose, &options)).transpose()?;
        let map = Self::Map(Box::new(ToFrame::new(options, fold.is_some())?));
        Ok(match fold {
            Some(fold) => Self::Chain(vec![Self::Fold(Box::new(fold)), map]),
            None => map,
        })
    }
}

/// The fold that puts poses beside the events that need one.
fn fold(pose: Pattern, options: &ToFrameOptions) -> Result<Attach<Pose>, OptionsError> {
    let ToFrameOptions { frame, choose, max_age, .. } = *options;
    let max_gap = forward("max_gap", options.max_gap)?;
    let wait = forward("wait", options.wait)?;
    max_age.0.map(|age| forward("max_age", age)).transpose()?;
    let wait = (choose != Choose::Last).then_some(wait);
    let reach = match choose {
        Choose::Interpolate => Some(max_gap),
        Choose::Last | Choose::At => max_age.0.map(|age| age.0),
    };
    Ok(Attach::new(Plan {
        reader: Reader::new(pose)?,
        channels: options.channels.clone(),
        needs: Box::new(move |rows, timestamps| needs(rows, timestamps, frame)),
        find: find(choose, max_age, max_gap),
        work: options.sensor.is_none().then(|| (is_points(), IDLE)),
        wait,
        reach: lookup::reach(reach, wait),
        say: Box::new(move |miss| lookup::say(miss, "pose", max_age, max_gap)),
        stop: (options.without_pose == Without::Stop).then_some(LEAVE_OUT),
    }))
}

fn is_points() -> IsWork {
    Box::new(|rows| Points::of(rows).is_some())
}

/// The points among these rows that need a pose to come into a frame.
fn needs(rows: &Rows, timestamps: &[i64], frame: Frame) -> Option<Needs> {
    Points::of(rows)
        .filter(|points| needs_pose(points.frame(), frame))
        .map(|points| Needs::of(&points, timestamps))
}

/// Whether the way between two frames leads over where the vehicle is.
fn needs_pose(from: Frame, to: Frame) -> bool {
    (from == Frame::Local) != (to == Frame::Local)
}

fn find(choose: Choose, max_age: MaxAge, max_gap: i64) -> Find<Pose> {
    match choose {
        Choose::Last => {
            Box::new(move |poses: &Poses, time| lookup::near(poses.last(), time, max_age))
        }
        Choose::At => {
            Box::new(move |poses: &Poses, time| lookup::near(poses.at(time), time, max_age))
        }
        Choose::Interpolate => {
            Box::new(move |poses: &Poses, time| poses.interpolate(time, max_gap))
        }
    }
}

/// The map.
struct ToFrame {
    frame: Frame,
    mounts: Mounts,
    plans: PerChannel<Option<ChannelPlan>>,
    channels: Patterns,
    /// The sensor whose poses are made of those of the body.
    sensor: Option<Mount>,
    without_mount: Without,
    without_pose: Without,
    /// Whether a fold puts poses beside the events that need one.
    has_poses: bool,
    messages: Messages,
}

/// What is done with the events of a channel.
#[derive(Clone, Copy)]
struct ChannelPlan {
    /// Whether `channels` has it by name, not because it has all.
    is_named: bool,
    /// From its sensor to the body.
    mount: Option<Transform>,
}

/// What is wrong with an event.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Wrong {
    NoMount,
    NoPose,
    BadPose,
}

impl ToFrame {
    fn new(options: ToFrameOptions, has_poses: bool) -> Result<Self, OptionsError> {
        let wrong = |key: &'static str| move |message: String| OptionsError::at(key, message);
        let calibration = options.calibration.load().map_err(wrong("calibration"))?;
        let mounts = Mounts::of(calibration, options.mounts)?;
        let sensor = options.sensor.as_deref().map(|name| mounts.of_name(name));
        let sensor = sensor.transpose().map_err(wrong("sensor"))?;
        if sensor.is_some() && (options.frame != Frame::Sensor || options.channels.is_empty()) {
            let message = "poses become those of a sensor with `frame = \"sensor\"`, on channels that \
                           `channels` names";
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
            messages: Messages::of_dataset()?,
        })
    }

    fn plan(&self, channel: &Channel) -> Option<ChannelPlan> {
        let name = channel.name.text();
        let is_named = self.channels.matches(name);
        if !is_named && !self.channels.is_empty() {
            return None;
        }
        let mount = self.mounts.of_channel(name).map(|mount| mount.to_body());
        Some(ChannelPlan { is_named, mount })
    }
}

/// A batch with what was decided of its channels.
struct Work<'w> {
    stage: &'w ToFrame,
    plans: Arc<Vec<Option<ChannelPlan>>>,
    batch: Batch,
}

impl Work<'_> {
    fn plan(&self, event: u32) -> Option<ChannelPlan> {
        self.plans[self.batch.channels()[event as usize] as usize]
    }

    /// Gives rows to the events of channels that were named for their poses.
    fn with_poses(mut self, context: &StageContext<'_>) -> Result<Self, Error> {
        if self.stage.sensor.is_none() {
            return Ok(self);
        }
        let named = |event: &u32| self.plan(*event).is_some_and(|plan| plan.is_named);
        let named: Vec<u32> = (0..self.batch.len() as u32).filter(named).collect();
        let decoder = (&self.stage.messages, context.channels);
        self.batch = decoded(self.batch, &named, decoder, sensor_pose::are_poses)?;
        Ok(self)
    }

    /// Tells of events of named channels in which there is nothing to move.
    fn tell_idle(&self, context: &mut StageContext<'_>) {
        if self.stage.channels.is_empty() {
            return;
        }
        let is_work = |rows: &Rows| self.are_poses(rows) || Points::of(rows).is_some();
        let is_asked = |event| self.plan(event).is_some();
        lookup::tell_idle(&self.batch, is_asked, is_work, ("points", context));
    }

    /// Refuses points of these channels whose frame nobody knows.
    fn refuse_unknown(&self, context: &StageContext<'_>) -> Result<(), Error> {
        for rows in self.batch.rows() {
            let asked = rows.events.iter().find(|event| self.plan(**event).is_some());
            let Some(event) = asked else { continue };
            let channel = ChannelId(self.batch.channels()[*event as usize]);
            refuse_unknown(rows, context.channels.get(channel).name.text())?;
        }
        Ok(())
    }

    /// The events that cannot go on, and why; ascending.
    fn wrong(&self) -> Result<Vec<(u32, Wrong)>, Error> {
        let mut wrong = Vec::new();
        for rows in self.batch.rows() {
            match Points::of(rows) {
                Some(points) => self.wrong_points(&points, &mut wrong)?,
                None => self.wrong_poses(rows, &mut wrong),
            }
        }
        wrong.sort_unstable();
        wrong.dedup_by_key(|(event, _)| *event);
        Ok(wrong)
    }

    fn wrong_points(&self, points: &Points, wrong: &mut Vec<(u32, Wrong)>) -> Result<(), Error> {
        let way = Way { from: points.frame(), to: self.stage.frame };
        let poses = Column::of::<Pose>(points.column(Pose::COLUMN));
        for (row, event) in points.events().iter().enumerate() {
            let Some(plan) = self.plan(*event) else { continue };
            if way.needs_pose() && !self.stage.has_poses {
                return Err(Error::invalid(format!(
                    "points in the {} frame come into the {} frame by poses: say on which channel they are, as in \
                     `pose = \"{POSE}\"`",
                    way.from.as_str(),
                    way.to.as_str(),
                )));
            }
            if way.needs_mount() && plan.mount.is_none() {
                wrong.push((*event, Wrong::NoMount));
            } else if way.needs_pose() && poses.values(row).is_none() {
                wrong.push((*event, Wrong::NoPose));
            }
        }
        Ok(())
    }

    fn wrong_poses(&self, rows: &Rows, wrong: &mut Vec<(u32, Wrong)>) {
        if self.are_poses(rows) {
            let rows_without = sensor_pose::without_pose(rows, self.batch.timestamps());
            let events = rows_without.iter().map(|row| rows.events[*row as usize]);
            let named = events.filter(|event| self.plan(*event).is_some_and(|plan| plan.is_named));
            wrong.extend(named.map(|event| (event, Wrong::BadPose)));
        }
    }

    fn are_poses(&self, rows: &Rows) -> bool {
        self.stage.sensor.is_some() && sensor_pose::are_poses(rows)
    }

    /// Leaves these events out.
    fn leave_out(
        mut self,
        wrong: &[(u32, Wrong)],
        context: &mut StageContext<'_>,
    ) -> Result<Self, Error> {
        if wrong.is_empty() {
            return Ok(self);
        }
        let mut notes: BTreeMap<(ChannelId, Wrong), u64> = BTreeMap::new();
        for (event, wrong) in wrong {
            let channel = ChannelId(self.batch.channels()[*event as usize]);
            *notes.entry((channel, *wrong)).or_default() += 1;
        }
        for ((channel, wrong), count) in notes {
            let name = context.channels.get(channel).name.text().to_owned();
            self.stage.tell(&name, wrong, count, context)?;
        }
        context.filtered += wrong.len() as u64;
        let is_left = |row: usize| wrong.binary_search_by_key(&(row as u32), |(e, _)| *e).is_err();
        self.batch = self.batch.retain(is_left);
        Ok(self)
    }

    /// The batch with its points and poses in the frame.
    fn moved(self) -> Result<Batch, Error> {
        each_in_place(self.batch.clone(), Pose::COLUMN, |rows| self.moved_rows(rows))
    }

    /// The rows in the frame: those of channels that were not asked for by themselves.
    fn moved_rows(&self, rows: &Rows) -> Result<Vec<Rows>, Error> {
        let points = Points::of(rows);
        let are_poses = points.is_none() && self.are_poses(rows);
        let is_asked = |event: u32| match self.plan(event) {
            Some(plan) => points.is_some() || (are_poses && plan.is_named),
            None => false,
        };
        let change = |rows: &Rows| match points.is_some() {
            true => self.moved_points(rows),
            false => self.sensor_poses(rows),
        };
        change_some(rows, is_asked, change)
    }

    fn sensor_poses(&self, rows: &Rows) -> Result<Rows, Error> {
        match &self.stage.sensor {
            Some(mount) => sensor_pose::of_sensor(rows, self.batch.timestamps(), mount),
            None => Ok(rows.clone()),
        }
    }

    fn moved_points(&self, rows: &Rows) -> Result<Rows, Error> {
        let Some(points) = Points::of(rows) else { return Ok(rows.clone()) };
        let way = Way { from: points.frame(), to: self.stage.frame };
        if way.from == way.to {
            return Ok(rows.clone());
        }
        let moved = moved(points.xyz(), &self.runs(&points, way)?);
        let members = ["x", "y", "z"].into_iter().zip(moved);
        let members = members.map(|(name, values)| {
            let values: ArrayRef = Arc::new(Float64Array::from(values));
            (name, values)
        });
        let members = members.collect();
        Ok(points.without_column(Pose::COLUMN).with_members(members, way.to).into_rows())
    }

    /// Which points move how: events behind one another that move alike are one run.
    fn runs(&self, points: &Points, way: Way) -> Result<Vec<(Range<usize>, Transform)>, Error> {
        let poses = Column::of::<Pose>(points.column(Pose::COLUMN));
        let mut runs: Vec<(Range<usize>, Transform)> = Vec::new();
        let mut last = None;
        for (row, event) in points.events().iter().enumerate() {
            let channel = self.batch.channels()[*event as usize];
            let (range, values) = (points.range(row), poses.values(row));
            match runs.last_mut() {
                Some((run, _)) if last == Some((channel, values)) => run.end = range.end,
                _ => {
                    let mount = self.plan(*event).and_then(|plan| plan.mount);
                    let pose = values.and_then(Pose::of_values).map(|pose| pose.transform());
                    runs.push((range, way.transform(mount, pose)?));
                }
            }
            last = Some((channel, values));
        }
        Ok(runs)
    }
}

/// The points, moved run by run. The runs cover them in order.
fn moved(xyz: [&[f64]; 3], runs: &[(Range<usize>, Transform)]) -> [Vec<f64>; 3] {
    if let [(_, transform)] = runs {
        return transform.apply_all(xyz);
    }
    let mut all = [(); 3].map(|()| Vec::with_capacity(xyz[0].len()));
    for (run, transform) in runs {
        let moved = transform.apply_all(xyz.map(|axis| &axis[run.clone()]));
        all.iter_mut().zip(moved).for_each(|(all, moved)| all.extend_from_slice(&moved));
    }
    all
}

/// From one frame to another.
#[derive(Clone, Copy)]
struct Way {
    from: Frame,
    to: Frame,
}

impl Way {
    fn needs_pose(self) -> bool {
        needs_pose(self.from, self.to)
    }

    fn needs_mount(self) -> bool {
        (self.from == Frame::Sensor) != (self.to == Frame::Sensor)
    }

    /// The motion, by way of the body.
    fn transform(
        self,
        mount: Option<Transform>,
        pose: Option<Transform>,
    ) -> Result<Transform, Error> {
        let missing = || Error::internal("an event without a mount or a pose was not left out");
        let to_body = |frame: Frame| match frame {
            Frame::Sensor => mount.ok_or_else(missing),
            Frame::Body => Ok(Transform::IDENTITY),
            Frame::Local => pose.map(|pose| pose.inverse()).ok_or_else(missing),
        };
        // The way back from the local frame is not inverted twice: that would round twice.
        match (self.from, self.to) {
            (from, Frame::Local) => Ok(to_body(from)?.then(&pose.ok_or_else(missing)?)),
            (from, to) => Ok(to_body(from)?.then(&to_body(to)?.inverse())),
        }
    }
}

impl ToFrame {
    fn tell(
        &self,
        channel: &str,
        wrong: Wrong,
        count: u64,
        context: &mut StageContext<'_>,
    ) -> Result<(), Error> {
        match wrong {
            Wrong::NoMount => {
                let what = format!(
                    "{channel}: the calibration has no sensor of this name; say in `mounts` which of its \
                     names the channel has"
                );
                if self.without_mount == Without::Stop {
                    return Err(Error::invalid(what));
                }
                context.note(what, count);
            }
            Wrong::BadPose => {
                let what = format!("{channel}: {}", <Pose as Known>::WRONG);
                if self.without_pose == Without::Stop {
                    return Err(Error::invalid(format!("{what}; {LEAVE_OUT}")));
                }
                context.note(what, count);
            }
            // The fold has told of it.
            Wrong::NoPose => {}
        }
        Ok(())
    }
}

impl Map for ToFrame {
    fn apply(&self, batch: Batch, context: &mut StageContext<'_>) -> Result<Batch, Error> {
        let plans = self.plans.table(context.channels, |channel| Ok(self.plan(channel)))?;
        let work = Work { stage: self, plans, batch }.with_poses(context)?;
        work.refuse_unknown(context)?;
        work.tell_idle(context);
        let wrong = work.wrong()?;
        work.leave_out(&wrong, context)?.moved()
    }

    fn query(&self) -> MapQuery {
        MapQuery { keeps_times: true, keeps_channels: true, ..MapQuery::default() }
    }

    fn fingerprint(&self) -> Option<String> {
        Some(self.mounts.made_from().to_owned())
    }
}
