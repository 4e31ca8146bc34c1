//! The kit runs cases, and finds those that differ.

use std::fs;
use std::path::Path;

use crate::sources::toy::{file, frame};

/// A folder with a case: an event, garbage, and another event.
fn case(events: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.path().join("garbage").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    };
    write("pipeline.toml", b"[sources.log]\nplugin = \"toy\"\npath = \"a.toy\"\n");
    let log = [&frame(1, b"one")[..], b"??", &frame(2, b"two"), &file(1)].concat();
    let digits: String = log.iter().map(|byte| format!("{byte:02x} ")).collect();
    write("a.toy.hex", format!("# events and garbage\n{digits}").as_bytes());
    write("expected.jsonl", events.as_bytes());
    folder
}

fn differs(folder: &Path) -> String {
    let panic = std::panic::catch_unwind(|| sluice_conformance::cases(folder)).unwrap_err();
    panic.downcast_ref::<String>().unwrap().clone()
}

#[test]
fn a_case_that_differs_is_named_with_the_first_line_that_does() {
    // With it, nothing differs.
    if std::env::var_os("BLESS").is_some() {
        return;
    }
    let text = differs(case("").path());
    assert!(text.contains("garbage: expected.damage, line 1:"), "{text}");
    assert!(text.contains("found    a.toy "), "{text}");
}

#[test]
fn a_folder_without_cases_is_a_mistake() {
    assert!(differs(tempfile::tempdir().unwrap().path()).contains("no case in"));
}
