//! Options of the source `csv`.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};
use sluice_model::Clock;
use sluice_model::options::{ByteSize, InPaths};
use sluice_model::schemars::JsonSchema;

use super::cell_type::CellType;

/// The names of time columns that need no option.
pub(super) const TIMES: [&str; 4] = ["timestamp_ns", "timestamp", "time", "t"];

/// Reads tables of text, such as CSV files of loggers and spreadsheets.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "sluice_model::schemars")]
pub(crate) struct CsvSource {
    /// The files: one, a glob, a list of them, or `-` for standard input. Each may have other
    /// columns; zstd is decompressed.
    pub(super) path: InPaths,
    /// The separator of cells: one character, `,` by default.
    #[serde(default = "comma", deserialize_with = "delimiter")]
    pub(super) delimiter: char,
    /// Whether the first line names the columns. Otherwise, `columns` does.
    #[serde(default = "yes")]
    pub(super) header: bool,
    /// The names of all columns, in order, if the file has no header or a wrong one: a list, or a
    /// text with commas.
    #[serde(default)]
    pub(super) columns: Option<ColumnNames>,
    /// How many lines to skip at the start of each file.
    #[serde(default)]
    pub(super) skip: u32,
    /// The prefix of lines to skip, such as `#`; none if it is empty.
    #[serde(default)]
    pub(super) comment: Option<String>,
    /// The column with the time, as a number or a date. Default: the first of `timestamp_ns`,
    /// `timestamp`, `time` and `t` that exists.
    #[serde(default)]
    pub(super) timestamp: Option<String>,
    /// The unit of numbers in that column: `s`, `ms`, `us` or `ns`. Default: the suffix of its
    /// name, as in `timestamp_ns`, or seconds.
    #[serde(default)]
    pub(super) unit: Option<TimeUnit>,
    /// The epoch of these numbers: `utc`, the default, for 1970, or `relative` for the start of the
    /// recording.
    #[serde(default)]
    pub(super) clock: Option<Clock>,
    /// The channel of all rows. Default: the column `channel`, or the name of the source.
    #[serde(default)]
    pub(super) channel: Option<String>,
    /// The column with the channel.
    #[serde(default)]
    pub(super) channel_column: Option<String>,
    /// The column with the sequence number; by default `sequence`, if it exists. Without it, the
    /// sequence number is the row's byte offset in the file.
    #[serde(default)]
    pub(super) sequence: Option<String>,
    /// Types by column: `f64`, `i64`, `bool` or `text`. Others are guessed from the first rows of
    /// each file.
    #[serde(default)]
    pub(super) types: ColumnTypes,
    /// The columns to read as fields: a list, or a text with commas. Default: all but time, channel
    /// and sequence number.
    #[serde(default)]
    pub(super) fields: Option<ColumnNames>,
    /// The maximum length of a row; a longer one is damage.
    #[serde(default = "longest_row", deserialize_with = "row_len")]
    pub(super) max_row: ByteSize,
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

/// The unit of numbers in the time column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(crate = "sluice_model::schemars")]
pub(crate) enum TimeUnit {
    /// Seconds.
    S,
    /// Milliseconds.
    Ms,
    /// Microseconds.
    Us,
    /// Nanoseconds.
    Ns,
}

impl TimeUnit {
    /// All units, the largest first, and their names.
    pub(super) const ALL: [(Self, &str); 4] =
        [(Self::S, "s"), (Self::Ms, "ms"), (Self::Us, "us"), (Self::Ns, "ns")];

    pub(super) fn nanos(self) -> i64 {
        match self {
            Self::S => 1_000_000_000,
            Self::Ms => 1_000_000,
            Self::Us => 1_000,
            Self::Ns => 1,
        }
    }

    /// The unit in a column's name, such as `timestamp_ns`; seconds by default.
    pub(super) fn from_name(name: &str) -> Self {
        let units = [("_ns", Self::Ns), ("_us", Self::Us), ("_ms", Self::Ms)];
        let named = units.into_iter().find(|(end, _)| name.ends_with(end));
        named.map_or(Self::S, |(_, unit)| unit)
    }
}

/// Names of columns, in order.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema)]
#[schemars(crate = "sluice_model::schemars", with = "ColumnNamesOption")]
pub(super) struct ColumnNames(pub(super) Vec<String>);

/// Names of columns as they are written.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a list of names, or a text with commas between them")]
#[schemars(crate = "sluice_model::schemars")]
enum ColumnNamesOption {
    Text(String),
    List(Vec<String>),
}

impl<'de> Deserialize<'de> for ColumnNames {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(match ColumnNamesOption::deserialize(deserializer)? {
            ColumnNamesOption::Text(text) if text.trim().is_empty() => Vec::new(),
            ColumnNamesOption::Text(text) => {
                text.split(',').map(|name| name.trim().to_owned()).collect()
            }
            ColumnNamesOption::List(names) => names,
        }))
    }
}

/// Types by column name.
pub(super) type ColumnTypes = BTreeMap<String, CellType>;
