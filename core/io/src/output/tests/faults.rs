//! Outputs that fail at any step.

use super::*;
use crate::output::{faults::FaultInjector, faults::StepFault};

/// Performs every operation of outputs once, writing `text`.
fn write_everything(outputs: &Arc<Outputs>, folder: &Path, text: &str) -> Result<(), Error> {
    let out = folder.join("out");
    outputs.folder(&out)?;
    let mut file = outputs.create(&out.join("plain"))?;
    file.write(b"head")?;
    file.write(text.as_bytes())?;
    file.replace_head(4, b"a longer head")?;
    file.finish(1)?;
    let mut deep = outputs.create(&out.join("a/b/deep"))?;
    deep.write(text.as_bytes())?;
    deep.finish(1)?;
    let mut packed = outputs.create(&folder.join("packed.zst"))?;
    packed.write(text.as_bytes())?;
    packed.flush()?;
    packed.write(text.as_bytes())?;
    packed.finish(1)?;
    let mut named = outputs.create_below(&out)?;
    named.write(text.as_bytes())?;
    named.finish_as(&out.join("named"), 1)?;
    let mut many = outputs.many(&out)?;
    many.write(&format!("only-{text}"), text.as_bytes(), 1)?;
    many.write("sub/a", text.as_bytes(), 1)?;
    many.write(&format!("in-the-way-{}/b", text.len() % 2), text.as_bytes(), 1)?;
    many.write(&format!("in-the-way-{}", 1 - text.len() % 2), text.as_bytes(), 1)?;
    many.finish()?;
    let mut longer = outputs.extend(&folder.join("continued"))?;
    longer.write(text.as_bytes())?;
    longer.finish(1)
}

fn run(folder: &Path, text: &str, faults: &Arc<FaultInjector>) -> Result<(), Error> {
    let outputs = Outputs::new(Overwrite::Replace, true, &[]).with_faults(Arc::clone(faults));
    let outputs = Arc::new(outputs);
    write_everything(&outputs, folder, text)?;
    let published = outputs.publish(|folder, files| {
        let below = files.iter().filter_map(|file| file.path.strip_prefix(folder).ok());
        let files = below.map(|path| serde_json::json!({ "path": path.display().to_string() }));
        Ok(serde_json::json!({ "files": files.collect::<Vec<_>>() }).to_string())
    });
    published.map(drop)
}

/// Writes `before`, then makes every step of writing `text` fail in turn, as `fails` says: alone,
/// or with all steps after it.
fn fail_at_every_step(before: &[&str], text: &str, fails: fn(u64, StepFault) -> FaultInjector) {
    let written = || {
        let folder = tempfile::tempdir().unwrap();
        before.iter().for_each(|text| run(folder.path(), text, &Arc::default()).unwrap());
        folder
    };
    let (folder, counted) = (written(), Arc::new(FaultInjector::none()));
    run(folder.path(), text, &counted).unwrap();
    assert!(counted.steps() > 20, "{}", counted.steps());
    for step in 0..counted.steps() {
        let (folder, faults) = (written(), Arc::new(fails(step, StepFault::Short)));
        let there = below(folder.path());
        let error = run(folder.path(), text, &faults).unwrap_err().to_string();
        let failed_step = faults.failed_step().unwrap();
        assert!(
            error.contains(&*folder.path().to_string_lossy()),
            "{step} {failed_step:?}: {error}"
        );
        assert_eq!(below(folder.path()), there, "{step} {failed_step:?}: {error}");
        run(folder.path(), text, &Arc::default()).unwrap();
    }
}

#[test]
fn a_failure_at_any_step_leaves_nothing_where_nothing_was() {
    fail_at_every_step(&[], "one", FaultInjector::at);
}

#[test]
fn a_failure_at_any_step_leaves_all_that_was_to_be_replaced() {
    fail_at_every_step(&["one"], "two!", FaultInjector::at);
}

#[test]
fn a_disk_that_stays_full_leaves_what_was_there() {
    fail_at_every_step(&[], "one", FaultInjector::since);
    fail_at_every_step(&["one"], "two!", FaultInjector::since);
}

#[test]
fn folders_that_are_made_before_one_cannot_be_do_not_stay() {
    let folder = tempfile::tempdir().unwrap();
    let outputs = Arc::new(Outputs::new(Overwrite::Refuse, false, &[]));
    let target = folder.path().join("new").join("x".repeat(300)).join("out");
    outputs.create(&target).unwrap_err();
    drop(outputs);
    assert!(!folder.path().join("new").exists());
}

#[test]
fn an_output_that_lacks_what_could_not_be_written_is_not_completed() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, faults| {
        let outputs = Outputs::new(Overwrite::Refuse, false, &[]).with_faults(Arc::new(faults));
        let outputs = Arc::new(outputs);
        let mut file = outputs.create(&folder.path().join(name)).unwrap();
        let failed = file.write(b"some").and_then(|()| file.flush());
        assert!(failed.is_err(), "{name}");
        drop(file.write(b"more"));
        file.finish(1).unwrap_err().to_string()
    };
    // Step 0 creates the file.
    for name in ["plain", "packed.zst"] {
        let error = write(name, FaultInjector::at(1, StepFault::Short));
        assert!(error.contains("cannot complete") && error.contains(name), "{error}");
    }
    let outputs = Outputs::new(Overwrite::Refuse, false, &[]);
    let outputs = Arc::new(outputs.with_faults(Arc::new(FaultInjector::at(2, StepFault::Broken))));
    let mut many = outputs.many(&folder.path().join("many")).unwrap();
    many.write("a", b"1", 1).unwrap_err();
    many.write("b", b"1", 1).unwrap();
    assert!(many.finish().unwrap_err().to_string().contains("cannot complete"));
}

#[test]
fn a_compressed_file_that_grows_keeps_what_it_had_and_the_frames_before_a_full_disk() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log.zst");
    let outputs = |faults: FaultInjector| {
        let outputs = Outputs::new(Overwrite::Refuse, true, &[]).in_place(true);
        Arc::new(outputs.with_faults(Arc::new(faults)))
    };
    let first = outputs(FaultInjector::none());
    let mut file = first.create(&path).unwrap();
    file.write(b"one ").unwrap();
    file.finish(1).unwrap();
    publish(&first).unwrap();
    // The steps: opening, and one frame each.
    for (fails, left, rows) in [(1, "one ", 1), (2, "one two ", 2), (3, "one two three ", 3)] {
        let before = fs::read(&path).unwrap();
        let second = outputs(FaultInjector::at(fails, StepFault::Short));
        let mut file = second.extend(&path).unwrap();
        file.set_rows(1, 1);
        for (number, text) in [(2, "two "), (3, "three "), (4, "four ")] {
            let written = file.write(text.as_bytes());
            assert_eq!(written.is_ok(), number - 1 <= fails, "{fails}: {number}");
            if written.is_ok() {
                file.set_rows(number, number);
                assert_eq!(file.flush().is_ok(), number - 1 < fails, "{fails}: {number}");
            }
        }
        assert!(file.finish(4).is_err());
        let published = publish(&second).unwrap();
        let mut text = [0; 30];
        let read = crate::files::LogFile::open(&path).unwrap().read_at(0, &mut text).unwrap();
        assert_eq!(std::str::from_utf8(&text[..read]).unwrap(), left);
        let listed = published.iter().map(|file| file.rows).collect::<Vec<_>>();
        assert_eq!(listed, if fails == 1 { vec![] } else { vec![rows] });
        fs::write(&path, before).unwrap();
    }
}

#[test]
fn what_is_appended_after_a_mark_is_taken_back() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["log", "log.zst"] {
        let path = folder.path().join(name);
        let outputs = Arc::new(Outputs::new(Overwrite::Refuse, true, &[]).in_place(true));
        let mut file = outputs.create(&path).unwrap();
        file.write(b"one ").unwrap();
        let mark = file.mark().unwrap().unwrap();
        file.write(b"two ").unwrap();
        file.flush().unwrap();
        file.write(b"three ").unwrap();
        file.roll_back(mark);
        file.write(b"four ").unwrap();
        file.finish(2).unwrap();
        let published = publish(&outputs).unwrap();
        let bytes = fs::read(&path).unwrap();
        let hash = blake3::hash(&bytes).to_hex().to_string();
        assert_eq!(published[0].bytes, bytes.len() as u64, "{name}");
        assert_eq!(published[0].blake3.as_deref(), Some(&*hash), "{name}");
        let mut text = [0; 30];
        let read = crate::files::LogFile::open(&path).unwrap().read_at(0, &mut text).unwrap();
        assert_eq!(std::str::from_utf8(&text[..read]).unwrap(), "one four ", "{name}");
    }
    let outputs = Arc::new(Outputs::new(Overwrite::Refuse, false, &[]));
    let mut other = outputs.create(&folder.path().join("other")).unwrap();
    assert!(other.mark().unwrap().is_none());
}
