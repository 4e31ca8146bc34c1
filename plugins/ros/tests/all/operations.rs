//! What the source `ros1-bag` makes of records whose operation is damaged, or not valid where they
//! are.

use memchr::memmem;

use crate::bags::{bag, bag_chunk, bag_record, connection, message, read};
use crate::packed::packed_chunk;

#[test]
fn a_changed_bit_in_the_operation_of_a_message_is_damage() {
    // In the second bag, the last chunk has no length yet: its messages are read one by one, if
    // another record follows them.
    for (case, most) in [("bag-plain", 1), ("bag-being-recorded", 2)] {
        let mut bytes = bag(case);
        let all = read(&bytes).events.len();
        let messages: Vec<usize> = memmem::find_iter(&bytes, b"\x04\0\0\0op=\x02").collect();
        assert_eq!(messages.len(), all);
        for place in messages.into_iter().map(|at| at + 7) {
            for bit in 0..8 {
                bytes[place] ^= 1 << bit;
                let found = read(&bytes);
                let lost = all - found.events.len();
                assert!((1..=most).contains(&lost), "{case}, bit {bit} at {place}: {lost}");
                assert!(!found.damage.is_empty(), "{case}, bit {bit} at {place}");
                bytes[place] ^= 1 << bit;
            }
        }
    }
}

#[test]
fn a_changed_bit_in_the_operation_of_any_record_is_damage() {
    let mut bytes = bag("bag-plain");
    let records: Vec<usize> = memmem::find_iter(&bytes, b"\x04\0\0\0op=").collect();
    for place in records.into_iter().map(|at| at + 7) {
        for bit in 0..8 {
            bytes[place] ^= 1 << bit;
            assert!(!read(&bytes).damage.is_empty(), "bit {bit} at {place}");
            bytes[place] ^= 1 << bit;
        }
    }
}

/// A bag that was not closed, with these chunks.
fn bag_of(chunks: &[Vec<u8>]) -> Vec<u8> {
    let head: [(&str, &[u8]); 4] =
        [("op", &[3]), ("index_pos", &[0; 8]), ("conn_count", &[0; 4]), ("chunk_count", &[0; 4])];
    [b"#ROSBAG V2.0\n".to_vec(), bag_record(&head, b""), chunks.concat()].concat()
}

#[test]
fn a_record_that_is_not_valid_in_a_chunk_is_damage() {
    let (zero, one, time) = ([0; 4], 1u32.to_le_bytes(), [0; 8]);
    let invalid: [&[(&str, &[u8])]; 4] = [
        &[("op", &[3]), ("index_pos", &[0; 8]), ("conn_count", &zero), ("chunk_count", &zero)],
        &[("op", &[4]), ("ver", &one), ("conn", &zero), ("count", &zero)],
        &[("op", &[5]), ("compression", b"none"), ("size", &zero)],
        &[
            ("op", &[6]),
            ("ver", &one),
            ("chunk_pos", &[0; 8]),
            ("start_time", &time),
            ("end_time", &time),
            ("count", &zero),
        ],
    ];
    for header in invalid {
        let records =
            [connection(0, b"/a"), message(0, 1), bag_record(header, b""), message(0, 2)].concat();
        for chunk in [bag_chunk(&records), packed_chunk(&records)] {
            let found = read(&bag_of(&[chunk, bag_chunk(&message(0, 3))]));
            let seconds: Vec<i64> =
                found.events.iter().map(|event| event.timestamp / 1_000_000_000).collect();
            assert!(seconds.contains(&1) && seconds.contains(&3), "{header:?}: {seconds:?}");
            assert_eq!(found.damage.len(), 1, "{header:?}: {:?}", found.damage);
        }
    }
}
