//! Logs of many formats, read as the engine does: whole, in splits of any size, and damaged in
//! every way.
use std::io::Write;

use proptest::prelude::*;
use serde_json::{Value, json};
use sluice_kit::contract::{
    SourceContents, any_splitting_is_the_same, sample_positions as places_to_try,
    splits_cover_the_inputs, trials,
};
use sluice_kit::window::ReadAt;
use sluice_model::Error;
use sluice_records::fuzzing::{Algorithm, RecordsSource, Tile, tile_at, tiles};

/// A description without its path.
pub(crate) fn toml(text: &str) -> Value {
    serde_json::to_value(text.parse::<toml::Table>().unwrap()).unwrap()
}

pub(crate) fn source(format: &Value, log: &std::path::Path) -> RecordsSource {
    let mut options = format.clone();
    options["path"] = json!(log);
    RecordsSource::new(options).unwrap_or_else(|e| panic!("{:?}: {e}", e.path))
}

/// Reads bytes in splits of many sizes, which must all have the same result.
pub(crate) fn read(format: &Value, bytes: &[u8]) -> SourceContents {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    let source = source(format, file.path());
    splits_cover_the_inputs(&source, 7);
    // For a long log, hundreds of thousands of splits only if all are tried.
    let most = u64::from(trials(20_000, u32::MAX));
    let mut targets = vec![1, 7, 64, 1000];
    targets.retain(|target| bytes.len() as u64 / target <= most);
    any_splitting_is_the_same(&source, &targets)
}

/// A struct of 32 bytes after a header of 16, as C programs write it: no sync word, no checksum.
pub(crate) fn plain() -> Value {
    toml(
        r#"
        magic = "RIG1"
        header = 16
        channel = "rig"
        fields = [
          { name = "time", type = "u64", role = "time", unit = "us" },
          { name = "number", type = "u32", role = "sequence" },
          { name = "position", type = "f32", count = 3 },
          { name = "status", type = "u16", bits = { ready = 0, mode = "4-6" } },
          { type = "pad", size = 2 },
          { name = "volts", type = "i16", scale = 0.001, unit = "V" },
          { type = "pad", size = 2 },
        ]
        "#,
    )
}

pub(crate) fn plain_log(count: u32) -> Vec<u8> {
    let mut log = b"RIG1\x01\0\0\0............"[..16].to_vec();
    for n in 0..count {
        log.extend((1_700_000_000_000_000 + u64::from(n) * 10_000).to_le_bytes());
        log.extend(n.to_le_bytes());
        for axis in 0..3u8 {
            log.extend((n as f32 + f32::from(axis)).to_le_bytes());
        }
        log.extend(0x31u16.to_le_bytes());
        log.extend([0, 0]);
        log.extend(1234i16.to_le_bytes());
        log.extend([0, 0]);
    }
    log
}

/// UBX, as u-blox receivers send it.
pub(crate) fn ubx() -> Value {
    toml(
        r#"
        sync = "0xb5 62"
        epoch = "gps"
        untimed = "last"
        head = [
          { type = "u16", endian = "big", role = "kind" },
          { type = "u16", role = "length" },
        ]
        tail = [{ type = "u16", role = "checksum", algorithm = "ubx", from = 2 }]
        [kinds.0x0120]
        name = "NAV-TIMEGPS"
        fields = [
          { name = "iTOW", type = "u32", role = "time", unit = "ms" },
          { name = "fTOW", type = "i32" },
          { name = "week", type = "i16", role = "time", unit = "weeks" },
          { name = "leapS", type = "i8" },
          { name = "valid", type = "u8" },
          { name = "tAcc", type = "u32" },
        ]
        [kinds.0x0121]
        name = "NAV-OTHER"
        fields = [{ name = "rest", type = "bytes", size = "rest" }]
        "#
        .replace("name = \"rest\"", "name = \"data\"")
        .as_str(),
    )
}

pub(crate) fn ubx_message(kind: u16, payload: &[u8]) -> Vec<u8> {
    let mut body = kind.to_be_bytes().to_vec();
    body.extend((payload.len() as u16).to_le_bytes());
    body.extend(payload);
    let (mut a, mut b) = (0u8, 0u8);
    for byte in &body {
        a = a.wrapping_add(*byte);
        b = b.wrapping_add(a);
    }
    [&[0xb5, 0x62][..], &body, &[a, b]].concat()
}

pub(crate) fn time_gps(milliseconds: u32, week: i16) -> Vec<u8> {
    let mut payload = milliseconds.to_le_bytes().to_vec();
    payload.extend(5i32.to_le_bytes());
    payload.extend(week.to_le_bytes());
    payload.extend([18, 7]);
    payload.extend(20u32.to_le_bytes());
    ubx_message(0x0120, &payload)
}

fn ubx_log() -> Vec<u8> {
    let others = (0..20u8).flat_map(|n| {
        let milliseconds = 345_600_000 + u32::from(n) * 200;
        [time_gps(milliseconds, 2200), ubx_message(0x0121, &vec![n; usize::from(n)])]
    });
    others.flatten().collect()
}

/// Records of several kinds with a length, a sync word, a CRC-32 over everything, and a time.
pub(crate) fn framed() -> Value {
    toml(
        r#"
        header = "END\n"
        sync = "0xaa 44 12"
        epoch = "start"
        head = [
          { name = "unit", type = "u8" },
          { type = "u16", role = "kind" },
          { name = "length", type = "u16", role = "length", counts = "payload" },
          { name = "ticks", type = "u32", role = "time", unit = "ms" },
        ]
        tail = [{ type = "u32", role = "checksum", algorithm = "crc32-novatel" }]
        [kinds.7]
        name = "RANGE"
        channel = "range/{unit:02}"
        fields = [
          { name = "count", type = "u8" },
          { name = "ranges", type = "u16", count = "count", scale = 0.01 },
          { name = "label", type = "text", size = "rest" },
        ]
        [kinds.8]
        name = "POSE"
        fields = [{ name = "pose", type = "f64", count = 3 }]
        "#,
    )
}

fn novatel(data: &[u8]) -> u32 {
    let mut crc = 0u32;
    for byte in data {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
        }
    }
    crc
}

fn framed_record(unit: u8, kind: u16, ticks: u32, payload: &[u8]) -> Vec<u8> {
    let mut record = vec![0xaa, 0x44, 0x12, unit];
    record.extend(kind.to_le_bytes());
    record.extend((payload.len() as u16).to_le_bytes());
    record.extend(ticks.to_le_bytes());
    record.extend(payload);
    let crc = novatel(&record);
    record.extend(crc.to_le_bytes());
    record
}

fn ranges(unit: u8, ticks: u32, ranges: &[u16], label: &str) -> Vec<u8> {
    let mut payload = vec![ranges.len() as u8];
    ranges.iter().for_each(|range| payload.extend(range.to_le_bytes()));
    payload.extend(label.bytes());
    framed_record(unit, 7, ticks, &payload)
}

pub(crate) fn framed_records() -> Vec<Vec<u8>> {
    let each = (0..40u32).map(|n| match n % 3 {
        0 => ranges((n % 2) as u8, n * 10, &vec![n as u16; (n % 5) as usize], "front"),
        1 => framed_record(0, 8, n * 10, &[n as u8; 24]),
        _ => framed_record(0, 99, n * 10, b"a kind that nobody described"),
    });
    each.collect()
}

pub(crate) fn framed_log(records: &[Vec<u8>]) -> Vec<u8> {
    [&b"rig=3\nEND\n"[..], &records.concat()].concat()
}

fn numbers(gathered: &SourceContents) -> Vec<i64> {
    gathered.events.iter().map(|event| event.sequence).collect()
}

/// The start of each record, after a header of this length.
pub(crate) fn places(records: &[Vec<u8>], header: usize) -> Vec<usize> {
    let lens = records.iter().map(Vec::len);
    lens.scan(header, |at, len| Some(std::mem::replace(at, *at + len))).collect()
}

#[test]
fn a_flipped_byte_costs_the_record_it_is_in_and_no_other() {
    let records = framed_records();
    let (log, places) = (framed_log(&records), places(&records, 10));
    let sound = read(&framed(), &log);
    for at in places_to_try(log.len() - 10, 100).into_iter().map(|at| at + 10) {
        let hit = places.iter().rposition(|place| *place <= at).unwrap();
        let mut bytes = log.clone();
        bytes[at] ^= 0x10;
        let tiles = tiles_of(&framed(), &bytes);
        let damaged: Vec<_> = tiles.iter().filter(|tile| tile.1).map(|tile| tile.0).collect();
        assert_eq!(damaged, [(places[hit], places[hit] + records[hit].len())], "byte {at}");
        assert_eq!(tiles.len(), sound.events.len(), "byte {at}");
    }
}

/// Each piece, and whether it is damage.
fn tiles_of(format: &Value, bytes: &[u8]) -> Vec<((usize, usize), bool)> {
    let mut options = format.clone();
    options["path"] = json!("-");
    let tiles = tiles(options, bytes).unwrap();
    let plain = |tile: Tile| {
        let range = (tile.range.start as usize, tile.range.end as usize);
        (range, tile.damage.is_some())
    };
    tiles.into_iter().map(plain).collect()
}

#[test]
fn a_log_cut_anywhere_gives_every_whole_record() {
    let records = framed_records();
    let (log, places) = (framed_log(&records), places(&records, 10));
    for cut in places_to_try(log.len() - 10, 100).into_iter().map(|cut| cut + 10) {
        let whole = places.iter().zip(&records).filter(|(at, r)| *at + r.len() <= cut).count();
        let tiles = tiles_of(&framed(), &log[..cut]);
        assert_eq!(tiles.iter().filter(|tile| !tile.1).count(), whole, "cut at {cut}");
    }
}

#[test]
fn a_wrong_length_does_not_swallow_later_records() {
    let records = framed_records();
    let places = places(&records, 10);
    for change in [1u16, 2, 0xffff, 0xfffe, 100, 40_000, 0x8000] {
        let mut log = framed_log(&records);
        let at = places[12] + 6;
        let said = u16::from_le_bytes([log[at], log[at + 1]]).wrapping_add(change);
        log[at..at + 2].copy_from_slice(&said.to_le_bytes());
        let read = read(&framed(), &log);
        assert_eq!(read.events.len(), records.len() - 1, "{change}");
        let damage = &read.damage[0];
        assert_eq!((damage.0, damage.1), (places[12] as u64, records[12].len() as u64));
    }
}

/// A sync word is the only mark.
pub(crate) fn delimited() -> Value {
    toml(
        r#"
        sync = "\r\n#"
        head = [{ type = "u32", role = "time", unit = "s" }]
        fields = [{ name = "data", type = "bytes", size = "rest" }]
        max_record = 64
        "#,
    )
}

/// A length, a sync word, and no checksum.
fn unchecked() -> Value {
    toml(
        r#"
        sync = "0xde ad be ef"
        head = [
          { type = "u16", role = "length", counts = "record" },
          { type = "u32", role = "time", unit = "ms" },
        ]
        fields = [{ name = "data", type = "bytes", size = "rest" }]
        "#,
    )
}

fn unchecked_record(data: &[u8]) -> Vec<u8> {
    let len = (data.len() as u16 + 10).to_le_bytes();
    [&[0xde, 0xad, 0xbe, 0xef][..], &len, &[1, 0, 0, 0], data].concat()
}

#[test]
fn without_a_checksum_a_record_is_trusted_for_what_follows_it() {
    let records: Vec<_> = (0..9u8).map(|n| unchecked_record(&vec![n; usize::from(n)])).collect();
    let places = places(&records, 0);
    for change in [1i32, -1, 5, 30_000] {
        let mut log = records.concat();
        let at = places[4] + 4;
        let said = (i32::from(log[at]) + change) as u16;
        log[at..at + 2].copy_from_slice(&said.to_le_bytes());
        let read = read(&unchecked(), &log);
        let mut wanted: Vec<i64> = places.iter().map(|place| *place as i64).collect();
        wanted.remove(4);
        assert_eq!(numbers(&read), wanted, "{change}");
    }
}

#[test]
fn a_log_that_pretends_to_have_records_everywhere_is_read_in_time() {
    // Each byte starts a record of 64 KiB, none of which has its checksum.
    let format = toml(
        r#"
        sync = "0xff"
        head = [{ type = "u16", role = "length" }]
        fields = [{ type = "u32", role = "time", unit = "s" }, { type = "bytes", size = "rest" }]
        tail = [{ type = "u32", role = "checksum", algorithm = "crc32" }]
        "#,
    );
    let tiles = tiles_of(&format, &vec![0xff; 2 << 20]);
    assert_eq!(tiles, [((0, 2 << 20), true)]);
}

/// MAVLink attitude messages, with undescribed heartbeats in between.
fn mavlink() -> Value {
    toml(
        r#"
        other_kinds = "skip"
        sync = "0xfe"
        epoch = "start"
        head = [
          { type = "u8", role = "length" },
          { type = "pad", size = 3 },
          { type = "u8", role = "kind" },
        ]
        tail = [{ type = "u16", role = "checksum", algorithm = "crc16-mcrf4xx", from = 1 }]
        [kinds.30]
        checksum_extra = 39
        fields = [
          { name = "time", type = "u32", role = "time", unit = "ms" },
          { name = "attitude", type = "f32", count = 6 },
        ]
        "#,
    )
}

fn mavlink_message(kind: u8, extra: u8, payload: &[u8]) -> Vec<u8> {
    let body = [&[payload.len() as u8, 7, 1, 1, kind][..], payload].concat();
    let sum = Algorithm::Crc16Mcrf4xx.compute(&[&body, &[extra]]) as u16;
    [&[0xfe][..], &body, &sum.to_le_bytes()].concat()
}

/// An attitude has 36 bytes, a heartbeat 17.
fn mavlink_records(count: u32) -> Vec<Vec<u8>> {
    let each = (0..count).flat_map(|n| {
        let attitude = [&n.to_le_bytes()[..], &[1; 24]].concat();
        let heartbeat = mavlink_message(0, 50, &[5, 0, 0, 0, 2, 3, 81, 4, 3]);
        [mavlink_message(30, 39, &attitude), heartbeat]
    });
    each.collect()
}

#[test]
fn damage_among_kinds_that_are_not_described_costs_no_described_record_but_its_own() {
    let (records, format) = (mavlink_records(6), mavlink());
    let (log, places) = (records.concat(), places(&records, 0));
    for at in places_to_try(log.len(), 100) {
        let hit = places.iter().rposition(|place| *place <= at).unwrap();
        let mut bytes = log.clone();
        bytes[at] ^= 0x10;
        let mut wanted: Vec<i64> = places.iter().step_by(2).map(|at| *at as i64).collect();
        wanted.retain(|place| *place != places[hit] as i64);
        assert_eq!(numbers(&read(&format, &bytes)), wanted, "byte {at}");
    }
}

/// Bytes that count how many of them were read.
struct CountingBytes<'b>(&'b [u8], u64);

impl ReadAt for CountingBytes<'_> {
    fn read_at(&mut self, pos: u64, into: &mut [u8]) -> Result<usize, Error> {
        let there = self.0.read_at(pos, into)?;
        self.1 += there as u64;
        Ok(there)
    }
}

#[test]
fn lengths_that_are_far_too_long_are_not_worked_through() {
    let format = toml(
        r#"
        sync = "0xcd ab"
        head = [{ type = "u32", role = "length" }]
        fields = [
          { type = "u64", role = "time", unit = "us" },
          { type = "bytes", size = "rest" },
        ]
        tail = [{ type = "u32", role = "checksum", algorithm = "crc32" }]
        "#,
    );
    let pair = |n: u64| {
        let record = [&[0xcd, 0xab, 8, 0, 0, 0][..], &n.to_le_bytes()].concat();
        let sum = Algorithm::Crc32.compute(&[&record]) as u32;
        [&[0xcd, 0xab][..], &1_000_000u32.to_le_bytes(), &record, &sum.to_le_bytes()].concat()
    };
    let bytes: Vec<u8> = (0..100_000).flat_map(pair).collect();
    let source = source(&format, std::path::Path::new("-"));
    let (mut log, mut at, mut records) = (CountingBytes(&bytes, 0), 0, 0);
    while at < 600_000 {
        let Some(tile) = tile_at(&source, &mut log, at).unwrap() else { break };
        records += usize::from(tile.damage.is_none());
        at = tile.range.end;
    }
    assert_eq!(records, 25_000);
    // Each declared length is a megabyte, so reading them all would take 25 gigabytes.
    assert!(log.1 < 4000 * 25_000, "{} bytes were looked at", log.1);
}

#[test]
fn a_long_record_is_read_whatever_follows_it_unless_others_lie_in_it() {
    let mut format = framed();
    format["head"][2]["type"] = json!("u32");
    let long = |unit: u8| {
        let mut record = vec![0xaa, 0x44, 0x12, unit, 99, 0];
        record.extend(100_000u32.to_le_bytes());
        record.extend([7; 4]);
        record.extend((0..100_000u32).map(|n| (n.wrapping_mul(n) >> 5) as u8));
        let crc = novatel(&record);
        record.extend(crc.to_le_bytes());
        record
    };
    let log = [&b"END\n"[..], &long(1), b"garbage", &long(2), &long(3)].concat();
    let read = read(&format, &log);
    assert_eq!((read.events.len(), read.damage.len()), (3, 1));
}

fn formats() -> Vec<Value> {
    vec![plain(), ubx(), framed(), delimited(), unchecked()]
}

fn samples() -> Vec<Vec<u8>> {
    let unchecked = (0..9u8).flat_map(|n| unchecked_record(&vec![n; usize::from(n)])).collect();
    let delimited = b"\r\n#\x01\0\0\0hello\r\n#\x02\0\0\0\r\n#\x03\0\0\0last".to_vec();
    vec![plain_log(5), ubx_log(), framed_log(&framed_records()), delimited, unchecked]
}

/// A log with some bytes changed, removed or inserted.
fn hurt() -> impl Strategy<Value = (usize, Vec<u8>)> {
    let wounds =
        proptest::collection::vec((any::<prop::sample::Index>(), 0u8..3, any::<u8>()), 0..6);
    (0usize..5, wounds).prop_map(|(which, wounds)| {
        let mut log = samples()[which].clone();
        for (place, how, byte) in wounds {
            if log.is_empty() {
                break;
            }
            let at = place.index(log.len());
            match how {
                0 => log[at] = byte,
                1 => {
                    let end = (at + usize::from(byte)).min(log.len());
                    log.drain(at..end);
                }
                _ => log.insert(at, byte),
            }
        }
        (which, log)
    })
}

fn check_tiles(format: &Value, bytes: &[u8]) -> Vec<((usize, usize), bool)> {
    let tiles = tiles_of(format, bytes);
    for pair in tiles.windows(2) {
        assert_eq!(pair[0].0.1, pair[1].0.0, "pieces lie end to end");
    }
    assert!(tiles.iter().all(|tile| tile.0.0 < tile.0.1), "no piece is empty");
    if let Some(last) = tiles.last() {
        assert_eq!(last.0.1, bytes.len(), "the last piece ends where the log does");
    }
    tiles
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn hurt_logs_are_events_and_damage_whatever_pieces_they_are_read_in((which, log) in hurt()) {
        let format = &formats()[which];
        let gathered = read(format, &log);
        let tiles = check_tiles(format, &log);
        let events = tiles.iter().filter(|tile| !tile.1).count();
        prop_assert_eq!(gathered.events.len(), events);
        prop_assert_eq!(gathered.damage.len(), tiles.len() - events);
    }

    #[test]
    fn any_bytes_are_events_and_damage(
        which in 0usize..5,
        bytes in proptest::collection::vec(
            prop_oneof![any::<u8>(), Just(0xaa), Just(0x44), Just(0xb5), Just(0x62), Just(0)],
            0..400),
    ) {
        check_tiles(&formats()[which], &bytes);
    }

    #[test]
    fn what_was_written_is_read(
        records in proptest::collection::vec(
            (0u8..4, any::<u32>(), proptest::collection::vec(any::<u16>(), 0..9), "[a-z]{0,7}"),
            0..30),
    ) {
        let written: Vec<Vec<u8>> =
            records.iter().map(|(u, t, r, l)| ranges(*u, *t, r, l)).collect();
        let read = read(&framed(), &framed_log(&written));
        prop_assert_eq!(read.damage.len(), 0);
        let payloads: Vec<Vec<u8>> =
            read.events.iter().map(|event| event.payload.clone()).collect();
        prop_assert_eq!(payloads, written);
        for ((unit, ticks, ..), event) in records.iter().zip(&read.events) {
            prop_assert_eq!(event.timestamp, i64::from(*ticks) * 1_000_000);
            prop_assert_eq!(&event.channel, &format!("range/{unit:02}"));
        }
    }
}
