//! Reads for the hash of an input what nobody else has read of it.

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::PoisonError;

use super::{InputHash, PIECE};
use crate::files::log::LogFile;
use crate::{Error, ErrorKind};

/// Buffers are aligned for the fastest copies from the kernel.
const ALIGNED: usize = 64;

impl InputHash {
    /// Reads and hashes what is missing, as long as that is wanted. Several threads may do so
    /// together. [`hex`](Self::hex) reports what cannot be read.
    pub fn add_missing(&self, is_wanted: impl Fn() -> bool) {
        if self.len <= PIECE {
            return;
        }
        let mut open = None;
        while is_wanted()
            && let Some((range, _active)) = self.claim_missing()
        {
            if let Err(error) = self.read_claimed(range, &mut open) {
                self.progress().failure.get_or_insert(error);
                return;
            }
        }
    }

    fn read_claimed(
        &self,
        range: Range<u64>,
        open: &mut Option<(LogFile, AlignedBuffer)>,
    ) -> Result<(), Error> {
        let (log, buffer) = match open {
            Some(open) => open,
            none => none.insert((LogFile::open_plain(&self.path)?, AlignedBuffer::new())),
        };
        let buffer = buffer.bytes((range.end - range.start) as usize);
        let read = log.read_at(range.start, buffer)?;
        self.add_claimed(range.start, buffer.get(..read).unwrap_or_default());
        Ok(())
    }

    /// The hash in hex, after reading what is missing; `None` if the input became shorter or was
    /// moved away, or is a folder. `Err` if reading it fails.
    pub fn hex(&self) -> Result<Option<&str>, Error> {
        let hash = self.hash.get_or_init(|| match self.compute() {
            Err(error) if !is_gone(&error) => Err(error.to_string()),
            hash => Ok(hash.unwrap_or_default()),
        });
        hash.as_ref().map(Option::as_deref).map_err(Error::refused)
    }

    /// `None` if it became shorter.
    fn compute(&self) -> Result<Option<String>, Error> {
        if self.len <= PIECE {
            let mut bytes = vec![0; self.len as usize];
            let read = LogFile::open_plain(&self.path)?.read_at(0, &mut bytes)?;
            let is_whole = read == bytes.len();
            return Ok(is_whole.then(|| blake3::hash(&bytes).to_hex().to_string()));
        }
        self.add_missing(|| true);
        let mut progress = self.progress();
        while progress.active > 0 {
            progress = self.idle.wait(progress).unwrap_or_else(PoisonError::into_inner);
        }
        match progress.failure.take() {
            Some(error) => Err(error),
            None => Ok(progress.tree.finish().map(|hash| hash.to_hex().to_string())),
        }
    }
}

/// Whether an error of an input says that it is no longer there, or is a folder.
fn is_gone(error: &Error) -> bool {
    use io::ErrorKind::{IsADirectory, NotADirectory, NotFound};
    let ErrorKind::Io { source, .. } = error.kind() else { return false };
    matches!(source.kind(), IsADirectory | NotADirectory | NotFound)
}

/// The BLAKE3 hash of a file's bytes, in hex.
pub fn hash_file(path: &Path) -> Result<String, Error> {
    let len = LogFile::open_plain(path)?.len().unwrap_or_default();
    let hash = InputHash::new(path, len).compute()?;
    hash.ok_or_else(|| {
        let path = path.display();
        Error::refused(format!("the file became shorter while it was read: {path}"))
    })
}

/// A buffer whose start is aligned.
struct AlignedBuffer(Vec<u8>);

impl AlignedBuffer {
    fn new() -> Self {
        Self(vec![0; PIECE as usize + ALIGNED])
    }

    /// The first bytes, at most a piece.
    fn bytes(&mut self, len: usize) -> &mut [u8] {
        let start = self.0.as_ptr().align_offset(ALIGNED).min(ALIGNED);
        self.0.get_mut(start..start + len).unwrap_or_default()
    }
}
