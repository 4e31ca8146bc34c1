//! Many small files, which are staged together.

use super::*;

#[test]
fn many_files_appear_together_and_are_described_as_others_are() {
    let folder = tempfile::tempdir().unwrap();
    let (out, outputs) = (folder.path().join("out"), outputs(Overwrite::Refuse));
    write_many(&outputs, &out, &[("a", "1"), ("sub/b", "22"), ("sub/deep/c", "")]);
    write(&outputs, &out.join("index"), b"i");
    assert!(!out.join("a").exists() && !out.join("sub").exists());
    let published = outputs.publish(|_, files| Ok(format!("{} files", files.len()))).unwrap();
    let found = below(&out);
    assert_eq!(found.keys().collect::<Vec<_>>(), [MANIFEST, "a", "index", "sub/b", "sub/deep/c"]);
    assert_eq!((&*found["sub/b"], &*found[MANIFEST]), (&b"22"[..], &b"4 files"[..]));
    let b = published.iter().find(|file| file.path == out.join("sub/b")).unwrap();
    assert_eq!((b.rows, b.bytes), (1, 2));
    assert_eq!(b.blake3, Some(blake3::hash(b"22").to_hex().to_string()));
}

#[test]
fn many_files_of_a_run_that_fails_leave_nothing() {
    let folder = tempfile::tempdir().unwrap();
    for finish in [true, false] {
        let outputs = outputs(Overwrite::Refuse);
        let out = folder.path().join("deep/out");
        outputs.folder(&out).unwrap();
        let mut many = outputs.many(&out).unwrap();
        many.write("sub/a", b"1", 1).unwrap();
        match finish {
            true => many.finish().unwrap(),
            false => drop(many),
        }
        drop(outputs);
        assert!(names(folder.path()).is_empty());
    }
}

#[test]
fn many_files_replace_what_was_there_and_what_the_manifest_named() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    for (text, files) in [("1", &["a", "sub/b", "sub/old"][..]), ("2", &["a", "sub/b", "sub/c"])] {
        let outputs = outputs(Overwrite::Replace);
        let files: Vec<(&str, &str)> = files.iter().map(|name| (*name, text)).collect();
        write_many(&outputs, &out, &files);
        publish(&outputs).unwrap();
    }
    let found = below(&out);
    assert_eq!(found.keys().collect::<Vec<_>>(), [MANIFEST, "a", "sub/b", "sub/c"]);
    assert!(["a", "sub/b", "sub/c"].iter().all(|name| found[*name] == b"2"));
}

#[test]
fn many_files_are_taken_back_when_one_cannot_be_published() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let outputs = outputs(Overwrite::Refuse);
    write_many(&outputs, &out, &[("a", "1"), ("sub/b", "1"), ("sub/c", "1"), ("z", "1")]);
    fs::create_dir(out.join("sub")).unwrap();
    fs::write(out.join("sub/c"), "theirs").unwrap();
    let error = publish(&outputs).unwrap_err().to_string();
    assert!(error.contains("has appeared"), "{error}");
    drop(outputs);
    assert_eq!(below(&out).into_iter().collect::<Vec<_>>(), [("sub/c".into(), b"theirs".to_vec())]);
}

#[test]
fn names_that_lead_elsewhere_or_are_there_twice_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let outputs = outputs(Overwrite::Refuse);
    let mut many = outputs.many(folder.path()).unwrap();
    many.write("a", b"", 0).unwrap();
    for name in ["", "../a", "/a", "a/../../b", "a"] {
        assert!(many.write(name, b"", 0).is_err(), "{name}");
    }
    assert!(outputs.many(folder.path()).unwrap_err().to_string().contains("two sinks"));
}

#[test]
fn more_files_than_are_synced_each_are_published_too() {
    let folder = tempfile::tempdir().unwrap();
    let outputs = outputs(Overwrite::Refuse);
    let mut many = outputs.many(folder.path()).unwrap();
    (0..300).for_each(|n| many.write(&format!("{n}"), b"x", 1).unwrap());
    many.finish().unwrap();
    assert_eq!(publish(&outputs).unwrap().len(), 300);
    assert_eq!(names(folder.path()).len(), 300);
}
