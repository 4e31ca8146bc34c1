//! Turns result rows into events: which columns set the time, channel and so on, and the defaults
//! for those that are missing.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampNanosecondType, UInt32Type};
use arrow_array::{
    Array, ArrayRef, BinaryViewArray, Int64Array, RecordBatch, RecordBatchOptions, StringArray,
    UInt32Array,
};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef, TimeUnit};
use arrow_select::take::take_record_batch;
use datafusion::arrow::buffer::ScalarBuffer;
use sluice_model::cast;
use sluice_model::{
    Batch, Channel, ChannelId, Channels, Clock, Encoding, Error, MessageType, Name, Payloads, Rows,
    StageContext, TypeKey,
};

use super::columns::{self, EVENT_INDEX, EventColumn, PAYLOAD_SIZE};
use super::plan::first_duplicate;

/// The name of the message type of result rows.
const ROW: &str = "sql";

/// How the columns of a result map to events.
#[derive(Clone, Debug)]
pub(super) struct EventMapping {
    event_columns: [Option<usize>; 5],
    /// The position of the event index column.
    event: Option<usize>,
    fields: Vec<usize>,
    /// The schema of the decoded fields.
    schema: SchemaRef,
    message: Arc<MessageType>,
}

impl EventMapping {
    /// The mapping for a result with these columns. `Err` names a column that has the wrong type
    /// for its name, or that cannot be a field.
    pub(super) fn from_schema(columns: &Schema) -> Result<Self, String> {
        let names = columns.fields().iter().map(|field| field.name().clone());
        if let Some(name) = first_duplicate(names) {
            return Err(format!("the query returns two columns `{name}`: rename one with AS"));
        }
        let (mut event_columns, mut event, mut fields, mut field_types) =
            ([None; 5], None, Vec::new(), Vec::new());
        let has_payload =
            columns.fields().iter().any(|field| field.name() == EventColumn::Payload.name());
        for (place, field) in columns.fields().iter().enumerate() {
            if field.name() == EVENT_INDEX {
                event = Some(place);
            } else if has_payload && field.name() == PAYLOAD_SIZE {
                // Implied by the payload.
            } else if let Some(which) = EventColumn::from_name(field.name()) {
                check_type(which, field.data_type())?;
                event_columns[which as usize] = Some(place);
            } else {
                let kind = columns::field_type(field.data_type()).map_err(|what| {
                    format!("column `{}` {what}; convert it with CAST", field.name())
                })?;
                fields.push(place);
                field_types.push(Field::new(columns::field_name(field.name()), kind, true));
            }
        }
        let schema = Arc::new(Schema::new(field_types));
        let form = format!("{:?}", schema.fields());
        let key = TypeKey::from_parts([ROW.as_bytes(), form.as_bytes()]);
        let message = Arc::new(MessageType::part(ROW, key));
        Ok(Self { event_columns, event, fields, schema, message })
    }

    /// Whether the query sets this column.
    pub(super) fn has(&self, which: EventColumn) -> bool {
        self.event_columns[which as usize].is_some()
    }

    fn column<'r>(&self, which: EventColumn, rows: &'r RecordBatch) -> Option<&'r ArrayRef> {
        rows.columns().get(self.event_columns[which as usize]?)
    }

    /// Makes events of rows that each come from one event of `from`, in the order of these events,
    /// and returns the index of that event for each. `channel` is the default channel.
    pub(super) fn derive_events(
        &self,
        rows: RecordBatch,
        from: &Batch,
        channel: Option<&str>,
        channels: &Channels,
    ) -> Result<(Batch, Vec<u32>), Error> {
        let (rows, places) = self.in_order(rows)?;
        let of = |values: &[i64]| -> ScalarBuffer<i64> {
            places.iter().map(|place| values[*place as usize]).collect()
        };
        let base: Vec<u32> = places.iter().map(|place| from.channels()[*place as usize]).collect();
        let origins: Vec<u32> =
            places.iter().map(|place| from.origins()[*place as usize]).collect();
        let timestamps = self.timestamps(&rows)?.unwrap_or_else(|| of(from.timestamps()));
        let sequences = self.sequences(&rows, |row| from.sequences()[places[row] as usize])?;
        let sequences = sequences.unwrap_or_else(|| of(from.sequences()));
        let of = |id: u32| channels.get(ChannelId(id));
        let named = self.channels(&rows, channel, channels, base, &of)?;
        let payloads = self.payloads(&rows)?;
        let batch = Batch::from_columns(timestamps, sequences, origins, &payloads);
        let batch = if named == batch.channels() { batch } else { batch.with_channels(named) };
        Ok((batch.with_rows(self.rows(&rows)?), places))
    }

    /// Makes new events of rows. Sequence numbers start at `first` unless the query sets them.
    pub(super) fn new_events(
        &self,
        rows: &RecordBatch,
        first: i64,
        defaults: &NewEventDefaults<'_>,
        channels: &Channels,
    ) -> Result<Batch, Error> {
        let timestamps = self.timestamps(rows)?;
        let timestamps = timestamps.ok_or_else(|| Error::internal("rows without times"))?;
        let number = |row: usize| first.saturating_add(row as i64);
        let sequences = self.sequences(rows, number)?;
        let sequences = sequences.unwrap_or_else(|| (0..rows.num_rows()).map(number).collect());
        let unnamed = Arc::new(defaults.unnamed());
        let (base, of) = (vec![NO_CHANNEL; rows.num_rows()], |_| Arc::clone(&unnamed));
        let named = self.channels(rows, defaults.channel, channels, base, &of)?;
        let payloads = self.payloads(rows)?;
        let batch = Batch::from_columns(timestamps, sequences, named, &payloads);
        Ok(batch.with_rows(self.rows(rows)?))
    }

    /// Sorts rows by the events they come from; also returns the indices of these events.
    fn in_order(&self, rows: RecordBatch) -> Result<(RecordBatch, Vec<u32>), Error> {
        let places = self.event.and_then(|event| rows.columns().get(event));
        let places = places.and_then(|places| places.as_primitive_opt::<UInt32Type>());
        let places = places.ok_or_else(|| Error::internal("rows without an event index"))?;
        if places.values().is_sorted() {
            let places = places.values().to_vec();
            return Ok((rows, places));
        }
        let mut order: Vec<u32> = (0..places.len() as u32).collect();
        order.sort_by_key(|row| places.value(*row as usize));
        let order = UInt32Array::from(order);
        let places = order.values().iter().map(|row| places.value(*row as usize)).collect();
        Ok((take_record_batch(&rows, &order).map_err(|error| broken(&error))?, places))
    }

    fn timestamps(&self, rows: &RecordBatch) -> Result<Option<ScalarBuffer<i64>>, Error> {
        let Some(column) = self.column(EventColumn::Timestamp, rows) else { return Ok(None) };
        no_nulls(EventColumn::Timestamp, column)?;
        if column.data_type() == &DataType::Int64 {
            return Ok(Some(column.as_primitive::<Int64Type>().values().clone()));
        }
        let zone = match column.data_type() {
            DataType::Timestamp(_, zone) => zone.clone(),
            _ => None,
        };
        let column = cast_exact(
            EventColumn::Timestamp,
            column,
            &DataType::Timestamp(TimeUnit::Nanosecond, zone),
        )?;
        Ok(Some(column.as_primitive::<TimestampNanosecondType>().values().clone()))
    }

    fn sequences(
        &self,
        rows: &RecordBatch,
        otherwise: impl Fn(usize) -> i64,
    ) -> Result<Option<ScalarBuffer<i64>>, Error> {
        let Some(column) = self.column(EventColumn::Sequence, rows) else { return Ok(None) };
        let column = cast_exact(EventColumn::Sequence, column, &DataType::Int64)?;
        let column: &Int64Array = column.as_primitive();
        let each = column.iter().enumerate();
        Ok(Some(each.map(|(row, number)| number.unwrap_or_else(|| otherwise(row))).collect()))
    }

    /// The channel of each row: the query's, else `default_name`, else the one in `base`, looked up
    /// with `of`.
    fn channels(
        &self,
        rows: &RecordBatch,
        default_name: Option<&str>,
        channels: &Channels,
        mut base: Vec<u32>,
        of: &dyn Fn(u32) -> Arc<Channel>,
    ) -> Result<Vec<u32>, Error> {
        let names = self.text_column(EventColumn::Channel, rows)?;
        let sources = self.text_column(EventColumn::Source, rows)?;
        let mut known: HashMap<(u32, Option<&str>, Option<&str>), u32> = HashMap::new();
        for (row, slot) in base.iter_mut().enumerate() {
            let (id, name, source) =
                (*slot, text_at(&names, row).or(default_name), text_at(&sources, row));
            match (name, source) {
                (None, _) if id == NO_CHANNEL => return Err(missing_channel()),
                (None, None) => continue,
                _ => {}
            }
            *slot = match known.get(&(id, name, source)) {
                Some(id) => *id,
                None => {
                    let channel = of(id);
                    let changed = renamed(&channel, name, source);
                    let new = if changed == *channel && id != NO_CHANNEL {
                        id
                    } else {
                        channels.intern(changed)?.0
                    };
                    known.insert((id, name, source), new);
                    new
                }
            };
        }
        Ok(base)
    }

    fn text_column(
        &self,
        which: EventColumn,
        rows: &RecordBatch,
    ) -> Result<Option<StringArray>, Error> {
        let Some(column) = self.column(which, rows) else { return Ok(None) };
        let texts = cast_exact(which, column, &DataType::Utf8)?;
        Ok(texts.as_string_opt::<i32>().cloned())
    }

    fn payloads(&self, rows: &RecordBatch) -> Result<BinaryViewArray, Error> {
        let Some(column) = self.column(EventColumn::Payload, rows) else {
            return Ok(BinaryViewArray::from_iter_values(std::iter::repeat_n(
                b"",
                rows.num_rows(),
            )));
        };
        no_nulls(EventColumn::Payload, column)?;
        let binary = match column.data_type() {
            DataType::Utf8 | DataType::FixedSizeBinary(_) => {
                cast_exact(EventColumn::Payload, column, &DataType::Binary)?
            }
            DataType::LargeUtf8 => {
                cast_exact(EventColumn::Payload, column, &DataType::LargeBinary)?
            }
            DataType::Utf8View => {
                let text = cast_exact(EventColumn::Payload, column, &DataType::LargeUtf8)?;
                cast_exact(EventColumn::Payload, &text, &DataType::LargeBinary)?
            }
            _ => Arc::clone(column),
        };
        let views = cast_exact(EventColumn::Payload, &binary, &DataType::BinaryView)?;
        Ok(views.as_binary_view().clone())
    }

    /// The decoded fields of the events; none if they have only payloads.
    fn rows(&self, rows: &RecordBatch) -> Result<Vec<Rows>, Error> {
        let has_payloads = self.has(EventColumn::Payload);
        if rows.num_rows() == 0 || has_payloads && self.fields.is_empty() {
            return Ok(Vec::new());
        }
        let fields = self.fields.iter().zip(self.schema.fields());
        let fields = fields.map(|(place, field)| {
            cast::cast_exact(rows.column(*place), field.data_type())
                .map_err(|error| Error::invalid(format!("column `{}`: {error}", field.name())))
        });
        let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
        let columns = RecordBatch::try_new_with_options(
            Arc::clone(&self.schema),
            fields.collect::<Result<_, _>>()?,
            &options,
        );
        let payloads = if has_payloads { Payloads::Kept } else { Payloads::Gone };
        Ok(vec![Rows {
            message: Arc::clone(&self.message),
            payloads,
            events: (0..rows.num_rows() as u32).collect(),
            columns: columns.map_err(|error| broken(&error))?,
        }])
    }
}

/// Defaults of events that come from many others.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewEventDefaults<'n> {
    /// The default channel.
    pub(super) channel: Option<&'n str>,
    /// The default source.
    pub(super) source: &'n str,
    pub(super) clock: Clock,
}

impl NewEventDefaults<'_> {
    /// A channel with these defaults, without a name.
    fn unnamed(&self) -> Channel {
        let channel = Channel::new(Name::from_text(""), self.source, Encoding::Unknown);
        Channel { clock: self.clock, ..channel }
    }
}

/// For events without a channel.
const NO_CHANNEL: u32 = u32::MAX;

fn missing_channel() -> Error {
    Error::invalid("column `channel` is null in a result row, and the option `channel` is not set")
}

fn renamed(channel: &Channel, name: Option<&str>, source: Option<&str>) -> Channel {
    let mut changed = channel.clone();
    if let Some(name) = name.filter(|name| *name != channel.name.text()) {
        changed.name = Name::from_text(name);
    }
    if let Some(source) = source {
        changed.source = source.into();
    }
    changed
}

fn text_at(texts: &Option<StringArray>, row: usize) -> Option<&str> {
    let texts = texts.as_ref()?;
    texts.is_valid(row).then(|| texts.value(row))
}

/// Casts a column. `Err` names a value that does not fit.
fn cast_exact(which: EventColumn, column: &ArrayRef, kind: &DataType) -> Result<ArrayRef, Error> {
    cast::cast_exact(column, kind)
        .map_err(|error| Error::invalid(format!("result column `{}`: {error}", which.name())))
}

fn no_nulls(which: EventColumn, column: &ArrayRef) -> Result<(), Error> {
    let name = which.name();
    if column.logical_null_count() == 0 {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "column `{name}` is null in a result row, but every event needs one; `where {name} is not \
         null` drops such rows"
    )))
}

/// Refuses a column whose type does not fit its name.
fn check_type(which: EventColumn, kind: &DataType) -> Result<(), String> {
    let text =
        |kind: &DataType| matches!(kind, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
    let (fits, want) = match which {
        EventColumn::Timestamp => (
            matches!(kind, DataType::Timestamp(..) | DataType::Int64),
            "a timestamp, or int64 for nanoseconds since 1970",
        ),
        EventColumn::Sequence => (kind.is_integer(), "an integer"),
        EventColumn::Payload => (
            text(kind)
                || matches!(
                    kind,
                    DataType::Binary
                        | DataType::LargeBinary
                        | DataType::BinaryView
                        | DataType::FixedSizeBinary(_)
                ),
            "binary or text",
        ),
        EventColumn::Source | EventColumn::Channel => (
            match kind {
                DataType::Dictionary(_, values) => text(values),
                kind => text(kind),
            },
            "text",
        ),
    };
    if fits {
        return Ok(());
    }
    let name = which.name();
    Err(format!(
        "column `{name}`: expected {want}, found {kind}; rename it with AS if it is not the \
         {name} of events"
    ))
}

/// Merges events of one batch, in the order of the events they come from.
pub(super) fn merge(parts: Vec<(Batch, Vec<u32>)>) -> (Batch, Vec<u32>) {
    let mut parts = parts;
    if parts.len() == 1 {
        return parts.remove(0);
    }
    let mut picks: Vec<(u32, u32, u32)> = Vec::new();
    for (part, (_, places)) in (0u32..).zip(&parts) {
        picks.extend((0u32..).zip(places).map(|(row, place)| (*place, part, row)));
    }
    picks.sort_unstable();
    let places = picks.iter().map(|(place, ..)| *place).collect();
    let picks: Vec<(u32, u32)> = picks.into_iter().map(|(_, part, row)| (part, row)).collect();
    let batches: Vec<Batch> = parts.into_iter().map(|(batch, _)| batch).collect();
    (Batch::interleave(&batches, &picks), places)
}

/// Counts filtered and added events. `places` are the indices in `from` of the events that were
/// returned, possibly several times.
pub(super) fn count_events(from: &Batch, places: &[u32], context: &mut StageContext<'_>) {
    let mut last = None;
    let mut used = 0u64;
    for place in places {
        if last.replace(*place) == Some(*place) {
            context.report.added.push(from.origins()[*place as usize]);
        } else {
            used += 1;
        }
    }
    context.report.filtered += (from.len() as u64).saturating_sub(used);
}

fn broken(error: &ArrowError) -> Error {
    Error::internal(format!("rows of a query do not fit their columns: {error}"))
}
