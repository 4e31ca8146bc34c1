//! How many trials tests make: a sample by default, everything if `SLUICE_CI=all` is set. What a
//! trial asserts is the same in both.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;

use sluice_io::frames::compress;

/// Whether `SLUICE_CI=all` is set.
fn is_long() -> bool {
    std::env::var_os("SLUICE_CI").is_some_and(|form| form == "all")
}

/// The number of random trials: `short`, or `long` if `SLUICE_CI=all` is set.
#[must_use]
pub fn trials(short: u32, long: u32) -> u32 {
    if is_long() { long } else { short }
}

/// Positions below `count` to try: all of them if `SLUICE_CI=all` is set; otherwise about `most`,
/// always the same: the first, the last, and one in each of `most` equal parts.
#[must_use]
pub fn sample_positions(count: usize, most: usize) -> Vec<usize> {
    if is_long() || count <= most { (0..count).collect() } else { spread(count, most) }
}

fn spread(count: usize, most: usize) -> Vec<usize> {
    let start = |part: usize| part * count / most;
    // Not equidistant: that would always hit the same byte of a repeating record.
    let within = |part: usize| part.wrapping_mul(2_654_435_761) >> 7;
    let inner = (0..most).map(|part| {
        let width = (start(part + 1) - start(part)).max(1);
        start(part) + within(part) % width
    });
    let mut places: Vec<usize> = [0].into_iter().chain(inner).chain([count - 1]).collect();
    places.dedup();
    places
}

/// Replaces the contents of a file, or creates it. Unlike [`std::fs::write`] it does not truncate
/// the file first: ext4 then flushes it on close, which is slow in trials that write thousands of
/// files.
pub fn overwrite(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
    file.write_all(bytes)?;
    file.set_len(bytes.len() as u64)
}

/// These parts of a log in a zstd frame each, of which those with these numbers are damaged: their
/// checksums are wrong, so nothing of them is read.
///
/// # Panics
///
/// If compressing fails.
#[must_use]
pub fn frames(parts: &[&[u8]], damaged: &[usize]) -> Vec<u8> {
    let frame = |(number, part): (usize, &&[u8])| {
        let mut frame = compress(part, 1).expect("bytes can be compressed");
        let last = frame.last_mut().filter(|_| damaged.contains(&number));
        last.into_iter().for_each(|byte| *byte ^= 0x55);
        frame
    };
    parts.iter().enumerate().flat_map(frame).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_has_both_ends_and_one_of_each_part() {
        for (count, most) in [(2, 1), (10, 3), (1_000, 7), (8_192, 256), (300, 299)] {
            let places = spread(count, most);
            assert!(places.is_sorted_by(|a, b| a < b), "{places:?}");
            assert_eq!((places[0], places[places.len() - 1]), (0, count - 1));
            assert!((most..=most + 2).contains(&places.len()), "{count}, {most}: {places:?}");
            let far = places.windows(2).map(|two| two[1] - two[0]).max();
            assert!(far.unwrap_or(0) <= 2 * count.div_ceil(most), "{places:?}");
        }
    }

    #[test]
    fn an_overwritten_file_holds_only_the_new_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        for bytes in ["longer", "short", ""] {
            overwrite(&path, bytes.as_bytes()).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), bytes);
        }
    }
}
