//! Folders that replace those of an earlier run.

use super::*;

/// Replaces what is in a folder by these files, each described by the manifest.
fn replace(folder: &Path, files: &[(&str, &str)]) -> Result<Vec<PublishedFile>, Error> {
    let outputs = outputs(Overwrite::Replace);
    write_many(&outputs, folder, files);
    publish(&outputs)
}

#[test]
fn replacing_a_folder_removes_what_its_manifest_named_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    fs::create_dir(&out).unwrap();
    for name in ["a", "old", "mine"] {
        fs::write(out.join(name), name).unwrap();
    }
    let named = r#"{"files": [{"path": "a"}, {"path": "old"}, {"path": "../out/mine"}]}"#;
    fs::write(out.join(MANIFEST), named).unwrap();
    let outputs = outputs(Overwrite::Replace);
    outputs.folder(&out).unwrap();
    write(&outputs, &out.join("a"), b"new");
    publish(&outputs).unwrap();
    assert_eq!(names(&out), [MANIFEST, "a", "mine"]);
}

#[test]
fn files_take_the_places_of_folders_of_the_run_before_and_the_other_way_round() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    for files in [
        &[("a.d", "1"), ("b", "1"), ("c/d/e", "1")][..],
        &[("a.d/1", "2"), ("a.d/2/3", "2"), ("b", "2"), ("c", "2")],
        &[("a.d", "3"), ("b/x", "3"), ("c/d/e", "3")],
    ] {
        replace(&out, files).unwrap();
        let found = below(&out);
        let wanted: Vec<_> = [MANIFEST].into_iter().chain(files.iter().map(|f| f.0)).collect();
        assert_eq!(found.keys().collect::<Vec<_>>(), wanted);
        assert!(files.iter().all(|(name, text)| found[*name] == text.as_bytes()));
    }
}

#[test]
fn what_stood_in_the_way_is_put_back_when_the_run_fails() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    replace(&out, &[("a.d", "1"), ("c/d/e", "1"), ("z", "1")]).unwrap();
    fs::create_dir_all(out.join("theirs")).unwrap();
    fs::write(out.join("theirs/x"), "theirs").unwrap();
    let error = replace(&out, &[("a.d/1", "2"), ("c", "2"), ("theirs", "2")]).unwrap_err();
    assert!(error.to_string().contains("remove it, or write elsewhere"), "{error}");
    let found = below(&out);
    assert_eq!(found.keys().collect::<Vec<_>>(), [MANIFEST, "a.d", "c/d/e", "theirs/x", "z"]);
    assert_eq!((&*found["a.d"], &*found["c/d/e"]), (&b"1"[..], &b"1"[..]));
}

#[test]
fn folders_that_the_run_before_alone_had_something_in_go_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    replace(&out, &[("a/b/c", "1"), ("a/d/e", "1"), ("f/g", "1"), ("h/i", "1")]).unwrap();
    fs::write(out.join("a/mine"), "mine").unwrap();
    replace(&out, &[("f/x", "2")]).unwrap();
    assert_eq!(below(&out).keys().collect::<Vec<_>>(), [MANIFEST, "a/mine", "f/x"]);
    assert_eq!(
        (names(&out), names(&out.join("a"))),
        (vec![MANIFEST.into(), "a".into(), "f".into()], vec!["mine".into()])
    );
}
