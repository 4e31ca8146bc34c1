//! Lists of points as Foxglove packs them. Knows no sensors.

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Int64Type, UInt8Type, UInt16Type};
use arrow_array::{
    Array, Float32Array, Int64Array, PrimitiveArray, RecordBatch, UInt8Array, UInt16Array,
};
use arrow_schema::{DataType, TimeUnit};
use sluice_model::FieldPath;
use sluice_model::cast::cast;
use sluice_views::PointLists;

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
    lists: PointLists,
    time: Option<Int64Array>,
    intensity: Option<Float32Array>,
    colour: Option<[UInt8Array; 3]>,
    laser: Option<UInt16Array>,
}

/// The points of a row.
#[derive(Debug)]
pub(crate) struct PackedPoints {
    pub(crate) data: Vec<u8>,
    /// How many have no position, and are left out.
    pub(crate) without_position: u64,
}

impl PointColumns {
    /// `None` if the field is no list of structs with numbers `x`, `y` and `z`.
    pub(crate) fn resolve(path: &FieldPath, columns: &RecordBatch) -> Option<Self> {
        let lists = PointLists::resolve(path, columns)?;
        let colour = |name| member::<UInt8Type>(&lists, name, &DataType::UInt8);
        let colour = [colour("red"), colour("green"), colour("blue")];
        let nanos = DataType::Timestamp(TimeUnit::Nanosecond, None);
        let time =
            lists.member("time").filter(|time| matches!(time.data_type(), DataType::Timestamp(..)));
        let time = time.and_then(|time| cast(&cast(time, &nanos).ok()?, &DataType::Int64).ok());
        Some(Self {
            time: time.map(|time| time.as_primitive::<Int64Type>().clone()),
            intensity: member::<Float32Type>(&lists, "intensity", &DataType::Float32),
            colour: colour.into_iter().collect::<Option<Vec<_>>>().and_then(|c| c.try_into().ok()),
            laser: member::<UInt16Type>(&lists, "laser", &DataType::UInt16),
            lists,
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

    /// The azimuth of the first point of a row.
    pub(crate) fn first_azimuth(&self, row: usize) -> Option<f32> {
        self.lists.first_azimuth(row)
    }

    /// The points of a row, with times in seconds since `base`; `None` if the list is null.
    ///
    /// Points without a position are left out. Null intensities, lasers and times are 0, and a
    /// colour with a null part is transparent black.
    pub(crate) fn pack(&self, row: usize, base: i64) -> Option<PackedPoints> {
        let range = self.lists.range(row)?;
        let (_, stride) = self.layout().fields();
        let mut data = Vec::with_capacity(range.len() * stride as usize);
        let mut without_position = 0;
        for at in range {
            let start = data.len();
            let Some(position) = self.lists.position(at) else {
                without_position += 1;
                continue;
            };
            for part in position {
                data.extend_from_slice(&part.to_le_bytes());
            }
            if let Some(time) = &self.time {
                let time = if time.is_valid(at) { time.value(at) } else { base };
                let seconds = time.saturating_sub(base) as f64 / 1e9;
                data.extend_from_slice(&(seconds as f32).to_le_bytes());
            }
            if let Some(intensity) = &self.intensity {
                data.extend_from_slice(&or_zero(intensity, at).to_le_bytes());
            }
            if let Some([red, green, blue]) = &self.colour {
                let is_known = red.is_valid(at) && green.is_valid(at) && blue.is_valid(at);
                let colour = || [red.value(at), green.value(at), blue.value(at), 255];
                data.extend_from_slice(&if is_known { colour() } else { [0; 4] });
            }
            if let Some(laser) = &self.laser {
                data.extend_from_slice(&or_zero(laser, at).to_le_bytes());
            }
            data.resize(start + stride as usize, 0);
        }
        Some(PackedPoints { data, without_position })
    }
}

fn or_zero<T>(array: &PrimitiveArray<T>, at: usize) -> T::Native
where
    T: arrow_array::ArrowPrimitiveType,
{
    if array.is_valid(at) { array.value(at) } else { T::Native::default() }
}

/// A member as numbers of this type; null where a number does not fit.
fn member<T>(lists: &PointLists, name: &str, kind: &DataType) -> Option<PrimitiveArray<T>>
where
    T: arrow_array::ArrowPrimitiveType,
{
    let member = lists.member(name)?;
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
