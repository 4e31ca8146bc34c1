//! Checks the columns of a program's output by name and type, and converts them to one form.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Int32Type, Int64Type, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType,
};
use arrow_array::{Array, ArrayRef, BinaryViewArray, DictionaryArray, Int64Array, RecordBatch};
use arrow_buffer::ScalarBuffer;
use arrow_schema::{DataType, Schema, SchemaRef, TimeUnit};
use sluice_model::cast::cast;

/// The columns that are read, and whether they are required. Others are ignored.
const COLUMNS: [(&str, Presence); 8] = [
    ("timestamp", Presence::Required),
    ("channel", Presence::Required),
    ("payload", Presence::Required),
    ("sequence", Presence::Optional),
    ("number", Presence::Optional),
    ("source", Presence::Optional),
    ("encoding", Presence::Optional),
    ("attributes", Presence::Optional),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Presence {
    Required,
    Optional,
}

/// The maximum total length of a column's values in a batch.
const MAX_BATCH_BYTES: usize = 256 << 20;

/// The schema of a stream, and where its columns are.
#[derive(Clone, Debug)]
pub(crate) struct StreamLayout {
    pub(crate) schema: SchemaRef,
    /// The indices of the columns that are read.
    pub(crate) places: Vec<usize>,
    /// Whether payloads are text.
    is_text: bool,
}

/// A batch of events from a program, converted to fixed types.
#[derive(Clone, Debug)]
pub(crate) struct EventColumns {
    /// Nanoseconds since 1970.
    pub(crate) timestamps: ScalarBuffer<i64>,
    pub(crate) payloads: BinaryViewArray,
    pub(crate) sequences: Option<ScalarBuffer<i64>>,
    /// The numbers that events were sent with; null for new events.
    pub(crate) numbers: Option<Int64Array>,
    /// Text columns, as dictionaries.
    pub(crate) channel: ArrayRef,
    pub(crate) source: Option<ArrayRef>,
    pub(crate) encoding: Option<ArrayRef>,
    pub(crate) attributes: Option<ArrayRef>,
    /// Whether payloads are text.
    pub(crate) is_text: bool,
    /// Approximate size in memory.
    pub(crate) bytes: usize,
}

impl EventColumns {
    /// The number of events.
    pub(crate) fn len(&self) -> usize {
        self.timestamps.len()
    }
}

impl StreamLayout {
    /// The layout of a stream with this schema. `Err` names every column that is missing or has a
    /// wrong type.
    pub(crate) fn from_schema(schema: SchemaRef) -> Result<Self, String> {
        let mut wrong = Vec::new();
        let mut places = Vec::new();
        let mut is_text = false;
        for (name, needed) in COLUMNS {
            let mut found =
                schema.fields().iter().enumerate().filter(|(_, field)| field.name() == name);
            match (found.next(), found.next()) {
                (Some((place, field)), None) => {
                    let kind = field.data_type();
                    is_text |= name == "payload" && is_text_type(kind);
                    match expected(name, kind) {
                        None => places.push(place),
                        Some(want) => {
                            wrong.push(format!("column `{name}`: expected {want}, found {kind}"))
                        }
                    }
                }
                (Some(_), Some(_)) => wrong.push(format!("column `{name}` occurs twice")),
                (None, _) if needed == Presence::Required => {
                    wrong.push(format!("column `{name}` is missing"))
                }
                (None, _) => {}
            }
        }
        if wrong.is_empty() {
            return Ok(Self { schema, places, is_text });
        }
        Err(format!("{}; it has {}", wrong.join("; "), list_columns(&schema)))
    }

    /// The events of a batch with the columns of `places`. `Err` names the column and the row at
    /// fault.
    pub(crate) fn events(&self, columns: &RecordBatch) -> Result<EventColumns, String> {
        let column =
            |name: &str| columns.column_by_name(name).filter(|c| *c.data_type() != DataType::Null);
        let needed = |name: &str| column(name).ok_or_else(|| format!("column `{name}` is missing"));
        let words = |name: &str| column(name).map(|c| dictionary(name, c)).transpose();
        let payloads = payloads(needed("payload")?)?;
        let channel = needed("channel")?;
        no_nulls("channel", channel)?;
        Ok(EventColumns {
            timestamps: timestamps(needed("timestamp")?)?,
            payloads,
            sequences: column("sequence").map(sequences).transpose()?,
            numbers: column("number").map(numbers).transpose()?,
            channel: dictionary("channel", channel)?,
            source: words("source")?,
            encoding: words("encoding")?,
            attributes: words("attributes")?,
            is_text: self.is_text,
            bytes: columns.get_array_memory_size(),
        })
    }
}

/// Names and types of the columns, for messages.
fn list_columns(schema: &Schema) -> String {
    const MOST: usize = 20;
    if schema.fields().is_empty() {
        return "no column".to_owned();
    }
    let each = schema.fields().iter().take(MOST);
    let each: Vec<String> = each
        .map(|field| format!("`{:.60}` ({:.60})", field.name(), field.data_type().to_string()))
        .collect();
    let more = if schema.fields().len() > MOST { " and more" } else { "" };
    format!("{}{more}", each.join(", "))
}

/// The expected type of a column; `None` if it has it.
fn expected(name: &str, kind: &DataType) -> Option<&'static str> {
    let (fits, want) = match name {
        "timestamp" => (
            matches!(kind, DataType::Timestamp(..) | DataType::Int64),
            "a timestamp, or int64 (nanoseconds since 1970)",
        ),
        "payload" => (is_payload(kind), "binary or text"),
        "sequence" | "number" => (kind.is_integer() || *kind == DataType::Null, "an integer"),
        "channel" => (is_text_column(kind), "text"),
        _ => (is_text_column(kind) || *kind == DataType::Null, "text"),
    };
    (!fits).then_some(want)
}

fn is_text_type(kind: &DataType) -> bool {
    matches!(kind, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

fn is_text_column(kind: &DataType) -> bool {
    match kind {
        DataType::Dictionary(_, values) => is_text_type(values),
        kind => is_text_type(kind),
    }
}

fn is_payload(kind: &DataType) -> bool {
    let is_binary = matches!(
        kind,
        DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView
            | DataType::FixedSizeBinary(_)
    );
    is_binary || is_text_type(kind)
}

fn no_nulls(name: &str, column: &ArrayRef) -> Result<(), String> {
    // Values of a dictionary may be null as well.
    let nulls = column.logical_nulls().filter(|nulls| nulls.null_count() > 0);
    let Some(nulls) = nulls else { return Ok(()) };
    let row = (0..column.len()).find(|row| nulls.is_null(*row)).unwrap_or(0);
    Err(format!("column `{name}` is null in row {row} of a batch; every event needs a value"))
}

fn timestamps(column: &ArrayRef) -> Result<ScalarBuffer<i64>, String> {
    no_nulls("timestamp", column)?;
    let (values, factor) = match column.data_type() {
        DataType::Timestamp(TimeUnit::Second, _) => {
            (column.as_primitive::<TimestampSecondType>().values(), 1_000_000_000)
        }
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            (column.as_primitive::<TimestampMillisecondType>().values(), 1_000_000)
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            (column.as_primitive::<TimestampMicrosecondType>().values(), 1_000)
        }
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            return Ok(column.as_primitive::<TimestampNanosecondType>().values().clone());
        }
        _ => return Ok(column.as_primitive::<Int64Type>().values().clone()),
    };
    let nanos = |value: &i64| {
        value.checked_mul(factor).ok_or_else(|| {
            format!("column `timestamp`: {value} is out of the range of times (1677 to 2262)")
        })
    };
    values.iter().map(nanos).collect::<Result<Vec<_>, _>>().map(ScalarBuffer::from)
}

/// The column cast to `kind`.
fn cast_to(name: &str, column: &ArrayRef, kind: &DataType) -> Result<ArrayRef, String> {
    cast(column, kind).map_err(|e| format!("column `{name}`: {e}"))
}

fn sequences(column: &ArrayRef) -> Result<ScalarBuffer<i64>, String> {
    no_nulls("sequence", column)?;
    let wide = cast_to("sequence", column, &DataType::Int64)?;
    // Values that do not fit have become null.
    if wide.null_count() > 0 {
        return Err("column `sequence`: a number of more than 63 bits".into());
    }
    Ok(wide.as_primitive::<Int64Type>().values().clone())
}

/// Integers that may be null.
fn numbers(column: &ArrayRef) -> Result<Int64Array, String> {
    let wide = cast_to("number", column, &DataType::Int64)?;
    if wide.null_count() > column.null_count() {
        return Err("column `number`: a number that no event was sent with".into());
    }
    Ok(wide.as_primitive::<Int64Type>().clone())
}

fn dictionary(name: &str, column: &ArrayRef) -> Result<ArrayRef, String> {
    let words = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
    let plain = column.as_any_dictionary_opt().map_or(column, |column| column.values());
    if let Some(views) = plain.as_string_view_opt() {
        not_too_long(name, views.views())?;
    }
    let column = match column.data_type() {
        DataType::Utf8View | DataType::LargeUtf8 => cast_to(name, column, &DataType::Utf8)?,
        // Never row by row: all of them may have the same long text.
        _ => Arc::clone(column),
    };
    // Compiled here, because the library is not optimised in `release`, and this runs per event.
    match column.as_string_opt::<i32>() {
        Some(column) => Ok(Arc::new(column.iter().collect::<DictionaryArray<Int32Type>>())),
        None => cast_to(name, &column, &words),
    }
}

fn payloads(column: &ArrayRef) -> Result<BinaryViewArray, String> {
    no_nulls("payload", column)?;
    let binary = match column.data_type() {
        DataType::Utf8 | DataType::FixedSizeBinary(_) => {
            cast_to("payload", column, &DataType::Binary)?
        }
        DataType::LargeUtf8 => cast_to("payload", column, &DataType::LargeBinary)?,
        _ => Arc::clone(column),
    };
    let views = match binary.as_binary_opt::<i32>() {
        Some(binary) => BinaryViewArray::from(binary),
        None => cast_to("payload", &binary, &DataType::BinaryView)?.as_binary_view().clone(),
    };
    not_too_long("payload", views.views())?;
    Ok(views)
}

/// Refuses views with more bytes in total than a batch may have: many views may show the same
/// bytes.
fn not_too_long(name: &str, views: &[u128]) -> Result<(), String> {
    let total = views.iter().map(|view| *view as u32 as usize).sum::<usize>();
    if total <= MAX_BATCH_BYTES {
        return Ok(());
    }
    Err(format!(
        "column `{name}`: expected at most {MAX_BATCH_BYTES} bytes per batch, found {total}; write \
         smaller batches"
    ))
}
