//! The cost of damage: only the frames it is in, and never a wrong event.

use sluice_kit::contract::{SourceContents, sample_positions};

use crate::kit::{ArchiveBuilder, FORMATS, Folder, are_among, log, plain, read, spans, unpacked};

/// Every event is from the log, in order; if any is missing, damage has been reported.
#[track_caller]
fn honest(all: &SourceContents, count: i64, what: &str) {
    let expected = plain(&log(count));
    assert!(are_among(&all.events, &expected), "{what}: wrong events");
    let missing = expected.len() - all.events.len();
    assert!(missing == 0 || !all.damage.is_empty(), "{what}: {missing} events in silence");
}

#[test]
fn a_damaged_frame_is_one_damage_and_costs_only_its_events() {
    let folder = Folder::new();
    for format in FORMATS {
        let mut bytes = ArchiveBuilder::new(format).archive(&log(60));
        let spans = spans(&folder, &bytes);
        let middle = spans[spans.len() / 2];
        bytes[middle.start as usize + 20] ^= 1;
        let all = read(&folder, &bytes);
        honest(&all, 60, format);
        let [(offset, length, reason)] = &all.damage[..] else { panic!("{:?}", all.damage) };
        assert_eq!((*offset, *length), (middle.start, u64::from(middle.compressed_len)));
        let number = format!("frame {} of {}, with ", spans.len() / 2 + 1, spans.len());
        assert!(reason.starts_with(&number) && reason.contains("1970-01-01T00:00:00."), "{reason}");
        let lost: usize = reason[number.len()..].split(' ').next().unwrap().parse().unwrap();
        assert_eq!(all.events.len() + lost, 60);
    }
}

#[test]
fn any_byte_may_be_wrong() {
    let folder = Folder::new();
    for format in FORMATS {
        let mut bytes =
            ArchiveBuilder { frame: 300, ..ArchiveBuilder::new(format) }.archive(&log(25));
        for at in sample_positions(bytes.len(), 200) {
            for flip in [0x01, 0xff] {
                bytes[at] ^= flip;
                honest(&read(&folder, &bytes), 25, &format!("{format}, byte {at} ^ {flip}"));
                bytes[at] ^= flip;
            }
        }
    }
}

#[test]
fn any_byte_may_be_wrong_without_a_footer() {
    let folder = Folder::new();
    for format in FORMATS {
        let mut bytes =
            ArchiveBuilder { frame: 300, ..ArchiveBuilder::new(format) }.archive(&log(25));
        let frames = spans(&folder, &bytes);
        bytes.truncate(frames.last().unwrap().end() as usize);
        for at in sample_positions(bytes.len(), 200) {
            bytes[at] ^= 0x41;
            let all = read(&folder, &bytes);
            honest(&all, 25, &format!("{format}, byte {at}"));
            let hit = frames.iter().find(|span| (at as u64) < span.end()).unwrap();
            let lost: u64 = all.damage.iter().map(|(_, length, _)| length).sum();
            assert!(lost <= u64::from(hit.compressed_len), "{format}, byte {at}: {:?}", all.damage);
            bytes[at] ^= 0x41;
        }
    }
}

#[test]
fn a_truncated_archive_has_every_whole_frame_and_one_damage() {
    let folder = Folder::new();
    for format in FORMATS {
        let bytes = ArchiveBuilder { frame: 300, ..ArchiveBuilder::new(format) }.archive(&log(25));
        let frames = spans(&folder, &bytes);
        for cut in sample_positions(bytes.len(), 200) {
            let all = read(&folder, &bytes[..cut]);
            let whole = frames.iter().filter(|span| span.end() <= cut as u64).count();
            let is_whole = whole == 1 && frames[0].end() == cut as u64;
            if format == "toy" && is_whole {
                // This cannot be distinguished from a log that was compressed in one piece.
                assert_eq!(all.damage, []);
                continue;
            }
            honest(&all, 25, &format!("{format}, cut at {cut}"));
            if format == "toy" && whole == 0 {
                // Nor can this, which its own source reads as far as it can be unpacked.
                continue;
            }
            let [(offset, length, _)] = &all.damage[..] else {
                panic!("{format}, cut at {cut}: {:?}", all.damage)
            };
            assert_eq!(offset + length, cut as u64, "{format}, cut at {cut}");
            let held: usize = frames[..whole]
                .iter()
                .map(|span| unpacked(&bytes[span.start as usize..span.end() as usize]))
                .map(|plain| count(format, &plain))
                .sum();
            assert_eq!(all.events.len(), held, "{format}, cut at {cut}");
        }
    }
}

/// How many events a frame has: none, if it is a format's head or tail.
fn count(format: &str, plain: &[u8]) -> usize {
    let format =
        sluice_archive::fuzzing::find_format(format, &sluice_model::Registry::linked()).unwrap();
    let context = sluice_model::ReadContext::standalone("test");
    let piece = bytes::Bytes::copy_from_slice(plain);
    let read = format.decode(piece, 0, std::path::Path::new("x"), &context).unwrap();
    read.map_or(0, |batches| batches.iter().map(sluice_model::Batch::len).sum())
}

#[test]
fn bytes_between_frames_are_one_damage() {
    let folder = Folder::new();
    let bytes = ArchiveBuilder::new("toy").archive(&log(60));
    let at = spans(&folder, &bytes)[3].start as usize;
    for stray in [&b"stray bytes"[..], &[0x28, 0xb5, 0x2f, 0xfd], &[0; 5000]] {
        let all = read(&folder, &[&bytes[..at], stray, &bytes[at..]].concat());
        assert_eq!(all.events, plain(&log(60)));
        let [(offset, length, _)] = &all.damage[..] else { panic!("{:?}", all.damage) };
        assert_eq!((*offset, *length), (at as u64, stray.len() as u64));
    }
}

#[test]
fn a_frame_that_claims_ten_gigabytes_is_damage() {
    let folder = Folder::new();
    let bytes = ArchiveBuilder::new("toy").archive(&log(60));
    let spans = spans(&folder, &bytes);
    // A frame header that declares this in eight bytes, before an empty last block.
    let mut huge = vec![0x28, 0xb5, 0x2f, 0xfd, 0xe4];
    huge.extend(10_000_000_000u64.to_le_bytes());
    huge.extend([1, 0, 0, 0, 0, 0, 0]);
    for without_footer in [false, true] {
        let mut file = bytes.clone();
        let at = spans[3].start as usize;
        file[at..at + huge.len()].copy_from_slice(&huge);
        if without_footer {
            file.truncate(spans.last().unwrap().end() as usize);
        }
        let all = read(&folder, &file);
        honest(&all, 60, "ten gigabytes");
        assert_eq!(all.damage[0].0, spans[3].start);
        assert!(all.events.len() > 40);
    }
    let all = read(&folder, &[&huge[..], &bytes].concat());
    assert!(are_among(&all.events, &plain(&log(60))) && !all.damage.is_empty());
}

#[test]
fn concatenated_archives_are_read_in_order() {
    let folder = Folder::new();
    for format in FORMATS {
        let bytes = ArchiveBuilder::new(format).archive(&log(30));
        let all = read(&folder, &[&bytes[..], &bytes].concat());
        let once = plain(&log(30));
        assert_eq!((all.events, all.damage.len()), ([&once[..], &once].concat(), 0), "{format}");
    }
}

#[test]
fn an_empty_file_is_damage() {
    let all = read(&Folder::new(), b"");
    assert_eq!((all.events.len(), all.damage.len()), (0, 1));
    assert!(all.damage[0].2.contains("empty"), "{:?}", all.damage);
}

#[test]
fn numbers_that_are_positions_are_right_behind_damage_or_it_says_that_they_may_be_wrong() {
    let folder = Folder::new();
    let events: Vec<_> = log(60).into_iter().map(|(time, _, p)| (time, "AT".into(), p)).collect();
    let bytes = ArchiveBuilder::new("toy").archive(&events);
    let (sound, spans) = (read(&folder, &bytes), spans(&folder, &bytes));
    assert!(sound.events.iter().is_sorted_by_key(|event| event.sequence));
    let (middle, end) = (spans[spans.len() / 2], spans.last().unwrap().end() as usize);
    // The magic, the descriptor and the declared length of a frame, and its content.
    for at in [0, 4, 5, 6, 20] {
        let mut damaged = bytes.clone();
        damaged[middle.start as usize + at] ^= 0x41;
        // Only the index.
        damaged[end + 10] ^= 1;
        let all = read(&folder, &damaged);
        assert!(are_among(&all.events, &sound.events), "{at}: {:?}", all.damage);
        assert!(all.events.len() > 50 && all.damage.len() == 2, "{at}: {:?}", all.damage);
        assert!(!all.damage[0].2.contains("may be wrong"), "{at}: {:?}", all.damage);

        let all = read(&folder, &damaged[..end]);
        let is_told = all.damage[0].2.contains("numbers that are positions may be wrong");
        assert!(is_told, "{at}: {:?}", all.damage);
    }
}
