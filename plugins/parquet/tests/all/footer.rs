//! Footers that are damaged, or that say that a table cannot be read.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use crate::kit::{batch, context, drive, read, source, write, write_single};
use arrow_array::{ArrayRef, RecordBatch, TimestampMicrosecondArray};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::metadata::{ParquetMetaDataReader, ParquetMetaDataWriter};
use serde_json::json;
use sluice_kit::contract::{
    PlainEvent, SourceContents, gather_splits, overwrite, sample_positions,
};
use sluice_model::{ChannelQuery, Error, Pattern, Patterns, Query, ReadContext, SplitStart};

/// A small table of `count` events in several row groups.
fn table(path: &Path, count: i64) -> (Vec<PlainEvent>, Vec<u8>) {
    let events = drive(count);
    write_single(path, &events, 60, json!({ "row_group_rows": 20 }));
    (events, fs::read(path).unwrap())
}

/// A table of another program.
fn foreign(path: &Path) -> Vec<u8> {
    let times: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![1, 2, 3]));
    let rows = RecordBatch::try_from_iter([("timestamp", times)]).unwrap();
    let file = fs::File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, rows.schema(), None).unwrap();
    writer.write(&rows).unwrap();
    writer.close().unwrap();
    fs::read(path).unwrap()
}

/// The offset of the footer.
fn footer_start(bytes: &[u8]) -> usize {
    let len = u32::from_le_bytes(bytes[bytes.len() - 8..][..4].try_into().unwrap());
    bytes.len() - 8 - len as usize
}

/// Reads a table on this thread, which a panic would end.
fn read_here(path: &Path) -> Result<u64, Error> {
    let (source, context) = (source(path), ReadContext::standalone("tables"));
    source.events_in(path)?;
    source.faults(path)?;
    let mut events = 0;
    for split in source.splits(u64::MAX, &context.query)? {
        let mut reader = source.read(&split, SplitStart::At(split.start), &context)?;
        while let Some(batch) = reader.next_batch()? {
            events += batch.len() as u64;
        }
    }
    Ok(events)
}

#[test]
fn a_flipped_bit_of_the_footer_never_panics() {
    let folder = tempfile::tempdir().unwrap();
    let (ours, theirs) = (folder.path().join("ours.parquet"), folder.path().join("theirs.parquet"));
    for (path, bytes) in [(&ours, table(&ours, 60).1), (&theirs, foreign(&theirs))] {
        let first = footer_start(&bytes) * 8;
        for bit in sample_positions(bytes.len() * 8 - first, 1_500) {
            let (at, bit) = ((first + bit) / 8, bit % 8);
            let mut wrong = bytes.clone();
            wrong[at] ^= 1 << bit;
            overwrite(path, &wrong).unwrap();
            if let Ok(events) = read_here(path) {
                assert!(events <= 60, "byte {at} bit {bit}: {events} events");
            }
        }
    }
}

#[test]
fn a_complete_file_with_a_damaged_footer_is_not_called_incomplete() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("all.parquet");
    let (_, bytes) = table(&path, 60);
    let (first, mut told) = (footer_start(&bytes), 0);
    for bit in sample_positions((bytes.len() - 8 - first) * 8, 1_500) {
        let mut wrong = bytes.clone();
        wrong[first + bit / 8] ^= 1 << (bit % 8);
        overwrite(&path, &wrong).unwrap();
        let Err(error) = read_here(&path) else { continue };
        let error = error.to_string();
        assert!(!error.contains("not a complete"), "bit {bit}: {error}");
        let place = format!("all.parquet: at byte {first}: this has a damaged footer: ");
        told += u64::from(error.contains(&place) && error.contains("restore the file"));
    }
    assert!(told > 100, "{told}");
}

#[test]
fn a_page_index_that_is_damaged_costs_no_rows() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("all.parquet");
    let (events, bytes) = table(&path, 60);
    let (checksum, footer) = (checksum_start(&bytes), footer_start(&bytes));
    let first = bytes[checksum..].first_chunk::<16>().unwrap()[8..].try_into().unwrap();
    let first = u64::from_le_bytes(first) as usize;
    // As other programs write tables: without a checksum.
    let mut unchecked = bytes.clone();
    unchecked[checksum..footer].fill(0);
    for bit in sample_positions((checksum - first) * 8, 150) {
        let (at, bit) = (first + bit / 8, bit % 8);
        let contents = |mut wrong: Vec<u8>| {
            wrong[at] ^= 1 << bit;
            overwrite(&path, &wrong).unwrap();
            read(&path).unwrap()
        };
        let with_checksum = contents(bytes.clone());
        assert_eq!(with_checksum.events, events, "byte {at} bit {bit}");
        let [(.., reason)] = &with_checksum.damage[..] else { panic!("{with_checksum:?}") };
        assert!(reason.starts_with("the footer is damaged"), "{reason}");
        let without = contents(unchecked.clone());
        assert!(without.events == events, "byte {at} bit {bit}: {:?}", without.damage);
        assert_eq!(without.damage, [], "byte {at} bit {bit}");
    }
}

#[test]
fn negative_places_are_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("all.parquet");
    let bytes = foreign(&path);
    for (start, len) in [(-4, 10), (4, -10), (i64::MAX, i64::MAX), (4, 100_000)] {
        edit_columns(&path, &bytes, |column| {
            column
                .set_data_page_offset(start)
                .set_dictionary_page_offset(None)
                .set_total_compressed_size(len)
        });
        let error = read(&path).unwrap_err().to_string();
        assert!(
            error.contains(
                "not a complete Parquet file: row group 0 claims that its column `timestamp`"
            ),
            "{error}"
        );
    }
}

type ColumnBuilder = parquet::file::metadata::ColumnChunkMetaDataBuilder;

/// Writes a table with other metadata of its columns.
fn edit_columns(path: &Path, bytes: &[u8], edit: impl Fn(ColumnBuilder) -> ColumnBuilder) {
    let footer = ParquetMetaDataReader::decode_metadata(&bytes[footer_start(bytes)..]).unwrap();
    let groups = footer.row_groups().iter().map(|group| {
        let columns = group.columns().iter().cloned();
        let columns = columns.map(|column| edit(column.into_builder()).build().unwrap());
        group.clone().into_builder().set_column_metadata(columns.collect()).build().unwrap()
    });
    let edited = footer.clone().into_builder().set_row_groups(groups.collect()).build();
    let mut wrong = bytes[..footer_start(bytes)].to_vec();
    ParquetMetaDataWriter::new(&mut wrong, &edited).finish().unwrap();
    overwrite(path, &wrong).unwrap();
}

#[test]
fn a_codec_of_another_build_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("all.parquet");
    let bytes = foreign(&path);
    edit_columns(&path, &bytes, |column| column);
    assert_eq!(read(&path).unwrap().events.len(), 3);
    for (codec, name) in
        [(Compression::GZIP(Default::default()), "gzip"), (Compression::LZ4_RAW, "lz4")]
    {
        edit_columns(&path, &bytes, |column| column.set_compression(codec));
        let error = read(&path).unwrap_err().to_string();
        let expected = format!("compressed with {name}, which this program does not read");
        assert!(error.contains(&expected) && error.contains("all.parquet"), "{error}");
    }
}

/// The offset of the footer's checksum.
fn checksum_start(bytes: &[u8]) -> usize {
    let start = footer_start(bytes) - 20;
    assert!(bytes[start..].starts_with(b"SluiceCk"));
    start
}

/// Replaces the only occurrence of `old` in the footer by `new`, in a table without a checksum of
/// its footer.
fn replace(bytes: &[u8], old: &str, new: &str) -> Vec<u8> {
    let start = footer_start(bytes);
    let places = bytes[start..].windows(old.len()).enumerate();
    let found: Vec<usize> =
        places.filter(|(_, there)| *there == old.as_bytes()).map(|(at, _)| start + at).collect();
    let [at] = found[..] else { panic!("`{old}` at {found:?}") };
    let mut replaced = bytes.to_vec();
    replaced[at..at + old.len()].copy_from_slice(new.as_bytes());
    replaced[checksum_start(bytes)] = 0;
    replaced
}

#[test]
fn a_record_of_the_footer_that_cannot_be_read_is_damage_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("all.parquet");
    for (name, old, new) in [
        ("sluice.channels", r#"[{"source""#, r#"[["source""#),
        ("sluice.row_groups", r#"{"crc32""#, r#"{"crc32 "#),
    ] {
        let reason = format!("the footer's record `{name}` cannot be read: ");
        let (events, bytes) = table(&path, 60);
        overwrite(&path, &replace(&bytes, old, new)).unwrap();
        let found = read(&path).unwrap();
        let mut times: Vec<i64> = found.events.iter().map(|event| event.timestamp).collect();
        let mut expected: Vec<i64> = events.iter().map(|event| event.timestamp).collect();
        times.sort_unstable();
        expected.sort_unstable();
        assert_eq!(times, expected);
        let [(offset, 0, told)] = &found.damage[..] else { panic!("{:?}", found.damage) };
        assert_eq!(*offset, bytes.len() as u64);
        assert!(told.starts_with(&reason), "{told}");
        // Without it, rows that are sorted by channel stay so.
        let is_in_order = found.events.is_sorted_by_key(|event| event.sequence);
        assert_eq!(is_in_order, name != "sluice.row_groups");
        assert_eq!(told.contains("sort them by `sequence`"), !is_in_order, "{told}");
        assert!(source(&path).faults(&path).unwrap().is_empty(), "reading reports it");
    }
}

#[test]
fn a_record_of_a_table_without_rows_is_a_fault() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("all.parquet");
    let (_, bytes) = table(&path, 0);
    assert!(source(&path).faults(&path).unwrap().is_empty());
    overwrite(&path, &replace(&bytes, r#"{"crc32""#, r#"{"crc32 "#)).unwrap();
    assert_eq!(read(&path).unwrap().damage, []);
    let faults = source(&path).faults(&path).unwrap();
    assert!(faults.len() == 1 && faults[0].contains("`sluice.row_groups`"), "{faults:?}");
}

#[test]
fn records_of_merged_tables_are_damage_of_each() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tables/");
    let context = context(64 << 20);
    let events = batch(&drive(60), &context.channels);
    write(json!({ "path": path }), vec![events], &context).unwrap();
    let tables = source(&path).inputs().unwrap();
    for table in &tables {
        let bytes = fs::read(&table.path).unwrap();
        let wrong = replace(&bytes, r#"[{"source""#, r#"[["source""#);
        overwrite(&table.path, &wrong).unwrap();
    }
    let found = read(&path).unwrap();
    assert_eq!((found.events.len(), found.damage.len(), tables.len()), (60, 5, 5));
    assert!(found.damage.iter().all(|(_, _, reason)| reason.contains("`sluice.channels`")));
}

/// What is read of a table: all of it, and the events of one channel.
fn read_both_ways(path: &Path) -> Result<[SourceContents; 2], Error> {
    let patterns = Patterns(vec![Pattern::parse("B").unwrap()]);
    let all = Patterns::default;
    let channels = ChannelQuery::from_patterns(&patterns, &all(), &all());
    let query = Query { channels, ..Query::default() };
    let source = source(path);
    let splits = source.splits(1 << 20, &query)?;
    let context = ReadContext { query, ..ReadContext::standalone("tables") };
    let mut selected = gather_splits(&*source, splits, &context)?;
    selected.events.retain(|event| event.channel == "B");
    Ok([read(path)?, selected])
}

#[test]
fn a_flipped_bit_behind_the_rows_changes_no_event_without_damage() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("all.parquet");
    let (_, bytes) = table(&path, 60);
    let expected = read_both_ways(&path).unwrap();
    let start = u64::from_le_bytes(*bytes[checksum_start(&bytes) + 8..].first_chunk().unwrap());
    let first = usize::try_from(start).unwrap() * 8;
    let mut told = 0;
    for bit in sample_positions(bytes.len() * 8 - first, 800) {
        let (at, bit) = ((first + bit) / 8, bit % 8);
        let mut wrong = bytes.clone();
        wrong[at] ^= 1 << bit;
        overwrite(&path, &wrong).unwrap();
        let Ok(found) = read_both_ways(&path) else { continue };
        for (found, expected) in found.iter().zip(&expected) {
            let is_told = found.damage.iter().any(|(_, _, reason)| reason.contains("checksum"));
            assert!(is_told || found == expected, "byte {at} bit {bit}: {found:?}");
            told += u64::from(is_told);
        }
    }
    assert!(told > 300, "{told}");
}

#[test]
fn a_damaged_arrow_schema_is_not_needed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("all.parquet");
    let bytes = foreign(&path);
    let expected = read(&path).unwrap().events;
    let at = footer_start(&bytes);
    let key = bytes[at..].windows(12).position(|there| there == b"ARROW:schema").unwrap();
    for value in [b"!!!!!!!!", b"AAAAAAAA"] {
        let mut wrong = bytes.clone();
        wrong[at + key + 24..][..8].copy_from_slice(value);
        overwrite(&path, &wrong).unwrap();
        let found = read(&path).unwrap();
        assert_eq!((&found.events, found.damage), (&expected, vec![]));
    }
}
