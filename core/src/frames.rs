//! Frames: compressed pieces that make up a seekable zstd file. Knows nothing of events.
//!
//! A file of independent frames, each with a checksum, is an ordinary zstd file: `zstd -d` gives what
//! they hold, one behind another. A seek table at its foot, itself in a frame that decompressors skip,
//! says where each begins.

use std::cell::RefCell;
use std::io;

use zeekstd::SeekTable;
use zstd::bulk::Compressor;
use zstd::zstd_safe::CParameter;

/// The compression levels that zstd has.
pub const LEVELS: std::ops::RangeInclusive<i32> = 1..=22;
/// The level that serves best for logs.
pub const DEFAULT_LEVEL: i32 = 3;
/// How much a frame holds where nothing else is asked for: it fits a core's own cache.
pub const USUAL_LEN: usize = 1 << 20;

/// The four bytes that begin a skippable frame of ours.
const SKIPPABLE: [u8; 4] = [0x5e, 0x2a, 0x4d, 0x18];

thread_local! {
    /// A compressor holds tables of a megabyte: making one for each frame costs more than it saves.
    static COMPRESSOR: RefCell<Option<(i32, Compressor<'static>)>> = const { RefCell::new(None) };
}

/// One frame with `plain`, its length and a checksum.
pub fn compress(plain: &[u8], level: i32) -> io::Result<Vec<u8>> {
    COMPRESSOR.with_borrow_mut(|kept| {
        let compressor = match kept.take() {
            Some(same) if same.0 == level => same,
            _ => {
                let mut compressor = Compressor::new(level)?;
                compressor.set_parameter(CParameter::ChecksumFlag(true))?;
                (level, compressor)
            }
        };
        kept.insert(compressor).1.compress(plain)
    })
}

/// A frame that decompressors skip, with `bytes` in it.
///
/// `Err` if they are more than a frame can hold.
pub fn skippable(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let len = u32::try_from(bytes.len()).map_err(io::Error::other)?;
    Ok([&SKIPPABLE[..], &len.to_le_bytes(), bytes].concat())
}

/// What [`skippable`] was given, if these bytes begin with its frame.
pub fn skipped(frame: &[u8]) -> Option<&[u8]> {
    let rest = frame.strip_prefix(&SKIPPABLE)?;
    let (len, rest) = rest.split_first_chunk()?;
    rest.get(..usize::try_from(u32::from_le_bytes(*len)).ok()?)
}

/// The seek table of a file in the making.
pub struct Table(SeekTable);

impl Default for Table {
    fn default() -> Self {
        Self(SeekTable::new())
    }
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Table({} frames)", self.0.num_frames())
    }
}

impl Table {
    /// Notes the next frame: its compressed length, and the length of what it holds.
    pub fn push(&mut self, packed: usize, plain: usize) -> io::Result<()> {
        let (packed, plain) = (u32::try_from(packed), u32::try_from(plain));
        let (packed, plain) = (packed.map_err(io::Error::other)?, plain.map_err(io::Error::other)?);
        self.0.log_frame(packed, plain).map_err(io::Error::other)
    }

    /// The table as it stands at the foot of a file.
    pub fn finish(self) -> Vec<u8> {
        let mut table = self.0.into_serializer();
        let mut bytes = vec![0; table.encoded_len()];
        let mut written = 0;
        while written < bytes.len() {
            match table.write_into(&mut bytes[written..]) {
                0 => break,
                more => written += more,
            }
        }
        bytes.truncate(written);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_and_table_are_one_ordinary_compressed_file() {
        let (mut file, mut table) = (Vec::new(), Table::default());
        for n in 0..5u8 {
            let plain = vec![n; 1000 * usize::from(n)];
            let frame = compress(&plain, 3 + i32::from(n % 2)).unwrap();
            table.push(frame.len(), plain.len()).unwrap();
            file.extend(frame);
        }
        file.extend(skippable(b"index").unwrap());
        file.extend(table.finish());
        let mut plain = Vec::new();
        zstd::stream::copy_decode(&file[..], &mut plain).unwrap();
        let expected: Vec<u8> = (0..5u8).flat_map(|n| vec![n; 1000 * usize::from(n)]).collect();
        assert_eq!(plain, expected);
        let table = SeekTable::from_seekable(&mut zeekstd::BytesWrapper::new(&file)).unwrap();
        assert_eq!((table.num_frames(), table.size_decomp()), (5, 10_000));
    }

    #[test]
    fn a_flipped_bit_in_a_frame_is_noticed() {
        let plain: Vec<u8> = (0..5000u32).flat_map(|n| (n * n).to_le_bytes()).collect();
        let mut frame = compress(&plain, 3).unwrap();
        for at in 10..frame.len() {
            frame[at] ^= 4;
            let found = zstd::stream::decode_all(&frame[..]);
            // Some bits mean nothing.
            assert!(found.is_err() || found.is_ok_and(|found| found == plain), "byte {at}");
            frame[at] ^= 4;
        }
    }

    #[test]
    fn what_was_skipped_comes_back() {
        let frame = [skippable(b"index").unwrap(), b"more".to_vec()].concat();
        assert_eq!(skipped(&frame), Some(&b"index"[..]));
        assert_eq!(skipped(&frame[..10]), None);
        assert_eq!(skipped(b"PAR1"), None);
    }
}
