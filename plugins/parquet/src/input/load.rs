//! Has the Parquet library read a footer, and chooses the types of columns.

use std::sync::Arc;

use arrow_schema::SchemaRef;
use parquet::arrow::ARROW_SCHEMA_META_KEY;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::file::metadata::ParquetMetaData;
use sluice_model::Error;

use super::bytes::TableBytes;
use super::{catch_panics, twelve_bytes, types};
use crate::fixed_lists::{has_fixed_lists, without_long_lists};

/// What the library has read of a footer: see [`ParquetInput`].
pub(super) struct LoadedColumns {
    pub(super) footer: ArrowReaderMetadata,
    pub(super) schema: SchemaRef,
    pub(super) arrow_fault: Option<String>,
    pub(super) int96_columns: Vec<usize>,
}

/// Reads a footer, and chooses the types with which its columns are read. The inner `Err` says what
/// is wrong with the file.
pub(super) fn load_columns(
    bytes: &TableBytes,
    mut reading: ArrowReaderOptions,
    words: &[&str],
) -> Result<Result<LoadedColumns, String>, Error> {
    let (mut footer, arrow_fault) = match load_footer(bytes, &reading)? {
        Ok(loaded) => loaded,
        Err(reason) => return Ok(Err(reason)),
    };
    let mut schema = without_long_lists(&types::readable(footer.schema()));
    let (columns, mut int96_columns) = (footer.parquet_schema(), Vec::new());
    let has_arrow_schema = arrow_fault.is_none() && has_arrow_schema(footer.metadata());
    if !has_arrow_schema {
        schema = twelve_bytes::with_interval_structs(&schema);
        int96_columns = twelve_bytes::int96_columns(columns);
    }
    match catch_panics(|| twelve_bytes::as_bytes(columns, has_arrow_schema)) {
        Ok(None) => {}
        Ok(Some(columns)) => {
            reading = reading.with_parquet_schema(columns);
            footer = match load_footer(bytes, &reading)? {
                Ok((footer, _)) => footer,
                Err(reason) => return Ok(Err(reason)),
            };
        }
        Err(reason) => return Ok(Err(reason)),
    }
    let shared = types::shared(&types::readable(footer.schema()), words);
    let metadata = Arc::clone(footer.metadata());
    let with_shared = reading.clone().with_schema(shared);
    let footer = match catch_panics(|| ArrowReaderMetadata::try_new(metadata, with_shared)) {
        Ok(footer) => footer,
        // Types that cannot be read as views are cast later.
        Err(_) if !footer.schema().fields().iter().any(|f| has_fixed_lists(f.data_type())) => {
            footer
        }
        Err(_) => match load_footer(bytes, &reading.with_skip_arrow_metadata(true))? {
            Ok((footer, _)) => footer,
            Err(reason) => return Ok(Err(reason)),
        },
    };
    Ok(Ok(LoadedColumns { footer, schema, arrow_fault, int96_columns }))
}

/// Whether the writer of a file stored an Arrow schema.
fn has_arrow_schema(metadata: &ParquetMetaData) -> bool {
    let mut entries = metadata.file_metadata().key_value_metadata().into_iter().flatten();
    entries.any(|entry| entry.key == ARROW_SCHEMA_META_KEY && entry.value.is_some())
}

/// The footer of a file, and why the Arrow schema that its writer stored cannot be read, if so: it
/// may be damaged, or have types that are not known here. The inner `Err` says what is wrong with
/// the file.
fn load_footer(
    bytes: &TableBytes,
    reading: &ArrowReaderOptions,
) -> Result<Result<(ArrowReaderMetadata, Option<String>), String>, Error> {
    let load = |options| {
        let footer = catch_panics(|| ArrowReaderMetadata::load(bytes, options));
        bytes.failure().check().map(|()| footer)
    };
    Ok(match load(reading.clone())? {
        Ok(footer) => Ok((footer, None)),
        Err(reason) => {
            let footer = load(reading.clone().with_skip_arrow_metadata(true))?;
            footer.map(|footer| (footer, Some(reason)))
        }
    })
}
