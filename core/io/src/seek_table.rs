//! The seek table at the end of a seekable zstd file: where each of its frames is. Decompresses
//! nothing.

use std::io;
use std::ops::Range;

use crate::Error;
use crate::files::LogFile;
use crate::frames::{
    LONGEST_HEADER, MAGIC, SKIPPABLE, SKIPPABLE_HEADER, content_size, skippable_len,
};

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
pub fn start(log: &mut LogFile) -> Result<Option<u64>, Error> {
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
pub fn read(log: &mut LogFile) -> Result<Option<(Vec<FrameSpan>, u64)>, Error> {
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

/// Whether a skippable frame is a seek table, by its magic.
pub fn is_table(frame: &[u8]) -> bool {
    frame.starts_with(&SKIPPABLE) && frame.ends_with(&FOOTER_MAGIC)
}

/// How the seek table at the end of a file contradicts the headers of its frames. `None` if it does
/// not, or there is none.
///
/// Reads the table twice, in pieces, and the first bytes of each frame up to one that it
/// contradicts. A damaged frame contradicts a right table, too.
pub fn fault(log: &mut LogFile) -> Result<Option<String>, Error> {
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
