//! The notes of a recording.

use serde_json::Value;

use crate::kit::Folder;
use crate::recorder::Sender;

#[test]
fn each_note_is_printed_once_with_its_count() {
    let (folder, mut sender) = (Folder::new(), Sender::new());
    let recorder =
        sender.start(&folder, &["--to", "a.lcm", "--limit", "3", "--log-format", "json"]);
    for number in [0, 1, 1, 1, 3] {
        sender.sent = number;
        sender.send("A", &[number as u8]);
    }
    let ended = recorder.end().expect(3);
    let lines = ended.stderr.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let notes: Vec<Value> = lines.filter(|line| line["kind"] == "note").collect();
    let find = |what: &str| -> Vec<&Value> {
        notes.iter().filter(|note| note["what"].as_str().unwrap().contains(what)).collect()
    };
    let counts = |what: &str| find(what).iter().map(|note| note["count"].clone()).collect();
    let counts: [Vec<Value>; 3] =
        ["listening", "duplicate datagrams", "1 of 4 messages from"].map(counts);
    assert_eq!(counts, [vec![Value::Null], vec![2.into()], vec![Value::Null]], "{notes:?}");
}
