//! Which folders are tables, and which files of them are read.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use serde_json::json;
use sluice_kit::contract::gather_with;
use sluice_model::{Error, PluginKind, ReadContext, Registry, SniffResult};

use crate::kit::{drive, read, source, write_single};

/// A folder with these files: tables of ten events each, and others.
fn tree(files: &[&str]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for file in files {
        let path = folder.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        match file.ends_with(".parquet") {
            true => write_single(&path, &drive(10), 10, json!({})),
            false => fs::write(&path, "x").unwrap(),
        }
    }
    folder
}

fn sniff(path: &Path) -> Result<bool, Error> {
    let parquet = *Registry::linked().get(PluginKind::Source, "parquet").unwrap();
    (parquet.sniff_path)(path).map(|sniff| sniff == SniffResult::Yes)
}

fn write_manifest(folder: &Path, tables: &[&str]) {
    let files: Vec<_> = tables.iter().map(|path| json!({ "path": path })).collect();
    let text = json!({ "plugins": ["parquet"], "files": files }).to_string();
    fs::write(folder.join("_manifest.json"), text).unwrap();
}

#[test]
fn folders_of_tables_and_what_belongs_to_them_are_tables() {
    for files in [
        &["a.parquet"][..],
        &["a.PARQUET", "b.parquet", "_SUCCESS", "_metadata", ".part.crc", "part.crc"],
        &["channel=A/part-0.parquet", "channel=B/schema=1/part-0.parquet"],
        &["README.md", "LICENSE", ".git/config", "data/train/0.parquet", "data/test/0.parquet"],
        &["schema.sql", "load.sql", "trips.parquet"],
        &["_delta_log/0.json", "part-0.parquet"],
        &["README.md", "dataset_infos.json", "data/train.parquet", "data/state.json"],
        &["p0.parquet", "schema.json", "Thumbs.db", "desktop.ini", "CITATION.cff"],
        &["SHA256SUMS", "metadata.json", "p0.parquet", "p0.parquet.md5", "p1.sha256"],
        &["log=a/_manifest.json", "log=a/channel=A/x.parquet", "_units.jsonl"],
    ] {
        assert!(sniff(tree(files).path()).unwrap(), "{files:?}");
    }
    let empty = tree(&["a/_b/c.parquet"]);
    assert!(!sniff(empty.path()).unwrap());
    write_manifest(empty.path(), &[]);
    assert!(sniff(empty.path()).unwrap());
}

#[test]
fn folders_with_other_files_are_not_tables() {
    for files in [
        &["drive.lcm", "old/export.parquet"][..],
        &["a/b/x.parquet", "a/b.bin", "c/d.mcap"],
        &["set/data/chunk-000/file-000.parquet", "set/meta/info.json"],
        &["drive.lcm"],
        &["drive.lcm", "drive.lcm.md5"],
        &["set/data/chunk-000/file-000.parquet", "set/meta/info.json", "set/meta/tasks.parquet"],
    ] {
        let found = sniff(tree(files).path());
        assert!(!found.unwrap(), "{files:?}");
    }
    // A table that is found first, directly in the folder, or in a partition of it shows what the
    // folder is, and the error what is wrong with it.
    for (files, other) in [
        (&["a.parquet", "drive.lcm"][..], "drive.lcm"),
        (&["drive.lcm", "drive.parquet", "x.lcm", "z/a.parquet"], "drive.lcm"),
        (&["drive.lcm", "channel=A/schema=1/a.parquet"], "drive.lcm"),
        (&["year=1/a.csv", "year=2/a.parquet"], "year=1/a.csv"),
        (&["year=1/a.parquet", "year=2/a.csv", "year=2/b.csv"], "year=2/a.csv"),
        (&["tables/a.parquet", "tables/channel=A/b.mcap"], "tables/channel=A/b.mcap"),
    ] {
        let folder = tree(files);
        let error = sniff(folder.path()).unwrap_err().to_string();
        let folder = folder.path().display().to_string();
        for part in
            [&format!("{folder}/{other}"), "other files", &format!("'{folder}/**/*.parquet'")]
        {
            assert!(error.contains(part), "{part}: {error}");
        }
    }
    let folder = tree(&["drive.lcm"]);
    write_manifest(folder.path(), &[]);
    assert!(!sniff(folder.path()).unwrap());
}

#[test]
fn other_files_beside_the_tables_of_a_manifest_are_noted() {
    let folder = tree(&["runs/log=a/channel=A/0.parquet", "runs/log=a/b.lcm", "runs/log=a/c/d"]);
    let runs = folder.path().join("runs");
    write_manifest(&runs.join("log=a"), &["channel=A/0.parquet"]);
    let context = ReadContext::standalone("test");
    for path in [&runs, &runs.join("log=a")] {
        assert!(sniff(path).unwrap());
        let found = gather_with(&*source(path), 1 << 20, &context).unwrap();
        assert_eq!(found.events.len(), 10);
        let notes = context.losses.take_notes();
        let [(note, _)] = &notes[..] else { panic!("{notes:?}") };
        assert!(note.contains("2 other files") && note.contains("b.lcm"), "{note}");
    }
    // So are those beside folders that a batch wrote, such as its report.
    fs::remove_file(runs.join("log=a/_manifest.json")).unwrap();
    let is_refused = || sniff(&runs).is_err_and(|error| error.to_string().contains("other files"));
    assert!(is_refused());
    let units = json!([{ "files": [
        { "path": "log=a/_manifest.json" },
        { "path": "log=a/channel=A/0.parquet" },
    ] }]);
    fs::write(runs.join("report.json"), "{}").unwrap();
    for (units, is_folder) in
        [(units, true), (json!([{ "files": [{ "path": "a.parquet" }] }]), false)]
    {
        let manifest = json!({ "sluice": "0.1.0", "units": units }).to_string();
        fs::write(runs.join("_manifest.json"), manifest).unwrap();
        assert!(if is_folder { sniff(&runs).unwrap() } else { is_refused() });
    }
    fs::remove_file(runs.join("_manifest.json")).unwrap();
    // Other files that are listed are not beside tables, but outputs like them.
    write_manifest(&runs.join("log=a"), &["channel=A/0.parquet", "b.lcm"]);
    assert!(is_refused());
}

#[test]
fn tables_are_read_once_whatever_links_lead_to_them() {
    let folder = tree(&["t/tuesday/a.parquet", "t/b.parquet", "elsewhere/c.parquet"]);
    let tables = folder.path().join("t");
    for (to, link) in [
        (".", "t/self"),
        ("tuesday", "t/latest"),
        ("b.parquet", "t/a.parquet"),
        ("../elsewhere", "t/c"),
        ("../../elsewhere", "t/tuesday/c"),
    ] {
        symlink(to, folder.path().join(link)).unwrap();
    }
    assert!(sniff(&tables).unwrap());
    let inputs = source(&tables).inputs().unwrap().into_iter();
    let names: Vec<PathBuf> =
        inputs.map(|input| input.path.strip_prefix(&tables).unwrap().to_owned()).collect();
    // Files have their own names, and those of links if only these lead to them.
    assert_eq!(names, ["b.parquet", "c/c.parquet", "tuesday/a.parquet"].map(PathBuf::from));
    assert_eq!(read(&tables).unwrap().events.len(), 30);
}

#[test]
fn links_to_folders_above_end() {
    let folder = tree(&["h/a/x.parquet"]);
    let tables = folder.path().join("h");
    for link in ["x", "y", "z"] {
        symlink("..", tables.join("a").join(link)).unwrap();
    }
    assert!(sniff(&tables).unwrap());
    assert_eq!(source(&tables).inputs().unwrap().len(), 1);
    fs::remove_file(tables.join("a/x.parquet")).unwrap();
    assert!(!sniff(&tables).unwrap());
    for system in ["/proc", "/proc/self"] {
        assert!(!sniff(Path::new(system)).unwrap(), "{system}");
    }
}
