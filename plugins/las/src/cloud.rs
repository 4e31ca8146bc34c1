//! Reads the points of a batch from the decoded fields of its events, and converts them to the
//! types of the file. Writes nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Float32Type, Float64Type, TimestampNanosecondType, UInt8Type, UInt16Type,
};
use arrow_array::{Array, ArrayRef, ArrowPrimitiveType};
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType, TimeUnit};
use sluice_kit::lists::ListColumn;
use sluice_model::cast::cast;
use sluice_model::{Batch, FieldPath, Rows};

use crate::points::PointColumns;

/// The fields of an event that hold its points.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PointFields<'o> {
    /// The list of points.
    pub(crate) points: &'o FieldPath,
    /// The members of a point that are its coordinates.
    pub(crate) coordinates: &'o [String; 3],
    /// Factor for intensities that are not integers.
    pub(crate) intensity_scale: f64,
}

/// The lists of points in rows of one type.
pub(crate) struct PointLists {
    lists: ListColumn,
    list_nulls: Option<NullBuffer>,
    coordinates: [ArrayRef; 3],
    intensity: Option<ArrayRef>,
    laser: Option<ConvertedMember>,
    time: Option<ConvertedMember>,
    colour: Option<[ConvertedMember; 3]>,
    /// Whether points have members that files cannot hold, or of an unsupported type.
    pub(crate) has_other_members: bool,
}

/// A member converted to the type of the file, and the nulls it had before.
#[derive(Debug)]
struct ConvertedMember {
    array: ArrayRef,
    source_nulls: Option<NullBuffer>,
}

impl ConvertedMember {
    fn new(source: &ArrayRef, array: ArrayRef) -> Self {
        Self { array, source_nulls: source.logical_nulls() }
    }

    /// Whether there was no value.
    fn was_null(&self, at: usize) -> bool {
        self.source_nulls.as_ref().is_some_and(|nulls| nulls.is_null(at))
    }

    /// Whether the conversion lost a value.
    fn is_lost(&self, at: usize) -> bool {
        self.array.is_null(at) && !self.was_null(at)
    }
}

/// Why an event has no points.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Absence {
    /// There is no such field, or the event is not decoded.
    NoField,
    /// The field is not a list.
    NoList,
    /// The elements lack this member.
    NoMember(String),
    /// This member is not a number.
    NoNumber(String),
    /// The list of this event is null.
    Null,
}

impl Absence {
    /// Describes the reason, for notes.
    pub(crate) fn text(&self, points: &FieldPath) -> String {
        match self {
            Self::NoField => format!("no field `{points}`"),
            Self::NoList => format!("`{points}` is not a list"),
            Self::NoMember(name) => format!("the elements of `{points}` have no member `{name}`"),
            Self::NoNumber(name) => {
                format!("`{name}` in the elements of `{points}` is not a number")
            }
            Self::Null => format!("the list `{points}` is null"),
        }
    }
}

/// Counts of values that files cannot hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LossCounts {
    /// Points with a coordinate that is missing or not finite.
    pub(crate) without_position: u64,
    /// Points whose intensity exceeds 16 bits.
    pub(crate) too_bright: u64,
    /// Points whose intensity is negative or NaN.
    pub(crate) too_dark: u64,
    /// Points whose laser does not fit into 16 bits.
    pub(crate) lasers: u64,
    /// Points whose time does not fit into 64 bits of nanoseconds.
    pub(crate) times: u64,
    /// Points of which these are null, although their lists have them.
    pub(crate) null_intensities: u64,
    pub(crate) null_lasers: u64,
    pub(crate) null_times: u64,
}

/// Counts of colours that files cannot hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ColourLosses {
    /// Points with a colour that does not fit into 16 bits.
    pub(crate) unfit: u64,
    /// Points of whose colour a component is null, but not all are.
    pub(crate) partial: u64,
    /// Points whose colour is null, although their lists have colours.
    pub(crate) null: u64,
}

impl ColourLosses {
    pub(crate) fn add(&mut self, other: Self) {
        self.unfit += other.unfit;
        self.partial += other.partial;
        self.null += other.null;
    }
}

impl LossCounts {
    pub(crate) fn add(&mut self, other: Self) {
        self.without_position += other.without_position;
        self.too_bright += other.too_bright;
        self.too_dark += other.too_dark;
        self.lasers += other.lasers;
        self.times += other.times;
        self.null_intensities += other.null_intensities;
        self.null_lasers += other.null_lasers;
        self.null_times += other.null_times;
    }
}

impl PointLists {
    /// The lists of points in these rows, or why they have none.
    pub(crate) fn from_rows(rows: &Rows, fields: &PointFields<'_>) -> Result<Self, Absence> {
        let array = fields.points.resolve(&rows.columns).ok_or(Absence::NoField)?;
        let lists = ListColumn::from_array(&array).ok_or(Absence::NoList)?;
        let members = lists.elements.as_struct_opt();
        let member = |name: &str| members.and_then(|members| members.column_by_name(name));
        let coordinate = |name: &String| {
            let array = member(name).ok_or_else(|| Absence::NoMember(name.clone()))?;
            to_f64(array).ok_or_else(|| Absence::NoNumber(name.clone()))
        };
        let [x, y, z] = fields.coordinates;
        let coordinates = [coordinate(x)?, coordinate(y)?, coordinate(z)?];
        let converted = |name: &str, form: fn(&ArrayRef) -> Option<ArrayRef>| {
            let source = member(name)?;
            form(source).map(|array| ConvertedMember::new(source, array))
        };
        let intensity = member("intensity");
        let intensity = intensity.and_then(|array| to_intensity(array, fields.intensity_scale));
        let (laser, time) = (converted("laser", to_u16), converted("time", to_nanoseconds));
        let colour = |name| converted(name, to_colour);
        let colour = colour("red").zip(colour("green")).zip(colour("blue"));
        let colour = colour.map(|((red, green), blue)| [red, green, blue]);
        let has_other_members = members.is_some_and(|members| {
            members.column_names().iter().any(|name| match *name {
                "intensity" => intensity.is_none(),
                "laser" => laser.is_none(),
                "time" => time.is_none(),
                "red" | "green" | "blue" => colour.is_none(),
                name => fields.coordinates.iter().all(|coordinate| coordinate != name),
            })
        });
        let list_nulls = array.logical_nulls();
        Ok(Self {
            lists,
            list_nulls,
            coordinates,
            intensity,
            laser,
            time,
            colour,
            has_other_members,
        })
    }

    /// Whether the list of a row is not null.
    fn has_list(&self, row: usize) -> bool {
        self.list_nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row))
    }

    /// Whether the points have colours.
    pub(crate) fn has_colour(&self) -> bool {
        self.colour.is_some()
    }

    /// Appends the points of a row to `out`. Points without their own time get `timestamp`.
    pub(crate) fn append_row(
        &self,
        row: usize,
        timestamp: i64,
        out: &mut PointColumns,
    ) -> (LossCounts, ColourLosses) {
        let (mut counts, mut colours) = (LossCounts::default(), ColourLosses::default());
        let [x, y, z] = self.coordinates.each_ref().map(|c| c.as_primitive::<Float64Type>());
        for at in self.lists.ranges[row].clone() {
            let position = [x, y, z].map(|c| if c.is_valid(at) { c.value(at) } else { f64::NAN });
            if self.lists.elements.is_null(at) || !position.iter().all(|value| value.is_finite()) {
                counts.without_position += 1;
                continue;
            }
            let intensity = self.intensity.as_ref();
            counts.null_intensities += u64::from(intensity.is_some_and(|array| array.is_null(at)));
            let intensity = intensity.and_then(|array| value::<Float64Type>(array, at));
            let intensity = intensity.unwrap_or(0.0);
            counts.too_bright += u64::from(intensity > f64::from(u16::MAX));
            counts.too_dark += u64::from(intensity < 0.0 || intensity.is_nan());
            for (member, lost, null) in [
                (&self.laser, &mut counts.lasers, &mut counts.null_lasers),
                (&self.time, &mut counts.times, &mut counts.null_times),
            ] {
                *lost += u64::from(member.as_ref().is_some_and(|member| member.is_lost(at)));
                *null += u64::from(member.as_ref().is_some_and(|member| member.was_null(at)));
            }
            out.position.push(position);
            // Negative values and NaN become 0.
            out.intensity.push(intensity.clamp(0.0, f64::from(u16::MAX)).round() as u16);
            out.laser.push(member_value::<UInt16Type>(self.laser.as_ref(), at).unwrap_or(0));
            let time = member_value::<TimestampNanosecondType>(self.time.as_ref(), at);
            out.time.push(time.unwrap_or(timestamp));
            out.colour.push(self.colour_at(at, &mut colours));
        }
        (counts, colours)
    }

    /// The colour of a point; black if it has none, or not all of it.
    fn colour_at(&self, at: usize, losses: &mut ColourLosses) -> [u16; 3] {
        let Some(colour) = &self.colour else { return [0; 3] };
        if colour.iter().all(|part| part.array.is_valid(at)) {
            return colour.each_ref().map(|part| part.array.as_primitive::<UInt16Type>().value(at));
        }
        if colour.iter().any(|part| part.is_lost(at)) {
            losses.unfit += 1;
        } else if colour.iter().any(|part| part.array.is_valid(at)) {
            losses.partial += 1;
        } else {
            losses.null += 1;
        }
        [0; 3]
    }
}

fn member_value<T: ArrowPrimitiveType>(
    converted: Option<&ConvertedMember>,
    at: usize,
) -> Option<T::Native> {
    value::<T>(&converted?.array, at)
}

fn value<T: ArrowPrimitiveType>(array: &ArrayRef, at: usize) -> Option<T::Native> {
    let array = array.as_primitive::<T>();
    array.is_valid(at).then(|| array.value(at))
}

/// Converts numbers to `f64`. The usual types are converted here rather than in Arrow, which the
/// `release` profile does not optimise: this runs for every point.
fn to_f64(array: &ArrayRef) -> Option<ArrayRef> {
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

/// Converts intensities. Integers are not scaled.
fn to_intensity(array: &ArrayRef, scale: f64) -> Option<ArrayRef> {
    let is_whole = array.data_type().is_integer();
    let floats = to_f64(array)?;
    if is_whole {
        return Some(floats);
    }
    Some(Arc::new(floats.as_primitive::<Float64Type>().unary::<_, Float64Type>(|v| v * scale)))
}

/// Converts integers to 16 bits. Values out of range become null.
fn to_u16(array: &ArrayRef) -> Option<ArrayRef> {
    if let Some(bytes) = array.as_primitive_opt::<UInt8Type>() {
        return Some(Arc::new(bytes.unary::<_, UInt16Type>(u16::from)));
    }
    array.data_type().is_integer().then(|| cast(array, &DataType::UInt16).ok()).flatten()
}

/// Converts times to nanoseconds. Values out of range become null.
fn to_nanoseconds(array: &ArrayRef) -> Option<ArrayRef> {
    let DataType::Timestamp(_, zone) = array.data_type() else { return None };
    cast(array, &DataType::Timestamp(TimeUnit::Nanosecond, zone.clone())).ok()
}

/// Converts a colour component to 16 bits. Components of 8 bits are multiplied by 256, as the
/// format requires; values out of range become null.
fn to_colour(array: &ArrayRef) -> Option<ArrayRef> {
    let wide = to_u16(array)?;
    if *array.data_type() != DataType::UInt8 {
        return Some(wide);
    }
    let wide = wide.as_primitive::<UInt16Type>().unary::<_, UInt16Type>(|value| value << 8);
    Some(Arc::new(wide))
}

/// The points of a batch for one file.
#[derive(Debug, Default)]
pub(crate) struct FilePoints {
    pub(crate) points: PointColumns,
    /// Whether the first points have colours, which decides for the file.
    pub(crate) first_has_colour: bool,
    /// Number of points with a colour.
    pub(crate) coloured: u64,
    /// What is lost of these if the file has colours.
    pub(crate) colour_losses: ColourLosses,
}

impl FilePoints {
    /// Records whether the points added since `from` have colours, and what is lost of these.
    pub(crate) fn note_colour(&mut self, from: usize, has_colour: bool, losses: ColourLosses) {
        self.colour_losses.add(losses);
        let added = self.points.len() - from;
        if from == 0 {
            self.first_has_colour = has_colour;
        }
        if has_colour {
            self.coloured += added as u64;
        }
    }
}

/// For each event of a batch, the type index and row of its list of points, or why it has none.
pub(crate) fn rows_of_events(
    batch: &Batch,
    points: &[Result<PointLists, Absence>],
) -> Vec<Result<(usize, usize), Absence>> {
    let mut found = vec![Err(Absence::NoField); batch.len()];
    for (kind, (rows, points)) in batch.rows().iter().zip(points).enumerate() {
        for (row, event) in rows.events.iter().enumerate() {
            let Some(position) = found.get_mut(*event as usize) else { continue };
            *position = match points {
                Ok(points) if points.has_list(row) => Ok((kind, row)),
                Ok(_) => Err(Absence::Null),
                Err(reason) => Err(reason.clone()),
            };
        }
    }
    found
}

/// Counts of events without points, by channel and reason.
pub(crate) type AbsenceCounts = BTreeMap<(Arc<str>, Absence), u64>;
