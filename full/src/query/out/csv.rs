//! Writes rows as CSV: RFC 4180, but with LF as line end. Null is an empty field, an empty text is
//! `""`.

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use sluice_model::{Error, OutputFile};

use super::RowWriter;
use super::cells::{Binary, Cells};

/// The size of a write.
const BLOCK: usize = 1 << 16;

pub(super) struct CsvWriter {
    file: OutputFile,
    out: Vec<u8>,
}

impl CsvWriter {
    /// Writes the header.
    pub(super) fn new(file: OutputFile, schema: &SchemaRef) -> Result<Self, Error> {
        let mut out = Vec::new();
        for (at, field) in schema.fields().iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            let start = out.len();
            out.extend_from_slice(field.name().as_bytes());
            quote(&mut out, start);
        }
        out.push(b'\n');
        Ok(Self { file, out })
    }

    fn write(&mut self) -> Result<(), Error> {
        self.file.write_text(&self.out)?;
        self.out.clear();
        Ok(())
    }
}

impl RowWriter for CsvWriter {
    fn append(&mut self, rows: &RecordBatch) -> Result<(), Error> {
        let cells = rows.columns().iter().map(|column| Cells::new(column, Binary::Base64));
        let cells: Vec<Cells> = cells.collect::<Result<_, _>>()?;
        let formatters: Vec<_> = cells.iter().map(Cells::formatter).collect::<Result<_, _>>()?;
        for row in 0..rows.num_rows() {
            for (at, (cells, format)) in cells.iter().zip(&formatters).enumerate() {
                if at > 0 {
                    self.out.push(b',');
                }
                if !cells.is_null(row) {
                    let start = self.out.len();
                    format(row, &mut self.out);
                    quote(&mut self.out, start);
                }
            }
            // An empty line would not count as a row.
            if let [only] = &*cells
                && only.is_null(row)
            {
                self.out.extend_from_slice(b"\"\"");
            }
            self.out.push(b'\n');
            if self.out.len() >= BLOCK {
                self.write()?;
            }
        }
        self.write()
    }

    fn finish(mut self: Box<Self>, count: u64) -> Result<Vec<String>, Error> {
        self.write()?;
        self.file.finish(count)?;
        Ok(Vec::new())
    }
}

/// Quotes the text from `start` on if CSV requires it. It is UTF-8.
fn quote(out: &mut Vec<u8>, start: usize) {
    let text = out.get(start..).unwrap_or_default();
    let is_plain = !text.iter().any(|byte| matches!(byte, b'"' | b'\r' | b'\n' | b','));
    if is_plain && !text.is_empty() {
        return;
    }
    let text = out.split_off(start);
    out.push(b'"');
    for byte in text {
        if byte == b'"' {
            out.push(b'"');
        }
        out.push(byte);
    }
    out.push(b'"');
}
