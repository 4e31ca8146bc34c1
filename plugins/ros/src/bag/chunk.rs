//! Chunks: what a bag says of them, and unpacking their records. Knows no record in them.
//!
//! Lengths in a bag may lie: at most the declared length is ever produced, and that is limited.

use std::io::{ErrorKind, Read};

use bytes::Bytes;
use bzip2::bufread::BzDecoder;
use lz4_flex::frame::FrameDecoder;
use sluice_model::options::ByteSize;
use sluice_model::{BlockPool, Error};

use super::window::{BagWindow, FoundAt};
use super::wire::{BagCompression, max_packed};

/// A chunk of a bag.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChunkEntry {
    pub(crate) at: u64,
    pub(crate) plain_len: u32,
    pub(crate) compression: BagCompression,
    /// The messages of the chunks before.
    pub(crate) messages_before: u64,
    /// What the end of the bag says of it.
    pub(crate) summary: Option<SummaryPlace>,
}

impl ChunkEntry {
    /// The records of the chunk, and where it ends; `None` if it cannot be read.
    pub(crate) fn unpack(
        &self,
        window: &mut BagWindow,
        (blocks, max_chunk): (&BlockPool, ByteSize),
    ) -> Result<Option<(Bytes, u64)>, Error> {
        let FoundAt::Record(record) = window.place(self.at)? else { return Ok(None) };
        if u64::from(record.data_len) > max_packed(max_chunk) {
            return Ok(None);
        }
        let packed = window.bytes(self.at + record.data_at as u64, record.data_len)?;
        let limits = (blocks, max_chunk);
        let unpacked = unpack(self.compression, packed.into(), self.plain_len, false, limits);
        let end = self.at.saturating_add(record.len());
        Ok(unpacked.ok().map(|unpacked| (unpacked.plain, end)))
    }
}

/// The times of a chunk's messages, and where their numbers by connection are: a position and a
/// length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SummaryPlace {
    pub(crate) times: (i64, i64),
    pub(crate) counts: (u64, u32),
}

/// The records of a chunk.
pub(crate) struct Unpacked {
    pub(crate) plain: Bytes,
    /// Why they are not all that the chunk should have.
    pub(crate) cut: Option<String>,
    /// How many of the packed bytes they take.
    pub(crate) packed_len: usize,
}

/// Unpacks a chunk. If its packed bytes are not all there (`is_cut`), as many of its records as
/// possible. `Err` says what is wrong with it.
pub(crate) fn unpack(
    compression: BagCompression,
    packed: Bytes,
    plain_len: u32,
    is_cut: bool,
    (blocks, max): (&BlockPool, ByteSize),
) -> Result<Unpacked, String> {
    if compression == BagCompression::None {
        let cut = is_cut.then(|| "the bag ends in it".to_owned());
        return Ok(Unpacked { packed_len: packed.len(), plain: packed, cut });
    }
    if let BagCompression::Other(_) = compression {
        return Err(format!("its compression `{}` is not supported", compression.name()));
    }
    if u64::from(plain_len) > max.0 {
        return Err(format!(
            "its uncompressed length of {plain_len} bytes exceeds `max_chunk` ({max}); raise that \
             if the length is right"
        ));
    }
    let len = usize::try_from(plain_len).unwrap_or(usize::MAX);
    let mut block = blocks.block_with_len(len);
    let to = block.get_mut(..len).unwrap_or_default();
    let mut rest = &*packed;
    let filled = match compression {
        BagCompression::Bz2 => fill(BzDecoder::new(&mut rest), to),
        _ => fill(FrameDecoder::new(&mut rest), to),
    };
    let packed_len = packed.len() - rest.len();
    let cut = match filled {
        (read, None) if read == len => None,
        (read, None) => Some(format!("expected {len} uncompressed bytes, found {read}")),
        (_, Some(why)) => Some(why),
    };
    match cut {
        None => Ok(Unpacked { plain: block.freeze().slice(..len), cut: None, packed_len }),
        // What came before the cut has been checked block by block.
        Some(_) if is_cut => {
            let cut = Some("the bag ends in it".to_owned());
            Ok(Unpacked { plain: block.freeze().slice(..filled.0), cut, packed_len })
        }
        Some(why) => Err(why),
    }
}

/// Reads until `to` is full. Returns how much was read, and what is wrong.
fn fill(mut decoder: impl Read, to: &mut [u8]) -> (usize, Option<String>) {
    let (mut at, len) = (0, to.len());
    while let Some(rest) = to.get_mut(at..).filter(|rest| !rest.is_empty()) {
        match decoder.read(rest) {
            Ok(0) => return (at, None),
            Ok(read) => at += read,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return (at, Some(undecompressed(&error))),
        }
    }
    match decoder.read(&mut [0]) {
        Ok(0) => (at, None),
        Ok(_) => (at, Some(format!("expected {len} uncompressed bytes, found more"))),
        Err(error) => (at, Some(undecompressed(&error))),
    }
}

fn undecompressed(error: &std::io::Error) -> String {
    format!("decompressing it failed ({error})")
}
