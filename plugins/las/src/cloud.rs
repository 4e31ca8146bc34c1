//! The points of a batch's events: found in their decoded fields, and brought to one form. Writes nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Float32Type, Float64Type, TimestampNanosecondType, UInt8Type, UInt16Type,
};
use arrow_array::{Array, ArrayRef, ArrowPrimitiveType};
use arrow_buffer::NullBuffer;
use arrow_cast::cast;
use arrow_schema::{DataType, TimeUnit};
use sluice_core::lists::ListColumn;
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
pub(crate) struct PointLists {
    lists: ListColumn,
    is_there: Option<NullBuffer>,
    coordinates: [ArrayRef; 3],
    intensity: Option<ArrayRef>,
    laser: Option<Held>,
    time: Option<Held>,
    colour: Option<[Held; 3]>,
    /// Whether points have members that files have no place for, or of a kind that is not understood.
    pub(crate) has_more: bool,
}

/// A member in the form in which files hold it, and as it came.
#[derive(Debug)]
struct Held {
    array: ArrayRef,
    came: Option<NullBuffer>,
}

impl Held {
    fn of(came: &ArrayRef, array: ArrayRef) -> Self {
        Self { array, came: came.logical_nulls() }
    }

    /// Whether there is a value which files cannot hold.
    fn is_lost(&self, at: usize) -> bool {
        self.array.is_null(at) && self.came.as_ref().is_none_or(|nulls| nulls.is_valid(at))
    }
}

/// Why events of a type have no points.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Absence {
    /// There is no such field, or the event is not decoded.
    NoField,
    /// The field is no list.
    NoList,
    /// It is a list of something without this member.
    NoMember(String),
    /// This member is no number.
    NoNumber(String),
    /// The event's own list is null.
    Null,
}

impl Absence {
    /// In words.
    pub(crate) fn text(&self, points: &FieldPath) -> String {
        match self {
            Self::NoField => format!("there is no field `{points}`"),
            Self::NoList => format!("`{points}` is no list"),
            Self::NoMember(name) => format!("the elements of `{points}` have no member `{name}`"),
            Self::NoNumber(name) => format!("`{name}` in the elements of `{points}` is no number"),
            Self::Null => format!("the list `{points}` is null"),
        }
    }
}

/// What was found of an event's points.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    /// Points without a place: a coordinate is missing, or no number.
    pub(crate) nowhere: u64,
    /// Points whose intensity is more than 16 bits hold.
    pub(crate) too_bright: u64,
    /// Points whose intensity is below zero, or no number.
    pub(crate) too_dark: u64,
    /// Points whose laser is no number of 16 bits.
    pub(crate) lasers: u64,
    /// Points whose time cannot be counted in nanoseconds.
    pub(crate) times: u64,
    /// Points of which a colour does not fit.
    pub(crate) colours: u64,
}

impl Taken {
    pub(crate) fn add(&mut self, other: Self) {
        self.nowhere += other.nowhere;
        self.too_bright += other.too_bright;
        self.too_dark += other.too_dark;
        self.lasers += other.lasers;
        self.times += other.times;
        self.colours += other.colours;
    }
}

impl PointLists {
    /// The lists of points that these rows have; or why they have none.
    pub(crate) fn of(rows: &Rows, wanted: &Wanted<'_>) -> Result<Self, Absence> {
        let array = wanted.points.resolve(&rows.columns).ok_or(Absence::NoField)?;
        let lists = ListColumn::from_array(&array).ok_or(Absence::NoList)?;
        let members = lists.elements.as_struct_opt();
        let member = |name: &str| members.and_then(|members| members.column_by_name(name));
        let coordinate = |name: &String| {
            let array = member(name).ok_or_else(|| Absence::NoMember(name.clone()))?;
            floats(array).ok_or_else(|| Absence::NoNumber(name.clone()))
        };
        let [x, y, z] = wanted.coordinates;
        let coordinates = [coordinate(x)?, coordinate(y)?, coordinate(z)?];
        let held = |name: &str, form: fn(&ArrayRef) -> Option<ArrayRef>| {
            let came = member(name)?;
            form(came).map(|array| Held::of(came, array))
        };
        let intensity = member("intensity");
        let intensity = intensity.and_then(|array| intensities(array, wanted.intensity_scale));
        let (laser, time) = (held("laser", whole), held("time", times));
        let colour = |name| held(name, colours);
        let colour = colour("red").zip(colour("green")).zip(colour("blue"));
        let colour = colour.map(|((red, green), blue)| [red, green, blue]);
        let has_more = members.is_some_and(|members| {
            members.column_names().iter().any(|name| match *name {
                "intensity" => intensity.is_none(),
                "laser" => laser.is_none(),
                "time" => time.is_none(),
                "red" | "green" | "blue" => colour.is_none(),
                name => wanted.coordinates.iter().all(|coordinate| coordinate != name),
            })
        });
        let is_there = array.logical_nulls();
        Ok(Self { lists, is_there, coordinates, intensity, laser, time, colour, has_more })
    }

    /// Whether the row's list is there.
    fn has(&self, row: usize) -> bool {
        self.is_there.as_ref().is_none_or(|nulls| nulls.is_valid(row))
    }

    /// Whether the points have colours.
    pub(crate) fn has_colour(&self) -> bool {
        self.colour.is_some()
    }

    /// Appends the points of a row to `out`. What has no time of its own is of `timestamp`.
    pub(crate) fn take(&self, row: usize, timestamp: i64, out: &mut Points) -> Taken {
        let mut taken = Taken::default();
        let [x, y, z] = self.coordinates.each_ref().map(|c| c.as_primitive::<Float64Type>());
        for at in self.lists.ranges[row].clone() {
            let place = [x, y, z].map(|c| if c.is_valid(at) { c.value(at) } else { f64::NAN });
            if self.lists.elements.is_null(at) || !place.iter().all(|value| value.is_finite()) {
                taken.nowhere += 1;
                continue;
            }
            let intensity = self.intensity.as_ref();
            let intensity = intensity.and_then(|array| value::<Float64Type>(array, at));
            let intensity = intensity.unwrap_or(0.0);
            taken.too_bright += u64::from(intensity > f64::from(u16::MAX));
            taken.too_dark += u64::from(intensity < 0.0 || intensity.is_nan());
            taken.lasers += u64::from(is_lost(self.laser.as_ref(), at));
            taken.times += u64::from(is_lost(self.time.as_ref(), at));
            let mut colours = self.colour.iter().flatten();
            taken.colours += u64::from(colours.any(|part| part.is_lost(at)));
            out.place.push(place);
            // Below zero, and where it is no number, it is dark.
            out.intensity.push(intensity.clamp(0.0, f64::from(u16::MAX)).round() as u16);
            out.laser.push(held_value::<UInt16Type>(self.laser.as_ref(), at).unwrap_or(0));
            let time = held_value::<TimestampNanosecondType>(self.time.as_ref(), at);
            out.time.push(time.unwrap_or(timestamp));
            out.colour.push(self.colour_at(at));
        }
        taken
    }

    fn colour_at(&self, at: usize) -> [u16; 3] {
        let Some(colour) = &self.colour else { return [0; 3] };
        let known = colour.iter().all(|part| part.array.is_valid(at));
        colour.each_ref().map(|part| match known {
            true => part.array.as_primitive::<UInt16Type>().value(at),
            false => 0,
        })
    }
}

fn is_lost(held: Option<&Held>, at: usize) -> bool {
    held.is_some_and(|held| held.is_lost(at))
}

fn held_value<T: ArrowPrimitiveType>(held: Option<&Held>, at: usize) -> Option<T::Native> {
    value::<T>(&held?.array, at)
}

fn value<T: ArrowPrimitiveType>(array: &ArrayRef, at: usize) -> Option<T::Native> {
    let array = array.as_primitive::<T>();
    array.is_valid(at).then(|| array.value(at))
}

/// Numbers as floats. What sensors give is converted here, and not in a library that `release` does not
/// optimise: this is for every point.
fn floats(array: &ArrayRef) -> Option<ArrayRef> {
    let usual = widened::<Float32Type>(array)
        .or_else(|| widened::<UInt8Type>(array))
        .or_else(|| widened::<UInt16Type>(array));
    usual.or_else(|| {
        array.data_type().is_numeric().then(|| cast(array, &DataType::Float64).ok()).flatten()
    })
}

fn widened<T: ArrowPrimitiveType<Native: Into<f64>>>(array: &ArrayRef) -> Option<ArrayRef> {
    let floats = array.as_primitive_opt::<T>()?.unary::<_, Float64Type>(Into::into);
    Some(Arc::new(floats))
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

/// Whole numbers of 16 bits; null where they are larger, or below zero.
fn whole(array: &ArrayRef) -> Option<ArrayRef> {
    if let Some(bytes) = array.as_primitive_opt::<UInt8Type>() {
        return Some(Arc::new(bytes.unary::<_, UInt16Type>(u16::from)));
    }
    array.data_type().is_integer().then(|| cast(array, &DataType::UInt16).ok()).flatten()
}

/// Times in nanoseconds; null where they do not fit.
fn times(array: &ArrayRef) -> Option<ArrayRef> {
    let DataType::Timestamp(_, zone) = array.data_type() else { return None };
    cast(array, &DataType::Timestamp(TimeUnit::Nanosecond, zone.clone())).ok()
}

/// A part of colours, in 16 bits; null where it does not fit. Those of 8 bits are multiplied by 256, as the
/// format wants them.
fn colours(array: &ArrayRef) -> Option<ArrayRef> {
    let wide = whole(array)?;
    if *array.data_type() != DataType::UInt8 {
        return Some(wide);
    }
    let wide = wide.as_primitive::<UInt16Type>().unary::<_, UInt16Type>(|value| value << 8);
    Some(Arc::new(wide))
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

/// For each event of a batch the list of points it has, by number of type and row; or why it has none.
pub(crate) fn rows_of_events(
    batch: &Batch,
    points: &[Result<PointLists, Absence>],
) -> Vec<Result<(usize, usize), Absence>> {
    let mut found = vec![Err(Absence::NoField); batch.len()];
    for (kind, (rows, points)) in batch.rows().iter().zip(points).enumerate() {
        for (row, event) in rows.events.iter().enumerate() {
            let Some(place) = found.get_mut(*event as usize) else { continue };
            *place = match points {
                Ok(points) if points.has(row) => Ok((kind, row)),
                Ok(_) => Err(Absence::Null),
                Err(why) => Err(why.clone()),
            };
        }
    }
    found
}

/// Counts by channel name, and by why, of what is told once.
pub(crate) type ByChannel = BTreeMap<(Arc<str>, Absence), u64>;
