//! Writes rows as JSON lines, one object per row.

use arrow_array::RecordBatch;
use sluice_kit::json::JsonRows;
use sluice_model::{Error, OutputFile};

use super::{RowWriter, plain};

/// The size of a write.
const BLOCK: usize = 1 << 16;

pub(super) struct JsonlWriter {
    file: OutputFile,
    out: Vec<u8>,
}

impl JsonlWriter {
    pub(super) fn new(file: OutputFile) -> Self {
        Self { file, out: Vec::new() }
    }

    fn write(&mut self) -> Result<(), Error> {
        self.file.write(&self.out)?;
        self.out.clear();
        Ok(())
    }
}

impl RowWriter for JsonlWriter {
    fn append(&mut self, rows: &RecordBatch) -> Result<(), Error> {
        let plain = plain::rows(rows)?;
        let fields = JsonRows::new(&plain)?;
        for row in 0..plain.num_rows() {
            fields.write(row, &mut self.out);
            self.out.push(b'\n');
            if self.out.len() >= BLOCK {
                self.write()?;
            }
        }
        self.write()
    }

    fn finish(self: Box<Self>, count: u64) -> Result<Vec<String>, Error> {
        self.file.finish(count)?;
        Ok(Vec::new())
    }
}
