//! Inputs: files, streams, and objects of a store in memory that records requests.

use std::collections::VecDeque;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::time::Duration;

use super::*;
use crate::store::memory::MEMORY;

fn bytes(len: usize) -> Vec<u8> {
    (0..len as u32).map(|n| (n ^ (n >> 8) ^ (n >> 16)) as u8).collect()
}

fn at(bucket: &str, key: &str) -> PathBuf {
    format!("mem://{bucket}/{key}").into()
}

/// How many bytes were read, and in how many requests.
fn asked(bucket: &str) -> (u64, usize) {
    let ranges = MEMORY.with(bucket, |bucket| {
        let reads = bucket.asked.iter().filter_map(|asked| asked.strip_prefix("read "));
        reads.map(|read| read.split_once(' ').unwrap().0.to_owned()).collect::<Vec<_>>()
    });
    let number = |text: &str| text.parse::<u64>().unwrap();
    let len = |range: &String| {
        let (start, end) = range.split_once("..").unwrap();
        number(end) - number(start)
    };
    (ranges.iter().map(len).sum(), ranges.len())
}

#[test]
fn globs_mean_objects_and_list_only_what_begins_as_they_do() {
    for key in ["drives/b.lcm", "drives/a.lcm", "drives/x/c.lcm", "drives/a-1.txt", "other/d.lcm"] {
        MEMORY.set("globs", key, "x");
    }
    let names = |pattern: &str| -> Vec<String> {
        let found = expand(&[at("globs", pattern)]).unwrap();
        found.iter().map(|input| input.path.to_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names("drives/*.lcm"), ["mem://globs/drives/a.lcm", "mem://globs/drives/b.lcm"]);
    assert_eq!(names("drives/**/*.lcm").len(), 3);
    assert_eq!(names("*/[de].lcm"), ["mem://globs/other/d.lcm"]);
    let listed = MEMORY.with("globs", |bucket| bucket.asked.clone());
    let lists: Vec<&String> = listed.iter().filter(|asked| asked.starts_with("list")).collect();
    assert_eq!(lists, ["list drives/", "list drives/", "list "]);
}

#[test]
fn names_without_an_object_are_errors() {
    MEMORY.set("told", "folder/a.lcm", "x");
    let said = |key: &str| expand(&[at("told", key)]).unwrap_err().to_string();
    assert!(said("none.lcm").contains("no such"), "{}", said("none.lcm"));
    assert!(said("*.csv").contains("no object matches"), "{}", said("*.csv"));
    assert!(said("folder").contains("folder/*"), "{}", said("folder"));
    let bucket = expand(&["mem://to*/x".into()]).unwrap_err().to_string();
    assert!(bucket.contains("expected the name of a bucket"), "{bucket}");
}

#[test]
fn an_object_whose_name_looks_like_a_glob_is_itself() {
    MEMORY.set("odd", "a[1].lcm", "x");
    assert_eq!(expand(&[at("odd", "a[1].lcm")]).unwrap()[0].bytes, Some(1));
}

#[test]
fn any_place_reads_as_it_is() {
    let all = bytes(700_001);
    MEMORY.set("places", "a", all.clone());
    let mut log = LogFile::open(&at("places", "a")).unwrap();
    assert_eq!((log.len(), log.is_seekable()), (Some(700_001), true));
    for (position, len) in [(0, 10), (5, 70_000), (700_000, 9), (650_000, 50_001), (3, 700_001)] {
        let mut buffer = vec![0; len];
        let read = log.read_at(position as u64, &mut buffer).unwrap();
        assert_eq!(read, len.min(700_001 - position), "{position}");
        assert!(buffer[..read] == all[position..position + read], "{position}");
    }
    for position in [700_001, u64::MAX] {
        assert_eq!(log.read_at(position, &mut [0]).unwrap(), 0);
    }
}

#[test]
fn looking_around_costs_little_and_reading_on_few_requests() {
    let all = bytes(32 << 20);
    MEMORY.set("costs", "a", all.clone());
    let mut log = LogFile::open(&at("costs", "a")).unwrap();
    for sample in 0..64 {
        log.read_at(sample * (512 << 10), &mut [0; 512]).unwrap();
    }
    let (read, _) = asked("costs");
    assert!(read <= 3 << 20, "{read}");
    let (before, requests) = asked("costs");
    let (mut buffer, mut position) = (vec![0; 256 << 10], 0);
    loop {
        let len = log.read_at(position, &mut buffer).unwrap();
        assert!(buffer[..len] == all[position as usize..][..len]);
        position += len as u64;
        if len == 0 {
            break;
        }
    }
    let (after, more) = asked("costs");
    assert_eq!(after - before, 32 << 20);
    assert!(more - requests < 30, "{}", more - requests);
}

#[test]
fn an_end_that_is_read_backwards_is_asked_for_once() {
    MEMORY.set("tails", "a", bytes(1 << 20));
    let mut log = LogFile::open_plain(&at("tails", "a")).unwrap();
    for back in [8, 100, 60_000] {
        log.read_at((1 << 20) - back, &mut [0; 8]).unwrap();
    }
    assert_eq!(asked("tails"), (64 << 10, 1));
}

#[test]
fn an_object_that_changes_between_two_reads_is_an_error() {
    MEMORY.set("changes", "a", bytes(1 << 20));
    let path = at("changes", "a");
    assert_eq!(expand(std::slice::from_ref(&path)).unwrap()[0].bytes, Some(1 << 20));
    MEMORY.set("changes", "a", bytes(1 << 20));
    for open in [LogFile::open(&path), LogFile::open_plain(&path)] {
        let read = open.and_then(|mut log| log.read_at(0, &mut [0; 8]));
        let error = read.unwrap_err().to_string();
        assert!(error.contains("has changed") && error.contains("mem://changes/a"), "{error}");
    }
}

#[test]
fn compressed_objects_read_as_what_they_hold() {
    let plain = bytes(3 << 20);
    MEMORY.set("packed", "a.zst", zstd::encode_all(&plain[..], 1).unwrap());
    let path = at("packed", "a.zst");
    assert!(is_zstd(&path).unwrap());
    let mut log = LogFile::open(&path).unwrap();
    let mut buffer = vec![0; plain.len() + 1];
    assert_eq!(log.read_at(0, &mut buffer).unwrap(), plain.len());
    assert!(buffer.starts_with(&plain));
    for len in [0, 4, 64 << 10, 100_000, plain.len()] {
        assert_eq!(head(&path, len).unwrap(), plain[..len]);
    }
    assert_eq!(head(&path, plain.len() + 1).unwrap(), plain);
}

#[test]
fn a_compressed_object_that_cannot_be_read_to_its_end_is_an_error_and_no_damage() {
    let plain: Vec<u8> =
        (0..2_000_000u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    let packed = zstd::encode_all(&plain[..], 1).unwrap();
    MEMORY.set("unread", "a.zst", packed.clone());
    let mut log = LogFile::open(&at("unread", "a.zst")).unwrap();
    assert_eq!(log.read_at(0, &mut [0; 100]).unwrap(), 100);
    MEMORY.set("unread", "a.zst", packed);
    let error = log.read_at(0, &mut vec![0; plain.len()]).unwrap_err().to_string();
    assert!(error.contains("has changed"), "{error}");
    assert_eq!(log.decompression_error(), None);
}

#[test]
fn what_is_long_is_brought_in_several_requests() {
    let all = bytes(40 << 20);
    MEMORY.set("longest", "a", all.clone());
    let mut log = LogFile::open(&at("longest", "a")).unwrap();
    let mut buffer = vec![0; all.len()];
    assert_eq!(log.read_at(0, &mut buffer).unwrap(), all.len());
    assert!(buffer == all);
    let (read, requests) = asked("longest");
    assert!(read < 41 << 20 && (3..20).contains(&requests), "{read} in {requests}");
}

#[test]
fn what_is_there_is_told_of_objects_as_of_files() {
    MEMORY.set("there", "a/b", "text");
    MEMORY.set("there", "empty", "");
    let found = |key: &str| path_kind(&at("there", key)).unwrap();
    assert_eq!(found("a/b"), Some(PathKind::File(4)));
    assert_eq!((found("a"), found("a/")), (Some(PathKind::Folder), Some(PathKind::Folder)));
    assert_eq!((found("b"), found("a/b/")), (None, None));
    assert_eq!(read(&at("there", "a/b")).unwrap(), b"text");
    assert_eq!(read(&at("there", "empty")).unwrap(), b"");
    assert_eq!(read_if_exists(&at("there", "none")).unwrap(), None);
    let below = objects_below(&at("there", "a")).unwrap().unwrap();
    assert_eq!(below, [Input { path: at("there", "a/b"), bytes: Some(4) }]);
    assert!(objects_below(Path::new("/tmp")).unwrap().is_none());
}

#[test]
fn two_names_of_one_object_have_one_identity() {
    let of = |text: &str| FileIdentity::read(Path::new(text)).unwrap();
    assert_eq!(of("mem://b/a"), of("memory://b/a"));
    assert_ne!(of("mem://b/a"), of("mem://b/c"));
}

#[test]
fn names_become_files_and_globs_come_sorted() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for name in ["b.lcm", "a.lcm", "odd[1].lcm"] {
        fs::write(at(name), name).unwrap();
    }
    fs::create_dir(at("sub.lcm")).unwrap();
    let names = |pattern: &str| -> Vec<PathBuf> {
        expand(&[at(pattern)]).unwrap().into_iter().map(|input| input.path).collect()
    };
    assert_eq!(names("*.lcm"), [at("a.lcm"), at("b.lcm"), at("odd[1].lcm")]);
    assert_eq!(names("odd[1].lcm"), [at("odd[1].lcm")]);
    for wrong in ["c.lcm", "sub.lcm", "x*"] {
        assert!(expand(&[at(wrong)]).is_err(), "{wrong}");
    }
}

#[test]
fn a_stream_can_be_read_again_until_it_is_forgotten() {
    let bytes: Vec<u8> = (0..1_000_000u32).map(|n| n as u8).collect();
    let mut log =
        LogFile::stream(Path::new("-"), Box::new(io::Cursor::new(bytes.clone()))).unwrap();
    let mut buffer = vec![0; 1000];
    for position in [900_000, 0, 999_500] {
        let read = log.read_at(position, &mut buffer).unwrap();
        assert_eq!(buffer[..read], bytes[position as usize..][..read]);
        assert_eq!(read, 1000.min(1_000_000 - position as usize));
    }
    log.forget(900_000);
    assert!(log.read_at(0, &mut buffer).is_err());
    assert_eq!(log.read_at(900_000, &mut buffer).unwrap(), 1000);
}

#[test]
fn compressed_logs_read_as_what_they_hold() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let plain = b"events, events, events".repeat(1000);
    let packed = zstd::encode_all(&plain[..], 3).unwrap();
    file.write_all(&packed).unwrap();
    for mut log in [
        LogFile::open(file.path()).unwrap(),
        LogFile::stream(Path::new("-"), Box::new(io::Cursor::new(packed.clone()))).unwrap(),
    ] {
        let mut buffer = vec![0; plain.len() + 1];
        assert_eq!(log.read_at(0, &mut buffer).unwrap(), plain.len());
        assert!(buffer.starts_with(&plain));
    }
    assert_eq!(head(file.path(), 6).unwrap(), b"events");
}

#[test]
fn a_compressed_log_that_is_cut_off_gives_what_is_left_and_says_so() {
    let plain: Vec<u8> =
        (0..400_000u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    let mut packed = zstd::encode_all(&plain[..], 1).unwrap();
    packed.truncate(packed.len() / 2);
    let mut log = LogFile::stream(Path::new("-"), Box::new(io::Cursor::new(packed))).unwrap();
    let mut buffer = vec![0; plain.len()];
    let read = log.read_at(0, &mut buffer).unwrap();
    assert!(read > 0 && plain.starts_with(&buffer[..read]));
    assert!(log.decompression_error().unwrap().contains("cut off"));
}

/// What a reader finds, in turn: bytes, or that nothing comes for a moment. Then the end.
struct Arriving(VecDeque<Option<Vec<u8>>>);

impl io::Read for Arriving {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.0.pop_front() {
            None => Ok(0),
            Some(None) => Err(io::ErrorKind::WouldBlock.into()),
            Some(Some(mut bytes)) => {
                let rest = bytes.split_off(bytes.len().min(buffer.len()));
                buffer[..bytes.len()].copy_from_slice(&bytes);
                if !rest.is_empty() {
                    self.0.push_front(Some(rest));
                }
                Ok(bytes.len())
            }
        }
    }
}

fn arriving(pieces: &[Option<&[u8]>]) -> LogFile {
    let pieces = pieces.iter().map(|piece| piece.map(<[u8]>::to_vec)).collect();
    LogFile::stream(Path::new("-"), Box::new(Arriving(pieces))).unwrap()
}

#[test]
fn a_stream_gives_what_has_come_to_who_does_not_want_to_wait() {
    let pieces = [Some(&b"abcd"[..]), None, Some(b"ef"), None, None, Some(b"g")];
    let (mut log, mut buffer) = (arriving(&pieces), [0; 9]);
    assert_eq!(log.read_arrived(0, &mut buffer, 1).unwrap(), 4);
    assert!(log.awaits_more(4));
    assert_eq!(log.read_arrived(4, &mut buffer, 1).unwrap(), 2);
    assert_eq!(log.read_arrived(4, &mut buffer, 3).unwrap(), 3);
    assert!(buffer.starts_with(b"efg") && !log.awaits_more(7));
    assert_eq!(arriving(&pieces).read_at(0, &mut buffer).unwrap(), 7);
    assert_eq!(&buffer[..7], b"abcdefg");
}

#[test]
fn a_stopped_stream_ends_behind_what_has_come() {
    let pieces = [Some(&b"abcd"[..]), None, Some(b"ef"), None, Some(b"g")];
    let (mut log, mut buffer) = (arriving(&pieces), [0; 9]);
    log.stop_when(|| true);
    assert_eq!(log.read_at(0, &mut buffer).unwrap(), 4);
    assert!(log.was_stopped() && !log.awaits_more(4) && !log.is_cancelled());
    // One that ends by itself was not stopped.
    let mut log = arriving(&pieces[..1]);
    log.stop_when(|| true);
    assert_eq!(log.read_at(0, &mut buffer).unwrap(), 4);
    assert!(!log.was_stopped());
}

#[test]
fn a_stopped_stream_that_never_pauses_ends_all_the_same() {
    let mut log = LogFile::stream(Path::new("-"), Box::new(io::repeat(1))).unwrap();
    log.stop_when(|| true);
    let mut buffer = vec![0; 4 << 20];
    let read = log.read_at(0, &mut buffer).unwrap();
    assert!((1 << 20..4 << 20).contains(&read) && log.was_stopped(), "{read}");
}

#[test]
fn pauses_in_compressed_streams_change_nothing() {
    let plain: Vec<u8> = (0..90_000u32).flat_map(|n| (n / 7).to_le_bytes()).collect();
    let packed = zstd::encode_all(&plain[..], 1).unwrap();
    let mut pieces: Vec<_> = packed.chunks(1000).flat_map(|piece| [Some(piece), None]).collect();
    let mut buffer = vec![0; plain.len() + 1];
    assert_eq!(arriving(&pieces).read_at(0, &mut buffer).unwrap(), plain.len());
    assert!(buffer.starts_with(&plain));
    pieces.truncate(pieces.len() / 2);
    pieces.push(None);
    let mut log = arriving(&pieces);
    log.stop_when(|| true);
    let read = log.read_at(0, &mut buffer).unwrap();
    assert!(plain.starts_with(&buffer[..read]) && log.was_stopped());
    assert_eq!(log.decompression_error(), None);
}

/// How much a steady trickle brings in many seconds.
const LONG: usize = 16 << 10;

#[test]
fn a_stream_that_trickles_is_passed_on_as_well() {
    struct Trickle;
    impl io::Read for Trickle {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            std::thread::sleep(Duration::from_millis(1));
            buffer[0] = 1;
            Ok(1)
        }
    }
    let mut log = LogFile::stream(Path::new("-"), Box::new(Trickle)).unwrap();
    let read = log.read_arrived(0, &mut [0; LONG], 1).unwrap();
    assert!((1..LONG).contains(&read), "{read}");
}

#[test]
fn a_pipe_that_trickles_ends_when_it_is_stopped() {
    let (from, mut to) = io::pipe().unwrap();
    let path = PathBuf::from(format!("/dev/fd/{}", from.as_raw_fd()));
    to.write_all(b"abcdef").unwrap();
    let mut log = LogFile::open(&path).unwrap();
    log.stop_when(|| true);
    std::thread::scope(|scope| {
        // Ends when nobody reads any more.
        scope.spawn(move || {
            while to.write_all(b"x").is_ok() {
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let mut buffer = [0; LONG];
        let read = log.read_at(0, &mut buffer).unwrap();
        assert!(buffer.starts_with(b"abcdef") && (6..LONG).contains(&read), "{read}");
        assert!(log.was_stopped());
        drop((from, log));
    });
}

#[test]
fn what_precedes_damage_in_compressed_bytes_does_not_depend_on_their_pieces() {
    let plain: Vec<u8> =
        (0..300_000u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    let frame = |from: &[u8], level| zstd::encode_all(from, level).unwrap();
    let first = frame(&plain[..400_000], 1);
    let skippable = [&b"\x52\x2a\x4d\x18\x03\0\0\0"[..], b"xyz"].concat();
    let packed = [first, skippable, frame(b"", 1), frame(&plain[400_000..], 3)].concat();
    let read = |packed: &[u8], piece: usize| {
        let pieces: Vec<_> = packed.chunks(piece).flat_map(|bytes| [Some(bytes), None]).collect();
        let (mut log, mut buffer) = (arriving(&pieces), vec![0; plain.len() + 1]);
        let read = log.read_at(0, &mut buffer).unwrap();
        buffer.truncate(read);
        (buffer, log.decompression_error().map(str::to_owned))
    };
    for piece in [611, 10_000, 131_075, packed.len()] {
        assert!(read(&packed, piece) == (plain.clone(), None), "{piece}");
    }
    // What is read at a time, exactly.
    for len in [256 << 10, 512 << 10] {
        assert!(read(&frame(&plain[..len], 1), 10_000) == (plain[..len].to_vec(), None), "{len}");
    }
    for place in [5, 200_000, 400_030, packed.len() - 100_000, packed.len() - 2] {
        let mut damaged = packed.clone();
        damaged.splice(place..place + 1, [0xff; 300]);
        let (there, error) = read(&damaged, packed.len());
        assert!(error.is_some(), "{place}");
        // All but the block before it; these bytes cannot be compressed.
        assert!(there.len() + (1 << 17) >= place.min(plain.len()), "{place}: {}", there.len());
        for piece in [611, 10_000, 100_000] {
            assert!(read(&damaged, piece) == (there.clone(), error.clone()), "{place}, {piece}");
        }
    }
}

/// A frame of the bytes with a checksum.
fn checked_frame(plain: &[u8]) -> Vec<u8> {
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
    encoder.include_checksum(true).unwrap();
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

/// Bytes that cannot be compressed: zstd stores them as they are.
fn random(seed: u32, len: u32) -> Vec<u8> {
    let words = (0..len / 4).map(move |n| (n + seed).wrapping_mul(2_654_435_761) ^ seed);
    words.flat_map(u32::to_le_bytes).collect()
}

/// What there is of a compressed stream before, between and behind its gaps, and what is told of
/// them.
fn around_gaps(packed: &[u8]) -> (Vec<Vec<u8>>, Vec<String>) {
    let (mut log, mut at) = (arriving(&[Some(packed)]), 0);
    let (mut parts, mut gaps) = (Vec::new(), Vec::new());
    let mut buffer = vec![0; 8 << 20];
    loop {
        let read = log.read_at(at, &mut buffer).unwrap();
        parts.push(buffer[..read].to_vec());
        gaps.extend(log.decompression_error().map(str::to_owned));
        match log.resume().unwrap() {
            Some(next) => at = next,
            None => return (parts, gaps),
        }
    }
}

#[test]
fn a_stored_block_with_a_wrong_length_takes_in_no_other_frame() {
    for (len, count) in [(500, 12), (3_000, 8), (100_000, 8), (700_000, 4), (2_000_000, 4)] {
        let contents: Vec<_> = (0..count).map(|n| random(n, len)).collect();
        let frames: Vec<_> = contents.iter().map(|content| checked_frame(content)).collect();
        // The last block, behind whole ones, before the checksum.
        let last = (len as usize - 1) % (128 << 10) + 1;
        let header = frames[1].len() - 4 - last - 3;
        for bit in 3..24 {
            let mut packed = frames.concat();
            packed[frames[0].len() + header + bit / 8] ^= 1 << (bit % 8);
            let (parts, gaps) = around_gaps(&packed);
            assert!(!gaps.is_empty(), "{len}, {bit}");
            let told = gaps.iter().any(|why| why.contains("may be wrong"));
            let all = parts.concat();
            // What is long is passed on before its end.
            let rest = all.strip_prefix(&*contents[0]).unwrap();
            let rest = match rest.len().checked_sub(contents[2..].concat().len()) {
                Some(more) if told => {
                    assert!(more < contents[1].len() + (128 << 10), "{len}, {bit}: {more}");
                    &rest[more..]
                }
                _ => rest,
            };
            assert!(rest == contents[2..].concat(), "{len}, {bit}: {gaps:?}");
        }
    }
}

#[test]
fn a_flipped_bit_hides_no_frame_but_its_own() {
    let plain = |n: u32| -> Vec<u8> {
        let words = (0..300).flat_map(move |at| [n * 1000 + at, at % 7 * 0x0101_0101]);
        words.flat_map(u32::to_le_bytes).collect()
    };
    let frames: Vec<_> = (0..6).map(|n| checked_frame(&plain(n))).collect();
    let start = frames[..2].concat().len();
    for bit in (0..frames[2].len() * 8).filter(|bit| *bit < 200 || bit % 7 == 0) {
        let mut packed = frames.concat();
        packed[start + bit / 8] ^= 1 << (bit % 8);
        let found = around_gaps(&packed).0.concat();
        let is_there = |n: &u32| {
            let plain = plain(*n);
            let at = found.windows(8).position(|bytes| plain.starts_with(bytes));
            at.is_some_and(|at| found[at..].starts_with(&plain))
        };
        let missing: Vec<u32> = (0..6).filter(|n| !is_there(n)).collect();
        assert!(missing == [2] || missing.is_empty(), "{bit}: {missing:?}");
    }
}

#[test]
fn a_frame_that_was_cut_off_hides_no_frame_behind_it() {
    let plain: Vec<u8> = (0..20_000u32).flat_map(|n| (n / 3 * 77).to_le_bytes()).collect();
    let frame = checked_frame(&plain);
    for len in (5..frame.len()).step_by(97) {
        let packed = [&frame[..len], &frame].concat();
        let (mut log, mut buffer) = (arriving(&[Some(&packed)]), vec![0; plain.len() + 1]);
        log.read_at(0, &mut buffer).unwrap();
        let next = log.resume().unwrap().unwrap();
        assert_eq!(log.read_at(next, &mut buffer).unwrap(), plain.len(), "{len}");
        assert!(buffer.starts_with(&plain), "{len}");
    }
}

#[test]
fn a_frame_in_a_damaged_frame_is_not_taken_for_one_of_the_log() {
    // Two frames in sequence are told from those of the log only if lengths are right.
    for (nested_len, count) in [(3_000, 1), (2_000_000, 1), (3_000, 2)] {
        let nested = checked_frame(&vec![7; nested_len]).repeat(count);
        // It cannot be compressed, so the bytes of the other are there as they are.
        let outer = checked_frame(&[random(1, 40_000), nested.clone(), random(2, 40_000)].concat());
        assert!(outer.windows(nested.len()).any(|bytes| bytes == nested));
        let last = random(3, 50_000);
        for place in if count == 1 { &[0, 4, 6, 100][..] } else { &[100] } {
            let mut damaged = outer.clone();
            damaged[*place] ^= 0x06;
            let first = checked_frame(b"first");
            let skippable = [0x53, 0x2a, 0x4d, 0x18, 2, 0, 0, 0, 1, 2];
            let packed = [&first[..], &damaged, &checked_frame(&last), &skippable].concat();
            let all = around_gaps(&packed).0.concat();
            assert!(all.ends_with(&last), "{nested_len}, {place}: {}", all.len());
            assert!(!all.windows(1_000).any(|bytes| bytes == [7; 1_000]), "{nested_len}, {place}");
        }
    }
}

#[test]
fn a_frame_behind_one_that_was_cut_off_between_blocks_is_read_from_a_slow_pipe() {
    let plain = random(1, 200_000);
    let frame = checked_frame(&plain);
    // The headers of the frame and of the block, and the block.
    let cut = &frame[..6 + 3 + (128 << 10)];
    let (mut log, mut buffer) = (arriving(&[Some(cut), None, Some(&frame)]), vec![0; 300_000]);
    assert_eq!(log.read_at(0, &mut buffer).unwrap(), 128 << 10);
    let next = log.resume().unwrap().unwrap();
    assert_eq!(log.read_at(next, &mut buffer).unwrap(), plain.len());
    assert!(buffer.starts_with(&plain));
}

#[test]
fn what_looks_like_frames_everywhere_takes_no_time() {
    // Each begins a block of 128 KiB that is none.
    let blocks =
        [&ZSTD_MAGIC[..], &[0x20, 0x40, 0x04, 0x00, 0x10, 0xff, 0xff]].concat().repeat(50_000);
    // Each has a block of a type that there is not. They are in a skippable frame that is cut off.
    let headers = [&ZSTD_MAGIC[..], &[0x20, 0x01, 0x07, 0x00, 0x00]].concat().repeat(200_000);
    let skipped = [&b"\x52\x2a\x4d\x18\xff\xff\xff\x0f"[..], &headers].concat();
    for packed in [blocks, skipped] {
        let (mut log, mut at) = (arriving(&[Some(&packed)]), 0);
        let mut count = 0;
        loop {
            log.read_at(at, &mut [0; 64]).unwrap();
            log.forget(at);
            match log.resume().unwrap() {
                Some(next) => (at, count) = (next, count + 1),
                None => break,
            }
        }
        assert!((1_000..500_000).contains(&count), "{count}");
    }
}

#[test]
fn behind_damage_a_compressed_stream_goes_on_with_its_next_frame() {
    let plain: Vec<u8> =
        (0..100_000u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    let parts: Vec<&[u8]> = plain.chunks(100_000).collect();
    let frames: Vec<_> = parts.iter().map(|part| checked_frame(part)).collect();
    let second = frames[0].len();
    // The magic number, the header, a block, the last block and the checksum.
    for place in [0, 4, 50_000, frames[1].len() - 5, frames[1].len() - 1] {
        let mut packed = frames.concat();
        packed[second + place] ^= 0x55;
        for piece in [611, 10_000, packed.len()] {
            let pieces: Vec<_> =
                packed.chunks(piece).flat_map(|bytes| [Some(bytes), None]).collect();
            let (mut log, mut buffer) = (arriving(&pieces), vec![0; plain.len() + 1]);
            let end = log.read_at(0, &mut buffer).unwrap();
            assert!((100_000..=200_000).contains(&end), "{place}, {piece}: {end}");
            assert!(log.decompression_error().is_some(), "{place}, {piece}");
            // Only the checksum shows that the block is damaged.
            assert!(place != 50_000 || piece < packed.len() || end == 100_000, "{end}");

            let next = log.resume().unwrap().unwrap();
            assert_eq!((next, log.decompression_error()), (end as u64 + 1, None));
            assert_eq!(log.read_at(next - 1, &mut buffer).unwrap(), 200_001, "{place}, {piece}");
            assert!(buffer[0] == 0 && buffer[1..200_001] == plain[200_000..], "{place}, {piece}");
            assert_eq!(log.resume().unwrap(), None);
        }
    }
    // What is too long to wait for its checksum is passed on, and told.
    let mut long = checked_frame(&plain.repeat(4));
    long[50_000] ^= 0x55;
    let (mut log, mut buffer) = (arriving(&[Some(&long)]), vec![0; 4 * plain.len() + 1]);
    assert_eq!(log.read_at(0, &mut buffer).unwrap(), 4 * plain.len());
    let told = log.decompression_error().unwrap();
    assert!(told.contains("1600000 bytes of it were read before that"), "{told}");
    // So are the blocks of a short one before a block that cannot be decompressed.
    let mut blocks = checked_frame(&plain);
    // The type of the second block, behind the headers of the frame and of the first.
    blocks[6 + 3 + (128 << 10)] |= 0x06;
    let mut log = arriving(&[Some(&blocks)]);
    let end = log.read_at(0, &mut buffer).unwrap();
    assert!(end == 128 << 10 && buffer[..end] == plain[..end], "{end}");
    let told = log.decompression_error().unwrap();
    assert!(told.contains("in a frame; 131072 bytes of it were read before that"), "{told}");
    // Without another frame, the stream ends.
    let cut = &frames[0][..50_000];
    let mut log = arriving(&[Some(cut), None, Some(b"x")]);
    let mut buffer = vec![0; plain.len()];
    let end = log.read_at(0, &mut buffer).unwrap() as u64;
    let next = log.resume().unwrap().unwrap();
    assert_eq!((next, log.read_at(next, &mut buffer).unwrap()), (end + 1, 0));
    assert_eq!(log.decompression_error(), None);
}
