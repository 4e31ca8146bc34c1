//! Foxglove's messages, by the field numbers of their descriptors. Reads no columns.

use sluice_views::{PixelLayout, Placement, Position, Rotation};

use crate::wire::MessageWriter;

/// When and where a message belongs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamp<'s> {
    /// Nanoseconds, by the clock of the channel.
    pub(crate) time: i64,
    /// The coordinate frame.
    pub(crate) frame: &'s str,
}

/// A transform between two frames.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FrameTransform {
    pub(crate) parent: String,
    pub(crate) child: String,
    pub(crate) placement: Placement,
}

const NANOS: i64 = 1_000_000_000;

fn timestamp(message: &mut MessageWriter, field: u64, time: i64) {
    message.message(field, |stamp| {
        stamp.varint(1, time.div_euclid(NANOS));
        stamp.varint(2, time.rem_euclid(NANOS));
    });
}

fn vector(message: &mut MessageWriter, field: u64, [x, y, z]: [f64; 3]) {
    message.message(field, |vector| {
        vector.double(1, x);
        vector.double(2, y);
        vector.double(3, z);
    });
}

fn quaternion(message: &mut MessageWriter, field: u64, rotation: Rotation) {
    message.message(field, |parts| {
        parts.double(1, rotation.x);
        parts.double(2, rotation.y);
        parts.double(3, rotation.z);
        parts.double(4, rotation.w);
    });
}

fn pose(message: &mut MessageWriter, field: u64, placement: &Placement) {
    message.message(field, |pose| {
        vector(pose, 1, placement.position);
        quaternion(pose, 2, placement.rotation);
    });
}

/// The pose of data that lies in its frame as it is.
const IN_PLACE: Placement = Placement { position: [0.0; 3], rotation: Rotation::IDENTITY };

/// A picture in a format that `format` names, such as `jpeg`.
pub(crate) fn compressed_image(stamp: Stamp<'_>, format: &str, data: &[u8]) -> Vec<u8> {
    let mut message = MessageWriter::with_capacity(data.len() + 64);
    timestamp(&mut message, 1, stamp.time);
    message.bytes(2, data);
    message.text(3, format);
    message.text(4, stamp.frame);
    message.finish()
}

/// A picture as pixels.
pub(crate) fn raw_image(stamp: Stamp<'_>, layout: PixelLayout<'_>, data: &[u8]) -> Vec<u8> {
    let mut message = MessageWriter::with_capacity(data.len() + 80);
    timestamp(&mut message, 1, stamp.time);
    message.fixed32(2, layout.width);
    message.fixed32(3, layout.height);
    message.text(4, layout.encoding);
    message.fixed32(5, layout.step);
    message.bytes(6, data);
    message.text(7, stamp.frame);
    message.finish()
}

/// A camera without distortion.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct CameraMatrix {
    pub(crate) width: u32,
    pub(crate) height: u32,
    /// Focal lengths, principal point and skew, in pixels.
    pub(crate) fx: f64,
    pub(crate) fy: f64,
    pub(crate) cx: f64,
    pub(crate) cy: f64,
    pub(crate) skew: f64,
}

impl CameraMatrix {
    /// The matrix for pictures of another size that show the same.
    pub(crate) fn scaled_to(self, width: u32, height: u32) -> Self {
        let x = f64::from(width) / f64::from(self.width.max(1));
        let y = f64::from(height) / f64::from(self.height.max(1));
        Self {
            width,
            height,
            fx: self.fx * x,
            fy: self.fy * y,
            cx: self.cx * x,
            cy: self.cy * y,
            skew: self.skew * x,
        }
    }
}

/// The calibration of a camera. Its distortion, if any, has no name in Foxglove and is left out.
pub(crate) fn camera_calibration(stamp: Stamp<'_>, camera: &CameraMatrix) -> Vec<u8> {
    let CameraMatrix { width, height, fx, fy, cx, cy, skew } = *camera;
    let mut message = MessageWriter::default();
    timestamp(&mut message, 1, stamp.time);
    message.fixed32(2, width);
    message.fixed32(3, height);
    message.doubles(6, [fx, skew, cx, 0.0, fy, cy, 0.0, 0.0, 1.0].into_iter());
    message.doubles(7, [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0].into_iter());
    let projection = [fx, skew, cx, 0.0, 0.0, fy, cy, 0.0, 0.0, 0.0, 1.0, 0.0];
    message.doubles(8, projection.into_iter());
    message.text(9, stamp.frame);
    message.finish()
}

/// Types of the members of packed points, by their number in `foxglove.PackedElementField`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PackedType {
    Uint8 = 1,
    Uint16 = 3,
    Float32 = 7,
}

/// A member of packed points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PackedField {
    pub(crate) name: &'static str,
    pub(crate) offset: u32,
    pub(crate) kind: PackedType,
}

/// Points, each of `stride` bytes.
pub(crate) fn point_cloud(
    stamp: Stamp<'_>,
    stride: u32,
    fields: &[PackedField],
    data: &[u8],
) -> Vec<u8> {
    let mut message = MessageWriter::with_capacity(data.len() + 256);
    timestamp(&mut message, 1, stamp.time);
    message.text(2, stamp.frame);
    pose(&mut message, 3, &IN_PLACE);
    message.fixed32(4, stride);
    for field in fields {
        message.message(5, |packed| {
            packed.text(1, field.name);
            packed.fixed32(2, field.offset);
            packed.varint(3, field.kind as i64);
        });
    }
    message.bytes(6, data);
    message.finish()
}

/// A planar scan, from the first to the last angle in radians.
pub(crate) fn laser_scan(
    stamp: Stamp<'_>,
    angles: [f64; 2],
    ranges: &[f64],
    intensities: &[f64],
) -> Vec<u8> {
    let mut message = MessageWriter::with_capacity(8 * (ranges.len() + intensities.len()) + 160);
    timestamp(&mut message, 1, stamp.time);
    message.text(2, stamp.frame);
    pose(&mut message, 3, &IN_PLACE);
    message.double(4, angles[0]);
    message.double(5, angles[1]);
    message.doubles(6, ranges.iter().copied());
    message.doubles(7, intensities.iter().copied());
    message.finish()
}

/// A pose in the frame of the stamp.
pub(crate) fn pose_in_frame(stamp: Stamp<'_>, placement: &Placement) -> Vec<u8> {
    let mut message = MessageWriter::default();
    timestamp(&mut message, 1, stamp.time);
    message.text(2, stamp.frame);
    pose(&mut message, 3, placement);
    message.finish()
}

/// Transforms at one time.
pub(crate) fn frame_transforms<'t>(
    time: i64,
    transforms: impl IntoIterator<Item = &'t FrameTransform>,
) -> Vec<u8> {
    let mut message = MessageWriter::default();
    for one in transforms {
        message.message(1, |transform| {
            timestamp(transform, 1, time);
            transform.text(2, &one.parent);
            transform.text(3, &one.child);
            vector(transform, 4, one.placement.position);
            quaternion(transform, 5, one.placement.rotation);
        });
    }
    message.finish()
}

const DIAGONAL_KNOWN: i64 = 2;

pub(crate) fn location_fix(stamp: Stamp<'_>, position: &Position) -> Vec<u8> {
    let mut message = MessageWriter::default();
    message.double(1, position.latitude);
    message.double(2, position.longitude);
    message.double(3, position.altitude);
    if let Some([horizontal, vertical]) = position.errors {
        let (level, up) = (horizontal * horizontal, vertical * vertical);
        message.doubles(4, [level, 0.0, 0.0, 0.0, level, 0.0, 0.0, 0.0, up].into_iter());
        message.varint(5, DIAGONAL_KNOWN);
    }
    timestamp(&mut message, 6, stamp.time);
    message.text(7, stamp.frame);
    if let Some(heading) = position.heading {
        message.present_double(10, heading);
    }
    message.finish()
}

/// A line of a log; `level` counts from 1, debug, to 5, fatal.
pub(crate) fn log_line(time: i64, level: i64, text: &str, name: &str) -> Vec<u8> {
    let mut message = MessageWriter::default();
    timestamp(&mut message, 1, time);
    message.varint(2, level);
    message.text(3, text);
    message.text(4, name);
    message.finish()
}
