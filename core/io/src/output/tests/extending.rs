//! Folders whose files stay while others are added.

use super::*;

/// A folder with a file of data, and one that describes it.
fn described(folder: &Path) {
    let outputs = outputs(Overwrite::Refuse);
    outputs.folder(folder).unwrap();
    write(&outputs, &folder.join("data-0"), b"old data");
    write(&outputs, &folder.join("info"), b"old info");
    publish(&outputs).unwrap();
}

/// Adds a file of data to it, and replaces the one that describes it.
fn extend(outputs: &Arc<Outputs>, folder: &Path, name: &str) -> Result<(), Error> {
    outputs.extend_folder(folder)?;
    write(outputs, &folder.join(name), b"new data");
    let mut file = outputs.replace(&folder.join("info"))?;
    file.write(b"new info")?;
    file.finish(2)?;
    publish(outputs).map(drop)
}

#[test]
fn old_files_stay_and_are_listed_beside_new_ones() {
    let folder = tempfile::tempdir().unwrap();
    described(folder.path());
    extend(&outputs(Overwrite::Refuse), folder.path(), "data-1").unwrap();
    assert_eq!(names(folder.path()), [MANIFEST, "data-0", "data-1", "info"]);
    let read = |name: &str| fs::read(folder.path().join(name)).unwrap();
    assert_eq!((read("data-0"), read("info")), (b"old data".to_vec(), b"new info".to_vec()));
    let text = String::from_utf8(read(MANIFEST)).unwrap();
    assert_eq!(text.matches("path").count(), 3, "{text}");
    assert!(text.contains("{\"path\":\"data-0\",\"rows\":1,\"bytes\":8}"), "{text}");
    assert!(text.contains("{\"path\":\"info\",\"rows\":2,\"bytes\":8}"), "{text}");
}

#[test]
fn a_name_that_another_run_has_taken_meanwhile_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    described(folder.path());
    let late = outputs(Overwrite::Refuse);
    late.extend_folder(folder.path()).unwrap();
    write(&late, &folder.path().join("data-1"), b"late data");
    let mut file = late.replace(&folder.path().join("info")).unwrap();
    file.write(b"late info").unwrap();
    file.finish(2).unwrap();
    extend(&outputs(Overwrite::Refuse), folder.path(), "data-1").unwrap();
    let manifest_before = fs::read(folder.path().join(MANIFEST)).unwrap();
    assert!(publish(&late).is_err());
    let read = |name: &str| fs::read(folder.path().join(name)).unwrap();
    assert_eq!((read("data-1"), read("info")), (b"new data".to_vec(), b"new info".to_vec()));
    assert_eq!(read(MANIFEST), manifest_before);
}

#[test]
fn a_folder_is_not_extended_by_a_run_that_replaces_or_resumes() {
    let folder = tempfile::tempdir().unwrap();
    described(folder.path());
    for (overwrite, says) in [(Overwrite::Replace, "--overwrite"), (Overwrite::Redo, "--resume")] {
        let error = outputs(overwrite).extend_folder(folder.path()).unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
    }
}

#[test]
fn an_interrupted_run_does_not_continue_what_may_be_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("log");
    write(&outputs(Overwrite::Redo), &folder.path().join("other"), b"abc");
    let outputs = outputs(Overwrite::Redo);
    outputs.extend(&target).unwrap();
    fs::write(&target, "old").unwrap();
    let refused = outputs.extend(&target).unwrap_err().to_string();
    assert!(refused.contains("without --resume"), "{refused}");
}

#[test]
fn extending_keeps_what_was_there_and_zst_is_compressed() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["log", "log.zst"] {
        let target = folder.path().join(name);
        for text in ["one ", "two "] {
            let outputs = outputs(Overwrite::Refuse);
            let mut file = outputs.extend(&target).unwrap();
            file.write(text.as_bytes()).unwrap();
            file.finish(1).unwrap();
            let published = publish(&outputs).unwrap();
            let hash = blake3::hash(&fs::read(&target).unwrap()).to_hex().to_string();
            assert_eq!(published[0].blake3, Some(hash));
        }
        let mut text = vec![0; 20];
        let read = crate::files::LogFile::open(&target).unwrap().read_at(0, &mut text).unwrap();
        assert_eq!(&text[..read], b"one two ");
    }
}
