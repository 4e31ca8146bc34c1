//! Damage in compressed streams hides nothing but itself.

use super::*;
use crate::frames::MAGIC;

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
    let blocks = [&MAGIC[..], &[0x20, 0x40, 0x04, 0x00, 0x10, 0xff, 0xff]].concat().repeat(50_000);
    // Each has a block of a type that there is not. They are in a skippable frame that is cut off.
    let headers = [&MAGIC[..], &[0x20, 0x01, 0x07, 0x00, 0x00]].concat().repeat(200_000);
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

#[test]
fn the_compressed_bytes_that_are_passed_are_told() {
    let passed = |packed: &[u8]| {
        let (mut log, mut at, mut all) = (arriving(&[Some(packed)]), 0, Vec::new());
        let mut buffer = vec![0; 1 << 20];
        loop {
            log.read_at(at, &mut buffer).unwrap();
            all.extend(
                log.take_passed().map(|passed| (passed.start as usize, passed.end as usize)),
            );
            match log.resume().unwrap() {
                Some(next) => at = next,
                None => return all,
            }
        }
    };
    let frames: Vec<_> = (0..3).map(|n| checked_frame(&random(n, 200_000))).collect();
    let (second, third) = (frames[0].len(), frames[..2].concat().len());
    assert_eq!(passed(&frames.concat()), []);
    // The magic number, the header, a block and the checksum.
    for place in [0, 4, 50_000, frames[1].len() - 1] {
        let mut packed = frames.concat();
        packed[second + place] ^= 0x55;
        assert_eq!(passed(&packed), [(second, third)], "{place}");
    }
    // What is cut off within the second block. The bytes of stored ones are there all the same.
    assert_eq!(passed(&frames[0][..150_000]), [(150_000, 150_000)]);
    let nibbles: Vec<u8> = random(1, 200_000).iter().map(|byte| byte & 15).collect();
    let nibbles = checked_frame(&nibbles);
    let cut = nibbles.len() - 1_000;
    let cut_off = passed(&nibbles[..cut]);
    assert!(matches!(cut_off[..], [(50_000.., end)] if end == cut), "{cut_off:?}");
    assert!(cut_off[0].0 < cut, "{cut_off:?}");
    for rest in [&b"no frame"[..], &MAGIC, &[&MAGIC[..], b"nor this"].concat()] {
        let packed = [&frames[0], rest].concat();
        assert_eq!(passed(&packed), [(second, packed.len())], "{rest:?}");
    }
    // Each of several.
    let mut packed = frames.concat().repeat(2);
    let next = frames.concat().len();
    (packed[second], packed[next + second]) = (0, 0);
    assert_eq!(passed(&packed), [(second, third), (next + second, next + third)]);
}
