//! The columns of a CSV that every event has, and lines of these columns only.

use sluice_io::escape::column_of_field;
use sluice_model::FieldPath;

use crate::write;

/// The columns that every event has, and the delimiter.
#[derive(Clone, Debug)]
pub(crate) struct LeadingColumns {
    pub(crate) names: Vec<&'static str>,
    pub(crate) delimiter: char,
}

impl LeadingColumns {
    /// Ends the leading columns before this many columns.
    pub(crate) fn end(&self, columns: usize, out: &mut Vec<u8>) {
        if !self.names.is_empty() && columns > 0 {
            write::delimiter(out, self.delimiter);
        }
    }

    /// Appends this many empty cells.
    pub(crate) fn blank(&self, columns: usize, out: &mut Vec<u8>) {
        (1..columns).for_each(|_| write::delimiter(out, self.delimiter));
    }

    /// The header line, with the names of these columns and of fields. A field with the name of one
    /// of these columns gets an underscore, as in Parquet tables.
    pub(crate) fn header(&self, fields: &[FieldPath]) -> Vec<u8> {
        let own = self.names.iter().map(|name| (*name).to_owned());
        let mut header = Vec::new();
        let field = |field: &FieldPath| column_of_field(&field.to_string(), &self.names);
        for (at, name) in own.chain(fields.iter().map(field)).enumerate() {
            if at > 0 {
                write::delimiter(&mut header, self.delimiter);
            }
            write::csv_value(&mut header, &name, self.delimiter);
        }
        header.push(b'\n');
        header
    }

    /// Appends lines of leading columns, each with this many empty cells.
    pub(crate) fn pad(&self, lines: &[u8], columns: usize, out: &mut Vec<u8>) {
        let (mut start, mut is_quoted) = (0, false);
        for (at, byte) in lines.iter().enumerate() {
            is_quoted ^= *byte == b'"';
            if *byte == b'\n' && !is_quoted {
                let leading = lines.get(start..at).unwrap_or_default();
                let line_start = out.len();
                out.extend_from_slice(if leading == EMPTY { b"" } else { leading });
                self.end(columns, out);
                self.blank(columns, out);
                end_line(line_start, out);
                start = at + 1;
            }
        }
    }
}

/// A row with a single empty cell; readers skip empty lines.
pub(crate) const EMPTY: &[u8] = b"\"\"";

/// Ends the line that started at `start`.
pub(crate) fn end_line(start: usize, out: &mut Vec<u8>) {
    if out.len() == start {
        out.extend_from_slice(EMPTY);
    }
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_columns_have_the_same_name() {
        let leading = LeadingColumns { names: vec!["timestamp", "source"], delimiter: ',' };
        let paths = ["timestamp", "timestamp_", "source.x", "size"];
        let fields = paths.map(|path| FieldPath::parse(path).unwrap());
        let header = leading.header(&fields);
        let expected = "timestamp,source,timestamp_,timestamp__,source.x,size\n";
        assert_eq!(String::from_utf8(header).unwrap(), expected);
    }
}
