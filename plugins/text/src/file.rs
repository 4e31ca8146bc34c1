//! What the sinks of this crate have in common: blocks of text, and the file they go to.

use std::path::PathBuf;

use sluice_core::options::OutPath;
use sluice_core::pool::Block;
use sluice_core::{Batch, EncodeContext, Error, OutputFile, SinkContext};

/// The lines of one batch.
#[derive(Debug)]
pub struct TextBlock {
    text: Block,
    events: u64,
}

impl TextBlock {
    /// What `write` appends for `batch`.
    pub(crate) fn of(
        batch: &Batch,
        context: &EncodeContext<'_>,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        let mut text = context.buffers.buffer();
        write(&mut text)?;
        Ok(Self { text, events: batch.len() as u64 })
    }

    /// The lines.
    pub(crate) fn text(&self) -> &[u8] {
        &self.text
    }

    /// How many events they are of.
    pub(crate) fn events(&self) -> u64 {
        self.events
    }
}

/// A file of lines in the making.
#[derive(Debug)]
pub struct TextFile {
    file: OutputFile,
    events: u64,
}

impl TextFile {
    /// Opens the file and writes its first bytes.
    pub(crate) fn open(path: &OutPath, head: &[u8], context: &SinkContext) -> Result<Self, Error> {
        let mut file = context.outputs.create(&path.0)?;
        file.write(head)?;
        Ok(Self { file, events: 0 })
    }

    /// Appends a block; gives the number of its events.
    pub(crate) fn append(&mut self, block: TextBlock) -> Result<u64, Error> {
        self.append_as(&block.text, block.events)
    }

    /// Appends the lines of so many events.
    pub(crate) fn append_as(&mut self, text: &[u8], events: u64) -> Result<u64, Error> {
        self.file.write(text)?;
        self.events += events;
        Ok(events)
    }

    /// Brings what was appended into the file.
    pub(crate) fn flush(&mut self) -> Result<(), Error> {
        self.file.flush()
    }

    /// Completes the file. Gives 0: no event was held back.
    pub(crate) fn finish(self) -> Result<u64, Error> {
        self.file.finish(self.events)?;
        Ok(0)
    }
}

/// The one target of a sink that writes one file.
pub(crate) fn targets(path: &OutPath) -> Vec<PathBuf> {
    vec![path.0.clone()]
}
