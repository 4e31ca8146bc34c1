//! Records that the description does not match, and checksums that may cover nothing.
use std::io::Write;

use serde_json::{Value, json};
use sluice_kit::contract::{SourceContents, any_splitting_is_the_same, splits_cover_the_inputs};
use sluice_records::fuzzing::{Algorithm, RecordsSource};

fn toml(text: &str) -> Value {
    serde_json::to_value(text.parse::<toml::Table>().unwrap()).unwrap()
}

/// Reads bytes in splits of many sizes, which must all have the same result.
fn read(format: &Value, bytes: &[u8]) -> SourceContents {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    let mut options = format.clone();
    options["path"] = json!(file.path());
    let source = RecordsSource::new(options).unwrap_or_else(|e| panic!("{:?}: {e}", e.path));
    splits_cover_the_inputs(&source, 7);
    any_splitting_is_the_same(&source, &[1, 7, 64, 1000])
}

/// A common layout: length, kind, and a CRC-32 over a payload that may be empty.
const PAYLOAD_CRC: &str = r#"
sync = "0xaa 55"
head = [
  { type = "u16", role = "kind" },
  { type = "u16", role = "length" },
  { name = "us", type = "u64", role = "time", unit = "us" },
  { type = "u32", role = "checksum", algorithm = "crc32" },
]
[kinds.1]
name = "POSE"
fields = [{ name = "pos", type = "f32", count = 3 }]
[kinds.2]
name = "HEARTBEAT"
fields = []
[kinds.3]
name = "TEXT"
fields = [{ name = "text", type = "text", size = "rest" }]
"#;

fn head(kind: u16, n: u32, len: usize) -> Vec<u8> {
    let mut record = vec![0xaa, 0x55];
    record.extend(kind.to_le_bytes());
    record.extend((len as u16).to_le_bytes());
    record.extend((1_700_000_000_000_000 + u64::from(n) * 10_000).to_le_bytes());
    record
}

fn with_payload_crc(kind: u16, n: u32, payload: &[u8]) -> Vec<u8> {
    let mut record = head(kind, n, payload.len());
    record.extend((Algorithm::Crc32.compute(&[payload]) as u32).to_le_bytes());
    record.extend(payload);
    record
}

#[test]
fn a_checksum_in_the_head_may_cover_a_payload_that_is_empty() {
    let record = |n: u32| match n % 3 {
        0 => with_payload_crc(1, n, &[n as u8; 12]),
        1 => with_payload_crc(2, n, &[]),
        _ => with_payload_crc(3, n, &b"hello"[..n as usize % 5]),
    };
    let records: Vec<Vec<u8>> = (0..60).map(record).collect();
    let format = toml(PAYLOAD_CRC);
    let sound = read(&format, &records.concat());
    assert_eq!((sound.events.len(), &sound.damage), (60, &vec![]));
    // A wrong checksum costs only its record, even if that has no payload.
    for hit in [4usize, 6, 10] {
        let mut records = records.clone();
        records[hit][14] ^= 1;
        let damaged = read(&format, &records.concat());
        assert_eq!((damaged.events.len(), damaged.damage.len()), (59, 1), "{hit}");
        assert!(damaged.damage[0].2.contains("the stored checksum is"), "{:?}", damaged.damage);
    }
}

#[test]
fn the_checksum_of_nothing_alone_proves_no_record() {
    // The CRC-32 of nothing is 0, like the bytes of a file that was extended.
    let format = toml(
        r#"
        epoch = "start"
        max_record = 64
        head = [
          { type = "u16", role = "length" },
          { type = "u16", role = "time", unit = "ms" },
          { type = "u32", role = "checksum", algorithm = "crc32" },
        ]
        fields = [{ name = "data", type = "bytes", size = "rest" }]
        "#,
    );
    let record = |n: u16, payload: &[u8]| {
        let crc = Algorithm::Crc32.compute(&[payload]) as u32;
        let head = [(payload.len() as u16).to_le_bytes(), n.to_le_bytes()].concat();
        [&head, &crc.to_le_bytes()[..], payload].concat()
    };
    let log: Vec<u8> = (0..20).flat_map(|n| record(n, &[n as u8; 9])).collect();
    // Garbage with eight zeros: an empty record by itself, but no possible record follows.
    let rubbish = [&[0xff; 8][..], &[0; 8], &[0xff; 8]].concat();
    let read = read(&format, &[&log[..], &rubbish, &log].concat());
    assert_eq!((read.events.len(), read.damage.len()), (40, 1), "{:?}", read.damage);
}

#[test]
fn a_checksum_that_never_covers_anything_is_a_mistake() {
    let text = r#"
        sync = "0xaa"
        fields = [
          { name = "t", type = "u32", role = "time", unit = "s" },
          { name = "sum", type = "u8", role = "checksum", algorithm = "sum8", from = "t", until = "t" },
        ]
        path = "x"
    "#;
    let error = RecordsSource::new(toml(text)).unwrap_err();
    assert!(error.message.contains("it covers nothing"), "{}", error.message);
}

/// A description that expects nine bytes in a BATTERY.
const NO_CHECKSUM: &str = r#"
sync = "0xaa 55"
head = [
  { type = "u16", role = "kind" },
  { type = "u16", role = "length" },
  { name = "us", type = "u64", role = "time", unit = "us" },
]
[kinds.1]
name = "POSE"
fields = [{ name = "pos", type = "f32", count = 3 }]
[kinds.2]
name = "BATTERY"
fields = [{ name = "cell", type = "u8" }, { name = "volts", type = "f32", count = 2 }]
"#;

fn with_checksum() -> Value {
    let tail =
        "tail = [{ type = \"u16\", role = \"checksum\", algorithm = \"crc16-modbus\" }]\n[kinds.1]";
    toml(&NO_CHECKSUM.replacen("[kinds.1]", tail, 1))
}

/// Fifty records, every other one a BATTERY of this many bytes, with or without a checksum.
fn batteries(len: usize, has_checksum: bool) -> Vec<Vec<u8>> {
    let record = |n: u32| {
        let (kind, payload) =
            if n.is_multiple_of(2) { (1, vec![n as u8; 12]) } else { (2, vec![7; len]) };
        let mut record = [head(kind, n, payload.len()), payload].concat();
        if has_checksum {
            let crc = Algorithm::Crc16Modbus.compute(&[&record]) as u16;
            record.extend(crc.to_le_bytes());
        }
        record
    };
    (0..50).map(record).collect()
}

#[test]
fn records_that_the_description_does_not_match_are_reported_by_kind_and_cost_no_others() {
    for (format, has_checksum) in [(toml(NO_CHECKSUM), false), (with_checksum(), true)] {
        for (len, says) in [
            (5, "BATTERY: its fields need 9 bytes, its payload has 5"),
            (11, "BATTERY: its fields need 9 bytes, its payload has 11"),
            (0, "BATTERY: its fields need 9 bytes, its payload has 0"),
        ] {
            let records = batteries(len, has_checksum);
            let read = read(&format, &records.concat());
            assert_eq!((read.events.len(), read.damage.len()), (25, 25), "{:?}", read.damage);
            assert!(read.damage.iter().all(|damage| damage.2 == says), "{:?}", read.damage);
            assert_eq!(read.damage[0].0, records[0].len() as u64);
            assert_eq!(read.damage[0].1, records[1].len() as u64);
        }
    }
}

#[test]
fn lists_that_do_not_end_with_the_payload_are_misfits_too() {
    let text = NO_CHECKSUM.replace(
        r#"{ name = "volts", type = "f32", count = 2 }"#,
        r#"{ name = "volts", type = "u8", count = "cell" }"#,
    );
    let reasons = |len| read(&toml(&text), &batteries(len, false).concat()).damage;
    assert_eq!(reasons(8), []);
    assert_eq!(reasons(5)[0].2, "BATTERY: its fields need 8 bytes, its payload has 5");
    assert_eq!(reasons(11)[24].2, "BATTERY: its fields need 8 bytes, its payload has 11");
    let pairs = text
        .replace("count = \"cell\"", "count = \"rest\"")
        .replace("type = \"u8\", count", "type = \"u16\", count");
    let damage = read(&toml(&pairs), &batteries(8, false).concat()).damage;
    assert_eq!(damage[0].2, "BATTERY: its payload of 8 bytes is not a whole number of elements");
}

#[test]
fn a_wrong_length_is_damage_and_no_misfit() {
    for (format, has_checksum) in [(toml(NO_CHECKSUM), false), (with_checksum(), true)] {
        let mut records = batteries(9, has_checksum);
        records[21][4] ^= 4;
        let read = read(&format, &records.concat());
        assert_eq!((read.events.len(), read.damage.len()), (49, 1), "{:?}", read.damage);
        assert!(!read.damage[0].2.contains("BATTERY"), "{:?}", read.damage);
    }
}

#[test]
fn without_marks_reading_ends_at_the_first_mismatch() {
    let format = toml(&NO_CHECKSUM.replace("sync = \"0xaa 55\"\n", ""));
    let records: Vec<Vec<u8>> = batteries(5, false).iter().map(|r| r[2..].to_vec()).collect();
    let read = read(&format, &records.concat());
    assert_eq!((read.events.len(), read.damage.len()), (1, 1), "{:?}", read.damage);
    assert_eq!(read.damage[0].2, "BATTERY: its fields need 9 bytes, its payload has 5");
}
