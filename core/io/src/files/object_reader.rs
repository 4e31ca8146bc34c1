//! Reads an object in ranges: small ones for random access, growing ones with read-ahead for
//! sequential access.
//!
//! All readers of an object in this process read the same version, or fail.

use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use super::objects::{self, PinnedObject};
use super::upstream_error::UpstreamError;
use crate::Error;
use crate::frames::is_start_of_zstd;
use crate::store::{PendingRead, StorePath};

/// The smallest request: whoever reads a header mostly reads on.
const MIN_REQUEST: u64 = 32 << 10;
/// The largest request for sequential reads in small steps.
const MAX_SEQUENTIAL: u64 = 2 << 20;
/// The largest request at all: a longer one could time out, and each response is held in memory.
const MAX_REQUEST: u64 = 16 << 20;
/// Sequential reads beyond this size trigger read-ahead.
const AHEAD_FROM: u64 = 512 << 10;
/// The end of a file is fetched at once: footers and indices are read backwards in several steps.
const TAIL: u64 = 64 << 10;

/// Reads an object. Holds at most two ranges in memory.
pub(super) struct ObjectReader {
    object: Arc<PinnedObject>,
    /// The last range that was read.
    held: FetchedRange,
    /// The range after it, being fetched.
    next: Option<(Range<u64>, Box<dyn PendingRead>)>,
    /// The size of the next sequential request.
    step: u64,
    /// The position of sequential reading.
    at: u64,
}

#[derive(Default)]
struct FetchedRange {
    start: u64,
    bytes: Bytes,
}

impl FetchedRange {
    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// The bytes held from a position on.
    fn from(&self, position: u64) -> &[u8] {
        let skip = position.checked_sub(self.start).and_then(|skip| usize::try_from(skip).ok());
        skip.and_then(|skip| self.bytes.get(skip..)).unwrap_or_default()
    }
}

impl ObjectReader {
    /// Opens the object at a path; `None` if the path is not an address.
    pub(super) fn open(path: &Path) -> Result<Option<Self>, Error> {
        let Some(place) = StorePath::parse(path)? else { return Ok(None) };
        let object = objects::pin(&place).map_err(|e| Error::io("open", path, e))?;
        Ok(Some(Self {
            object,
            held: FetchedRange::default(),
            next: None,
            step: MIN_REQUEST,
            at: 0,
        }))
    }

    pub(super) fn len(&self) -> u64 {
        self.object.state.len
    }

    pub(super) fn version(&self) -> &str {
        &self.object.state.version
    }

    /// Whether it is compressed. Checked once per object.
    pub(super) fn is_zstd(&mut self) -> io::Result<bool> {
        if let Some(known) = self.object.is_zstd.get() {
            return Ok(*known);
        }
        let mut magic = [0; 4];
        let found = self.read_at(0, &mut magic)?;
        let name = Path::new(self.object.place.at.key());
        let is_packed = is_start_of_zstd(name, magic.get(..found).unwrap_or_default());
        Ok(*self.object.is_zstd.get_or_init(|| is_packed))
    }

    /// Fills `buffer` from `position`, as far as the object goes.
    pub(super) fn read_at(&mut self, position: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let there = usize::try_from(self.len().saturating_sub(position)).unwrap_or(usize::MAX);
        let len = buffer.len().min(there);
        let (mut filled, buffer) = (0, buffer.get_mut(..len).unwrap_or_default());
        while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            let at = position + filled as u64;
            let held = self.held.from(at);
            if held.is_empty() {
                self.fetch(at, rest.len() as u64)?;
                continue;
            }
            let now = held.len().min(rest.len());
            rest[..now].copy_from_slice(&held[..now]);
            filled += now;
        }
        Ok(filled)
    }

    /// Fetches the bytes at a position: at least one.
    fn fetch(&mut self, at: u64, wanted: u64) -> io::Result<()> {
        let goes_on = at == self.held.end() && !self.held.bytes.is_empty();
        self.step = if goes_on { (self.step * 2).min(MAX_SEQUENTIAL) } else { MIN_REQUEST };
        let (range, pending) = match self.next.take() {
            Some((range, pending)) if range.contains(&at) => (range, pending),
            _ => {
                let range = self.range(at, wanted);
                (range.clone(), self.object.request(range))
            }
        };
        if goes_on && self.step > AHEAD_FROM && range.end < self.len() {
            let next = range.end..range.end.saturating_add(self.step).min(self.len());
            self.next = Some((next.clone(), self.object.request(next)));
        }
        let bytes = pending.wait()?;
        if bytes.len() as u64 != range.end - range.start {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.held = FetchedRange { start: range.start, bytes };
        Ok(())
    }

    /// The range to request if `wanted` bytes are needed at `at`.
    fn range(&self, at: u64, wanted: u64) -> Range<u64> {
        let len = self.len();
        let tail = len.saturating_sub(TAIL);
        if at >= tail {
            return tail..len;
        }
        at..at.saturating_add(wanted.clamp(self.step, MAX_REQUEST)).min(len)
    }
}

/// Sequential reading, for decompression.
impl Read for ObjectReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.read_at(self.at, buffer).map_err(UpstreamError::error)?;
        self.at += read as u64;
        Ok(read)
    }
}
