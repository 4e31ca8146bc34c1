//! Logs in several zstd frames, as `pzstd` and `cat` make them: damage in one hides no other.

use serde_json::Value;
use sluice_io::frames::compress;

use crate::kit::{Folder, LcmEvent, drive, events, log, run, run_sluice};

/// These bytes in three frames that are cut where records are not, the second of them damaged.
/// And the ends of the first and the second.
fn damaged(bytes: &[u8]) -> (Vec<u8>, [usize; 2]) {
    let cuts = [bytes.len() / 3 + 1, bytes.len() * 2 / 3 + 1];
    let parts = [&bytes[..cuts[0]], &bytes[cuts[0]..cuts[1]], &bytes[cuts[1]..]];
    let mut frames = parts.map(|part| compress(part, 1).unwrap());
    let middle = frames[1].len() / 2;
    frames[1][middle..middle + 40].fill(0xff);
    (frames.concat(), cuts)
}

const COPY: &str = r#"
[sources.log]
plugin = "lcm-log"
path = "${DIR}/in.lcm.zst"
[sinks.out]
plugin = "lcm-log"
from = "log"
path = "${DIR}/out.lcm"
"#;

#[test]
fn events_behind_a_damaged_frame_are_read_and_those_cut_by_it_are_not() {
    let all = drive(1, 3_000);
    let (folder, bytes) = (Folder::new(), log(&all));
    let (packed, cuts) = damaged(&bytes);
    folder.write("in.lcm.zst", packed);
    let report = run(COPY, folder.path(), 2).unwrap();

    let found = events(&folder.read("out.lcm"));
    // The events that are whole in one of the frames that are, by where they are in the log.
    let mut at = 0;
    let is_whole = |event: &&LcmEvent| {
        let range = at..at + event.bytes().len();
        at = range.end;
        range.end <= cuts[0] || range.start >= cuts[1]
    };
    let expected: Vec<_> = all.iter().filter(is_whole).collect();
    let is_there = |event: &&&LcmEvent| found.contains(event);
    assert_eq!(expected.iter().filter(is_there).count(), expected.len());
    assert!(found.iter().all(|event| all.contains(event)));
    assert!(found.len() < all.len());
    let reasons: Vec<_> = report.damage.iter().map(|damage| damage.reason.as_str()).collect();
    assert!(reasons.iter().any(|reason| reason.contains("damaged or cut off")), "{reasons:?}");
}

#[test]
fn of_lines_behind_a_damaged_frame_the_first_may_be_the_end_of_one() {
    let rows = 3_000;
    let row = |n: u32| format!("{},{}\n", 1_000 + n, n * 1_003);
    let csv = "timestamp,value\n".to_owned() + &(0..rows).map(row).collect::<String>();
    let folder = Folder::new();
    folder.write("whole.csv", &csv);
    let payload = ["--sink-option", "payload=true"];
    let whole = ["convert", "whole.csv", "--to", "whole.jsonl"];
    run_sluice(&folder, &[&whole[..], &payload].concat()).expect(0);
    let json = folder.read("whole.jsonl");
    // Not the number, which for CSV is where the row begins, nor the fields, which are decoded.
    let events = |bytes: &[u8]| -> Vec<Value> {
        let event = |line: &[u8]| {
            let mut event: Value = serde_json::from_slice(line).unwrap();
            let keys = event.as_object_mut().unwrap();
            keys.retain(|key, _| key == "timestamp_ns" || key == "payload");
            event
        };
        bytes.split_inclusive(|byte| *byte == b'\n').map(event).collect()
    };
    let whole = events(&json);
    for (name, text) in [("in.csv.zst", csv.as_bytes()), ("in.jsonl.zst", &json)] {
        folder.write(name, damaged(text).0);
        let convert = ["convert", name, "--to", "out.jsonl", "--overwrite"];
        run_sluice(&folder, &[&convert[..], &payload].concat())
            .expect(3)
            .expect_stderr("damaged or cut off");
        let found = events(&folder.read("out.jsonl"));
        assert!(found.iter().all(|event| whole.contains(event)), "{name}");
        assert_eq!((found.first(), found.last()), (whole.first(), whole.last()), "{name}");
        let count = found.len();
        assert!((rows as usize * 2 / 3 - 3..rows as usize).contains(&count), "{name}: {count}");
    }
}
