//! The columns of a table, and batches as these columns. Encodes nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, Int32Array, Int64Array, TimestampMicrosecondArray};
use arrow_schema::{DataType, Field, FieldRef, Fields, Schema, SchemaRef, TimeUnit};
use arrow_select::interleave::interleave;
use sluice_io::escape::{column_of_field, field_of_column};
use sluice_kit::event_table::{
    CHANNEL, PAYLOAD, RESERVED, SEQUENCE, SOURCE, TIMESTAMP, TIMESTAMP_NS, VARIANT,
};
use sluice_model::cast::cast;
use sluice_model::{Batch, Channels, Error, Rows};

use crate::column_types::{in_table_type, table_type};
use crate::fixed_lists::ListLengths;

/// Nanoseconds per microsecond.
const MICRO: i64 = 1_000;

/// The columns of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableColumns {
    /// Whether there is a column of nanoseconds.
    pub(crate) nanos: bool,
    /// Whether there is a column of channels.
    pub(crate) channel: bool,
    /// Whether there is a column that distinguishes channels of one name and source.
    pub(crate) variant: bool,
    /// The columns of the decoded message, by their names in the table.
    pub(crate) fields: Fields,
    /// Whether there is a column of payloads.
    pub(crate) payload: bool,
}

/// The columns of decoded messages, by their names in the table, with types that Parquet has.
pub(crate) fn message_fields(rows: &Rows) -> Fields {
    let named = |field: &FieldRef| {
        let name = column_of_field(field.name(), &RESERVED);
        let data_type = table_type(field.data_type());
        field.as_ref().clone().with_name(name).with_data_type(data_type)
    };
    rows.columns.schema_ref().fields().iter().map(named).collect()
}

impl TableColumns {
    /// The Arrow schema of the table.
    pub(crate) fn schema(&self) -> SchemaRef {
        let time = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
        let column_field = |name: &str, data_type| Arc::new(Field::new(name, data_type, false));
        let mut fields = vec![column_field(TIMESTAMP, time)];
        fields.extend(self.nanos.then(|| column_field(TIMESTAMP_NS, DataType::Int64)));
        fields.push(column_field(SOURCE, DataType::Utf8));
        fields.extend(self.channel.then(|| column_field(CHANNEL, DataType::Utf8)));
        fields.extend(self.variant.then(|| column_field(VARIANT, DataType::Int32)));
        fields.push(column_field(SEQUENCE, DataType::Int64));
        fields.extend(self.fields.iter().cloned());
        fields.extend(self.payload.then(|| column_field(PAYLOAD, DataType::Binary)));
        Arc::new(Schema::new(fields))
    }

    /// The metadata of the messages' fields that have some, by column.
    pub(crate) fn field_metadata(&self) -> BTreeMap<String, BTreeMap<String, String>> {
        let said = self.fields.iter().filter(|field| !field.metadata().is_empty());
        let metadata = |field: &FieldRef| field.metadata().clone().into_iter().collect();
        said.map(|field| (field.name().clone(), metadata(field))).collect()
    }

    /// The lengths of lists, by column, in those that have lists of fixed length.
    pub(crate) fn list_lengths(&self) -> BTreeMap<String, ListLengths> {
        let lengths =
            |field: &FieldRef| Some((field.name().clone(), ListLengths::of(field.data_type())?));
        self.fields.iter().filter_map(lengths).collect()
    }

    /// A batch as columns of the table. Does not copy payloads. `variants` is indexed by channel
    /// number.
    pub(crate) fn columns(
        &self,
        batch: &Batch,
        channels: &Channels,
        variants: &[u32],
    ) -> Result<Vec<ArrayRef>, Error> {
        let nanos = batch.timestamp_column();
        let micros: TimestampMicrosecondArray =
            nanos.values().iter().map(|nanos| whole_micros(*nanos)).collect::<Vec<_>>().into();
        let mut columns: Vec<ArrayRef> = vec![Arc::new(micros.with_timezone("UTC"))];
        if self.nanos {
            columns.push(Arc::new(Int64Array::new(nanos.values().clone(), None)));
        }
        let used = batch.used_channels(channels);
        columns.push(used.column(|channel| Some(&*channel.source))?);
        if self.channel {
            columns.push(used.column(|channel| Some(channel.name.text()))?);
        }
        if self.variant {
            let variant = |id: &u32| variants.get(*id as usize).copied().unwrap_or_default();
            let each = batch.channels().iter().map(|id| variant(id).cast_signed());
            columns.push(Arc::new(each.collect::<Int32Array>()));
        }
        columns.push(Arc::new(batch.sequence_column()));
        if !self.fields.is_empty() {
            columns.extend(self.message_columns(batch)?);
        }
        if self.payload {
            columns.push(Arc::new(batch.payload_column()?));
        }
        Ok(columns)
    }

    /// The message's fields, looked up by name: other programs may have reordered columns.
    fn message_columns(&self, batch: &Batch) -> Result<Vec<ArrayRef>, Error> {
        let mut places = vec![None; batch.len()];
        for (kind, rows) in batch.rows().iter().enumerate() {
            for (row, event) in rows.events.iter().enumerate() {
                places[*event as usize] = Some((kind, row));
            }
        }
        let places: Option<Vec<(usize, usize)>> = places.into_iter().collect();
        let places = places.ok_or_else(|| {
            Error::internal("an event without a message is in a table of messages")
        })?;
        let fields = self.fields.iter().enumerate();
        fields.map(|field| field_column(field, batch.rows(), &places)).collect()
    }
}

/// One field of every event: mostly the column at the same position. `places` has the rows of each
/// event and its index in them.
fn field_column(
    (at, field): (usize, &FieldRef),
    all: &[Rows],
    places: &[(usize, usize)],
) -> Result<ArrayRef, Error> {
    let name = field_of_column(field.name(), &RESERVED).unwrap_or_default();
    let column = |rows: &Rows| {
        let fields = rows.columns.schema_ref().fields();
        let column = match fields.get(at) {
            Some(same) if same.name() == name => Some(rows.columns.column(at)),
            _ => rows.columns.column_by_name(name),
        };
        let column = column.map(|column| in_table_type(column, name, rows)).transpose()?;
        column.and_then(|column| cast_without_loss(&column, field.data_type())).ok_or_else(|| {
            Error::invalid(format!(
                "messages of the type `{}` have different columns: write those that were decoded \
                 differently to another table",
                rows.message.name
            ))
        })
    };
    let columns: Vec<ArrayRef> = all.iter().map(column).collect::<Result<_, _>>()?;
    match columns.as_slice() {
        [one] => Ok(Arc::clone(one)),
        several => {
            let several: Vec<&dyn Array> = several.iter().map(AsRef::as_ref).collect();
            interleave(&several, places).map_err(|e| Error::internal(e.to_string()))
        }
    }
}

/// A column cast to another type, if nothing is lost: other programs name list items differently.
fn cast_without_loss(column: &ArrayRef, data_type: &DataType) -> Option<ArrayRef> {
    if column.data_type() == data_type {
        return Some(Arc::clone(column));
    }
    let there = cast(column, data_type).ok()?;
    let back = cast(&there, column.data_type()).ok()?;
    (*back == **column).then_some(there)
}

/// Whether a batch has times that are not whole microseconds. Clamped times do not count: they are
/// wrong by more than that.
pub(crate) fn has_sub_micros(batch: &Batch) -> bool {
    let is_finer = |(row, time): (usize, &i64)| time % MICRO != 0 && batch.wide_time(row).is_none();
    batch.timestamps().iter().enumerate().any(is_finer)
}

/// A time in whole microseconds, rounded down unless 64 bits of nanoseconds would not hold that.
fn whole_micros(nanos: i64) -> i64 {
    nanos.div_euclid(MICRO).max(i64::MIN / MICRO)
}

/// The leaves of these columns, in Parquet's order.
pub(crate) fn leaves(columns: &[ArrayRef]) -> Vec<ArrayRef> {
    let mut leaves = Vec::new();
    columns.iter().for_each(|column| add_leaves(column, &mut leaves));
    leaves
}

/// Calls a function with the types of the leaves in a column, in the same order.
pub(crate) fn visit_leaf_types(data_type: &DataType, visit: &mut impl FnMut(&DataType)) {
    match data_type {
        DataType::Struct(members) => {
            members.iter().for_each(|member| visit_leaf_types(member.data_type(), visit));
        }
        DataType::List(items)
        | DataType::LargeList(items)
        | DataType::FixedSizeList(items, _)
        | DataType::Map(items, _) => visit_leaf_types(items.data_type(), visit),
        leaf => visit(leaf),
    }
}

fn add_leaves(array: &ArrayRef, leaves: &mut Vec<ArrayRef>) {
    match array.data_type() {
        DataType::Struct(_) => {
            array.as_struct().columns().iter().for_each(|child| add_leaves(child, leaves));
        }
        DataType::List(_) => add_leaves(array.as_list::<i32>().values(), leaves),
        DataType::LargeList(_) => add_leaves(array.as_list::<i64>().values(), leaves),
        DataType::FixedSizeList(..) => add_leaves(array.as_fixed_size_list().values(), leaves),
        DataType::Map(..) => {
            let entries = array.as_map().entries();
            entries.columns().iter().for_each(|child| add_leaves(child, leaves));
        }
        _ => leaves.push(Arc::clone(array)),
    }
}
