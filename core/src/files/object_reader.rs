//! An object read in ranges: each request brings what is asked for, a little more where readers look around, and
//! much more, beforehand, once they read on.
//!
//! Everything that reads an object in this process reads the same state of it, or fails.

use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use super::is_magic;
use super::objects;
use super::stream::UpstreamError;
use crate::Error;
use crate::store::{ObjectState, PendingRead, StorePath};

/// The least that is asked for: who looks at a header mostly looks at what follows.
const FIRST: u64 = 32 << 10;
/// The most that is asked for at a time by who reads on in small steps.
const MOST: u64 = 2 << 20;
/// The most that is asked for at all: what takes longer than a request may is never had, and what comes in one piece
/// is held in one piece.
const LONGEST: u64 = 16 << 20;
/// Who has read on for so long will go on: the next range is asked for before it is needed.
const AHEAD_FROM: u64 = 512 << 10;
/// What is at the end of a file (footers, indices) is read in several steps, backwards.
const TAIL: u64 = 64 << 10;

/// An object, and the state in which this process reads it.
pub(super) struct PinnedObject {
    pub(super) place: StorePath,
    pub(super) state: ObjectState,
    is_zstd: OnceLock<bool>,
}

impl PinnedObject {
    pub(super) fn new(place: StorePath, state: ObjectState) -> Self {
        Self { place, state, is_zstd: OnceLock::new() }
    }

    fn request(&self, range: Range<u64>) -> Box<dyn PendingRead> {
        self.place.store.read(&self.place.at, &self.state, range)
    }
}

/// A reader of an object. What it holds is at most two ranges.
pub(super) struct ObjectReader {
    object: Arc<PinnedObject>,
    /// The range that was read last.
    held: FetchedRange,
    /// The range behind it, on its way.
    next: Option<(Range<u64>, Box<dyn PendingRead>)>,
    /// How much the next request of who reads on will be for.
    step: u64,
    /// Where reading on as a stream is.
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

    /// What is held from a position on.
    fn from(&self, position: u64) -> &[u8] {
        let skip = position.checked_sub(self.start).and_then(|skip| usize::try_from(skip).ok());
        skip.and_then(|skip| self.bytes.get(skip..)).unwrap_or_default()
    }
}

impl ObjectReader {
    /// Opens the object that a path means; nothing if it means a file.
    pub(super) fn open(path: &Path) -> Result<Option<Self>, Error> {
        let Some(place) = StorePath::parse(path)? else { return Ok(None) };
        let object = objects::pin(&place).map_err(|e| Error::io("open", path, e))?;
        Ok(Some(Self { object, held: FetchedRange::default(), next: None, step: FIRST, at: 0 }))
    }

    pub(super) fn len(&self) -> u64 {
        self.object.state.len
    }

    pub(super) fn version(&self) -> &str {
        &self.object.state.version
    }

    /// Whether it is compressed. Asked for once an object.
    pub(super) fn is_zstd(&mut self) -> io::Result<bool> {
        if let Some(known) = self.object.is_zstd.get() {
            return Ok(*known);
        }
        let mut magic = [0; 4];
        let is_packed = self.read_at(0, &mut magic)? == magic.len() && is_magic(magic);
        Ok(*self.object.is_zstd.get_or_init(|| is_packed))
    }

    /// Fills as much of `buffer` as the object has at `position`.
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

    /// Brings what is at a position: at least a byte of it.
    fn fetch(&mut self, at: u64, wanted: u64) -> io::Result<()> {
        let goes_on = at == self.held.end() && !self.held.bytes.is_empty();
        self.step = if goes_on { (self.step * 2).min(MOST) } else { FIRST };
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

    /// What is asked for where `wanted` bytes are wanted.
    fn range(&self, at: u64, wanted: u64) -> Range<u64> {
        let len = self.len();
        let tail = len.saturating_sub(TAIL);
        if at >= tail {
            return tail..len;
        }
        at..at.saturating_add(wanted.clamp(self.step, LONGEST)).min(len)
    }
}

/// Reading on, for decompressing.
impl Read for ObjectReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.read_at(self.at, buffer).map_err(UpstreamError::error)?;
        self.at += read as u64;
        Ok(read)
    }
}
