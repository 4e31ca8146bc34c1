//! What SQLite leaves beside a database whose writer was interrupted, or is at work: pages that
//! take the place of those of its file. Knows nothing of what is on them, and changes no file.

#![warn(clippy::indexing_slicing)]

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sluice_io::files::{self, Input, InputFiles, PathKind};
use sluice_io::store::is_address;
use sluice_model::{Error, ErrorKind};

use super::window::Window;

/// The ends of the names of the files beside a database, in the order in which they take effect:
/// an unfinished transaction is undone before what was logged is applied.
const BESIDE: [&str; 2] = ["-journal", "-wal"];
/// That of the index of a log, which has nothing that the log does not have.
const INDEX: &str = "-shm";
/// The most pages of one, which take a few dozen bytes of memory each: 8 GiB in pages of the usual
/// length.
const MAX_PAGES: usize = 2 << 20;

/// A note on an incomplete transaction.
pub(crate) const INCOMPLETE: &str =
    "the changes of a transaction that was not completed are not read";

/// The files beside the database at this path that there are and that are not empty.
pub(crate) fn beside(path: &Path) -> Result<Vec<Input>, Error> {
    let mut found = Vec::new();
    for path in beside_names(path) {
        let kind = match files::path_kind(&path) {
            // Stores say so of what is missing to those who may not list objects.
            Err(error) if is_address(&path) && is_denied(&error) => None,
            kind => kind?,
        };
        if let Some(PathKind::File(bytes @ 1..)) = kind {
            found.push(Input { path, bytes: Some(bytes) });
        }
    }
    Ok(found)
}

fn is_denied(error: &Error) -> bool {
    let ErrorKind::Io { source, .. } = error.kind() else { return false };
    source.kind() == io::ErrorKind::PermissionDenied
}

/// The same, but those that the run has noted if it has noted the database: one that was made since
/// is of a later state.
pub(crate) fn beside_noted(path: &Path, inputs: &InputFiles) -> Result<Vec<PathBuf>, Error> {
    if inputs.noted_len(path).is_none() {
        return Ok(beside(path)?.into_iter().map(|input| input.path).collect());
    }
    let is_noted = |path: &PathBuf| inputs.noted_len(path).is_some();
    Ok(beside_names(path).into_iter().filter(is_noted).collect())
}

/// The files that SQLite may leave beside the database at this path, and that count.
pub(crate) fn beside_names(path: &Path) -> [PathBuf; 2] {
    names(path, BESIDE)
}

/// All files that SQLite may leave beside the database at this path.
pub(crate) fn all_beside_names(path: &Path) -> [PathBuf; 3] {
    let [journal, log] = BESIDE;
    names(path, [journal, log, INDEX])
}

fn names<const N: usize>(path: &Path, ends: [&str; N]) -> [PathBuf; N] {
    // SQLite has them beside the file that a link leads to.
    let is_link = std::fs::symlink_metadata(path).is_ok_and(|meta| meta.is_symlink());
    let real = is_link.then(|| std::fs::canonicalize(path).ok()).flatten();
    let real = real.unwrap_or_else(|| path.to_owned());
    ends.map(|end| {
        let mut name = real.clone().into_os_string();
        name.push(end);
        name.into()
    })
}

/// The pages that a file beside a database has.
#[derive(Debug)]
pub(crate) struct Overlay {
    /// Where the bytes of a page begin.
    places: HashMap<u32, u64>,
    database: Option<Database>,
    format: Format,
    /// How the file begins. It begins in another way once it is used again.
    start: Vec<u8>,
    /// What is wrong with it: a place, a length, and the reason.
    pub(crate) damage: Option<(u64, u64, String)>,
    /// What was left out, and why.
    pub(crate) note: Option<&'static str>,
}

/// The database as a file beside it has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Database {
    pub(crate) page_size: usize,
    /// The number of its pages.
    pub(crate) pages: u32,
}

/// What tells whether bytes are still those of a page.
#[derive(Debug)]
pub(crate) enum Format {
    /// The salts of each frame.
    Wal([u8; 8]),
    /// Where each segment begins, and with what its checksums.
    Journal(Vec<(u64, u32)>),
}

/// What precedes the page in a frame of a write-ahead log.
pub(crate) const FRAME_HEAD: usize = 24;

/// The checksum of a page in a journal: of each two hundredth byte from its end.
pub(crate) fn journal_checksum(nonce: u32, page: &[u8]) -> u32 {
    let step = |sum: u32, byte: &u8| sum.wrapping_add(u32::from(*byte));
    page.iter().rev().skip(199).step_by(200).fold(nonce, step)
}

impl Overlay {
    /// Of a file in which nothing counts, but that may be damaged.
    pub(crate) fn empty(format: Format, start: &[u8]) -> Self {
        let (places, start) = (HashMap::new(), start.to_vec());
        Self { places, database: None, format, start, damage: None, note: None }
    }

    /// Sets what the database is, once it is known.
    pub(crate) fn set_database(&mut self, database: Database) {
        self.database = Some(database);
    }

    /// Adds pages and their places, instead of earlier versions of them.
    pub(crate) fn add(
        &mut self,
        pages: impl IntoIterator<Item = (u32, u64)>,
        name: &str,
    ) -> Result<(), Error> {
        self.places.extend(pages);
        check_count(self.places.len(), name)
    }

    /// Adds a segment of a journal.
    pub(crate) fn add_segment(&mut self, at: u64, nonce: u32) {
        if let Format::Journal(segments) = &mut self.format {
            segments.push((at, nonce));
        }
    }

    /// `None` if the database is as its file has it.
    pub(crate) fn database(&self) -> Option<Database> {
        self.database
    }

    /// The pages, in any order.
    pub(crate) fn pages(&self) -> impl Iterator<Item = u32> {
        self.places.keys().copied()
    }

    /// Where the bytes of a page begin; `None` if it is not here.
    pub(crate) fn place(&self, page: u32) -> Option<u64> {
        self.places.get(&page).copied()
    }

    /// The page that lies there. `Err` if that is not so any more.
    pub(crate) fn page<'w>(
        &self,
        window: &'w mut Window,
        page: u32,
        at: u64,
    ) -> Result<&'w [u8], Error> {
        let size = self.database.map_or(0, |database| database.page_size);
        let (head, foot) = match self.format {
            Format::Wal(_) => (FRAME_HEAD, 0),
            Format::Journal(_) => (4, 4),
        };
        let input = Arc::clone(&window.input);
        let found = window.get(at - head as u64, head + size + foot)?;
        let content = found.and_then(|found| {
            let (head, rest) = found.split_at_checked(head)?;
            let (content, foot) = rest.split_at_checked(size)?;
            let is_it = match &self.format {
                Format::Wal(salts) => head.get(8..16) == Some(salts),
                Format::Journal(segments) => {
                    let before = segments.partition_point(|(start, _)| *start < at);
                    let (_, nonce) = segments.get(before.checked_sub(1)?)?;
                    foot == journal_checksum(*nonce, content).to_be_bytes()
                }
            };
            (is_it && head.starts_with(&page.to_be_bytes())).then_some(content)
        });
        content.ok_or_else(|| changed(&input))
    }

    /// `Err` if the file was begun again since it was read, or is gone, because the database has
    /// all of it.
    pub(crate) fn check_unchanged(
        &self,
        window: &mut Window,
        inputs: &InputFiles,
    ) -> Result<(), Error> {
        let path = window.log.path();
        if !is_address(path) {
            // This opens no other file that was made in its place.
            inputs.open_plain(path).map_err(|error| changed_if_missing(error, path))?;
        }
        let is_same = window.reread(0, self.start.len())? == self.start;
        if is_same { Ok(()) } else { Err(changed(&window.input)) }
    }
}

pub(crate) fn changed(name: &str) -> Error {
    Error::refused(format!(
        "the input was overwritten while it was read; run again, or once its recording has ended: \
         {name}"
    ))
}

/// The error of opening a file that was there when the run began.
pub(crate) fn changed_if_missing(error: Error, path: &Path) -> Error {
    if error.is_missing() { changed(&path.to_string_lossy()) } else { error }
}

/// `Err` if so many pages take too much memory.
pub(crate) fn check_count(count: usize, name: &str) -> Result<(), Error> {
    if count <= MAX_PAGES {
        return Ok(());
    }
    Err(Error::refused(format!(
        "a file beside the database has more than {MAX_PAGES} pages; copy both elsewhere, and have \
         SQLite complete the copy: sqlite3 COPY 'SELECT count(*) FROM messages': {name}"
    )))
}

/// Whether this is a size of pages.
pub(crate) fn is_page_size(size: u32) -> bool {
    size.is_power_of_two() && (512..=65536).contains(&size)
}
