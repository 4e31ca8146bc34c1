//! The texts of tasks: numbered as they appear, and kept in `tasks.parquet`, whose rows are in the
//! order of their numbers. Knows no episode.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;
use serde_json::json;
use sluice_model::{Error, OutputFile};

use crate::feature::{TASK, TASK_INDEX};
use crate::parquet_io::{CREATED_BY, TableWriter, open_table};

/// An index without a name, as pandas writes it.
const UNNAMED: &str = "__index_level_0__";

/// The columns that are read.
const COLUMNS: [&str; 3] = [TASK_INDEX, TASK, UNNAMED];

/// The most bytes of all texts, which are kept in memory.
const MAX_BYTES: usize = 64 << 20;

/// The texts of tasks by their numbers.
#[derive(Debug, Default)]
pub(crate) struct TaskTable {
    texts: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, i64>,
    bytes: usize,
}

impl TaskTable {
    /// Reads the table of a dataset.
    pub(crate) fn read(path: &Path) -> Result<Self, Error> {
        let wrong = |what: String| {
            Error::malformed(path.to_string_lossy(), 0, format!("not a table of tasks: {what}"))
        };
        let (input, mut tasks) = (open_table(path, "this table of tasks")?, Self::default());
        let read = input.for_each_slice(&COLUMNS, MAX_BYTES / 64, |rows| tasks.add_rows(rows))?;
        read.map_err(wrong)?;
        Ok(tasks)
    }

    /// Leaves out all but the first tasks.
    pub(crate) fn truncate(&mut self, count: usize) {
        for text in self.texts.drain(count.min(self.texts.len())..) {
            self.bytes -= text.len();
            self.numbers.remove(&text);
        }
    }

    fn add_rows(&mut self, rows: &RecordBatch) -> Result<(), String> {
        let column = |name: &str| {
            let found = rows.column_by_name(name);
            let found =
                found.or_else(|| (name == TASK).then(|| rows.column_by_name(UNNAMED)).flatten());
            found.ok_or_else(|| format!("it has no column `{name}`"))
        };
        let numbers = column(TASK_INDEX)?;
        let numbers = numbers.as_primitive_opt::<arrow_array::types::Int64Type>();
        let numbers = numbers.ok_or_else(|| format!("`{TASK_INDEX}` is not int64"))?;
        let texts = column(TASK)?;
        for (row, number) in numbers.iter().enumerate() {
            if number != Some(self.texts.len() as i64) {
                let what = "rows are not in the order of `task_index`";
                return Err(format!("{what}: row {} has {number:?}", self.texts.len()));
            }
            let text = text_at(texts, row).ok_or_else(|| format!("row {row} has no text"))?;
            let before = self.texts.len();
            if self.number(text).map_err(|e| e.to_string())? != before as i64 {
                return Err(format!("the task `{text}` occurs twice"));
            }
        }
        Ok(())
    }

    /// The number of a text, which is new if it has none yet.
    pub(crate) fn number(&mut self, text: &str) -> Result<i64, Error> {
        if let Some(number) = self.numbers.get(text) {
            return Ok(*number);
        }
        self.bytes += text.len();
        if self.bytes > MAX_BYTES {
            return Err(Error::invalid(format!(
                "the texts of tasks have more than {MAX_BYTES} bytes: `task` must name what an \
                 episode is about, not change with every row"
            )));
        }
        let (text, number): (Arc<str>, _) = (text.into(), self.texts.len() as i64);
        self.texts.push(Arc::clone(&text));
        self.numbers.insert(text, number);
        Ok(number)
    }

    /// The text of a number.
    pub(crate) fn text(&self, number: i64) -> Option<&Arc<str>> {
        self.texts.get(usize::try_from(number).ok()?)
    }

    pub(crate) fn len(&self) -> usize {
        self.texts.len()
    }

    /// Writes the table.
    pub(crate) fn write(&self, file: OutputFile) -> Result<(), Error> {
        // In the Arrow schema: pyarrow looks nowhere else if a file has one.
        let schema = Arc::new(
            Schema::new(vec![
                Field::new(TASK_INDEX, DataType::Int64, true),
                Field::new(TASK, DataType::Utf8, true),
            ])
            .with_metadata(HashMap::from([("pandas".to_owned(), pandas_metadata())])),
        );
        let numbers: Int64Array = (0..self.texts.len() as i64).collect::<Vec<_>>().into();
        let texts = StringArray::from_iter_values(&self.texts);
        let columns: Vec<ArrayRef> = vec![Arc::new(numbers), Arc::new(texts)];
        let rows = RecordBatch::try_new(Arc::clone(&schema), columns)
            .map_err(|e| Error::internal(e.to_string()))?;
        let properties = WriterProperties::builder()
            .set_created_by(CREATED_BY.to_owned())
            .set_compression(Compression::SNAPPY)
            .build();
        let mut writer = TableWriter::new(file, schema, properties)?;
        writer.write(&rows)?;
        writer.close()
    }
}

/// The text of a row, of any type of text.
fn text_at(column: &ArrayRef, row: usize) -> Option<&str> {
    if column.is_null(row) {
        return None;
    }
    match column.data_type() {
        DataType::Utf8 => Some(column.as_string::<i32>().value(row)),
        DataType::LargeUtf8 => Some(column.as_string::<i64>().value(row)),
        DataType::Utf8View => Some(column.as_string_view().value(row)),
        _ => None,
    }
}

/// What makes `task` the index of the table for pandas, by which the reader finds texts.
fn pandas_metadata() -> String {
    json!({
        "index_columns": [TASK],
        "column_indexes": [{
            "name": null,
            "field_name": null,
            "pandas_type": "unicode",
            "numpy_type": "object",
            "metadata": { "encoding": "UTF-8" },
        }],
        "columns": [
            {
                "name": TASK_INDEX,
                "field_name": TASK_INDEX,
                "pandas_type": "int64",
                "numpy_type": "int64",
                "metadata": null,
            },
            {
                "name": TASK,
                "field_name": TASK,
                "pandas_type": "unicode",
                "numpy_type": "object",
                "metadata": null,
            },
        ],
        "attributes": {},
        "creator": { "library": "sluice", "version": env!("CARGO_PKG_VERSION") },
        "pandas_version": "2.3.3",
    })
    .to_string()
}
