//! Names and types of the columns of tables and results.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit};
use sluice_io::escape::{column_of_field, field_of_column};

/// The columns that every event has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventColumn {
    Timestamp,
    Source,
    Channel,
    Sequence,
    Payload,
}

impl EventColumn {
    const ALL: [Self; 5] =
        [Self::Timestamp, Self::Source, Self::Channel, Self::Sequence, Self::Payload];

    /// The name in queries.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Timestamp => "timestamp",
            Self::Source => "source",
            Self::Channel => "channel",
            Self::Sequence => "sequence",
            Self::Payload => "payload",
        }
    }

    /// The column with this name.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|column| column.name() == name)
    }

    fn field(self) -> Field {
        let dictionary = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
        let (kind, is_nullable) = match self {
            Self::Timestamp => {
                (DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into())), false)
            }
            Self::Source | Self::Channel => (dictionary, false),
            Self::Sequence => (DataType::Int64, false),
            // Null for events that have only decoded fields.
            Self::Payload => (DataType::BinaryView, true),
        };
        Field::new(self.name(), kind, is_nullable)
    }
}

/// A hidden column: the index of the event in its batch from which a row is made.
pub(super) const EVENT_INDEX: &str = "__sluice_event";

/// The length of the payload: a column of the table `events`. As it follows from the payload, it
/// becomes no field of an event that has one.
pub(super) const PAYLOAD_SIZE: &str = "size";

/// The columns of the table `events`.
pub(super) fn events_schema() -> SchemaRef {
    let size = Field::new(PAYLOAD_SIZE, DataType::Int64, true);
    Arc::new(Schema::new(
        EventColumn::ALL.map(EventColumn::field).into_iter().chain([size]).collect::<Vec<_>>(),
    ))
}

/// The columns of a channel's table, for messages with these fields.
pub(super) fn channel_schema(fields: &Fields) -> SchemaRef {
    let event_columns =
        [EventColumn::Timestamp, EventColumn::Source, EventColumn::Channel, EventColumn::Sequence];
    let event_columns = event_columns.map(|column| Arc::new(column.field()));
    let names = EventColumn::ALL.map(EventColumn::name);
    let named = fields.iter().map(|field| {
        Arc::new(field.as_ref().clone().with_name(column_of_field(field.name(), &names)))
    });
    Arc::new(Schema::new(event_columns.into_iter().chain(named).collect::<Vec<_>>()))
}

/// Adds the column of the event index.
pub(super) fn with_event(schema: &Schema) -> SchemaRef {
    let event = Arc::new(Field::new(EVENT_INDEX, DataType::UInt32, false));
    Arc::new(Schema::new(schema.fields().iter().cloned().chain([event]).collect::<Vec<_>>()))
}

/// The field name of a column of results; an event column keeps its name.
pub(super) fn field_name(column: &str) -> &str {
    field_of_column(column, &EventColumn::ALL.map(EventColumn::name)).unwrap_or(column)
}

/// Whether rows can be sorted by this type.
pub(super) fn has_order(kind: &DataType) -> bool {
    match kind {
        DataType::Dictionary(_, values) => has_order(values),
        other => !other.is_nested() && !matches!(other, DataType::Null | DataType::Interval(_)),
    }
}

/// The field type for a result column of this type: views and dictionaries are unpacked. `Err` if
/// events cannot have the type.
pub(super) fn field_type(kind: &DataType) -> Result<DataType, String> {
    let items = |field: &Arc<Field>| -> Result<Arc<Field>, String> {
        Ok(Arc::new(Field::new(field.name(), field_type(field.data_type())?, field.is_nullable())))
    };
    Ok(match kind {
        DataType::Utf8View => DataType::Utf8,
        DataType::BinaryView => DataType::Binary,
        DataType::Dictionary(_, values) => field_type(values)?,
        DataType::List(field) | DataType::ListView(field) => DataType::List(items(field)?),
        DataType::LargeList(field) | DataType::LargeListView(field) => {
            DataType::LargeList(items(field)?)
        }
        DataType::FixedSizeList(field, len) => DataType::FixedSizeList(items(field)?, *len),
        DataType::Struct(fields) => {
            DataType::Struct(fields.iter().map(items).collect::<Result<Fields, _>>()?)
        }
        DataType::Null => return Err("is always null, and has no type".to_owned()),
        DataType::Interval(_)
        | DataType::Map(..)
        | DataType::Union(..)
        | DataType::RunEndEncoded(..) => {
            return Err(format!("has type {kind}, which events cannot have"));
        }
        other => other.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_and_dictionaries_are_unpacked() {
        let dictionary =
            DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8View));
        let list = DataType::new_list(dictionary.clone(), true);
        assert_eq!(field_type(&dictionary), Ok(DataType::Utf8));
        assert_eq!(field_type(&list), Ok(DataType::new_list(DataType::Utf8, true)));
        assert!(field_type(&DataType::new_list(DataType::Null, true)).is_err());
        assert!(has_order(&dictionary) && !has_order(&list));
    }
}
