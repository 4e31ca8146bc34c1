//! Bags of ROS 2 in SQLite.

use serde_json::json;

use crate::{inputs, memory, pieces};

/// Any bytes are a bag, whose pages are short: damage lies in the file, and splits yield the same
/// as the whole.
pub fn ros2_db3(bytes: &[u8]) {
    let bag = [b"SQLite format 3\0\x02\0", bytes].concat();
    let len = bag.len();
    let path = memory::object("log.db3", bag);
    let source = inputs::source("ros2-db3", json!({ "path": path, "max_message": "64KiB" }));
    pieces::read_from_anywhere(&*source, len);
}

/// How a bag begins on which the files beside it are tried, and how long its pages are.
const BAG: &[u8] = include_bytes!("../../../../plugins/ros/testdata/db3-plain/log.db3");
const PAGE: usize = 512;

/// Any pages are in a write-ahead log or a rollback journal beside a bag, with the checksums that
/// they need: damage lies in the files, and splits yield the same as the whole.
pub fn ros2_db3_beside(bytes: &[u8]) {
    let Some(([kind, of_file], bytes)) = bytes.split_first_chunk() else { return };
    let records = bytes.chunks(2 + PAGE).filter_map(|record| {
        let ([page, complete], content) = record.split_first_chunk()?;
        let mut page_bytes = [0; PAGE];
        page_bytes.get_mut(..content.len())?.copy_from_slice(content);
        Some((u32::from(*page), u32::from(*complete), page_bytes))
    });
    let (end, beside) = match kind % 2 {
        0 => ("wal", log_of(records, *kind >= 128)),
        _ => ("journal", journal_of(records, u32::from(*kind))),
    };
    let bag = BAG.get(..usize::from(*of_file) * PAGE).unwrap_or(BAG).to_vec();
    let len = bag.len().max(beside.len());
    // Other targets on this thread have no file beside theirs.
    let path = memory::object(&format!("beside-{end}.db3"), bag);
    memory::object(&format!("beside-{end}.db3-{end}"), beside);
    let source = inputs::source("ros2-db3", json!({ "path": path, "max_message": "64KiB" }));
    pieces::read_from_anywhere(&*source, len);
}

/// A log with frames of these pages, numbers of pages of the database, and contents.
fn log_of(frames: impl Iterator<Item = (u32, u32, [u8; PAGE])>, is_big_endian: bool) -> Vec<u8> {
    let word = if is_big_endian { u32::from_be_bytes } else { u32::from_le_bytes };
    let sum = |sums: [u32; 2], bytes: &[u8]| {
        bytes.as_chunks::<8>().0.iter().fold(sums, |[first, second], [a, b, c, d, e, f, g, h]| {
            let first = first.wrapping_add(word([*a, *b, *c, *d])).wrapping_add(second);
            [first, second.wrapping_add(word([*e, *f, *g, *h])).wrapping_add(first)]
        })
    };
    let be = |words: &[u32]| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<u8>>();
    let magic = 0x377f_0682 + u32::from(is_big_endian);
    let mut log = be(&[magic, 3_007_000, PAGE as u32, 0, 1, 2]);
    let mut sums = sum([0, 0], &log);
    log.extend(be(&sums));
    for (page, complete, content) in frames {
        let head = be(&[page, complete]);
        sums = sum(sum(sums, &head), &content);
        log.extend([head, be(&[1, 2]), be(&sums), content.to_vec()].concat());
    }
    log
}

/// A journal with records of these pages and contents, in segments of several lengths.
fn journal_of(records: impl Iterator<Item = (u32, u32, [u8; PAGE])>, pages: u32) -> Vec<u8> {
    let be = |words: &[u32]| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<u8>>();
    let magic = b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7";
    let records: Vec<_> = records.collect();
    let mut journal = Vec::new();
    for segment in records.chunks(3) {
        journal.resize(journal.len().next_multiple_of(PAGE), 0);
        journal.extend_from_slice(magic);
        journal.extend(be(&[segment.len() as u32, 7, pages, PAGE as u32, PAGE as u32]));
        journal.resize(journal.len().next_multiple_of(PAGE), 0);
        for (page, _, content) in segment {
            let sum = 7 + u32::from(content[312]) + u32::from(content[112]);
            journal.extend([be(&[*page]), content.to_vec(), be(&[sum])].concat());
        }
    }
    journal
}
