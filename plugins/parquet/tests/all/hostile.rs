//! Malformed files: errors and damage, and never an event that was not written.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMillisecondArray};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::Compression;
use parquet::file::metadata::{
    ColumnChunkMetaData, FileMetaData, KeyValue, ParquetMetaDataBuilder, ParquetMetaDataWriter,
    RowGroupMetaData,
};
use parquet::file::properties::WriterProperties;
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::SchemaDescriptor;
use serde_json::json;
use sluice_kit::contract::{PlainEvent, overwrite, sample_positions};
use sluice_model::{ErrorKind, Query, ReadContext, Split, SplitStart};

use crate::kit::nested::write_nested;
use crate::kit::{batch, context, drive, read, source, write, write_single};

/// The most levels of a column.
const MAX_NESTING: usize = 80;

/// A small table in several row groups, and its events.
fn table(path: &Path) -> (Vec<PlainEvent>, Vec<u8>) {
    let events = drive(60);
    write_single(path, &events, 60, json!({ "row_group_rows": 20 }));
    (events, fs::read(path).unwrap())
}

#[test]
fn a_flipped_bit_is_an_error_or_damage_and_changes_no_event() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("all.parquet");
    let (events, bytes) = table(&path);
    let known: BTreeSet<Vec<u8>> = events.iter().map(|e| format!("{e:?}").into_bytes()).collect();
    // The footer has no checksum: a flipped bit there may change the metadata of a table.
    let footer_len = u32::from_le_bytes(bytes[bytes.len() - 8..][..4].try_into().unwrap()) as usize;
    let body = bytes.len() - 8 - footer_len;
    for at in sample_positions(bytes.len(), 400) {
        let mut wrong = bytes.clone();
        wrong[at] ^= 1 << (at % 8);
        overwrite(&path, &wrong).unwrap();
        let Ok(found) = read(&path) else { continue };
        let inside =
            |(offset, length, _): &(u64, u64, String)| offset + length <= bytes.len() as u64;
        assert!(found.damage.iter().all(inside), "byte {at}: {:?}", found.damage);
        if at >= body {
            continue;
        }
        let all_known = found.events.iter().all(|e| known.contains(format!("{e:?}").as_bytes()));
        assert!(all_known, "byte {at}: an event that was not written");
        // Page indexes, which follow the row groups, are not needed.
        assert!(
            found.events.len() == events.len() || !found.damage.is_empty(),
            "byte {at}: lost events"
        );
    }
}

#[test]
fn a_damaged_row_group_loses_only_its_own_events() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("all.parquet");
    let (events, mut bytes) = table(&path);
    bytes[100] ^= 0xff;
    fs::write(&path, &bytes).unwrap();
    let found = read(&path).unwrap();
    assert_eq!(found.events, events[20..]);
    let [(offset, length, reason)] = &found.damage[..] else { panic!("{:?}", found.damage) };
    assert_eq!(*offset, 4);
    assert!(
        *length > 96 && reason.contains("row group 0") && reason.contains("checksum"),
        "{reason}"
    );
}

#[test]
fn a_truncated_file_is_reported_as_incomplete() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("all.parquet");
    let (_, bytes) = table(&path);
    for len in sample_positions(bytes.len(), 200) {
        overwrite(&path, &bytes[..len]).unwrap();
        let error = read(&path).unwrap_err().to_string();
        assert!(
            error.contains("all.parquet") && error.contains("not a complete Parquet file"),
            "{error}"
        );
    }
}

#[test]
fn a_truncated_table_of_a_folder_loses_only_its_own_events() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tables/");
    let (events, context) = (drive(300), context(64 << 20));
    write(json!({ "path": path }), vec![batch(&events, &context.channels)], &context).unwrap();
    let part = |channel: char| path.join(format!("channel={channel}/part-00000.parquet"));
    let mut rest = events;
    for (n, channel) in ['A', 'C'].into_iter().enumerate() {
        let bytes = fs::read(part(channel)).unwrap();
        fs::write(part(channel), &bytes[..bytes.len() / 2]).unwrap();
        rest.retain(|event| !event.channel.starts_with(channel));
        let found = read(&path).unwrap();
        assert!(found.events == rest, "{} events", found.events.len());
        assert_eq!(found.damage.len(), n + 1, "{:?}", found.damage);
        let (offset, length, reason) = found.damage.last().unwrap();
        assert_eq!((*offset, *length), (0, bytes.len() as u64 / 2));
        assert!(reason.contains("not a complete Parquet file"), "{reason}");
    }
    // Without any that can be read, there is nothing to go on with.
    ['B', 'D', 'E'].into_iter().for_each(|channel| fs::write(part(channel), "PAR1").unwrap());
    let error = read(&path).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("channel=A") && error.contains("not a complete"), "{error}");
}

#[test]
fn any_bytes_for_a_footer_are_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("all.parquet");
    let (_, bytes) = table(&path);
    let footer = bytes.len() - 8;
    for len in [0u32, 1, 100, 0x7fff_ffff, u32::MAX] {
        let mut wrong = bytes.clone();
        wrong[footer..footer + 4].copy_from_slice(&len.to_le_bytes());
        overwrite(&path, &wrong).unwrap();
        assert!(read(&path).is_err(), "{len}");
    }
}

fn foreign(path: &Path, columns: &[(&str, ArrayRef)]) {
    let rows = RecordBatch::try_from_iter(columns.to_vec()).unwrap();
    let file = fs::File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, rows.schema(), None).unwrap();
    writer.write(&rows).unwrap();
    writer.close().unwrap();
}

#[test]
fn tables_of_others_are_events_if_they_have_times() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("GPS.parquet");
    let times: ArrayRef = Arc::new(TimestampMillisecondArray::from(vec![5, 6]));
    let speed: ArrayRef = Arc::new(Int64Array::from(vec![7, 8]));
    foreign(&path, &[("timestamp", Arc::clone(&times)), ("speed", Arc::clone(&speed))]);
    let found = read(&path).unwrap().events;
    assert_eq!(
        found.iter().map(|e| (e.timestamp, e.sequence)).collect::<Vec<_>>(),
        [(5_000_000, 0), (6_000_000, 1)]
    );
    assert_eq!((found[0].source.as_str(), found[0].channel.as_str()), ("test", "GPS"));
    foreign(&path, &[("speed", Arc::clone(&speed))]);
    let error = read(&path).unwrap_err().to_string();
    assert!(
        error.contains("the column `timestamp` is missing") && error.contains("GPS.parquet"),
        "{error}"
    );
    foreign(&path, &[("timestamp", speed)]);
    assert!(read(&path).unwrap_err().to_string().contains("Int64"));
    // A row that cannot be an event is damage: these times have a gap, and those are out of range.
    let gaps: ArrayRef = Arc::new(TimestampMillisecondArray::from(vec![Some(5), None]));
    let beyond: ArrayRef = Arc::new(TimestampMillisecondArray::from(vec![5, i64::MAX]));
    for times in [gaps, beyond] {
        foreign(&path, &[("timestamp", times)]);
        let found = read(&path).unwrap();
        assert_eq!((found.events.len(), found.damage.len()), (1, 1));
    }
    let words: ArrayRef = Arc::new(StringArray::from(vec!["a", "b"]));
    foreign(&path, &[("timestamp", times), ("channel", Arc::clone(&words)), ("payload", words)]);
    let found = read(&path).unwrap().events;
    assert_eq!(found[1].channel, "b");
    assert_eq!(found[1].payload, b"b");
}

#[test]
fn statistics_that_exclude_rows_are_a_fault() {
    const FIRST: i64 = 0x01_2345_6789;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("GPS.parquet");
    let times = (0..40).map(|n| FIRST + n);
    foreign(&path, &[("timestamp", Arc::new(TimestampMillisecondArray::from_iter_values(times)))]);
    let faults = || source(&path).faults(&path).unwrap();
    assert_eq!(faults(), [""; 0]);
    let mut bytes = fs::read(&path).unwrap();
    let (rest, magic) = bytes.split_at(bytes.len() - 4);
    assert_eq!(magic, b"PAR1");
    let len = u32::from_le_bytes(*rest.last_chunk().unwrap()) as usize;
    let footer = rest.len() - 4 - len;
    // The last time in the statistics, eight steps earlier.
    let last = (FIRST + 39).to_le_bytes();
    let places: Vec<usize> =
        (footer..rest.len()).filter(|at| rest[*at..].starts_with(&last)).collect();
    assert!(!places.is_empty());
    places.into_iter().for_each(|at| bytes[at] -= 8);
    overwrite(&path, &bytes).unwrap();
    assert_eq!(read(&path).unwrap().events.len(), 40);
    let [fault] = &faults()[..] else { panic!("{:?}", faults()) };
    assert!(fault.contains("row group 0") && fault.contains("exclude 8 of its rows"), "{fault}");
}

#[test]
fn columns_that_nest_too_deep_for_the_stack_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("deep.parquet");
    let forms = [
        (1, ("optional group a { ", "} ")),
        (2, ("repeated group a { ", "} ")),
        (3, ("optional group a (LIST) { repeated group list { ", "} } ")),
    ];
    let times = ["required int64 timestamp (TIMESTAMP(MILLIS,true));"];
    for (levels, form) in forms {
        write_nested(&path, &times, (MAX_NESTING - 1) / levels, form);
        assert_eq!(read(&path).unwrap().events.len(), 1, "{form:?}");
        for groups in [MAX_NESTING / levels + 1, 5_000] {
            write_nested(&path, &times, groups, form);
            let error = read(&path).unwrap_err().to_string();
            assert!(
                error.contains("its columns nest deeper than") && error.contains("deep.parquet"),
                "{error}"
            );
        }
    }
}

#[test]
fn a_row_group_of_equal_values_is_not_kept_in_memory_by_one_task() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("equal.parquet");
    let times: ArrayRef = Arc::new(TimestampMillisecondArray::from(vec![5; 300_000]));
    foreign(&path, &[("timestamp", times)]);
    assert!(fs::metadata(&path).unwrap().len() < 10_000);
    let splits = source(&path).splits(u64::MAX, &Query::default()).unwrap();
    let bytes: Vec<u64> = splits.iter().filter_map(|split| split.bytes).collect();
    assert!(bytes.len() == 1 && bytes[0] > Split::MAX_TASK_BYTES, "{bytes:?}");
}

/// A number in Thrift's compact protocol.
fn thrift_int(number: i64) -> Vec<u8> {
    let mut left = ((number << 1) ^ (number >> 63)) as u64;
    let mut bytes = Vec::new();
    while left > 0x7f {
        bytes.push(left as u8 | 0x80);
        left >>= 7;
    }
    bytes.push(left as u8);
    bytes
}

/// A page of this type with the fields of its header after the number of values, which claims to
/// have so many, and so many bytes.
fn page_of_type(
    page_type: i64,
    fields: &[u8],
    values: i64,
    bytes: i64,
    contents: &[u8],
) -> Vec<u8> {
    let mut page = Vec::new();
    for number in [page_type, bytes, contents.len() as i64] {
        page.push(0x15);
        page.extend(thrift_int(number));
    }
    // The header of a data page is the fifth field, that of a dictionary the seventh.
    page.extend([if page_type == 0 { 0x2c } else { 0x4c }, 0x15]);
    page.extend(thrift_int(values));
    page.extend(fields);
    page.extend([0, 0]);
    page.extend(contents);
    page
}

/// A data page of plain values.
fn page(values: i64, bytes: i64, contents: &[u8]) -> Vec<u8> {
    page_of_type(0, &[0x15, 0, 0x15, 6, 0x15, 6], values, bytes, contents)
}

/// A table of times with these pages, of which the footer claims little.
fn table_of_pages(path: &Path, schema: &str, pages: &[u8]) {
    let columns = SchemaDescriptor::new(Arc::new(parse_message_type(schema).unwrap()));
    let columns = Arc::new(columns);
    let chunk = ColumnChunkMetaData::builder(columns.column(0))
        .set_compression(Compression::SNAPPY)
        .set_num_values(2)
        .set_data_page_offset(4)
        .set_total_compressed_size(pages.len() as i64)
        .set_total_uncompressed_size(16);
    let group = RowGroupMetaData::builder(Arc::clone(&columns))
        .set_num_rows(2)
        .add_column_metadata(chunk.build().unwrap());
    let about = FileMetaData::new(1, 2, None, None, columns, None);
    let metadata = ParquetMetaDataBuilder::new(about).add_row_group(group.build().unwrap()).build();
    let mut bytes = [b"PAR1", pages].concat();
    ParquetMetaDataWriter::new(&mut bytes, &metadata).finish().unwrap();
    fs::write(path, bytes).unwrap();
}

const TIMES: &str = "message t { required int64 timestamp (TIMESTAMP(MILLIS,true)); }";

/// Two times, compressed with Snappy.
fn two_times() -> Vec<u8> {
    [&[16, 15 << 2][..], &5i64.to_le_bytes(), &6i64.to_le_bytes()].concat()
}

#[test]
fn pages_that_claim_to_expand_to_more_than_fits_are_damage() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("GPS.parquet");
    table_of_pages(&path, TIMES, &page(2, 16, &two_times()));
    assert_eq!(read(&path).unwrap().events.len(), 2);
    // Dictionaries stay in memory beside other pages.
    let dictionary = page_of_type(2, &[0x15, 0], 2, 1 << 30, b"");
    let large = page(2, i64::from(i32::MAX), &two_times());
    let two = [dictionary, page(2, 1 << 27, &two_times())].concat();
    for (pages, says) in [(large, "pages of 2147483647 bytes"), (two, "pages of 1207959552 bytes")]
    {
        table_of_pages(&path, TIMES, &pages);
        let found = read(&path).unwrap();
        assert!(found.events.is_empty());
        let [(4, _, reason)] = &found.damage[..] else { panic!("{:?}", found.damage) };
        assert!(reason.contains("row group 0: column `timestamp`: "), "{reason}");
        assert!(reason.contains(says) && reason.contains("smaller pages"), "{reason}");
    }
}

#[test]
fn pages_with_more_values_than_fit_into_memory_are_damage() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("GPS.parquet");
    table_of_pages(&path, TIMES, &page(1 << 30, 16, &two_times()));
    let found = read(&path).unwrap();
    assert!(found.events.is_empty());
    let [(4, _, reason)] = &found.damage[..] else { panic!("{:?}", found.damage) };
    assert!(reason.contains("row group 0: a row of 4294967296 bytes"), "{reason}");
}

#[test]
fn pages_that_are_not_there_are_damage() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("GPS.parquet");
    let mut long = page(2, 16, &two_times());
    let at = long.len() - two_times().len();
    long.truncate(at + 3);
    let endless = vec![0x15; 1000];
    for (pages, says) in [(long, "is longer than its column"), (endless, "at 4 is malformed")] {
        table_of_pages(&path, TIMES, &pages);
        let found = read(&path).unwrap();
        assert!(found.events.is_empty());
        let [(4, _, reason)] = &found.damage[..] else { panic!("{:?}", found.damage) };
        assert!(reason.contains(says), "{reason}");
    }
}

#[test]
fn an_arrow_schema_that_cannot_be_read_is_noted_and_rows_are_read_without_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("GPS.parquet");
    let times: ArrayRef = Arc::new(TimestampMillisecondArray::from(vec![5, 6]));
    let rows = RecordBatch::try_from_iter([("timestamp", times)]).unwrap();
    let schema = KeyValue::new("ARROW:schema".to_owned(), "no schema".to_owned());
    let properties = WriterProperties::builder().set_key_value_metadata(Some(vec![schema]));
    let options = ArrowWriterOptions::new().with_properties(properties.build());
    let options = options.with_skip_arrow_metadata(true);
    let file = fs::File::create(&path).unwrap();
    let mut writer = ArrowWriter::try_new_with_options(file, rows.schema(), options).unwrap();
    writer.write(&rows).unwrap();
    writer.close().unwrap();

    let (source, context) = (source(&path), ReadContext::standalone("tables"));
    let splits = source.splits(u64::MAX, &context.query).unwrap();
    let mut reader = source.read(&splits[0], SplitStart::At(0), &context).unwrap();
    assert_eq!(reader.next_batch().unwrap().unwrap().len(), 2);
    let notes = context.losses.take_notes();
    let [(note, 0)] = &notes[..] else { panic!("{notes:?}") };
    assert!(
        note.contains("GPS.parquet: the footer's record `ARROW:schema` cannot be read: "),
        "{note}"
    );
    assert!(context.damage.take().is_empty());
}

#[test]
fn a_footer_that_is_encrypted_is_not_called_malformed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("all.parquet");
    let (_, mut bytes) = table(&path);
    *bytes.last_mut().unwrap() = b'E';
    fs::write(&path, bytes).unwrap();
    let reason = read(&path).unwrap_err().to_string();
    assert!(reason.contains("has an encrypted footer"), "{reason}");
}

#[test]
fn anything_but_a_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let none = read(&folder.path().join("no.parquet")).unwrap_err().to_string();
    assert!(none.contains("no such file"), "{none}");
    let empty = read(folder.path()).unwrap_err().to_string();
    assert!(empty.contains("no Parquet files in this folder"), "{empty}");
}

/// Tables of pyarrow 26 whose column `secret` is encrypted, and the footer is not; the second one
/// has a page index.
const ENCRYPTED: [&[u8]; 2] =
    [include_bytes!("encrypted.parquet"), include_bytes!("encrypted-with-index.parquet")];

#[test]
fn an_encrypted_column_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("all.parquet");
    for table in ENCRYPTED {
        overwrite(&path, table).unwrap();
        let reason = read(&path).unwrap_err().to_string();
        let says = "an encrypted column, `secret`, which this program does not read";
        assert!(reason.contains(says) && reason.contains("all.parquet"), "{reason}");
    }
}

#[test]
fn a_table_of_a_folder_that_cannot_be_read_but_is_not_damaged_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let odd = folder.path().join("odd.parquet");
    let times = ["required int64 timestamp (TIMESTAMP(MILLIS,true));"];
    write_nested(&odd, &times, MAX_NESTING + 1, ("optional group a { ", "} "));
    let nested = fs::read(&odd).unwrap();
    let one_channel: ArrayRef = Arc::new(TimestampMillisecondArray::from(vec![5, 6]));
    for all_channels in [false, true] {
        let sound = folder.path().join("sound.parquet");
        let mut encrypted = table(&sound).1;
        *encrypted.last_mut().unwrap() = b'E';
        if !all_channels {
            foreign(&sound, &[("timestamp", Arc::clone(&one_channel))]);
        }
        let says_nested = "nest deeper than 80 levels, the most that are read: flatten them";
        let says_footer = "has an encrypted footer, which this program does not read; write it";
        for (table, says) in [
            (&nested[..], says_nested),
            (&encrypted, says_footer),
            (ENCRYPTED[0], "has an encrypted column, `secret`, which this program"),
        ] {
            overwrite(&odd, table).unwrap();
            let error = read(folder.path()).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Invalid(_)), "{error:?}");
            let error = error.to_string();
            assert!(error.contains(says) && error.contains("odd.parquet"), "{error}");
        }
    }
}

#[test]
fn a_damaged_table_beside_tables_of_all_events_loses_only_its_own_events() {
    let folder = tempfile::tempdir().unwrap();
    let names = ["a", "b", "c"].map(|name| folder.path().join(name).with_extension("parquet"));
    let (events, bytes) = table(&names[0]);
    names[1..].iter().for_each(|name| fs::write(name, &bytes).unwrap());
    for (n, name) in [&names[0], &names[2]].into_iter().enumerate() {
        fs::write(name, &bytes[..bytes.len() / 2]).unwrap();
        for path in [folder.path().to_owned(), folder.path().join("*.parquet")] {
            let found = read(&path).unwrap();
            assert_eq!(found.events.len(), (2 - n) * events.len());
            assert_eq!(found.damage.len(), n + 1, "{:?}", found.damage);
            let (offset, length, reason) = found.damage.last().unwrap();
            assert_eq!((*offset, *length), (0, bytes.len() as u64 / 2));
            assert!(reason.contains("not a complete Parquet file"), "{reason}");
        }
    }
    // By itself, or without any that can be read, there is nothing to go on with.
    let alone = read(&names[0]).unwrap_err().to_string();
    assert!(alone.contains("a.parquet") && alone.contains("not a complete"), "{alone}");
    fs::write(&names[1], "PAR1").unwrap();
    let error = read(folder.path()).unwrap_err().to_string();
    assert!(error.contains("a.parquet") && error.contains("not a complete"), "{error}");
}

#[test]
fn a_damaged_table_is_reported_without_those_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let names = ["a", "b"].map(|name| folder.path().join(name).with_extension("parquet"));
    let (_, bytes) = table(&names[1]);
    fs::write(&names[0], &bytes[..bytes.len() / 2]).unwrap();
    for path in [folder.path().to_owned(), folder.path().join("*.parquet")] {
        fs::write(&names[1], &bytes).unwrap();
        let source = source(&path);
        let splits = source.splits(1, &Query::default()).unwrap();
        let split = splits.iter().find(|split| split.input == names[0]).unwrap();
        fs::remove_file(&names[1]).unwrap();
        let context = ReadContext::standalone("test");
        let mut reader = source.read(split, SplitStart::Search, &context).unwrap();
        assert!(reader.next_batch().unwrap().is_none());
        assert_eq!(context.damage.take().len(), 1);
    }
}
