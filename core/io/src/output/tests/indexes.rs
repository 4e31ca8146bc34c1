//! Files that name others: never those of another run.

use super::*;
use crate::output::faults::{FaultInjector, StepFault};
use crate::output::staging::StagingDir;
use crate::output::temporary_names::short;
use crate::store::memory::MEMORY;

/// Writes an output of these parts and an index that names them. All have the text in them. The
/// index is completed first, so that its place follows from what it is.
fn write_parts(
    outputs: &Arc<Outputs>,
    folder: &Path,
    (parts, text): (&[&str], &str),
) -> Result<(), Error> {
    let mut index = outputs.create_index(&folder.join("index"))?;
    index.write(format!("{text} {}", parts.join(" ")).as_bytes())?;
    index.finish(1)?;
    for part in parts {
        let mut file = outputs.create(&folder.join(part))?;
        file.write(text.as_bytes())?;
        file.finish(1)?;
    }
    Ok(())
}

/// Checks that the index, if there is one, is whole and names files of its own run.
fn check(folder: &Path) -> Option<String> {
    let index = crate::files::read_if_exists(&folder.join("index")).unwrap()?;
    let index = String::from_utf8(index).unwrap();
    let mut words = index.split(' ');
    let text = words.next().unwrap();
    for part in words {
        let found = crate::files::read(&folder.join(part)).unwrap();
        assert_eq!(String::from_utf8(found).unwrap(), text, "{part} of {index}");
    }
    Some(text.to_owned())
}

/// Outputs that call `observer` before each step.
fn observed(overwrite: Overwrite, observer: impl Fn(u64) + Send + Sync + 'static) -> Arc<Outputs> {
    let faults = Arc::new(FaultInjector::observed(observer));
    Arc::new(Outputs::new(overwrite, true, &[]).with_faults(faults))
}

const OLD: (&[&str], &str) = (&["a", "b", "c"], "old");
const NEW: (&[&str], &str) = (&["a", "c", "d"], "new");

#[test]
fn an_index_never_names_the_files_of_another_run_however_far_a_run_has_come() {
    for overwrite in [Overwrite::Replace, Overwrite::Redo] {
        let folder = tempfile::tempdir().unwrap();
        for written in [OLD, NEW, OLD] {
            let path = folder.path().to_owned();
            let outputs = observed(overwrite, move |_| drop(check(&path)));
            write_parts(&outputs, folder.path(), written).unwrap();
            publish(&outputs).unwrap();
            assert_eq!(check(folder.path()).as_deref(), Some(written.1));
        }
        assert_eq!(names(folder.path()), ["a", "b", "c", "d", "index"]);
    }
}

#[test]
fn an_object_that_is_an_index_never_names_those_of_another_run() {
    let folder = PathBuf::from("mem://indexes/x/");
    for written in [OLD, NEW, OLD] {
        let outputs = observed(Overwrite::Replace, |_| drop(check(Path::new("mem://indexes/x/"))));
        write_parts(&outputs, &folder, written).unwrap();
        publish(&outputs).unwrap();
        assert_eq!(check(&folder).as_deref(), Some(written.1));
    }
    assert_eq!(MEMORY.keys("indexes"), ["x/a", "x/b", "x/c", "x/d", "x/index"]);
    let asked = MEMORY.with("indexes", |bucket| bucket.asked.clone());
    let last_put = asked.iter().rfind(|asked| asked.starts_with("put ")).unwrap();
    assert_eq!(last_put, "put x/index");
}

#[test]
fn an_index_that_another_program_has_put_meanwhile_stays_with_its_objects() {
    let bucket = "indexes-overtaken";
    let folder = PathBuf::from(format!("mem://{bucket}/x/"));
    let first = outputs(Overwrite::Replace);
    write_parts(&first, &folder, OLD).unwrap();
    publish(&first).unwrap();
    let theirs = vec!["x/a", "x/b", "x/index"];
    MEMORY.with(bucket, |bucket| bucket.overtaken = Some(("x/index", theirs.clone())));
    let second = outputs(Overwrite::Replace);
    write_parts(&second, &folder, NEW).unwrap();
    let error = publish(&second).unwrap_err().to_string();
    assert!(error.contains("has appeared"), "{error}");
    for key in theirs {
        assert_eq!(MEMORY.bytes(bucket, key).unwrap(), key);
    }
}

#[test]
fn an_index_that_is_there_although_its_upload_failed_is_removed_with_its_objects() {
    let bucket = "indexes-unanswered";
    let folder = PathBuf::from(format!("mem://{bucket}/x/"));
    for before in [None, Some(OLD)] {
        if let Some(before) = before {
            let first = outputs(Overwrite::Replace);
            write_parts(&first, &folder, before).unwrap();
            publish(&first).unwrap();
        }
        MEMORY.with(bucket, |bucket| bucket.unanswered = Some("x/index".into()));
        let second = outputs(Overwrite::Replace);
        write_parts(&second, &folder, NEW).unwrap();
        publish(&second).unwrap_err();
        MEMORY.with(bucket, |bucket| bucket.unanswered = None);
        assert_eq!(check(&folder).as_deref(), before.map(|(_, text)| text));
        let expected = before.map_or(Vec::new(), |_| vec!["x/a", "x/b", "x/c", "x/index"]);
        let mut keys = MEMORY.keys(bucket);
        // The store has not confirmed either that the old index is there again, so its copy stays.
        keys.retain(|key| !key.ends_with(TEMPORARY));
        assert_eq!(keys, expected);
    }
}

#[test]
fn an_index_that_is_handed_on_and_is_there_although_that_failed_is_removed_with_its_objects() {
    let bucket = "indexes-handed-on";
    let folder = PathBuf::from(format!("mem://{bucket}/x/"));
    let first = outputs(Overwrite::Replace);
    write_parts(&first, &folder, OLD).unwrap();
    publish(&first).unwrap();
    let room = PathBuf::from(format!("mem://{bucket}/room"));
    let staging = Arc::new(StagingDir::new(room, &[folder.join("index")]));
    let worker = Outputs::new(Overwrite::Replace, true, &[]).staged(Arc::clone(&staging));
    let worker = Arc::new(worker);
    write_parts(&worker, &folder, NEW).unwrap();
    publish(&worker).unwrap();
    MEMORY.with(bucket, |bucket| bucket.unanswered = Some("x/index".into()));
    let driver = outputs(Overwrite::Replace);
    staging.put().into_iter().for_each(|put| driver.adopt(put).unwrap());
    publish(&driver).unwrap_err();
    MEMORY.with(bucket, |bucket| bucket.unanswered = None);
    assert_eq!(check(&folder).as_deref(), Some("old"));
    let mut keys = MEMORY.keys(bucket);
    keys.retain(|key| key.starts_with("x/") && !key.ends_with(TEMPORARY));
    assert_eq!(keys, ["x/a", "x/b", "x/c", "x/index"]);
}

#[test]
fn an_index_that_is_handed_on_never_names_the_files_of_another_run() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    for (number, written) in [OLD, NEW].into_iter().enumerate() {
        let room = folder.path().join(format!("room-{number}"));
        let staging = Arc::new(StagingDir::new(room, &[out.join("index")]));
        let worker = Outputs::new(Overwrite::Replace, true, &[]).staged(Arc::clone(&staging));
        let worker = Arc::new(worker);
        write_parts(&worker, &out, written).unwrap();
        publish(&worker).unwrap();
        let path = out.clone();
        let driver = observed(Overwrite::Replace, move |_| drop(check(&path)));
        for put in staging.put() {
            driver.adopt(put).unwrap();
        }
        publish(&driver).unwrap();
        assert_eq!(check(&out).as_deref(), Some(written.1));
    }
}

#[test]
fn two_runs_that_write_one_index_at_once_leave_the_output_of_one() {
    let count = {
        let folder = tempfile::tempdir().unwrap();
        let faults = Arc::new(FaultInjector::none());
        let outputs = Outputs::new(Overwrite::Replace, true, &[]).with_faults(Arc::clone(&faults));
        let outputs = Arc::new(outputs);
        write_parts(&outputs, folder.path(), OLD).unwrap();
        publish(&outputs).unwrap();
        faults.steps()
    };
    for overwrite in [Overwrite::Refuse, Overwrite::Replace] {
        for step in 0..count {
            let folder = tempfile::tempdir().unwrap();
            if overwrite == Overwrite::Replace {
                let outputs = outputs(overwrite);
                write_parts(&outputs, folder.path(), OLD).unwrap();
                publish(&outputs).unwrap();
            }
            let path = folder.path().to_owned();
            let outputs = observed(overwrite, move |number| {
                if number == step {
                    let other = outputs(overwrite);
                    let written = write_parts(&other, &path, (&["a", "b"], "other"));
                    drop(written.and_then(|()| publish(&other)));
                }
            });
            let written = write_parts(&outputs, folder.path(), NEW);
            let published = written.and_then(|()| publish(&outputs));
            drop(outputs);
            let found = check(folder.path());
            if let Err(error) = &published {
                assert_eq!(found.as_deref(), Some("other"), "{step}: {error}");
            }
            assert!(found.is_some(), "{step}");
            let is_litter = |name: &String| name.ends_with(TEMPORARY);
            assert!(!names(folder.path()).iter().any(is_litter), "{step}");
        }
    }
}

#[test]
fn a_run_that_fails_leaves_what_another_has_published_meanwhile() {
    for before in [None, Some(OLD)] {
        for step in 0..60 {
            let folder = tempfile::tempdir().unwrap();
            if let Some(before) = before {
                let first = outputs(Overwrite::Replace);
                write_parts(&first, folder.path(), before).unwrap();
                publish(&first).unwrap();
            }
            // Runs of batches are not refused for each other.
            let shared = [folder.path().canonicalize().unwrap()];
            let in_batch = move |outputs: Outputs| Arc::new(outputs.in_shared_folders(&shared));
            let (path, other) = (folder.path().to_owned(), in_batch.clone());
            let faults = Arc::new(FaultInjector::observed(move |number| {
                if number == step {
                    let other = other(Outputs::new(Overwrite::Replace, true, &[]));
                    let written = write_parts(&other, &path, (&["a", "c"], "other"));
                    written.and_then(|()| publish(&other)).unwrap();
                }
            }));
            let outputs = Outputs::new(Overwrite::Replace, true, &[]).with_faults(faults);
            let outputs = in_batch(outputs);
            let written = write_parts(&outputs, folder.path(), NEW);
            let published = written.and_then(|()| publish(&outputs));
            drop(outputs);
            let found = check(folder.path());
            if let Err(error) = published {
                assert_eq!(found.as_deref(), Some("other"), "{step}: {error}");
                assert!(error.to_string().contains("run again with --overwrite"), "{error}");
            }
        }
    }
}

#[test]
fn an_index_that_a_killed_run_has_taken_away_behind_a_link_is_written_there() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let staging = Arc::new(StagingDir::new(folder.path().join("room"), &[out.join("index")]));
    let worker = Outputs::new(Overwrite::Redo, true, &[]).staged(Arc::clone(&staging));
    let worker = Arc::new(worker);
    write_parts(&worker, &out, NEW).unwrap();
    publish(&worker).unwrap();
    fs::create_dir_all(folder.path().join("real")).unwrap();
    fs::create_dir_all(&out).unwrap();
    std::os::unix::fs::symlink("../real/i", out.join("index")).unwrap();
    fs::write(folder.path().join("real/.i.4999999-1-7.sluice-tmp"), "old").unwrap();
    // Only an index is ever taken away.
    assert!(outputs(Overwrite::Redo).create(&out.join("index")).is_err());
    assert!(outputs(Overwrite::Redo).create_index(&out.join("index")).is_ok());
    let driver = outputs(Overwrite::Redo);
    staging.put().into_iter().for_each(|put| driver.adopt(put).unwrap());
    publish(&driver).unwrap();
    assert!(out.join("index").is_symlink());
    assert_eq!(check(&out).as_deref(), Some("new"));
    assert_eq!(names(&folder.path().join("real")), ["i"]);
}

#[test]
fn what_no_run_uses_does_not_keep_an_index_from_being_written() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let folder = tempfile::tempdir().unwrap();
    let litter = |number| folder.path().join(format!(".index.4999999-1-{number}{TEMPORARY}"));
    fs::write(litter(1), "").unwrap();
    fs::set_permissions(litter(1), fs::Permissions::from_mode(0o000)).unwrap();
    symlink("/nowhere", litter(2)).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(litter(3)).status().unwrap().success());
    fs::create_dir(litter(4)).unwrap();
    assert!(outputs(Overwrite::Refuse).create_index(&folder.path().join("index")).is_ok());
    // One that is locked may belong to a run on another machine.
    let locked = fs::File::create(litter(5)).unwrap();
    locked.try_lock().unwrap();
    let refused = outputs(Overwrite::Refuse).create_index(&folder.path().join("index"));
    let error = refused.map(drop).unwrap_err().to_string();
    assert!(error.contains(&format!("remove {}", litter(5).display())), "{error}");
}

#[test]
fn an_index_is_told_from_others_whose_long_names_begin_as_its_own() {
    let folder = tempfile::tempdir().unwrap();
    for len in [43, 48, 60] {
        let index = folder.path().join("m".repeat(len));
        for ending in ["", ".zst", "m", "n"] {
            let name = format!("{}{ending}", index.file_name().unwrap().to_str().unwrap());
            let other = outputs(Overwrite::Refuse);
            let _file = other.create(&folder.path().join(&name)).unwrap();
            let refused = outputs(Overwrite::Refuse).create_index(&index).map(drop);
            assert_eq!(refused.is_err(), ending.is_empty(), "{name}");
            let mut left = names(folder.path());
            assert_eq!(left.len(), 1);
            let left = left.remove(0).replace(&std::process::id().to_string(), "4999999");
            fs::write(folder.path().join(&left), "").unwrap();
            let abandoned = outputs(Overwrite::Refuse).abandoned_indexes(&index);
            assert_eq!(!abandoned.is_empty(), ending.is_empty(), "{name}");
            fs::remove_file(folder.path().join(&left)).unwrap();
        }
    }
}

#[test]
fn an_index_that_a_killed_run_has_taken_away_stays_until_it_is_written_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    let first = outputs(Overwrite::Refuse);
    write_parts(&first, folder.path(), OLD).unwrap();
    publish(&first).unwrap();
    // What is there after each step, as if it had been killed then.
    let own = std::process::id().to_string();
    let observer = move |_| {
        if !path.join("index").exists() {
            let killed = tempfile::tempdir().unwrap();
            for (name, bytes) in below(&path) {
                fs::write(killed.path().join(name.replace(&own, "4999999")), bytes).unwrap();
            }
            sweep([killed.path(), &killed.path().join("other")]);
            let next = outputs(Overwrite::Redo);
            next.folder(killed.path()).unwrap();
            let left = next.abandoned_indexes(&killed.path().join("index"));
            let left: Vec<_> = left.iter().map(|path| fs::read(path).unwrap()).collect();
            assert!(left.contains(&b"old a b c".to_vec()));
            write_parts(&next, killed.path(), NEW).unwrap();
            publish(&next).unwrap();
            assert!(!names(killed.path()).iter().any(|name| name.ends_with(TEMPORARY)));
        }
    };
    let second = observed(Overwrite::Replace, observer);
    write_parts(&second, folder.path(), NEW).unwrap();
    publish(&second).unwrap();
}

#[test]
fn an_index_may_have_a_name_that_this_program_has_reserved() {
    let folder = tempfile::tempdir().unwrap();
    let reserved = ReservedName::reserve(&folder.path().join("index")).unwrap();
    let outputs = outputs(Overwrite::Refuse);
    write_parts(&outputs, folder.path(), NEW).unwrap();
    publish(&outputs).unwrap();
    drop(reserved);
    assert_eq!(names(folder.path()), ["a", "c", "d", "index"]);
}

#[test]
fn a_failure_at_any_step_leaves_the_index_and_its_files() {
    for since in [false, true] {
        for step in 0.. {
            let folder = tempfile::tempdir().unwrap();
            let first = outputs(Overwrite::Refuse);
            write_parts(&first, folder.path(), OLD).unwrap();
            publish(&first).unwrap();
            let fails = if since { FaultInjector::since } else { FaultInjector::at };
            let faults = Arc::new(fails(step, StepFault::Full));
            let outputs = Outputs::new(Overwrite::Replace, true, &[]).with_faults(faults.clone());
            let outputs = Arc::new(outputs);
            let written = write_parts(&outputs, folder.path(), NEW);
            let published = written.and_then(|()| publish(&outputs));
            drop(outputs);
            if faults.failed_step().is_none() {
                published.unwrap();
                break;
            }
            published.unwrap_err();
            assert_eq!(check(folder.path()).as_deref(), Some("old"), "{step}");
            assert_eq!(names(folder.path()), ["a", "b", "c", "index"], "{step}");
        }
    }
}

#[test]
fn an_index_that_another_has_replaced_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let indexes = ["index".to_owned(), "m".repeat(60)];
    let others = ["i".to_owned(), "m".repeat(59)];
    for index in &indexes {
        let name = format!(".{}.4999999-1-index7{TEMPORARY}", short(index));
        fs::write(folder.path().join(name), "").unwrap();
    }
    for other in &others {
        fs::write(folder.path().join(other), "").unwrap();
    }
    sweep([folder.path()]);
    assert_eq!(names(folder.path()).len(), 4);
    for index in &indexes {
        fs::write(folder.path().join(index), "").unwrap();
    }
    sweep([folder.path()]);
    let mut all = [indexes, others].concat();
    all.sort();
    assert_eq!(names(folder.path()), all);
}
