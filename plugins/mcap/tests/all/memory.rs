//! What batches keep in memory, and how much is read.

use sluice_kit::contract::{gather_with, overwrite};
use sluice_model::{ChannelQuery, Pattern, Patterns, Query, ReadContext, SplitStart};

use crate::kit::{Folder, channel, chunk_with, end, event, header, message, schema, source, write};

/// The most blocks of the pool that a batch may keep: those of the records in it, and what was read
/// of the file.
const MAX_BLOCKS: usize = 10;

/// A file of so many chunks, each with one message on `/a` and as much on `/b`.
fn file(chunks: u64, payload: usize, compression: &str) -> Vec<u8> {
    let mut file = [header(), schema(1, "t"), channel(1, 1, "/a"), channel(2, 1, "/b")].concat();
    for time in 0..chunks {
        let wanted = message(1, 0, time, &[time as u8; 20]);
        let records = [wanted, message(2, 0, time, &vec![7; payload])].concat();
        let packed = match compression {
            "zstd" => zstd::encode_all(&records[..], 1).unwrap(),
            "lz4" => lz4(&records),
            _ => records.clone(),
        };
        let counted = (records.len() as u64, crc32fast::hash(&records));
        file.extend(chunk_with(time, time, counted, compression, &packed));
    }
    file.extend(end());
    file
}

fn lz4(records: &[u8]) -> Vec<u8> {
    let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
    std::io::Write::write_all(&mut encoder, records).unwrap();
    encoder.finish().unwrap()
}

/// The most blocks that a batch keeps, and the number of events.
fn read(bytes: &[u8], channels: Option<&str>) -> (usize, usize) {
    let folder = Folder::new();
    let path = folder.at("in.mcap");
    overwrite(&path, bytes).unwrap();
    let mut context = ReadContext::standalone("test");
    if let Some(name) = channels {
        let (wanted, none) = (Patterns(vec![Pattern::parse(name).unwrap()]), Patterns::default());
        context.query.channels = ChannelQuery::from_patterns(&wanted, &none, &none);
    }
    let source = source(&path);
    let splits = source.splits(u64::MAX, &Query::default()).unwrap();
    let [split] = &splits[..] else { panic!("{splits:?}") };
    let mut reader = source.read(split, SplitStart::At(0), &context).unwrap();
    let (mut most, mut events) = (0, 0);
    while let Some(batch) = reader.next_batch().unwrap() {
        most = most.max(context.blocks.lent_bytes() / context.blocks.block_len());
        events += batch.len();
    }
    assert_eq!(context.damage.take(), []);
    (most, events)
}

#[test]
fn a_batch_of_short_chunks_keeps_few_blocks() {
    for compression in ["", "zstd", "lz4"] {
        let (blocks, events) = read(&file(3000, 5, compression), None);
        assert!(blocks <= MAX_BLOCKS, "{compression}: {blocks} blocks");
        assert_eq!(events, 6000, "{compression}");
    }
}

#[test]
fn a_batch_of_a_few_messages_of_each_chunk_keeps_few_blocks() {
    for compression in ["", "zstd", "lz4"] {
        let (blocks, events) = read(&file(60, 200_000, compression), Some("/a"));
        assert!(blocks <= MAX_BLOCKS, "{compression}: {blocks} blocks");
        assert_eq!(events, 60, "{compression}");
    }
}

#[test]
fn no_part_of_a_file_is_read_for_several_splits() {
    let events: Vec<_> = (0..3000).map(|n| event(n, "/a", &[7; 1000])).collect();
    let file = write(&events, serde_json::json!({ "chunk": 30_000 }));
    let folder = Folder::new();
    let source = source(&folder.write(&file));
    let context = ReadContext::standalone("test");
    assert_eq!(gather_with(&*source, 100_000, &context).unwrap().events.len(), 3000);
    let (read, len) = (context.run.bytes_read(), file.len() as u64);
    assert!((len / 2..=len).contains(&read), "{read} of {len}");
}
