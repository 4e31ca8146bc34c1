//! Lists of points as Foxglove packs them. Knows no sensors.

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, Int64Type, UInt8Type, UInt16Type};
use arrow_array::{
    Array, ArrayRef, Float32Array, Float64Array, Int64Array, PrimitiveArray, RecordBatch,
    StructArray, UInt8Array, UInt16Array,
};
use arrow_schema::{DataType, TimeUnit};
use sluice_model::FieldPath;
use sluice_model::cast::cast;
use sluice_views::list_parts;

use crate::messages::{PackedField, PackedType};

/// Which members packed points have besides `x`, `y` and `z`, as bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PointLayout(pub(crate) u8);

const TIME: u8 = 1;
const INTENSITY: u8 = 2;
const COLOUR: u8 = 4;
const LASER: u8 = 8;

const XYZ_BYTES: u32 = 12;
/// Where `t` lies, if there is one.
const TIME_AT: usize = XYZ_BYTES as usize;

impl PointLayout {
    /// Points of a scan: with or without intensities.
    pub(crate) fn of_scan(has_intensities: bool) -> Self {
        Self(if has_intensities { INTENSITY } else { 0 })
    }

    fn has(self, member: u8) -> bool {
        self.0 & member != 0
    }

    /// The members and the length of a point, a multiple of four.
    pub(crate) fn fields(self) -> (Vec<PackedField>, u32) {
        let (mut fields, mut offset) = (Vec::new(), 0);
        let mut field = |name, kind: PackedType, len| {
            fields.push(PackedField { name, offset, kind });
            offset += len;
        };
        for name in ["x", "y", "z"] {
            field(name, PackedType::Float32, 4);
        }
        if self.has(TIME) {
            field("t", PackedType::Float32, 4);
        }
        if self.has(INTENSITY) {
            field("intensity", PackedType::Float32, 4);
        }
        if self.has(COLOUR) {
            for name in ["red", "green", "blue", "alpha"] {
                field(name, PackedType::Uint8, 1);
            }
        }
        if self.has(LASER) {
            field("laser", PackedType::Uint16, 2);
        }
        (fields, offset.next_multiple_of(4))
    }

    /// Adds `seconds` to the times of packed points.
    pub(crate) fn shift_times(self, points: &mut [u8], seconds: f32) {
        if !self.has(TIME) || seconds == 0.0 {
            return;
        }
        let (_, stride) = self.fields();
        for point in points.chunks_exact_mut(stride as usize) {
            if let Some(time) = point.get_mut(TIME_AT..).and_then(|rest| rest.first_chunk_mut()) {
                *time = (f32::from_le_bytes(*time) + seconds).to_le_bytes();
            }
        }
    }
}

/// The points of decoded rows.
#[derive(Debug)]
pub(crate) struct PointColumns {
    offsets: Vec<usize>,
    xyz: [Float64Array; 3],
    time: Option<Int64Array>,
    intensity: Option<Float32Array>,
    colour: Option<[UInt8Array; 3]>,
    laser: Option<UInt16Array>,
    azimuth: Option<Float32Array>,
}

impl PointColumns {
    /// `None` if the field is no list of structs with numbers `x`, `y` and `z`.
    pub(crate) fn resolve(path: &FieldPath, columns: &RecordBatch) -> Option<Self> {
        let (offsets, values) = list_parts(&path.resolve(columns)?)?;
        let members = values.as_struct_opt()?;
        let number = |name| member::<Float64Type>(members, name, &DataType::Float64);
        let colour = |name| member::<UInt8Type>(members, name, &DataType::UInt8);
        let nanos = DataType::Timestamp(TimeUnit::Nanosecond, None);
        let time = members
            .column_by_name("time")
            .filter(|time| matches!(time.data_type(), DataType::Timestamp(..)));
        let time = time.and_then(|time| cast(&cast(time, &nanos).ok()?, &DataType::Int64).ok());
        Some(Self {
            offsets,
            xyz: [number("x")?, number("y")?, number("z")?],
            time: time.map(|time| time.as_primitive::<Int64Type>().clone()),
            intensity: member::<Float32Type>(members, "intensity", &DataType::Float32),
            colour: [colour("red"), colour("green"), colour("blue")]
                .into_iter()
                .collect::<Option<Vec<_>>>()
                .and_then(|parts| parts.try_into().ok()),
            laser: member::<UInt16Type>(members, "laser", &DataType::UInt16),
            azimuth: member::<Float32Type>(members, "azimuth", &DataType::Float32),
        })
    }

    pub(crate) fn layout(&self) -> PointLayout {
        let bit = |is_set: bool, member: u8| if is_set { member } else { 0 };
        PointLayout(
            bit(self.time.is_some(), TIME)
                | bit(self.intensity.is_some(), INTENSITY)
                | bit(self.colour.is_some(), COLOUR)
                | bit(self.laser.is_some(), LASER),
        )
    }

    fn range(&self, row: usize) -> std::ops::Range<usize> {
        match (self.offsets.get(row), self.offsets.get(row + 1)) {
            (Some(start), Some(end)) => *start..(*end).min(self.xyz[0].len()).max(*start),
            _ => 0..0,
        }
    }

    /// The azimuth of the first point of a row.
    pub(crate) fn first_azimuth(&self, row: usize) -> Option<f32> {
        let first = self.range(row).next()?;
        self.azimuth.as_ref().map(|azimuth| azimuth.value(first))
    }

    /// The points of a row, with times in seconds since `base`. Points that are not finite are left
    /// out.
    pub(crate) fn pack(&self, row: usize, base: i64) -> Vec<u8> {
        let range = self.range(row);
        let (_, stride) = self.layout().fields();
        let mut packed = Vec::with_capacity(range.len() * stride as usize);
        let [x, y, z] = &self.xyz;
        let (x, y, z) = (x.values(), y.values(), z.values());
        for at in range {
            let start = packed.len();
            let (x, y, z) = (x[at] as f32, y[at] as f32, z[at] as f32);
            if !(x.is_finite() && y.is_finite() && z.is_finite()) {
                continue;
            }
            packed.extend_from_slice(&x.to_le_bytes());
            packed.extend_from_slice(&y.to_le_bytes());
            packed.extend_from_slice(&z.to_le_bytes());
            if let Some(time) = &self.time {
                let seconds = time.value(at).wrapping_sub(base) as f64 / 1e9;
                packed.extend_from_slice(&(seconds as f32).to_le_bytes());
            }
            if let Some(intensity) = &self.intensity {
                packed.extend_from_slice(&or_zero(intensity, at).to_le_bytes());
            }
            if let Some([red, green, blue]) = &self.colour {
                let opaque = if red.is_valid(at) { 255 } else { 0 };
                let colour = [or_zero(red, at), or_zero(green, at), or_zero(blue, at), opaque];
                packed.extend_from_slice(&colour);
            }
            if let Some(laser) = &self.laser {
                packed.extend_from_slice(&or_zero(laser, at).to_le_bytes());
            }
            packed.resize(start + stride as usize, 0);
        }
        packed
    }
}

fn or_zero<T>(array: &PrimitiveArray<T>, at: usize) -> T::Native
where
    T: arrow_array::ArrowPrimitiveType,
{
    if array.is_valid(at) { array.value(at) } else { T::Native::default() }
}

/// A member as numbers of this type; null where a number does not fit.
fn member<T>(members: &StructArray, name: &str, kind: &DataType) -> Option<PrimitiveArray<T>>
where
    T: arrow_array::ArrowPrimitiveType,
{
    let member: &ArrayRef = members.column_by_name(name)?;
    if !member.data_type().is_numeric() {
        return None;
    }
    cast(member, kind).ok().map(|array| array.as_primitive::<T>().clone())
}

/// The points of a planar scan, packed. Ranges that are not finite are no points.
pub(crate) fn pack_scan(angles: [f64; 2], ranges: &[f64], intensities: &[f64]) -> Vec<u8> {
    let step = (angles[1] - angles[0]) / (ranges.len().max(2) - 1) as f64;
    let mut packed = Vec::with_capacity(ranges.len() * 16);
    for (at, range) in ranges.iter().enumerate().filter(|(_, range)| range.is_finite()) {
        let (sin, cos) = (angles[0] + at as f64 * step).sin_cos();
        packed.extend_from_slice(&((range * cos) as f32).to_le_bytes());
        packed.extend_from_slice(&((range * sin) as f32).to_le_bytes());
        packed.extend_from_slice(&0f32.to_le_bytes());
        if let Some(intensity) = intensities.get(at) {
            packed.extend_from_slice(&(*intensity as f32).to_le_bytes());
        }
    }
    packed
}
