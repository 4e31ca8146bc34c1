//! What the source `rosbag2` makes of folders, by their descriptions and the names of files.

use std::path::Path;

use memchr::memmem;
use serde_json::json;
use sluice_kit::contract::{SourceContents, gather, gather_with};
use sluice_model::{PluginKind, ReadContext, Registry, SniffResult, Source};
use tempfile::TempDir;

fn part() -> Vec<u8> {
    let case = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/db3-plain");
    std::fs::read(case.join("log.db3")).unwrap()
}

/// A folder with parts of 60 messages each.
fn folder(parts: &[&str], description: Option<&str>) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in parts {
        std::fs::write(folder.path().join(name), part()).unwrap();
    }
    if let Some(text) = description {
        std::fs::write(folder.path().join("metadata.yaml"), text).unwrap();
    }
    folder
}

/// A description in the order of the keys in which rosbag2 writes them.
fn description(parts: &[&str]) -> String {
    let parts: String = parts.iter().map(|part| format!("    - {part}\n")).collect();
    format!(
        "rosbag2_bagfile_information:\n  version: 5\n  storage_identifier: sqlite3\n  \
         message_count: 120\n  compression_mode: \"\"\n  relative_file_paths:\n{parts}"
    )
}

fn source(path: &Path) -> Box<dyn Source> {
    Registry::linked().source("rosbag2", json!({ "path": path })).unwrap()
}

fn read_noted(source: &dyn Source, split: u64) -> (SourceContents, Vec<String>) {
    let context = ReadContext::standalone("test");
    let found = gather_with(source, split, &context).unwrap();
    (found, context.losses.take_notes().into_iter().map(|(what, _)| what).collect())
}

fn sniffed(path: &Path) -> SniffResult {
    let registry = Registry::linked();
    let plugin = registry.iter().find(|plugin| plugin.name == "rosbag2").unwrap();
    (plugin.sniff_path)(path).unwrap()
}

#[test]
fn a_note_names_the_files_that_a_description_does_not_list() {
    let names = ["b_0.db3", "b_1.db3", "b_2.db3"];
    let bag = folder(&names, Some(&description(&names)));
    let whole = source(bag.path());
    let (found, notes) = read_noted(&*whole, 1);
    assert_eq!((found.events.len(), notes), (180, Vec::new()));
    std::fs::write(bag.path().join("metadata.yaml"), description(&names[..1])).unwrap();
    let cut = source(bag.path());
    for split in [1, u64::MAX] {
        let (found, notes) = read_noted(&*cut, split);
        assert_eq!(found.events.len(), 60);
        let [note] = &notes[..] else { panic!("{notes:?}") };
        assert!(note.contains("does not list 2 of the files, such as b_1.db3"), "{note}");
        assert!(note.contains(bag.path().to_str().unwrap()), "{note}");
    }
}

#[test]
fn a_part_beside_its_compressed_file_is_no_unlisted_one() {
    let bag = folder(&["b_0.db3", "b_1.db3"], Some(&description(&["b_0.db3.zstd", "b_1.db3"])));
    std::fs::write(bag.path().join("b_1.db3.zstd"), "").unwrap();
    let (found, notes) = read_noted(&*source(bag.path()), u64::MAX);
    assert_eq!((found.events.len(), notes), (120, Vec::new()));
}

#[test]
fn a_bag_whose_description_was_lost_is_read_by_the_names_of_its_files() {
    let names = ["b_0.db3", "b_1.db3"];
    let whole = description(&names);
    let before_list = &whole[..whole.find("relative_file_paths").unwrap()];
    for lost in ["", "\0\0\0\0\0\0\0\0", "rosbag2_bagf", before_list] {
        let bag = folder(&names, Some(lost));
        assert_ne!(sniffed(bag.path()), SniffResult::No, "{lost:?}");
        let file = bag.path().join("metadata.yaml");
        for path in [bag.path(), &file] {
            let found = source(path);
            let (contents, notes) = read_noted(&*found, 1);
            assert_eq!(contents.events.len(), 120, "{lost:?}");
            let [note] = &notes[..] else { panic!("{notes:?}") };
            assert!(note.contains("metadata.yaml lists no files"), "{note}");
            assert_eq!(found.logs().unwrap().len(), 1);
            let first = bag.path().join("b_0.db3");
            for told in [found.findings(&first).unwrap(), found.faults(&first).unwrap()] {
                let is_told = told.iter().any(|what| what.contains("metadata.yaml lists no files"));
                assert!(is_told, "{told:?}");
            }
            assert!(found.files().unwrap().iter().any(|input| input.path == file));
        }
    }
    // One that is complete says which files are read, or is not understood.
    let list = description(&names);
    let wrapped = list.replace(":\n    - b_0.db3\n    - b_1.db3", ": [b_0.db3,\n    b_1.db3]");
    let unknown = wrapped.replace("]", "");
    let bag = folder(&["b_0.db3", "b_1.db3", "b_2.db3"], Some(&wrapped));
    let (contents, notes) = read_noted(&*source(bag.path()), 1);
    assert_eq!((contents.events.len(), notes.len()), (120, 1), "{notes:?}");
    std::fs::write(bag.path().join("metadata.yaml"), unknown).unwrap();
    let error = source(bag.path()).inputs().unwrap_err().to_string();
    assert!(error.contains("the bag has no parts"), "{error}");
    // Without files that look like parts, the description is at fault.
    let bag = folder(&["other.db3"], Some(""));
    let error = source(bag.path()).inputs().unwrap_err().to_string();
    assert!(error.contains("metadata.yaml"), "{error}");
}

/// A part whose messages are compressed one by one, as far as their first bytes tell.
fn packed_part() -> Vec<u8> {
    let mut bytes = part();
    let starts: Vec<usize> = memmem::find_iter(&bytes, b"\0\0\0message ").collect();
    for start in starts {
        bytes[start - 5..start - 1].copy_from_slice(&sluice_io::frames::MAGIC);
    }
    bytes
}

#[test]
fn messages_that_are_compressed_one_by_one_are_refused_in_any_file() {
    let bag = folder(&[], None);
    let file = bag.path().join("b_0.db3");
    std::fs::write(&file, packed_part()).unwrap();
    let direct = || Registry::linked().source("ros2-db3", json!({ "path": file })).unwrap();
    for source in [direct(), source(bag.path())] {
        for split in [1, u64::MAX] {
            let error = gather(&*source, split).map(|_| ()).unwrap_err().to_string();
            assert!(error.contains("compressed one by one"), "{error}");
            assert!(error.contains("b_0.db3"), "{error}");
        }
    }
    // Those of another format may begin with anything.
    let mut bytes = packed_part();
    let formats: Vec<usize> = memmem::find_iter(&bytes, b"/msg/Stringcdr").collect();
    assert_eq!(formats.len(), 2);
    for format in formats {
        bytes[format + 11..format + 14].copy_from_slice(b"raw");
    }
    std::fs::write(&file, bytes).unwrap();
    assert_eq!(gather(&*direct(), 1).unwrap().events.len(), 60);
}

#[test]
fn a_description_says_that_its_folder_is_to_be_read() {
    let registry = Registry::linked();
    let why = |head: &[u8]| registry.iter().find_map(|plugin| (plugin.refusal)(head));
    let found = why(description(&[]).as_bytes()).unwrap();
    assert!(found.contains("the folder"), "{found}");
    assert_eq!(why(b"information: rosbag"), None);
    assert!(registry.names(PluginKind::Source).contains(&"rosbag2"));
}

#[test]
fn any_message_that_is_compressed_for_itself_is_refused_however_the_bag_is_split() {
    let mut bytes = part();
    let last = memmem::rfind(&bytes, b"\0\0\0message ").unwrap();
    bytes[last - 5..last - 1].copy_from_slice(&sluice_io::frames::MAGIC);
    let bag = folder(&[], None);
    std::fs::write(bag.path().join("b_0.db3"), bytes).unwrap();
    for split in [1, 4096, u64::MAX] {
        let error = gather(&*source(bag.path()), split).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("compressed one by one"), "{error}");
    }
}
