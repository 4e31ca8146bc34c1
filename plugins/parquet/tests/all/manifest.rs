//! Tables that differ from what the manifest of their folder says are told.

use std::fs;
use std::path::Path;

use serde_json::json;
use sluice_kit::contract::gather_with;
use sluice_model::ReadContext;

use crate::kit::{batch, context, drive, files, source, write};

/// The notes of reading this folder, and how many events it has.
fn notes(folder: &Path) -> (Vec<String>, usize) {
    let context = ReadContext::standalone("test");
    let found = gather_with(&*source(folder), 1 << 20, &context).unwrap();
    assert_eq!(found.damage, []);
    let notes = context.losses.take_notes().into_iter().map(|(note, _)| note);
    (notes.collect(), found.events.len())
}

#[test]
fn tables_that_are_missing_beside_a_manifest_are_noted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tables/");
    let (events, context) = (drive(500), context(64 << 20));
    write(json!({ "path": path }), vec![batch(&events, &context.channels)], &context).unwrap();
    let mut names: Vec<String> = files(&path).into_keys().collect();
    names.retain(|name| name.ends_with(".parquet"));
    assert_eq!(names.len(), 5);
    let listed: Vec<_> = names.iter().map(|name| json!({ "path": name })).collect();
    let listed = json!({ "plugins": ["parquet"], "files": listed });
    fs::write(path.join("_manifest.json"), listed.to_string()).unwrap();
    assert_eq!(notes(&path), (vec![], 500));
    // One table that is left is not merged.
    for (left, shown) in
        [(4, "lists 5 tables, 1 of them missing: "), (1, "4 of them missing, such as ")]
    {
        names.iter().skip(left).for_each(|name| drop(fs::remove_file(path.join(name))));
        let (notes, events) = notes(&path);
        let [note] = &notes[..] else { panic!("{notes:?}") };
        assert!(events < 500 && note.contains(shown), "{note}");
        assert!(note.contains(&names[left]) && note.contains("`sluice verify`"), "{note}");
    }
    fs::remove_file(path.join("_manifest.json")).unwrap();
    assert_eq!(notes(&path).0, [""; 0]);
}

#[test]
fn tables_that_were_replaced_or_added_are_noted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tables/");
    let (events, context) = (drive(500), context(64 << 20));
    write(json!({ "path": path }), vec![batch(&events, &context.channels)], &context).unwrap();
    let tables = files(&path).into_iter().filter(|(name, _)| name.ends_with(".parquet"));
    let listed: Vec<_> =
        tables.map(|(name, bytes)| json!({ "path": name, "bytes": bytes.len() })).collect();
    fs::write(path.join("_manifest.json"), json!({ "files": listed }).to_string()).unwrap();
    assert_eq!(notes(&path), (vec![], 500));
    let part = |channel: &str| path.join(format!("channel={channel}/part-00000.parquet"));
    fs::copy(part("B"), part("A")).unwrap();
    fs::copy(part("C"), path.join("channel=C/copy.parquet")).unwrap();
    let (notes, _) = notes(&path);
    let [replaced, added] = &notes[..] else { panic!("{notes:?}") };
    let expected = "lists 5 tables, 1 of them with another length: channel=A/part-00000.parquet;";
    assert!(replaced.contains(expected), "{replaced}");
    let expected = "lists 5 tables, and 1 more in the folder: channel=C/copy.parquet;";
    assert!(added.contains(expected), "{added}");
}

#[test]
fn tables_that_are_missing_beside_manifests_in_subfolders_are_noted() {
    let folder = tempfile::tempdir().unwrap();
    let (events, context) = (drive(50), context(64 << 20));
    let batch = batch(&events, &context.channels);
    let mut written = 0;
    for piece in ["piece=00000", "piece=00001", "_hidden"] {
        let path = folder.path().join(piece);
        write(json!({ "path": path.join("") }), vec![batch.clone()], &context).unwrap();
        let mut names: Vec<String> = files(&path).into_keys().collect();
        names.retain(|name| name.ends_with(".parquet"));
        written = names.len();
        names.push("channel=GONE/part-00000.parquet".to_owned());
        let listed: Vec<_> = names.iter().map(|name| json!({ "path": name })).collect();
        fs::write(path.join("_manifest.json"), json!({ "files": listed }).to_string()).unwrap();
    }
    let (notes, _) = notes(folder.path());
    assert_eq!(notes.len(), 2, "{notes:?}");
    for (note, piece) in notes.iter().zip(["piece=00000", "piece=00001"]) {
        let expected = format!("{piece}/_manifest.json lists {} tables, 1 of them", written + 1);
        assert!(note.contains(&expected) && note.contains("channel=GONE/"), "{note}");
    }
}

#[test]
fn a_piece_without_a_manifest_beside_others_is_noted() {
    let folder = tempfile::tempdir().unwrap();
    let (events, context) = (drive(50), context(64 << 20));
    let batch = batch(&events, &context.channels);
    for piece in ["piece=00000", "piece=00001", "other"] {
        let path = folder.path().join(piece);
        write(json!({ "path": path.join("") }), vec![batch.clone()], &context).unwrap();
        let names = files(&path).into_keys().filter(|name| name.ends_with(".parquet"));
        let listed: Vec<_> = names.map(|name| json!({ "path": name })).collect();
        fs::write(path.join("_manifest.json"), json!({ "files": listed }).to_string()).unwrap();
    }
    assert_eq!(notes(folder.path()), (vec![], 150));
    // As if it had been killed while tables got their names.
    let killed = folder.path().join("piece=00001");
    fs::remove_file(killed.join("_manifest.json")).unwrap();
    fs::remove_dir_all(killed.join("channel=A")).unwrap();
    fs::remove_file(folder.path().join("other/_manifest.json")).unwrap();
    let (notes, events) = notes(folder.path());
    let [note] = &notes[..] else { panic!("{notes:?}") };
    assert!(events < 150 && note.contains("piece=00001 has 4 tables and no _manifest"), "{note}");
    assert!(note.contains("tables may be missing; `sluice verify`"), "{note}");
}

#[test]
fn a_manifest_can_only_name_tables_of_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tables/");
    let (events, context) = (drive(50), context(64 << 20));
    write(json!({ "path": path }), vec![batch(&events, &context.channels)], &context).unwrap();
    let names = [
        "../a.parquet",
        "/b.parquet",
        "log.txt",
        ".c.parquet",
        "",
        "_d/e.parquet",
        "x/../f.parquet",
    ];
    let listed: Vec<_> = names.iter().map(|name| json!({ "path": name })).collect();
    for manifest in [json!({ "files": listed }), json!({ "files": 7 }), json!([[[]]])] {
        fs::write(path.join("_manifest.json"), manifest.to_string()).unwrap();
        assert_eq!(notes(&path), (vec![], 50));
    }
}
