//! Where the rows of a query go: onto standard output or into a file, in the form that was asked for. A file
//! appears whole, when all rows are there. Knows no query.

mod binary;
mod cells;
mod csv;
mod jsonl;
mod plain;
mod plans;
mod table;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::{Schema, SchemaRef};
use sluice::extension::{Failure, extension};
use sluice_core::{Error, OutputFile, Outputs, Overwrite};

use super::args::{Form, QueryArgs};

/// What is said of a table of rows in the file that holds it.
pub(super) struct About<'a> {
    /// The query.
    pub(super) query: &'a str,
    /// The logs it was asked of, as JSON.
    pub(super) inputs: &'a str,
}

/// Where rows are to go.
#[derive(Clone, Debug)]
pub(super) struct To {
    path: PathBuf,
    form: Form,
    overwrite: Overwrite,
    limit: Option<u64>,
    /// What stands in front of a table: what sets it off from the one before.
    front: &'static str,
    /// No file of these is written over.
    inputs: Vec<PathBuf>,
}

/// Rows on their way.
pub(super) struct Out {
    outputs: Arc<Outputs>,
    rows: Box<dyn Rows>,
    schema: SchemaRef,
    count: u64,
}

/// What became of them.
#[derive(Debug, Default)]
pub(super) struct Written {
    /// How many there were.
    pub(super) rows: u64,
    /// What is to be said of how they are shown.
    pub(super) notes: Vec<String>,
}

/// Writes rows in one form.
trait Rows {
    fn append(&mut self, rows: &RecordBatch) -> Result<(), Error>;

    /// Completes the output; gives what is to be said of it.
    fn finish(self: Box<Self>, count: u64) -> Result<Vec<String>, Error>;
}

impl To {
    /// What the arguments say, of logs at these paths.
    pub(super) fn of(args: &QueryArgs, inputs: Vec<PathBuf>) -> Result<Self, Failure> {
        let path = args.to.clone().unwrap_or_else(|| "-".to_owned());
        let form = form(&path, args.format)?;
        if args.limit_rows.is_some() && form != Form::Table {
            let what =
                "--limit-rows is for tables that are shown; a LIMIT in the query is for all forms";
            return Err(Failure::WrongUse(what.into()));
        }
        let overwrite = if args.overwrite { Overwrite::Replace } else { Overwrite::Refuse };
        Ok(Self { path: path.into(), form, overwrite, limit: args.limit_rows, front: "", inputs })
    }

    /// The same, but into another place, in the form that its name asks for.
    pub(super) fn elsewhere(&self, path: &str) -> Result<Self, Failure> {
        Ok(Self { path: path.into(), form: form(path, None)?, ..self.clone() })
    }

    /// The same, in another form.
    pub(super) fn with(&self, form: Form) -> Self {
        Self { form, ..self.clone() }
    }

    /// The same, behind other rows: tables are set off from each other.
    pub(super) fn behind_others(&self) -> Self {
        let front = if self.is_file() { "" } else { "\n" };
        Self { front, ..self.clone() }
    }

    /// Whether rows go into a file, which holds those of one query.
    pub(super) fn is_file(&self) -> bool {
        self.path != Path::new("-")
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn form(&self) -> Form {
        self.form
    }

    /// Refuses a file that must not be written, before anything is read.
    pub(super) fn judge(&self) -> Result<(), Failure> {
        let outputs = Outputs::new(self.overwrite, false, &self.inputs);
        Ok(outputs.judge(&self.path)?)
    }

    /// Opens the output for rows of these columns.
    pub(super) fn open(&self, schema: &SchemaRef, about: &About<'_>) -> Result<Out, Error> {
        let outputs = Arc::new(Outputs::new(self.overwrite, false, &self.inputs));
        let file = match self.form {
            Form::Parquet | Form::Arrow => outputs.create_as_is(&self.path)?,
            Form::Table | Form::Csv | Form::Jsonl => outputs.create(&self.path)?,
        };
        let schema = distinct(schema);
        let rows = self.rows(file, &schema, about)?;
        Ok(Out { outputs, rows, schema, count: 0 })
    }

    fn rows(
        &self,
        file: OutputFile,
        schema: &SchemaRef,
        about: &About<'_>,
    ) -> Result<Box<dyn Rows>, Error> {
        Ok(match self.form {
            Form::Table if plans::are(schema) => Box::new(plans::Plans::new(file, self.front)),
            Form::Table => Box::new(table::Table::new(file, schema, self.limit, self.front)),
            Form::Csv => Box::new(csv::Csv::new(file, schema)?),
            Form::Jsonl => Box::new(jsonl::Jsonl::new(file)),
            Form::Parquet => Box::new(binary::Parquet::new(file, schema, about)?),
            Form::Arrow => Box::new(binary::Arrow::new(file, schema, about)?),
        })
    }
}

impl Out {
    /// Takes rows.
    pub(super) fn append(&mut self, rows: &RecordBatch) -> Result<(), Error> {
        let columns: Vec<ArrayRef> = rows.columns().to_vec();
        let fields = self.schema.fields().iter().zip(rows.schema_ref().fields());
        // What a query gives may be null where it said it would not be.
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
        let rows = rows.map_err(|e| Error::broken(e.to_string()))?;
        self.count += rows.num_rows() as u64;
        self.rows.append(&rows)
    }

    /// Gives the output its name.
    pub(super) fn finish(self) -> Result<Written, Error> {
        let Self { outputs, rows, count, .. } = self;
        let notes = rows.finish(count)?;
        // There is no folder that would be described.
        outputs.publish(|_, _| Ok(String::new()))?;
        Ok(Written { rows: count, notes })
    }
}

/// The form that rows have at this path, unless one was asked for.
fn form(path: &str, asked: Option<Form>) -> Result<Form, Failure> {
    let (extension, packed) = extension(Path::new(path));
    let told = match extension.as_deref() {
        _ if path == "-" => Some(Form::Table),
        Some("parquet") => Some(Form::Parquet),
        Some("arrow") => Some(Form::Arrow),
        Some("csv") => Some(Form::Csv),
        Some("jsonl" | "json" | "ndjson") => Some(Form::Jsonl),
        _ => None,
    };
    let Some(form) = asked.or(told) else {
        return Err(Failure::WrongUse(format!(
            "the extension of `{path}` tells no form of rows: .parquet, .arrow, .csv, .jsonl and .json do; or \
             say --format"
        )));
    };
    if packed && matches!(form, Form::Parquet | Form::Arrow) {
        let what = "Parquet and Arrow files are not compressed as a whole: leave out .zst";
        return Err(Failure::WrongUse(format!("{what}: {path}")));
    }
    Ok(form)
}

/// The same columns, each with a name of its own: a second `x` becomes `x_2`.
fn distinct(schema: &SchemaRef) -> SchemaRef {
    let mut taken: HashSet<String> =
        schema.fields().iter().map(|field| field.name().clone()).collect();
    let mut seen = HashSet::new();
    let fields = schema.fields().iter().map(|field| {
        let mut name = field.name().clone();
        let mut number = 2_u64;
        while !seen.insert(name.clone()) {
            name = format!("{}_{number}", field.name());
            number += 1;
            while taken.contains(&name) {
                name = format!("{}_{number}", field.name());
                number += 1;
            }
        }
        taken.insert(name.clone());
        field.as_ref().clone().with_name(name).with_nullable(true)
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

#[cfg(test)]
mod tests;
