//! Writes rows as Parquet and Arrow IPC files, with types that common readers support.

use std::io::{self, Write};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{
    Array, ArrayRef, FixedSizeListArray, GenericListArray, MapArray, OffsetSizeTrait, RecordBatch,
    RecordBatchOptions, StructArray,
};
use arrow_ipc::writer::FileWriter;
use arrow_schema::{
    ArrowError, DataType, Field, FieldRef, Fields, IntervalUnit, Schema, SchemaRef, TimeUnit,
};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use sluice_model::cast::{cast_exact, from_first_value};
use sluice_model::{Error, OutputFile};

use super::{ResultMetadata, RowWriter, plain};

/// The most memory of a row group.
const MAX_ROW_GROUP: usize = 64 << 20;

pub(super) struct ParquetWriter {
    writer: ArrowWriter<OutputBytes>,
    schema: SchemaRef,
}

pub(super) struct IpcWriter {
    writer: FileWriter<OutputBytes>,
    schema: SchemaRef,
}

/// An output as a `Write`. Keeps its error, as writers only pass on the text.
struct OutputBytes {
    /// `None` once complete.
    file: Option<OutputFile>,
    failed: Option<Error>,
}

impl Write for OutputBytes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.file.as_mut().map(|file| file.write_binary(bytes)) {
            None => Err(io::Error::other("write after the end")),
            Some(Ok(())) => Ok(bytes.len()),
            Some(Err(error)) => {
                let message = io::Error::other(error.to_string());
                self.failed = Some(error);
                Err(message)
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl OutputBytes {
    fn new(file: OutputFile) -> Self {
        Self { file: Some(file), failed: None }
    }

    fn finish(&mut self, count: u64) -> Result<(), Error> {
        self.file.take().map_or(Ok(()), |file| file.finish(count))
    }

    /// The error of the output, or else that of the writer.
    fn error(&mut self, message: impl std::fmt::Display) -> Error {
        self.failed.take().unwrap_or_else(|| Error::invalid(message.to_string()))
    }
}

impl ParquetWriter {
    pub(super) fn new(
        file: OutputFile,
        schema: &SchemaRef,
        about: &ResultMetadata<'_>,
    ) -> Result<Self, Error> {
        let schema = storable(schema);
        let level = ZstdLevel::try_new(3).map_err(|e| Error::internal(e.to_string()))?;
        let entries = about.entries().map(|(key, value)| KeyValue::new(key.to_owned(), value));
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(level))
            .set_created_by(format!("sluice-query {}", env!("CARGO_PKG_VERSION")))
            .set_key_value_metadata(Some(entries.to_vec()))
            .build();
        let writer =
            ArrowWriter::try_new(OutputBytes::new(file), Arc::clone(&schema), Some(properties));
        let writer = writer.map_err(|e| {
            Error::invalid(format!("these columns cannot be written as Parquet: {e}; cast them"))
        })?;
        Ok(Self { writer, schema })
    }
}

impl RowWriter for ParquetWriter {
    fn append(&mut self, rows: &RecordBatch) -> Result<(), Error> {
        let rows = stored(rows, &self.schema)?;
        let mut written = self.writer.write(&rows);
        if written.is_ok() && self.writer.in_progress_size() >= MAX_ROW_GROUP {
            written = self.writer.flush();
        }
        written.map_err(|e| self.writer.inner_mut().error(e))
    }

    fn finish(mut self: Box<Self>, count: u64) -> Result<Vec<String>, Error> {
        if let Err(error) = self.writer.finish() {
            return Err(self.writer.inner_mut().error(error));
        }
        self.writer.inner_mut().finish(count)?;
        Ok(Vec::new())
    }
}

impl IpcWriter {
    pub(super) fn new(
        file: OutputFile,
        schema: &SchemaRef,
        about: &ResultMetadata<'_>,
    ) -> Result<Self, Error> {
        let schema = storable(schema);
        // May write already: terminals refuse binary output.
        let mut writer =
            FileWriter::try_new(OutputBytes::new(file), &schema).map_err(|e| refused(&e))?;
        for (key, value) in about.entries() {
            writer.write_metadata(key, value);
        }
        Ok(Self { writer, schema })
    }
}

/// The writer has dropped the output, so only its text of the error is left.
fn refused(error: &ArrowError) -> Error {
    match error {
        ArrowError::IoError(message, _) => Error::refused(message.clone()),
        other => {
            Error::invalid(format!("these columns cannot be written as Arrow: {other}; cast them"))
        }
    }
}

impl RowWriter for IpcWriter {
    fn append(&mut self, rows: &RecordBatch) -> Result<(), Error> {
        let rows = stored(rows, &self.schema)?;
        let written = self.writer.write(&rows);
        written.map_err(|e| self.writer.get_mut().error(e))
    }

    fn finish(mut self: Box<Self>, count: u64) -> Result<Vec<String>, Error> {
        if let Err(error) = self.writer.finish() {
            return Err(self.writer.get_mut().error(error));
        }
        self.writer.get_mut().finish(count)?;
        Ok(Vec::new())
    }
}

impl ResultMetadata<'_> {
    fn entries(&self) -> [(&'static str, String); 3] {
        [
            ("sluice.version", env!("CARGO_PKG_VERSION").to_owned()),
            ("sluice.query", self.query.to_owned()),
            ("sluice.inputs", self.inputs.to_owned()),
        ]
    }
}

/// The same columns in widely supported types.
fn storable(schema: &SchemaRef) -> SchemaRef {
    let fields: Vec<FieldRef> = schema.fields().iter().map(stored_field).collect();
    Arc::new(Schema::new(fields))
}

fn stored_field(field: &FieldRef) -> FieldRef {
    Arc::new(Field::new(field.name(), stored_type(field.data_type()), true))
}

/// Unpacks views and dictionaries, which some readers do not support. Parquet has no times in
/// seconds: they would be numbers.
fn stored_type(kind: &DataType) -> DataType {
    match kind {
        DataType::Timestamp(TimeUnit::Second, zone) => {
            DataType::Timestamp(TimeUnit::Millisecond, zone.clone())
        }
        DataType::Time32(TimeUnit::Second) => DataType::Time32(TimeUnit::Millisecond),
        DataType::Date64 => DataType::Date32,
        DataType::Utf8View => DataType::Utf8,
        DataType::BinaryView => DataType::Binary,
        DataType::Float16 => DataType::Float32,
        DataType::Dictionary(_, value) => stored_type(value),
        DataType::RunEndEncoded(_, value) => stored_type(value.data_type()),
        DataType::Interval(IntervalUnit::MonthDayNano) | DataType::Union(_, _) => DataType::Utf8,
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(stored_field).collect()),
        DataType::List(field) | DataType::ListView(field) => DataType::List(stored_field(field)),
        DataType::LargeList(field) | DataType::LargeListView(field) => {
            DataType::LargeList(stored_field(field))
        }
        DataType::FixedSizeList(field, size) => DataType::FixedSizeList(stored_field(field), *size),
        DataType::Map(entries, is_sorted) => {
            let DataType::Struct(members) = entries.data_type() else { return kind.clone() };
            // Entries and keys are never null.
            let member = |field: &FieldRef| {
                let stored = stored_type(field.data_type());
                Arc::new(Field::new(field.name(), stored, field.is_nullable()))
            };
            let members = DataType::Struct(members.iter().map(member).collect());
            DataType::Map(Arc::new(Field::new(entries.name(), members, false)), *is_sorted)
        }
        other => other.clone(),
    }
}

fn stored(rows: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, Error> {
    let columns = rows.columns().iter().zip(schema.fields());
    let columns = columns.map(|(column, field)| stored_column(column, field.data_type()));
    let columns: Vec<ArrayRef> = columns.collect::<Result<_, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
        .map_err(|e| Error::internal(e.to_string()))
}

/// Converts a column, and what is in it: Arrow casts not every type inside of others.
///
/// Recursion is bounded: the types of queries and messages have limited depth.
fn stored_column(column: &ArrayRef, kind: &DataType) -> Result<ArrayRef, Error> {
    let invalid = |error: ArrowError| Error::invalid(error.to_string());
    let unpacked = |to: &DataType| stored_column(&cast_exact(column, to).map_err(invalid)?, kind);
    Ok(match (column.data_type(), kind) {
        (same, kind) if same == kind => Arc::clone(column),
        (DataType::Interval(_) | DataType::Union(_, _), _) => plain::text(column)?,
        (DataType::Dictionary(_, value), _) => unpacked(value)?,
        (DataType::RunEndEncoded(_, value), _) => unpacked(value.data_type())?,
        (DataType::ListView(item), _) => unpacked(&DataType::List(Arc::clone(item)))?,
        (DataType::LargeListView(item), _) => unpacked(&DataType::LargeList(Arc::clone(item)))?,
        (DataType::List(_), DataType::List(item)) => list::<i32>(column, item)?,
        (DataType::LargeList(_), DataType::LargeList(item)) => list::<i64>(column, item)?,
        (DataType::FixedSizeList(..), DataType::FixedSizeList(item, size)) => {
            let lists = column.as_fixed_size_list();
            let values = stored_column(lists.values(), item.data_type())?;
            let (nulls, len) = (lists.nulls().cloned(), lists.len());
            let item = Arc::clone(item);
            Arc::new(
                FixedSizeListArray::try_new_with_length(item, *size, values, nulls, len)
                    .map_err(invalid)?,
            )
        }
        (DataType::Struct(_), DataType::Struct(fields)) => {
            Arc::new(members(column.as_struct(), fields)?)
        }
        (DataType::Map(..), DataType::Map(entries, is_sorted)) => {
            let DataType::Struct(fields) = entries.data_type() else {
                return cast_exact(column, kind).map_err(invalid);
            };
            let map = column.as_map();
            let stored = members(map.entries(), fields)?;
            let (offsets, nulls) = (map.offsets().clone(), map.nulls().cloned());
            let entries = Arc::clone(entries);
            Arc::new(
                MapArray::try_new(entries, offsets, stored, nulls, *is_sorted).map_err(invalid)?,
            )
        }
        (DataType::Date64, DataType::Date32) => {
            let days = cast_exact(column, kind).map_err(invalid)?;
            if *cast_exact(&days, &DataType::Date64).map_err(invalid)? != **column {
                let what = "a date has a time of day, which files do not keep: cast it to \
                            a timestamp";
                return Err(Error::invalid(what));
            }
            days
        }
        _ => cast_exact(column, kind).map_err(invalid)?,
    })
}

fn list<O: OffsetSizeTrait>(column: &ArrayRef, item: &FieldRef) -> Result<ArrayRef, Error> {
    // Values of other rows may have no counterpart.
    let column = from_first_value(column);
    let lists = column.as_list::<O>();
    let values = stored_column(lists.values(), item.data_type())?;
    let (offsets, nulls) = (lists.offsets().clone(), lists.nulls().cloned());
    let stored = GenericListArray::<O>::try_new(Arc::clone(item), offsets, values, nulls);
    Ok(Arc::new(stored.map_err(|error| Error::invalid(error.to_string()))?))
}

fn members(column: &StructArray, fields: &Fields) -> Result<StructArray, Error> {
    let columns = column.columns().iter().zip(fields);
    let columns = columns.map(|(column, field)| stored_column(column, field.data_type()));
    let columns = columns.collect::<Result<_, _>>()?;
    let nulls = column.nulls().cloned();
    StructArray::try_new_with_length(fields.clone(), columns, nulls, column.len())
        .map_err(|error| Error::invalid(error.to_string()))
}
