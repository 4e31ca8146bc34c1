//! Output files that are a terminal: what may be written to it, and how.

use super::{Destination, OutputFile};
use crate::Error;
use crate::escape::printable_lines;

impl OutputFile {
    /// Whether it is a terminal.
    pub fn is_terminal(&self) -> bool {
        matches!(self.destination, Destination::Direct { is_terminal: true, .. })
    }

    /// Writes binary data, which is refused on a terminal.
    pub fn write_binary(&mut self, bytes: &[u8]) -> Result<(), Error> {
        if self.bytes == 0 && self.is_terminal() {
            return Err(Error::refused(
                "binary data is not written to a terminal; use a file or a pipe",
            ));
        }
        self.write(bytes)
    }

    /// Writes whole characters of text, which are escaped on a terminal as by [`printable_lines`].
    pub fn write_text(&mut self, text: &[u8]) -> Result<(), Error> {
        if !self.is_terminal() {
            return self.write(text);
        }
        self.write(printable_lines(&String::from_utf8_lossy(text)).as_bytes())
    }
}
