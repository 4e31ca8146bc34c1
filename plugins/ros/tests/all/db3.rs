//! What the source `ros2-db3` promises, whatever the file looks like.

use std::path::Path;
use std::process::Command;

use proptest::prelude::*;
use serde_json::json;
use sluice_kit::contract::{
    SourceContents, any_splitting_is_the_same, gather, gather_with, overwrite,
    splits_cover_the_inputs,
};
use sluice_model::{Query, ReadContext, Registry, SniffResult, Source};

use crate::peers::python;

const PAGE: usize = 512;

fn file(case: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(case);
    std::fs::read(folder.join("log.db3")).unwrap()
}

pub(crate) fn source(path: &Path) -> Box<dyn Source> {
    Registry::linked().source("ros2-db3", json!({ "path": path })).unwrap()
}

/// What is read of a file, whole and in splits; `None` if it is refused.
fn read(bytes: &[u8]) -> Option<SourceContents> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db3");
    overwrite(&path, bytes).unwrap();
    gather(&*source(&path), u64::MAX).ok()?;
    Some(any_splitting_is_the_same(&*source(&path), &[1, 600, 5000]))
}

/// The pages that begin with this byte: 5 for branches and 13 for leaves of tables.
fn pages_of(bytes: &[u8], kind: u8) -> Vec<usize> {
    (1..bytes.len() / PAGE).filter(|page| bytes[page * PAGE] == kind).collect()
}

fn texts(found: &SourceContents) -> Vec<&[u8]> {
    found.events.iter().map(|event| &*event.payload).collect()
}

#[test]
fn a_file_is_the_same_in_any_splits() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db3");
    overwrite(&path, &file("db3-plain")).unwrap();
    splits_cover_the_inputs(&*source(&path), 1);
    assert!(source(&path).splits(1, &Query::default()).unwrap().len() > 3);
    let found = read(&file("db3-plain")).unwrap();
    assert_eq!((found.events.len(), found.damage.len()), (60, 0));
}

#[test]
fn a_bag_with_its_columns_in_another_order_and_form_is_recognized_and_read() {
    let registry = Registry::linked();
    let plugin = registry.iter().find(|plugin| plugin.name == "ros2-db3").unwrap();
    for case in ["db3-plain", "db3-other-statement"] {
        assert_eq!((plugin.sniff)(&file(case)), SniffResult::Yes, "{case}");
    }
    assert_eq!((plugin.sniff)(&file("db3-of-another-program")), SniffResult::Maybe);
    let (found, expected) = (read(&file("db3-other-statement")), read(&file("db3-plain")));
    assert!(found == expected, "{:?}", found.map(|found| found.damage));
}

#[test]
fn a_bag_in_utf16_is_recognized_and_refused_with_advice() {
    let registry = Registry::linked();
    let plugin = registry.iter().find(|plugin| plugin.name == "ros2-db3").unwrap();
    let statement = "CREATE TABLE messages(id INTEGER PRIMARY KEY,topic_id INTEGER NOT NULL,\
                     timestamp INTEGER NOT NULL,data BLOB NOT NULL)";
    let units = statement.encode_utf16();
    let low_first: Vec<u8> = units.clone().flat_map(u16::to_le_bytes).collect();
    let high_first: Vec<u8> = units.flat_map(u16::to_be_bytes).collect();
    for (encoding, text) in [(2, low_first), (3, high_first)] {
        let mut bytes = file("db3-of-another-program");
        bytes[59] = encoding;
        assert_eq!((plugin.sniff)(&bytes), SniffResult::Maybe);
        bytes[PAGE - text.len()..PAGE].copy_from_slice(&text);
        assert_eq!((plugin.sniff)(&bytes), SniffResult::Yes);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db3");
        overwrite(&path, &bytes).unwrap();
        let error = source(&path).splits(1, &Query::default()).unwrap_err().to_string();
        assert!(error.contains("at byte 56: texts are in UTF-16"), "{error}");
        assert!(error.ends_with("`sqlite3 BAG.db3 .dump | sqlite3 COPY.db3`"), "{error}");
    }
}

#[test]
fn only_what_is_needed_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db3");
    overwrite(&path, &file("db3-plain")).unwrap();
    let mut context = ReadContext::standalone("test");
    context.query.start = Some(1_700_000_000_010_000_000);
    context.query.end = Some(1_700_000_000_015_000_000);
    let found = gather_with(&*source(&path), u64::MAX, &context).unwrap();
    let numbers: Vec<i64> = found.events.iter().map(|event| event.sequence).collect();
    assert_eq!(numbers, [11, 12, 13, 14, 15]);
}

#[test]
fn messages_below_a_damaged_branch_are_found() {
    // With branches of one level and of two.
    for (case, count) in [("db3-plain", 60), ("db3-branches", 1000)] {
        let whole = read(&file(case)).unwrap();
        assert_eq!(whole.events.len(), count);
        // The first one leads to tables.
        for branch in pages_of(&file(case), 5) {
            for damage in [&[0xff; PAGE][..], &[0; PAGE], &[5, 0, 0, 0xff, 0xff], &[13]] {
                let mut bytes = file(case);
                bytes[branch * PAGE..][..damage.len()].copy_from_slice(damage);
                let found = read(&bytes).unwrap();
                assert!(!found.damage.is_empty());
                assert_eq!(texts(&found), texts(&whole), "{case}: {branch} {damage:?}");
            }
        }
    }
}

#[test]
fn messages_below_several_damaged_branches_are_found() {
    let whole = read(&file("db3-branches")).unwrap();
    let mut bytes = file("db3-branches");
    for branch in pages_of(&bytes, 5) {
        bytes[branch * PAGE + 3..][..2].fill(0);
    }
    assert_eq!(texts(&read(&bytes).unwrap()), texts(&whole));
}

#[test]
fn a_message_never_goes_on_at_a_page_of_the_table_or_twice_at_one() {
    let bytes = file("db3-plain");
    let whole = read(&bytes).unwrap();
    let of_table = pages_of(&bytes, 13).into_iter().filter(|leaf| *leaf >= 7);
    let of_table: Vec<usize> = of_table.chain([2]).collect();
    // Pages of long messages begin with the number of the next one. That of another message may
    // pass, but not that of the same one.
    for page in (1..bytes.len() / PAGE).filter(|page| bytes[page * PAGE] == 0) {
        for next in of_table.iter().chain([&page]) {
            let mut changed = bytes.clone();
            let number = *next as u32 + 1;
            changed[page * PAGE..][..4].copy_from_slice(&number.to_be_bytes());
            let found = read(&changed).unwrap();
            assert!(!found.damage.is_empty(), "{page} to {next}");
            assert!(found.events.iter().all(|event| whole.events.contains(event)), "{page}");
        }
    }
}

#[test]
fn a_damaged_leaf_costs_its_messages_only() {
    let whole = read(&file("db3-plain")).unwrap();
    for leaf in pages_of(&file("db3-plain"), 13) {
        let mut bytes = file("db3-plain");
        bytes[leaf * PAGE..][..PAGE].fill(0);
        let Some(found) = read(&bytes) else { continue };
        assert!(!found.damage.is_empty(), "{leaf}");
        // Those before have tables, topics and declarations.
        if leaf >= 7 {
            assert!(found.events.iter().all(|event| whole.events.contains(event)), "{leaf}");
            assert!((30..60).contains(&found.events.len()), "{leaf}");
        }
    }
}

#[test]
fn messages_that_were_removed_do_not_come_back() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db3");
    overwrite(&path, &file("db3-plain")).unwrap();
    let remove = "import sqlite3, sys\n\
                  bag = sqlite3.connect(sys.argv[1])\n\
                  bag.execute('DELETE FROM messages WHERE id > 30')\n\
                  bag.commit()\n";
    assert!(Command::new(python).args(["-c", remove]).arg(&path).status().unwrap().success());
    let mut bytes = std::fs::read(&path).unwrap();
    assert_eq!(read(&bytes).unwrap().events.len(), 30);
    // The root of the messages.
    bytes[2 * PAGE..3 * PAGE].fill(0);
    let found = read(&bytes).unwrap();
    assert!(found.events.iter().all(|event| event.sequence <= 30), "{:?}", found.events.len());
    assert!(!found.events.is_empty());
}

proptest! {
    #[test]
    fn any_change_is_read_the_same_in_pieces(
        at in any::<prop::sample::Index>(),
        len in 0usize..12,
        put in prop::collection::vec(any::<u8>(), 0..12),
    ) {
        let mut bytes = file("db3-plain");
        let at = at.index(bytes.len()).max(18);
        let end = (at + len).min(bytes.len());
        bytes.splice(at..end, put);
        let Some(found) = read(&bytes) else { return Ok(()) };
        for (offset, length, reason) in &found.damage {
            prop_assert!(offset + length <= bytes.len() as u64 && !reason.is_empty());
        }
        if found.damage.is_empty() && at >= 7 * PAGE {
            prop_assert_eq!(found.events.len(), 60);
        }
        let mut last = i64::MIN;
        for event in &found.events {
            prop_assert!(event.sequence > last);
            last = event.sequence;
        }
    }
}

/// Writes a bag with rosbags: short and long messages of two topics, in pages of the usual length.
const WRITE: &str = r#"
import random, sys
from pathlib import Path
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore
types = get_typestore(Stores.ROS2_HUMBLE)
String = types.types["std_msgs/msg/String"]
random.seed(1)
with Writer(Path(sys.argv[1]), version=8, storage_plugin=StoragePlugin.SQLITE3) as bag:
    topic = lambda name: bag.add_connection(name, String.__msgtype__, typestore=types)
    topics = [topic("/a"), topic("/b")]
    for n in range(6000):
        text = "x" * random.choice((0, 5, 100, 3000, 50_000 if n % 50 == 0 else 1))
        data = types.serialize_cdr(String(data=text), String.__msgtype__)
        bag.write(topics[n % 2], 1_700_000_000_000_000_000 + random.randrange(10**9), data)
"#;

/// Prints the messages of a bag as rosbags reads it.
const READ: &str = r#"
import json, sys
from pathlib import Path
from rosbags.rosbag2 import Reader
with Reader(Path(sys.argv[1])) as bag:
    for topic, time, data in bag.messages():
        print(json.dumps([topic.topic, time, bytes(data).hex()]))
"#;

#[test]
fn bags_have_the_messages_that_rosbags_writes_and_reads() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let bag = folder.path().join("bag");
    let run = |text: &str| {
        let ran = Command::new(&python).args(["-c", text]).arg(&bag).output().unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        String::from_utf8(ran.stdout).unwrap()
    };
    run(WRITE);
    let line = |line: &str| -> (String, i64, String) { serde_json::from_str(line).unwrap() };
    let mut expected: Vec<_> = run(READ).lines().map(line).collect();
    assert_eq!(expected.len(), 6000);
    let source = Registry::linked().source("rosbag2", json!({ "path": bag })).unwrap();
    let found = any_splitting_is_the_same(&*source, &[1 << 16, 1 << 20]);
    assert_eq!(found.damage, []);
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let events = found.events.into_iter();
    let mut ours: Vec<_> =
        events.map(|event| (event.channel, event.timestamp, hex(&event.payload))).collect();
    // Ours are in the order of recording.
    expected.sort();
    ours.sort();
    assert!(ours == expected);
}
