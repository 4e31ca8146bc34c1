//! What the events of a batch show: places, pictures, scans, and when they were made.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Float32Type;
use arrow_array::{Array, Float32Array, RecordBatch};
use arrow_cast::cast;
use arrow_schema::DataType;
use sluice_model::{Channel, FieldPath, Rows};
use sluice_views::{
    FixColumns, ImageColumns, Placements, ScanColumns, Times, ViewMap, list_parts, maps, parse_maps,
};

use super::clouds::CloudPart;
use super::grid::BucketWidth;
use super::latency::Latencies;
use super::pictures::{CollectedPictures, Pictures};
use super::places::Places;

/// Which fields of which messages are shown, and how.
#[derive(Debug)]
pub(crate) struct ReportViews(Vec<ViewMap>);

impl Default for ReportViews {
    /// The maps of the built-in types and of ROS.
    fn default() -> Self {
        let ros = parse_maps(include_str!("../../maps/ros.toml")).unwrap_or_default();
        let built_in = maps(ros, true).unwrap_or_default();
        Self(built_in)
    }
}

/// What a channel shows.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ViewParts {
    pub(super) track: Places,
    pub(super) fixes: Places,
    pub(super) pictures: Pictures,
    pub(super) cloud: Option<CloudPart>,
    pub(super) latencies: Latencies,
}

impl ViewParts {
    pub(super) fn append(&mut self, next: Self) {
        self.track.append(next.track);
        self.fixes.append(next.fixes);
        self.pictures.append(next.pictures);
        CloudPart::keep_earlier(&mut self.cloud, next.cloud);
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
    pub(super) rows: &'r Rows,
    pub(super) channel: &'r Channel,
    pub(super) number: u32,
    /// Row and time.
    pub(super) events: &'r [(usize, i64)],
}

impl ReportViews {
    /// Adds what rows show to the parts of their channel.
    pub(super) fn add(&self, of: &ViewRows<'_>, to: &mut ViewParts, context: ViewContext<'_>) {
        let ViewRows { rows, channel, number, events } = of;
        let columns = &rows.columns;
        let mut fitting =
            self.0.iter().filter(|map| map.is_for(channel.name.text(), &rows.message.name));
        let found = fitting.find_map(|map| Some((map, ViewColumns::resolve(map, columns)?)));
        let time =
            found.as_ref().and_then(|(map, _)| Some((map.time.clone()?, map.time_unit.nanos())));
        to.latencies.append(latencies(columns, events, time));
        let Some((_, view)) = found else { return };
        for &(row, time) in *events {
            match &view {
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
                ViewColumns::Scan(_) | ViewColumns::Points(_)
                    if to.cloud.as_ref().is_some_and(|cloud| cloud.is_until(time)) => {}
                ViewColumns::Scan(columns) => {
                    let scan = CloudPart::from_scan(columns, row, time);
                    CloudPart::keep_earlier(&mut to.cloud, scan);
                }
                ViewColumns::Points(lists) => {
                    let points = CloudPart::from_points(lists.points(row), time);
                    CloudPart::keep_earlier(&mut to.cloud, points);
                }
            }
        }
    }
}

/// Latencies by the field that a map names, or else one of the usual ones.
fn latencies(
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
        Some(Self { offsets, xyz: [number("x")?, number("y")?, number("z")?] })
    }

    fn points(&self, row: usize) -> Vec<[f32; 3]> {
        let bounds = self.offsets.get(row).zip(self.offsets.get(row + 1));
        let (start, end) = bounds.map_or((0, 0), |(start, end)| (*start, *end));
        let part = |at: usize, part: usize| self.xyz.get(part)?.values().get(at).copied();
        (start..end).filter_map(|at| Some([part(at, 0)?, part(at, 1)?, part(at, 2)?])).collect()
    }
}
