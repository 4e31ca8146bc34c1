//! Decompression of streams, a block at a time.

use std::io::{self, BufReader, Read};

use zstd::stream::raw::{Decoder, InBuffer, Operation, OutBuffer};
use zstd::zstd_safe;

use crate::ReadBuffer;

/// The bytes that show how a frame starts.
const FIRST: usize = 5;

/// Decompresses a stream that is compressed with zstd.
///
/// The decoder is given one block at a time: it drops what it has decompressed in a call that
/// meets damage. So all blocks before that are there, however the compressed bytes arrive.
pub(super) struct Unpacker<R> {
    from: BufReader<R>,
    decoder: Decoder<'static>,
    /// What of the next block was read.
    input: ReadBuffer,
    /// How much of it the decoder wants.
    wanted: usize,
    /// Whether a frame may begin here, or the stream end.
    is_between: bool,
    /// Whether the decoder may hold decompressed bytes.
    may_hold: bool,
}

impl<R: Read> Unpacker<R> {
    pub(super) fn new(from: R) -> io::Result<Self> {
        let from = BufReader::with_capacity(zstd_safe::DCtx::in_size(), from);
        let decoder = Decoder::new()?;
        let (input, wanted) = (ReadBuffer::default(), FIRST);
        Ok(Self { from, decoder, input, wanted, is_between: true, may_hold: false })
    }

    /// Reads what the decoder wants. False at the end of the compressed bytes.
    fn fill(&mut self) -> io::Result<bool> {
        let wanted = self.wanted.min(zstd_safe::DCtx::in_size());
        while self.input.len() < wanted {
            let missing = wanted - self.input.len();
            if self.input.append(missing, |space| self.from.read(space))? == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Gives the decoder what was read. Returns how much it has decompressed.
    fn decode(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let room = buffer.len();
        let (mut from, mut to) = (InBuffer::around(&self.input), OutBuffer::around(buffer));
        self.wanted = self.decoder.run(&mut from, &mut to)?;
        let (used, written) = (from.pos(), to.pos());
        self.input.discard(used);
        // Behind a frame, it holds nothing.
        self.may_hold = self.wanted > 0 && written == room;
        Ok(written)
    }
}

impl<R: Read> Read for Unpacker<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.wanted == 0 {
                self.decoder.reinit()?;
                (self.wanted, self.is_between) = (FIRST, true);
            }
            if !self.may_hold && !self.fill()? {
                let is_whole = self.is_between && self.input.is_empty();
                let cut = || Err(io::Error::new(io::ErrorKind::UnexpectedEof, "incomplete frame"));
                return if is_whole { Ok(0) } else { cut() };
            }
            self.is_between = false;
            let written = self.decode(buffer)?;
            if written > 0 || buffer.is_empty() {
                return Ok(written);
            }
        }
    }
}
