//! Writes rows as an aligned table for people: numbers are right-aligned, long values are cut,
//! control characters are escaped, binary values show their length. On a terminal, the table fits
//! its width.

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, SchemaRef};
use sluice::extension::{
    Align, Column, clipped, count, line_width, pluralize, push_line, stdout_width, width,
};
use sluice_io::escape::printable;
use sluice_model::{Error, OutputFile};

use super::RowWriter;
use super::cells::{Binary, Cells};

/// The widest column: values may be megabytes long. Other formats do not cut them.
const MAX_WIDTH: usize = 100;

/// The narrowest column: if columns still do not fit, some are left out.
const MIN_WIDTH: usize = 10;

/// Numbers up to this width are not cut: half a number would be wrong.
const NUMBER_WIDTH: usize = 24;

/// How many columns that are left out are named.
const MAX_NAMED: usize = 10;

/// How many rows determine the column widths.
const SAMPLE: usize = 1_000;

/// The most bytes of rows held back for that.
const MAX_HELD_BYTES: usize = 8 << 20;

/// The default limit of rows on a terminal.
const MAX_TERMINAL_ROWS: u64 = 1_000;

pub(super) struct TableWriter {
    file: OutputFile,
    columns: Vec<TableColumn>,
    /// The width of the terminal, if it is one.
    terminal: Option<usize>,
    limit: Option<u64>,
    /// Rows held back until widths are known.
    waiting: Vec<Vec<String>>,
    /// Their size in bytes.
    held_bytes: usize,
    /// How many columns fit, once known.
    fitting: Option<usize>,
    rows_shown: u64,
    out: String,
}

struct TableColumn {
    name: String,
    is_number: bool,
    width: usize,
}

impl TableWriter {
    pub(super) fn new(
        file: OutputFile,
        schema: &SchemaRef,
        limit: Option<u64>,
        separator: &str,
    ) -> Self {
        let terminal = file.is_terminal().then(|| stdout_width().unwrap_or(80));
        let limit = limit.or(terminal.map(|_| MAX_TERMINAL_ROWS));
        let columns = schema.fields().iter().map(|field| {
            let name = clipped(&printable(field.name()), MAX_WIDTH);
            let width = width(&name);
            TableColumn { name, is_number: is_number(field.data_type()), width }
        });
        Self {
            file,
            columns: columns.collect(),
            terminal,
            limit,
            waiting: Vec::new(),
            held_bytes: 0,
            fitting: None,
            rows_shown: 0,
            out: separator.to_owned(),
        }
    }

    fn push_batch(&mut self, rows: &RecordBatch) -> Result<(), Error> {
        let cells = rows.columns().iter().map(texts).collect::<Result<Vec<_>, _>>()?;
        let mut cells: Vec<_> = cells.into_iter().map(Vec::into_iter).collect();
        for _ in 0..rows.num_rows() {
            let row = cells.iter_mut().filter_map(Iterator::next).collect();
            self.row(row);
        }
        self.write()
    }

    fn row(&mut self, cells: Vec<String>) {
        self.rows_shown += 1;
        if let Some(fitting) = self.fitting {
            self.line(fitting, &cells);
        } else {
            self.held_bytes += cells.iter().map(String::len).sum::<usize>();
            self.waiting.push(cells);
            if self.waiting.len() == SAMPLE || self.held_bytes > MAX_HELD_BYTES {
                self.settle();
            }
        }
    }

    /// Sets the column widths, and writes the rows held back.
    fn settle(&mut self) {
        let most = self.terminal.unwrap_or(MAX_WIDTH);
        for (at, column) in self.columns.iter_mut().enumerate() {
            let cells = self.waiting.iter().filter_map(|row| row.get(at));
            let widest = cells.map(|cell| width(cell)).max().unwrap_or(0);
            column.width = column.width.max(widest).min(most);
        }
        let fitting = match self.terminal {
            Some(width_available) => fit(&mut self.columns, width_available),
            None => self.columns.len(),
        };
        self.fitting = Some(fitting);
        let heads: Vec<String> = self.columns.iter().map(|column| column.name.clone()).collect();
        self.line(fitting, &heads);
        let rules = self.columns.iter().map(|column| "-".repeat(column.width));
        self.line(fitting, &rules.collect::<Vec<_>>());
        for row in std::mem::take(&mut self.waiting) {
            self.line(fitting, &row);
        }
    }

    fn line(&mut self, fitting: usize, cells: &[String]) {
        let cells = cells.iter().zip(&self.columns).take(fitting).map(|(cell, column)| {
            let widest = if self.terminal.is_some() { column.width } else { MAX_WIDTH };
            let align = if column.is_number { Align::Right } else { Align::Left };
            (clipped(cell, widest), Column { width: column.width, align })
        });
        push_line(cells, &mut self.out);
        self.out.push('\n');
    }

    fn write(&mut self) -> Result<(), Error> {
        self.file.write(self.out.as_bytes())?;
        self.out.clear();
        Ok(())
    }

    fn notes(&self, rows: u64, fitting: usize) -> Vec<String> {
        let mut notes = Vec::new();
        let hidden: Vec<&str> =
            self.columns.iter().skip(fitting).map(|column| column.name.as_str()).collect();
        if !hidden.is_empty() {
            let first = hidden.get(..hidden.len().min(MAX_NAMED)).unwrap_or_default();
            let more = if first.len() < hidden.len() { ", the first of which are" } else { "" };
            notes.push(format!(
                "the terminal is too narrow for {}{more}: {}; select fewer, or see --format and \
                 --to",
                pluralize(hidden.len() as u64, "column"),
                first.join(", ")
            ));
        }
        if rows > self.rows_shown {
            notes.push(format!(
                "the first {} of {}; --limit-rows shows more, --to writes all to a file",
                count(self.rows_shown),
                pluralize(rows, "row")
            ));
        }
        notes
    }
}

impl RowWriter for TableWriter {
    fn append(&mut self, rows: &RecordBatch) -> Result<(), Error> {
        let left = self.limit.map_or(u64::MAX, |limit| limit.saturating_sub(self.rows_shown));
        let count_shown = usize::try_from(left).unwrap_or(usize::MAX).min(rows.num_rows());
        if count_shown == 0 {
            return Ok(());
        }
        for start in (0..count_shown).step_by(SAMPLE) {
            self.push_batch(&rows.slice(start, SAMPLE.min(count_shown - start)))?;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>, count: u64) -> Result<Vec<String>, Error> {
        if self.fitting.is_none() {
            self.settle();
        }
        self.write()?;
        let notes = self.notes(count, self.fitting.unwrap_or(0));
        self.file.finish(count)?;
        Ok(notes)
    }
}

/// The cells of a column, cut.
fn texts(column: &ArrayRef) -> Result<Vec<String>, Error> {
    let cells = Cells::new(column, Binary::Preview)?;
    let format = cells.formatter()?;
    let mut out = Vec::new();
    let text = |row| {
        if cells.is_null(row) {
            return "NULL".to_owned();
        }
        out.clear();
        format(row, &mut out);
        let text = visible_prefix(&out);
        let printed = printable(&text);
        if printed.len() < MAX_WIDTH {
            printed.into_owned()
        } else {
            clipped(&printed, MAX_CELL_CHARS)
        }
    };
    Ok((0..column.len()).map(text).collect())
}

/// More characters than any terminal shows of a cell.
const MAX_CELL_CHARS: usize = 1_000;

/// The visible part of a value, and at least one character more to tell that it is cut.
fn visible_prefix(text: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(text.get(..4 * MAX_CELL_CHARS + 4).unwrap_or(text))
}

/// Narrows columns to fit, the widest first; returns how many fit.
fn fit(columns: &mut [TableColumn], width_available: usize) -> usize {
    let narrowed = |columns: &[TableColumn], cap: usize| {
        line_width(columns.iter().map(|column| column.narrowed(cap)))
    };
    let widest = columns.iter().map(|column| column.width).max().unwrap_or(0);
    let cap = (MIN_WIDTH..=widest)
        .rev()
        .find(|cap| narrowed(columns, *cap) <= width_available)
        .unwrap_or(MIN_WIDTH);
    for column in columns.iter_mut() {
        column.width = column.narrowed(cap);
    }
    let fits = |count: &usize| {
        line_width(columns.iter().take(*count).map(|column| column.width)) <= width_available
    };
    let fitting = (0..=columns.len()).rev().find(fits).unwrap_or(0);
    if fitting == 0
        && let Some(first) = columns.first_mut()
    {
        first.width = width_available;
        return 1;
    }
    fitting
}

impl TableColumn {
    fn narrowed(&self, cap: usize) -> usize {
        let least = if self.is_number { NUMBER_WIDTH } else { 0 };
        self.width.min(cap.max(least))
    }
}

fn is_number(kind: &DataType) -> bool {
    match kind {
        DataType::Dictionary(_, value) => is_number(value),
        kind => kind.is_numeric(),
    }
}
