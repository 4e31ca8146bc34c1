//! A type of decoded messages and its form in protobuf.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{BinaryArray, RecordBatch, RecordBatchOptions};
use arrow_schema::{Schema, SchemaRef};
use sluice_model::cast::{cast, nullable};
use sluice_model::{Batch, Channel, EmbeddedSchema, Encoding, Error, MessageType, PayloadForm};

use super::{CHANNEL, COLUMNS, ENCODING, OriginalChannel, TYPE, column_types};
use crate::codec::{ProtobufForm, SCHEMA_ENCODING};
use crate::descriptor::{DescriptorNames, write_set};
use crate::plan::{compile_columns, restored_as, stored_as};
use crate::wire::PayloadFault;

/// Carries messages of one type as protobuf, and restores them.
#[derive(Debug)]
pub struct TypedLayer {
    form: ProtobufForm,
    /// The columns that messages are restored to.
    restored: SchemaRef,
    message: Arc<MessageType>,
    type_name: Arc<str>,
    schema: EmbeddedSchema,
    /// What it adds to the metadata of channels.
    metadata: BTreeMap<String, String>,
}

impl TypedLayer {
    /// The layer of rows of this type with these columns. `Err` says why protobuf cannot hold them.
    pub fn new(message: &Arc<MessageType>, columns: &SchemaRef) -> Result<Self, String> {
        let stored = stored_as(columns)?;
        let form = ProtobufForm::new(compile_columns(&stored)?);
        let names = DescriptorNames::from_type(&message.name, &message.key.to_string());
        let set = write_set(&names, form.plan());
        let schema = EmbeddedSchema { encoding: SCHEMA_ENCODING.into(), data: set.into() };
        let type_text = serde_json::to_string(&**message).map_err(|e| e.to_string())?;
        let restored = restored_as(columns)?;
        let columns = column_types::to_text(&restored)?;
        let metadata = BTreeMap::from([(TYPE.into(), type_text), (COLUMNS.into(), columns)]);
        let (message, type_name) = (Arc::clone(message), names.full().into());
        Ok(Self { form, restored, message, type_name, schema, metadata })
    }

    /// The layer that a channel's metadata describes; `None` if there is none. `Err` says why that
    /// cannot be restored.
    pub fn from_channel(channel: &Channel) -> Result<Option<Self>, String> {
        let Some(message) = channel.metadata.get(TYPE) else { return Ok(None) };
        let wrong = |key: &str, e: &dyn std::fmt::Display| format!("its metadata `{key}`: {e}");
        let message: MessageType = serde_json::from_str(message).map_err(|e| wrong(TYPE, &e))?;
        let columns = channel.metadata.get(COLUMNS).map_or("", String::as_str);
        let columns = column_types::from_text(columns).map_err(|e| wrong(COLUMNS, &e))?;
        Self::new(&Arc::new(message), &columns).map(Some)
    }

    /// The type of the messages it carries.
    pub fn message(&self) -> &Arc<MessageType> {
        &self.message
    }

    /// Whether rows of both layers are alike.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.message == other.message && self.restored == other.restored
    }

    /// The channel for the messages of `channel`.
    pub fn wrap(&self, channel: &Channel) -> Result<Channel, Error> {
        let original = serde_json::to_string(&OriginalChannel::from_channel(channel));
        let original = original.map_err(|e| Error::internal(e.to_string()))?;
        let encoding = channel.encoding.as_str().to_owned();
        let own = [(CHANNEL.to_owned(), original), (ENCODING.to_owned(), encoding)];
        Ok(Channel {
            encoding: Encoding::Protobuf,
            type_name: Some(Arc::clone(&self.type_name)),
            schema: Some(self.schema.clone()),
            metadata: self.metadata.clone().into_iter().chain(own).collect(),
            ..channel.clone()
        })
    }

    /// The messages of rows, null for those that protobuf cannot hold, with the reasons in `bad`.
    pub fn encode(
        &self,
        columns: &RecordBatch,
        bad: &mut Vec<(u32, PayloadFault)>,
    ) -> Result<BinaryArray, String> {
        let fits = vec![false; columns.num_rows()];
        self.form.write_rows(&stored_columns(columns, self.form.schema())?, &fits, bad)
    }

    /// The rows of messages: the events that could be decoded, and their columns.
    pub fn decode(
        &self,
        batch: &Batch,
        events: &[u32],
        bad: &mut Vec<(u32, PayloadFault)>,
    ) -> Result<(Vec<u32>, RecordBatch), Error> {
        let (events, stored) = self.form.decode(batch, events, bad, None)?;
        let columns = cast_columns(&stored, &self.restored).map_err(Error::internal)?;
        Ok((events, columns))
    }
}

/// Columns in the types that messages store. What is cast may be null everywhere: readers leave
/// nulls in what a null struct holds, and rows with a null in the wrong place are found when they
/// are written.
fn stored_columns(columns: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, String> {
    let fields = schema.fields().iter().zip(columns.columns()).map(|(field, column)| {
        if field.data_type() == column.data_type() {
            return Arc::clone(field);
        }
        Arc::new(field.as_ref().clone().with_data_type(nullable(field.data_type())))
    });
    let fields: Vec<_> = fields.collect();
    cast_columns(columns, &Arc::new(Schema::new(fields)))
}

/// Columns that hold the same in other types.
fn cast_columns(columns: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, String> {
    if columns.schema_ref() == schema {
        return Ok(columns.clone());
    }
    let fields = schema.fields().iter().zip(columns.columns());
    let cast = fields.map(|(field, column)| {
        cast(column, field.data_type()).map_err(|e| format!("column `{}`: {e}", field.name()))
    });
    let cast = cast.collect::<Result<Vec<_>, String>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(columns.num_rows()));
    let cast = RecordBatch::try_new_with_options(Arc::clone(schema), cast, &options);
    cast.map_err(|e| e.to_string())
}
