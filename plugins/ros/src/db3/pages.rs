//! The pages of a SQLite database. Knows nothing of what is on them.

#![warn(clippy::indexing_slicing)]

use std::collections::BTreeSet;
use std::sync::Arc;

use sluice_io::files::{InputFiles, LogFile};
use sluice_model::Error;

use super::overlay::{Database, Overlay, changed};
use super::window::Window;

/// How every SQLite file begins.
pub(crate) const MAGIC: &[u8] = b"SQLite format 3\0";
/// The length of the header, which precedes the contents of the first page.
pub(crate) const HEADER: usize = 100;

/// The pages of a database, numbered from 1: those of its file, unless a file beside it has others
/// in their place.
pub(crate) struct Pages {
    file: Window,
    /// What is over the file: each over those before it.
    overlays: Vec<(Arc<Overlay>, Window)>,
    size: usize,
    /// The bytes of a page without those that are reserved at its end.
    usable: usize,
    /// The number of pages of the database, and of whole ones in the file.
    count: u32,
    count_in_file: u32,
    /// The number of pages that the header or a file beside it claims.
    claimed: u32,
    /// The first page of the list of those that are free, or 0, and how many there are.
    free: (u32, u32),
}

/// Where a page lies.
pub(crate) struct Place {
    /// The file that has it, and the length of that.
    pub(crate) input: Arc<str>,
    pub(crate) len: u64,
    pub(crate) at: u64,
}

/// Whether the header of a database says that its texts are in UTF-16.
pub(super) fn has_utf16(header: &[u8]) -> bool {
    u32_at(header, 56).is_some_and(|encoding| encoding > 1)
}

impl Pages {
    /// Reads the header of a database.
    pub(crate) fn open(
        log: LogFile,
        mut overlays: Vec<(Arc<Overlay>, Window)>,
    ) -> Result<Self, Error> {
        let mut file = Window::open(log)?;
        let path = Arc::clone(&file.input);
        let database = overlays.iter().rev().find_map(|(overlay, _)| overlay.database());
        let pages_beside = database.map(|database| database.pages);
        if pages_beside == Some(0) {
            let what = "no bag: its recording was interrupted in the first transaction";
            return Err(Error::malformed(&*path, 0, what));
        }
        let first = match topmost(&mut overlays, 1) {
            Some((overlay, at, window)) => overlay.page(window, 1, at)?,
            None => file.reread(0, HEADER)?,
        };
        let header: [u8; HEADER] = first.first_chunk().copied().unwrap_or([0; HEADER]);
        let wrong = |at, what: &str| Err(Error::malformed(&*path, at, what));
        if !header.starts_with(MAGIC) {
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
        let is_other = |database: &Database| database.page_size != size;
        let other = overlays.iter().find_map(|(overlay, window)| {
            Some((overlay.database().filter(is_other)?.page_size, &window.input))
        });
        if let Some((other, beside)) = other {
            let what = format!(
                "pages have {size} bytes, but {other} in the file beside it, which is of another \
                 database: move it away: {beside}"
            );
            return Err(Error::malformed(&*path, 16, what));
        }
        if has_utf16(&header) {
            return wrong(
                56,
                "texts are in UTF-16, which recorders of ROS 2 do not write; copy it into a \
                 database in UTF-8: `sqlite3 BAG.db3 .dump | sqlite3 COPY.db3`",
            );
        }
        let count_in_file = u32::try_from(file.len / size as u64).unwrap_or(u32::MAX - 1);
        // The number of pages is valid if it was written by the last program that changed the file.
        let claimed = pages_beside.unwrap_or(match u32_at(&header, 24) == u32_at(&header, 92) {
            true => u32_at(&header, 28).unwrap_or_default(),
            false => 0,
        });
        let [first_free, free] = [32, 36].map(|at| u32_at(&header, at).unwrap_or_default());
        Ok(Self {
            file,
            overlays,
            size,
            usable: size - reserved,
            count: pages_beside.unwrap_or(count_in_file),
            count_in_file,
            claimed,
            free: (first_free, free),
        })
    }

    /// What is over the file, and the files that have it.
    pub(crate) fn overlays(&self) -> impl Iterator<Item = (&Overlay, &Window)> {
        self.overlays.iter().map(|(overlay, window)| (&**overlay, window))
    }

    /// The length of a page.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// The bytes of a page without those that are reserved at its end.
    pub(crate) fn usable(&self) -> usize {
        self.usable
    }

    /// The number of pages of the database.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Whether there is such a page.
    pub(crate) fn has(&self, page: u32) -> bool {
        let is_over = || self.overlays.iter().any(|(overlay, _)| overlay.place(page).is_some());
        (1..=self.count).contains(&page) && (page <= self.count_in_file || is_over())
    }

    /// How many pages there are at most, whatever number the database claims.
    pub(crate) fn present(&self) -> u64 {
        u64::from(self.count.min(self.count_in_file)) + self.behind_file().count() as u64
    }

    /// All pages that there are.
    pub(crate) fn all(&self) -> impl Iterator<Item = u32> + use<> {
        let behind: BTreeSet<u32> = self.behind_file().collect();
        (1..=self.count.min(self.count_in_file)).chain(behind)
    }

    /// The pages behind those of the file, in any order.
    fn behind_file(&self) -> impl Iterator<Item = u32> {
        let over = self.overlays.iter().flat_map(|(overlay, _)| overlay.pages());
        over.filter(|page| *page > self.count_in_file && *page <= self.count)
    }

    /// The first page of the list of those that are free, or 0, and how many there are.
    pub(crate) fn free(&self) -> (u32, u32) {
        self.free
    }

    /// How many bytes were read since the last call.
    pub(crate) fn take_read(&mut self) -> u64 {
        let windows = self.overlays.iter_mut().map(|(_, window)| window);
        windows.chain([&mut self.file]).map(Window::take_read).sum()
    }

    /// How many of the pages that there should be are nowhere.
    pub(crate) fn missing(&self) -> Option<u32> {
        // What is added meanwhile is not missing.
        let is_cut = self.file.log.is_shorter_than(u64::from(self.claimed) * self.size as u64);
        let behind = self.claimed.checked_sub(self.count_in_file).filter(|_| is_cut)?;
        let lock_page = lock_page(self.size);
        // SQLite never writes it.
        let unused = u32::from(lock_page > self.count_in_file && lock_page <= self.claimed);
        let missing = behind.saturating_sub(self.behind_file().count() as u32 + unused);
        (missing > 0).then_some(missing)
    }

    /// The end of the file.
    pub(crate) fn end(&self) -> Place {
        Place { input: Arc::clone(&self.file.input), len: self.file.len, at: self.file.len }
    }

    /// Where a page lies.
    pub(crate) fn place(&mut self, page: u32) -> Place {
        let in_file = u64::from(page).saturating_sub(1) * self.size as u64;
        let over = topmost(&mut self.overlays, page).map(|(_, at, window)| (window, at));
        let (Window { input, len, .. }, at) = over.unwrap_or((&mut self.file, in_file));
        Place { input: Arc::clone(input), len: *len, at }
    }

    /// The usable bytes of a page; `None` if there is no such page.
    pub(crate) fn page(&mut self, page: u32) -> Result<Option<&[u8]>, Error> {
        if page == 0 || page > self.count {
            return Ok(None);
        }
        let found = match topmost(&mut self.overlays, page) {
            Some((overlay, at, window)) => Some(overlay.page(window, page, at)?),
            None if page > self.count_in_file => None,
            None => self.file.get(u64::from(page - 1) * self.size as u64, self.size)?,
        };
        Ok(found.and_then(|page| page.get(..self.usable)))
    }

    /// `Err` if a file beside that of the database was begun again since it was opened, or the run
    /// has noted the database and it was written to: what was read may be of two states.
    pub(crate) fn check_unchanged(&mut self, inputs: &InputFiles) -> Result<(), Error> {
        if !self.overlays.is_empty() && inputs.change(self.file.log.path())?.is_some() {
            return Err(changed(&self.file.input));
        }
        let mut overlays = self.overlays.iter_mut();
        overlays.try_for_each(|(overlay, window)| overlay.check_unchanged(window, inputs))
    }

    /// Whether to read no further.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.file.is_cancelled()
    }
}

/// What has a page, and where, if anything over the file of the database does.
fn topmost(
    overlays: &mut [(Arc<Overlay>, Window)],
    page: u32,
) -> Option<(&Overlay, u64, &mut Window)> {
    let mut over = overlays.iter_mut().rev();
    over.find_map(|(overlay, window)| Some((&**overlay, overlay.place(page)?, window)))
}

/// The page with the bytes that programs lock, which has no contents.
pub(crate) fn lock_page(page_size: usize) -> u32 {
    ((1 << 30) / page_size + 1) as u32
}

/// The number at a place, if there are as many bytes.
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The number at a place, if there are as many bytes.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The pages of a part of a [`PageSet`].
const PART: usize = 4096;

/// A set of pages. Takes memory for the parts only in which it has some: numbers may be hostile.
#[derive(Debug, Default)]
pub(crate) struct PageSet(Vec<Option<Box<[u64; PART / 64]>>>);

impl PageSet {
    pub(crate) fn contains(&self, page: u32) -> bool {
        let part = self.0.get(page as usize / PART).and_then(Option::as_ref);
        let word = part.and_then(|part| part.get(page as usize % PART / 64));
        word.is_some_and(|word| word & (1 << (page % 64)) != 0)
    }

    /// Adds a page; returns whether it was not in the set.
    pub(crate) fn insert(&mut self, page: u32) -> bool {
        let is_new = !self.contains(page);
        let part = page as usize / PART;
        if part >= self.0.len() {
            self.0.resize_with(part + 1, || None);
        }
        let part = self.0.get_mut(part).map(|part| part.get_or_insert_with(|| Box::new([0; _])));
        if let Some(word) = part.and_then(|part| part.get_mut(page as usize % PART / 64)) {
            *word |= 1 << (page % 64);
        }
        is_new
    }
}

#[cfg(test)]
#[expect(clippy::indexing_slicing)]
mod tests {
    use super::*;

    #[test]
    fn the_page_that_programs_lock_is_not_missing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log.db3");
        let lock_page = lock_page(1 << 16);
        let missing = |pages: u32| {
            let mut header = [MAGIC, &[0; HEADER - MAGIC.len()]].concat();
            header[17] = 1;
            header[28..32].copy_from_slice(&(lock_page + 1).to_be_bytes());
            std::fs::write(&path, header).unwrap();
            let file = std::fs::File::options().write(true).open(&path).unwrap();
            file.set_len(u64::from(pages) << 16).unwrap();
            Pages::open(LogFile::open(&path).unwrap(), Vec::new()).unwrap().missing()
        };
        let counts = [1, 0, 2].map(|less| missing(lock_page + 1 - less));
        assert_eq!(counts, [Some(1), None, Some(1)]);
    }

    #[test]
    fn a_set_has_the_pages_that_were_added() {
        let mut set = PageSet::default();
        let pages = [0, 1, 63, 64, 4095, 4096, 1 << 20, u32::MAX];
        for page in pages {
            assert!(!set.contains(page) && set.insert(page) && !set.insert(page), "{page}");
        }
        let contained = (0..10_000).filter(|page| set.contains(*page));
        assert_eq!(contained.collect::<Vec<_>>(), pages[..6]);
        assert!(set.contains(u32::MAX) && !set.contains(u32::MAX - 1));
    }
}
