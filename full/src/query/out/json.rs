//! Writes rows as JSON, one object per row: as JSON lines, or as an array.

use arrow_array::RecordBatch;
use sluice_kit::json::JsonRows;
use sluice_model::{Error, OutputFile};

use super::{RowWriter, plain};

/// The size of a write.
const BLOCK: usize = 1 << 16;

/// What stands around rows. Each row is a line in either layout.
#[derive(Clone, Copy, Debug)]
pub(super) enum JsonLayout {
    Lines,
    Array,
}

pub(super) struct JsonWriter {
    file: OutputFile,
    layout: JsonLayout,
    /// What comes before the next row.
    separator: &'static [u8],
    out: Vec<u8>,
}

impl JsonWriter {
    pub(super) fn new(file: OutputFile, layout: JsonLayout) -> Self {
        let separator: &[u8] = match layout {
            JsonLayout::Lines => b"",
            JsonLayout::Array => b"[\n",
        };
        Self { file, layout, separator, out: Vec::new() }
    }

    fn write(&mut self) -> Result<(), Error> {
        self.file.write(&self.out)?;
        self.out.clear();
        Ok(())
    }
}

impl RowWriter for JsonWriter {
    fn append(&mut self, rows: &RecordBatch) -> Result<(), Error> {
        let plain = plain::rows(rows)?;
        let fields = JsonRows::new(&plain)?;
        for row in 0..plain.num_rows() {
            self.out.extend_from_slice(self.separator);
            fields.write(row, &mut self.out);
            match self.layout {
                JsonLayout::Lines => self.out.push(b'\n'),
                JsonLayout::Array => self.separator = b",\n",
            }
            if self.out.len() >= BLOCK {
                self.write()?;
            }
        }
        self.write()
    }

    fn finish(mut self: Box<Self>, count: u64) -> Result<Vec<String>, Error> {
        if matches!(self.layout, JsonLayout::Array) {
            self.file.write(if count == 0 { b"[]\n" } else { b"\n]\n" })?;
        }
        self.file.finish(count)?;
        Ok(Vec::new())
    }
}
