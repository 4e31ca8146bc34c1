//! Turns decoded messages into Foxglove's, each on its own. Places them in no batch.

use arrow_array::RecordBatch;
use sluice_model::FieldPath;

use crate::columns::{Blobs, Lists, Numbers, Placements, Texts, count, optional};
use crate::maps::ViewNames;
use crate::messages::{self, FrameTransform, PixelLayout, Placement, Position, Stamp};
use crate::options::{
    FixFields, ImageFields, LogFields, MountFields, PoseFields, ScanFields, ViewMap,
};
use crate::parts::ViewPart;
use crate::pixels::{PixelEncodings, compressed_format, row_bytes};
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
    /// Why there is nothing to show.
    pub(crate) skipped: Option<SkipReason>,
}

/// Why a message is not shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum SkipReason {
    Pixels,
    Numbers,
    Scan,
    Size,
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
            Self::Image(image) => image.views(at),
            Self::Scan(scan) => scan.views(at),
            Self::Points(points) => {
                let (fields, stride) = points.layout().fields();
                let data = points.pack(at.row, at.time);
                let cloud = messages::point_cloud(at.stamp(), stride, &fields, &data);
                message(ViewSchema::PointCloud, cloud)
            }
            Self::Packets => Views::default(),
            Self::Pose(columns, fields) => pose_views(columns, fields, at),
            Self::Fix(fix) => fix.views(at),
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
    Views { skipped: Some(why), ..Views::default() }
}

/// The columns of pictures.
#[derive(Debug)]
pub(crate) struct ImageColumns {
    data: Blobs,
    width: Option<Numbers>,
    height: Option<Numbers>,
    step: Option<Numbers>,
    encoding: Option<PixelEncodings>,
}

impl ImageColumns {
    fn resolve(fields: &ImageFields, columns: &RecordBatch) -> Option<Self> {
        // Compressed pictures need nothing but their bytes, so a missing size is no reason against.
        let size =
            |scalar: &Option<_>| scalar.as_ref().and_then(|one| Numbers::resolve(one, columns));
        let fixed = fields.encoding.clone().map(PixelEncodings::Fixed);
        let field = fields.encoding_field.as_ref();
        let encoding = fixed.or_else(|| PixelEncodings::resolve(field?, columns));
        Some(Self {
            data: Blobs::resolve(&fields.data, columns)?,
            width: size(&fields.width),
            height: size(&fields.height),
            step: size(&fields.step),
            encoding,
        })
    }

    fn views(&self, at: ViewRow<'_>) -> Views {
        let data = self.data.at(at.row);
        let (width, height) =
            (count(self.width.as_ref(), at.row), count(self.height.as_ref(), at.row));
        let part = width
            .zip(height)
            .and_then(|(width, height)| at.part(ViewPart::Picture { width, height }));
        if let Some(format) = compressed_format(data) {
            let image = messages::compressed_image(at.stamp(), format, data);
            return Views { part, ..message(ViewSchema::CompressedImage, image) };
        }
        let Some(layout) = self.layout(at.row, data.len()) else { return skip(SkipReason::Pixels) };
        let image = messages::raw_image(at.stamp(), layout, data);
        Views { part, ..message(ViewSchema::RawImage, image) }
    }

    /// How the pixels lie; `None` if the picture does not have as many bytes.
    fn layout(&self, row: usize, len: usize) -> Option<PixelLayout<'_>> {
        let encoding = self.encoding.as_ref()?.at(row)?;
        let (width, height) = (count(self.width.as_ref(), row)?, count(self.height.as_ref(), row)?);
        let least = row_bytes(encoding, width)?;
        // A stride below the width of the picture means nothing.
        let step = count(self.step.as_ref(), row).filter(|step| *step >= least).unwrap_or(least);
        let is_whole = width > 0 && height > 0 && u64::from(step) * u64::from(height) <= len as u64;
        is_whole.then_some(PixelLayout { width, height, step, encoding })
    }
}

/// No scanner has more; hostile lists would take many times their memory.
const MAX_RANGES: usize = 1 << 20;

/// The columns of scans.
#[derive(Debug)]
pub(crate) struct ScanColumns {
    ranges: Lists,
    scale: f64,
    min_range: f64,
    max_range: Option<Numbers>,
    intensities: Option<Lists>,
    start: Option<Numbers>,
    step: Option<Numbers>,
    field_of_view: Option<Numbers>,
    degrees: bool,
}

impl ScanColumns {
    fn resolve(fields: &ScanFields, columns: &RecordBatch) -> Option<Self> {
        let ScanFields { scale, min_range, degrees, .. } = *fields;
        let intensities = fields.intensities.as_ref();
        Some(Self {
            ranges: Lists::resolve(&fields.ranges, columns)?,
            scale,
            min_range,
            max_range: optional(fields.max_range.as_ref(), columns)?,
            intensities: intensities.and_then(|path| Lists::resolve(path, columns)),
            start: optional(fields.start.as_ref(), columns)?,
            step: optional(fields.step.as_ref(), columns)?,
            field_of_view: optional(fields.field_of_view.as_ref(), columns)?,
            degrees,
        })
    }

    fn views(&self, at: ViewRow<'_>) -> Views {
        if !(1..=MAX_RANGES).contains(&self.ranges.at(at.row).len()) {
            return skip(SkipReason::Scan);
        }
        let ranges = self.metres(at.row);
        let intensities = self.intensities.as_ref().map_or(&[][..], |lists| lists.at(at.row));
        // Only if there is one for each range.
        let intensities = if intensities.len() == ranges.len() { intensities } else { &[] };
        if self.step.is_none() && self.field_of_view.is_none() {
            let part = ViewPart::Scan { ranges, intensities: intensities.to_vec() };
            return Views { part: at.part(part), ..Views::default() };
        }
        match self.angles(at.row, ranges.len()) {
            Some(angles) => {
                let messages = scan_messages(at.stamp(), angles, &ranges, intensities);
                Views { messages: messages.into(), ..Views::default() }
            }
            None => skip(SkipReason::Numbers),
        }
    }

    /// The ranges in metres; infinite where nothing returned.
    fn metres(&self, row: usize) -> Vec<f64> {
        let max = self.max_range.as_ref().and_then(|max| max.at(row)).filter(|max| *max > 0.0);
        let max = max.unwrap_or(f64::INFINITY);
        let metres = self.ranges.at(row).iter().map(|range| range * self.scale);
        let is_return = |range: &f64| *range > self.min_range && *range < max;
        metres.map(|range| if is_return(&range) { range } else { f64::INFINITY }).collect()
    }

    /// The first and the last angle, in radians.
    fn angles(&self, row: usize, len: usize) -> Option<[f64; 2]> {
        let unit = if self.degrees { std::f64::consts::PI / 180.0 } else { 1.0 };
        let last = (len - 1) as f64;
        let span = match (&self.step, &self.field_of_view) {
            (Some(step), _) => step.at(row)? * last,
            (None, Some(span)) => span.at(row)?,
            (None, None) => return None,
        };
        let start = match &self.start {
            Some(start) => start.at(row)?,
            None => -span / 2.0,
        };
        let angles = [start * unit, (start + span) * unit];
        angles.iter().all(|angle| angle.is_finite()).then_some(angles)
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

/// The columns of positions on the globe.
#[derive(Debug)]
pub(crate) struct FixColumns {
    latitude: Numbers,
    longitude: Numbers,
    altitude: Option<Numbers>,
    heading: Option<Numbers>,
    errors: Option<[Numbers; 2]>,
}

impl FixColumns {
    pub(crate) fn resolve(fields: &FixFields, columns: &RecordBatch) -> Option<Self> {
        // What only some versions of a type have is left out, rather than the position.
        let extra =
            |scalar: &Option<_>| scalar.as_ref().and_then(|one| Numbers::resolve(one, columns));
        let errors = extra(&fields.horizontal_error).zip(extra(&fields.vertical_error));
        Some(Self {
            latitude: Numbers::resolve(&fields.latitude, columns)?,
            longitude: Numbers::resolve(&fields.longitude, columns)?,
            altitude: extra(&fields.altitude),
            heading: extra(&fields.heading),
            errors: errors.map(|(horizontal, vertical)| [horizontal, vertical]),
        })
    }

    fn views(&self, at: ViewRow<'_>) -> Views {
        match self.position(at.row) {
            Some(position) => {
                message(ViewSchema::LocationFix, messages::location_fix(at.stamp(), &position))
            }
            None => skip(SkipReason::Numbers),
        }
    }

    /// `None` unless the row has a place on the globe.
    fn position(&self, row: usize) -> Option<Position> {
        let (latitude, longitude) = (self.latitude.at(row)?, self.longitude.at(row)?);
        let is_on_globe = latitude.abs() <= 90.0 && longitude.abs() <= 360.0;
        let finite = |numbers: &Numbers| numbers.at(row).filter(|number| number.is_finite());
        let errors = self.errors.as_ref().and_then(|[horizontal, vertical]| {
            let errors = [finite(horizontal)?, finite(vertical)?];
            // Receivers that know none report zeros.
            errors.iter().all(|error| *error > 0.0).then_some(errors)
        });
        is_on_globe.then(|| Position {
            latitude,
            longitude,
            altitude: self.altitude.as_ref().and_then(finite).unwrap_or(0.0),
            heading: self.heading.as_ref().and_then(finite).map(f64::to_radians),
            errors,
        })
    }
}
