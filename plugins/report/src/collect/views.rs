//! What the events of a batch show: places, pictures, scans, and when they were made.

use arrow_array::RecordBatch;
use serde_json::json;
use sluice_model::{
    Batch, Channels, Error, FieldPath, Map, OptionsError, PluginKind, Registry, Rows, Stage,
    StageContext, TypeKey,
};
use sluice_views::{
    FixColumns, ImageColumns, Placements, PointLists, ScanColumns, ViewMap, maps, parse_maps,
};
use std::collections::BTreeMap;

use super::bins::BinCounter;
use super::clouds::CloudPart;
use super::grid::BucketWidth;
use super::hints::CollectedHints;
use super::latency::{Latencies, MessageTimes};
use super::packets::FirstPackets;
use super::pictures::Pictures;
use super::places::Places;
use super::row_types::RowType;
use super::type_rows::ChannelRows;

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
                points.extend(positions(&lists, row));
            }
        }
        Ok(CloudPart::from_points(points, (start, TypeKey::default())))
    }
}

/// The positions of the points of a row.
fn positions(lists: &PointLists, row: usize) -> impl Iterator<Item = [f32; 3]> {
    lists.range(row).unwrap_or_default().filter_map(|point| lists.position(point))
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
    /// Whether it has anything of which later ones are not needed.
    pub(super) fn has_hints(&self) -> bool {
        let has_pictures = self.pictures.buckets().next().is_some();
        has_pictures || self.cloud.is_some() || self.packets.is_some()
    }

    pub(super) fn append(&mut self, next: &mut Self) {
        self.track.append(&next.track);
        self.fixes.append(&next.fixes);
        self.pictures.append(&next.pictures);
        CloudPart::keep_earlier(&mut self.cloud, next.cloud.take());
        match (&mut self.packets, next.packets.take()) {
            (Some((_, ours)), Some((_, next))) => ours.append(next),
            (ours, next) => *ours = ours.take().or(next),
        }
        self.latencies.append(&mut next.latencies);
    }
}

/// The columns of a view.
enum ViewColumns {
    Pose(Placements),
    Fix(FixColumns),
    Image(ImageColumns),
    Scan(ScanColumns),
    Points(PointLists),
    /// Packets.
    Packets,
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

/// The widths of buckets, and what is not needed.
#[derive(Clone, Copy)]
pub(super) struct ViewContext<'c> {
    pub(super) width: BucketWidth,
    pub(super) picture_width: BucketWidth,
    pub(super) hints: &'c CollectedHints,
}

/// The rows of one type, and what is found of them once for all channels.
pub(super) struct ShownRows<'r> {
    batch: &'r Batch,
    rows: &'r Rows,
    /// The maps for the type, with their numbers.
    maps: Vec<(usize, &'r ViewMap)>,
    /// What these maps, by number, say they are.
    columns: BTreeMap<usize, Option<ViewColumns>>,
    /// The messages' times by a map, or by none.
    times: BTreeMap<Option<usize>, Option<MessageTimes>>,
}

impl ReportViews {
    /// The numbers of the maps for a type.
    pub(super) fn maps_for_type(&self, name: &str) -> Vec<usize> {
        let maps = self.maps.iter().enumerate().filter(|(_, map)| map.is_for_type(name));
        maps.map(|(at, _)| at).collect()
    }

    /// Decides what the rows of one type show.
    pub(super) fn rows<'r>(
        &'r self,
        batch: &'r Batch,
        rows: &'r Rows,
        of: &RowType,
    ) -> ShownRows<'r> {
        let maps = of.maps.iter().filter_map(|at| Some((*at, self.maps.get(*at)?))).collect();
        ShownRows { batch, rows, maps, columns: BTreeMap::new(), times: BTreeMap::new() }
    }
}

impl ShownRows<'_> {
    /// Adds what the rows of a channel show to its parts.
    pub(super) fn add(
        &mut self,
        events: &ChannelRows<'_>,
        (number, name): (u32, &str),
        to: &mut ViewParts,
        (context, bins): (ViewContext<'_>, &mut BinCounter),
    ) {
        let needs_scan = || {
            let until = context.hints.scan_until(number, self.rows.base_key());
            events.events().any(|(_, time)| time < until)
        };
        let columns = &self.rows.columns;
        let fitting = self.maps.iter().filter(|(_, map)| map.is_for_channel(name));
        let found = fitting.copied().find_map(|(at, map)| {
            // Long lists take long to read. That this type has them is known from its scan.
            let is_known = (map.scan.is_some() || map.points.is_some()) && !needs_scan();
            let resolve = || ViewColumns::resolve(map, columns);
            let has_fields = is_known || self.columns.entry(at).or_insert_with(resolve).is_some();
            has_fields.then_some((at, map, is_known))
        });
        let timed = found.filter(|(_, map, _)| map.time.is_some());
        let times = self.times.entry(timed.map(|(at, ..)| at)).or_insert_with(|| {
            let mapped = timed.and_then(|(_, map, _)| map.time.as_ref().zip(Some(map.time_unit)));
            MessageTimes::resolve(mapped.map(|(path, unit)| (path, unit.nanos())), columns)
        });
        if let Some(times) = times {
            to.latencies.append(&mut times.latencies(events.events(), bins));
        }
        let Some((map, _, false)) = found else { return };
        match self.columns.get(&map).and_then(Option::as_ref) {
            Some(ViewColumns::Packets) => self.add_packets(events, map, to, (number, context)),
            Some(view) => self.add_views(events, view, to, (number, context)),
            None => {}
        }
    }

    fn add_packets(
        &self,
        events: &ChannelRows<'_>,
        map: usize,
        to: &mut ViewParts,
        (number, context): (u32, ViewContext<'_>),
    ) {
        let until = context.hints.packets_until(number);
        for (row, time) in events.events().filter(|(_, time)| *time < until) {
            let (_, packets) = to.packets.get_or_insert((map, FirstPackets::default()));
            packets.add(time, self.batch.payload(self.rows.events[row] as usize));
        }
    }

    fn add_views(
        &self,
        events: &ChannelRows<'_>,
        view: &ViewColumns,
        to: &mut ViewParts,
        (number, context): (u32, ViewContext<'_>),
    ) {
        let key = self.rows.base_key();
        for (row, time) in events.events() {
            match view {
                ViewColumns::Packets => {}
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
                    let place = (number, context.picture_width, context.hints);
                    to.pictures.add(columns, row, time, place);
                }
                ViewColumns::Scan(_) | ViewColumns::Points(_)
                    if to.cloud.as_ref().is_some_and(|cloud| cloud.is_until(time)) => {}
                ViewColumns::Scan(columns) => {
                    let scan = CloudPart::from_scan(columns, row, (time, key));
                    CloudPart::keep_earlier(&mut to.cloud, scan);
                }
                ViewColumns::Points(lists) => {
                    let points =
                        CloudPart::from_points(positions(lists, row).collect(), (time, key));
                    CloudPart::keep_earlier(&mut to.cloud, points);
                }
            }
        }
    }
}
