//! Data lines that wait for the header: in memory, and in a temporary file when there are many.

use std::io::{self, Read, Seek, SeekFrom, Write};

use sluice_model::{Error, OutputFile};

/// The maximum bytes of data lines buffered in memory.
pub(super) const MAX_BUFFERED_LINES: usize = 8 << 20;

/// Data lines, buffered until the header can be written.
#[derive(Debug, Default)]
pub(super) struct LineSpill {
    pub(super) buffer: Vec<u8>,
    pub(super) file: Option<std::fs::File>,
}

impl LineSpill {
    pub(super) fn line(&mut self, width: usize, columns: [i64; 4]) -> Result<(), Error> {
        let mut digits = itoa::Buffer::new();
        for (place, number) in columns.into_iter().enumerate() {
            let number = digits.format(number).as_bytes();
            self.buffer.extend_from_slice(number);
            let is_last = place + 1 == columns.len();
            let blanks = if is_last { 0 } else { width.saturating_sub(number.len()).max(1) };
            self.buffer.resize(self.buffer.len() + blanks, b' ');
        }
        self.buffer.push(b'\n');
        if self.buffer.len() < MAX_BUFFERED_LINES {
            Ok(())
        } else {
            self.spill().map_err(spill_error)
        }
    }

    pub(super) fn spill(&mut self) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(tempfile::tempfile()?),
        };
        file.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }

    /// Writes all lines to the master, in order.
    pub(super) fn copy_to(mut self, to: &mut OutputFile) -> Result<(), Error> {
        if let Some(file) = &mut self.file {
            file.seek(SeekFrom::Start(0)).map_err(spill_error)?;
            let mut buffer = vec![0; 1 << 20];
            loop {
                let read = file.read(&mut buffer).map_err(spill_error)?;
                if read == 0 {
                    break;
                }
                to.write(buffer.get(..read).unwrap_or_default())?;
            }
        }
        to.write(&self.buffer)
    }
}

pub(super) fn spill_error(error: io::Error) -> Error {
    Error::io("keep lines of the master in", std::env::temp_dir(), error)
}
