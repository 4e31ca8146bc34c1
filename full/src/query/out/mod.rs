//! Writes the rows of a query to stdout or a file. A file appears only when complete.

mod binary;
mod cells;
mod csv;
mod explain;
mod json;
mod plain;
mod table;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::{Schema, SchemaRef};
use sluice::extension::{Failure, extension};
use sluice_model::{Error, OutputFile, Outputs, Overwrite};

use super::args::{QueryArgs, RowFormat};
use json::{JsonLayout, JsonWriter};

/// Metadata of a result file.
pub(super) struct ResultMetadata<'a> {
    /// The query.
    pub(super) query: &'a str,
    /// The inputs of the query, as JSON.
    pub(super) inputs: &'a str,
}

/// Where and how to write rows.
#[derive(Clone, Debug)]
pub(super) struct OutputTarget {
    path: PathBuf,
    format: RowFormat,
    overwrite: Overwrite,
    limit: Option<u64>,
    /// Printed before a table, to separate it from the one before.
    separator: &'static str,
    /// Files that must not be overwritten.
    inputs: Vec<PathBuf>,
}

/// An output being written.
pub(super) struct RowOutput {
    outputs: Arc<Outputs>,
    rows: Box<dyn RowWriter>,
    schema: SchemaRef,
    count: u64,
}

/// What was written.
#[derive(Debug, Default)]
pub(super) struct OutputSummary {
    /// The number of rows.
    pub(super) rows: u64,
    /// Notes for the user.
    pub(super) notes: Vec<String>,
}

/// Writes rows in one format.
trait RowWriter {
    fn append(&mut self, rows: &RecordBatch) -> Result<(), Error>;

    /// Completes the output; returns notes for the user.
    fn finish(self: Box<Self>, count: u64) -> Result<Vec<String>, Error>;
}

impl OutputTarget {
    /// The target in the arguments. `inputs` are the files of the logs.
    pub(super) fn from_args(args: &QueryArgs, inputs: Vec<PathBuf>) -> Result<Self, Failure> {
        let path = args.to.clone().unwrap_or_else(|| "-".to_owned());
        let format = row_format(&path, args.format)?;
        if args.limit_rows.is_some() && format != RowFormat::Table {
            let what = "--limit-rows applies only to the format `table`; for others, use LIMIT in \
                        the query";
            return Err(Failure::Usage(what.into()));
        }
        let overwrite = if args.overwrite { Overwrite::Replace } else { Overwrite::Refuse };
        Ok(Self {
            path: path.into(),
            format,
            overwrite,
            limit: args.limit_rows,
            separator: "",
            inputs,
        })
    }

    /// The same target with another path, whose extension sets the format.
    pub(super) fn with_path(&self, path: &str) -> Result<Self, Failure> {
        Ok(Self { path: path.into(), format: row_format(path, None)?, ..self.clone() })
    }

    /// The same target with another format.
    pub(super) fn with_format(&self, format: RowFormat) -> Self {
        Self { format, ..self.clone() }
    }

    /// The same target after other rows: tables are separated.
    pub(super) fn after_others(&self) -> Self {
        let separator = if self.is_file() { "" } else { "\n" };
        Self { separator, ..self.clone() }
    }

    pub(super) fn is_file(&self) -> bool {
        self.path != Path::new("-")
    }

    /// Whether a second result would make the first unreadable: that of a file replaces it, and
    /// readers of these formats see one of several results, or none.
    pub(super) fn takes_one_result(&self) -> bool {
        let has_end = [RowFormat::Json, RowFormat::Parquet, RowFormat::Arrow];
        self.is_file() || has_end.contains(&self.format)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn format(&self) -> RowFormat {
        self.format
    }

    /// Refuses a file that must not be written, before anything is read.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let outputs = Outputs::new(self.overwrite, false, &self.inputs);
        Ok(outputs.check_target(&self.path)?)
    }

    /// Opens the output for rows of these columns.
    pub(super) fn open(
        &self,
        schema: &SchemaRef,
        about: &ResultMetadata<'_>,
    ) -> Result<RowOutput, Error> {
        let outputs = Arc::new(Outputs::new(self.overwrite, false, &self.inputs));
        let file = match self.format {
            RowFormat::Parquet | RowFormat::Arrow => outputs.create_as_is(&self.path)?,
            _ => outputs.create(&self.path)?,
        };
        let schema = with_unique_names(schema);
        let rows = self.rows(file, &schema, about)?;
        Ok(RowOutput { outputs, rows, schema, count: 0 })
    }

    fn rows(
        &self,
        file: OutputFile,
        schema: &SchemaRef,
        about: &ResultMetadata<'_>,
    ) -> Result<Box<dyn RowWriter>, Error> {
        Ok(match self.format {
            RowFormat::Table if explain::is_plan(schema) => {
                Box::new(explain::PlanWriter::new(file, self.separator))
            }
            RowFormat::Table => {
                Box::new(table::TableWriter::new(file, schema, self.limit, self.separator))
            }
            RowFormat::Csv => Box::new(csv::CsvWriter::new(file, schema)?),
            RowFormat::Json => Box::new(JsonWriter::new(file, JsonLayout::Array)),
            RowFormat::Jsonl => Box::new(JsonWriter::new(file, JsonLayout::Lines)),
            RowFormat::Parquet => Box::new(binary::ParquetWriter::new(file, schema, about)?),
            RowFormat::Arrow => Box::new(binary::IpcWriter::new(file, schema, about)?),
        })
    }
}

impl RowOutput {
    /// Writes rows.
    pub(super) fn append(&mut self, rows: &RecordBatch) -> Result<(), Error> {
        let columns: Vec<ArrayRef> = rows.columns().to_vec();
        let fields = self.schema.fields().iter().zip(rows.schema_ref().fields());
        // Results may have nulls in columns that are declared without.
        let fields = fields.map(|(ours, theirs)| {
            let ours = ours.as_ref().clone().with_data_type(theirs.data_type().clone());
            ours.with_nullable(true)
        });
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let rows = RecordBatch::try_new_with_options(
            schema,
            columns,
            &RecordBatchOptions::new().with_row_count(Some(rows.num_rows())),
        );
        let rows = rows.map_err(|e| Error::internal(e.to_string()))?;
        self.count += rows.num_rows() as u64;
        self.rows.append(&rows)
    }

    /// Publishes the output.
    pub(super) fn finish(self) -> Result<OutputSummary, Error> {
        let Self { outputs, rows, count, .. } = self;
        let notes = rows.finish(count)?;
        // A single file has no manifest.
        outputs.publish(|_, _| Ok(String::new()))?;
        Ok(OutputSummary { rows: count, notes })
    }
}

/// The format, given or from the extension of the path.
fn row_format(path: &str, given: Option<RowFormat>) -> Result<RowFormat, Failure> {
    let (extension, packed) = extension(Path::new(path));
    let from_extension = match extension.as_deref() {
        _ if path == "-" => Some(RowFormat::Table),
        Some("parquet") => Some(RowFormat::Parquet),
        Some("arrow") => Some(RowFormat::Arrow),
        Some("csv") => Some(RowFormat::Csv),
        Some("json") => Some(RowFormat::Json),
        Some("jsonl" | "ndjson") => Some(RowFormat::Jsonl),
        _ => None,
    };
    let Some(format) = given.or(from_extension) else {
        return Err(Failure::Usage(format!(
            "unknown format of `{path}`: expected .parquet, .arrow, .csv, .jsonl or .json, or \
             --format"
        )));
    };
    if packed && matches!(format, RowFormat::Parquet | RowFormat::Arrow) {
        let what = "Parquet and Arrow files are compressed inside: leave out .zst";
        return Err(Failure::Usage(format!("{what}: {path}")));
    }
    Ok(format)
}

/// Makes column names unique: a second `x` becomes `x_2`.
fn with_unique_names(schema: &SchemaRef) -> SchemaRef {
    let mut used: HashSet<String> =
        schema.fields().iter().map(|field| field.name().clone()).collect();
    let mut seen = HashSet::new();
    let fields = schema.fields().iter().map(|field| {
        let mut name = field.name().clone();
        let mut number = 2_u64;
        while !seen.insert(name.clone()) {
            name = format!("{}_{number}", field.name());
            number += 1;
            while used.contains(&name) {
                name = format!("{}_{number}", field.name());
                number += 1;
            }
        }
        used.insert(name.clone());
        field.as_ref().clone().with_name(name).with_nullable(true)
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

#[cfg(test)]
mod tests;
