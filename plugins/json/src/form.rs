//! Decodes and encodes payloads of one type.

use std::sync::Arc;

use arrow_array::builder::BinaryBuilder;
use arrow_array::{ArrayRef, BinaryArray, RecordBatch, UInt32Array};
use arrow_schema::{Schema, SchemaRef};
use serde_json::Value;
use sluice_model::cast::as_fields;
use sluice_model::raw::NOT_CANONICAL;
use sluice_model::{Batch, Error, PayloadForm};

use crate::columns::ColumnBuilder;
use crate::schema::JsonShape;
use crate::values;

const NOT_JSON: &str = "it is not JSON";
const UNFIT: &str = "a value does not fit into its field";
const NULL: &str = "a field is null";

/// The payloads of one JSON type.
pub(crate) struct JsonForm {
    shape: JsonShape,
    schema: SchemaRef,
}

impl JsonForm {
    pub(crate) fn new(shape: JsonShape) -> Self {
        let schema = Arc::new(Schema::new(shape.fields()));
        Self { shape, schema }
    }

    /// The properties of a row, each with its column; a value that is no object is one property.
    fn properties(&self) -> Vec<(&str, &JsonShape)> {
        match &self.shape {
            JsonShape::Object(all) => all.iter().map(|(name, shape)| (&**name, shape)).collect(),
            other => vec![("value", other)],
        }
    }

    fn value_of_row(&self, columns: &[ArrayRef], row: usize) -> Result<Value, &'static str> {
        match &self.shape {
            JsonShape::Object(properties) => Ok(values::object(properties, columns, row)?.into()),
            shape => {
                let value = columns.first().map(|column| values::value(shape, column, row));
                Ok(value.ok_or(NULL)??.unwrap_or_default())
            }
        }
    }
}

/// Whether a payload cannot be what we write, at its first look: it has spaces.
fn is_spaced(payload: &[u8]) -> bool {
    let key_end = payload.windows(2).position(|pair| pair == b"\":");
    let after_key = key_end.and_then(|at| payload.get(at + 2));
    payload.first().is_some_and(u8::is_ascii_whitespace)
        || payload.last().is_some_and(u8::is_ascii_whitespace)
        || after_key.is_some_and(u8::is_ascii_whitespace)
}

impl PayloadForm for JsonForm {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn decode(
        &self,
        batch: &Batch,
        events: &[u32],
        bad: &mut Vec<(u32, &'static str)>,
        raw: Option<&mut BinaryBuilder>,
    ) -> Result<(Vec<u32>, RecordBatch), Error> {
        let properties = self.properties();
        let is_object = matches!(self.shape, JsonShape::Object(_));
        let mut builders: Vec<_> =
            properties.iter().map(|(_, shape)| ColumnBuilder::new(shape)).collect();
        let mut decoded = Vec::with_capacity(events.len());
        for event in events {
            let payload = batch.payload(*event as usize);
            if raw.is_none() && is_spaced(payload) {
                bad.push((*event, NOT_CANONICAL));
                continue;
            }
            let value = match serde_json::from_slice::<Value>(payload) {
                Ok(value) => value,
                Err(_) => {
                    bad.push((*event, NOT_JSON));
                    continue;
                }
            };
            // Null is no object, although a property may be null.
            let checked = if is_object && value.is_null() {
                Err(NULL)
            } else {
                ColumnBuilder::check(&self.shape, &value)
            };
            if let Err(why) = checked {
                bad.push((*event, why));
                continue;
            }
            for ((name, _), builder) in properties.iter().zip(&mut builders) {
                let value = if is_object { value.get(name) } else { Some(&value) };
                builder.append(value).map_err(Error::invalid)?;
            }
            decoded.push(*event);
        }
        let columns = builders.into_iter().zip(self.schema.fields());
        let columns = columns.map(|(builder, field)| builder.finish(field)).collect();
        let columns = RecordBatch::try_new(Arc::clone(&self.schema), columns)
            .map_err(|e| Error::internal(e.to_string()))?;
        if raw.is_some() {
            return Ok((decoded, columns));
        }
        self.canonical_only(batch, (decoded, columns), bad)
    }

    fn encode(
        &self,
        columns: &RecordBatch,
        bad: &mut Vec<(u32, &'static str)>,
        _: Option<&BinaryArray>,
    ) -> Result<BinaryArray, String> {
        let mut unfit = vec![false; columns.num_rows()];
        let each = as_fields(columns, self.schema.fields(), &mut unfit)?;
        let mut payloads = BinaryBuilder::new();
        for (row, is_unfit) in unfit.into_iter().enumerate() {
            let value = if is_unfit { Err(UNFIT) } else { self.value_of_row(&each, row) };
            match value {
                Ok(value) => payloads.append_value(value.to_string()),
                Err(why) => {
                    bad.push((row as u32, why));
                    payloads.append_null();
                }
            }
        }
        Ok(payloads.finish())
    }
}

impl JsonForm {
    /// Leaves out the rows whose columns would be encoded as other bytes.
    fn canonical_only(
        &self,
        batch: &Batch,
        (events, columns): (Vec<u32>, RecordBatch),
        bad: &mut Vec<(u32, &'static str)>,
    ) -> Result<(Vec<u32>, RecordBatch), Error> {
        let is_same = |(row, event): (usize, &u32)| {
            let value = self.value_of_row(columns.columns(), row);
            value.is_ok_and(|value| value.to_string().as_bytes() == batch.payload(*event as usize))
        };
        let same: Vec<bool> = events.iter().enumerate().map(is_same).collect();
        if !same.contains(&false) {
            return Ok((events, columns));
        }
        let (mut kept, mut rows) = (Vec::new(), Vec::new());
        for (row, event) in events.into_iter().enumerate() {
            if same[row] {
                kept.push(event);
                rows.push(row as u32);
            } else {
                bad.push((event, NOT_CANONICAL));
            }
        }
        let columns = arrow_select::take::take_record_batch(&columns, &UInt32Array::from(rows));
        Ok((kept, columns.map_err(|e| Error::internal(e.to_string()))?))
    }
}
