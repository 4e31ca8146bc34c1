//! Packs and unpacks the records of chunks. Knows no record.
//!
//! Lengths in a chunk may lie: at most the declared length is ever produced, and that is limited.

use std::cell::RefCell;
use std::io::{self, Read, Write};

use bytes::Bytes;
use lz4_flex::frame::{BlockMode, BlockSize, FrameDecoder, FrameEncoder, FrameInfo};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sluice_io::frames;
use sluice_io::level::FrameLevel;
use sluice_model::BlockPool;
use sluice_model::options::ByteSize;
use zstd::zstd_safe::{self, DCtx, InBuffer, OutBuffer, ResetDirective};

use crate::wire::ChunkHead;

/// The longest chunk accepted by default, uncompressed.
pub(crate) const DEFAULT_MAX_CHUNK: ByteSize = ByteSize(256 << 20);

/// How the records of chunks are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ChunkCompression {
    /// With zstd.
    #[default]
    Zstd,
    /// With LZ4, in frames.
    Lz4,
    /// Not at all.
    None,
}

impl ChunkCompression {
    /// Its name in chunks.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Zstd => "zstd",
            Self::Lz4 => "lz4",
            Self::None => "",
        }
    }

    pub(crate) fn parse(name: &[u8]) -> Option<Self> {
        [Self::Zstd, Self::Lz4, Self::None].into_iter().find(|c| c.name().as_bytes() == name)
    }
}

/// Whether a record of this length, whose content starts with these bytes, may be a chunk.
pub(crate) fn looks_like_chunk(content: &[u8], len: u64) -> bool {
    let head = ChunkHead::parse(content);
    head.is_some_and(|head| {
        ChunkCompression::parse(&head.compression).is_some()
            && head.packed_len > 0
            && head.content_len() == len
    })
}

/// The length of blocks in LZ4 frames.
const LZ4_BLOCK: BlockSize = BlockSize::Max256KB;

thread_local! {
    static DECOMPRESSOR: RefCell<DCtx<'static>> = RefCell::new(DCtx::create());
}

/// The records of a chunk, compressed.
pub(crate) fn pack(
    plain: Vec<u8>,
    compression: ChunkCompression,
    level: &FrameLevel,
) -> io::Result<Vec<u8>> {
    match compression {
        ChunkCompression::None => Ok(plain),
        ChunkCompression::Lz4 => {
            let form = FrameInfo::new().block_size(LZ4_BLOCK).block_mode(BlockMode::Independent);
            let form = form.content_size(Some(plain.len() as u64));
            let mut encoder = FrameEncoder::with_frame_info(form, Vec::new());
            encoder.write_all(&plain)?;
            encoder.finish().map_err(io::Error::other)
        }
        ChunkCompression::Zstd => frames::compress(&plain, level.get()),
    }
}

/// The records of a chunk, whose length and checksum are right. `packed` are its compressed bytes.
///
/// `Err` says what is wrong with the chunk.
pub(crate) fn unpack(
    head: &ChunkHead,
    packed: Bytes,
    blocks: &BlockPool,
    max: ByteSize,
) -> Result<Bytes, String> {
    let compression = ChunkCompression::parse(&head.compression).ok_or_else(|| {
        let name = String::from_utf8_lossy(&head.compression);
        format!("its compression `{}` is none of zstd, lz4 and none", name.escape_debug())
    })?;
    let len = usize::try_from(head.plain_len).ok().filter(|_| head.plain_len <= max.0);
    let len = len.ok_or_else(|| {
        format!(
            "its uncompressed length of {} bytes exceeds `max_chunk` ({max}); raise that if the \
             length is right",
            head.plain_len
        )
    })?;
    let plain = if compression == ChunkCompression::None {
        if packed.len() != len {
            return Err(format!("expected {len} uncompressed bytes, found {}", packed.len()));
        }
        packed
    } else {
        let mut block = blocks.block_with_len(len);
        let to = block.get_mut(..len).unwrap_or_default();
        match compression {
            ChunkCompression::Zstd => unpack_zstd(&packed, to)?,
            _ => unpack_lz4(&packed, to)?,
        }
        block.freeze().slice(..len)
    };
    let crc = if head.crc == 0 { 0 } else { crc32fast::hash(&plain) };
    if crc != head.crc {
        return Err(format!("expected the checksum {:08x}, found {crc:08x}", head.crc));
    }
    Ok(plain)
}

/// Decompresses zstd frames until `to` is full. Whatever follows is padding.
fn unpack_zstd(packed: &[u8], to: &mut [u8]) -> Result<(), String> {
    let len = to.len();
    DECOMPRESSOR.with_borrow_mut(|context| {
        let named = |code| zstd_safe::get_error_name(code).to_lowercase();
        context.reset(ResetDirective::SessionOnly).map_err(named)?;
        let (mut input, mut output) = (InBuffer::around(packed), OutBuffer::around(to));
        loop {
            let (read, written) = (input.pos(), output.pos());
            let left = context.decompress_stream(&mut output, &mut input).map_err(named)?;
            let is_stuck = (input.pos(), output.pos()) == (read, written);
            if left == 0 && output.pos() == len {
                return Ok(());
            }
            if input.pos() == packed.len() && left == 0 || is_stuck {
                let found = if output.pos() < len { output.pos().to_string() } else { more(len) };
                return Err(format!("expected {len} uncompressed bytes, found {found}"));
            }
        }
    })
}

/// Decompresses an LZ4 frame that fills `to`.
fn unpack_lz4(packed: &[u8], to: &mut [u8]) -> Result<(), String> {
    let (len, mut decoder, mut at) = (to.len(), FrameDecoder::new(packed), 0);
    while let Some(rest) = to.get_mut(at..).filter(|rest| !rest.is_empty()) {
        match decoder.read(rest).map_err(|e| e.to_string())? {
            0 => return Err(format!("expected {len} uncompressed bytes, found {at}")),
            read => at += read,
        }
    }
    match decoder.read(&mut [0]) {
        Ok(0) => Ok(()),
        Ok(_) => Err(format!("expected {len} uncompressed bytes, found {}", more(len))),
        Err(error) => Err(error.to_string()),
    }
}

fn more(len: usize) -> String {
    format!("more than {len}")
}
