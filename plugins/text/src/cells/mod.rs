//! Source `csv`: reads tables of text. Each row is an event, each column a field.
//!
//! The syntax is RFC 4180. Types of columns are guessed from the first rows unless options give
//! them; a row with a cell of another type is damage.

mod cell_type;
mod columns;
mod reader;
mod scan;

use serde::{Deserialize, Deserializer};
use sluice_io::files::{self, InputContent};
use sluice_model::options::{ByteSize, InPaths};
use sluice_model::schemars::JsonSchema;
use sluice_model::{Clock, Error, Input, Query, ReadContext, Reader, Source, Split, SplitStart};

pub(crate) use columns::TimeUnit;

use columns::ColumnTypes;
use reader::CellReader;

/// Reads tables of text, such as CSV files of loggers and spreadsheets.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "sluice_model::schemars")]
pub(crate) struct CsvSource {
    /// The files: one, a glob, a list of them, or `-` for standard input. Each may have other
    /// columns; zstd is decompressed.
    path: InPaths,
    /// The separator of cells: one character, `,` by default.
    #[serde(default = "comma", deserialize_with = "delimiter")]
    delimiter: char,
    /// Whether the first line names the columns. Otherwise, `columns` does.
    #[serde(default = "yes")]
    header: bool,
    /// The names of all columns, in order, if the file has no header or a wrong one.
    #[serde(default)]
    columns: Option<Vec<String>>,
    /// How many lines to skip at the start of each file.
    #[serde(default)]
    skip: u32,
    /// The prefix of lines to skip, such as `#`.
    #[serde(default)]
    comment: Option<String>,
    /// The column with the time, as a number or a date. Default: the first of `timestamp_ns`,
    /// `timestamp`, `time` and `t` that exists.
    #[serde(default)]
    timestamp: Option<String>,
    /// The unit of numbers in that column: `s`, `ms`, `us` or `ns`. Default: the suffix of its
    /// name, as in `timestamp_ns`, or seconds.
    #[serde(default)]
    unit: Option<TimeUnit>,
    /// The epoch of these numbers: `utc`, the default, for 1970, or `relative` for the start of the
    /// recording.
    #[serde(default)]
    clock: Option<Clock>,
    /// The channel of all rows. Default: the column `channel`, or the name of the source.
    #[serde(default)]
    channel: Option<String>,
    /// The column with the channel.
    #[serde(default)]
    channel_column: Option<String>,
    /// The column with the sequence number; by default `sequence`, if it exists. Without it, the
    /// sequence number is the row's byte offset in the file.
    #[serde(default)]
    sequence: Option<String>,
    /// Types by column: `f64`, `i64`, `bool` or `text`. Others are guessed from the first rows of
    /// each file.
    #[serde(default)]
    types: ColumnTypes,
    /// The columns to read as fields. Default: all but time, channel and sequence number.
    #[serde(default)]
    fields: Option<Vec<String>>,
    /// The maximum length of a row; a longer one is damage.
    #[serde(default = "longest_row", deserialize_with = "row_len")]
    max_row: ByteSize,
}

sluice_model::register! {
    source "csv": CsvSource,
    about: "reads tables of text with typed columns, one row per event",
    sample: include_str!("../../samples/csv-source.toml"),
}

/// The maximum of `max_row`, and how much of a file is read to learn its columns.
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
    Err(serde::de::Error::custom(format!("expected 1 byte to {most}, found {size}")))
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
        files::refuse_foreign(&inputs, InputContent::Marked, "a CSV file")?;
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
