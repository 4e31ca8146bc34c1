//! The points of a batch's events: found in their decoded fields, and brought to one form. Writes nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, TimestampNanosecondType, UInt16Type};
use arrow_array::{Array, ArrayRef, ListArray, StructArray};
use arrow_cast::cast;
use arrow_schema::{DataType, TimeUnit};
use sluice_core::{Batch, FieldPath, Rows};

use crate::points::Points;

/// Which values of an event are its points.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'o> {
    /// The list of points.
    pub(crate) points: &'o FieldPath,
    /// The members of a point that are its coordinates.
    pub(crate) coordinates: &'o [String; 3],
    /// What an intensity that is no whole number is multiplied by.
    pub(crate) intensity_scale: f64,
}

/// The lists of points of some rows of one type.
pub(crate) struct Lists<'b> {
    rows: &'b Rows,
    lists: ListArray,
    coordinates: [ArrayRef; 3],
    intensity: Option<ArrayRef>,
    laser: Option<ArrayRef>,
    time: Option<ArrayRef>,
    colour: Option<[ArrayRef; 3]>,
    /// Whether points have members that files have no place for.
    pub(crate) has_more: bool,
}

/// What was found of an event's points.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    /// Points without a place: a coordinate is missing, or no number.
    pub(crate) nowhere: u64,
    /// Points whose intensity is more than 16 bits hold.
    pub(crate) too_bright: u64,
}

impl<'b> Lists<'b> {
    /// The lists of points that these rows have; nothing if they have none.
    pub(crate) fn of(rows: &'b Rows, wanted: &Wanted<'_>) -> Option<Self> {
        let lists = wanted.points.resolve(&rows.columns)?;
        let lists = lists.as_list_opt::<i32>()?.clone();
        let members = lists.values().as_struct_opt()?.clone();
        let coordinate = |name: &String| floats(members.column_by_name(name)?);
        let [x, y, z] = wanted.coordinates;
        let coordinates = [coordinate(x)?, coordinate(y)?, coordinate(z)?];
        let intensity = members.column_by_name("intensity");
        Some(Self {
            rows,
            coordinates,
            intensity: intensity.and_then(|array| intensities(array, wanted.intensity_scale)),
            laser: members.column_by_name("laser").and_then(whole),
            time: members.column_by_name("time").and_then(times),
            colour: colours(&members),
            has_more: has_more(&members, wanted.coordinates),
            lists,
        })
    }

    /// Which event each row is of.
    pub(crate) fn events(&self) -> &'b [u32] {
        &self.rows.events
    }

    /// Whether the row's list is there.
    pub(crate) fn has(&self, row: usize) -> bool {
        self.lists.is_valid(row)
    }

    /// Whether the points have colours.
    pub(crate) fn has_colour(&self) -> bool {
        self.colour.is_some()
    }

    /// Appends the points of a row to `out`. What has no time of its own is of `timestamp`.
    pub(crate) fn take(&self, row: usize, timestamp: i64, out: &mut Points) -> Taken {
        let mut taken = Taken::default();
        let offsets = self.lists.value_offsets();
        let [x, y, z] = self.coordinates.each_ref().map(|c| c.as_primitive::<Float64Type>());
        let members = self.lists.values();
        for at in offsets[row] as usize..offsets[row + 1] as usize {
            let place = [x, y, z].map(|c| if c.is_valid(at) { c.value(at) } else { f64::NAN });
            if members.is_null(at) || !place.iter().all(|value| value.is_finite()) {
                taken.nowhere += 1;
                continue;
            }
            let intensity = value::<Float64Type>(&self.intensity, at).unwrap_or(0.0);
            taken.too_bright += u64::from(intensity > f64::from(u16::MAX));
            out.place.push(place);
            // Below zero, and where it is no number, it is dark.
            out.intensity.push(intensity.clamp(0.0, f64::from(u16::MAX)).round() as u16);
            out.laser.push(value::<UInt16Type>(&self.laser, at).unwrap_or(0));
            out.time.push(value::<TimestampNanosecondType>(&self.time, at).unwrap_or(timestamp));
            out.colour.push(self.colour_at(at));
        }
        taken
    }

    fn colour_at(&self, at: usize) -> [u16; 3] {
        let Some(colour) = &self.colour else { return [0; 3] };
        let known = colour.iter().all(|part| part.is_valid(at));
        colour.each_ref().map(|part| match known {
            true => part.as_primitive::<UInt16Type>().value(at),
            false => 0,
        })
    }
}

fn value<T: arrow_array::ArrowPrimitiveType>(
    array: &Option<ArrayRef>,
    at: usize,
) -> Option<T::Native> {
    let array = array.as_ref()?.as_primitive::<T>();
    array.is_valid(at).then(|| array.value(at))
}

fn floats(array: &ArrayRef) -> Option<ArrayRef> {
    array.data_type().is_numeric().then(|| cast(array, &DataType::Float64).ok()).flatten()
}

/// Whole numbers are what files hold already.
fn intensities(array: &ArrayRef, scale: f64) -> Option<ArrayRef> {
    let is_whole = array.data_type().is_integer();
    let floats = floats(array)?;
    if is_whole {
        return Some(floats);
    }
    Some(Arc::new(floats.as_primitive::<Float64Type>().unary::<_, Float64Type>(|v| v * scale)))
}

/// Whole numbers of 16 bits; null where they are larger.
fn whole(array: &ArrayRef) -> Option<ArrayRef> {
    array.data_type().is_integer().then(|| cast(array, &DataType::UInt16).ok()).flatten()
}

fn times(array: &ArrayRef) -> Option<ArrayRef> {
    let DataType::Timestamp(_, zone) = array.data_type() else { return None };
    cast(array, &DataType::Timestamp(TimeUnit::Nanosecond, zone.clone())).ok()
}

/// Colours of 16 bits: those of 8 bits are multiplied by 256, as the format wants them.
fn colours(members: &StructArray) -> Option<[ArrayRef; 3]> {
    let part = |name: &str| {
        let array = members.column_by_name(name)?;
        let wide = cast(array, &DataType::UInt16).ok();
        match array.data_type() {
            DataType::UInt16 => wide,
            DataType::UInt8 => {
                let wide = wide?;
                Some(Arc::new(wide.as_primitive::<UInt16Type>().unary::<_, UInt16Type>(|v| v << 8))
                    as ArrayRef)
            }
            _ => None,
        }
    };
    Some([part("red")?, part("green")?, part("blue")?])
}

fn has_more(members: &StructArray, coordinates: &[String; 3]) -> bool {
    const HELD: [&str; 6] = ["intensity", "laser", "time", "red", "green", "blue"];
    let is_held = |name: &&str| HELD.contains(name) || coordinates.iter().any(|c| c == name);
    members.column_names().iter().any(|name| !is_held(name))
}

/// The points of a batch that go to one file.
#[derive(Debug, Default)]
pub(crate) struct Part {
    pub(crate) points: Points,
    /// Points in front of which no point has a colour, and how many have one: what comes first decides.
    pub(crate) first_has_colour: bool,
    /// Points that come with colours.
    pub(crate) coloured: u64,
}

impl Part {
    /// Notes that points from number `from` on have been added.
    pub(crate) fn note_colour(&mut self, from: usize, has_colour: bool) {
        let added = self.points.len() - from;
        if from == 0 {
            self.first_has_colour = has_colour;
        }
        if has_colour {
            self.coloured += added as u64;
        }
    }
}

/// For each event of a batch the list of points it has, by number of type and row.
pub(crate) fn rows_of_events(batch: &Batch, lists: &[Lists<'_>]) -> Vec<Option<(usize, usize)>> {
    let mut found = vec![None; batch.len()];
    for (kind, list) in lists.iter().enumerate() {
        for (row, event) in list.events().iter().enumerate().filter(|(row, _)| list.has(*row)) {
            if let Some(place) = found.get_mut(*event as usize) {
                *place = Some((kind, row));
            }
        }
    }
    found
}

/// Counts by channel name of what is told once.
pub(crate) type ByChannel = BTreeMap<Arc<str>, u64>;
