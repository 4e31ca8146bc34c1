//! Determines the columns of a CSV file: time, channel, sequence number and fields, and their
//! types.
//!
//! Reads only the header and the first rows, to guess types.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{Field, Schema, SchemaRef};
use sluice_io::escape::{escaped, printable};
use sluice_model::time::{self, TimePoint};
use sluice_model::{Error, MessageType, TypeKey};

use super::advice::{
    list_names, no_time, other_characters, other_delimiter, out_of_range, setting,
};
use super::cell_type::{CellSample, CellType, ColumnBuilder, describe_cell, guess, parsed};
use super::options::{ColumnNames, CsvSource, TIMES, TimeUnit};
use super::scan::{Cell, RowScan, checked_scan, scan};
use crate::without_mark;

/// The maximum number of columns.
const MAX_COLUMNS: usize = 2_000;
/// How many rows to sample for guessing types.
const SAMPLED_ROWS: usize = 256;

const CHANNEL: &str = "channel";
const SEQUENCE: &str = "sequence";

/// A position in the file, and what is wrong there.
pub(super) type HeaderError = (u64, String);

/// The columns of a file.
#[derive(Debug)]
pub(crate) struct CsvColumns {
    /// The names of all columns.
    names: Vec<String>,
    time: usize,
    unit: i64,
    channel: Option<usize>,
    sequence: Option<usize>,
    fields: Vec<FieldColumn>,
    schema: SchemaRef,
    pub(crate) message: Arc<MessageType>,
    /// The position of the first row after the header.
    pub(crate) first_row: u64,
}

#[derive(Clone, Debug)]
struct FieldColumn {
    name: String,
    at: usize,
    kind: CellType,
}

/// A row's values for what every event has.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RowHead {
    pub(crate) timestamp: i64,
    pub(crate) sequence: Option<i64>,
    /// The index of the cell that names the channel.
    pub(crate) channel: Option<usize>,
}

impl CsvColumns {
    /// The columns of a file that starts with `head`; `None` if it has no row. `is_whole` means
    /// that `head` is the whole file.
    ///
    /// `Err` is a position in `head` and the message.
    pub(crate) fn from_head(
        options: &CsvSource,
        head: &[u8],
        is_whole: bool,
    ) -> Result<Option<Self>, HeaderError> {
        if let Some(what) = other_characters(head) {
            return Err((0, what.to_owned()));
        }
        let at = head.len() - without_mark(head).len();
        let mut rows = HeadRows { options, bytes: head, at, is_whole };
        for _ in 0..options.skip {
            rows.skip_line()?;
        }
        let Some((at, names)) = rows.names()? else { return Ok(None) };
        let wrong = |what| (at, what);
        check_names(&names).map_err(wrong)?;
        let first_row = rows.at as u64;
        let roles = ColumnRoles::new(options, &names).map_err(|what| {
            let in_file = options.columns.is_none();
            let delimiter = in_file.then(|| other_delimiter(options, &names)).flatten();
            wrong(delimiter.unwrap_or(what))
        })?;
        if options.columns.is_some() && rows.header_has_time(at, &roles) {
            return Err(wrong(format!(
                "the first line has a time where names are expected: set {}, and `skip = 1` if it \
                 is no row",
                setting("header", "false")
            )));
        }
        let samples = rows.sample(names.len());
        let fields = roles.fields(options, &names, &samples).map_err(wrong)?;
        let of_field = |field: &FieldColumn| Field::new(&field.name, field.kind.data_type(), true);
        let schema = Arc::new(Schema::new(fields.iter().map(of_field).collect::<Vec<_>>()));
        let texts: Vec<String> = schema
            .fields()
            .iter()
            .flat_map(|field| [field.name().clone(), field.data_type().to_string()])
            .collect();
        let key = TypeKey::from_parts(texts.iter().map(String::as_bytes));
        let message = Arc::new(MessageType::named("csv", key));
        let ColumnRoles { time, unit, channel, sequence } = roles;
        Ok(Some(Self { names, time, unit, channel, sequence, fields, schema, message, first_row }))
    }

    /// Whether rows have fields in addition to what every event has.
    pub(crate) fn has_fields(&self) -> bool {
        !self.fields.is_empty()
    }

    fn name(&self, at: usize) -> Cow<'_, str> {
        printable(self.names.get(at).map(String::as_str).unwrap_or_default())
    }

    /// The time, sequence number and channel of a row; `Err` says why it is not an event.
    pub(crate) fn head(&self, row: &[u8], cells: &[Cell]) -> Result<RowHead, String> {
        if cells.len() != self.names.len() {
            let (found, wanted) = (cells.len(), self.names.len());
            return Err(format!("expected {wanted} cells, found {found}"));
        }
        let cell = |at: usize| cells.get(at).map(|cell| cell.text(row)).unwrap_or_default();
        let of_column = |at: usize, what: String| format!("column `{}`: {what}", self.name(at));
        let timestamp = parse_time(&cell(self.time), self.unit);
        let timestamp = timestamp.map_err(|what| of_column(self.time, what))?;
        let number = |at: usize| {
            let text = cell(at);
            parsed::<i64>(&text)
                .ok_or_else(|| of_column(at, describe_cell(&text, "not an integer")))
        };
        let sequence = self.sequence.map(number).transpose()?;
        for field in &self.fields {
            let Some(cell) = cells.get(field.at) else { continue };
            if let Some(what) = field.kind.check(cell, row) {
                return Err(of_column(field.at, what) + "; set the type of a column with `types`");
            }
        }
        Ok(RowHead { timestamp, sequence, channel: self.channel })
    }

    /// The fields of rows that [`head`](Self::head) has checked.
    pub(crate) fn columns<'r>(
        &self,
        rows: impl Iterator<Item = (&'r [u8], Vec<Cell>)>,
    ) -> Result<RecordBatch, Error> {
        let mut columns: Vec<ColumnBuilder> =
            self.fields.iter().map(|field| ColumnBuilder::new(field.kind)).collect();
        for (row, cells) in rows {
            for (field, column) in self.fields.iter().zip(&mut columns) {
                if let Some(cell) = cells.get(field.at) {
                    column.push(cell, row);
                }
            }
        }
        let columns = columns.into_iter().map(ColumnBuilder::finish).collect();
        RecordBatch::try_new(Arc::clone(&self.schema), columns)
            .map_err(|e| Error::internal(format!("cells do not fit their columns: {e}")))
    }
}

/// Which columns hold time, channel and sequence number.
struct ColumnRoles {
    time: usize,
    unit: i64,
    channel: Option<usize>,
    sequence: Option<usize>,
}

impl ColumnRoles {
    fn new(options: &CsvSource, names: &[String]) -> Result<Self, String> {
        let place = |name: &str| names.iter().position(|n| n == name);
        let named = |option: &str, name: &String| {
            place(name).ok_or_else(|| {
                format!("no column `{}`, which `{option}` names; found {}", name, list_names(names))
            })
        };
        let time = match &options.timestamp {
            Some(name) => named("timestamp", name)?,
            None => TIMES.into_iter().find_map(place).ok_or_else(|| no_time(names))?,
        };
        let own = names.get(time).map(String::as_str).unwrap_or_default();
        let unit = options.unit.unwrap_or_else(|| TimeUnit::from_name(own)).nanos();
        let channel = match (&options.channel_column, &options.channel) {
            (Some(name), _) => Some(named("channel_column", name)?),
            (None, Some(_)) => None,
            (None, None) => place(CHANNEL),
        };
        let sequence = match &options.sequence {
            Some(name) => Some(named("sequence", name)?),
            None => place(SEQUENCE),
        };
        Ok(Self { time, unit, channel, sequence })
    }

    fn fields(
        &self,
        options: &CsvSource,
        names: &[String],
        samples: &[Vec<CellSample>],
    ) -> Result<Vec<FieldColumn>, String> {
        let exists = |name: &&String| names.contains(name);
        let mut named = options.types.keys().chain(options.fields.iter().flat_map(|f| &f.0));
        if let Some(unknown) = named.find(|name| !exists(name)) {
            return Err(format!("no column `{unknown}`; found {}", list_names(names)));
        }
        let roles = [Some(self.time), self.channel, self.sequence];
        let is_field = |(at, name): &(usize, &String)| match &options.fields {
            Some(ColumnNames(fields)) => fields.contains(name),
            None => !roles.contains(&Some(*at)),
        };
        let column = |(at, name): (usize, &String)| {
            let guessed = || guess(samples.iter().filter_map(|row| row.get(at)));
            let kind = options.types.get(name).copied().unwrap_or_else(guessed);
            FieldColumn { name: name.clone(), at, kind }
        };
        Ok(names.iter().enumerate().filter(is_field).map(column).collect())
    }
}

fn check_names(names: &[String]) -> Result<(), String> {
    if names.len() > MAX_COLUMNS {
        let found = names.len();
        return Err(format!(
            "expected at most {MAX_COLUMNS} columns, found {found}; is `delimiter` right?"
        ));
    }
    let mut met = BTreeSet::new();
    match names.iter().find(|name| !met.insert(*name)) {
        Some(twice) => Err(format!(
            "two columns are called `{}`: name them with `columns`, and skip the header with `skip \
             = 1` and `header = false`",
            printable(twice)
        )),
        None => Ok(()),
    }
}

/// Reads the first rows of a file.
struct HeadRows<'h> {
    options: &'h CsvSource,
    bytes: &'h [u8],
    at: usize,
    is_whole: bool,
}

impl HeadRows<'_> {
    fn rest(&self) -> &[u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    fn skip_line(&mut self) -> Result<(), HeaderError> {
        match memchr::memchr(b'\n', self.rest()) {
            Some(end) => self.at += end + 1,
            None if self.is_whole => self.at = self.bytes.len(),
            None => return Err((self.at as u64, self.too_long())),
        }
        Ok(())
    }

    fn too_long(&self) -> String {
        format!("the header does not end within {} bytes", self.bytes.len())
    }

    /// The names of all columns, and the position of the header.
    fn names(&mut self) -> Result<Option<(u64, Vec<String>)>, HeaderError> {
        if let (false, Some(ColumnNames(columns))) = (self.options.header, &self.options.columns) {
            return Ok(Some((self.at as u64, columns.clone())));
        }
        while !self.rest().is_empty() && self.options.is_blank(self.rest()) {
            self.skip_line()?;
        }
        if self.rest().is_empty() {
            return Ok(None);
        }
        let (at, mut cells) = (self.at, Vec::new());
        let row = self.rest();
        let wrong = |what: String| Err((at as u64, what));
        let len = match scan(row, self.options.delimiter_byte(), self.is_whole, &mut cells) {
            RowScan::Row(len) => len,
            RowScan::Incomplete => return wrong(self.too_long()),
            RowScan::Invalid(why) => {
                return wrong(format!("the header is not a valid row: {why}"));
            }
        };
        if cells.iter().any(|cell| cell.text(row).contains(&b'\r')) {
            return wrong(
                "the header contains a carriage return: lines must end with a line feed, or with a \
                 carriage return and a line feed"
                    .to_owned(),
            );
        }
        let name = |(n, cell): (usize, &Cell)| {
            let text = cell.text(row);
            let name = escaped(text.trim_ascii()).into_owned();
            if name.is_empty() { format!("column_{}", n + 1) } else { name }
        };
        let found: Vec<String> = cells.iter().enumerate().map(name).collect();
        let names = match &self.options.columns {
            Some(ColumnNames(columns)) if columns.len() != found.len() => {
                let (given, len) = (columns.len(), found.len());
                let what = format!("`columns` names {given} columns, but the header has {len}");
                return wrong(other_delimiter(self.options, &found).unwrap_or(what));
            }
            Some(ColumnNames(columns)) => columns.clone(),
            None => found,
        };
        self.at = at + len;
        Ok(Some((at as u64, names)))
    }

    /// Whether the line before the rows, which starts at `at`, has a time as rows do.
    fn header_has_time(&self, at: u64, roles: &ColumnRoles) -> bool {
        let header = self.bytes.get(at as usize..self.at).unwrap_or_default();
        let (delimiter, mut cells) = (self.options.delimiter_byte(), Vec::new());
        matches!(scan(header, delimiter, true, &mut cells), RowScan::Row(len) if len > 0)
            && cells
                .get(roles.time)
                .is_some_and(|cell| parse_time(&cell.text(header), roles.unit).is_ok())
    }

    /// Samples of the first rows with this many cells.
    fn sample(&mut self, columns: usize) -> Vec<Vec<CellSample>> {
        let (mut samples, mut cells) = (Vec::new(), Vec::new());
        let delimiter = self.options.delimiter_byte();
        for _ in 0..SAMPLED_ROWS {
            let row = self.rest();
            if row.is_empty() {
                break;
            }
            if self.options.is_blank(row) {
                if self.skip_line().is_err() {
                    break;
                }
                continue;
            }
            let len = match checked_scan(row, delimiter, self.is_whole, &mut cells) {
                RowScan::Row(len) => len,
                RowScan::Invalid(_) if self.skip_line().is_ok() => continue,
                RowScan::Incomplete | RowScan::Invalid(_) => break,
            };
            if cells.len() == columns {
                samples.push(cells.iter().map(|cell| CellSample::from_cell(cell, row)).collect());
            }
            self.at += len;
        }
        samples
    }
}

/// The digits of a number with an exponent, as in `1.7e+09`, with the point where that says; `None`
/// if it is none, or one that no time can have.
fn without_exponent(text: &str) -> Option<String> {
    const MOST: usize = 40;
    let (number, exponent) = text.split_once(['e', 'E'])?;
    let (sign, number) = number.strip_prefix('-').map_or(("", number), |rest| ("-", rest));
    let number = number.strip_prefix('+').unwrap_or(number);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = format!("{whole}{fraction}");
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let exponent: i32 = exponent.parse().ok()?;
    let shift = usize::try_from(exponent.unsigned_abs()).ok().filter(|shift| *shift <= MOST)?;
    let zeros = "0".repeat(shift);
    let (digits, point) = match exponent < 0 {
        true => (format!("{zeros}{digits}"), whole.len()),
        false => (format!("{digits}{zeros}"), whole.len() + shift),
    };
    let (whole, fraction) = digits.split_at(point);
    Some(format!("{sign}{whole}.{fraction}"))
}

/// Parses a time.
fn parse_time(text: &[u8], unit: i64) -> Result<i64, String> {
    let text = String::from_utf8_lossy(text.trim_ascii());
    let scaled = time::scaled(&text, unit);
    match scaled.or_else(|| time::scaled(&without_exponent(&text)?, unit)) {
        Some(Some(nanos)) => return Ok(nanos),
        Some(None) => {
            let fits = |unit| matches!(time::scaled(&text, unit), Some(Some(_)));
            return Err(describe_cell(text.as_bytes(), &out_of_range(unit, fits)));
        }
        None => {}
    }
    let date = |text: &str| match TimePoint::parse(text) {
        Ok(TimePoint::At(nanos)) => Some(nanos),
        Ok(TimePoint::After(_)) | Err(_) => None,
    };
    // A date without a time zone is UTC.
    let has_date = text.bytes().filter(|byte| *byte == b'-').count() >= 2;
    let found = if has_date { date(&text).or_else(|| date(&format!("{text}Z"))) } else { None };
    let what = match text.split_once('-') {
        Some((year, _)) if has_date && is_far_year(year) => {
            "out of the range of times (1677 to 2262); correct it, or name another column with \
             `timestamp`"
        }
        _ => "neither a number nor a date",
    };
    found.ok_or_else(|| describe_cell(text.as_bytes(), what))
}

/// Whether times cannot have this year, or not all of it.
fn is_far_year(year: &str) -> bool {
    year.len() == 4 && year.parse().is_ok_and(|year: u16| !(1678..2262).contains(&year))
}

impl CsvSource {
    pub(super) fn delimiter_byte(&self) -> u8 {
        u8::try_from(self.delimiter).unwrap_or(b',')
    }

    /// Whether a row is blank or a comment.
    pub(super) fn is_blank(&self, row: &[u8]) -> bool {
        let mark = self.comment.as_deref().filter(|mark| !mark.is_empty());
        let is_comment = mark.is_some_and(|mark| row.starts_with(mark.as_bytes()));
        is_comment || row.is_empty() || row.starts_with(b"\n") || row.starts_with(b"\r\n")
    }
}
