//! Stage `georeference`: adds latitude, longitude and altitude to points and poses of the local
//! frame. Moves nothing.
//!
//! A fold, which sees events in log order, attaches to each event the GPS reference it needs; a map
//! then computes the positions.

use std::collections::BTreeMap;
use std::ops::Range;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sluice_model::time::TimeSpan;
use sluice_model::{
    Batch, Channel, ChannelId, Channels, Error, Map, MapQuery, OptionsError, Pattern, Patterns,
    PerChannel, PluginFactory, Registry, Rows, Stage, StageContext,
};

use crate::dataset_decoder::DatasetDecoder;
use crate::geometry::Quaternion;
use crate::globe::{GlobeProjection, GpsReference};
use crate::points::{PointFrame, Points, refuse_unknown_frames};
use crate::poses::attach::{
    AttachFold, AttachPlan, AttachedColumn, AttachedValue, LookupFn, LookupTimes,
};
use crate::poses::lookup;
use crate::poses::options::{MaxAge, MissingPolicy};
use crate::poses::rows::{
    map_rows, map_selected, number_column, with_columns, with_decoded_rows, with_type,
};
use crate::poses::{ChannelReader, History, double_lists, row_times};

/// Options of `georeference`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct GeoreferenceOptions {
    /// Channel of the GPS references, which tie the local frame to the globe.
    pub(crate) gps: Pattern,
    /// Which GPS reference an event uses.
    pub(crate) choose: ReferenceChoice,
    /// Maximum time between an event and its GPS reference, or `none` for no limit.
    pub(crate) max_age: MaxAge,
    /// For `at`: how long, in log time, events wait for a later GPS reference.
    pub(crate) wait: TimeSpan,
    /// Channels whose points and poses are georeferenced. Default: all that are decoded.
    pub(crate) channels: Patterns,
    /// What happens to events without a GPS reference.
    pub(crate) without_reference: MissingPolicy,
}

/// Which GPS reference an event uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ReferenceChoice {
    /// The last one before the event in the log.
    #[default]
    Last,
    /// The newest one that is not after the event, by the times of the messages.
    At,
}

impl Default for GeoreferenceOptions {
    fn default() -> Self {
        Self {
            gps: Pattern::parse("GPS_TO_LOCAL").expect("a plain name is a pattern"),
            choose: ReferenceChoice::default(),
            max_age: MaxAge::seconds(10),
            wait: TimeSpan(1_000_000_000),
            channels: Patterns::default(),
            without_reference: MissingPolicy::default(),
        }
    }
}

sluice_model::register! {
    stage "georeference": GeoreferenceOptions,
    make: PluginFactory::Stage(|value, registry| stage(sluice_model::options::read(value)?, registry)),
    about: "adds latitude, longitude and altitude to points and poses of the local frame",
    sample: include_str!("../samples/georeference.toml"),
}

/// The note if no event had points or poses.
const NOTHING_TO_PLACE: &str = "no event had points: add `velodyne` or `laser` before this stage, \
                                then `to-frame`; poses need to be decoded, or their channel named \
                                in `channels`";

fn stage(options: GeoreferenceOptions, registry: &Registry) -> Result<Stage, OptionsError> {
    let fold = Stage::Fold(Box::new(fold(&options, registry)?));
    let map = Stage::Map(Box::new(Georeference { channels: options.channels.clone() }));
    if options.channels.is_empty() {
        return Ok(Stage::Chain(vec![fold, map]));
    }
    let decode = DecodePoses {
        channels: options.channels,
        named: PerChannel::default(),
        decoder: DatasetDecoder::new(registry)?,
    };
    Ok(Stage::Chain(vec![Stage::Map(Box::new(decode)), fold, map]))
}

fn fold(
    options: &GeoreferenceOptions,
    registry: &Registry,
) -> Result<AttachFold<GpsReference>, OptionsError> {
    let (max_age, wait) = (options.max_age, options.wait.nanos());
    let usual = GeoreferenceOptions::default();
    if options.choose == ReferenceChoice::Last && options.wait != usual.wait {
        return Err(OptionsError::needs("wait", "choose = \"at\""));
    }
    let wait = (options.choose == ReferenceChoice::At).then_some(wait);
    let advice = "`without_reference = \"drop\"` drops such events";
    Ok(AttachFold::new(AttachPlan {
        reader: ChannelReader::new(options.gps.clone(), registry)?,
        channels: options.channels.clone(),
        lookup_times: Box::new(lookup_times),
        lookup: lookup_fn(options.choose, max_age),
        work: Some((Box::new(|rows| Placeable::from_rows(rows).is_some()), NOTHING_TO_PLACE)),
        wait,
        reach: lookup::query_reach(max_age.0.map(TimeSpan::nanos), wait),
        describe_miss: Box::new(move |miss| {
            lookup::describe_miss(miss, "GPS reference", max_age, 0)
        }),
        stop_advice: (options.without_reference == MissingPolicy::Stop).then_some(advice),
    }))
}

/// Lookup times of points and poses.
fn lookup_times(rows: &Rows, timestamps: &[i64]) -> Option<LookupTimes> {
    if let Some(points) = Points::from_rows(rows) {
        return Some(LookupTimes::from_points(&points, timestamps));
    }
    double_lists::<3>(rows, POSITION)?;
    let times: Vec<i64> = row_times(rows, timestamps).collect();
    Some(LookupTimes { points: vec![0; times.len()], times })
}

fn lookup_fn(choose: ReferenceChoice, max_age: MaxAge) -> LookupFn<GpsReference> {
    Box::new(move |references: &History<GpsReference>, time| {
        let reference = match choose {
            ReferenceChoice::Last => references.last(),
            ReferenceChoice::At => references.at(time),
        };
        lookup::within_max_age(reference, time, max_age)
    })
}

/// The position column of poses.
const POSITION: &str = "pos";
/// The type of georeferenced poses.
const GLOBE_POSE: &str = "sluice.pose.globe";

/// Decodes poses on the channels that `channels` names.
struct DecodePoses {
    channels: Patterns,
    named: PerChannel<bool>,
    decoder: DatasetDecoder,
}

impl Map for DecodePoses {
    fn apply(&self, batch: Batch, context: &mut StageContext<'_>) -> Result<Batch, Error> {
        let is_named = |channel: &Channel| Ok(self.channels.matches(channel.name.text()));
        let named = self.named.table(context.channels, is_named)?;
        let events = (0u32..).zip(batch.channels()).filter(|(_, on)| named[**on as usize]);
        let events: Vec<u32> = events.map(|(event, _)| event).collect();
        let is_pose = |rows: &Rows| double_lists::<3>(rows, POSITION).is_some();
        with_decoded_rows(batch, &events, (&self.decoder, context.channels), is_pose)
    }

    fn query(&self) -> MapQuery {
        MapQuery { keeps_times: true, keeps_channels: true, ..MapQuery::default() }
    }
}

/// The map that computes the positions.
struct Georeference {
    channels: Patterns,
}

impl Georeference {
    fn is_selected(&self, channel: &str) -> bool {
        self.channels.is_empty() || self.channels.matches(channel)
    }

    /// Which channels of the run are selected.
    fn selected(&self, channels: &Channels) -> Vec<bool> {
        channels.since(0).iter().map(|channel| self.is_selected(channel.name.text())).collect()
    }
}

impl Map for Georeference {
    fn apply(&self, batch: Batch, context: &mut StageContext<'_>) -> Result<Batch, Error> {
        let work = BatchPlacement { selected: self.selected(context.channels), batch };
        refuse_unknown_frames(&work.batch, |event| work.is_selected(event), context.channels)?;
        if !self.channels.is_empty() {
            work.note_idle_events(context);
        }
        let without = work.without_reference(context.channels)?;
        work.drop_events(&without, context).placed()
    }

    fn query(&self) -> MapQuery {
        MapQuery { keeps_times: true, keeps_channels: true, ..MapQuery::default() }
    }
}

/// A batch and its selected channels.
struct BatchPlacement {
    selected: Vec<bool>,
    batch: Batch,
}

/// Rows that can be georeferenced.
enum Placeable {
    Points(Points),
    Poses(Vec<Option<[f64; 3]>>),
}

impl Placeable {
    fn from_rows(rows: &Rows) -> Option<Self> {
        let points = Points::from_rows(rows).map(Self::Points);
        points.or_else(|| double_lists::<3>(rows, POSITION).map(Self::Poses))
    }
}

impl BatchPlacement {
    fn is_selected(&self, event: u32) -> bool {
        self.selected[self.batch.channels()[event as usize] as usize]
    }

    /// Notes events on named channels without points or poses.
    fn note_idle_events(&self, context: &mut StageContext<'_>) {
        let is_work = |rows: &Rows| Placeable::from_rows(rows).is_some();
        let without = ("points or poses", context);
        lookup::note_idle_events(&self.batch, |event| self.is_selected(event), is_work, without);
    }

    /// The events without a GPS reference, ascending. `Err` for points that are not in the local
    /// frame.
    fn without_reference(&self, channels: &Channels) -> Result<Vec<u32>, Error> {
        let mut without = Vec::new();
        for rows in self.batch.rows() {
            let Some(placeable) = Placeable::from_rows(rows) else { continue };
            let references = AttachedColumn::from_column::<GpsReference>(
                rows.columns.column_by_name(GpsReference::COLUMN),
            );
            for (row, event) in rows.events.iter().enumerate() {
                if !self.is_selected(*event) {
                    continue;
                }
                if let Placeable::Points(points) = &placeable
                    && points.frame() != PointFrame::Local
                {
                    let channel = ChannelId(self.batch.channels()[*event as usize]);
                    return Err(wrong_frame(channels.get(channel).name.text(), points.frame()));
                }
                if references.values(row).is_none() {
                    without.push(*event);
                }
            }
        }
        without.sort_unstable();
        without.dedup();
        Ok(without)
    }

    /// Drops these events. The fold has already noted them.
    fn drop_events(mut self, without: &[u32], context: &mut StageContext<'_>) -> Self {
        if !without.is_empty() {
            context.report.filtered += without.len() as u64;
            self.batch = self.batch.retain(|row| without.binary_search(&(row as u32)).is_err());
        }
        self
    }

    /// Adds the positions to the rows of the selected channels.
    fn placed(self) -> Result<Batch, Error> {
        map_rows(self.batch.clone(), GpsReference::COLUMN, |rows| {
            map_selected(rows, |event| self.is_selected(event), place)
        })
    }
}

fn wrong_frame(channel: &str, frame: PointFrame) -> Error {
    Error::invalid(format!(
        "points of `{channel}` are in the {} frame, but only those in the local frame can be \
         georeferenced: add a stage `to-frame` before this one",
        frame.as_str()
    ))
}

/// Adds positions to rows that all have a GPS reference.
fn place(rows: &Rows) -> Result<Rows, Error> {
    match Placeable::from_rows(rows) {
        Some(Placeable::Points(points)) => place_points(points),
        Some(Placeable::Poses(positions)) => place_poses(rows, &positions),
        None => Ok(rows.clone()),
    }
}

fn projection_of(references: &AttachedColumn<'_>, row: usize) -> Result<GlobeProjection, Error> {
    let reference = references.values(row).and_then(GpsReference::from_values);
    let missing = || Error::internal("an event without a GPS reference was not dropped");
    reference.map(GlobeProjection::new).ok_or_else(missing)
}

fn place_points(points: Points) -> Result<Rows, Error> {
    let mut globe = [(); 3].map(|()| Vec::with_capacity(points.len()));
    for (run, projection) in runs(&points)? {
        projection.append_all(points.xyz().map(|axis| &axis[run.clone()]), &mut globe);
    }
    let members = ["latitude", "longitude", "altitude"].into_iter().zip(globe);
    Ok(points
        .without_column(GpsReference::COLUMN)
        .with_members(members, PointFrame::Local)
        .into_rows())
}

/// The projections of consecutive points. Consecutive events with the same reference share a run.
fn runs(points: &Points) -> Result<Vec<(Range<usize>, GlobeProjection)>, Error> {
    let references =
        AttachedColumn::from_column::<GpsReference>(points.column(GpsReference::COLUMN));
    points.runs(|row, _| references.values(row), |row, _| projection_of(&references, row))
}

fn place_poses(rows: &Rows, positions: &[Option<[f64; 3]>]) -> Result<Rows, Error> {
    let references = AttachedColumn::from_column::<GpsReference>(
        rows.columns.column_by_name(GpsReference::COLUMN),
    );
    let orientations = double_lists::<4>(rows, "orientation");
    let mut columns: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    let mut add = |name, value| columns.entry(name).or_default().push(value);
    for (row, position) in positions.iter().enumerate() {
        let projection = projection_of(&references, row)?;
        let place = projection.geodetic(position.unwrap_or([f64::NAN; 3]));
        ["latitude", "longitude", "altitude"].into_iter().zip(place).for_each(|(n, v)| add(n, v));
        if let Some(orientations) = &orientations {
            add("heading", heading_or_nan(&projection, orientations[row]));
        }
    }
    let names = ["latitude", "longitude", "altitude", "heading"].into_iter();
    let columns =
        names.filter_map(|name| Some(number_column(name, columns.remove(name)?))).collect();
    let placed = with_columns(rows, &[GpsReference::COLUMN], columns)?;
    Ok(with_type(placed, GLOBE_POSE))
}

/// The heading, or NaN without an orientation.
fn heading_or_nan(projection: &GlobeProjection, orientation: Option<[f64; 4]>) -> f64 {
    let orientation = orientation.map(|[w, x, y, z]| Quaternion { w, x, y, z });
    let orientation = orientation.and_then(Quaternion::normalized);
    orientation.map_or(f64::NAN, |orientation| projection.heading(orientation))
}
