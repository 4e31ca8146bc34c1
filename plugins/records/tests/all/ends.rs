//! Where the first record starts if the log's start is damaged, and where undescribed records end.

use std::path::Path;

use serde_json::Value;
use sluice_kit::window::ReadAt;
use sluice_model::Error;
use sluice_records::fuzzing::{Algorithm, tile_at};

use crate::reading::{places, read, source, toml};

#[test]
fn a_log_that_does_not_start_with_its_magic_is_damage_up_to_the_first_record() {
    let by_constant = (
        r#"fields = [
          { name = "t", type = "u8", role = "time", unit = "s" },
          { type = "u32", value = 0x01020309 },
        ]"#,
        (|n| [n, 9, 3, 2, 1].to_vec()) as fn(u8) -> Vec<u8>,
    );
    let by_sync = (
        r#"sync = "SYNC"
        fields = [{ name = "t", type = "u8", role = "time", unit = "s" }]"#,
        (|n| [b"SYNC", &[n][..]].concat()) as fn(u8) -> Vec<u8>,
    );
    let by_checksum = (
        r#"fields = [
          { name = "t", type = "u8", role = "time", unit = "s" },
          { type = "u32", role = "checksum", algorithm = "crc32" },
        ]"#,
        (|n| {
            let sum = Algorithm::Crc32.compute(&[&[n]]) as u32;
            [&[n][..], &sum.to_le_bytes()].concat()
        }) as fn(u8) -> Vec<u8>,
    );
    for (marks, record) in [by_constant, by_sync, by_checksum] {
        let records: Vec<u8> = (0..20).flat_map(record).collect();
        for (header, start) in [("", &b"RIG0"[..]), ("header = 16", b"RIG0............")] {
            let format = toml(&format!("magic = \"RIG1\"\n{header}\n{marks}"));
            let read = read(&format, &[start, &records].concat());
            assert_eq!(read.events.len(), 20, "{marks} {header}");
            let [(at, len, reason)] = &read.damage[..] else { panic!("{:?}", read.damage) };
            assert_eq!((*at, *len), (0, start.len() as u64), "{marks} {header}: {reason}");
            assert!(reason.contains(r#"expected "RIG1", found "RIG0""#), "{reason}");
        }
    }
}

#[test]
fn undescribed_kinds_that_end_at_the_next_sync_word_cost_no_described_record() {
    let format = |time: &str, others: &str| {
        let (in_head, in_kind) = if time == "head" { ("T, ", "") } else { ("", "T, ") };
        let text = format!(
            r#"sync = "0xb5 62"
            head = [{in_head}{{ type = "u8", role = "kind" }}]
            {others}
            [kinds.1]
            name = "A"
            fields = [{in_kind}{{ name = "x", type = "u16" }}]"#
        );
        toml(&text.replace("T,", r#"{ name = "t", type = "u32", role = "time", unit = "ms" },"#))
    };
    // Fields end records of described kinds, so these may contain the sync word.
    let record = |time: &str, kind: u8, t: u32| {
        let x = if t == 2 { [0xb5, 0x62] } else { [7, 7] };
        let (t, kind) = (t.to_le_bytes(), [kind]);
        let fields = if time == "head" { [&t[..], &kind, &x] } else { [&kind[..], &t, &x] };
        [&[0xb5, 0x62][..], &fields.concat()].concat()
    };
    let (all, described) = (&[0, 9, 18, 27, 36, 45][..], &[0, 9, 27, 45][..]);
    let (none, others_lost) = (&[][..], &[(18, 9), (36, 9)][..]);
    for (time, others, numbers, damage) in [
        ("head", "", all, none),
        ("head", "other_kinds = \"keep\"", all, none),
        ("head", "other_kinds = \"skip\"", described, none),
        ("head", "other_kinds = \"damage\"", described, others_lost),
        ("kind", "", described, others_lost),
        ("kind", "other_kinds = \"skip\"", described, none),
    ] {
        let kinds = [1, 1, 2, 1, 3, 1].into_iter().zip(1..);
        let log: Vec<u8> = kinds.flat_map(|(kind, t)| record(time, kind, t)).collect();
        let read = read(&format(time, others), &log);
        let found: Vec<i64> = read.events.iter().map(|event| event.sequence).collect();
        assert_eq!(found, numbers, "{time} {others}");
        let found: Vec<_> = read.damage.iter().map(|(at, len, _)| (*at, *len)).collect();
        assert_eq!(found, damage, "{time} {others}");
    }
}

/// A format whose records end at the next sync word, with this checksum.
fn ended_by_sync(algorithm: &str, width: u32) -> Value {
    toml(&format!(
        r#"sync = "0xa5 5a"
        head = [{{ name = "t", type = "u32", role = "time", unit = "ms" }}]
        fields = [{{ name = "b", type = "bytes", size = "rest" }}]
        tail = [{{ type = "u{width}", role = "checksum", algorithm = "{algorithm}" }}]"#
    ))
}

fn record_ended_by_sync(t: u32, payload: &[u8], (algorithm, width): (Algorithm, u32)) -> Vec<u8> {
    let mut record = [&[0xa5, 0x5a][..], &t.to_le_bytes(), payload].concat();
    let sum = algorithm.compute(&[&record]);
    record.extend(&sum.to_le_bytes()[..width as usize / 8]);
    record
}

#[test]
fn a_checksum_tells_the_end_of_a_record_that_contains_the_sync_word() {
    const SYNC: [u8; 2] = [0xa5, 0x5a];
    let (crc, crc16) = ((Algorithm::Crc32, 32), (Algorithm::Crc16Xmodem, 16));
    for (name, sum) in [("crc32", crc), ("crc16-xmodem", crc16)] {
        let payloads = [
            b"plain".to_vec(),
            [&b"ab"[..], &SYNC, b"cd"].concat(),
            SYNC.repeat(7),
            SYNC.to_vec(),
            [&SYNC[..], &[0xa5; 5]].concat(),
            [&vec![7; 30_000][..], &SYNC, &[7; 30_000]].concat(),
            b"last".to_vec(),
            SYNC.repeat(3),
        ];
        let records = payloads.iter().zip(1..).map(|(p, t)| record_ended_by_sync(t, p, sum));
        let records: Vec<Vec<u8>> = records.collect();
        let (format, log) = (ended_by_sync(name, sum.1), records.concat());
        let sound = read(&format, &log);
        assert_eq!((sound.events.len(), &sound.damage), (payloads.len(), &vec![]), "{name}");
        for (event, record) in sound.events.iter().zip(&records) {
            assert_eq!(&event.payload, record, "{name}");
        }
        let starts = places(&records, 0);
        for (hit, start) in starts.iter().enumerate() {
            let mut damaged = log.clone();
            damaged[start + 7] ^= 0x20;
            let found = read(&format, &damaged);
            assert_eq!(found.events.len(), payloads.len() - 1, "{name} {hit}");
            let places: Vec<_> = found.damage.iter().map(|(at, len, _)| (*at, *len)).collect();
            assert_eq!(places, [(*start as u64, records[hit].len() as u64)], "{name} {hit}");
        }
    }
}

#[test]
fn a_damaged_sync_word_ends_the_record_before_it() {
    const SYNC: [u8; 2] = [0xa5, 0x5a];
    let (crc, crc16) = ((Algorithm::Crc32, 32), (Algorithm::Crc16Xmodem, 16));
    for (name, sum) in [("crc32", crc), ("crc16-xmodem", crc16)] {
        let inner = [&b"ab"[..], &SYNC, b"cd"].concat();
        let payloads = [b"first".to_vec(), vec![7; 60], inner, vec![], b"5th".to_vec(), vec![]];
        let records = payloads.iter().zip(1..).map(|(p, t)| record_ended_by_sync(t, p, sum));
        let records: Vec<Vec<u8>> = records.collect();
        let log = records.concat();
        let longest = records.iter().map(Vec::len).max().unwrap();
        let mut narrow = ended_by_sync(name, sum.1);
        narrow["max_record"] = longest.into();
        let starts = places(&records, 0);
        for format in [ended_by_sync(name, sum.1), narrow] {
            for (hit, start) in starts.iter().enumerate() {
                for bit in [0, 5, 11, 15] {
                    let mut damaged = log.clone();
                    damaged[start + bit / 8] ^= 1 << (bit % 8);
                    let found = read(&format, &damaged);
                    let places: Vec<_> =
                        found.damage.iter().map(|(at, len, _)| (*at, *len)).collect();
                    let expected = [(*start as u64, records[hit].len() as u64)];
                    assert_eq!(places, expected, "{name} {hit} {bit}: {:?}", found.damage);
                    assert_eq!(found.events.len(), payloads.len() - 1, "{name} {hit} {bit}");
                }
            }
        }
    }
}

#[test]
fn a_log_that_ends_within_a_sync_word_costs_no_record() {
    let crc = (Algorithm::Crc32, 32);
    let log: Vec<u8> = (0..3).flat_map(|t| record_ended_by_sync(t, b"whole", crc)).collect();
    let found = read(&ended_by_sync("crc32", 32), &[&log[..], &[0xa5]].concat());
    let places: Vec<_> = found.damage.iter().map(|(at, len, _)| (*at, *len)).collect();
    assert_eq!((found.events.len(), places), (3, vec![(log.len() as u64, 1)]));
    assert_eq!(found.damage[0].2, "the log ends 1 byte into a record");
}

#[test]
fn more_sync_words_and_weaker_checksums_do_not_tell_the_end() {
    let (crc, sum8) = ((Algorithm::Crc32, 32), (Algorithm::Crc8, 8));
    for (name, sum, inner) in [("crc32", crc, 9), ("crc8", sum8, 1)] {
        let payloads = [vec![], [0xa5, 0x5a].repeat(inner), vec![]];
        let records = payloads.iter().zip(1..).map(|(p, t)| record_ended_by_sync(t, p, sum));
        let log: Vec<u8> = records.flatten().collect();
        let found = read(&ended_by_sync(name, sum.1), &log);
        assert_eq!((found.events.len(), found.damage.len()), (2, 1), "{name}: {:?}", found.damage);
    }
}

#[test]
fn an_intact_record_that_does_not_match_its_kind_contains_no_other_one() {
    const SYNC: [u8; 2] = [0xa5, 0x5a];
    // These CRCs are 0 after a record and its CRC: the sums of two such records are correct, too.
    for (name, algorithm) in
        [("crc16-arc", Algorithm::Crc16Arc), ("crc16-kermit", Algorithm::Crc16Kermit)]
    {
        let sum = (algorithm, 16);
        let fields =
            r#"{ name = "n", type = "u32" }, { name = "b", type = "bytes", size = "rest" }"#;
        let mut format = ended_by_sync(name, 16);
        format["fields"] = toml(&format!("fields = [{fields}]"))["fields"].take();
        // Both are shorter than their kind; the second one contains a sync word.
        for short in [&b"ab"[..], &SYNC] {
            let payloads = [&b"1234 first"[..], short, b"1234 last"];
            let records = payloads.iter().zip(1..).map(|(p, t)| record_ended_by_sync(t, p, sum));
            let records: Vec<Vec<u8>> = records.collect();
            let found = read(&format, &records.concat());
            let events: Vec<_> = found.events.iter().map(|event| &event.payload).collect();
            assert_eq!(events, [&records[0], &records[2]], "{name} {short:?}");
            let [(at, len, reason)] = &found.damage[..] else { panic!("{:?}", found.damage) };
            let (start, short_len) = (records[0].len() as u64, records[1].len() as u64);
            assert_eq!((*at, *len), (start, short_len), "{name} {short:?}: {reason}");
            assert!(reason.contains("its fields need at least 4 bytes"), "{name}: {reason}");
        }
    }
}

/// Bytes, and how far they were read.
struct ReachedBytes<'b>(&'b [u8], u64);

impl ReadAt for ReachedBytes<'_> {
    fn read_at(&mut self, pos: u64, into: &mut [u8]) -> Result<usize, Error> {
        self.1 = self.1.max(pos + into.len() as u64);
        self.0.read_at(pos, into)
    }
}

#[test]
fn a_damaged_record_is_reported_once_two_intact_ones_have_followed() {
    let crc = (Algorithm::Crc32, 32);
    let records = (0..9).map(|t| record_ended_by_sync(t, &[7; 990], crc));
    let mut log: Vec<u8> = records.flatten().collect();
    log[500] ^= 1;
    let mut log = ReachedBytes(&log, 0);
    let source = source(&ended_by_sync("crc32", 32), Path::new("-"));
    let tile = tile_at(&source, &mut log, 0).unwrap().unwrap();
    assert!(tile.damage.is_some());
    assert_eq!(tile.range, 0..1000);
    // Three records and a sync word, as a number of bytes to wait for that doubles.
    assert_eq!(log.1, 4096);
}

#[test]
fn two_intact_records_in_another_one_do_not_split_it_but_three_do() {
    let crc = (Algorithm::Crc32, 32);
    for (count, expected) in [(2, (3, 0)), (3, (4, 2))] {
        let inner = record_ended_by_sync(7, b"inner", crc).repeat(count);
        let payloads = [b"first".to_vec(), inner, b"last".to_vec()];
        let records = payloads.iter().zip(1..).map(|(p, t)| record_ended_by_sync(t, p, crc));
        let log: Vec<u8> = records.flatten().collect();
        let found = read(&ended_by_sync("crc32", 32), &log);
        let counts = (found.events.len(), found.damage.len());
        assert_eq!(counts, expected, "{count}: {:?}", found.damage);
    }
}
