//! Fields of records as columns.
use std::io::Write;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, Int32Type, UInt32Type, UInt64Type};
use serde_json::json;
use sluice_model::{Query, ReadContext, Rows, Source, SplitStart};
use sluice_records::fuzzing::RecordsSource;

/// The rows of the only batch of a log.
fn rows(format: &str, log: &[u8]) -> Vec<Rows> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(log).unwrap();
    let mut options = serde_json::to_value(format.parse::<toml::Table>().unwrap()).unwrap();
    options["path"] = json!(file.path());
    let source = RecordsSource::new(options).unwrap_or_else(|e| panic!("{:?}: {e}", e.path));
    let splits = source.splits(u64::MAX, &Query::default()).unwrap();
    let context = ReadContext::standalone("log");
    let mut reader = source.read(&splits[0], SplitStart::At(0), &context).unwrap();
    let rows = reader.next_batch().unwrap().unwrap().rows().to_vec();
    assert!(reader.next_batch().unwrap().is_none());
    assert_eq!(context.damage.take(), []);
    rows
}

#[test]
fn every_type_becomes_its_column() {
    let format = r#"
        endian = "big"
        fields = [
          { name = "t", type = "u8", role = "time", unit = "s" },
          { name = "u24", type = "u24" },
          { name = "i24", type = "i24", endian = "little" },
          { name = "f32", type = "f32" },
          { name = "scaled", type = "i16", scale = 0.5, offset = 100, unit = "°C" },
          { name = "flags", type = "u16", bits = { ready = 0, mode = "4-6" } },
          { name = "on", type = "bool" },
          { name = "text", type = "text", size = 6 },
          { name = "bytes", type = "bytes", size = 2 },
          { name = "list", type = "u32", count = 2 },
        ]"#;
    let mut log = vec![1, 0x01, 0x02, 0x03, 0xfe, 0xff, 0xff];
    log.extend(1.5f32.to_be_bytes());
    log.extend((-3i16).to_be_bytes());
    log.extend(0x51u16.to_be_bytes());
    log.extend(b"\x01ab \0xxyz");
    log.extend([0, 0, 0, 7, 0, 0, 0, 8]);
    let rows = &rows(format, &log)[0];
    let column = |name: &str| rows.columns.column_by_name(name).unwrap().clone();
    assert_eq!(column("u24").as_primitive::<UInt32Type>().value(0), 0x01_0203);
    assert_eq!(column("i24").as_primitive::<Int32Type>().value(0), -2);
    assert_eq!(column("f32").as_primitive::<Float32Type>().value(0), 1.5);
    assert_eq!(column("scaled").as_primitive::<Float64Type>().value(0), 98.5);
    assert!(column("ready").as_boolean().value(0) && column("on").as_boolean().value(0));
    assert_eq!(column("mode").as_primitive::<UInt64Type>().value(0), 5);
    assert_eq!(column("text").as_string::<i32>().value(0), "ab");
    assert_eq!(column("bytes").as_binary::<i32>().value(0), b"yz");
    let list = column("list").as_fixed_size_list().value(0);
    assert_eq!(list.as_primitive::<UInt32Type>().values(), &[7, 8]);
    let schema = rows.columns.schema();
    assert_eq!(schema.field_with_name("scaled").unwrap().metadata()["sluice.unit"], "°C");
}

#[test]
fn lists_have_as_many_elements_as_their_records_say() {
    let format = r#"
        head = [{ type = "u8", role = "time", unit = "s" }, { name = "n", type = "u8" }]
        fields = [
          { name = "a", type = "u8", count = "n" },
          { name = "m", type = "u8" },
          { name = "b", type = "text", size = "m" },
          { name = "end", type = "u8" },
        ]
        tail = [{ name = "last", type = "u8" }]"#;
    let rows = &rows(format, b"\x01\x02\x08\x09\x03abcEL\x02\x00\x00EL")[0];
    let a = rows.columns.column_by_name("a").unwrap().as_list::<i32>();
    assert_eq!((a.value_length(0), a.value_length(1)), (2, 0));
    let b = rows.columns.column_by_name("b").unwrap().as_string::<i32>();
    assert_eq!((b.value(0), b.value(1)), ("abc", ""));
    for (name, letter) in [("end", b'E'), ("last", b'L')] {
        let column = rows.columns.column_by_name(name).unwrap();
        let values = column.as_primitive::<arrow_array::types::UInt8Type>().values();
        assert_eq!(**values, [letter, letter]);
    }
}

#[test]
fn each_kind_has_rows_of_its_own() {
    let format = r#"
        head = [
          { name = "t", type = "u8", role = "time", unit = "s" },
          { type = "text", size = 1, role = "kind" },
        ]
        kinds.A.fields = [{ name = "a", type = "u8" }]
        kinds.B.fields = [{ name = "b", type = "u16" }]
    "#;
    let rows = rows(format, b"\x01A\x05\x02B\x06\x00\x03A\x07");
    let found: Vec<_> = rows.iter().map(|rows| (&*rows.message.name, &*rows.events)).collect();
    assert_eq!(found, [("A", &[0, 2][..]), ("B", &[1][..])]);
}

#[test]
fn rows_of_undescribed_kinds_are_only_parts_of_their_records() {
    let format = r#"
        head = [
          { type = "text", size = 1, role = "kind" },
          { type = "u8", role = "length" },
          { name = "t", type = "u8", role = "time", unit = "s" },
        ]
        kinds.A.fields = [{ name = "a", type = "u8" }, { type = "pad", size = 1 }]
    "#;
    let rows = rows(format, b"A\x02\x01ab?\x03\x02xyz");
    let found = rows.iter().map(|rows| (&*rows.message.name, rows.message.is_part()));
    assert_eq!(found.collect::<Vec<_>>(), [("A", false), ("other", true)]);
}
