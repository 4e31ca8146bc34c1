//! Outputs that one process stages and another one publishes.

use std::os::unix::fs::symlink;

use super::*;
use crate::output::{faults::FaultInjector, faults::StepFault};
use crate::output::{staging::StagedFile, staging::StagingDir};

/// Writes every kind of output: files, one next to another, and folders.
fn write_all_kinds(outputs: &Arc<Outputs>, out: &Path, text: &[u8]) -> Result<(), Error> {
    let mut file = outputs.create(&out.join("a.bin"))?;
    file.write(text)?;
    file.finish(1)?;
    let mut beside = outputs.create_as_is(&out.join("a-00001.bin"))?;
    beside.write(b"beside")?;
    beside.finish(2)?;
    let tables = out.join("tables/");
    outputs.folder(&tables)?;
    let mut part = outputs.create_below(&tables)?;
    part.write(text)?;
    part.finish_as(&tables.join("channel=A/part"), 3)?;
    let mut many = outputs.many(&tables)?;
    many.write("img/1", b"one", 1)?;
    many.write("img/2", text, 1)?;
    many.finish()
}

fn targets(out: &Path) -> Vec<PathBuf> {
    vec![out.join("a.bin"), out.join("tables/")]
}

/// Has one process stage everything, and another one publish it.
fn handed_on(
    room: &Path,
    out: &Path,
    (overwrite, text): (Overwrite, &[u8]),
    faults: &Arc<FaultInjector>,
) -> Result<Vec<PublishedFile>, Error> {
    let staging = Arc::new(StagingDir::new(room.to_owned(), &targets(out)));
    let worker = Arc::new(Outputs::new(overwrite, true, &[]).staged(Arc::clone(&staging)));
    write_all_kinds(&worker, out, text)?;
    publish(&worker)?;
    publish_staged(&staging.put(), out, overwrite, faults)
}

fn publish_staged(
    put: &[StagedFile],
    out: &Path,
    overwrite: Overwrite,
    faults: &Arc<FaultInjector>,
) -> Result<Vec<PublishedFile>, Error> {
    let driver = Outputs::new(overwrite, false, &[]).with_faults(Arc::clone(faults));
    driver.folder(&out.join("tables/"))?;
    let is_manifest = |put: &&StagedFile| put.file.path.ends_with(MANIFEST);
    for put in put.iter().filter(|put| !is_manifest(put)) {
        driver.adopt(put.clone())?;
    }
    let text = put.iter().find(is_manifest).map(|put| fs::read_to_string(&put.place).unwrap());
    driver.publish(|_, _| Ok(text.clone().unwrap()))
}

fn directly(out: &Path, overwrite: Overwrite, text: &[u8]) -> Vec<PublishedFile> {
    let outputs = Arc::new(Outputs::new(overwrite, true, &[]));
    write_all_kinds(&outputs, out, text).unwrap();
    publish(&outputs).unwrap()
}

#[test]
fn what_is_handed_on_is_what_would_have_been_written_directly() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (folder.path().join("one"), folder.path().join("other"));
    let texts = [(Overwrite::Refuse, &b"first"[..]), (Overwrite::Replace, b"second")];
    for (n, (overwrite, text)) in texts.into_iter().enumerate() {
        let wanted = directly(&one, overwrite, text);
        let room = folder.path().join(format!("room-{n}"));
        let found = handed_on(&room, &other, (overwrite, text), &Arc::default()).unwrap();
        assert_eq!(below(&one), below(&other));
        let moved = |file: &PublishedFile| PublishedFile {
            path: other.join(file.path.strip_prefix(&one).unwrap()),
            ..file.clone()
        };
        assert_eq!(found, wanted.iter().map(moved).collect::<Vec<_>>());
    }
}

#[test]
fn nothing_appears_outside_of_the_room_before_it_is_handed_on() {
    let folder = tempfile::tempdir().unwrap();
    let (out, room) = (folder.path().join("out"), folder.path().join("room"));
    let staging = Arc::new(StagingDir::new(room.clone(), &targets(&out)));
    let worker = Arc::new(Outputs::new(Overwrite::Refuse, true, &[]).staged(Arc::clone(&staging)));
    write_all_kinds(&worker, &out, b"text").unwrap();
    let published = publish(&worker).unwrap();
    assert!(!out.exists());
    let put = staging.put();
    assert_eq!(put.len(), published.len() + 1);
    for StagedFile { place, file, .. } in put {
        assert!(place.starts_with(&room) && file.path.starts_with(&out), "{place:?}");
        assert_eq!(fs::metadata(&place).unwrap().len(), file.bytes);
        assert_eq!(
            staging.target(&place),
            Some(real_path(&out).join(file.path.strip_prefix(&out).unwrap()))
        );
    }
}

#[test]
fn places_are_apart_and_lead_back_whatever_targets_look_like() {
    let folder = tempfile::tempdir().unwrap();
    let (root, room) = (folder.path().canonicalize().unwrap(), PathBuf::from("/room"));
    fs::create_dir_all(root.join("deep/er")).unwrap();
    symlink(root.join("deep"), root.join("link")).unwrap();
    let at = |path: &str| root.join(path);
    let targets = [at("a.log"), at("deep/b/"), at("deep/er/../c.log"), at("link/er/d.log")];
    let staging = StagingDir::new(room.clone(), &targets);
    let names = [
        ("a.log", "a.log"),
        ("a-00001.log", "a-00001.log"),
        ("deep/b/x/y", "deep/b/x/y"),
        ("deep/er/../c.log", "deep/c.log"),
        ("deep/c_laser0.log", "deep/c_laser0.log"),
        ("link/er/d.log", "deep/er/d.log"),
        ("link/er/beside.log", "deep/er/beside.log"),
        ("./deep/./er/d2", "deep/er/d2"),
    ];
    let mut seen = BTreeSet::new();
    for (target, really) in names {
        let place = staging.place(&at(target)).unwrap();
        assert!(place.starts_with(&room) && seen.insert(place.clone()), "{place:?}");
        assert_eq!(staging.target(&place), Some(at(really)), "{target}");
    }
    for outside in ["../x.log", "../../etc/passwd"] {
        let refused = staging.place(&at(outside)).unwrap_err().to_string();
        assert!(refused.contains("outside the folders of its outputs"), "{refused}");
    }
    assert_eq!(staging.folder(&at("deep/b")).unwrap(), staging.folder(&at("deep/b/")).unwrap());
    assert_eq!(staging.target(Path::new("/elsewhere/x")), None);
}

#[test]
fn relative_targets_are_those_of_the_current_folder() {
    let here = std::env::current_dir().unwrap();
    let staging = StagingDir::new("/room".into(), &["out-of-a-test/a.log".into(), "b.log".into()]);
    for name in ["out-of-a-test/a.log", "./b.log", "out-of-a-test/../b-2.log"] {
        let (relative, whole) = (staging.place(Path::new(name)), staging.place(&here.join(name)));
        assert_eq!(relative.unwrap(), whole.unwrap());
    }
}

#[test]
fn a_file_beside_no_target_is_an_error_before_it_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let (out, room) = (folder.path().join("out/a.bin"), folder.path().join("room"));
    let staging = Arc::new(StagingDir::new(room, &[out]));
    let worker = Arc::new(Outputs::new(Overwrite::Refuse, true, &[]).staged(staging));
    let elsewhere = folder.path().join("elsewhere");
    let refused = worker.create(&elsewhere.join("b.bin")).unwrap_err().to_string();
    assert!(refused.contains("outside the folders of its outputs"), "{refused}");
    worker.folder(&elsewhere).unwrap_err();
    worker.many(&elsewhere).unwrap_err();
    worker.create_below(&elsewhere).unwrap_err();
    assert!(!elsewhere.exists());
}

#[test]
fn existing_targets_are_checked_as_usual() {
    let folder = tempfile::tempdir().unwrap();
    let (out, room) = (folder.path().join("out"), folder.path().join("room"));
    directly(&out, Overwrite::Refuse, b"before");
    let refused = handed_on(&room, &out, (Overwrite::Refuse, b"x"), &Arc::default()).unwrap_err();
    assert!(refused.to_string().contains("--overwrite"), "{refused}");
    let staging = Arc::new(StagingDir::new(room, &targets(&out)));
    let inputs = [out.join("a.bin")];
    let worker = Arc::new(Outputs::new(Overwrite::Replace, true, &inputs).staged(staging));
    let refused = worker.create(&inputs[0]).unwrap_err().to_string();
    assert!(refused.contains("also an input"), "{refused}");
    let refused = worker.extend(&out.join("a-00001.bin")).unwrap_err().to_string();
    assert!(refused.contains("continue an output"), "{refused}");
    worker.extend(&out.join("new.bin")).unwrap();
}

#[test]
fn a_link_stays_and_what_it_leads_to_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let (out, elsewhere) = (folder.path().join("out"), folder.path().join("elsewhere"));
    fs::create_dir_all(&out).unwrap();
    fs::write(&elsewhere, "old").unwrap();
    symlink(&elsewhere, out.join("a.bin")).unwrap();
    let room = folder.path().join("room");
    handed_on(&room, &out, (Overwrite::Replace, b"new"), &Arc::default()).unwrap();
    assert!(out.join("a.bin").is_symlink());
    assert_eq!(fs::read(&elsewhere).unwrap(), b"new");
}

#[test]
fn a_file_that_is_not_as_it_was_said_to_be_is_not_adopted() {
    let folder = tempfile::tempdir().unwrap();
    let (place, path) = (folder.path().join("place"), folder.path().join("out/a"));
    let file = PublishedFile { path, rows: 1, bytes: 3, blake3: None };
    let said = StagedFile { place: place.clone(), file, is_index: false };
    let driver = Outputs::new(Overwrite::Refuse, false, &[]);
    driver.adopt(said.clone()).unwrap_err();
    fs::write(&place, "ab").unwrap();
    let refused = driver.adopt(said.clone()).unwrap_err().to_string();
    assert!(refused.contains("3 bytes"), "{refused}");
    fs::write(&place, "abc").unwrap();
    driver.adopt(said.clone()).unwrap();
    driver.adopt(said).unwrap_err();
    drop(driver);
    assert!(!place.exists() && !folder.path().join("out").exists());
}

#[test]
fn a_file_of_another_file_system_is_copied() {
    let Ok(other) = tempfile::tempdir_in("/dev/shm") else { return };
    let folder = tempfile::tempdir().unwrap();
    let (place, path) = (other.path().join("place"), folder.path().join("a"));
    fs::write(&place, "abc").unwrap();
    let driver = Outputs::new(Overwrite::Refuse, false, &[]);
    let file = PublishedFile { path: path.clone(), rows: 1, bytes: 3, blake3: None };
    driver.adopt(StagedFile { place, file, is_index: false }).unwrap();
    publish(&driver).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"abc");
    assert_eq!(names(folder.path()), ["a"]);
}

#[test]
fn a_failure_while_adopting_or_publishing_leaves_everything_as_it_was() {
    let counted = Arc::new(FaultInjector::none());
    let before = |folder: &Path| directly(&folder.join("out"), Overwrite::Refuse, b"before");
    let folder = tempfile::tempdir().unwrap();
    before(folder.path());
    let (room, out) = (folder.path().join("room"), folder.path().join("out"));
    handed_on(&room, &out, (Overwrite::Replace, b"after"), &counted).unwrap();
    assert!(counted.steps() > 5, "{}", counted.steps());
    for step in 0..counted.steps() {
        let folder = tempfile::tempdir().unwrap();
        before(folder.path());
        let (room, out) = (folder.path().join("room"), folder.path().join("out"));
        let was = below(&out);
        let faults = Arc::new(FaultInjector::since(step, StepFault::Full));
        handed_on(&room, &out, (Overwrite::Replace, b"after"), &faults).unwrap_err();
        assert_eq!(below(&out), was, "step {step}, {:?}", faults.failed_step());
    }
}
