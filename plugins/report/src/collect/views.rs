//! What the events of a batch show: places, pictures, scans, and when they were made.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Float32Type;
use arrow_array::{Array, Float32Array, RecordBatch};
use arrow_cast::cast;
use arrow_schema::DataType;
use serde_json::json;
use sluice_model::{
    Batch, Channel, Channels, Error, FieldPath, Map, OptionsError, PluginKind, Registry, Rows,
    Stage, StageContext, TypeKey,
};
use sluice_views::{
    FixColumns, ImageColumns, Placements, ScanColumns, Times, ViewMap, list_parts, maps, parse_maps,
};

use super::clouds::CloudPart;
use super::grid::BucketWidth;
use super::latency::Latencies;
use super::packets::FirstPackets;
use super::pictures::{CollectedPictures, Pictures};
use super::places::Places;

/// Which fields of which messages are shown, and how.
pub(crate) struct ReportViews {
    maps: Vec<ViewMap>,
    /// The stages that make points of packets, by map.
    packets: BTreeMap<usize, Box<dyn Map>>,
}

impl std::fmt::Debug for ReportViews {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ReportViews({} maps)", self.maps.len())
    }
}

impl ReportViews {
    /// The maps of the built-in types and of ROS, with the stages that they need if the program has
    /// them.
    pub(crate) fn new(registry: &Registry) -> Result<Self, OptionsError> {
        let wrong = |message| OptionsError { path: Vec::new(), message };
        let files = [include_str!("../../maps/mit-dgc.toml"), include_str!("../../maps/ros.toml")];
        let own: Result<Vec<_>, _> = files.into_iter().map(parse_maps).collect();
        let maps = maps(own.map_err(wrong)?.concat(), true)?;
        let mut packets = BTreeMap::new();
        for (at, map) in maps.iter().enumerate() {
            let Some(options) = &map.velodyne else { continue };
            if registry.get(PluginKind::Stage, PACKETS).is_none() {
                continue;
            }
            let mut options = options.clone();
            if let Some(options) = options.as_object_mut() {
                options.insert("channels".into(), json!(["*"]));
            }
            let stages = registry.stage(PACKETS, options)?.into_parts();
            if let Ok([Stage::Map(stage)]) = <[Stage; 1]>::try_from(stages) {
                packets.insert(at, stage);
            }
        }
        Ok(Self { maps, packets })
    }

    /// The points of the first revolution of these packets; `None` without points.
    pub(super) fn revolution(
        &self,
        map: usize,
        packets: Batch,
        channels: &Channels,
    ) -> Result<Option<CloudPart>, Error> {
        let Some(stage) = self.packets.get(&map) else { return Ok(None) };
        let Some(start) = packets.timestamps().first().copied() else { return Ok(None) };
        let decoded = stage.apply(packets, &mut StageContext::new(channels, None))?;
        let field = FieldPath::column("points");
        let lists = decoded.rows().iter().filter_map(|rows| {
            Some((rows.events.len(), PointLists::resolve(&field, &rows.columns)?))
        });
        let mut points = Vec::new();
        let mut turned = TurnedAngle::default();
        for (rows, lists) in lists {
            for row in 0..rows {
                if turned.is_whole_after(lists.first_azimuth(row)) {
                    return Ok(CloudPart::from_points(points, (start, TypeKey::default())));
                }
                points.extend(lists.points(row));
            }
        }
        Ok(CloudPart::from_points(points, (start, TypeKey::default())))
    }
}

/// The stage that makes points of packets.
const PACKETS: &str = "velodyne";

/// How far a laser has turned.
#[derive(Debug, Default)]
struct TurnedAngle {
    last: Option<f32>,
    degrees: f32,
}

impl TurnedAngle {
    /// Whether it has turned once when it points here.
    fn is_whole_after(&mut self, azimuth: Option<f32>) -> bool {
        let Some(azimuth) = azimuth.filter(|azimuth| azimuth.is_finite()) else { return false };
        if let Some(last) = self.last.replace(azimuth) {
            self.degrees += (azimuth - last).rem_euclid(360.0);
        }
        self.degrees >= 360.0
    }
}

/// What a channel shows.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ViewParts {
    pub(super) track: Places,
    pub(super) fixes: Places,
    pub(super) pictures: Pictures,
    pub(super) cloud: Option<CloudPart>,
    /// Packets, with the map that says what they are.
    pub(super) packets: Option<(usize, FirstPackets)>,
    pub(super) latencies: Latencies,
}

impl ViewParts {
    pub(super) fn append(&mut self, next: Self) {
        self.track.append(next.track);
        self.fixes.append(next.fixes);
        self.pictures.append(next.pictures);
        CloudPart::keep_earlier(&mut self.cloud, next.cloud);
        match (&mut self.packets, next.packets) {
            (Some((_, ours)), Some((_, next))) => ours.append(next),
            (ours, next) => *ours = ours.take().or(next),
        }
        self.latencies.append(next.latencies);
    }
}

/// The columns of a view.
enum ViewColumns {
    Pose(Placements),
    Fix(FixColumns),
    Image(ImageColumns),
    Scan(ScanColumns),
    Points(PointLists),
    /// Packets, by the number of their map.
    Packets,
    /// Scans of a channel that has an earlier one of this type.
    NotNeeded,
}

impl ViewColumns {
    fn resolve(map: &ViewMap, columns: &RecordBatch) -> Option<Self> {
        if let Some(image) = &map.image {
            return ImageColumns::resolve(image, columns).map(Self::Image);
        }
        if let Some(scan) = &map.scan {
            return ScanColumns::resolve(scan, columns).map(Self::Scan);
        }
        if let Some(points) = &map.points {
            return PointLists::resolve(&points.field, columns).map(Self::Points);
        }
        if let Some(fix) = &map.fix {
            return FixColumns::resolve(fix, columns).map(Self::Fix);
        }
        if map.velodyne.is_some() {
            return Some(Self::Packets);
        }
        // A rotation alone is no way.
        let pose = map.pose.as_ref().filter(|pose| !pose.at.position.is_empty())?;
        Placements::resolve(&pose.at, columns).map(Self::Pose)
    }
}

/// The widths of buckets, and the pictures that are not needed.
#[derive(Clone, Copy)]
pub(super) struct ViewContext<'c> {
    pub(super) width: BucketWidth,
    pub(super) picture_width: BucketWidth,
    pub(super) collected: &'c CollectedPictures,
}

/// The rows of a channel, with their events' times.
pub(super) struct ViewRows<'r> {
    pub(super) batch: &'r Batch,
    pub(super) rows: &'r Rows,
    pub(super) channel: &'r Channel,
    pub(super) number: u32,
    /// Row and time.
    pub(super) events: &'r [(usize, i64)],
}

impl ReportViews {
    /// Adds what rows show to the parts of their channel.
    pub(super) fn add(&self, of: &ViewRows<'_>, to: &mut ViewParts, context: ViewContext<'_>) {
        let ViewRows { batch, rows, channel, number, events } = of;
        let columns = &rows.columns;
        let mut fitting = (self.maps.iter().enumerate())
            .filter(|(_, map)| map.is_for(channel.name.text(), &rows.message.name));
        let key = rows.base_key();
        let scan_until = context.collected.scan_until(*number, key);
        let needs_scan = events.iter().any(|(_, time)| *time < scan_until);
        let found = fitting.find_map(|(at, map)| {
            // Long lists take long to read. That this type has them is known from its scan.
            let is_scan = map.scan.is_some() || map.points.is_some();
            let view = match is_scan && !needs_scan {
                true => ViewColumns::NotNeeded,
                false => ViewColumns::resolve(map, columns)?,
            };
            Some((at, map, view))
        });
        let time =
            found.as_ref().and_then(|(_, map, _)| Some((map.time.clone()?, map.time_unit.nanos())));
        to.latencies.append(latencies(columns, events, time));
        let Some((map, _, view)) = found else { return };
        for &(row, time) in *events {
            match &view {
                ViewColumns::NotNeeded => return,
                ViewColumns::Pose(columns) => {
                    let Some(placement) = columns.at(row) else { continue };
                    let [x, y, _] = placement.position;
                    to.track.add(time, [x, y], context.width);
                }
                ViewColumns::Fix(columns) => {
                    let Some(position) = columns.position(row) else { continue };
                    to.fixes.add(time, [position.longitude, position.latitude], context.width);
                }
                ViewColumns::Image(columns) => {
                    let place = (*number, context.picture_width, context.collected);
                    to.pictures.add(columns, row, time, place);
                }
                ViewColumns::Packets => {
                    let (_, packets) = to.packets.get_or_insert((map, FirstPackets::default()));
                    if time < context.collected.packets_until(*number) {
                        packets.add(time, batch.payload(rows.events[row] as usize));
                    }
                }
                ViewColumns::Scan(_) | ViewColumns::Points(_)
                    if to.cloud.as_ref().is_some_and(|cloud| cloud.is_until(time)) => {}
                ViewColumns::Scan(columns) => {
                    let scan = CloudPart::from_scan(columns, row, (time, key));
                    CloudPart::keep_earlier(&mut to.cloud, scan);
                }
                ViewColumns::Points(lists) => {
                    let points = CloudPart::from_points(lists.points(row), (time, key));
                    CloudPart::keep_earlier(&mut to.cloud, points);
                }
            }
        }
    }
}

/// Latencies by the field that a map names, or else one of the usual ones.
pub(super) fn latencies(
    columns: &RecordBatch,
    events: &[(usize, i64)],
    mapped: Option<(FieldPath, i64)>,
) -> Latencies {
    const MICROSECONDS: i64 = 1_000;
    let usual = ["utime", "header.stamp", "timestamp"].into_iter();
    let usual = usual.filter_map(|path| Some((FieldPath::parse(path).ok()?, MICROSECONDS)));
    let found = mapped
        .into_iter()
        .chain(usual)
        .find_map(|(path, unit)| Some((MessageTimes::resolve(&path, unit, columns)?, path)));
    let Some((times, path)) = found else { return Latencies::default() };
    let pairs = events.iter().filter_map(|(row, time)| Some((*time, times.at(*row)?)));
    let pairs: Vec<(i64, i64)> = pairs.collect();
    Latencies::from_times(Arc::from(path.to_string()), &pairs)
}

/// A time, or seconds and nanoseconds as in ROS.
enum MessageTimes {
    Whole(Times),
    Parts(Times, Times),
}

impl MessageTimes {
    fn resolve(path: &FieldPath, unit: i64, columns: &RecordBatch) -> Option<Self> {
        if let Some(times) = Times::resolve(path, unit, columns) {
            return Some(Self::Whole(times));
        }
        let part = |name: &str, unit| {
            let path = FieldPath::parse(&format!("{path}.{name}")).ok()?;
            Times::resolve(&path, unit, columns)
        };
        let parts = |seconds, nanos| part(seconds, 1_000_000_000).zip(part(nanos, 1));
        let found = parts("sec", "nanosec").or_else(|| parts("secs", "nsecs"));
        let (seconds, nanos) = found.or_else(|| parts("sec", "nsec"))?;
        Some(Self::Parts(seconds, nanos))
    }

    /// `None` for zero, which stands for no time.
    fn at(&self, row: usize) -> Option<i64> {
        let time = match self {
            Self::Whole(times) => times.at(row)?,
            Self::Parts(seconds, nanos) => seconds.at(row)?.checked_add(nanos.at(row)?)?,
        };
        (time != 0).then_some(time)
    }
}

/// Lists of points.
struct PointLists {
    offsets: Vec<usize>,
    xyz: [Float32Array; 3],
    azimuth: Option<Float32Array>,
}

impl PointLists {
    /// `None` if the field is no list of structs with numbers `x`, `y` and `z`.
    fn resolve(path: &FieldPath, columns: &RecordBatch) -> Option<Self> {
        let (offsets, values) = list_parts(&path.resolve(columns)?)?;
        let members = values.as_struct_opt()?;
        let number = |name| {
            let member = members.column_by_name(name)?;
            if !member.data_type().is_numeric() {
                return None;
            }
            let floats = cast(member, &DataType::Float32).ok()?;
            Some(floats.as_primitive::<Float32Type>().clone())
        };
        let azimuth = number("azimuth");
        Some(Self { offsets, xyz: [number("x")?, number("y")?, number("z")?], azimuth })
    }

    /// The azimuth of the first point of a row.
    fn first_azimuth(&self, row: usize) -> Option<f32> {
        let first =
            self.offsets.get(row).filter(|start| Some(*start) < self.offsets.get(row + 1))?;
        self.azimuth.as_ref()?.values().get(*first).copied()
    }

    fn points(&self, row: usize) -> Vec<[f32; 3]> {
        let bounds = self.offsets.get(row).zip(self.offsets.get(row + 1));
        let (start, end) = bounds.map_or((0, 0), |(start, end)| (*start, *end));
        let part = |at: usize, part: usize| self.xyz.get(part)?.values().get(at).copied();
        (start..end).filter_map(|at| Some([part(at, 0)?, part(at, 1)?, part(at, 2)?])).collect()
    }
}
