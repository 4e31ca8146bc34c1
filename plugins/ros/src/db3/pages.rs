//! The pages of a SQLite file. Knows nothing of what is on them.

#![warn(clippy::indexing_slicing)]

use sluice_io::files::LogFile;
use sluice_model::Error;

/// How every SQLite file begins.
pub(crate) const MAGIC: &[u8] = b"SQLite format 3\0";
/// The length of the header, which precedes the contents of the first page.
pub(crate) const HEADER: usize = 100;
/// The bytes that are read at once: behind what was read before, and elsewhere.
const NEXT: usize = 1 << 20;
const ELSEWHERE: usize = 64 << 10;

/// The pages of an open file, numbered from 1.
pub(crate) struct Pages {
    log: LogFile,
    /// The length of the file.
    len: u64,
    size: usize,
    /// The bytes of a page without those that are reserved at its end.
    usable: usize,
    /// The number of whole pages that the file has.
    count: u32,
    /// The number of pages that the header claims.
    claimed: u32,
    /// The first page of the list of those that are free, or 0, and how many there are.
    free: (u32, u32),
    window: Vec<u8>,
    window_at: u64,
    /// How much was read.
    read: u64,
}

impl Pages {
    /// Reads the header of a file.
    pub(crate) fn open(mut log: LogFile) -> Result<Self, Error> {
        let path = log.path().to_string_lossy().into_owned();
        let len = log.len().filter(|_| log.is_seekable());
        let len = len.ok_or_else(|| {
            Error::refused(format!(
                "a SQLite file is read at many places, so it cannot be a pipe or compressed; \
                 decompress it first: {path}"
            ))
        })?;
        let mut header = [0; HEADER];
        let found = log.read_at(0, &mut header)?;
        let wrong = |at, what: &str| Err(Error::malformed(path.as_str(), at, what));
        if found < HEADER || !header.starts_with(MAGIC) {
            return wrong(0, "no SQLite file: its header is missing");
        }
        let size = match u16_at(&header, 16).unwrap_or_default() {
            1 => 1 << 16,
            size => usize::from(size),
        };
        let reserved = usize::from(header.get(20).copied().unwrap_or_default());
        if !size.is_power_of_two() || size < 512 || size < reserved + 480 {
            return wrong(
                16,
                "the header has no valid size of pages; restore the file's first page",
            );
        }
        if u32_at(&header, 56).is_some_and(|encoding| encoding > 1) {
            return wrong(56, "texts are in UTF-16, which recorders of ROS 2 do not write");
        }
        let count = u32::try_from(len / size as u64).unwrap_or(u32::MAX - 1);
        // The number of pages is valid if it was written by the last program that changed the file.
        let claimed = match u32_at(&header, 24) == u32_at(&header, 92) {
            true => u32_at(&header, 28).unwrap_or_default(),
            false => 0,
        };
        let [first_free, free] = [32, 36].map(|at| u32_at(&header, at).unwrap_or_default());
        let (window, window_at, read) = (Vec::new(), 0, 0);
        let usable = size - reserved;
        Ok(Self {
            log,
            len,
            size,
            usable,
            count,
            claimed,
            free: (first_free, free),
            window,
            window_at,
            read,
        })
    }

    /// The length of the file.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// The length of a page.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// The bytes of a page without those that are reserved at its end.
    pub(crate) fn usable(&self) -> usize {
        self.usable
    }

    /// The number of whole pages that the file has.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// The first page of the list of those that are free, or 0, and how many there are.
    pub(crate) fn free(&self) -> (u32, u32) {
        self.free
    }

    /// How many bytes were read since the last call.
    pub(crate) fn take_read(&mut self) -> u64 {
        std::mem::take(&mut self.read)
    }

    /// How many pages the header claims beyond those of the file, and where the file ends.
    pub(crate) fn missing(&self) -> Option<(u32, u64)> {
        // What is added meanwhile is not missing.
        let is_cut = self.log.is_shorter_than(u64::from(self.claimed) * self.size as u64);
        let missing = self.claimed.checked_sub(self.count).filter(|missing| *missing > 0 && is_cut);
        Some((missing?, self.len))
    }

    /// Where a page begins.
    pub(crate) fn offset(&self, page: u32) -> u64 {
        u64::from(page).saturating_sub(1) * self.size as u64
    }

    /// The usable bytes of a page; `None` if the file has no such page.
    pub(crate) fn page(&mut self, page: u32) -> Result<Option<&[u8]>, Error> {
        if page == 0 || page > self.count {
            return Ok(None);
        }
        let at = self.offset(page);
        let window_end = self.window_at + self.window.len() as u64;
        if at < self.window_at || at + self.size as u64 > window_end {
            let len = if at == window_end { NEXT } else { ELSEWHERE.max(self.size) };
            self.window.resize(len, 0);
            self.window_at = at;
            let found = self.log.read_at(at, &mut self.window)?;
            self.window.truncate(found);
            self.read += found as u64;
        }
        let from = (at - self.window_at) as usize;
        Ok(self.window.get(from..from + self.usable))
    }

    /// Whether to read no further.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.log.is_cancelled()
    }
}

/// The number at a place, if there are as many bytes.
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The number at a place, if there are as many bytes.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// A set of pages.
#[derive(Debug)]
pub(crate) struct PageSet(Vec<u64>);

impl PageSet {
    pub(crate) fn new(count: u32) -> Self {
        Self(vec![0; count as usize / 64 + 1])
    }

    pub(crate) fn contains(&self, page: u32) -> bool {
        self.0.get(page as usize / 64).is_some_and(|word| word & (1 << (page % 64)) != 0)
    }

    /// Adds a page; returns whether it was not in the set.
    pub(crate) fn insert(&mut self, page: u32) -> bool {
        let is_new = !self.contains(page);
        if let Some(word) = self.0.get_mut(page as usize / 64) {
            *word |= 1 << (page % 64);
        }
        is_new
    }
}
