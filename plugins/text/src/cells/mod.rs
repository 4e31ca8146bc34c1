//! Source `csv`: tables of text, a row an event, whose cells are fields. Which columns there are, the file says in
//! its first line, or the options do.
//!
//! Rows are as RFC 4180 has them. What is in columns is guessed from the first rows, unless it is said; a cell
//! that is something else makes its row damage, and is never passed on as something that it is not.

mod cell_type;
mod columns;
mod reader;
mod scan;

use serde::{Deserialize, Deserializer};
use sluice_core::files::{self, InputContent};
use sluice_core::options::{ByteSize, InPaths};
use sluice_core::schemars::JsonSchema;
use sluice_core::{Clock, Error, Input, Query, ReadContext, Reader, Source, Split, SplitStart};

pub(crate) use columns::TimeUnit;

use columns::ColumnTypes;
use reader::CellReader;

/// Reads tables of text, such as CSV files of loggers and spreadsheets.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "sluice_core::schemars")]
pub(crate) struct CsvSource {
    /// The files: one, a glob, a list of them, or `-` for standard input. Each says for itself which columns
    /// it has; what is compressed with zstd is read as what it holds.
    path: InPaths,
    /// What separates cells: one character, `,` by default.
    #[serde(default = "comma", deserialize_with = "delimiter")]
    delimiter: char,
    /// Whether the first line names the columns. If not, `columns` does.
    #[serde(default = "yes")]
    header: bool,
    /// The names of all columns, in order, where the file does not say them or says them wrong.
    #[serde(default)]
    columns: Option<Vec<String>>,
    /// How many lines to leave out at the beginning of each file.
    #[serde(default)]
    skip: u32,
    /// What lines that are to be left out begin with, such as `#`.
    #[serde(default)]
    comment: Option<String>,
    /// The column that says when a row happened: as a number or a date. By default the first of
    /// `timestamp_ns`, `timestamp`, `time` and `t` that there is.
    #[serde(default)]
    timestamp: Option<String>,
    /// What numbers in that column count: `s`, `ms`, `us` or `ns`. By default what the end of its name
    /// says, as in `timestamp_ns`, or else seconds.
    #[serde(default)]
    unit: Option<TimeUnit>,
    /// What these numbers count from: `utc`, the default, for 1970, or `relative` for the start of the
    /// recording.
    #[serde(default)]
    clock: Option<Clock>,
    /// The channel of all rows. By default the column `channel` says it, or else it is called as the source
    /// is in the pipeline.
    #[serde(default)]
    channel: Option<String>,
    /// The column that says the channel.
    #[serde(default)]
    channel_column: Option<String>,
    /// The column that numbers the rows; `sequence`, if there is one. Without it a row's number is its place
    /// in the file, in bytes.
    #[serde(default)]
    sequence: Option<String>,
    /// What columns hold, by name: `f64`, `i64`, `bool` or `text`. What is not named here is guessed from
    /// the first rows of each file.
    #[serde(default)]
    types: ColumnTypes,
    /// The columns that are fields. By default all but those that say time, channel and number.
    #[serde(default)]
    fields: Option<Vec<String>>,
    /// The longest row that is read; a longer one is damage.
    #[serde(default = "longest_row", deserialize_with = "row_len")]
    max_row: ByteSize,
}

sluice_core::register! {
    source "csv": CsvSource,
    about: "reads tables of text, a row an event, with typed fields",
    sample: include_str!("../../samples/csv-source.toml"),
}

/// The longest row that may be asked for, and the length of what is looked at to learn the columns.
const MAX_ROW: u64 = 16 << 20;

fn yes() -> bool {
    true
}

fn comma() -> char {
    ','
}

fn longest_row() -> ByteSize {
    ByteSize(1 << 20)
}

fn row_len<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ByteSize, D::Error> {
    let size = ByteSize::deserialize(deserializer)?;
    if (1..=MAX_ROW).contains(&size.0) {
        return Ok(size);
    }
    let most = ByteSize(MAX_ROW);
    Err(serde::de::Error::custom(format!("expected 1 byte to {most}, and found {size}")))
}

fn delimiter<'de, D: Deserializer<'de>>(deserializer: D) -> Result<char, D::Error> {
    let delimiter = char::deserialize(deserializer)?;
    if delimiter.is_ascii() && !matches!(delimiter, '"' | '\n' | '\r') {
        return Ok(delimiter);
    }
    Err(serde::de::Error::custom(
        "expected one ASCII character that is neither a quote nor an end of line",
    ))
}

impl Source for CsvSource {
    fn inputs(&self) -> Result<Vec<Input>, Error> {
        files::expand(&self.path.0)
    }

    fn splits(&self, target: u64, _: &Query) -> Result<Vec<Split>, Error> {
        let inputs = self.inputs()?;
        files::refuse_foreign(&inputs, InputContent::Marked, "a file of cells")?;
        Split::from_files(inputs, target, |_, len| Ok(0..len))
    }

    fn read<'s>(
        &'s self,
        split: &Split,
        entry: SplitStart,
        context: &ReadContext,
    ) -> Result<Box<dyn Reader + 's>, Error> {
        Ok(Box::new(CellReader::open(self, split, entry, context)?))
    }
}

#[cfg(test)]
mod tests;
