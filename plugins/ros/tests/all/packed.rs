//! Messages are never found in the compressed bytes of a chunk, however it is damaged: LZ4 keeps
//! text that does not repeat as it is, and a message may be found in there with other bytes.

use std::io::Write;

use bzip2::Compression;
use bzip2::write::BzEncoder;
use lz4_flex::frame::{FrameEncoder, FrameInfo};
use sluice_kit::contract::SourceContents;

use crate::bags::{bag_record, connection, read, read_noted};

pub(crate) fn packed_chunk(records: &[u8]) -> Vec<u8> {
    let info = FrameInfo::new().content_checksum(true);
    let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
    encoder.write_all(records).unwrap();
    let packed = encoder.finish().unwrap();
    let len = (records.len() as u32).to_le_bytes();
    bag_record(&[("op", &[5]), ("compression", b"lz4"), ("size", &len)], &packed)
}

/// Its header does not repeat anything, as zeros would.
fn message(seconds: u32, text: &[u8]) -> Vec<u8> {
    let time = [seconds.to_le_bytes(), 123_456_789u32.to_le_bytes()].concat();
    bag_record(&[("op", &[2]), ("conn", &[0; 4]), ("time", &time)], text)
}

/// A bag that was not closed, and where its last chunk begins, which is one message.
fn bag() -> (Vec<u8>, usize) {
    let head: [(&str, &[u8]); 4] =
        [("op", &[3]), ("index_pos", &[0; 8]), ("conn_count", &[0; 4]), ("chunk_count", &[0; 4])];
    let first = [connection(0, b"/a"), message(1, b"the first")].concat();
    let front = [b"#ROSBAG V2.0\n", &bag_record(&head, b"")[..], &packed_chunk(&first)].concat();
    let last = packed_chunk(&message(2, b"the second: 111111111111111"));
    let start = front.len();
    ([front, last].concat(), start)
}

#[test]
fn no_message_is_made_of_the_compressed_bytes_of_a_cut_chunk() {
    let (bag, start) = bag();
    let whole = read(&bag);
    assert_eq!((whole.events.len(), whole.damage.len()), (2, 0), "{:?}", whole.damage);
    for cut in start + 1..bag.len() {
        let found = read(&bag[..cut]);
        assert!(whole.events.starts_with(&found.events), "cut at {cut}: {:?}", found.events);
        // The messages are complete before the end mark and the checksum of the frame.
        let is_complete = found.events == whole.events;
        assert!(is_complete || (cut + 8 < bag.len() && !found.damage.is_empty()), "cut at {cut}");
    }
}

#[test]
fn no_message_is_made_of_the_compressed_bytes_of_a_cut_chunk_with_a_damaged_header() {
    let (bag, start) = bag();
    let whole = read(&bag);
    for cut in bag.len() - 12..=bag.len() {
        for place in start..bag.len().min(start + 60) {
            let mut bytes = bag[..cut].to_vec();
            bytes[place] ^= 0x20;
            let found = read(&bytes);
            let is_right = found.events.iter().all(|event| whole.events.contains(event));
            assert!(is_right, "cut at {cut}, changed at {place}: {:?}", found.events);
        }
    }
}

#[test]
fn a_chunk_behind_a_packed_one_with_a_wrong_length_is_read() {
    let (mut bag, start) = bag();
    bag.extend(packed_chunk(&message(3, b"the third")));
    let whole = read(&bag);
    assert_eq!(whole.events.len(), 3);
    // The most significant byte of the length of its data, behind the header.
    let header = u32::from_le_bytes(bag[start..start + 4].try_into().unwrap()) as usize;
    bag[start + 4 + header + 2] ^= 1;
    let found = read(&bag);
    assert_eq!(found.events, whole.events);
}

/// A chunk that has more compressed bytes than a search reads at once, in several blocks.
fn long_chunk(from: u32) -> Vec<u8> {
    let mut state = from;
    let mut noise = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    let mut records = connection(0, b"/a");
    for seconds in from..from + 300 {
        let text: Vec<u8> = (0..1000).map(|_| noise()).collect();
        records.extend(message(seconds, &text));
    }
    let mut encoder = BzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(&records).unwrap();
    let len = (records.len() as u32).to_le_bytes();
    let header: [(&str, &[u8]); 3] = [("op", &[5]), ("compression", b"bz2"), ("size", &len)];
    bag_record(&header, &encoder.finish().unwrap())
}

/// What is read of a bag, which is the same if it is compressed, so that it is read once, in order.
fn read_both(bag: &[u8], what: &str) -> SourceContents {
    let compressed = sluice_io::frames::compress(bag, 1).unwrap();
    let ((stream, _), found) = (read_noted("a.bag.zst", &compressed), read(bag));
    assert!(stream.events == found.events, "{what}: {} events", stream.events.len());
    assert_eq!(stream.damage, found.damage, "{what}");
    found
}

#[test]
fn a_long_chunk_that_is_cut_off_is_read_up_to_the_cut_in_a_stream() {
    let (mut bag, _) = bag();
    let start = bag.len();
    bag.extend(long_chunk(3));
    for percent in [1, 30, 60, 99] {
        let cut = start + (bag.len() - start) * percent / 100;
        let found = read_both(&bag[..cut], &format!("cut at {cut}"));
        assert_eq!(found.damage.len(), 1, "{:?}", found.damage);
        assert_eq!(found.events.len() > 2, percent >= 60, "cut at {cut}");
    }
    // Nothing of the first block can be read.
    bag[start + 1000] ^= 1;
    let found = read_both(&bag[..start + (bag.len() - start) / 2], "changed and cut");
    assert_eq!((found.events.len(), found.damage.len()), (2, 1), "{:?}", found.damage);
}

#[test]
fn a_chunk_behind_a_long_one_whose_length_exceeds_the_bag_is_read_in_a_stream() {
    let (mut bag, _) = bag();
    let start = bag.len();
    bag.extend([long_chunk(3), long_chunk(303)].concat());
    let whole = read(&bag);
    // The most significant byte but one of the length of its data, behind the header.
    let header = u32::from_le_bytes(bag[start..start + 4].try_into().unwrap()) as usize;
    bag[start + 4 + header + 2] ^= 0x80;
    let found = read_both(&bag, "a wrong length");
    assert!(found.events == whole.events, "{} events", found.events.len());
    // Without its first block, it cannot be read.
    bag[start + 1000] ^= 1;
    let found = read_both(&bag, "a wrong length and a changed bit");
    assert_eq!((found.events.len(), found.damage.len()), (302, 1), "{:?}", found.damage);
}
