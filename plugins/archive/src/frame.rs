//! Frames on their way to events: what may be unpacked, into which memory, and what is said of those that
//! cannot be.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use sluice_core::options::ByteSize;
use sluice_core::{Batch, ByteFormat, Damage, Error, ReadContext, frames};

/// Unpacks the frames of one archive.
pub(crate) struct Unpacker<'s> {
    path: PathBuf,
    input: Arc<str>,
    context: ReadContext,
    limits: Limits<'s>,
}

/// What holds for all archives of a source.
#[derive(Clone, Copy)]
pub(crate) struct Limits<'s> {
    /// The most a frame may hold.
    pub(crate) max_frame: ByteSize,
    /// Counts the frames that were unpacked.
    pub(crate) unpacked: &'s AtomicU64,
}

/// The room in a block for what a frame holds: the next begins where columns of numbers may lie.
pub(crate) fn room(plain: usize) -> usize {
    plain.next_multiple_of(64)
}

impl<'s> Unpacker<'s> {
    pub(crate) fn new(path: &Path, limits: Limits<'s>, context: &ReadContext) -> Self {
        let input = path.to_string_lossy().into();
        let path = path.to_owned();
        Self { path, input, context: context.clone(), limits }
    }

    pub(crate) fn context(&self) -> &ReadContext {
        &self.context
    }

    /// The most that a frame may hold.
    pub(crate) fn most(&self) -> u64 {
        self.limits.max_frame.0
    }

    /// How much a frame holds, by its own word. `Err` if that is more than it may.
    pub(crate) fn judge(&self, frame: &[u8]) -> Result<usize, String> {
        let plain = frames::content_size(frame);
        let plain = plain.ok_or("it does not say how much it holds")?;
        self.judge_len(plain)
    }

    /// The length of what a frame is said to hold. `Err` if that is more than it may.
    pub(crate) fn judge_len(&self, plain: u64) -> Result<usize, String> {
        let max_frame = self.limits.max_frame;
        let plain_len = usize::try_from(plain).ok().filter(|_| plain <= max_frame.0);
        plain_len.ok_or_else(|| {
            format!(
                "it is said to hold {plain} bytes, more than `max_frame` ({max_frame}); raise that if \
                 it is right"
            )
        })
    }

    /// What these frames hold, side by side in one block. They have been judged.
    pub(crate) fn unpack(&self, frames: &[(&[u8], usize)]) -> Vec<Result<Bytes, String>> {
        let all: usize = frames.iter().map(|(_, plain)| room(*plain)).sum();
        let mut block = self.context.blocks.block_with_len(all);
        let (mut at, mut places) = (0, Vec::new());
        for (frame, plain) in frames {
            let to = block.get_mut(at..at + plain).unwrap_or_default();
            let place = at..at + plain;
            places.push(frames::decompress(frame, to).map(|()| place));
            at += room(*plain);
            self.context.count_read(frame.len() as u64);
            self.limits.unpacked.fetch_add(1, Ordering::Relaxed);
        }
        let block = block.freeze();
        places.into_iter().map(|place| place.map(|place| block.slice(place))).collect()
    }

    /// The events of what a frame holds.
    pub(crate) fn decode(
        &self,
        format: &dyn ByteFormat,
        plain: Bytes,
    ) -> Result<Result<Vec<Batch>, String>, Error> {
        format.decode(plain, &self.path, &self.context)
    }

    /// Reports a range of the file as damage.
    pub(crate) fn miss(&self, start: u64, end: u64, reason: impl Into<String>) {
        let length = end.saturating_sub(start);
        self.context.damage.report(Damage::new(&self.input, start, length, reason));
    }
}
