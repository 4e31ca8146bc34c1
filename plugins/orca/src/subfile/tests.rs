//! Records of every form are found.

#![expect(clippy::indexing_slicing, reason = "a test that cannot go on has failed")]

use super::*;
use proptest::prelude::*;

fn reader(bytes: &[u8]) -> impl FnMut(u64, &mut [u8]) -> Result<usize, Error> {
    |at, buffer| {
        let rest = usize::try_from(at).ok().and_then(|at| bytes.get(at..)).unwrap_or_default();
        let len = rest.len().min(buffer.len());
        buffer[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }
}

fn index(bytes: &[u8]) -> RecordIndex {
    index_with(bytes, FramingHints { first_may_lack_id: true, ..FramingHints::default() }, 1 << 20)
}

fn index_with(bytes: &[u8], hints: FramingHints, max_offsets: usize) -> RecordIndex {
    RecordIndex::build_framed(hints, bytes.len() as u64, &mut reader(bytes), max_offsets).unwrap()
}

fn framed(prefix: RecordPrefix, records: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (n, record) in records.iter().enumerate() {
        if prefix.has_id(n as u64) {
            bytes.push((n % 3) as u8);
        }
        let len = record.len() as u64;
        bytes.extend(&len.to_le_bytes()[..if prefix.wide { 8 } else { 4 }]);
        bytes.extend(record);
    }
    bytes
}

/// A record that starts with a time of 0, and without its last byte ends like an object.
fn description() -> Vec<u8> {
    [vec![0; 8], vec![9; 100], 3f64.to_le_bytes().to_vec(), vec![0]].concat()
}

fn objects(count: usize) -> Vec<Vec<u8>> {
    (0..count)
        .map(|n| {
            let mut object: Vec<u8> = (0..n * 7 % 300).map(|b| (b * n + 5) as u8).collect();
            object.push(0);
            object
        })
        .collect()
}

fn prefix_of(index: &RecordIndex) -> RecordPrefix {
    match index.framing {
        RecordFraming::Framed { prefix, .. } => prefix,
        RecordFraming::Lines => panic!("records"),
    }
}

fn all(index: &RecordIndex, bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut cursor = IndexCursor::default();
    (0..index.records)
        .map(|n| {
            let place = index.locate(n, &mut cursor, &mut reader(bytes)).unwrap().unwrap();
            let record = &bytes[place.start as usize..place.end as usize];
            record[index.framing.payload(n, record).unwrap().1].to_vec()
        })
        .collect()
}

#[test]
fn the_record_prefix_is_detected_from_the_file() {
    for prefix in RecordPrefix::ALL {
        let bytes = framed(prefix, &objects(40));
        let index = index(&bytes);
        assert_eq!((prefix_of(&index), index.records, &index.damage), (prefix, 40, &None));
        assert_eq!(all(&index, &bytes), objects(40));
    }
}

#[test]
fn a_damaged_end_does_not_hide_the_form() {
    for prefix in RecordPrefix::ALL {
        let mut bytes = framed(prefix, &objects(40));
        bytes.truncate(bytes.len() - 3);
        let index = index(&bytes);
        assert_eq!((prefix_of(&index), index.records), (prefix, 39));
        let (len, reason) = index.damage.unwrap();
        assert_eq!(index.end + len, bytes.len() as u64);
        assert!(reason.contains("cut off"), "{reason}");
    }
}

#[test]
fn lengths_of_zero_and_excessive_lengths_end_the_readable_part() {
    for (tail, says) in [([0u8; 4], "length 0"), ([0xff; 4], "more than any record has")] {
        let bytes = [&framed(RecordPrefix::default(), &objects(5))[..], &tail, b"more"].concat();
        let index = index_with(
            &bytes,
            FramingHints { prefix: Some(RecordPrefix::default()), ..FramingHints::default() },
            99,
        );
        assert_eq!((index.records, index.damage.as_ref().map(|d| d.0)), (5, Some(8)));
        assert!(index.damage.unwrap().1.contains(says));
    }
}

#[test]
fn an_empty_file_has_no_records_and_no_damage() {
    let index = index(b"");
    assert_eq!((index.records, index.damage), (0, None));
}

#[test]
fn lines_are_records() {
    let text = b"one\r\n\ntwo\nlast\n";
    let index = RecordIndex::build_lines(text.len() as u64, &mut reader(text), 3).unwrap();
    assert_eq!(all(&index, text), [&b"one"[..], b"", b"two", b"last"]);
    assert_eq!(index.damage, None);
}

#[test]
fn a_last_line_without_a_line_break_is_damage() {
    for last in ["l", "last", "last\r"] {
        let text = format!("one\n{last}");
        let len = text.len() as u64;
        let read = &mut reader(text.as_bytes());
        let index = RecordIndex::build_lines(len, read, 3).unwrap();
        assert_eq!(all(&index, text.as_bytes()), [b"one"]);
        let (rest, reason) = index.damage.unwrap();
        assert!(rest == last.len() as u64 && reason.contains("no line break"), "{reason}");
    }
}

/// An object of a class without members.
fn class_object(fill: usize) -> Vec<u8> {
    let mut object = b"\xff\xff\xff\xff\x01\x01\0\0\0\0\x09::a::Data".to_vec();
    object.extend(vec![7; fill]);
    object.extend(b"\x05\0\0\0\0\0");
    object
}

#[test]
fn records_of_length_zero_are_no_evidence_of_a_framing() {
    for (prefix, shown) in RecordPrefix::ALL.into_iter().zip(1..) {
        for count in 1..6 {
            let objects: Vec<Vec<u8>> = (0..count).map(|n| class_object(shown + 3 * n)).collect();
            let mut bytes = framed(prefix, &objects);
            bytes.truncate(bytes.len() - 4);
            let index = index(&bytes);
            assert_eq!(all(&index, &bytes), objects[..count - 1], "{prefix:?}");
            assert!(index.damage.is_some_and(|(_, why)| why.contains("cut off")), "{prefix:?}");
        }
    }
}

#[test]
fn of_framings_with_one_record_the_one_with_a_small_next_length_is_right() {
    let (description, object) = (description(), vec![1; 30]);
    for prefix in RecordPrefix::ALL {
        let bytes = framed(prefix, &[description.clone(), object.clone()]);
        let whole = prefix.len(0) + description.len();
        for cut in whole..bytes.len() {
            // With four bytes of the next record, it may be one after a length of eight bytes.
            if !prefix.wide && cut == whole + 4 {
                continue;
            }
            let bytes = &bytes[..cut];
            let index = index(bytes);
            assert_eq!(all(&index, bytes), std::slice::from_ref(&description), "{prefix:?} {cut}");
        }
    }
}

#[test]
fn one_record_whose_length_may_have_four_bytes_or_eight_is_noted() {
    for prefix in RecordPrefix::ALL {
        let bytes = framed(prefix, &[description()]);
        assert!(index(&bytes).has_ambiguous_length, "{prefix:?}");
        let cut = &bytes[..bytes.len() - 4];
        assert!(!prefix.wide || index(cut).has_ambiguous_length, "{prefix:?}");
        for records in [vec![class_object(3)], vec![description(), class_object(3)]] {
            assert!(!index(&framed(prefix, &records)).has_ambiguous_length, "{prefix:?}");
        }
        let hints = FramingHints { prefix: Some(prefix), ..FramingHints::default() };
        assert!(!index_with(&bytes, hints, 9).has_ambiguous_length, "{prefix:?}");
    }
}

/// A struct of whole numbers, as of a computer's load.
fn load(n: u32) -> Vec<u8> {
    let numbers = [1_154_412_007 + n, 500, 10 + n, 20 + n, 70 - n, 41.5_f32.to_bits()];
    numbers.iter().flat_map(|number| number.to_le_bytes()).chain([0]).collect()
}

#[test]
fn damage_behind_the_first_record_does_not_hide_the_form() {
    let prefixes = RecordPrefix::ALL.into_iter().filter(|prefix| !prefix.first_lacks_id);
    for (prefix, count) in prefixes.flat_map(|prefix| [(prefix, 11), (prefix, 1000)]) {
        let records: Vec<Vec<u8>> = (0..count).map(|n| load(n % 60)).collect();
        let bytes = framed(prefix, &records);
        let second = prefix.len(0) + records[0].len();
        for at in second..second + prefix.len(1) {
            for byte in [1, 0xee] {
                let mut bytes = bytes.clone();
                let end = (at + 4).min(second + prefix.len(1) + 1);
                bytes[at..end].fill(byte);
                let index = index_with(&bytes, FramingHints::default(), 1 << 20);
                let found = all(&index, &bytes);
                let shown = format!("{prefix:?} {at} {byte}: {:?}", prefix_of(&index));
                assert!(found.first() == records.first(), "{shown}");
                assert!(!index.has_ambiguous_length, "{shown}");
            }
        }
    }
}

#[test]
fn numbers_that_look_like_lengths_in_a_cut_record_do_not_hide_the_form() {
    let numbers: Vec<u8> = (0..10).flat_map(|_| 4_u32.to_le_bytes()).chain([0]).collect();
    let prefixes = RecordPrefix::ALL.into_iter().filter(|prefix| !prefix.first_lacks_id);
    for (prefix, count) in prefixes.flat_map(|prefix| [3, 5, 10].map(|count| (prefix, count))) {
        let mut bytes = framed(prefix, &vec![numbers.clone(); count]);
        bytes.truncate(bytes.len() - 9);
        for index in [index(&bytes), index_with(&bytes, FramingHints::default(), 1 << 20)] {
            assert_eq!(all(&index, &bytes), vec![numbers.clone(); count - 1], "{prefix:?} {count}");
            assert!(index.damage.is_some_and(|(_, why)| why.contains("cut off")), "{prefix:?}");
        }
    }
}

#[test]
fn small_numbers_behind_damage_do_not_show_a_form() {
    let numbers = |n: u32| (0..100).map(move |at| (at * 7 + n * 3) % 9 * (at % 3));
    let record = |n| numbers(n).flat_map(u32::to_le_bytes).chain([0]).collect();
    let records: Vec<Vec<u8>> = (0..300).map(record).collect();
    for prefix in RecordPrefix::ALL.into_iter().filter(|prefix| !prefix.first_lacks_id) {
        let mut bytes = framed(prefix, &records);
        let second = prefix.len(0) + records[0].len();
        bytes[second..=second + prefix.len(1)].fill(1);
        let index = index_with(&bytes, FramingHints::default(), 1 << 20);
        assert_eq!(all(&index, &bytes).first(), records.first(), "{prefix:?}");
    }
}

#[test]
fn one_record_before_damage_whose_length_may_have_four_bytes_or_eight_is_noted() {
    let prefix = RecordPrefix { id: true, wide: true, first_lacks_id: false };
    let mut bytes = framed(prefix, &[load(0), load(1)]);
    // In the second length.
    bytes[40..44].fill(0xee);
    assert!(index(&bytes).has_ambiguous_length);
}

#[test]
fn many_regular_records_are_more_evidence_than_one_that_ends_with_the_file() {
    let prefix = RecordPrefix { id: true, ..RecordPrefix::default() };
    let mut objects = vec![vec![3, 1, 0]; 200];
    for object in &mut objects {
        object.insert(0, 2);
    }
    let mut bytes = framed(prefix, &objects);
    // Without the id, the first length is 256 times as large.
    bytes[0] = 0;
    bytes.truncate(4 + 256 * 4);
    let index = index(&bytes);
    assert_eq!((prefix_of(&index), index.records), (prefix, (bytes.len() / 9) as u64));
}

#[test]
fn lengths_are_big_endian_on_request() {
    let bytes = [0, 0, 0, 2, 7, 0];
    let hints = FramingHints { byte_order: ByteOrder::Big, ..FramingHints::default() };
    assert_eq!(all(&index_with(&bytes, hints, 9), &bytes), [[7, 0]]);
}

proptest! {
    #[test]
    fn thinned_offsets_locate_the_same_records(
        count in 0usize..200,
        max_offsets in 2usize..40,
    ) {
        let bytes = framed(RecordPrefix::default(), &objects(count));
        let prefix = Some(RecordPrefix::default());
        let hints = FramingHints { prefix, ..FramingHints::default() };
        let index = index_with(&bytes, hints, max_offsets);
        prop_assert!(index.offsets.len() <= max_offsets);
        prop_assert_eq!(all(&index, &bytes), objects(count));
        for n in [count / 2, 0, count.saturating_sub(1), count] {
            let mut cursor = IndexCursor { record: n as u64 / 3, at: 0 };
            if cursor.record > 0 { cursor = IndexCursor::default(); }
            let place = index.locate(n as u64, &mut cursor, &mut reader(&bytes)).unwrap();
            prop_assert_eq!(place.is_some(), n < count);
        }
    }

    #[test]
    fn any_bytes_have_records_and_a_rest(
        bytes in proptest::collection::vec(
            prop_oneof![Just(0u8), 0u8..6, any::<u8>()],
            0..200,
        ),
    ) {
        let index = index(&bytes);
        let rest = index.damage.as_ref().map_or(0, |damage| damage.0);
        prop_assert_eq!(index.end + rest, bytes.len() as u64);
        prop_assert_eq!(all(&index, &bytes).len() as u64, index.records);
    }
}
