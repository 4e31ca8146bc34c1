//! What the sinks of this crate have in common: blocks of text, and the file they go to.

use std::path::PathBuf;

use sluice_core::options::OutPath;
use sluice_core::pool::Block;
use sluice_core::unnest::{Unnested, unnest};
use sluice_core::{Batch, EncodeContext, Error, FieldPath, OutputFile, SinkContext};

/// What lines are made of: a batch, or what it becomes when lists in it are taken apart.
#[derive(Debug)]
pub(crate) struct Taken {
    /// As many as there will be lines.
    pub(crate) batch: Batch,
    /// How many events these are of.
    events: u64,
    has_lists: bool,
}

impl Taken {
    /// A batch, with the lists at `path` taken apart if there is one.
    pub(crate) fn of(batch: Batch, path: Option<&FieldPath>) -> Result<Self, Error> {
        let events = batch.len() as u64;
        let Some(path) = path else { return Ok(Self { batch, events, has_lists: false }) };
        let Unnested { batch, has_lists, .. } = unnest(&batch, path)?;
        Ok(Self { batch, events, has_lists })
    }
}

/// The lines of one batch.
#[derive(Debug)]
pub struct TextBlock {
    text: Block,
    events: u64,
    rows: u64,
    has_lists: bool,
}

impl TextBlock {
    /// What `write` appends for the events of `taken`, a line for each of its rows.
    pub(crate) fn of(
        taken: &Taken,
        context: &EncodeContext<'_>,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        let mut text = context.buffers.buffer();
        write(&mut text)?;
        let Taken { batch, events, has_lists } = taken;
        let (rows, has_lists) = (batch.len() as u64, *has_lists);
        Ok(Self { text, events: *events, rows, has_lists })
    }

    /// The same lines, of which there are fewer than rows.
    pub(crate) fn without(self, lines: u64) -> Self {
        Self { rows: self.rows - lines, ..self }
    }

    /// The lines.
    pub(crate) fn text(&self) -> &[u8] {
        &self.text
    }

    /// How many events they are of.
    pub(crate) fn events(&self) -> u64 {
        self.events
    }

    /// How many lines they are.
    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }
}

/// A file of lines in the making.
#[derive(Debug)]
pub struct TextFile {
    file: OutputFile,
    rows: u64,
    events: u64,
    has_lists: bool,
}

impl TextFile {
    /// Opens the file and writes its first bytes.
    pub(crate) fn open(path: &OutPath, head: &[u8], context: &SinkContext) -> Result<Self, Error> {
        let mut file = context.outputs.create(&path.0)?;
        file.write(head)?;
        Ok(Self { file, rows: 0, events: 0, has_lists: false })
    }

    /// Appends a block; gives the number of its events.
    pub(crate) fn append(&mut self, block: TextBlock) -> Result<u64, Error> {
        let TextBlock { text, .. } = &block;
        self.append_as(text, &block)
    }

    /// Appends the lines of a block as another text. Gives the number of its events.
    pub(crate) fn append_as(&mut self, text: &[u8], block: &TextBlock) -> Result<u64, Error> {
        self.write(text)?;
        self.rows += block.rows;
        self.events += block.events;
        self.has_lists |= block.has_lists;
        Ok(block.events)
    }

    /// What is said of a list that was to be taken apart, if no event had it.
    pub(crate) fn note_of_lists(&self, path: Option<&FieldPath>) -> Option<(String, u64)> {
        let path = path.filter(|_| self.events > 0 && !self.has_lists)?;
        Some((format!("no event has a list `{path}`"), 0))
    }

    /// Writes what belongs to no event.
    pub(crate) fn write(&mut self, text: &[u8]) -> Result<(), Error> {
        self.file.write(text)
    }

    /// Brings what was appended into the file.
    pub(crate) fn flush(&mut self) -> Result<(), Error> {
        self.file.flush()
    }

    /// Completes the file. Gives 0: no event was held back.
    pub(crate) fn finish(self) -> Result<u64, Error> {
        self.file.finish(self.rows)?;
        Ok(0)
    }
}

/// The one target of a sink that writes one file.
pub(crate) fn targets(path: &OutPath) -> Vec<PathBuf> {
    vec![path.0.clone()]
}
