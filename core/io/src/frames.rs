//! Frames: compressed pieces that make up a seekable zstd file. Knows nothing of events.
//!
//! A file of independent frames, each with a checksum, is an ordinary zstd file: `zstd -d`
//! decompresses it. A seek table at its end, in a skippable frame, lists where each frame starts.

use std::cell::RefCell;
use std::io;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use zstd::bulk::Compressor;
use zstd::zstd_safe::{self, CParameter, DCtx};

use crate::Error;
use crate::files::LogFile;

/// The compression levels of zstd.
pub const LEVELS: std::ops::RangeInclusive<i32> = 1..=22;
/// The default level: the best trade-off for logs.
pub const DEFAULT_LEVEL: i32 = 3;
/// Table sizes for the default level, as powers of two: half of zstd's choice for a megabyte. They
/// fit into a core's cache next to the frame: 20 % less time for 0.3 % more bytes.
const USUAL_TABLES: (u32, u32) = (16, 15);
/// The default content length of a frame: it fits into a core's cache.
pub const DEFAULT_LEN: usize = 1 << 20;

/// The magic of a frame.
pub const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// The magic of our skippable frames, including the seek table.
pub(crate) const SKIPPABLE: [u8; 4] = [0x5e, 0x2a, 0x4d, 0x18];
/// The longest header of a frame.
const LONGEST_HEADER: usize = 18;
/// The length of the header of a skippable frame.
pub const SKIPPABLE_HEADER: u64 = 8;

/// The footer of a seek table: number of frames (four bytes), flags (one), magic (four).
const FOOTER: u64 = 9;
const FOOTER_MAGIC: [u8; 4] = [0xb1, 0xea, 0x92, 0x8f];
/// The flag for a table with checksums of frame contents: four more bytes per frame.
const TABLE_HAS_CHECKSUMS: u8 = 1 << 7;
/// Reserved flags.
const RESERVED_FLAGS: u8 = 0b0111_1100;
/// The compressed length of a frame, and the length of what it holds.
const ENTRY: usize = 8;
/// The most frames in a table.
const MAX_FRAMES: usize = 0x0800_0000;

thread_local! {
    /// A compressor has a megabyte of tables: one per frame would cost more than it saves.
    static COMPRESSOR: RefCell<Option<(i32, Compressor<'static>)>> = const { RefCell::new(None) };
    static DECOMPRESSOR: RefCell<DCtx<'static>> = RefCell::new(DCtx::create());
}

/// The default of the option of a level.
pub fn default_level() -> i32 {
    DEFAULT_LEVEL
}

/// Reads the option of a level.
pub fn level_option<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i32, D::Error> {
    let level = i64::deserialize(deserializer)?;
    let valid = i32::try_from(level).ok().filter(|level| LEVELS.contains(level));
    let (first, last) = (LEVELS.start(), LEVELS.end());
    valid.ok_or_else(|| {
        D::Error::custom(format!("expected a zstd level from {first} to {last}, found {level}"))
    })
}

/// Compresses `plain` to one frame, with content size and checksum.
pub fn compress(plain: &[u8], level: i32) -> io::Result<Vec<u8>> {
    COMPRESSOR.with_borrow_mut(|kept| {
        let compressor = match kept.take() {
            Some((same, compressor)) if same == level => compressor,
            Some((_, compressor)) => with_level(compressor, level)?,
            None => {
                let mut compressor = Compressor::new(level)?;
                compressor.set_parameter(CParameter::ChecksumFlag(true))?;
                with_level(compressor, level)?
            }
        };
        kept.insert((level, compressor)).1.compress(plain)
    })
}

fn with_level(mut compressor: Compressor<'static>, level: i32) -> io::Result<Compressor<'static>> {
    // 0 is zstd's own choice.
    let (hash, chain) = if level == DEFAULT_LEVEL { USUAL_TABLES } else { (0, 0) };
    compressor.set_compression_level(level)?;
    compressor.set_parameter(CParameter::HashLog(hash))?;
    compressor.set_parameter(CParameter::ChainLog(chain))?;
    Ok(compressor)
}

/// The content size a frame declares; `None` if it has none, or is not a frame.
pub fn content_size(frame: &[u8]) -> Option<u64> {
    let is_frame = frame.starts_with(&MAGIC);
    is_frame.then(|| zstd_safe::get_frame_content_size(frame).ok().flatten()).flatten()
}

/// The length of the frame at the start of these bytes; `None` if it is incomplete.
///
/// Walks the block headers; decompresses nothing.
pub fn frame_len(bytes: &[u8]) -> Option<usize> {
    zstd_safe::find_frame_compressed_size(bytes).ok().filter(|len| *len <= bytes.len())
}

/// The largest compressed length of this many bytes.
pub fn compress_bound(plain: u64) -> u64 {
    usize::try_from(plain).map_or(u64::MAX, |plain| zstd_safe::compress_bound(plain) as u64)
}

/// Decompresses a frame that fills `to` exactly.
///
/// `Err` says what is wrong with the frame; the contents of `to` are then undefined.
pub fn decompress(frame: &[u8], to: &mut [u8]) -> Result<(), String> {
    let (want, says) = (to.len() as u64, content_size(frame));
    if says != Some(want) {
        let says = says.map_or("no length".to_owned(), |says| format!("{says} bytes"));
        return Err(format!("expected {want} bytes, found a frame that declares {says}"));
    }
    let held = DECOMPRESSOR.with_borrow_mut(|decompressor| decompressor.decompress(to, frame));
    match held.map_err(zstd_safe::get_error_name) {
        Ok(held) if held as u64 == want => Ok(()),
        Ok(held) => Err(format!("expected {want} bytes, found {held}")),
        Err(what) => Err(what.to_lowercase()),
    }
}

/// A skippable frame that contains `bytes`.
///
/// `Err` if they do not fit into a frame.
pub fn skippable(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let len = u32::try_from(bytes.len()).map_err(io::Error::other)?;
    Ok([&SKIPPABLE[..], &len.to_le_bytes(), bytes].concat())
}

/// The contents of the frame made by [`skippable`] at the start of these bytes.
pub fn skippable_content(frame: &[u8]) -> Option<&[u8]> {
    let rest = frame.strip_prefix(&SKIPPABLE)?;
    let (len, rest) = rest.split_first_chunk()?;
    rest.get(..usize::try_from(u32::from_le_bytes(*len)).ok()?)
}

/// Whether a skippable frame is a seek table, by its magic.
pub fn is_table(frame: &[u8]) -> bool {
    frame.starts_with(&SKIPPABLE) && frame.ends_with(&FOOTER_MAGIC)
}

/// The length of the skippable frame at the start of these bytes, from its eight-byte header;
/// `None` if they are something else.
pub fn skippable_len(bytes: &[u8]) -> Option<u64> {
    let (magic, rest) = bytes.split_first_chunk::<4>()?;
    let (len, _) = rest.split_first_chunk()?;
    let (low, high) = (u32::from_le_bytes(*magic), u32::from_le_bytes(SKIPPABLE));
    (low >> 4 == high >> 4).then(|| SKIPPABLE_HEADER + u64::from(u32::from_le_bytes(*len)))
}

/// The position and lengths of a frame, from the seek table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameSpan {
    /// Its start.
    pub start: u64,
    /// Its compressed length.
    pub compressed_len: u32,
    /// Its decompressed length.
    pub content_len: u32,
    /// The decompressed length of all frames before it.
    pub content_start: u64,
}

impl FrameSpan {
    /// Its end.
    pub fn end(&self) -> u64 {
        self.start + u64::from(self.compressed_len)
    }

    /// The decompressed length of all frames up to it.
    pub fn content_end(&self) -> u64 {
        self.content_start + u64::from(self.content_len)
    }
}

/// The start of a file's seek table; `None` if it has none.
///
/// Reads only the last bytes.
pub fn table_start(log: &mut LogFile) -> Result<Option<u64>, Error> {
    Ok(locate_table(log)?.map(|(start, _)| start))
}

/// The start of a file's seek table, and the length of its entries.
fn locate_table(log: &mut LogFile) -> Result<Option<(u64, usize)>, Error> {
    let Some(len) = log.len() else { return Ok(None) };
    let Some(at) = len.checked_sub(FOOTER) else { return Ok(None) };
    let mut footer = [0; FOOTER as usize];
    let is_whole = log.read_at(at, &mut footer)? == footer.len();
    let [a, b, c, d, flags, magic @ ..] = footer;
    if !is_whole || magic != FOOTER_MAGIC {
        return Ok(None);
    }
    let each = if flags & TABLE_HAS_CHECKSUMS == 0 { ENTRY } else { ENTRY + 4 };
    let frames = u64::from(u32::from_le_bytes([a, b, c, d]));
    let table = SKIPPABLE_HEADER + frames * each as u64 + FOOTER;
    let Some(start) = len.checked_sub(table) else { return Ok(None) };
    let mut header = [0; SKIPPABLE_HEADER as usize];
    let is_whole = log.read_at(start, &mut header)? == header.len();
    let fits = header.starts_with(&SKIPPABLE) && skippable_len(&header) == Some(table);
    Ok((is_whole && fits).then_some((start, each)))
}

/// The frames of a file and the start of its seek table; `None` if there is no table, or it is
/// invalid.
///
/// Reads only the table, not the frames.
pub fn seek_table(log: &mut LogFile) -> Result<Option<(Vec<FrameSpan>, u64)>, Error> {
    let Some((start, each)) = locate_table(log)? else { return Ok(None) };
    // The table lies within the file, so this allocates at most its length.
    let len = log.len().and_then(|len| usize::try_from(len.checked_sub(start)?).ok());
    let mut bytes = vec![0; len.unwrap_or_default()];
    let read = log.read_at(start, &mut bytes)?;
    let spans = if read == bytes.len() { spans(&bytes, each) } else { None };
    let fits = |spans: &Vec<FrameSpan>| spans.last().is_none_or(|last| last.end() <= start);
    Ok(spans.filter(fits).map(|spans| (spans, start)))
}

/// Parses a seek table with entries of this length.
fn spans(table: &[u8], each: usize) -> Option<Vec<FrameSpan>> {
    let (entries, footer) = table.split_last_chunk::<{ FOOTER as usize }>()?;
    let (_, entries) = entries.split_first_chunk::<{ SKIPPABLE_HEADER as usize }>()?;
    if footer[4] & RESERVED_FLAGS != 0 || entries.len() / each > MAX_FRAMES {
        return None;
    }
    let (mut start, mut content_start) = (0, 0);
    let span = |entry: &[u8]| {
        let (packed, rest) = entry.split_first_chunk()?;
        let (packed, plain) = (u32::from_le_bytes(*packed), rest.first_chunk()?);
        let content_len = u32::from_le_bytes(*plain);
        let span = FrameSpan { start, compressed_len: packed, content_len, content_start };
        (start, content_start) = (span.end(), content_start + u64::from(content_len));
        Some(span)
    };
    entries.chunks_exact(each).map(span).collect()
}

/// How the seek table at the end of a file contradicts the headers of its frames. `None` if it does
/// not, or there is none.
///
/// Reads the table, and the first bytes of each frame.
pub fn table_fault(log: &mut LogFile) -> Result<Option<String>, Error> {
    let Some(len) = log.len() else { return Ok(None) };
    let ends_with_magic = |log: &mut LogFile, end: u64| {
        let (mut magic, at) = ([0; FOOTER_MAGIC.len()], end.checked_sub(FOOTER_MAGIC.len() as u64));
        let read = at.map_or(Ok(0), |at| log.read_at(at, &mut magic))?;
        Ok::<_, Error>(read == magic.len() && magic == FOOTER_MAGIC)
    };
    if !ends_with_magic(log, len)? {
        return Ok(None);
    }
    let Some((spans, table)) = seek_table(log)? else {
        return Ok(Some("it cannot be read".to_owned()));
    };
    // Positions count from the start of the file that the table was made for: `cat` may have put
    // others in front of it.
    let base = table - spans.last().map_or(0, FrameSpan::end);
    if base > 0 && !ends_with_magic(log, base)? {
        return Ok(Some(format!("its frames have {} bytes, and the file {table}", table - base)));
    }
    for (number, span) in (1..).zip(&spans) {
        let (start, content_len) = (base + span.start, span.content_len);
        let mut header = [0; LONGEST_HEADER];
        let read = log.read_at(start, &mut header)?;
        if !is_header_of(span, header.get(..read).unwrap_or_default()) {
            return Ok(Some(format!(
                "frame {number}, of {content_len} bytes uncompressed, is not at byte {start}"
            )));
        }
    }
    Ok(None)
}

/// Whether a frame that starts with these bytes may be the one in the table, which may have
/// skippable frames as ones without content.
fn is_header_of(span: &FrameSpan, header: &[u8]) -> bool {
    let (len, content_len) = (u64::from(span.compressed_len), u64::from(span.content_len));
    match skippable_len(header) {
        Some(skipped) => (skipped, 0) == (len, content_len),
        None => header.starts_with(&MAGIC) && content_size(header).is_none_or(|n| n == content_len),
    }
}

/// The seek table of a file that is being written.
#[derive(Clone, Debug, Default)]
pub struct SeekTableBuilder(Vec<u8>);

impl SeekTableBuilder {
    /// Whether it has no frame yet.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The decompressed length of all frames.
    pub fn content_len(&self) -> u64 {
        let (lengths, _) = self.0.as_chunks::<4>();
        lengths.iter().skip(1).step_by(2).map(|len| u64::from(u32::from_le_bytes(*len))).sum()
    }

    /// Adds the next frame, with its compressed and decompressed length.
    pub fn push(&mut self, packed: usize, plain: usize) -> io::Result<()> {
        if self.0.len() / ENTRY >= MAX_FRAMES {
            return Err(io::Error::other("a seek table cannot have more frames"));
        }
        let (packed, plain) = (u32::try_from(packed), u32::try_from(plain));
        let (packed, plain) = (packed.map_err(io::Error::other)?, plain.map_err(io::Error::other)?);
        self.0.extend([packed.to_le_bytes(), plain.to_le_bytes()].as_flattened());
        Ok(())
    }

    /// The table, as written to the end of the file.
    pub fn finish(self) -> Vec<u8> {
        // The maximum number of frames fits into 32 bits.
        let len = (self.0.len() as u64 + FOOTER) as u32;
        let frames = (self.0.len() / ENTRY) as u32;
        let header = [SKIPPABLE, len.to_le_bytes()].concat();
        let footer = [&frames.to_le_bytes()[..], &[0], &FOOTER_MAGIC].concat();
        [header, self.0, footer].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_and_table_are_one_ordinary_compressed_file() {
        let (mut file, mut table) = (Vec::new(), SeekTableBuilder::default());
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
        let (spans, _) = read_table(&file).unwrap();
        assert_eq!((spans.len(), spans.iter().map(|span| span.content_len).sum()), (5, 10_000));
    }

    #[test]
    fn a_flipped_bit_in_a_frame_is_noticed() {
        let plain: Vec<u8> = (0..5000u32).flat_map(|n| (n * n).to_le_bytes()).collect();
        let mut frame = compress(&plain, 3).unwrap();
        for at in 10..frame.len() {
            frame[at] ^= 4;
            let mut found = vec![0; plain.len()];
            let read = decompress(&frame, &mut found);
            // Some bits of a frame have no effect.
            assert!(read.is_err() || found == plain, "byte {at}");
            frame[at] ^= 4;
        }
    }

    #[test]
    fn a_seek_table_is_laid_out_as_zstd_has_it() {
        let mut table = SeekTableBuilder::default();
        table.push(0x0102, 0x03_0405).unwrap();
        table.push(0x0607, 0).unwrap();
        assert!(table.push(1 << 32, 0).is_err());
        assert_eq!(table.content_len(), 0x03_0405);
        let expected = [
            &[0x5e, 0x2a, 0x4d, 0x18, 25, 0, 0, 0][..],
            &[0x02, 0x01, 0, 0, 0x05, 0x04, 0x03, 0],
            &[0x07, 0x06, 0, 0, 0, 0, 0, 0],
            &[2, 0, 0, 0, 0, 0xb1, 0xea, 0x92, 0x8f],
        ];
        assert_eq!(table.finish(), expected.concat());
    }

    fn seekable(frames: u8) -> Vec<u8> {
        let (mut file, mut table) = (Vec::new(), SeekTableBuilder::default());
        for n in 0..frames {
            let frame = compress(&[n; 100], 3).unwrap();
            table.push(frame.len(), 100).unwrap();
            file.extend(frame);
        }
        file.extend(table.finish());
        file
    }

    fn read_table(bytes: &[u8]) -> Option<(Vec<FrameSpan>, u64)> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        seek_table(&mut LogFile::open_plain(file.path()).unwrap()).unwrap()
    }

    #[test]
    fn a_seek_table_tells_where_frames_lie() {
        for frames in [0, 1, 5] {
            let file = seekable(frames);
            let (spans, start) = read_table(&file).unwrap();
            assert_eq!(spans.len(), usize::from(frames));
            for (n, span) in spans.iter().enumerate() {
                let frame = &file[span.start as usize..span.end() as usize];
                let mut plain = vec![0; span.content_len as usize];
                decompress(frame, &mut plain).unwrap();
                assert_eq!((plain, frame_len(frame)), (vec![n as u8; 100], Some(frame.len())));
                assert_eq!(span.content_start, n as u64 * 100);
            }
            assert_eq!(spans.last().map_or(0, FrameSpan::end), start);
        }
    }

    #[test]
    fn an_invalid_seek_table_is_none() {
        let good = seekable(3);
        let len = good.len();
        let patched = |at: usize, bytes: &[u8]| {
            let mut file = good.clone();
            file[at..at + bytes.len()].copy_from_slice(bytes);
            read_table(&file)
        };
        assert!(patched(0, &[0]).is_some(), "frames are not looked at");
        // The number of frames, the flags, the magic, the length, and a frame as long as can be.
        for (at, bytes) in [
            (len - 9, &[0xff; 4][..]),
            (len - 9, &[2, 0, 0, 0]),
            (len - 5, &[0x80]),
            (len - 5, &[0x04]),
            (len - 1, &[0]),
            (len - 37, &[1]),
            (len - 33, &[0xff; 4]),
        ] {
            assert_eq!(patched(at, bytes), None, "{at}");
        }
        for cut in 0..len {
            assert_eq!(read_table(&good[..cut]), None, "{cut}");
        }
    }

    fn fault(bytes: &[u8]) -> Option<String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        table_fault(&mut LogFile::open_plain(file.path()).unwrap()).unwrap()
    }

    #[test]
    fn any_wrong_byte_of_a_seek_table_contradicts_the_frames() {
        let good = seekable(3);
        let (_, table) = read_table(&good).unwrap();
        // Behind another file, too.
        for front in [vec![], seekable(2)] {
            for at in table as usize..good.len() - FOOTER_MAGIC.len() {
                let mut bad = good.clone();
                bad[at] ^= 1;
                let fault = fault(&[&front[..], &bad].concat());
                // This is not a reserved flag.
                assert_eq!(fault.is_none(), at == good.len() - 5, "{at}: {fault:?}");
            }
        }
        // Sound, without a table, a frame that the table does not have, and one that is missing.
        assert_eq!((fault(&good), fault(&good[..table as usize])), (None, None));
        let frame = frame_len(&good).unwrap();
        assert!(fault(&[&good[..frame], &good].concat()).unwrap().contains("its frames have"));
        assert!(fault(&good[frame..]).unwrap().contains("cannot be read"));
    }

    #[test]
    fn a_seek_table_may_have_skippable_frames() {
        let (frame, skipped) = (compress(&[7; 100], 3).unwrap(), skippable(b"index").unwrap());
        for (content_len, is_right) in [(0, true), (5, false)] {
            let mut table = SeekTableBuilder::default();
            table.push(skipped.len(), content_len).unwrap();
            table.push(frame.len(), 100).unwrap();
            let fault = fault(&[&skipped[..], &frame, &table.finish()].concat());
            assert_eq!(fault.is_none(), is_right, "{fault:?}");
        }
    }

    #[test]
    fn a_frame_never_decompresses_to_another_length() {
        let frame = compress(&[7; 1000], 3).unwrap();
        for due in [0, 999, 1001] {
            assert!(decompress(&frame, &mut vec![0; due]).unwrap_err().contains("1000 bytes"));
        }
        let twice = [frame.clone(), frame].concat();
        assert!(decompress(&twice, &mut [0; 1000]).is_err());
        assert!(decompress(b"no frame", &mut []).unwrap_err().contains("no length"));
    }

    #[test]
    fn what_was_skipped_comes_back() {
        let frame = [skippable(b"index").unwrap(), b"more".to_vec()].concat();
        assert_eq!(skippable_content(&frame), Some(&b"index"[..]));
        assert_eq!(skippable_content(&frame[..10]), None);
        assert_eq!(skippable_content(b"PAR1"), None);
        assert_eq!((skippable_len(&frame), skippable_len(b"PAR1....")), (Some(13), None));
    }
}
