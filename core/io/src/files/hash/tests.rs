use std::io::Write;

use proptest::prelude::*;
use tempfile::NamedTempFile;

use super::*;
use crate::files::LogFile;

/// A file whose pages differ.
fn file(len: usize) -> (NamedTempFile, Vec<u8>) {
    let bytes: Vec<u8> = (0..len).map(|at| (at ^ (at >> 8) ^ (at >> 16)) as u8).collect();
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(&bytes).unwrap();
    (file, bytes)
}

/// Lengths around those at which the shape of the tree changes.
fn lengths() -> impl Strategy<Value = usize> {
    let piece = PIECE as usize;
    let near = |len: usize| (len - 2)..(len + 3);
    prop_oneof![
        0..3_000usize,
        near(piece),
        near(2 * piece),
        near(4 * piece),
        near(5 * piece),
        near(3 * piece + 1024),
        piece..6 * piece,
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_hash_does_not_depend_on_what_was_read_in_which_order(
        len in lengths(),
        reads in prop::collection::vec((0u64..1 << 21, 1usize..400_000), 0..12),
    ) {
        let (file, bytes) = file(len);
        let hash = InputHash::new(file.path(), len as u64);
        for (at, count) in reads {
            let from = (at as usize).min(len);
            hash.add(from as u64, &bytes[from..(from + count).min(len)]);
        }
        let expected = blake3::hash(&bytes).to_hex().to_string();
        prop_assert_eq!(hash.hex().unwrap(), Some(&*expected));
        prop_assert_eq!(hash_file(file.path()).unwrap(), expected);
    }

    #[test]
    fn claimed_ranges_are_those_of_a_set_of_bytes(
        ranges in prop::collection::vec((0u64..64, 0u64..16), 1..20),
    ) {
        let (mut claimed, mut bytes) = (ClaimedRanges::default(), [false; 80]);
        for (start, len) in ranges.into_iter().filter(|(_, len)| *len > 0) {
            let mut new = [false; 80];
            for free in claimed.claim(start..start + len) {
                new[free.start as usize..free.end as usize].fill(true);
            }
            for at in start..start + len {
                prop_assert_eq!(new[at as usize], !bytes[at as usize]);
                bytes[at as usize] = true;
            }
            let missing = bytes.iter().position(|claimed| !claimed).map(|at| at as u64);
            prop_assert_eq!(claimed.first_missing(80).map(|range| range.start), missing);
        }
    }
}

#[test]
fn threads_that_read_in_parallel_hash_together() {
    let (file, bytes) = file(9 * PIECE as usize + 77);
    let hash = InputHash::new(file.path(), bytes.len() as u64);
    let expected = blake3::hash(&bytes).to_hex().to_string();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (hash, bytes) = (&hash, &bytes);
            scope.spawn(move || {
                for (n, block) in bytes.chunks(100_001).enumerate().skip(thread).step_by(4) {
                    hash.add(n as u64 * 100_001, block);
                }
                hash.add_missing(|| true);
            });
        }
        assert_eq!(hash.hex().unwrap(), Some(&*expected));
    });
}

#[test]
fn reads_of_a_log_are_not_repeated() {
    let (file, bytes) = file(4 * PIECE as usize);
    let inputs = [Input { path: file.path().to_owned(), bytes: Some(bytes.len() as u64) }];
    let hashes = InputHashes::of_inputs(&inputs);
    let mut log = LogFile::open(file.path()).unwrap();
    log.hash_reads(&hashes);
    let mut buffer = vec![0; 300_001];
    let mut at = 0;
    while let read @ 1.. = log.read_at(at, &mut buffer).unwrap() {
        assert_eq!(buffer[..read], bytes[at as usize..at as usize + read]);
        at += read as u64;
    }
    let hash = hashes.of(file.path()).unwrap();
    assert_eq!(hash.progress().claimed.first_missing(hash.len), None);
    // Nothing is left to read.
    std::fs::write(file.path(), "changed").unwrap();
    assert_eq!(hash.hex().unwrap(), Some(&*blake3::hash(&bytes).to_hex().to_string()));
}

#[test]
fn a_file_that_became_shorter_has_no_hash() {
    let (file, bytes) = file(3 * PIECE as usize);
    let hash = InputHash::new(file.path(), bytes.len() as u64);
    hash.add(0, &bytes[..PIECE as usize]);
    file.as_file().set_len(PIECE + 10).unwrap();
    assert_eq!(hash.hex().unwrap(), None);
    let shorter = InputHash::new(file.path(), PIECE + 11);
    assert_eq!(shorter.hex().unwrap(), None);
    let within_a_piece = InputHash::new(file.path(), PIECE);
    file.as_file().set_len(10).unwrap();
    assert_eq!(within_a_piece.hex().unwrap(), None);
    std::fs::remove_file(file.path()).unwrap();
    assert!(hash_file(file.path()).is_err());
    assert_eq!(InputHash::new(file.path(), 10).hex().unwrap(), None);
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(InputHash::new(folder.path(), 10).hex().unwrap(), None);
}

/// Opens, but its first bytes cannot be read.
#[cfg(target_os = "linux")]
#[test]
fn a_read_error_names_the_file() {
    let path = Path::new("/proc/self/mem");
    for len in [10, PIECE + 1] {
        let hash = InputHash::new(path, len);
        hash.add_missing(|| true);
        for _ in 0..2 {
            let error = hash.hex().unwrap_err().to_string();
            assert!(error.starts_with("cannot read /proc/self/mem: "), "{error}");
        }
    }
}

#[test]
fn many_pieces_apart_from_each_other_are_left_to_the_end() {
    let len = MAX_PARTS * 2048 * 2;
    let (file, bytes) = file(len);
    let hash = InputHash::new(file.path(), len as u64);
    for at in (0..len).step_by(2048) {
        hash.add(at as u64, &bytes[at..at + 1]);
    }
    let progress = hash.progress();
    assert!(progress.claimed.0.len() + progress.tree.parts() <= MAX_PARTS + 2);
    drop(progress);
    assert_eq!(hash.hex().unwrap(), Some(&*blake3::hash(&bytes).to_hex().to_string()));
}
