//! What the source makes of a chunk that the end of the file cuts off.

use lz4_flex::frame::{BlockSize, FrameEncoder, FrameInfo};

use crate::kit::{channel, chunk_with, end, fields, header, message, read};

/// A header, and a channel.
fn front() -> Vec<u8> {
    [header(), channel(1, 0, "/a")].concat()
}

/// Bytes that cannot be compressed, others for each seed.
fn noise(seed: u32, len: usize) -> Vec<u8> {
    let mut state = seed + 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as u8
    };
    (0..len).map(|_| next()).collect()
}

/// Messages with these times and random payloads.
fn messages(count: u64, len: usize) -> Vec<u8> {
    (0..count).flat_map(|n| message(1, n as u32, n, &noise(n as u32, len))).collect()
}

/// A chunk of messages with times below `count`.
fn chunk(count: u64, compression: &str, records: &[u8]) -> Vec<u8> {
    let packed = match compression {
        "zstd" => zstd::encode_all(records, 1).unwrap(),
        "lz4" => {
            let form = FrameInfo::new().block_size(BlockSize::Max64KB);
            let mut encoder = FrameEncoder::with_frame_info(form, Vec::new());
            std::io::Write::write_all(&mut encoder, records).unwrap();
            encoder.finish().unwrap()
        }
        _ => records.to_vec(),
    };
    let crc = crc32fast::hash(records);
    chunk_with(0, count - 1, (records.len() as u64, crc), compression, &packed)
}

/// How many events are read of a cut file, and where the damage starts. Damage is one range, up to
/// the end.
#[track_caller]
fn cut(file: &[u8]) -> (usize, usize) {
    let contents = read(file);
    for (n, event) in (0..).zip(&contents.events) {
        assert_eq!((event.timestamp, event.sequence), (n, n));
    }
    let [(at, len, reason)] = &contents.damage[..] else { panic!("{:?}", contents.damage) };
    assert_eq!(at + len, file.len() as u64);
    assert!(contents.events.is_empty() || reason.contains("read without a checksum"), "{reason}");
    (contents.events.len(), *at as usize)
}

#[test]
fn a_cut_plain_chunk_yields_its_whole_messages() {
    let (front, record) = (front(), messages(1, 10).len());
    let file = [front.clone(), chunk(5, "", &messages(5, 10))].concat();
    let records = file.len() - 5 * record;
    for len in front.len() + 1..file.len() {
        let whole = len.saturating_sub(records) / record;
        let damage = if whole == 0 { front.len() } else { records + whole * record };
        assert_eq!(cut(&file[..len]), (whole, damage), "cut at byte {len}");
    }
    assert_eq!(read(&file).damage, []);
}

#[test]
fn a_cut_compressed_chunk_yields_the_messages_of_its_whole_blocks() {
    let (front, payload) = (front(), 10_000);
    let records = messages(70, payload);
    for (compression, block) in [("zstd", 128 << 10), ("lz4", 64 << 10)] {
        let file = [front.clone(), chunk(70, compression, &records)].concat();
        let (mut last, mut counts) = (0, Vec::new());
        for len in (front.len() + 60..file.len()).step_by(20_011) {
            let (events, damage) = cut(&file[..len]);
            assert!(events >= last, "{compression}: {events} events of {len} bytes");
            // Noise is as long as it was, so blocks end near these positions.
            let blocks = (len - front.len() - 49) / (block + 3);
            let least = (blocks * block / (payload + 31)).min(70);
            assert!((least.saturating_sub(1)..=70).contains(&events), "{compression}: {events}");
            assert!(damage <= len && (events == 0 || damage + block + 100 > last * payload));
            (last, counts) = (events, [counts, vec![events]].concat());
        }
        counts.dedup();
        assert!(counts.len() > 2 && counts[0] == 0, "{compression}: {counts:?}");
        assert_eq!(read(&file).events.len(), 70);
    }
}

#[test]
fn every_cut_of_a_zstd_chunk_of_small_blocks_yields_what_blocks_hold() {
    let (front, records) = (front(), messages(8, 12));
    // Flushing ends a block.
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
    let mut ends = Vec::new();
    for record in records.chunks(records.len() / 8) {
        std::io::Write::write_all(&mut encoder, record).unwrap();
        std::io::Write::flush(&mut encoder).unwrap();
        ends.push(encoder.get_ref().len());
    }
    let packed = encoder.finish().unwrap();
    let chunk = chunk_with(0, 7, (records.len() as u64, 0), "zstd", &packed);
    let file = [front, chunk].concat();
    let start = file.len() - packed.len();
    for len in start..file.len() {
        let whole = ends.iter().filter(|end| start + **end <= len).count();
        let (events, damage) = cut(&file[..len]);
        // The decoder passes on what is there of a block that is not compressed.
        assert!(events == whole || events == whole + 1, "cut at byte {len}: {events} of {whole}");
        assert!(events == 0 || damage <= len);
    }
}

#[test]
fn a_chunk_whose_writer_was_killed_is_read_as_far_as_it_goes() {
    let (front, records) = (front(), messages(30, 9_000));
    for compression in ["", "zstd"] {
        let packed = match compression {
            "" => records.clone(),
            _ => zstd::encode_all(&records[..], 1).unwrap(),
        };
        // The writer of the crate `mcap` fills these in at the end of the chunk.
        let head = fields().u64(0).u64(0).u64(u64::MAX).u32(u32::MAX).bytes(compression.as_bytes());
        let mut chunk = head.u64(u64::MAX).raw(&packed[..packed.len() - 5]).record(6);
        chunk[1..9].fill(0xff);
        let file = [&front[..], &chunk].concat();
        let (events, _) = cut(&file);
        assert!((10..30).contains(&events), "{events}");
    }
}

#[test]
fn a_cut_chunk_is_read_up_to_what_is_wrong() {
    let front = front();
    let good = messages(2, 10);
    let late = message(1, 2, 5_000, b"late");
    let undeclared = message(9, 2, 2, b"undeclared");
    let again = channel(1, 0, "/again");
    let beyond = [&[5][..], &u64::MAX.to_le_bytes(), &[0; 20]].concat();
    for wrong in [late, undeclared, again, beyond] {
        let records = [good.clone(), wrong, messages(2, 10)].concat();
        let file = [front.clone(), chunk(10, "", &records)].concat();
        let (events, damage) = cut(&file[..file.len() - 1]);
        assert_eq!((events, damage), (2, file.len() - records.len() + good.len()));
    }
}

#[test]
fn a_cut_chunk_produces_no_more_than_its_length_and_max_chunk() {
    let records = messages(3, 10);
    // The zeros behind them are no records, and more than `max_chunk` of these tests.
    let bomb = zstd::encode_all(&[&records[..], &vec![0; 8 << 20]].concat()[..], 1).unwrap();
    for len in [records.len() as u64, 100 << 20] {
        let chunk = chunk_with(0, 2, (len, 0), "zstd", &[&bomb[..], &[0; 9]].concat());
        let (events, _) = cut(&[front(), chunk[..chunk.len() - 1].to_vec()].concat());
        assert_eq!(events, 3);
    }
}

#[test]
fn a_chunk_with_a_wrong_length_is_not_taken_for_a_cut_one() {
    let mut wrong = chunk(5, "", &messages(5, 10));
    wrong[1..9].copy_from_slice(&(1u64 << 20).to_le_bytes());
    let contents = read(&[front(), wrong, chunk(3, "", &messages(3, 10)), end()].concat());
    assert_eq!((contents.events.len(), contents.damage.len()), (8, 1));
    assert!(contents.damage[0].2.contains("should be"), "{:?}", contents.damage);
    // At the end of a file that has no footer, too.
    let mut wrong = chunk(5, "", &messages(5, 10));
    let longer = wrong.len() as u64 - 9 + 5;
    wrong[1..9].copy_from_slice(&longer.to_le_bytes());
    let contents = read(&[front(), wrong].concat());
    assert_eq!(contents.events.len(), 5);
    assert!(contents.damage[0].2.contains("should be"), "{:?}", contents.damage);
}
