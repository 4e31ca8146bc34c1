//! Outputs in an object store, with one in memory.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime};

use super::*;
use crate::output::staging::{StagedFile, StagingDir};
use crate::store::memory::MEMORY;

fn at(bucket: &str, key: &str) -> PathBuf {
    format!("mem://{bucket}/{key}").into()
}

fn text(bucket: &str, key: &str) -> Option<String> {
    MEMORY.bytes(bucket, key).map(|bytes| String::from_utf8(bytes.to_vec()).unwrap())
}

/// Writes files of a folder, and publishes them with a manifest that lists their names.
fn write_folder(
    outputs: &Arc<Outputs>,
    folder: &Path,
    files: &[&str],
) -> Result<Vec<PublishedFile>, Error> {
    outputs.folder(folder)?;
    for name in files {
        let mut file = outputs.create_below(folder)?;
        file.write(name.as_bytes())?;
        file.finish_as(&folder.join(name), 1)?;
    }
    publish(outputs)
}

#[test]
fn an_object_appears_when_all_is_published_and_not_before() {
    let outputs = outputs(Overwrite::Refuse);
    let mut file = outputs.create(&at("one", "x/a.lcm")).unwrap();
    file.write(b"events").unwrap();
    file.finish(2).unwrap();
    assert_eq!(MEMORY.keys("one"), [""; 0]);
    let published = publish(&outputs).unwrap();
    assert_eq!(published[0].path, at("one", "x/a.lcm"));
    assert_eq!((published[0].bytes, published[0].rows), (6, 2));
    assert_eq!(text("one", "x/a.lcm").unwrap(), "events");
}

#[test]
fn what_is_dropped_never_appears() {
    let outputs = outputs(Overwrite::Refuse);
    let mut file = outputs.create(&at("dropped", "a")).unwrap();
    file.write(b"events").unwrap();
    file.finish(1).unwrap();
    drop(outputs);
    assert_eq!(MEMORY.keys("dropped"), [""; 0]);
}

#[test]
fn an_object_that_is_there_is_refused_or_replaced() {
    MEMORY.set("there-out", "a", "old");
    let path = at("there-out", "a");
    let refused = outputs(Overwrite::Refuse).create(&path).unwrap_err().to_string();
    assert!(refused.contains("--overwrite") && refused.contains("mem://there-out/a"), "{refused}");
    let outputs = outputs(Overwrite::Replace);
    let mut file = outputs.create(&path).unwrap();
    file.write(b"new").unwrap();
    file.finish(1).unwrap();
    publish(&outputs).unwrap();
    assert_eq!(text("there-out", "a").unwrap(), "new");
    assert_eq!(MEMORY.keys("there-out"), ["a"]);
    assert_eq!(crate::files::read(&path).unwrap(), b"new");
}

#[test]
fn copies_of_replaced_objects_that_cannot_be_removed_are_named() {
    let (bucket, folder) = ("kept", at("kept", "out/"));
    let said = || {
        let outputs = outputs(Overwrite::Replace);
        write_folder(&outputs, &folder, &["a", "b"]).unwrap();
        outputs.leftover()
    };
    assert_eq!(said(), None);
    assert_eq!(said(), None);
    MEMORY.with(bucket, |bucket| bucket.undeletable = Some(".a."));
    let left = said().unwrap();
    let copy = MEMORY.keys(bucket).remove(0);
    assert!(left.starts_with(&format!("mem://kept/{copy}: this copy of a replaced")), "{left}");
    assert!(left.contains("the store does not remove it"), "{left}");
    MEMORY.with(bucket, |bucket| bucket.undeletable = Some("out/."));
    let left = said().unwrap();
    assert!(left.contains(": this and 2 more copies of replaced objects"), "{left}");
    // The same after a failure.
    MEMORY.with(bucket, |bucket| bucket.broken = vec!["out/b".into()]);
    let failed = write_folder(&outputs(Overwrite::Replace), &folder, &["a", "b"]);
    let error = failed.unwrap_err().to_string();
    assert!(error.contains("the store is broken") && error.contains("copies of repl"), "{error}");
}

#[test]
fn copies_that_are_made_although_the_store_says_otherwise_do_not_stay() {
    let path = at("lost-copies", "a");
    MEMORY.set("lost-copies", "a", "old");
    MEMORY.with("lost-copies", |bucket| bucket.unanswered_copy = Some(".a."));
    let outputs = outputs(Overwrite::Replace);
    outputs.create(&path).unwrap().finish(0).unwrap();
    publish(&outputs).unwrap();
    assert_eq!(MEMORY.keys("lost-copies"), ["a"]);
    assert_eq!(outputs.leftover(), None);
}

#[test]
fn an_object_that_appears_while_the_run_goes_on_is_not_replaced() {
    let outputs = outputs(Overwrite::Refuse);
    let file = outputs.create(&at("races", "a")).unwrap();
    file.finish(0).unwrap();
    MEMORY.set("races", "a", "theirs");
    let error = publish(&outputs).unwrap_err().to_string();
    assert!(error.contains("has appeared"), "{error}");
    assert_eq!(text("races", "a").unwrap(), "theirs");
}

#[test]
fn a_folder_gets_its_manifest_last_and_loses_what_an_earlier_run_wrote() {
    let folder = at("folders", "out/");
    write_folder(&outputs(Overwrite::Refuse), &folder, &["x/a", "y/b"]).unwrap();
    assert_eq!(MEMORY.keys("folders"), ["out/_manifest.json", "out/x/a", "out/y/b"]);
    let asked = MEMORY.with("folders", |bucket| bucket.asked.clone());
    assert_eq!(asked.last().unwrap(), "put out/_manifest.json");
    let refused = write_folder(&outputs(Overwrite::Refuse), &folder, &["c"]).unwrap_err();
    assert!(refused.to_string().contains("not empty"), "{refused}");
    write_folder(&outputs(Overwrite::Replace), &folder, &["x/a", "c"]).unwrap();
    assert_eq!(MEMORY.keys("folders"), ["out/_manifest.json", "out/c", "out/x/a"]);
}

#[test]
fn if_one_object_cannot_be_put_all_is_as_before_and_that_is_said() {
    let folder = at("fails", "out/");
    write_folder(&outputs(Overwrite::Refuse), &folder, &["a", "b"]).unwrap();
    MEMORY.set("fails", "out/a", "old a");
    let before = MEMORY.with("fails", |bucket| bucket.objects.clone());
    let contents =
        |objects: &BTreeMap<String, (bytes::Bytes, u64)>| -> Vec<(String, bytes::Bytes)> {
            objects.iter().map(|(key, (bytes, _))| (key.clone(), bytes.clone())).collect()
        };
    for broken in ["out/z", "out/_manifest.json"] {
        MEMORY.with("fails", |bucket| bucket.broken = vec![broken.into()]);
        let error = write_folder(&outputs(Overwrite::Replace), &folder, &["a", "c", "z"]);
        let error = error.unwrap_err().to_string();
        assert!(error.contains("the store is broken"), "{error}");
        MEMORY.with("fails", |bucket| bucket.broken.clear());
        let after = MEMORY.with("fails", |bucket| bucket.objects.clone());
        if broken.ends_with('z') {
            assert_eq!(contents(&after), contents(&before));
        } else {
            assert!(error.contains("3 earlier uploads were rolled back"), "{error}");
        }
    }
}

/// Replaces the object `a` of a bucket whose old content is `old`; returns the error.
fn replace_in_vain(bucket: &str) -> String {
    MEMORY.set(bucket, "a", "old");
    let outputs = outputs(Overwrite::Replace);
    let mut file = outputs.create(&at(bucket, "a")).unwrap();
    file.write(b"new").unwrap();
    file.finish(1).unwrap();
    publish(&outputs).unwrap_err().to_string()
}

#[test]
fn what_a_failed_upload_has_replaced_all_the_same_is_restored() {
    MEMORY.with("unanswered", |bucket| bucket.unanswered = Some("a".into()));
    let error = replace_in_vain("unanswered");
    assert!(error.contains("does not answer"), "{error}");
    assert_eq!(text("unanswered", "a").unwrap(), "old");
    assert_eq!(MEMORY.keys("unanswered"), ["a"]);
}

#[test]
fn what_cannot_be_restored_stays_beside_it_and_is_named() {
    MEMORY.with("stays-beside", |bucket| {
        bucket.unanswered = Some("a".into());
        bucket.uncopied = Some("a".into());
    });
    let error = replace_in_vain("stays-beside");
    let keys = MEMORY.keys("stays-beside");
    let [aside, _] = &keys[..] else { panic!("{keys:?}") };
    assert_eq!(text("stays-beside", aside).unwrap(), "old");
    assert!(error.contains(&format!("copy mem://stays-beside/{aside} to it")), "{error}");
}

#[test]
fn a_manifest_that_cannot_be_restored_stays_beside_it_and_is_named() {
    let (folder, bucket) = (at("old-manifest", "out/"), "old-manifest");
    write_folder(&outputs(Overwrite::Refuse), &folder, &["a"]).unwrap();
    let before = text(bucket, "out/_manifest.json");
    MEMORY.with(bucket, |bucket| {
        bucket.broken = vec!["out/z".into(), "out/_manifest.json".into()];
    });
    let error = write_folder(&outputs(Overwrite::Replace), &folder, &["a", "z"]).unwrap_err();
    let keys = MEMORY.keys(bucket);
    let aside = keys.iter().find(|key| key.contains("._manifest.json.")).unwrap();
    assert_eq!(text(bucket, aside), before);
    let error = error.to_string();
    assert!(error.contains("the store is broken"), "{error}");
    assert!(error.contains(&format!("copy mem://old-manifest/{aside} to it")), "{error}");
}

/// Replaces a folder of some objects in a store that answers nothing from the first put on; returns
/// the error, and how often the store was asked after that.
fn replace_in_silence(bucket: &str, abort: bool) -> (String, usize) {
    let folder = at(bucket, "out/");
    let names: Vec<String> = (0..99).map(|n| format!("{n:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    write_folder(&outputs(Overwrite::Refuse), &folder, &names).unwrap();
    MEMORY.with(bucket, |bucket| match abort {
        true => bucket.broken = vec!["out/98".to_owned()],
        false => bucket.last_put = Some("out/70".to_owned()),
    });
    MEMORY.with(bucket, |bucket| bucket.asked.clear());
    let replacing = Outputs::new(Overwrite::Replace, false, &[]);
    let replacing = Arc::new(replacing.with_abort(Arc::new(AtomicBool::new(abort))));
    let error = write_folder(&replacing, &folder, &names).unwrap_err().to_string();
    let asked = MEMORY.with(bucket, |bucket| bucket.asked.clone());
    let last = asked.iter().position(|request| request == "put out/70").unwrap();
    (error, asked.len() - last)
}

/// How often an error says that a backup of such a name is to be copied back.
fn backups_named(error: &str, name: &str) -> usize {
    error.matches(&format!("/out/.{name}")).count()
}

#[test]
fn a_store_that_is_gone_is_not_asked_object_by_object_to_roll_back() {
    let (error, asked) = replace_in_silence("silent", false);
    assert!(error.contains("uploads could not be rolled back, such as this"), "{error}");
    assert!(error.contains("does not answer"), "{error}");
    assert_eq!((backups_named(&error, "_manifest.json"), backups_named(&error, "0")), (1, 1));
    // A few are in flight when it is noticed, each with its backup.
    assert!(asked <= 32, "{asked}");
}

#[test]
fn an_abort_ends_rolling_back_and_the_error_says_what_is_left() {
    let (error, _) = replace_in_silence("aborted", true);
    assert!(error.contains("uploads could not be rolled back, such as this"), "{error}");
    assert!(error.contains("the run was aborted"), "{error}");
    assert_eq!((backups_named(&error, "_manifest.json"), backups_named(&error, "0")), (1, 1));
    assert!(!MEMORY.keys("aborted").contains(&"out/_manifest.json".to_owned()));
}

#[test]
fn a_manifest_that_appears_while_the_run_goes_on_is_not_replaced() {
    let (folder, outputs) = (at("raced-manifest", "out/"), outputs(Overwrite::Refuse));
    outputs.folder(&folder).unwrap();
    let mut file = outputs.create_below(&folder).unwrap();
    file.write(b"ours").unwrap();
    file.finish_as(&folder.join("a"), 1).unwrap();
    let error = outputs.publish_announced(
        |_, _| Ok("ours".to_owned()),
        |_| {
            MEMORY.set("raced-manifest", "out/_manifest.json", "theirs");
            Ok(())
        },
    );
    let error = error.unwrap_err().to_string();
    assert!(error.contains("another run has written into this folder"), "{error}");
    assert!(error.contains("1 earlier uploads were rolled back"), "{error}");
    assert_eq!(text("raced-manifest", "out/_manifest.json").unwrap(), "theirs");
    assert_eq!(MEMORY.keys("raced-manifest"), ["out/_manifest.json"]);
}

#[test]
fn what_another_run_has_written_since_is_not_rolled_back() {
    let (folder, bucket) = (at("overtaken", "out/"), "overtaken");
    write_folder(&outputs(Overwrite::Refuse), &folder, &["a", "b"]).unwrap();
    MEMORY.set(bucket, "out/a", "old a");
    let theirs = ["out/a", "out/c", "out/_manifest.json"];
    MEMORY.with(bucket, |bucket| bucket.overtaken = Some((theirs[2], theirs.to_vec())));
    let error = write_folder(&outputs(Overwrite::Replace), &folder, &["a", "b", "c", "d"]);
    let error = error.unwrap_err().to_string();
    assert!(error.contains("another run has written into this folder"), "{error}");
    assert!(error.contains("2 earlier uploads were rolled back"), "{error}");
    assert!(error.contains("2 of 4 uploads were left as they are"), "{error}");
    assert!(error.contains("such as to mem://overtaken/out/a"), "{error}");
    for key in theirs {
        assert_eq!(text(bucket, key).unwrap(), key);
    }
    assert_eq!(text(bucket, "out/b").unwrap(), "b");
    assert_eq!(MEMORY.keys(bucket), ["out/_manifest.json", "out/a", "out/b", "out/c"]);
}

#[test]
fn a_manifest_that_was_written_although_the_store_says_otherwise_is_rolled_back() {
    let (folder, bucket) = (at("unsure", "out/"), "unsure");
    write_folder(&outputs(Overwrite::Refuse), &folder, &["a"]).unwrap();
    let before = text(bucket, "out/_manifest.json");
    MEMORY.with(bucket, |bucket| bucket.unanswered = Some("out/_manifest.json".into()));
    let error = write_folder(&outputs(Overwrite::Replace), &folder, &["a", "b"]).unwrap_err();
    let error = error.to_string();
    assert!(error.contains("2 earlier uploads were rolled back"), "{error}");
    // The old one is there again, but the store does not say so.
    assert_eq!(text(bucket, "out/_manifest.json"), before);
    let [aside, manifest, a] = &MEMORY.keys(bucket)[..] else { panic!("{error}") };
    assert_eq!((&**manifest, &**a), ("out/_manifest.json", "out/a"));
    assert!(error.contains(&format!("copy mem://unsure/{aside} to it")), "{error}");
    assert_eq!(text(bucket, aside), before);
}

#[test]
fn an_object_is_replaced_only_in_the_state_that_it_was_read_in() {
    let path = at("updates", "a");
    let replace = |bytes: &str, before: Option<&str>| {
        let before = before.map(str::to_owned);
        replace_object(&path, bytes.as_bytes(), |now| now == before.as_ref().map(|b| b.as_bytes()))
    };
    assert!(!replace("1", Some("0")).unwrap());
    assert!(replace("1", None).unwrap());
    assert!(!replace("2", None).unwrap());
    assert!(replace("2", Some("1")).unwrap());
    // It changes after it has been compared.
    let raced = replace_object(&path, b"3", |_| {
        MEMORY.set("updates", "a", "theirs");
        true
    });
    assert!(!raced.unwrap());
    assert_eq!(text("updates", "a").unwrap(), "theirs");
}

#[test]
fn many_small_objects_are_put_together() {
    let outputs = outputs(Overwrite::Refuse);
    let folder = at("many-out", "p");
    outputs.folder(&folder).unwrap();
    let mut many = outputs.many(&folder).unwrap();
    for n in 0..300 {
        many.write(&format!("{}/{n}.jpg", n % 7), n.to_string().as_bytes(), 1).unwrap();
    }
    many.finish().unwrap();
    assert_eq!(publish(&outputs).unwrap().len(), 300);
    assert_eq!(MEMORY.keys("many-out").len(), 301);
    assert_eq!(text("many-out", "p/6/299.jpg"), None);
    assert_eq!(text("many-out", "p/5/299.jpg").unwrap(), "299");
}

#[test]
fn what_cannot_be_done_with_objects_is_refused() {
    let path = at("cannot", "a");
    let continued = outputs(Overwrite::Replace).extend(&path).unwrap_err().to_string();
    assert!(continued.contains("cannot be continued"), "{continued}");
    let growing = Arc::new(Outputs::new(Overwrite::Refuse, false, &[]).in_place(true));
    let growing = growing.create(&path).unwrap_err().to_string();
    assert!(growing.contains("recording"), "{growing}");
    let input = Arc::new(Outputs::new(Overwrite::Replace, false, std::slice::from_ref(&path)));
    let input = input.create(Path::new("memory://cannot/a")).unwrap_err().to_string();
    assert!(input.contains("also an input"), "{input}");
    let folder = outputs(Overwrite::Replace).create(&at("cannot", "b/")).unwrap_err().to_string();
    assert!(folder.contains("must be an object"), "{folder}");
}

#[test]
fn an_object_does_not_get_the_name_of_a_folder() {
    MEMORY.set("folder-name", "t/x", "x");
    for overwrite in [Overwrite::Refuse, Overwrite::Replace] {
        let refused = outputs(overwrite).create(&at("folder-name", "t")).unwrap_err().to_string();
        assert!(refused.contains("a folder of objects") && refused.contains("/t"), "{refused}");
    }
    outputs(Overwrite::Refuse).create(&at("folder-name", "t2")).unwrap();
}

#[test]
fn files_for_objects_that_a_killed_run_has_left_are_removed_after_a_day() {
    let hours = |hours: u64| SystemTime::now() - Duration::from_secs(hours * 3600);
    // No process has such a number. One in another container may.
    let [old, new] = [(7, hours(25)), (8, hours(23))].map(|(number, changed)| {
        let left = std::env::temp_dir().join(format!(".unnamed.4294967-7-{number}{TEMPORARY}"));
        fs::write(&left, "x").unwrap();
        File::options().write(true).open(&left).unwrap().set_modified(changed).unwrap();
        left
    });
    outputs(Overwrite::Refuse).folder(&at("left-over", "out/")).unwrap();
    assert!(!old.exists() && new.exists());
    fs::remove_file(new).unwrap();
}

#[test]
fn two_sinks_cannot_write_one_object() {
    let outputs = outputs(Overwrite::Refuse);
    let _first = outputs.create(&at("twice", "a")).unwrap();
    assert!(outputs.create(&at("twice", "a")).unwrap_err().to_string().contains("two sinks"));
}

/// Stages a file and a folder in `room`, and publishes them below `out`, as two processes would.
fn handed_on(room: &Path, out: &Path, overwrite: Overwrite) -> Result<Vec<PublishedFile>, Error> {
    let tables = out.join("tables/");
    let staging = Arc::new(StagingDir::new(room.to_owned(), &[out.join("a.bin"), tables.clone()]));
    let worker = Arc::new(Outputs::new(overwrite, true, &[]).staged(Arc::clone(&staging)));
    let mut file = worker.create(&out.join("a.bin"))?;
    file.write(b"events")?;
    file.finish(2)?;
    write_folder(&worker, &tables, &["A/x", "y"])?;
    let driver = Arc::new(Outputs::new(overwrite, false, &[]));
    driver.folder(&tables)?;
    for put in staging.put() {
        assert!(put.place.starts_with(room), "{:?}", put.place);
        if !put.file.path.ends_with(MANIFEST) {
            driver.adopt(put)?;
        }
    }
    publish(&driver)
}

#[test]
fn what_lies_in_a_room_of_objects_is_copied_to_where_it_is_to_be() {
    let wanted = [
        "a.bin",
        "room.sluice-tmp/a.bin",
        "room.sluice-tmp/tables/A/x",
        "room.sluice-tmp/tables/_manifest.json",
        "room.sluice-tmp/tables/y",
        "tables/A/x",
        "tables/_manifest.json",
        "tables/y",
    ];
    let out = Path::new("mem://staged");
    handed_on(&at("staged", "room.sluice-tmp"), out, Overwrite::Refuse).unwrap();
    assert_eq!(MEMORY.keys("staged"), wanted);
    assert_eq!(text("staged", "a.bin").unwrap(), "events");
    assert_eq!(text("staged", "tables/A/x").unwrap(), "A/x");
    let refused = handed_on(&at("staged", "other"), out, Overwrite::Refuse).unwrap_err();
    assert!(refused.to_string().contains("--overwrite"), "{refused}");
    MEMORY.set("staged", "a.bin", "old");
    handed_on(&at("staged", "later.sluice-tmp"), out, Overwrite::Replace).unwrap();
    assert_eq!(text("staged", "a.bin").unwrap(), "events");
}

#[test]
fn what_lies_in_a_room_of_another_bucket_is_carried() {
    handed_on(&at("carried-room", "x"), Path::new("mem://carried/out"), Overwrite::Refuse).unwrap();
    assert_eq!(text("carried", "out/a.bin").unwrap(), "events");
    assert_eq!(text("carried", "out/tables/y").unwrap(), "y");
}

#[test]
fn an_object_that_appeared_is_not_copied_over() {
    let (room, out) = (at("copied-over", "room"), at("copied-over", "a"));
    MEMORY.set("copied-over", "room", "staged");
    let driver = outputs(Overwrite::Refuse);
    let staged = |bytes| StagedFile {
        place: room.clone(),
        file: PublishedFile { path: out.clone(), rows: 1, bytes, blake3: None },
        is_index: false,
    };
    driver.adopt(staged(7)).unwrap_err();
    driver.adopt(staged(6)).unwrap();
    MEMORY.set("copied-over", "a", "theirs");
    let refused = publish(&driver).unwrap_err().to_string();
    assert!(refused.contains("has appeared"), "{refused}");
    assert_eq!(text("copied-over", "a").unwrap(), "theirs");
}

#[test]
fn rooms_of_runs_on_clusters_are_no_outputs() {
    let folder = at("rooms", "out/");
    for n in 0..1200 {
        MEMORY.set("rooms", &format!("out/.cluster.x.sluice-tmp/unit-000000/1/{n:06}"), "x");
    }
    outputs(Overwrite::Refuse).folder(&folder).unwrap();
    MEMORY.set("rooms", "out/tables/x", "x");
    outputs(Overwrite::Refuse).folder(&folder).unwrap_err();
}
