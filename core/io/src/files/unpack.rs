//! Decompression of streams, a block at a time.

use std::io::{self, BufRead, BufReader, Read};

use zstd::stream::raw::{Decoder, InBuffer, Operation, OutBuffer};
use zstd::zstd_safe;

/// The bytes that show how a frame starts.
const FIRST: usize = 5;
/// The bytes of the header of a block.
const BLOCK_HEADER: usize = 3;

/// Decompresses a stream that is compressed with zstd.
///
/// The decoder is given one block at a time: it drops what it has decompressed in a call that
/// meets damage. So all blocks before that are there, however the compressed bytes arrive.
pub(super) struct Unpacker<R> {
    from: BufReader<R>,
    decoder: Decoder<'static>,
    /// How much the decoder wants: mostly the rest of a block and the header of the next.
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
        Ok(Self { from, decoder, wanted: FIRST, is_between: true, may_hold: false })
    }
}

impl<R: Read> Read for Unpacker<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.wanted == 0 {
                self.decoder.reinit()?;
                (self.wanted, self.is_between) = (FIRST, true);
            }
            let there = if self.may_hold { &[] } else { self.from.fill_buf()? };
            if there.is_empty() && !self.may_hold {
                return match self.is_between {
                    true => Ok(0),
                    false => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "incomplete frame")),
                };
            }
            // A header by itself: if it is damaged, the block before it is not dropped.
            let wanted = match self.wanted {
                wanted @ ..=BLOCK_HEADER => wanted,
                wanted => wanted - BLOCK_HEADER,
            };
            let mut from = InBuffer::around(there.get(..wanted).unwrap_or(there));
            let mut to = OutBuffer::around(&mut *buffer);
            self.wanted = self.decoder.run(&mut from, &mut to)?;
            let (used, written) = (from.pos(), to.pos());
            self.from.consume(used);
            self.is_between &= used == 0;
            // Behind a frame, it holds nothing.
            self.may_hold = self.wanted > 0 && written == buffer.len();
            if written > 0 || buffer.is_empty() {
                return Ok(written);
            }
        }
    }
}
