//! Chooses the zstd level of data from a sample of it.
//!
//! Of a scanner's noise, of pictures, and of small events that resemble each other, lower levels
//! make as little in half of the time; of other data they make up to a tenth more. So the default
//! level is an upper limit, and a sample decides. Other levels are what the user asked for.

use std::sync::{Arc, LazyLock};

use crate::frames::{DEFAULT_LEVEL, compress};

/// The pieces of a frame's sample: its kinds of events may come one after the other.
const PIECES: usize = 4;
/// The length of a frame's sample. Above 256 KiB, zstd uses the tables that it has for long frames.
const FRAME_SAMPLE: usize = 260 << 10;
/// Less than this is compressed without a sample, whose cost would not pay.
const LEAST: usize = 64 << 10;
/// The length of data that has one level in a file of frames: a sample costs 2 % of compressing it.
const GROUP: u64 = 32 << 20;
/// A lower level for frames may make a sample this part larger, as archives are for keeping.
const FRAME_ALLOWANCE: usize = 512;

/// Pieces from all over the `total` bytes of these parts, `len` bytes together; all if there are no
/// more.
pub fn sample<P: AsRef<[u8]>>(
    parts: impl Iterator<Item = P>,
    total: usize,
    pieces: usize,
    len: usize,
) -> Vec<u8> {
    let (mut sample, mut start, mut before) = (Vec::with_capacity(len.min(total)), 0, 0);
    if total <= len {
        parts.for_each(|part| sample.extend_from_slice(part.as_ref()));
        return sample;
    }
    let piece = len / pieces;
    let step = (total - piece) / (pieces - 1);
    for part in parts {
        let part = part.as_ref();
        let after = before + part.len();
        while start < after && sample.len() < pieces * piece {
            let end = start + piece;
            sample.extend_from_slice(&part[start.max(before) - before..end.min(after) - before]);
            if end > after {
                break;
            }
            start += step;
        }
        before = after;
    }
    sample
}

/// The lowest level, up to the default one, at which this sample is at most a part of
/// 1/`allowance` larger than at the default level.
pub fn quickest(sample: &[u8], allowance: usize) -> i32 {
    let len = |level| compress(sample, level).map(|packed| packed.len());
    let Ok(usual) = len(DEFAULT_LEVEL) else { return DEFAULT_LEVEL };
    let most = usual + usual / allowance;
    let fits = |level: &i32| len(*level).is_ok_and(|len| len <= most);
    (1..DEFAULT_LEVEL).find(fits).unwrap_or(DEFAULT_LEVEL)
}

/// The level of a frame, which the first job that asks for it finds.
#[derive(Clone, Debug)]
pub struct FrameLevel(Arc<LazyLock<i32, Box<dyn FnOnce() -> i32 + Send>>>);

impl FrameLevel {
    /// The level.
    pub fn get(&self) -> i32 {
        **self.0
    }
}

/// The levels of the frames of a file. They depend only on the frames' contents.
#[derive(Debug)]
pub struct FrameLevels {
    level: i32,
    /// The level of the current group, and the length of frames that it is for.
    group: Option<(FrameLevel, u64)>,
}

impl FrameLevels {
    /// Starts a file at this level, which is an upper limit if it is the default one.
    pub fn new(level: i32) -> Self {
        Self { level, group: None }
    }

    /// The level of the next frame, with `len` bytes. `plain` makes the contents of the frame, if a
    /// sample is needed; `None` means that it cannot.
    pub fn next(
        &mut self,
        len: u64,
        plain: impl FnOnce() -> Option<Vec<u8>> + Send + 'static,
    ) -> FrameLevel {
        let level = self.level;
        let (shared, left) = self.group.get_or_insert_with(|| {
            let choose: Box<dyn FnOnce() -> i32 + Send> = if level == DEFAULT_LEVEL {
                Box::new(|| plain().map_or(DEFAULT_LEVEL, |plain| frame_level(&plain)))
            } else {
                Box::new(move || level)
            };
            (FrameLevel(Arc::new(LazyLock::new(choose))), GROUP)
        });
        let shared = shared.clone();
        *left = left.saturating_sub(len);
        if *left == 0 {
            self.group = None;
        }
        shared
    }
}

fn frame_level(plain: &[u8]) -> i32 {
    if plain.len() < LEAST {
        return DEFAULT_LEVEL;
    }
    let sample = sample(std::iter::once(plain), plain.len(), PIECES, FRAME_SAMPLE);
    quickest(&sample, FRAME_ALLOWANCE)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that no compressor can predict.
    fn noise(len: usize) -> Vec<u8> {
        let mut state = 1u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        };
        (0..len).map(|_| next()).collect()
    }

    /// States of a robot: doubles that change little by little, which takes a second look.
    fn states(len: usize) -> Vec<u8> {
        let value = |n: usize| ((n / 40) as f64 * 0.01 + (n % 40) as f64).sin();
        (0..len / 8).flat_map(|n| ((value(n) * 1e4).round() / 1e4).to_le_bytes()).collect()
    }

    #[test]
    fn what_does_not_compress_is_not_tried_hard() {
        assert_eq!(frame_level(&noise(1 << 20)), 1);
        assert_eq!(frame_level(&states(1 << 20)), DEFAULT_LEVEL);
        // A little data is compressed as usual.
        assert_eq!(frame_level(&noise(LEAST - 1)), DEFAULT_LEVEL);
    }

    #[test]
    fn a_sample_is_from_all_over_the_data() {
        let bytes: Vec<u8> = (0..100).collect();
        // However they are divided into parts.
        for part in [1, 3, 33, 100] {
            let parts = || bytes.chunks(part);
            assert_eq!(sample(parts(), 100, 4, 8), [0, 1, 32, 33, 64, 65, 96, 97], "{part}");
            assert_eq!(sample(parts(), 100, 4, 100), bytes);
        }
        assert!(sample(std::iter::empty::<&[u8]>(), 0, 4, 8).is_empty());
    }

    #[test]
    fn only_the_default_level_is_an_upper_limit() {
        for level in [1, 2, 4, 19] {
            let mut levels = FrameLevels::new(level);
            assert_eq!(levels.next(1 << 20, || unreachable!("a sample")).get(), level);
        }
    }

    #[test]
    fn frames_of_a_group_have_the_level_of_its_first_one() {
        let mut levels = FrameLevels::new(DEFAULT_LEVEL);
        let half = GROUP / 2;
        let first = levels.next(half, || Some(noise(1 << 20)));
        let second = levels.next(half, || unreachable!("a second sample"));
        let third = levels.next(half, || Some(states(1 << 20)));
        // The order of jobs does not matter.
        assert_eq!([third, second, first].map(|level| level.get()), [DEFAULT_LEVEL, 1, 1]);
    }
}
