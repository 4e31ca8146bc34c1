//! Unpacks frames: checks limits, manages memory, and reports damage.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use sluice_io::escape::escaped_path;
use sluice_io::frames;
use sluice_model::options::ByteSize;
use sluice_model::{Batch, ByteFormat, Damage, Error, ReadContext};

/// Unpacks the frames of one archive.
pub(crate) struct Unpacker<'s> {
    path: PathBuf,
    input: Arc<str>,
    context: ReadContext,
    limits: UnpackLimits<'s>,
}

/// Limits and counters that all archives of a source share.
#[derive(Clone, Copy)]
pub(crate) struct UnpackLimits<'s> {
    /// The maximum uncompressed length of a frame.
    pub(crate) max_frame: ByteSize,
    /// Counts unpacked frames.
    pub(crate) unpacked: &'s AtomicU64,
}

/// The space for a frame's content in a block, aligned for columns of numbers.
pub(crate) fn aligned_len(plain: usize) -> usize {
    plain.next_multiple_of(64)
}

impl<'s> Unpacker<'s> {
    pub(crate) fn new(path: &Path, limits: UnpackLimits<'s>, context: &ReadContext) -> Self {
        let input = escaped_path(path).into();
        let path = path.to_owned();
        Self { path, input, context: context.clone(), limits }
    }

    pub(crate) fn context(&self) -> &ReadContext {
        &self.context
    }

    /// The maximum uncompressed length of a frame.
    pub(crate) fn max_frame(&self) -> u64 {
        self.limits.max_frame.0
    }

    /// The uncompressed length that a frame declares. `Err` if it is missing or too large.
    pub(crate) fn checked_len(&self, frame: &[u8]) -> Result<usize, String> {
        let plain = frames::content_size(frame);
        let plain = plain.ok_or("its uncompressed length is missing")?;
        self.check_len(plain)
    }

    /// Checks an uncompressed length. `Err` if it is too large.
    pub(crate) fn check_len(&self, plain: u64) -> Result<usize, String> {
        let max_frame = self.limits.max_frame;
        let plain_len = usize::try_from(plain).ok().filter(|_| plain <= max_frame.0);
        plain_len.ok_or_else(|| {
            format!(
                "its uncompressed length of {plain} bytes exceeds `max_frame` ({max_frame}); raise \
                 that if the length is right"
            )
        })
    }

    /// Unpacks these frames, whose lengths have been checked, into one block.
    pub(crate) fn unpack(&self, frames: &[(&[u8], usize)]) -> Vec<Result<Bytes, String>> {
        let all: usize = frames.iter().map(|(_, plain)| aligned_len(*plain)).sum();
        let mut block = self.context.blocks.block_with_len(all);
        let (mut at, mut places) = (0, Vec::new());
        for (frame, plain) in frames {
            let to = block.get_mut(at..at + plain).unwrap_or_default();
            let place = at..at + plain;
            places.push(frames::decompress(frame, to).map(|()| place));
            at += aligned_len(*plain);
            self.context.run.count_read(frame.len() as u64);
            self.limits.unpacked.fetch_add(1, Ordering::Relaxed);
        }
        let block = block.freeze();
        places.into_iter().map(|place| place.map(|place| block.slice(place))).collect()
    }

    /// Decodes the content of a frame, which starts at byte `position` of the uncompressed log.
    pub(crate) fn decode(
        &self,
        format: &dyn ByteFormat,
        plain: Bytes,
        position: u64,
    ) -> Result<Result<Vec<Batch>, String>, Error> {
        format.decode(plain, position, &self.path, &self.context)
    }

    /// Reports a range of the file as damage.
    pub(crate) fn report_damage(&self, start: u64, end: u64, reason: impl Into<String>) {
        let length = end.saturating_sub(start);
        let damage = Damage::new(&self.input, start, length, reason);
        self.context.damage.report(Damage { counts_compressed: true, ..damage });
    }
}
