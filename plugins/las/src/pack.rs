//! Encodes points as LAS point records, optionally compressed. Knows nothing of the file.

use std::io::Cursor;

use laz::{LasZipCompressor, LazItemRecordBuilder, LazVlr, LazVlrBuilder};
use serde::{Deserialize, Deserializer, Serialize};
use sluice_model::Error;
use sluice_model::schemars::JsonSchema;

use crate::gps;
use crate::points::PointColumns;

/// Points per chunk. Compressed files can be read starting from each chunk.
pub(crate) const CHUNK: usize = 50_000;

/// The version of the format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(crate = "sluice_model::schemars")]
pub(crate) enum LasVersion {
    /// For old viewers.
    #[serde(rename = "1.2")]
    V12,
    /// The usual version.
    #[default]
    #[serde(rename = "1.4")]
    V14,
}

impl<'de> Deserialize<'de> for LasVersion {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        /// `"1.2"`, or without quotes.
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "expected `1.2` or `1.4`")]
        enum RawVersion {
            Text(String),
            Number(f64),
        }
        let text = match RawVersion::deserialize(deserializer)? {
            RawVersion::Text(text) => text,
            RawVersion::Number(number) => number.to_string(),
        };
        match text.as_str() {
            "1.2" => Ok(Self::V12),
            "1.4" => Ok(Self::V14),
            other => {
                let what = format!("expected `1.2` or `1.4`, found `{other}`");
                Err(serde::de::Error::custom(what))
            }
        }
    }
}

/// Whether points are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(crate = "sluice_model::schemars")]
pub(crate) enum LasCompression {
    /// Uncompressed.
    None,
    /// Compressed by LASzip.
    Laz,
}

/// The layout of the point records of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordFormat {
    pub(crate) version: LasVersion,
    pub(crate) compression: LasCompression,
    /// Whether points have colours.
    pub(crate) has_colour: bool,
}

impl RecordFormat {
    /// The point record format number.
    pub(crate) fn number(self) -> u8 {
        match (self.version, self.has_colour) {
            (LasVersion::V12, false) => 1,
            (LasVersion::V12, true) => 3,
            (LasVersion::V14, false) => 6,
            (LasVersion::V14, true) => 7,
        }
    }

    /// Length of a point record in bytes.
    pub(crate) fn record_len(self) -> u16 {
        let bare = match self.version {
            LasVersion::V12 => 28,
            LasVersion::V14 => 30,
        };
        if self.has_colour { bare + 6 } else { bare }
    }

    /// The LASzip record of a compressed file.
    pub(crate) fn laz(self) -> Result<LazVlr, Error> {
        let items = LazItemRecordBuilder::default_for_point_format_id(self.number(), 0);
        let items = items.map_err(|e| Error::internal(format!("point compression: {e}")))?;
        let chunk = CHUNK as u32;
        Ok(LazVlrBuilder::new(items).with_fixed_chunk_size(chunk).build())
    }
}

/// Converts coordinates to 32-bit integers, axis by axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct CoordinateTransform {
    pub(crate) scale: [f64; 3],
    pub(crate) offset: [f64; 3],
}

impl CoordinateTransform {
    /// The coordinates in steps of the scale. `None` if one does not fit into 32 bits.
    pub(crate) fn steps(&self, position: [f64; 3]) -> Option<[i32; 3]> {
        let mut steps = [0; 3];
        for (axis, steps) in steps.iter_mut().enumerate() {
            let exact = ((position[axis] - self.offset[axis]) / self.scale[axis]).round_ties_even();
            // NaN is in no range.
            if !(f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&exact) {
                return None;
            }
            *steps = exact as i32;
        }
        Some(steps)
    }

    /// The coordinate of a number of steps along an axis.
    pub(crate) fn position(&self, axis: usize, steps: i32) -> f64 {
        f64::from(steps) * self.scale[axis] + self.offset[axis]
    }
}

/// An encoded chunk of points.
#[derive(Debug)]
pub struct PackedChunk {
    pub(crate) bytes: Vec<u8>,
    pub(crate) count: u64,
    pub(crate) bounds: StepBounds,
}

/// The minimum and maximum steps along each axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StepBounds {
    pub(crate) min: [i32; 3],
    pub(crate) max: [i32; 3],
}

impl Default for StepBounds {
    fn default() -> Self {
        Self { min: [i32::MAX; 3], max: [i32::MIN; 3] }
    }
}

impl StepBounds {
    fn add(&mut self, steps: [i32; 3]) {
        self.join(&Self { min: steps, max: steps });
    }

    /// Extends the bounds by others.
    pub(crate) fn join(&mut self, other: &Self) {
        for axis in 0..3 {
            self.min[axis] = self.min[axis].min(other.min[axis]);
            self.max[axis] = self.max[axis].max(other.max[axis]);
        }
    }
}

/// Encodes a chunk of points. `Err` if the coordinates of one do not fit.
pub(crate) fn pack(
    points: &PointColumns,
    form: RecordFormat,
    transform: &CoordinateTransform,
) -> Result<PackedChunk, Error> {
    let mut bytes = Vec::with_capacity(points.len() * usize::from(form.record_len()));
    let mut bounds = StepBounds::default();
    for at in 0..points.len() {
        let steps = transform
            .steps(points.position[at])
            .ok_or_else(|| out_of_reach(points, at, transform))?;
        bounds.add(steps);
        push_record(points, at, steps, form, &mut bytes);
    }
    let bytes = match form.compression {
        LasCompression::None => bytes,
        LasCompression::Laz => compress(&bytes, form)?,
    };
    Ok(PackedChunk { bytes, count: points.len() as u64, bounds })
}

fn out_of_reach(points: &PointColumns, at: usize, transform: &CoordinateTransform) -> Error {
    let position = points.position[at];
    let far = |axis: usize| (position[axis] - transform.offset[axis]).abs();
    let reach = |axis: usize| transform.scale[axis] * f64::from(i32::MAX);
    let worst = (0..3).max_by(|a, b| (far(*a) / reach(*a)).total_cmp(&(far(*b) / reach(*b))));
    let axis = worst.unwrap_or_default();
    let (far, reach) = (far(axis), reach(axis));
    let [x, y, z] = transform.offset;
    // The midpoint has both in reach, if they are not too far apart.
    let advice = if far <= 2.0 * reach {
        let mut middle = transform.offset;
        middle[axis] += (position[axis] - middle[axis]) / 2.0;
        let [x, y, z] = middle;
        format!("use `offset = [{x:?}, {y:?}, {z:?}]`, or a larger `scale`")
    } else {
        let scale = transform.scale[axis] * far / reach;
        format!("use a larger `scale`, at least {scale:.1e}; no `offset` reaches both")
    };
    Error::invalid(format!(
        "the point {position:?} is {far} from the first one, about [{x:?}, {y:?}, {z:?}], but \
         32 bits reach {reach} at this scale; {advice}. With an `offset`, events out of reach are \
         left out and counted"
    ))
}

/// Each pulse has a single return.
const SINGLE_RETURN_V12: u8 = 1 | 1 << 3;
const SINGLE_RETURN_V14: u8 = 1 | 1 << 4;

fn push_record(
    points: &PointColumns,
    at: usize,
    steps: [i32; 3],
    form: RecordFormat,
    out: &mut Vec<u8>,
) {
    steps.iter().for_each(|steps| out.extend_from_slice(&steps.to_le_bytes()));
    out.extend_from_slice(&points.intensity[at].to_le_bytes());
    // After the returns: flags, class, user data and scan angle, all unknown.
    match form.version {
        LasVersion::V12 => out.extend_from_slice(&[SINGLE_RETURN_V12, 0, 0, 0]),
        LasVersion::V14 => out.extend_from_slice(&[SINGLE_RETURN_V14, 0, 0, 0, 0, 0]),
    }
    out.extend_from_slice(&points.laser[at].to_le_bytes());
    out.extend_from_slice(&gps::adjusted(points.time[at]).to_le_bytes());
    if form.has_colour {
        points.colour[at].iter().for_each(|part| out.extend_from_slice(&part.to_le_bytes()));
    }
}

/// Compresses one chunk.
fn compress(records: &[u8], form: RecordFormat) -> Result<Vec<u8>, Error> {
    let broken = |e: &dyn std::fmt::Display| Error::internal(format!("compressing points: {e}"));
    let mut compressor =
        LasZipCompressor::new(Cursor::new(Vec::new()), form.laz()?).map_err(|e| broken(&e))?;
    compressor.compress_many(records).and_then(|()| compressor.done()).map_err(|e| broken(&e))?;
    // The library writes a file with one chunk: the offset of the chunk table, the chunk, the
    // table.
    let mut bytes = compressor.into_inner().into_inner();
    let table = bytes.first_chunk().map(|head| i64::from_le_bytes(*head));
    let end = table.and_then(|table| usize::try_from(table).ok()).filter(|end| *end <= bytes.len());
    bytes.truncate(end.ok_or_else(|| broken(&"no chunk"))?);
    drop(bytes.drain(..TABLE_OFFSET_LEN));
    Ok(bytes)
}

/// Length of the offset of the chunk table.
pub(crate) const TABLE_OFFSET_LEN: usize = size_of::<i64>();

#[cfg(test)]
mod tests {
    use super::*;
    use las::point::Format;
    use las::raw;
    use proptest::prelude::*;

    fn points(count: usize) -> PointColumns {
        let each = 0..count;
        PointColumns {
            position: each.clone().map(|n| [n as f64 * 0.5, -(n as f64), 1.25]).collect(),
            intensity: each.clone().map(|n| n as u16).collect(),
            laser: each.clone().map(|n| (n % 64) as u16).collect(),
            time: each.clone().map(|n| 1_194_098_400_000_000_000 + n as i64).collect(),
            colour: each.map(|n| [n as u16, 2, 65_535]).collect(),
        }
    }

    fn form(version: LasVersion, has_colour: bool) -> RecordFormat {
        RecordFormat { version, compression: LasCompression::None, has_colour }
    }

    #[test]
    fn records_are_what_the_las_library_writes() {
        let transform = CoordinateTransform { scale: [0.001; 3], offset: [100.0, 0.0, -100.0] };
        let points = points(3);
        for version in [LasVersion::V12, LasVersion::V14] {
            for has_colour in [false, true] {
                let form = form(version, has_colour);
                let format = Format::new(form.number()).unwrap();
                assert_eq!(format.len(), form.record_len());
                let packed = pack(&points, form, &transform).unwrap();
                let mut wanted = Vec::new();
                for n in 0..3 {
                    let [x, y, z] = transform.steps(points.position[n]).unwrap();
                    let flags = match version {
                        LasVersion::V12 => raw::point::Flags::TwoByte(9, 0),
                        LasVersion::V14 => raw::point::Flags::ThreeByte(17, 0, 0),
                    };
                    let scan_angle = match version {
                        LasVersion::V12 => raw::point::ScanAngle::Rank(0),
                        LasVersion::V14 => raw::point::ScanAngle::Scaled(0),
                    };
                    let [red, green, blue] = points.colour[n];
                    let point = raw::Point {
                        x,
                        y,
                        z,
                        intensity: points.intensity[n],
                        flags,
                        scan_angle,
                        point_source_id: points.laser[n],
                        gps_time: Some(gps::adjusted(points.time[n])),
                        color: has_colour.then_some(las::Color { red, green, blue }),
                        ..raw::Point::default()
                    };
                    point.write_to(&mut wanted, &format).unwrap();
                }
                assert_eq!(packed.bytes, wanted, "{form:?}");
                assert_eq!(packed.bounds.min, [-100_000, -2_000, 101_250]);
                assert_eq!(packed.bounds.max, [-99_000, 0, 101_250]);
            }
        }
    }

    #[test]
    fn a_chunk_comes_back_from_the_laz_library() {
        let transform = CoordinateTransform { scale: [0.001; 3], offset: [0.0; 3] };
        for (version, count) in
            [(LasVersion::V12, 7), (LasVersion::V14, 1), (LasVersion::V14, 3_000)]
        {
            let plain = form(version, true);
            let points = points(count);
            let records = pack(&points, plain, &transform).unwrap().bytes;
            let form = RecordFormat { compression: LasCompression::Laz, ..plain };
            let chunk = pack(&points, form, &transform).unwrap().bytes;
            assert!(count < 100 || chunk.len() < records.len() / 2);
            let mut file = (chunk.len() as i64 + 8).to_le_bytes().to_vec();
            file.extend_from_slice(&chunk);
            let mut table = laz::laszip::ChunkTable::default();
            let (point_count, byte_count) = (count as u64, chunk.len() as u64);
            table.push(laz::laszip::ChunkTableEntry { point_count, byte_count });
            table.write_to(&mut file, &form.laz().unwrap()).unwrap();
            let mut back = vec![0; records.len()];
            let mut reader =
                laz::LasZipDecompressor::new(Cursor::new(file), form.laz().unwrap()).unwrap();
            reader.decompress_many(&mut back).unwrap();
            assert_eq!(back, records);
        }
    }

    proptest! {
        #[test]
        fn no_coordinate_wraps(
            value in prop_oneof![any::<f64>(), -3e6..3e6f64],
            offset in -1e7..1e7f64,
        ) {
            let transform = CoordinateTransform { scale: [0.001; 3], offset: [offset, 0.0, 0.0] };
            match transform.steps([value, 0.0, 0.0]) {
                Some([x, ..]) => {
                    let error = (transform.position(0, x) - value).abs();
                    prop_assert!(error <= 0.000_500_01, "{value} {error}");
                }
                None => {
                    let near = (value - offset).abs() < 2_147_483.0;
                    prop_assert!(!near);
                }
            }
        }
    }
}
