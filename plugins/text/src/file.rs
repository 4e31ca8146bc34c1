//! What the sinks of this crate share: blocks of text, and the output file.

use std::sync::Arc;

use sluice_kit::unnest::{UnnestPiece, UnnestPieces, UnnestedBatch};
use sluice_model::options::OutPath;
use sluice_model::pool::PooledBlock;
use sluice_model::{
    Batch, BlockPool, Channels, Error, FieldPath, OutputFile, PrepareContext, SinkContext,
    SinkTraits, Written,
};

/// Events to write as lines, with lists unnested if asked for.
#[derive(Debug)]
pub(crate) struct LinePiece {
    /// One row per line.
    pub(crate) batch: Batch,
    /// How many events they come from.
    events: u64,
    has_lists: bool,
}

impl LinePiece {
    /// A piece of a batch, with the lists at `path` unnested, if given.
    fn from_unnest(piece: &UnnestPiece, path: Option<&FieldPath>) -> Result<Self, Error> {
        let events = piece.events();
        let Some(path) = path else {
            return Ok(Self { batch: piece.batch().clone(), events, has_lists: false });
        };
        let UnnestedBatch { batch, has_lists, .. } = piece.unnest(path)?;
        Ok(Self { batch, events, has_lists })
    }
}

/// An encoded batch: blocks for the pieces that fit the memory budget, and the other pieces, which
/// are encoded one by one when they are written.
#[derive(Debug)]
pub(crate) struct Blocks<B> {
    done: Vec<B>,
    rest: UnnestPieces,
}

/// How many buffers the text of a batch may fill before the rest is encoded later.
const MAX_BUFFERS: usize = 32;

impl<B> Blocks<B> {
    /// Encodes a batch with `encode`, which also returns the length of the text.
    pub(crate) fn encode(
        batch: Batch,
        path: Option<&FieldPath>,
        context: &PrepareContext<'_>,
        mut encode: impl FnMut(LinePiece, &PrepareContext<'_>) -> Result<(B, usize), Error>,
    ) -> Result<Self, Error> {
        let most = context.buffers.block_len().saturating_mul(MAX_BUFFERS);
        let (mut rest, mut done, mut bytes) = (UnnestPieces::new(batch, path)?, Vec::new(), 0usize);
        // A batch may take one buffer of the run: reading waits for lent buffers.
        let own = own_buffers();
        while bytes <= most {
            let Some(piece) = rest.next() else { break };
            let buffers = if done.is_empty() { context.buffers } else { &own };
            let context = PrepareContext::new(context.channels, buffers);
            let (block, len) = encode(LinePiece::from_unnest(&piece, path)?, &context)?;
            bytes = bytes.saturating_add(len);
            done.push(block);
        }
        Ok(Self { done, rest })
    }

    /// Passes all blocks to `append`, encoding what is left with `encode`. Returns the sum of the
    /// events.
    pub(crate) fn write(
        self,
        path: Option<&FieldPath>,
        channels: &Channels,
        mut encode: impl FnMut(LinePiece, &PrepareContext<'_>) -> Result<(B, usize), Error>,
        mut append: impl FnMut(B) -> Result<u64, Error>,
    ) -> Result<Written, Error> {
        let mut events = 0;
        for block in self.done {
            events += append(block)?;
        }
        let own = own_buffers();
        for piece in self.rest {
            let context = PrepareContext::new(channels, &own);
            events += append(encode(LinePiece::from_unnest(&piece, path)?, &context)?.0)?;
        }
        Ok(Written::events(events))
    }
}

fn own_buffers() -> BlockPool {
    BlockPool::new(64 << 10, 1)
}

/// The lines of a piece of a batch.
#[derive(Debug)]
pub(crate) struct TextBlock {
    text: PooledBlock,
    events: u64,
    rows: u64,
    has_lists: bool,
}

impl TextBlock {
    /// A block with what `write` appends for the rows of `piece`, one line each.
    pub(crate) fn new(
        piece: &LinePiece,
        context: &PrepareContext<'_>,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        let mut text = context.buffers.buffer();
        write(&mut text)?;
        let LinePiece { batch, events, has_lists } = piece;
        let (rows, has_lists) = (batch.len() as u64, *has_lists);
        Ok(Self { text, events: *events, rows, has_lists })
    }

    /// The same block, with this many fewer lines than rows.
    pub(crate) fn without_lines(self, lines: u64) -> Self {
        Self { rows: self.rows - lines, ..self }
    }

    /// The lines.
    pub(crate) fn text(&self) -> &[u8] {
        &self.text
    }

    /// The length of the lines in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.text.len()
    }

    /// How many events the lines come from.
    pub(crate) fn events(&self) -> u64 {
        self.events
    }

    /// The number of lines.
    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }
}

/// A file of lines being written.
#[derive(Debug)]
pub(crate) struct TextFile {
    file: OutputFile,
    channels: Arc<Channels>,
    rows: u64,
    events: u64,
    has_lists: bool,
}

impl TextFile {
    /// The traits of a sink that writes such a file, with the fields of decoded events; those
    /// without a payload only if `accepts_rows`.
    pub(crate) fn traits(path: &OutPath, accepts_rows: bool) -> SinkTraits {
        SinkTraits {
            accepts_rows,
            rows_unwritten: None,
            is_readable_unfinished: true,
            ..SinkTraits::writing(&path.0)
        }
    }

    /// Opens the file and writes its first bytes.
    pub(crate) fn open(path: &OutPath, head: &[u8], context: &SinkContext) -> Result<Self, Error> {
        let mut file = context.outputs.create(&path.0)?;
        file.write(head)?;
        let channels = Arc::clone(&context.channels);
        Ok(Self { file, channels, rows: 0, events: 0, has_lists: false })
    }

    /// Whether it grows under its final name, as recordings do.
    pub(crate) fn is_growing(&self) -> bool {
        self.file.is_growing()
    }

    /// Every channel of the run.
    pub(crate) fn channels(&self) -> Arc<Channels> {
        Arc::clone(&self.channels)
    }

    /// Appends a block; returns the number of its events.
    pub(crate) fn append(&mut self, block: TextBlock) -> Result<u64, Error> {
        let TextBlock { text, .. } = &block;
        self.append_as(text, &block)
    }

    /// Appends other text for the lines of a block; returns the number of its events.
    pub(crate) fn append_as(&mut self, text: &[u8], block: &TextBlock) -> Result<u64, Error> {
        self.write(text)?;
        self.rows += block.rows;
        self.events += block.events;
        self.file.set_rows(self.rows, self.events);
        self.has_lists |= block.has_lists;
        Ok(block.events)
    }

    /// Writes text that belongs to no event.
    pub(crate) fn write(&mut self, text: &[u8]) -> Result<(), Error> {
        self.file.write_text(text)
    }

    /// Flushes what was appended to the file.
    pub(crate) fn flush(&mut self) -> Result<(), Error> {
        self.file.flush()
    }

    /// Completes the file, with these notes about it; and one if no event had the list to unnest.
    pub(crate) fn finish(
        self,
        mut notes: Vec<(String, u64)>,
        unnest: Option<&FieldPath>,
    ) -> Result<Written, Error> {
        if let Some(path) = unnest.filter(|_| self.events > 0 && !self.has_lists) {
            notes.push((format!("no event has a list `{path}`"), 0));
        }
        self.file.finish(self.rows)?;
        Ok(Written { notes, ..Written::default() })
    }
}
