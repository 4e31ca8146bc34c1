//! Frames: compressed pieces that make up a seekable zstd file. Knows nothing of events.
//!
//! A file of independent frames, each with a checksum, is an ordinary zstd file: `zstd -d`
//! decompresses it. A seek table at its end, in a skippable frame, lists where each frame starts.

use std::cell::RefCell;
use std::io;
use std::ops::Range;

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
/// The entries of a table that are read at a time, if it is not kept.
const ENTRIES_AT_ONCE: usize = 4096;
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
        let (compressed_len, content_len) = entry_lengths(entry)?;
        let span = FrameSpan { start, compressed_len, content_len, content_start };
        (start, content_start) = (span.end(), content_start + u64::from(content_len));
        Some(span)
    };
    entries.chunks_exact(each).map(span).collect()
}

/// The compressed length of a frame, and the length of what it holds.
fn entry_lengths(entry: &[u8]) -> Option<(u32, u32)> {
    let (packed, rest) = entry.split_first_chunk()?;
    Some((u32::from_le_bytes(*packed), u32::from_le_bytes(*rest.first_chunk()?)))
}

/// How the seek table at the end of a file contradicts the headers of its frames. `None` if it does
/// not, or there is none.
///
/// Reads the table twice, in pieces, and the first bytes of each frame up to one that it
/// contradicts. A damaged frame contradicts a right table, too.
pub fn table_fault(log: &mut LogFile) -> Result<Option<String>, Error> {
    let Some(len) = log.len() else { return Ok(None) };
    let Some(entries_end) = len.checked_sub(FOOTER) else { return Ok(None) };
    let mut footer = [0; FOOTER as usize];
    let is_whole = log.read_at(entries_end, &mut footer)? == footer.len();
    if !is_whole || !footer.ends_with(&FOOTER_MAGIC) {
        return Ok(None);
    }
    let table = locate_table(log)?.filter(|_| footer[4] & RESERVED_FLAGS == 0);
    let Some((table, each)) = table else {
        return Ok(Some("it cannot be read".to_owned()));
    };
    let (entries, mut frames_len) = (table + SKIPPABLE_HEADER..entries_end, 0);
    fault_in_entries(log, entries.clone(), each, |_, (packed, _)| {
        frames_len += u64::from(packed);
        Ok(None)
    })?;
    // The frames end where the table begins. `cat` may have put other files in front of them.
    let Some(mut start) = table.checked_sub(frames_len) else {
        return Ok(Some(format!("its frames have {frames_len} bytes, and the file {table}")));
    };
    let mut number = 0u64;
    fault_in_entries(log, entries, each, |log, (packed, content_len)| {
        let mut header = [0; LONGEST_HEADER];
        let read = log.read_at(start, &mut header)?;
        number += 1;
        if !is_header_of(packed, content_len, header.get(..read).unwrap_or_default()) {
            return Ok(Some(format!(
                "frame {number}, of {content_len} bytes uncompressed, is not at byte {start}"
            )));
        }
        start += u64::from(packed);
        Ok(None)
    })
}

/// The first fault that `find` finds in the lengths of an entry. A file that became shorter ends
/// early.
fn fault_in_entries(
    log: &mut LogFile,
    mut entries: Range<u64>,
    each: usize,
    mut find: impl FnMut(&mut LogFile, (u32, u32)) -> Result<Option<String>, Error>,
) -> Result<Option<String>, Error> {
    let mut piece = vec![0; each * ENTRIES_AT_ONCE];
    while !entries.is_empty() {
        let read = log.read_at(entries.start, &mut piece)? as u64;
        let len = read.min(entries.end - entries.start) as usize;
        for entry in piece.get(..len).unwrap_or_default().chunks_exact(each) {
            let Some(lengths) = entry_lengths(entry) else { continue };
            let fault = find(log, lengths)?;
            if fault.is_some() {
                return Ok(fault);
            }
        }
        entries.start += piece.len() as u64;
    }
    Ok(None)
}

/// Whether a frame that starts with these bytes may be the one in the table, which may have
/// skippable frames as ones without content.
fn is_header_of(packed: u32, content_len: u32, header: &[u8]) -> bool {
    let (len, content_len) = (u64::from(packed), u64::from(content_len));
    match skippable_len(header) {
        Some(skipped) => (skipped, 0) == (len, content_len),
        None => {
            let is_right_len = content_size(header).is_none_or(|size| size == content_len);
            len > 0 && header.starts_with(&MAGIC) && is_right_len
        }
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
mod tests;
