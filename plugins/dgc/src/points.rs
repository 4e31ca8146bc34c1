//! Clouds of points as decoded rows: one event, one row, and in it a list of points. Knows no sensor.
//!
//! A row has `utime`, the message's own time in microseconds, and `points`, a list of structs. Their members
//! are those of [`Cloud`]; stages may add others. The list's field says in which frame the points lie.

use std::collections::HashMap;
use std::str::FromStr;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{
    Array, ArrayRef, Float32Array, Float64Array, Int64Array, ListArray, RecordBatch, StructArray,
    TimestampNanosecondArray, UInt16Array,
};
use arrow_buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field, FieldRef, Fields, Schema};
use schemars::JsonSchema;
use serde::Deserialize;
use sluice_core::{Error, MessageType, Payloads, Rows};

use crate::poses::rows::key_of;

/// The column of the lists.
pub(crate) const POINTS: &str = "points";
/// The column of the messages' own times, in microseconds.
pub(crate) const UTIME: &str = "utime";
/// What the names of rows of points begin with; the frame follows.
const TYPE: &str = "sluice.points";
/// What the list's field says of its frame under this key.
const FRAME: &str = "frame";

/// What coordinates are relative to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Frame {
    /// The sensor that measured them.
    Sensor,
    /// The vehicle: the ground below the middle of the rear axle, x forward, y left, z up.
    Body,
    /// The smooth frame that poses are given in; it drifts against the globe.
    #[default]
    Local,
}

impl Frame {
    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sensor => "sensor",
            Self::Body => "body",
            Self::Local => "local",
        }
    }
}

impl FromStr for Frame {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        [Self::Sensor, Self::Body, Self::Local].into_iter().find(|f| f.as_str() == name).ok_or(())
    }
}

/// The points of some events in the making, column by column.
#[derive(Debug, Default)]
pub struct Cloud {
    /// Metres.
    pub x: Vec<f64>,
    /// Metres.
    pub y: Vec<f64>,
    /// Metres.
    pub z: Vec<f64>,
    /// How strongly they reflect, in the sensor's own measure.
    pub intensity: Vec<f32>,
    /// The laser that saw them, as the sensor numbers its lasers; in scans, the number of the sample.
    pub laser: Vec<u16>,
    /// Where the sensor looked, in degrees, as the sensor counts them.
    pub azimuth: Vec<f32>,
    /// When, in nanoseconds since 1970.
    pub time: Vec<i64>,
    /// Runs of points without an intensity: how many points there were before, and how many are in the
    /// run.
    dark: Vec<(usize, usize)>,
    events: Vec<u32>,
    utimes: Vec<i64>,
    ends: Vec<i32>,
}

impl Cloud {
    /// A cloud with room for so many points of so many events.
    pub fn with_capacity(points: usize, events: usize) -> Self {
        Self {
            x: Vec::with_capacity(points),
            y: Vec::with_capacity(points),
            z: Vec::with_capacity(points),
            intensity: Vec::with_capacity(points),
            laser: Vec::with_capacity(points),
            azimuth: Vec::with_capacity(points),
            time: Vec::with_capacity(points),
            dark: Vec::new(),
            events: Vec::with_capacity(events),
            utimes: Vec::with_capacity(events),
            ends: Vec::with_capacity(events),
        }
    }

    /// How many points it has.
    pub fn len(&self) -> usize {
        self.x.len()
    }

    /// Whether it has no point.
    pub fn is_empty(&self) -> bool {
        self.x.is_empty()
    }

    /// Ends an event, whose points are those since the last one. Its message says it is of `utime`
    /// microseconds. Those whose `has_intensity` is false keep whatever is in that column as nothing.
    ///
    /// `Err` if there are more points than a batch can hold.
    pub fn end_event(&mut self, event: u32, utime: i64, has_intensity: bool) -> Result<(), Error> {
        let start = self.ends.last().map_or(0, |end| *end as usize);
        if !has_intensity && self.len() > start {
            self.dark.push((start, self.len() - start));
        }
        let end = i32::try_from(self.len())
            .map_err(|_| Error::invalid("more than two thousand million points in one batch"))?;
        self.events.push(event);
        self.utimes.push(utime);
        self.ends.push(end);
        Ok(())
    }

    /// The rows of these events, whose payloads are gone.
    pub fn finish(self, frame: Frame) -> Rows {
        let count = self.len();
        let offsets: Vec<i32> = std::iter::once(0).chain(self.ends).collect();
        let intensities = ScalarBuffer::from(self.intensity);
        let intensity = Float32Array::new(intensities, lit(count, &self.dark));
        let time = TimestampNanosecondArray::from(self.time).with_timezone("UTC");
        let columns: Vec<(&str, ArrayRef, bool)> = vec![
            ("x", Arc::new(Float64Array::from(self.x)), false),
            ("y", Arc::new(Float64Array::from(self.y)), false),
            ("z", Arc::new(Float64Array::from(self.z)), false),
            ("intensity", Arc::new(intensity), true),
            ("laser", Arc::new(UInt16Array::from(self.laser)), false),
            ("azimuth", Arc::new(Float32Array::from(self.azimuth)), false),
            ("time", Arc::new(time), false),
        ];
        let field = |(name, array, nullable): &(&str, ArrayRef, bool)| {
            Field::new(*name, array.data_type().clone(), *nullable)
        };
        let fields: Fields = columns.iter().map(field).collect();
        let columns = columns.into_iter().map(|(_, array, _)| array).collect();
        let points = StructArray::new(fields, columns, None);
        let offsets = OffsetBuffer::new(offsets.into());
        rows(self.events, vec![(utime_field(), utimes(self.utimes))], (points, offsets), frame)
    }
}

/// Which points have an intensity; nothing if all have.
fn lit(count: usize, dark: &[(usize, usize)]) -> Option<NullBuffer> {
    if dark.is_empty() {
        return None;
    }
    let mut valid = vec![true; count];
    for (start, len) in dark {
        valid[*start..start + len].fill(false);
    }
    Some(NullBuffer::from(valid))
}

fn utime_field() -> FieldRef {
    Arc::new(Field::new(UTIME, DataType::Int64, false))
}

fn utimes(utimes: Vec<i64>) -> ArrayRef {
    Arc::new(Int64Array::from(utimes))
}

/// Rows of points, a row an event, of messages of these times in microseconds.
pub(crate) fn rows_of(
    events: Vec<u32>,
    micros: Vec<i64>,
    points: (StructArray, OffsetBuffer<i32>),
    frame: Frame,
) -> Rows {
    rows(events, vec![(utime_field(), utimes(micros))], points, frame)
}

/// Rows of points with these other columns in front.
fn rows(
    events: Vec<u32>,
    others: Vec<(FieldRef, ArrayRef)>,
    (points, offsets): (StructArray, OffsetBuffer<i32>),
    frame: Frame,
) -> Rows {
    let element = Arc::new(Field::new_list_field(points.data_type().clone(), false));
    let list = ListArray::new(element, offsets, Arc::new(points), None);
    let said = HashMap::from([(FRAME.to_owned(), frame.as_str().to_owned())]);
    let field = Field::new(POINTS, list.data_type().clone(), false).with_metadata(said);
    let (mut fields, mut columns): (Vec<FieldRef>, Vec<ArrayRef>) = others.into_iter().unzip();
    fields.push(Arc::new(field));
    columns.push(Arc::new(list));
    let schema = Schema::new(fields);
    // The frame is in the name, too: some of those who pass tables on lose what columns say of themselves.
    let name = format!("{TYPE}.{}", frame.as_str());
    let message = Arc::new(MessageType::named(name, key_of(frame.as_str(), &schema)));
    let columns = RecordBatch::try_new(Arc::new(schema), columns)
        .expect("the columns are as long as there are events");
    Rows { message, payloads: Payloads::Gone, events, columns }
}

/// What each message says of its own time, where it says something.
#[derive(Clone, Copy)]
pub(crate) struct Utimes<'c>(Option<&'c Int64Array>);

impl<'c> Utimes<'c> {
    /// Those of a column, if it is one of such times.
    pub(crate) fn of(column: Option<&'c ArrayRef>) -> Self {
        Self(column.and_then(|column| column.as_primitive_opt()))
    }

    /// When a row is of, in nanoseconds: what its message says, or else its event's `timestamp`.
    pub(crate) fn nanos(self, row: usize, timestamp: i64) -> i64 {
        let said = self.0.filter(|utimes| utimes.is_valid(row)).map(|utimes| utimes.value(row));
        said.map_or(timestamp, |utime| utime.saturating_mul(1_000))
    }
}

/// Refuses rows that look like points, and do not say in which frame these are, or not in the form of
/// points: whoever took them for something else would let them pass as they are.
pub(crate) fn refuse_unknown(rows: &Rows, channel: &str) -> Result<(), Error> {
    let looks = rows.message.name.starts_with(TYPE) || has_places(rows);
    if !looks || Points::of(rows).is_some() {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "the frame of these points is not known: rows of the type `{}` on channel `{channel}` have to say it in \
         the metadata of their column `{POINTS}`, as `{FRAME}` of `sensor`, `body` or `local`, and each point \
         has to have doubles x, y and z; rows from a table of another program can be left to other stages with \
         `channels`",
        rows.message.name,
    )))
}

/// Whether there is a list of structs with `x`, `y` and `z` where points have theirs.
fn has_places(rows: &Rows) -> bool {
    let element = match rows.columns.column_by_name(POINTS).map(|column| column.data_type()) {
        Some(DataType::List(element) | DataType::LargeList(element)) => element,
        _ => return false,
    };
    let DataType::Struct(members) = element.data_type() else { return false };
    ["x", "y", "z"].iter().all(|name| members.find(name).is_some())
}

/// The points of some events, as they were found among decoded rows.
#[derive(Clone, Debug)]
pub struct Points {
    /// What else each row has.
    others: Vec<(FieldRef, ArrayRef)>,
    events: Vec<u32>,
    offsets: OffsetBuffer<i32>,
    members: StructArray,
    frame: Frame,
}

impl Points {
    /// The points of these rows; nothing if they have none that say their frame, in the list's field or
    /// else in the name of their type.
    pub fn of(rows: &Rows) -> Option<Self> {
        let schema = rows.columns.schema();
        let (place, field) = schema.column_with_name(POINTS)?;
        let named = || rows.message.name.strip_prefix(TYPE)?.strip_prefix('.');
        let frame = field.metadata().get(FRAME).map(String::as_str).or_else(named)?.parse().ok()?;
        let list = rows.columns.column(place).as_list_opt::<i32>()?;
        let members = list.values().as_struct_opt()?;
        let fits = |name: &str| {
            members.column_by_name(name).is_some_and(|m| m.data_type() == &DataType::Float64)
        };
        if list.null_count() > 0
            || members.null_count() > 0
            || !["x", "y", "z"].map(fits).iter().all(|fits| *fits)
        {
            return None;
        }
        // A slice of a list keeps all its values: only those that are meant go on.
        let first = list.offsets().first().map_or(0, |first| *first as usize);
        let last = list.offsets().last().map_or(0, |last| *last as usize);
        let members = members.slice(first, last - first);
        let offsets = list.offsets().iter().map(|offset| offset - first as i32).collect();
        let others = schema.fields().iter().zip(rows.columns.columns()).enumerate();
        let others = others.filter(|(at, _)| *at != place);
        Some(Self {
            others: others
                .map(|(_, (field, array))| (Arc::clone(field), Arc::clone(array)))
                .collect(),
            events: rows.events.clone(),
            offsets: OffsetBuffer::new(ScalarBuffer::from(Vec::from_iter::<Vec<i32>>(offsets))),
            members,
            frame,
        })
    }

    /// The frame they lie in.
    pub fn frame(&self) -> Frame {
        self.frame
    }

    /// The event of each row, ascending.
    pub fn events(&self) -> &[u32] {
        &self.events
    }

    /// Which points row `row` has.
    ///
    /// # Panics
    ///
    /// If there is no such row.
    pub fn range(&self, row: usize) -> std::ops::Range<usize> {
        self.offsets[row] as usize..self.offsets[row + 1] as usize
    }

    /// How many points there are.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether there is no point.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The members `x`, `y` and `z` of all points.
    pub fn xyz(&self) -> [&[f64]; 3] {
        ["x", "y", "z"].map(|name| {
            let member = self.members.column_by_name(name).expect("it was looked at");
            &**member.as_primitive::<Float64Type>().values()
        })
    }

    /// A member of all points.
    pub fn member(&self, name: &str) -> Option<&ArrayRef> {
        self.members.column_by_name(name)
    }

    /// Another column of the rows.
    pub fn column(&self, name: &str) -> Option<&ArrayRef> {
        self.others.iter().find(|(field, _)| field.name() == name).map(|(_, array)| array)
    }

    /// When each row was measured, in nanoseconds: what its message says, or else `timestamps` (one an
    /// event of the batch).
    pub fn times(&self, timestamps: &[i64]) -> Vec<i64> {
        let utimes = Utimes::of(self.column(UTIME));
        let events = self.events.iter().enumerate();
        events.map(|(row, event)| utimes.nanos(row, timestamps[*event as usize])).collect()
    }

    /// The same points with these members in place of those of the same names, or behind the others; in
    /// this frame.
    ///
    /// # Panics
    ///
    /// If a member does not have a value a point.
    pub fn with_members(mut self, members: Vec<(&str, ArrayRef)>, frame: Frame) -> Self {
        let (fields, mut columns, nulls) = self.members.into_parts();
        let mut fields: Vec<FieldRef> = fields.iter().cloned().collect();
        for (name, array) in members {
            let nullable = array.is_nullable();
            let field = Arc::new(Field::new(name, array.data_type().clone(), nullable));
            match fields.iter().position(|known| known.name() == name) {
                Some(at) => (fields[at], columns[at]) = (field, array),
                None => {
                    fields.push(field);
                    columns.push(array);
                }
            }
        }
        self.members = StructArray::new(fields.into(), columns, nulls);
        self.frame = frame;
        self
    }

    /// The same points with another column of the rows, in place of one of the same name.
    ///
    /// # Panics
    ///
    /// If it does not have a value a row.
    pub fn with_column(mut self, field: Field, array: ArrayRef) -> Self {
        assert_eq!(array.len(), self.events.len(), "one value a row");
        self.others.retain(|(known, _)| known.name() != field.name());
        self.others.push((Arc::new(field), array));
        self
    }

    /// The same points without that column of the rows.
    pub fn without_column(mut self, name: &str) -> Self {
        self.others.retain(|(known, _)| known.name() != name);
        self
    }

    /// The rows they are.
    pub fn into_rows(self) -> Rows {
        rows(self.events, self.others, (self.members, self.offsets), self.frame)
    }
}
