//! Point clouds as decoded rows: one row per event, with a list of points. Knows no sensors.
//!
//! A row has `utime`, the message's own time in microseconds, and `points`, a list of structs.
//! Their members are those of [`CloudBuilder`]; stages may add more. The metadata of the list field
//! names the frame of the points.

use std::collections::HashMap;
use std::ops::Range;
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
use serde::{Deserialize, Serialize};
use sluice_model::{Batch, ChannelId, Channels, Error, MessageType, Payloads, Rows};

use crate::poses::rows::type_key;

/// The column of the points.
pub(crate) const POINTS: &str = "points";
/// The column of the messages' own times, in microseconds.
pub(crate) const UTIME: &str = "utime";
/// Prefix of the type names of points; the frame follows.
const TYPE: &str = "sluice.points";
/// Metadata key of the frame in the list field.
const FRAME: &str = "frame";

/// A coordinate frame of points.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PointFrame {
    /// The frame of the sensor that measured the points.
    Sensor,
    /// The vehicle frame: the ground below the middle of the rear axle, x forward, y left, z up.
    Body,
    /// The smooth frame of the poses, which drifts relative to the globe.
    #[default]
    Local,
}

impl PointFrame {
    /// The name of the frame.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sensor => "sensor",
            Self::Body => "body",
            Self::Local => "local",
        }
    }
}

impl FromStr for PointFrame {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        [Self::Sensor, Self::Body, Self::Local].into_iter().find(|f| f.as_str() == name).ok_or(())
    }
}

/// Builds the points of some events, column by column.
#[derive(Debug, Default)]
pub struct CloudBuilder {
    /// Metres.
    pub x: Vec<f64>,
    /// Metres.
    pub y: Vec<f64>,
    /// Metres.
    pub z: Vec<f64>,
    /// Intensity, in the unit of the sensor.
    pub intensity: Vec<f32>,
    /// Number of the laser; for scans, the number of the sample.
    pub laser: Vec<u16>,
    /// Azimuth in degrees, as counted by the sensor.
    pub azimuth: Vec<f32>,
    /// Time in nanoseconds since 1970.
    pub time: Vec<i64>,
    /// Runs of points without an intensity: start and length.
    without_intensity: Vec<(usize, usize)>,
    events: Vec<u32>,
    utimes: Vec<i64>,
    ends: Vec<i32>,
}

impl CloudBuilder {
    /// An empty builder with the given capacity.
    pub fn with_capacity(points: usize, events: usize) -> Self {
        Self {
            x: Vec::with_capacity(points),
            y: Vec::with_capacity(points),
            z: Vec::with_capacity(points),
            intensity: Vec::with_capacity(points),
            laser: Vec::with_capacity(points),
            azimuth: Vec::with_capacity(points),
            time: Vec::with_capacity(points),
            without_intensity: Vec::new(),
            events: Vec::with_capacity(events),
            utimes: Vec::with_capacity(events),
            ends: Vec::with_capacity(events),
        }
    }

    /// The number of points.
    pub fn len(&self) -> usize {
        self.x.len()
    }

    /// Whether there are no points.
    pub fn is_empty(&self) -> bool {
        self.x.is_empty()
    }

    /// Ends an event with all points appended since the last one. `utime` is its message's own time
    /// in microseconds. Without `has_intensity`, its intensities become null.
    ///
    /// `Err` if there are more points than a batch can hold.
    pub fn end_event(&mut self, event: u32, utime: i64, has_intensity: bool) -> Result<(), Error> {
        let start = self.ends.last().map_or(0, |end| *end as usize);
        if !has_intensity && self.len() > start {
            self.without_intensity.push((start, self.len() - start));
        }
        let end = i32::try_from(self.len())
            .map_err(|_| Error::invalid("more than 2^31 points in one batch"))?;
        self.events.push(event);
        self.utimes.push(utime);
        self.ends.push(end);
        Ok(())
    }

    /// Builds the rows, which replace the payloads of their events.
    pub fn finish(self, frame: PointFrame) -> Rows {
        let count = self.len();
        let offsets: Vec<i32> = std::iter::once(0).chain(self.ends).collect();
        let intensities = ScalarBuffer::from(self.intensity);
        let intensity =
            Float32Array::new(intensities, intensity_nulls(count, &self.without_intensity));
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
        assemble_rows(
            self.events,
            vec![(utime_field(), utimes(self.utimes))],
            (points, offsets),
            frame,
        )
    }
}

/// The validity of the intensities; `None` if all are valid.
fn intensity_nulls(count: usize, without_intensity: &[(usize, usize)]) -> Option<NullBuffer> {
    if without_intensity.is_empty() {
        return None;
    }
    let mut valid = vec![true; count];
    for (start, len) in without_intensity {
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

/// Rows of points, one per event, with these message times in microseconds.
pub(crate) fn rows_from_points(
    events: Vec<u32>,
    micros: Vec<i64>,
    points: (StructArray, OffsetBuffer<i32>),
    frame: PointFrame,
) -> Rows {
    assemble_rows(events, vec![(utime_field(), utimes(micros))], points, frame)
}

/// Rows of points, with other columns in front.
fn assemble_rows(
    events: Vec<u32>,
    others: Vec<(FieldRef, ArrayRef)>,
    (points, offsets): (StructArray, OffsetBuffer<i32>),
    frame: PointFrame,
) -> Rows {
    let element = Arc::new(Field::new_list_field(points.data_type().clone(), false));
    let list = ListArray::new(element, offsets, Arc::new(points), None);
    let metadata = HashMap::from([(FRAME.to_owned(), frame.as_str().to_owned())]);
    let field = Field::new(POINTS, list.data_type().clone(), false).with_metadata(metadata);
    let (mut fields, mut columns): (Vec<FieldRef>, Vec<ArrayRef>) = others.into_iter().unzip();
    fields.push(Arc::new(field));
    columns.push(Arc::new(list));
    let schema = Schema::new(fields);
    // The type name repeats the frame, since some tools that pass tables on drop field metadata.
    let name = format!("{TYPE}.{}", frame.as_str());
    let message = Arc::new(MessageType::named(name, type_key(frame.as_str(), &schema)));
    let columns = RecordBatch::try_new(Arc::new(schema), columns)
        .expect("each column has one value per event");
    Rows { message, payloads: Payloads::Gone, events, columns }
}

/// A message's own time in microseconds, or else that of its event, and the same in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CloudTime {
    pub(crate) micros: i64,
    pub(crate) nanos: i64,
}

/// The note about events whose own time [`CloudTime`] does not use.
pub(crate) const IMPOSSIBLE_TIME: &str =
    "`utime` beyond the years 1677 to 2262; the event's time is used";

impl CloudTime {
    /// The message's own time if it can be one, else the `timestamp` of its event. Also whether its
    /// own time is impossible.
    pub(crate) fn resolve(utime: Option<i64>, timestamp: i64) -> (Self, bool) {
        let own = utime.and_then(|micros| Some((micros, micros.checked_mul(1_000)?)));
        let (micros, nanos) = own.unwrap_or((timestamp.div_euclid(1_000), timestamp));
        (Self { micros, nanos }, utime.is_some() && own.is_none())
    }
}

/// The messages' own times, if present.
#[derive(Clone, Copy)]
pub(crate) struct MessageTimes<'c>(Option<&'c Int64Array>);

impl<'c> MessageTimes<'c> {
    /// The times in a column, if it has the right type.
    pub(crate) fn from_column(column: Option<&'c ArrayRef>) -> Self {
        Self(column.and_then(|column| column.as_primitive_opt()))
    }

    /// The time of a row in nanoseconds: its message's own time if it can be one, or else the
    /// `timestamp` of its event.
    pub(crate) fn nanos(self, row: usize, timestamp: i64) -> i64 {
        let utime = self.0.filter(|utimes| utimes.is_valid(row)).map(|utimes| utimes.value(row));
        CloudTime::resolve(utime, timestamp).0.nanos
    }
}

/// Refuses selected rows that look like points but have no known frame or the wrong member types.
/// Otherwise they would silently pass unchanged.
pub(crate) fn refuse_unknown_frames(
    batch: &Batch,
    is_selected: impl Fn(u32) -> bool,
    channels: &Channels,
) -> Result<(), Error> {
    for rows in batch.rows() {
        if let Some(event) = rows.events.iter().find(|event| is_selected(**event)) {
            let channel = channels.get(ChannelId(batch.channels()[*event as usize]));
            refuse_unknown_frame(rows, channel.name.text())?;
        }
    }
    Ok(())
}

fn refuse_unknown_frame(rows: &Rows, channel: &str) -> Result<(), Error> {
    let looks_like_points = rows.message.name.starts_with(TYPE) || has_xyz_list(rows);
    if !looks_like_points || Points::from_rows(rows).is_some() {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "unknown frame of points: rows of type `{}` on channel `{channel}` need metadata \
         `{FRAME}` (`sensor`, `body` or `local`) on their column `{POINTS}`, and doubles x, y and \
         z in each point; to pass such rows unchanged, exclude their channel with `channels`",
        rows.message.name,
    )))
}

/// Whether the column of points is a list of structs with `x`, `y` and `z`.
fn has_xyz_list(rows: &Rows) -> bool {
    let element = match rows.columns.column_by_name(POINTS).map(|column| column.data_type()) {
        Some(DataType::List(element) | DataType::LargeList(element)) => element,
        _ => return false,
    };
    let DataType::Struct(members) = element.data_type() else { return false };
    ["x", "y", "z"].iter().all(|name| members.find(name).is_some())
}

/// The points of some events, read from decoded rows.
#[derive(Clone, Debug)]
pub struct Points {
    /// The other columns of the rows.
    others: Vec<(FieldRef, ArrayRef)>,
    events: Vec<u32>,
    offsets: OffsetBuffer<i32>,
    members: StructArray,
    frame: PointFrame,
}

impl Points {
    /// The points of these rows. `None` if they have none with a known frame, given by the list
    /// field or else by the type name.
    pub fn from_rows(rows: &Rows) -> Option<Self> {
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
        // A sliced list keeps all its values; drops those outside the slice.
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

    /// The frame of the points.
    pub fn frame(&self) -> PointFrame {
        self.frame
    }

    /// The event of each row, ascending.
    pub fn events(&self) -> &[u32] {
        &self.events
    }

    /// The range of points of a row.
    ///
    /// # Panics
    ///
    /// If there is no such row.
    pub fn range(&self, row: usize) -> Range<usize> {
        self.offsets[row] as usize..self.offsets[row + 1] as usize
    }

    /// The number of points.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether there are no points.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The members `x`, `y` and `z` of all points.
    pub fn xyz(&self) -> [&[f64]; 3] {
        ["x", "y", "z"].map(|name| {
            let member =
                self.members.column_by_name(name).expect("`from_rows` checked the members");
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

    /// The time of each row in nanoseconds: its message's own time, or else that of its event.
    /// `timestamps` are those of the batch.
    pub fn times(&self, timestamps: &[i64]) -> Vec<i64> {
        let utimes = MessageTimes::from_column(self.column(UTIME));
        let events = self.events.iter().enumerate();
        events.map(|(row, event)| utimes.nanos(row, timestamps[*event as usize])).collect()
    }

    /// The runs of consecutive points whose events have the same key, with the value of each.
    pub(crate) fn runs<K: PartialEq, V>(
        &self,
        key: impl Fn(usize, u32) -> K,
        value: impl Fn(usize, u32) -> Result<V, Error>,
    ) -> Result<Vec<(Range<usize>, V)>, Error> {
        let (mut runs, mut last): (Vec<(Range<usize>, V)>, _) = (Vec::new(), None);
        for (row, event) in self.events.iter().enumerate() {
            let (range, key) = (self.range(row), Some(key(row, *event)));
            match runs.last_mut() {
                Some((run, _)) if last == key => run.end = range.end,
                _ => runs.push((range, value(row, *event)?)),
            }
            last = key;
        }
        Ok(runs)
    }

    /// Replaces or adds members, and sets the frame.
    ///
    /// # Panics
    ///
    /// If a member does not have one value per point.
    pub fn with_members<'m>(
        mut self,
        members: impl IntoIterator<Item = (&'m str, Vec<f64>)>,
        frame: PointFrame,
    ) -> Self {
        let (fields, mut columns, nulls) = self.members.into_parts();
        let mut fields: Vec<FieldRef> = fields.iter().cloned().collect();
        for (name, values) in members {
            let array: ArrayRef = Arc::new(Float64Array::from(values));
            let field = Arc::new(Field::new(name, DataType::Float64, false));
            match fields.iter().position(|existing| existing.name() == name) {
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

    /// Replaces or adds a column of the rows.
    ///
    /// # Panics
    ///
    /// If it does not have one value per row.
    pub fn with_column(mut self, field: Field, array: ArrayRef) -> Self {
        assert_eq!(array.len(), self.events.len(), "one value per row");
        self.others.retain(|(existing, _)| existing.name() != field.name());
        self.others.push((Arc::new(field), array));
        self
    }

    /// Removes a column of the rows.
    pub fn without_column(mut self, name: &str) -> Self {
        self.others.retain(|(existing, _)| existing.name() != name);
        self
    }

    /// Converts the points back to rows.
    pub fn into_rows(self) -> Rows {
        assemble_rows(self.events, self.others, (self.members, self.offsets), self.frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_with_impossible_times_have_that_of_their_event() {
        let times: ArrayRef = Arc::new(Int64Array::from(vec![Some(7), Some(i64::MAX), None]));
        let times = MessageTimes::from_column(Some(&times));
        assert_eq!([0, 1, 2].map(|row| times.nanos(row, 5)), [7_000, 5, 5]);
    }
}
