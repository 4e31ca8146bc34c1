//! Points as the bytes of point records, compressed if wanted. Does not know the file they go to.

use std::io::Cursor;

use laz::{LasZipCompressor, LazItemRecordBuilder, LazVlr, LazVlrBuilder};
use serde::Deserialize;
use sluice_core::Error;
use sluice_core::schemars::JsonSchema;

use crate::gps;
use crate::points::Points;

/// How many points are packed at a time. Compressed files can be read from each so-manieth point on.
pub(crate) const CHUNK: usize = 50_000;

/// The version of the format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[schemars(crate = "sluice_core::schemars")]
pub(crate) enum Version {
    /// For old viewers.
    #[serde(rename = "1.2")]
    V12,
    /// The usual one.
    #[default]
    #[serde(rename = "1.4")]
    V14,
}

/// Whether points are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(crate = "sluice_core::schemars")]
pub(crate) enum Compression {
    /// They lie as they are.
    None,
    /// By LASzip.
    Laz,
}

/// What point records of a file are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Form {
    pub(crate) version: Version,
    pub(crate) compression: Compression,
    /// Whether points have colours.
    pub(crate) has_colour: bool,
}

impl Form {
    /// The number of the point record format.
    pub(crate) fn number(self) -> u8 {
        match (self.version, self.has_colour) {
            (Version::V12, false) => 1,
            (Version::V12, true) => 3,
            (Version::V14, false) => 6,
            (Version::V14, true) => 7,
        }
    }

    /// How long a point record is.
    pub(crate) fn record_len(self) -> u16 {
        let bare = match self.version {
            Version::V12 => 28,
            Version::V14 => 30,
        };
        if self.has_colour { bare + 6 } else { bare }
    }

    /// What a compressed file says of its compression.
    pub(crate) fn laz(self) -> Result<LazVlr, Error> {
        let items = LazItemRecordBuilder::default_for_point_format_id(self.number(), 0);
        let items =
            items.map_err(|e| Error::internal(format!("no way to compress points: {e}")))?;
        let chunk = CHUNK as u32;
        Ok(LazVlrBuilder::new(items).with_fixed_chunk_size(chunk).build())
    }
}

/// How coordinates become whole numbers of 32 bits, axis by axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Transform {
    pub(crate) scale: [f64; 3],
    pub(crate) offset: [f64; 3],
}

impl Transform {
    /// The coordinates in steps of the scale; nothing if one of them does not fit into 32 bits.
    pub(crate) fn steps(&self, place: [f64; 3]) -> Option<[i32; 3]> {
        let mut steps = [0; 3];
        for (axis, steps) in steps.iter_mut().enumerate() {
            let exact = ((place[axis] - self.offset[axis]) / self.scale[axis]).round_ties_even();
            // What is not a number is in no range.
            if !(f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&exact) {
                return None;
            }
            *steps = exact as i32;
        }
        Some(steps)
    }

    /// The coordinate that so many steps along an axis are.
    pub(crate) fn place(&self, axis: usize, steps: i32) -> f64 {
        f64::from(steps) * self.scale[axis] + self.offset[axis]
    }
}

/// Points as a file holds them.
#[derive(Debug)]
pub(crate) struct Packed {
    pub(crate) bytes: Vec<u8>,
    pub(crate) count: u64,
    pub(crate) bounds: Bounds,
}

/// The least and greatest steps along each axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) least: [i32; 3],
    pub(crate) most: [i32; 3],
}

impl Default for Bounds {
    fn default() -> Self {
        Self { least: [i32::MAX; 3], most: [i32::MIN; 3] }
    }
}

impl Bounds {
    fn add(&mut self, steps: [i32; 3]) {
        self.join(&Self { least: steps, most: steps });
    }

    /// Makes them those of both.
    pub(crate) fn join(&mut self, other: &Self) {
        for axis in 0..3 {
            self.least[axis] = self.least[axis].min(other.least[axis]);
            self.most[axis] = self.most[axis].max(other.most[axis]);
        }
    }
}

/// Packs points. `Err` if one of them does not fit.
pub(crate) fn pack(points: &Points, form: Form, transform: &Transform) -> Result<Packed, Error> {
    let mut bytes = Vec::with_capacity(points.len() * usize::from(form.record_len()));
    let mut bounds = Bounds::default();
    for at in 0..points.len() {
        let steps =
            transform.steps(points.place[at]).ok_or_else(|| too_far(points, at, transform))?;
        bounds.add(steps);
        push(points, at, steps, form, &mut bytes);
    }
    let bytes = match form.compression {
        Compression::None => bytes,
        Compression::Laz => compress(&bytes, form)?,
    };
    Ok(Packed { bytes, count: points.len() as u64, bounds })
}

fn too_far(points: &Points, at: usize, transform: &Transform) -> Error {
    let place = points.place[at];
    let far = |axis: usize| (place[axis] - transform.offset[axis]).abs();
    let reach = |axis: usize| transform.scale[axis] * f64::from(i32::MAX);
    let worst = (0..3).max_by(|a, b| (far(*a) / reach(*a)).total_cmp(&(far(*b) / reach(*b))));
    let axis = worst.unwrap_or_default();
    let (far, reach) = (far(axis), reach(axis));
    let [x, y, z] = transform.offset;
    // Half way between them both are in reach, if they are not too far apart.
    let advice = if far <= 2.0 * reach {
        let mut middle = transform.offset;
        middle[axis] += (place[axis] - middle[axis]) / 2.0;
        let [x, y, z] = middle;
        format!("`offset = [{x:?}, {y:?}, {z:?}]` has both in reach, and so has a larger `scale`")
    } else {
        let scale = transform.scale[axis] * far / reach;
        format!("no `offset` has both in reach: give a larger `scale`, from {scale:.1e} on")
    };
    Error::invalid(format!(
        "the point {place:?} lies {far} from the first one, about [{x:?}, {y:?}, {z:?}], and 32 bits reach \
         {reach} at this scale; {advice}. With an `offset`, events that are out of reach are left out and counted"
    ))
}

/// A pulse has one return, and that is the first of one.
const ONE_OF_ONE_V12: u8 = 1 | 1 << 3;
const ONE_OF_ONE_V14: u8 = 1 | 1 << 4;

fn push(points: &Points, at: usize, steps: [i32; 3], form: Form, out: &mut Vec<u8>) {
    steps.iter().for_each(|steps| out.extend_from_slice(&steps.to_le_bytes()));
    out.extend_from_slice(&points.intensity[at].to_le_bytes());
    // Behind the returns: flags, class, what users may say, and the angle of the scan; none is known.
    match form.version {
        Version::V12 => out.extend_from_slice(&[ONE_OF_ONE_V12, 0, 0, 0]),
        Version::V14 => out.extend_from_slice(&[ONE_OF_ONE_V14, 0, 0, 0, 0, 0]),
    }
    out.extend_from_slice(&points.laser[at].to_le_bytes());
    out.extend_from_slice(&gps::adjusted(points.time[at]).to_le_bytes());
    if form.has_colour {
        points.colour[at].iter().for_each(|part| out.extend_from_slice(&part.to_le_bytes()));
    }
}

/// One chunk of a compressed file.
fn compress(records: &[u8], form: Form) -> Result<Vec<u8>, Error> {
    let broken =
        |e: &dyn std::fmt::Display| Error::internal(format!("points do not compress: {e}"));
    let mut whole =
        LasZipCompressor::new(Cursor::new(Vec::new()), form.laz()?).map_err(|e| broken(&e))?;
    whole.compress_many(records).and_then(|()| whole.done()).map_err(|e| broken(&e))?;
    // The library makes a file of one chunk: where its table begins, the chunk, the table.
    let mut bytes = whole.into_inner().into_inner();
    let table = bytes.first_chunk().map(|head| i64::from_le_bytes(*head));
    let end = table.and_then(|table| usize::try_from(table).ok()).filter(|end| *end <= bytes.len());
    bytes.truncate(end.ok_or_else(|| broken(&"there is no chunk"))?);
    drop(bytes.drain(..TABLE_PLACE_LEN));
    Ok(bytes)
}

/// How long the number is that says where the table of chunks begins.
pub(crate) const TABLE_PLACE_LEN: usize = size_of::<i64>();

#[cfg(test)]
mod tests {
    use super::*;
    use las::point::Format;
    use las::raw;
    use proptest::prelude::*;

    fn points(count: usize) -> Points {
        let each = 0..count;
        Points {
            place: each.clone().map(|n| [n as f64 * 0.5, -(n as f64), 1.25]).collect(),
            intensity: each.clone().map(|n| n as u16).collect(),
            laser: each.clone().map(|n| (n % 64) as u16).collect(),
            time: each.clone().map(|n| 1_194_098_400_000_000_000 + n as i64).collect(),
            colour: each.map(|n| [n as u16, 2, 65_535]).collect(),
        }
    }

    fn form(version: Version, has_colour: bool) -> Form {
        Form { version, compression: Compression::None, has_colour }
    }

    #[test]
    fn records_are_what_the_las_library_writes() {
        let transform = Transform { scale: [0.001; 3], offset: [100.0, 0.0, -100.0] };
        let points = points(3);
        for version in [Version::V12, Version::V14] {
            for has_colour in [false, true] {
                let form = form(version, has_colour);
                let format = Format::new(form.number()).unwrap();
                assert_eq!(format.len(), form.record_len());
                let packed = pack(&points, form, &transform).unwrap();
                let mut wanted = Vec::new();
                for n in 0..3 {
                    let [x, y, z] = transform.steps(points.place[n]).unwrap();
                    let flags = match version {
                        Version::V12 => raw::point::Flags::TwoByte(9, 0),
                        Version::V14 => raw::point::Flags::ThreeByte(17, 0, 0),
                    };
                    let scan_angle = match version {
                        Version::V12 => raw::point::ScanAngle::Rank(0),
                        Version::V14 => raw::point::ScanAngle::Scaled(0),
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
                assert_eq!(packed.bounds.least, [-100_000, -2_000, 101_250]);
                assert_eq!(packed.bounds.most, [-99_000, 0, 101_250]);
            }
        }
    }

    #[test]
    fn a_chunk_comes_back_from_the_laz_library() {
        let transform = Transform { scale: [0.001; 3], offset: [0.0; 3] };
        for (version, count) in [(Version::V12, 7), (Version::V14, 1), (Version::V14, 3_000)] {
            let plain = form(version, true);
            let points = points(count);
            let records = pack(&points, plain, &transform).unwrap().bytes;
            let form = Form { compression: Compression::Laz, ..plain };
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
        fn no_coordinate_wraps(value in prop_oneof![any::<f64>(), -3e6..3e6f64], offset in -1e7..1e7f64) {
            let transform = Transform { scale: [0.001; 3], offset: [offset, 0.0, 0.0] };
            match transform.steps([value, 0.0, 0.0]) {
                Some([x, ..]) => {
                    let error = (transform.place(0, x) - value).abs();
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
