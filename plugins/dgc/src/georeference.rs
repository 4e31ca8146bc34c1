//! `georeference`: where on the Earth points and poses of the local frame are. Moves nothing: it adds
//! degrees and metres beside what is there.
//!
//! A fold looks at events in the order of the log and puts beside each the tie to the globe it needs; a
//! map does the sums.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array};
use schemars::JsonSchema;
use serde::Deserialize;
use sluice_core::time::TimeLength;
use sluice_core::{
    Batch, Channel, ChannelId, Channels, Error, Map, MapQuery, OptionsError, Pattern, Patterns,
    PerChannel, Rows, Stage, StageContext,
};

use crate::geometry::Quaternion;
use crate::globe::{Globe, Tie};
use crate::messages::Messages;
use crate::points::{Frame, Points, refuse_unknown};
use crate::poses::attach::{Attach, Attached, Column, Find, Needs, Plan};
use crate::poses::lookup;
use crate::poses::options::{MaxAge, Without, forward};
use crate::poses::rows::{change_some, decoded, each_in_place, numbers, of_type, with_columns};
use crate::poses::{History, Reader, doubles, times};

/// Options of `georeference`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GeoreferenceOptions {
    /// The channel of the ties between the local frame and the globe.
    pub gps: Pattern,
    /// Which tie an event has.
    pub choose: Choose,
    /// A tie that is further than this from the event's own time is not used, or `none`.
    pub max_age: MaxAge,
    /// For `at`: how long, in the log's time, events wait for a tie after them.
    pub wait: TimeLength,
    /// Channels whose points and poses are placed. None given: all that are decoded.
    pub channels: Patterns,
    /// What becomes of events that have no tie.
    pub without_reference: Without,
}

/// Which tie an event has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Choose {
    /// The last before it in the log.
    #[default]
    Last,
    /// The newest that is not after it, by the times of the messages.
    At,
}

impl Default for GeoreferenceOptions {
    fn default() -> Self {
        Self {
            gps: Pattern::parse("GPS_TO_LOCAL").expect("a plain name is a pattern"),
            choose: Choose::default(),
            max_age: MaxAge::seconds(10),
            wait: TimeLength(1_000_000_000),
            channels: Patterns::default(),
            without_reference: Without::default(),
        }
    }
}

sluice_core::register! {
    stage "georeference": GeoreferenceOptions,
    about: "says where on the Earth points and poses of the local frame are",
    sample: include_str!("../samples/georeference.toml"),
}

/// What is said where there was nothing to place.
const IDLE: &str = "no event had points: put `velodyne` or `laser` before, and `to-frame`; poses are placed where \
                    they are decoded, or where `channels` names theirs";

impl TryFrom<GeoreferenceOptions> for Stage {
    type Error = OptionsError;

    fn try_from(options: GeoreferenceOptions) -> Result<Self, OptionsError> {
        let fold = Self::Fold(Box::new(fold(&options)?));
        let map = Self::Map(Box::new(Georeference { channels: options.channels.clone() }));
        if options.channels.is_empty() {
            return Ok(Self::Chain(vec![fold, map]));
        }
        let decode = Decode {
            channels: options.channels,
            named: PerChannel::default(),
            messages: Messages::of_dataset()?,
        };
        Ok(Self::Chain(vec![Self::Map(Box::new(decode)), fold, map]))
    }
}

fn fold(options: &GeoreferenceOptions) -> Result<Attach<Tie>, OptionsError> {
    let (max_age, wait) = (options.max_age, forward("wait", options.wait)?);
    max_age.0.map(|age| forward("max_age", age)).transpose()?;
    let wait = (options.choose == Choose::At).then_some(wait);
    let advice = "`without_reference = \"drop\"` would leave it out";
    Ok(Attach::new(Plan {
        reader: Reader::new(options.gps.clone())?,
        channels: options.channels.clone(),
        needs: Box::new(needs),
        find: find(options.choose, max_age),
        work: Some((Box::new(|rows| Kind::of(rows).is_some()), IDLE)),
        wait,
        reach: lookup::reach(max_age.0.map(|age| age.0), wait),
        say: Box::new(move |miss| lookup::say(miss, "tie to the globe", max_age, 0)),
        stop: (options.without_reference == Without::Stop).then_some(advice),
    }))
}

/// Points, and poses.
fn needs(rows: &Rows, timestamps: &[i64]) -> Option<Needs> {
    if let Some(points) = Points::of(rows) {
        return Some(Needs::of(&points, timestamps));
    }
    doubles::<3>(rows, POSITION)?;
    let times: Vec<i64> = times(rows, timestamps).collect();
    Some(Needs { points: vec![0; times.len()], times })
}

fn find(choose: Choose, max_age: MaxAge) -> Find<Tie> {
    Box::new(move |ties: &History<Tie>, time| {
        let tie = match choose {
            Choose::Last => ties.last(),
            Choose::At => ties.at(time),
        };
        lookup::near(tie, time, max_age)
    })
}

/// The column that poses have.
const POSITION: &str = "pos";
/// The type that poses on the globe have.
const GLOBE_POSE: &str = "sluice.pose.globe";

/// Decodes what was named and is not decoded yet, if it is a pose.
struct Decode {
    channels: Patterns,
    named: PerChannel<bool>,
    messages: Messages,
}

impl Map for Decode {
    fn apply(&self, batch: Batch, context: &mut StageContext<'_>) -> Result<Batch, Error> {
        let is_named = |channel: &Channel| Ok(self.channels.matches(channel.name.text()));
        let named = self.named.table(context.channels, is_named)?;
        let events = (0u32..).zip(batch.channels()).filter(|(_, on)| named[**on as usize]);
        let events: Vec<u32> = events.map(|(event, _)| event).collect();
        let is_pose = |rows: &Rows| doubles::<3>(rows, POSITION).is_some();
        decoded(batch, &events, (&self.messages, context.channels), is_pose)
    }

    fn query(&self) -> MapQuery {
        MapQuery { keeps_times: true, keeps_channels: true, ..MapQuery::default() }
    }
}

/// The map that does the sums.
struct Georeference {
    channels: Patterns,
}

impl Georeference {
    fn is_asked(&self, channel: &str) -> bool {
        self.channels.is_empty() || self.channels.matches(channel)
    }

    /// Whether each channel of the run is asked for.
    fn asked(&self, channels: &Channels) -> Vec<bool> {
        channels.since(0).iter().map(|channel| self.is_asked(channel.name.text())).collect()
    }
}

impl Map for Georeference {
    fn apply(&self, batch: Batch, context: &mut StageContext<'_>) -> Result<Batch, Error> {
        let work = Work { asked: self.asked(context.channels), batch };
        work.refuse_unknown(context)?;
        if !self.channels.is_empty() {
            work.tell_idle(context);
        }
        let without = work.without_tie(context.channels)?;
        work.leave_out(&without, context).placed()
    }

    fn query(&self) -> MapQuery {
        MapQuery { keeps_times: true, keeps_channels: true, ..MapQuery::default() }
    }
}

/// A batch, and which channels are asked for.
struct Work {
    asked: Vec<bool>,
    batch: Batch,
}

/// What of a row can be placed.
enum Kind {
    Points(Points),
    Poses(Vec<Option<[f64; 3]>>),
}

impl Kind {
    fn of(rows: &Rows) -> Option<Self> {
        let points = Points::of(rows).map(Self::Points);
        points.or_else(|| doubles::<3>(rows, POSITION).map(Self::Poses))
    }
}

impl Work {
    fn is_asked(&self, event: u32) -> bool {
        self.asked[self.batch.channels()[event as usize] as usize]
    }

    /// Refuses points of these channels whose frame nobody knows.
    fn refuse_unknown(&self, context: &StageContext<'_>) -> Result<(), Error> {
        for rows in self.batch.rows() {
            let asked = rows.events.iter().find(|event| self.is_asked(**event));
            let Some(event) = asked else { continue };
            let channel = ChannelId(self.batch.channels()[*event as usize]);
            refuse_unknown(rows, context.channels.get(channel).name.text())?;
        }
        Ok(())
    }

    /// Tells of events of named channels in which there is nothing to place.
    fn tell_idle(&self, context: &mut StageContext<'_>) {
        let is_work = |rows: &Rows| Kind::of(rows).is_some();
        let without = ("points or poses", context);
        lookup::tell_idle(&self.batch, |event| self.is_asked(event), is_work, without);
    }

    /// The events that have no tie, ascending. `Err` if there are points of another frame.
    fn without_tie(&self, channels: &Channels) -> Result<Vec<u32>, Error> {
        let mut without = Vec::new();
        for rows in self.batch.rows() {
            let Some(kind) = Kind::of(rows) else { continue };
            let ties = Column::of::<Tie>(rows.columns.column_by_name(Tie::COLUMN));
            for (row, event) in rows.events.iter().enumerate() {
                if !self.is_asked(*event) {
                    continue;
                }
                if let Kind::Points(points) = &kind
                    && points.frame() != Frame::Local
                {
                    let channel = ChannelId(self.batch.channels()[*event as usize]);
                    return Err(wrong_frame(channels.get(channel).name.text(), points.frame()));
                }
                if ties.values(row).is_none() {
                    without.push(*event);
                }
            }
        }
        without.sort_unstable();
        without.dedup();
        Ok(without)
    }

    /// Leaves these events out. The fold has told of them.
    fn leave_out(mut self, without: &[u32], context: &mut StageContext<'_>) -> Self {
        if !without.is_empty() {
            context.filtered += without.len() as u64;
            self.batch = self.batch.retain(|row| without.binary_search(&(row as u32)).is_err());
        }
        self
    }

    /// The batch with places in the rows of those channels that were asked for.
    fn placed(self) -> Result<Batch, Error> {
        each_in_place(self.batch.clone(), Tie::COLUMN, |rows| {
            change_some(rows, |event| self.is_asked(event), place)
        })
    }
}

fn wrong_frame(channel: &str, frame: Frame) -> Error {
    Error::invalid(format!(
        "points of `{channel}` are in the {} frame, and only those of the local frame have a place on the \
         globe: put a stage `to-frame` before",
        frame.as_str()
    ))
}

/// The rows, all of which have a tie, with their places.
fn place(rows: &Rows) -> Result<Rows, Error> {
    match Kind::of(rows) {
        Some(Kind::Points(points)) => place_points(points),
        Some(Kind::Poses(positions)) => place_poses(rows, &positions),
        None => Ok(rows.clone()),
    }
}

fn globe_of(ties: &Column<'_>, row: usize) -> Result<Globe, Error> {
    let tie = ties.values(row).and_then(Tie::of_values);
    let missing = || Error::internal("an event without a tie was not left out");
    tie.map(Globe::new).ok_or_else(missing)
}

fn place_points(points: Points) -> Result<Rows, Error> {
    let mut globe = [(); 3].map(|()| Vec::with_capacity(points.len()));
    for (run, way) in runs(&points)? {
        way.append_all(points.xyz().map(|axis| &axis[run.clone()]), &mut globe);
    }
    let members = ["latitude", "longitude", "altitude"].into_iter().zip(globe);
    let members = members.map(|(name, values)| {
        let values: ArrayRef = Arc::new(Float64Array::from(values));
        (name, values)
    });
    let members = members.collect();
    Ok(points.without_column(Tie::COLUMN).with_members(members, Frame::Local).into_rows())
}

/// Which points have which way to the globe: events behind one another with one tie are one run.
fn runs(points: &Points) -> Result<Vec<(Range<usize>, Globe)>, Error> {
    let ties = Column::of::<Tie>(points.column(Tie::COLUMN));
    let mut runs: Vec<(Range<usize>, Globe)> = Vec::new();
    let mut last = None;
    for row in 0..points.events().len() {
        let (range, tie) = (points.range(row), ties.values(row));
        match runs.last_mut() {
            Some((run, _)) if last == Some(tie) => run.end = range.end,
            _ => runs.push((range, globe_of(&ties, row)?)),
        }
        last = Some(tie);
    }
    Ok(runs)
}

fn place_poses(rows: &Rows, positions: &[Option<[f64; 3]>]) -> Result<Rows, Error> {
    let ties = Column::of::<Tie>(rows.columns.column_by_name(Tie::COLUMN));
    let orientations = doubles::<4>(rows, "orientation");
    let mut columns: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    let mut add = |name, value| columns.entry(name).or_default().push(value);
    for (row, position) in positions.iter().enumerate() {
        let way = globe_of(&ties, row)?;
        let place = way.of_local(position.unwrap_or([f64::NAN; 3]));
        ["latitude", "longitude", "altitude"].into_iter().zip(place).for_each(|(n, v)| add(n, v));
        if let Some(orientations) = &orientations {
            add("heading", heading(&way, orientations[row]));
        }
    }
    let names = ["latitude", "longitude", "altitude", "heading"].into_iter();
    let columns = names.filter_map(|name| Some(numbers(name, columns.remove(name)?))).collect();
    let placed = with_columns(rows, &[Tie::COLUMN], columns)?;
    Ok(of_type(placed, GLOBE_POSE))
}

/// No number where there is no orientation.
fn heading(way: &Globe, orientation: Option<[f64; 4]>) -> f64 {
    let orientation = orientation.map(|[w, x, y, z]| Quaternion { w, x, y, z });
    let orientation = orientation.and_then(Quaternion::normalized);
    orientation.map_or(f64::NAN, |orientation| way.heading(orientation))
}
