//! The write-ahead log of a SQLite database: frames of a page each, of which those of complete
//! transactions count. Changes nothing.

#![warn(clippy::indexing_slicing)]

use std::collections::HashMap;

use sluice_model::Error;

use super::overlay::{
    Database, FRAME_HEAD, Format, INCOMPLETE, Overlay, check_count, is_page_size,
};
use super::pages::u32_at;
use super::window::Window;

/// How logs begin: the last bit tells the byte order of the words that checksums are of.
const MAGIC: u32 = 0x377f_0682;
/// The version of the format.
const VERSION: u32 = 3_007_000;
const HEADER: usize = 32;

/// Whether this is the beginning of a log.
pub(crate) fn is_wal(head: &[u8]) -> bool {
    u32_at(head, 0).is_some_and(|magic| magic & !1 == MAGIC) && u32_at(head, 4) == Some(VERSION)
}

/// Whether this is the beginning of the index of a log: twice the same, in the byte order of the
/// computer.
pub(crate) fn is_index(head: &[u8]) -> bool {
    let is_twice = head.get(..48).is_some_and(|first| head.get(48..96) == Some(first));
    is_twice && head.starts_with(&VERSION.to_ne_bytes())
}

/// A checksum, which goes on from frame to frame.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Checksum(u32, u32);

impl Checksum {
    fn at(bytes: &[u8], at: usize) -> Option<Self> {
        Some(Self(u32_at(bytes, at)?, u32_at(bytes, at + 4)?))
    }

    fn of(self, bytes: &[u8], is_big_endian: bool) -> Self {
        let word = if is_big_endian { u32::from_be_bytes } else { u32::from_le_bytes };
        let Self(mut first, mut second) = self;
        for [a, b, c, d, e, f, g, h] in bytes.as_chunks().0 {
            first = first.wrapping_add(word([*a, *b, *c, *d])).wrapping_add(second);
            second = second.wrapping_add(word([*e, *f, *g, *h])).wrapping_add(first);
        }
        Self(first, second)
    }
}

/// The header of a log.
struct Header {
    page_size: usize,
    is_big_endian: bool,
    salts: [u8; 8],
    checksum: Checksum,
}

impl Header {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let (magic, size) = (u32_at(bytes, 0)?, u32_at(bytes, 8)?);
        let (salts, is_big_endian) = (*bytes.get(16..)?.first_chunk()?, magic & 1 == 1);
        let checksum = Checksum(0, 0).of(bytes.get(..24)?, is_big_endian);
        let is_valid =
            is_wal(bytes) && is_page_size(size) && Checksum::at(bytes, 24) == Some(checksum);
        is_valid.then_some(Self { page_size: size as usize, is_big_endian, salts, checksum })
    }
}

/// A frame.
struct Frame<'b> {
    page: u32,
    /// The pages that the database has if a transaction is complete with this frame, or 0.
    pages: u32,
    checksum: Checksum,
    /// What the checksum is of.
    head: &'b [u8],
    content: &'b [u8],
}

impl<'b> Frame<'b> {
    /// `None` if it is of an earlier use of the file, or nothing.
    fn parse(bytes: &'b [u8], salts: &[u8; 8]) -> Option<Self> {
        let (head, content) = bytes.split_at_checked(FRAME_HEAD)?;
        let (page, pages) = (u32_at(head, 0)?, u32_at(head, 4)?);
        let checksum = Checksum::at(head, 16)?;
        let frame = Self { page, pages, checksum, head: head.get(..8)?, content };
        (page > 0 && head.get(8..16)? == salts).then_some(frame)
    }

    /// Whether its checksum goes on from that of the frame before.
    fn follows(&self, before: Checksum, is_big_endian: bool) -> bool {
        before.of(self.head, is_big_endian).of(self.content, is_big_endian) == self.checksum
    }
}

/// Reads which pages a log has. What is behind its first wrong frame counts for nothing, as SQLite
/// has it; it is damage if complete transactions are there.
pub(crate) fn read(file: &mut Window) -> Result<Overlay, Error> {
    let (len, name) = (file.len, file.input.clone());
    let Some(start) = file.get(0, HEADER)?.map(<[u8]>::to_vec) else {
        // The header is what is written first.
        return Ok(Overlay::empty(Format::Wal([0; 8]), &[]));
    };
    let Some(header) = Header::parse(&start) else {
        let why = "the header of the write-ahead log is damaged: nothing of it is read";
        let mut overlay = Overlay::empty(Format::Wal([0; 8]), &start);
        overlay.damage = Some((0, len, why.to_owned()));
        return Ok(overlay);
    };
    let mut overlay = Overlay::empty(Format::Wal(header.salts), &start);
    let mut scan = Scan::new(&header);
    let stride = FRAME_HEAD + header.page_size;
    let mut at = HEADER as u64;
    while let Some(bytes) = file.get(at, stride)? {
        scan.add(Frame::parse(bytes, &header.salts), at);
        check_count(scan.incomplete.len(), &name)?;
        if let Some(pages) = scan.complete.take() {
            overlay.add(std::mem::take(&mut scan.incomplete), &name)?;
            overlay.set_database(Database { page_size: header.page_size, pages });
        }
        at += stride as u64;
        if file.is_cancelled() {
            break;
        }
    }
    let cut_off = file.get(at, FRAME_HEAD)?;
    let is_cut_off = cut_off.is_some_and(|head| Frame::parse(head, &header.salts).is_some());
    let is_grown = scan.is_right_now(file)?;
    if let Some((from, to, count)) = scan.lost.filter(|_| !is_grown) {
        let why = format!(
            "the write-ahead log is damaged: {count} complete transactions from there on are not \
             read"
        );
        overlay.damage = Some((from, to - from, why));
    } else if scan.is_left_out || !scan.incomplete.is_empty() || is_cut_off {
        overlay.note = Some(INCOMPLETE);
    }
    Ok(overlay)
}

/// What was found so far.
struct Scan<'h> {
    header: &'h Header,
    /// The checksum of the frame before, unless that is none of this use of the file.
    before: Option<Checksum>,
    /// The pages of the transaction that is not complete yet. They are distinct: memory does not
    /// grow with how often they were written.
    incomplete: HashMap<u32, u64>,
    /// The number of pages of the database, if a transaction is complete.
    complete: Option<u32>,
    /// Where the first wrong frame is, and the checksum of the frame before.
    wrong: Option<(u64, Checksum)>,
    /// Whether frames of this use of the file come from there on.
    is_left_out: bool,
    /// Where complete transactions are left out, and how many.
    lost: Option<(u64, u64, u64)>,
}

impl<'h> Scan<'h> {
    fn new(header: &'h Header) -> Self {
        Self {
            header,
            before: Some(header.checksum),
            incomplete: HashMap::new(),
            complete: None,
            wrong: None,
            is_left_out: false,
            lost: None,
        }
    }

    /// Whether the first wrong frame is right now: then the log is not damaged, but has grown.
    fn is_right_now(&self, file: &mut Window) -> Result<bool, Error> {
        let Some((at, before)) = self.wrong else { return Ok(false) };
        let bytes = file.reread(at, FRAME_HEAD + self.header.page_size)?;
        let frame = Frame::parse(bytes, &self.header.salts);
        Ok(frame.is_some_and(|frame| frame.follows(before, self.header.is_big_endian)))
    }

    fn add(&mut self, frame: Option<Frame<'_>>, at: u64) {
        let before = self.before;
        self.before = frame.as_ref().map(|frame| frame.checksum);
        let wrong = before.map(|before| (at, before));
        let Some(frame) = frame else {
            self.wrong = self.wrong.or(wrong);
            return;
        };
        let is_big_endian = self.header.is_big_endian;
        let follows = before.is_some_and(|before| frame.follows(before, is_big_endian));
        match self.wrong {
            None if follows => {
                self.incomplete.insert(frame.page, at + FRAME_HEAD as u64);
                self.complete = (frame.pages > 0).then_some(frame.pages);
            }
            None => {
                self.wrong = wrong;
                self.is_left_out = true;
            }
            Some((wrong_at, _)) => {
                self.is_left_out = true;
                if follows && frame.pages > 0 {
                    let end = at + (FRAME_HEAD + self.header.page_size) as u64;
                    let count = self.lost.map_or(0, |(.., count)| count) + 1;
                    self.lost = Some((wrong_at, end, count));
                }
            }
        }
    }
}

#[cfg(test)]
#[expect(clippy::indexing_slicing)]
mod tests {
    use sluice_io::files::LogFile;

    use super::*;

    #[test]
    fn a_log_that_grows_while_it_is_read_is_not_damaged() {
        let log = include_bytes!("../../testdata/db3-interrupted/log.db3-wal");
        let header = Header::parse(log).unwrap();
        let stride = FRAME_HEAD + header.page_size;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log.db3-wal");
        for (is_grown, is_damaged) in [(true, false), (false, true)] {
            let mut now = log.to_vec();
            if !is_grown {
                now[HEADER + 2 * stride + 40] ^= 1;
            }
            std::fs::write(&path, now).unwrap();
            let mut file = Window::open(LogFile::open(&path).unwrap()).unwrap();
            let mut scan = Scan::new(&header);
            for (number, frame) in log[HEADER..].chunks_exact(stride).enumerate() {
                // As it was before it was written.
                let frame = if number == 2 { &[0; 24 + 512] } else { frame };
                let at = HEADER + number * stride;
                scan.add(Frame::parse(frame, &header.salts), at as u64);
            }
            assert!(scan.lost.is_some());
            assert_eq!(!scan.is_right_now(&mut file).unwrap(), is_damaged);
        }
    }

    #[test]
    fn checksums_are_of_words_in_either_order() {
        let bytes = [1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0];
        let swapped = [0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4];
        // 1, then 2 + 1; 1 + 3 + 3, then 3 + 4 + 7.
        for (bytes, is_big_endian) in [(bytes, false), (swapped, true)] {
            let found = Checksum(0, 0).of(&bytes, is_big_endian);
            assert_eq!((found.0, found.1), (7, 14));
        }
    }
}
