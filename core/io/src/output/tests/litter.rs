//! What killed runs leave: removed, unless it is in use.

use super::*;

#[test]
fn what_a_killed_run_left_is_removed_and_what_a_running_one_uses_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("out.bin");
    // No system has that many processes.
    fs::write(folder.path().join(".out.bin.4294967295-0.sluice-tmp"), b"stale").unwrap();
    let running = outputs(Overwrite::Refuse).create(&target).unwrap();
    write(&outputs(Overwrite::Refuse), &target, b"abc");
    assert_eq!(names(folder.path()).len(), 1, "{:?}", names(folder.path()));
    drop(running);
}

#[test]
fn what_a_killed_run_left_is_removed_also_where_it_had_this_ones_number() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("sub")).unwrap();
    let own = std::process::id();
    for name in [
        "sub/.part.bin.4294967295-1",
        "sub/._manifest.json.4294967295-7-1",
        ".out.bin.4294967295-7",
    ] {
        fs::write(folder.path().join(format!("{name}{TEMPORARY}")), "").unwrap();
    }
    for number in 0..50 {
        // The names of older programs, and of a process that started at another time.
        for name in [format!("{own}-{number}"), format!("{own}-1-{number}")] {
            let name = format!(".out.bin.{name}{TEMPORARY}");
            fs::write(folder.path().join(name), "stale").unwrap();
        }
    }
    let running = outputs(Overwrite::Refuse).create(&folder.path().join("out.bin")).unwrap();
    sweep([folder.path()]);
    // The folder that held nothing else is gone, too.
    assert_eq!(names(folder.path()).len(), 1, "{:?}", names(folder.path()));
    drop(running);
}

#[test]
fn a_manifest_that_is_being_written_stays() {
    let folder = tempfile::tempdir().unwrap();
    let (path, done) = (folder.path().join(MANIFEST), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                remove_unfinished(folder.path(), |name| name == MANIFEST);
            }
        });
        let written: Vec<_> = (0..1000).map(|_| replace_file(&path, b"{}")).collect();
        done.store(true, Ordering::Relaxed);
        assert!(written.iter().all(Result::is_ok));
    });
    assert_eq!(names(folder.path()), [MANIFEST]);
}

#[test]
fn a_pipe_with_the_name_of_litter_stays_and_is_not_opened() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join(format!(".out.bin.4294967295-0{TEMPORARY}"));
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    write(&outputs(Overwrite::Refuse), &folder.path().join("out.bin"), b"abc");
    assert!(pipe.exists());
}

#[test]
fn a_room_of_a_killed_run_is_removed_and_one_in_use_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let stale = folder.path().join(".many.4294967295-0.sluice-tmp");
    fs::create_dir_all(stale.join("sub")).unwrap();
    fs::write(stale.join("sub/a"), "stale").unwrap();
    let running = outputs(Overwrite::Refuse);
    let _many = running.many(folder.path()).unwrap();
    outputs(Overwrite::Refuse).folder(folder.path()).unwrap();
    assert_eq!(names(folder.path()).len(), 1, "{:?}", names(folder.path()));
    assert!(!stale.exists());
}
