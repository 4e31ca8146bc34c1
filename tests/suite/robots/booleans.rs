//! Booleans that are neither 0 nor 1: true in fields, and unchanged bytes in logs.

use crate::kit::{Folder, run_sluice};

use super::convert;

const TYPE: &str = "package flags; struct set_t { int32_t n; boolean on; boolean all[3]; }";

fn lcm_event(number: u64, channel: &str, payload: &[u8]) -> Vec<u8> {
    let mut event = vec![0xed, 0xa1, 0xda, 0x01];
    event.extend(number.to_be_bytes());
    event.extend((1_000_000 * number + 7).to_be_bytes());
    event.extend((channel.len() as u32).to_be_bytes());
    event.extend((payload.len() as u32).to_be_bytes());
    event.extend(channel.as_bytes());
    event.extend(payload);
    event
}

/// A log of ten messages; those at indices in `odd` have booleans that are neither 0 nor 1.
pub(super) fn lcm_log(folder: &Folder, odd: &[u32]) -> Vec<u8> {
    folder.write("set.lcm", TYPE);
    let output = run_sluice(folder, &["types", "set.lcm", "--json"]).expect(0).text();
    let output: serde_json::Value = serde_json::from_str(output.trim()).unwrap();
    let fingerprint = u64::from_str_radix(output["fingerprint"].as_str().unwrap(), 16).unwrap();
    let event = |n: u32| {
        let booleans = if odd.contains(&n) { [2, 0, 255, 1] } else { [1, 0, 1, 1] };
        let payload = [&fingerprint.to_be_bytes()[..], &n.to_be_bytes(), &booleans].concat();
        lcm_event(n.into(), "FLAGS", &payload)
    };
    let log: Vec<u8> = (0..10).flat_map(event).collect();
    folder.write("flags.lcm", &log);
    log
}

#[test]
fn lcm_booleans_of_any_byte_are_typed_and_come_back() {
    let folder = Folder::new();
    let log = lcm_log(&folder, &[3, 4, 9]);
    let typed = ["--types", "set.lcm", "--overwrite"];
    let fields = |line: &str| -> serde_json::Value {
        serde_json::from_str::<serde_json::Value>(line).unwrap()["fields"].clone()
    };
    let lines =
        run_sluice(&folder, &["cat", "flags.lcm", "--json", "--types", "set.lcm"]).expect(0).text();
    for (n, line) in lines.lines().enumerate() {
        let expected = serde_json::json!({ "n": n, "on": true, "all": [false, true, true] });
        assert_eq!(fields(line), expected);
    }
    let chosen = ["cat", "flags.lcm", "--json", "--types", "set.lcm", "--where", "n > 2 and on"];
    assert_eq!(run_sluice(&folder, &chosen).expect(0).text().lines().count(), 7);
    convert(&folder, "flags.lcm", "flags.csv", &typed).expect(0);
    let table = String::from_utf8(folder.read("flags.csv")).unwrap();
    assert_eq!(table.matches("true,false,true,true").count(), 10, "{table}");
    for way in ["tables/", "by.arrow.zst", "all.parquet"] {
        let there = convert(&folder, "flags.lcm", way, &typed).expect(0);
        assert!(!there.stderr.contains("boolean"), "{}", there.stderr);
        convert(&folder, way, "back.lcm", &["--overwrite"]).expect(0);
        assert!(folder.read("back.lcm") == log, "by way of {way}");
    }
}

#[test]
fn a_log_without_such_booleans_has_the_tables_that_it_always_had() {
    let folder = Folder::new();
    lcm_log(&folder, &[]);
    convert(&folder, "flags.lcm", "tables/", &["--types", "set.lcm"]).expect(0);
    let table = folder.at("tables/channel=FLAGS/part-00000.parquet");
    let bytes = std::fs::read(table).unwrap();
    assert!(!bytes.windows(12).any(|window| window == b"raw_booleans"));
}

#[test]
fn vel_booleans_with_junk_in_them_are_typed_and_come_back() {
    let folder = Folder::new();
    let text = |text: &str| [&(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat();
    let mut log = vec![0xa4, 0x56, 0x45, 0x4c, 1, 0, 1, 0, 0, 0, 0, 0];
    for (n, compressed) in
        [[1, 0, 0, 0], [1, 0xcd, 0xcd, 0xcd], [0; 4], [2, 0, 0, 0]].iter().enumerate()
    {
        let sizes = [[4_u8, 0, 0, 0], [3, 0, 0, 0], [2, 0, 0, 0]].concat();
        let payload = [text("cam"), text("front"), compressed.to_vec(), sizes, vec![9; 2]].concat();
        log.extend((payload.len() as u32 + 17).to_le_bytes());
        log.push(0x31);
        log.extend(0x0001_09c9_u32.to_le_bytes());
        log.extend(102_i32.to_le_bytes());
        log.extend((n as f64 * 100.0).to_le_bytes());
        log.extend(payload);
    }
    folder.write("plain.vel", &log);
    convert(&folder, "plain.vel", "log.vel", &[]).expect(0);
    let lines = run_sluice(&folder, &["cat", "log.vel", "--json"]).expect(0).text();
    let read = |line: &str| {
        let event: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(event["fields"].get("raw_booleans").is_none());
        event["fields"]["compressed"].as_bool()
    };
    let booleans: Vec<Option<bool>> = lines.lines().map(read).collect();
    assert_eq!(booleans, [Some(true), Some(true), Some(false), Some(true)]);
    for way in ["tables/", "by.arrow.zst"] {
        convert(&folder, "log.vel", way, &[]).expect(0);
        convert(&folder, way, "back.vel", &["--overwrite"]).expect(0);
        assert!(folder.read("back.vel") == folder.read("log.vel"), "by way of {way}");
    }
}

/// A set of types whose records have one instance with booleans, and a log of such records.
fn ice_log(folder: &Folder) {
    folder.write("flags.ice", "module m { struct FlagsData { int n; bool on; bool off; }; };");
    let record = |n: i32, booleans: [u8; 2]| {
        let record = [&n.to_le_bytes()[..], &booleans, &[0]].concat();
        [&(record.len() as u32).to_le_bytes()[..], &record].concat()
    };
    let booleans = [[1, 0], [2, 0], [0, 255], [1, 1], [7, 9]];
    let records = booleans.into_iter().zip(0..);
    let file: Vec<u8> = records.flat_map(|(booleans, n)| record(n, booleans)).collect();
    folder.write("flags0.log", file);
    let lines: String = (1..=5).map(|n| format!("{n} 0 0 {n}\n")).collect();
    folder.write("in.orca", format!("::orca::Flags ice flags0.log\n#data\n{lines}"));
}

#[test]
fn ice_booleans_of_any_byte_are_typed_and_come_back() {
    let folder = Folder::new();
    ice_log(&folder);
    let typed =
        ["--types", "flags.ice", "--source-option", "config_records={ \"flags0.log\" = 0 }"];
    let line = [&["cat", "in.orca", "--json"][..], &typed].concat();
    let lines = run_sluice(&folder, &line).expect(0).text();
    let read = |line: &str| {
        let event: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(event["fields"].get("raw_booleans").is_none());
        (event["fields"]["on"].as_bool().unwrap(), event["fields"]["off"].as_bool().unwrap())
    };
    let read: Vec<(bool, bool)> = lines.lines().map(read).collect();
    let (on, off) = ((true, false), (false, true));
    assert_eq!(read, [on, on, off, (true, true), (true, true)]);
    for way in ["tables/", "by.arrow.zst"] {
        convert(&folder, "in.orca", way, &typed).expect(0);
        convert(&folder, way, "back.orca", &["--overwrite"]).expect(0);
        assert!(folder.read("flags0.log") == folder.read("back_flags0.log"), "by way of {way}");
    }
}
