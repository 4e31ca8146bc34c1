//! Turns decoded messages into Foxglove's, each on its own. Places them in no batch.

use arrow_array::RecordBatch;
use sluice_model::FieldPath;
use sluice_views::{
    Blobs, FixColumns, ImageColumns, LogFields, MountFields, Numbers, Placement, Placements,
    PoseFields, ScanColumns, Texts, ViewMap, ViewNames, compressed_format, optional,
};

use crate::messages::{self, FrameTransform, Stamp};
use crate::parts::ViewPart;
use crate::points::{PointColumns, PointLayout, pack_scan};
use crate::schema::ViewSchema;

/// The frame of the vehicle.
pub(crate) const BASE: &str = "base_link";
/// The frame in which the vehicle moves.
pub(crate) const ODOM: &str = "odom";

/// What becomes of a message.
#[derive(Debug, Default)]
pub(crate) struct Views {
    /// Messages for the viewer.
    pub(crate) messages: Vec<(ViewSchema, Vec<u8>)>,
    /// A part of a view that needs other events: its bytes follow.
    pub(crate) part: Option<Vec<u8>>,
    /// What is not shown, and how much of it.
    pub(crate) skipped: Option<(SkipReason, u64)>,
}

/// Why a message or a part of it is not shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum SkipReason {
    Pixels,
    Numbers,
    Scan,
    Size,
    /// Of points, rather than of messages.
    Positions,
}

impl SkipReason {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Pixels => {
                "not shown: neither JPEG, PNG nor WebP, and not as long as pixels of its size and \
                 encoding are"
            }
            Self::Numbers => "not shown: numbers are missing or not finite",
            Self::Scan => "not shown: no ranges, or more than a million",
            Self::Size => "not shown: longer than 1 GiB",
            Self::Positions => "points with a coordinate that is null or not finite; left out",
        }
    }
}

/// A row and what all views of it share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ViewRow<'r> {
    pub(crate) row: usize,
    pub(crate) map: u16,
    pub(crate) time: i64,
    pub(crate) names: &'r ViewNames,
}

impl ViewRow<'_> {
    fn stamp(&self) -> Stamp<'_> {
        Stamp { time: self.time, frame: &self.names.frame }
    }

    fn part(&self, part: ViewPart<'_>) -> Option<Vec<u8>> {
        Some(crate::parts::TimedPart { map: self.map, time: self.time, part }.to_bytes())
    }
}

/// The columns of a view.
#[derive(Debug)]
pub(crate) enum ViewColumns {
    Image(ImageColumns),
    Scan(ScanColumns),
    Points(Box<PointColumns>),
    /// Packets: the stage `velodyne` reads them.
    Packets,
    Pose(Placements, PoseFields),
    Fix(FixColumns),
    Mount(Placements, Option<Numbers>),
    Log(Texts, Option<Numbers>),
}

impl ViewColumns {
    /// `None` if the messages do not have the fields of the map.
    pub(crate) fn resolve(map: &ViewMap, columns: &RecordBatch) -> Option<Self> {
        if let Some(image) = &map.image {
            return ImageColumns::resolve(image, columns).map(Self::Image);
        }
        if let Some(scan) = &map.scan {
            return ScanColumns::resolve(scan, columns).map(Self::Scan);
        }
        if let Some(points) = &map.points {
            let points = PointColumns::resolve(&points.field, columns);
            return points.map(|points| Self::Points(Box::new(points)));
        }
        if map.velodyne.is_some() {
            return Blobs::resolve(&FieldPath::column("data"), columns).map(|_| Self::Packets);
        }
        if let Some(pose) = &map.pose {
            return Placements::resolve(&pose.at, columns).map(|at| Self::Pose(at, pose.clone()));
        }
        if let Some(fix) = &map.fix {
            return FixColumns::resolve(fix, columns).map(Self::Fix);
        }
        if let Some(MountFields { at, field_of_view, .. }) = &map.mount {
            let angle = field_of_view.as_ref().and_then(|one| Numbers::resolve(one, columns));
            return Placements::resolve(at, columns).map(|at| Self::Mount(at, angle));
        }
        let LogFields { text, level } = map.log.as_ref()?;
        let level = optional(level.as_ref(), columns)?;
        Texts::resolve(text, columns).map(|text| Self::Log(text, level))
    }

    /// What viewers show of a row.
    pub(crate) fn views(&self, at: ViewRow<'_>) -> Views {
        match self {
            Self::Image(image) => image_views(image, at),
            Self::Scan(scan) => scan_views(scan, at),
            Self::Points(points) => {
                let Some(packed) = points.pack(at.row, at.time) else {
                    return skip(SkipReason::Numbers);
                };
                let (fields, stride) = points.layout().fields();
                let cloud = messages::point_cloud(at.stamp(), stride, &fields, &packed.data);
                let skipped = Some((SkipReason::Positions, packed.without_position));
                Views { skipped, ..message(ViewSchema::PointCloud, cloud) }
            }
            Self::Packets => Views::default(),
            Self::Pose(columns, fields) => pose_views(columns, fields, at),
            Self::Fix(fix) => fix_views(fix, at),
            Self::Mount(columns, field_of_view) => {
                let Some(placement) = columns.at(at.row) else { return skip(SkipReason::Numbers) };
                let degrees = field_of_view.as_ref().and_then(|numbers| numbers.at(at.row));
                let field_of_view = degrees.unwrap_or(0.0).to_radians();
                Views {
                    part: at.part(ViewPart::Mount { placement, field_of_view }),
                    ..Views::default()
                }
            }
            Self::Log(text, level) => {
                const INFO: f64 = 2.0;
                let level = level.as_ref().and_then(|level| level.at(at.row)).unwrap_or(INFO);
                let level = level.clamp(0.0, 5.0) as i64;
                let line = messages::log_line(at.time, level, text.at(at.row), &at.names.frame);
                message(ViewSchema::Log, line)
            }
        }
    }
}

fn message(schema: ViewSchema, bytes: Vec<u8>) -> Views {
    Views { messages: vec![(schema, bytes)], ..Views::default() }
}

fn skip(why: SkipReason) -> Views {
    Views { skipped: Some((why, 1)), ..Views::default() }
}

fn image_views(image: &ImageColumns, at: ViewRow<'_>) -> Views {
    let data = image.data(at.row);
    let size = image.size(at.row);
    let part = size.and_then(|(width, height)| at.part(ViewPart::Picture { width, height }));
    if let Some(format) = compressed_format(data) {
        let image = messages::compressed_image(at.stamp(), format, data);
        return Views { part, ..message(ViewSchema::CompressedImage, image) };
    }
    let Some(layout) = image.layout(at.row, data.len()) else { return skip(SkipReason::Pixels) };
    let image = messages::raw_image(at.stamp(), layout, data);
    Views { part, ..message(ViewSchema::RawImage, image) }
}

fn scan_views(scan: &ScanColumns, at: ViewRow<'_>) -> Views {
    if !scan.has_ranges(at.row) {
        return skip(SkipReason::Scan);
    }
    let (ranges, intensities) = (scan.metres(at.row), scan.intensities(at.row));
    if !scan.has_angles() {
        let part = ViewPart::Scan { ranges, intensities: intensities.to_vec() };
        return Views { part: at.part(part), ..Views::default() };
    }
    match scan.angles(at.row, ranges.len()) {
        Some(angles) => {
            let messages = scan_messages(at.stamp(), angles, &ranges, intensities);
            Views { messages: messages.into(), ..Views::default() }
        }
        None => skip(SkipReason::Numbers),
    }
}

/// A scan as a scan and as points: not every viewer shows both.
pub(crate) fn scan_messages(
    stamp: Stamp<'_>,
    angles: [f64; 2],
    ranges: &[f64],
    intensities: &[f64],
) -> [(ViewSchema, Vec<u8>); 2] {
    let (fields, stride) = PointLayout::of_scan(!intensities.is_empty()).fields();
    let points = pack_scan(angles, ranges, intensities);
    [
        (ViewSchema::LaserScan, messages::laser_scan(stamp, angles, ranges, intensities)),
        (ViewSchema::PointCloud, messages::point_cloud(stamp, stride, &fields, &points)),
    ]
}

fn pose_views(columns: &Placements, fields: &PoseFields, at: ViewRow<'_>) -> Views {
    let Some(placement) = columns.at(at.row) else { return skip(SkipReason::Numbers) };
    let parent = fields.parent.as_deref().unwrap_or(ODOM);
    let child = fields.child.as_deref().unwrap_or(BASE);
    let pose = messages::pose_in_frame(Stamp { time: at.time, frame: parent }, &placement);
    let mut messages = vec![(ViewSchema::PoseInFrame, pose)];
    if !child.is_empty() {
        let transform = transform(parent, child, placement);
        let transforms = messages::frame_transforms(at.time, [&transform]);
        messages.push((ViewSchema::FrameTransforms, transforms));
    }
    Views { messages, ..Views::default() }
}

/// The transform that places `child` in `parent`.
pub(crate) fn transform(parent: &str, child: &str, placement: Placement) -> FrameTransform {
    FrameTransform { parent: parent.to_owned(), child: child.to_owned(), placement }
}

fn fix_views(fix: &FixColumns, at: ViewRow<'_>) -> Views {
    match fix.position(at.row) {
        Some(position) => {
            message(ViewSchema::LocationFix, messages::location_fix(at.stamp(), &position))
        }
        None => skip(SkipReason::Numbers),
    }
}
