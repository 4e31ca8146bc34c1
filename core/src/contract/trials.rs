//! How much is tried: a spread in the short form, everything in the long one, which the variable
//! `SLUICE_CI=all` asks for. What a trial asserts is the same in both.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;

/// Whether the long form is asked for.
fn is_long() -> bool {
    std::env::var_os("SLUICE_CI").is_some_and(|form| form == "all")
}

/// How many random trials there are: `short`, or `long` where `SLUICE_CI=all` is set.
#[must_use]
pub fn trials(short: u32, long: u32) -> u32 {
    if is_long() { long } else { short }
}

/// Places below `count` to try: all of them where `SLUICE_CI=all` is set; otherwise about `most`, the
/// same ones every time: the first and the last, and between them one of each of as many equal parts.
#[must_use]
pub fn sample_positions(count: usize, most: usize) -> Vec<usize> {
    if is_long() || count <= most { (0..count).collect() } else { spread(count, most) }
}

fn spread(count: usize, most: usize) -> Vec<usize> {
    let start = |part: usize| part * count / most;
    // Not at even distances: they would always hit the same byte of what repeats.
    let within = |part: usize| part.wrapping_mul(2_654_435_761) >> 7;
    let inner = (0..most).map(|part| {
        let room = (start(part + 1) - start(part)).max(1);
        start(part) + within(part) % room
    });
    let mut places: Vec<usize> = [0].into_iter().chain(inner).chain([count - 1]).collect();
    places.dedup();
    places
}

/// Replaces what a file holds, or makes it. Unlike [`std::fs::write`], it never makes the file empty
/// first: some file systems (ext4) then bring it to disk when it is closed, for which a trial that
/// writes thousands would wait each time.
pub fn overwrite(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
    file.write_all(bytes)?;
    file.set_len(bytes.len() as u64)
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
