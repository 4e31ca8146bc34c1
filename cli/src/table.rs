//! Draws lines of aligned cells. Callers choose the widths of columns; knows no terminal.

use crate::terminal::width;

/// The gap between columns.
pub(crate) const GAP: &str = "  ";

/// A column of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its width on a terminal.
    pub width: usize,
    /// How its cells are aligned.
    pub align: Align,
}

/// The alignment of cells in their column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// To the left: text.
    Left,
    /// To the right: numbers.
    Right,
}

/// The width of a line with columns of these widths.
pub fn line_width(widths: impl IntoIterator<Item = usize>) -> usize {
    let line = widths.into_iter().map(|width| width + GAP.len()).sum::<usize>();
    line.saturating_sub(GAP.len())
}

/// Appends a line of cells to `out`, without blanks or a newline at its end. A cell wider than its
/// column shifts those after it.
pub fn push_line<C: AsRef<str>>(cells: impl IntoIterator<Item = (C, Column)>, out: &mut String) {
    let start = out.len();
    for (at, (cell, column)) in cells.into_iter().enumerate() {
        if at > 0 {
            out.push_str(GAP);
        }
        let cell = cell.as_ref();
        let pad = " ".repeat(column.width.saturating_sub(width(cell)));
        let (left, right) = match column.align {
            Align::Left => ("", pad.as_str()),
            Align::Right => (pad.as_str(), ""),
        };
        out.extend([left, cell, right]);
    }
    let line = out.get(start..).unwrap_or_default().trim_end().len();
    out.truncate(start + line);
}
