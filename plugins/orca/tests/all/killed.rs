//! Runs that are killed while their log is published: what they leave, and what the next run makes
//! of it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use serde_json::json;
use sluice_io::output::faults::FaultInjector;
use sluice_kit::contract::gather;
use sluice_model::{Error, Outputs, Overwrite, SinkContext};

use crate::kit::{TestEvent, in_order, lcm, source, write_with};

fn context(outputs: Outputs) -> SinkContext {
    SinkContext { outputs: Arc::new(outputs), ..SinkContext::standalone() }
}

/// An event on each of these channels, with this number in its time and its payload.
fn events(channels: &[&str], number: u8) -> Vec<TestEvent> {
    let event = |channel: &&str| {
        (i64::from(number) * 1_000_000_000, lcm(channel.as_bytes(), "x"), vec![number])
    };
    channels.iter().map(event).collect()
}

/// Writes a log with these channels.
fn write(outputs: Outputs, path: &Path, channels: &[&str], number: u8) {
    let events = in_order(&events(channels, number));
    write_with(&context(outputs), json!({ "path": path }), &events, 1);
}

fn outputs(overwrite: Overwrite) -> Outputs {
    Outputs::new(overwrite, false, &[])
}

/// The files in a folder.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let name = |entry: &fs::DirEntry| entry.file_name().into_string().unwrap();
    entries.map(|entry| (name(&entry), fs::read(entry.path()).unwrap())).collect()
}

/// Checks that a log, if there is one, is that of one run; returns its number.
fn check(path: &Path) -> Result<Option<u8>, String> {
    if !path.exists() {
        return Ok(None);
    }
    let found = gather(&*source(path), 1).map_err(|error: Error| error.to_string())?;
    let mut numbers: Vec<(i64, u8)> =
        found.events.iter().map(|e| (e.timestamp / 1_000_000_000, e.payload[0])).collect();
    numbers.dedup();
    match (&numbers[..], found.damage.is_empty()) {
        ([(time, payload)], true) if *time == i64::from(*payload) => Ok(Some(*payload)),
        found => Err(format!("{found:?}")),
    }
}

#[test]
fn a_log_that_is_being_replaced_never_has_payloads_of_one_run_and_times_of_another() {
    for name in ["x.orca", "x.orca.zst"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        for (number, channels) in [&["A", "B"][..], &["B", "C", "A"], &["A"]].iter().enumerate() {
            let (watched, found) = (path.clone(), Arc::new(Mutex::new(Vec::new())));
            let seen = Arc::clone(&found);
            let observer = move |_| seen.lock().unwrap().push(check(&watched));
            let faults = Arc::new(FaultInjector::observed(observer));
            let outputs = outputs(Overwrite::Replace).with_faults(faults);
            write(outputs, &path, channels, number as u8);
            assert_eq!(check(&path), Ok(Some(number as u8)));
            for found in found.lock().unwrap().iter() {
                assert!(found.is_ok(), "{name} {number}: {found:?}");
            }
        }
    }
}

/// What a run leaves in a folder that was killed when it had published this many subfiles of
/// `files`, whose master is `x.orca`. No process has its number.
fn leave(folder: &Path, files: &BTreeMap<String, Vec<u8>>, published: usize) {
    fs::write(folder.join(".x.orca.4999999-1-7.sluice-tmp"), &files["x.orca"]).unwrap();
    let subfiles = files.iter().filter(|(name, _)| name.ends_with(".log"));
    for (number, (name, bytes)) in subfiles.enumerate() {
        match number < published {
            true => fs::write(folder.join(name), bytes).unwrap(),
            false => {
                fs::write(folder.join(format!(".{name}.4999999-1-8.sluice-tmp")), bytes).unwrap();
            }
        }
    }
}

#[test]
fn the_run_after_one_that_was_killed_writes_what_an_uninterrupted_one_writes() {
    let whole = tempfile::tempdir().unwrap();
    write(outputs(Overwrite::Refuse), &whole.path().join("x.orca"), &["A", "A/b", "C"], 1);
    let expected = files(whole.path());
    for (overwrite, published) in
        [Overwrite::Redo, Overwrite::Replace].into_iter().flat_map(|o| [(o, 0), (o, 1), (o, 3)])
    {
        let folder = tempfile::tempdir().unwrap();
        leave(folder.path(), &expected, published);
        let path = folder.path().join("x.orca");
        // One that does not come to its end leaves as much.
        let unfinished = context(outputs(overwrite));
        let sink = crate::kit::sink(json!({ "path": path }));
        drop(sink.open(&unfinished, &Default::default()).unwrap());
        drop(unfinished);
        write(outputs(overwrite), &path, &["A", "A/b", "C"], 1);
        assert_eq!(files(folder.path()), expected, "{overwrite:?} {published}");
    }
}

#[test]
fn the_log_that_a_killed_run_was_replacing_is_replaced_by_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.orca");
    write(outputs(Overwrite::Refuse), &path, &["A", "B"], 1);
    // It was killed before it came to the first subfile.
    fs::rename(&path, folder.path().join(".x.orca.4999999-1-7.sluice-tmp")).unwrap();
    write(outputs(Overwrite::Redo), &path, &["A", "B"], 2);
    assert_eq!(
        files(folder.path()).into_keys().collect::<Vec<_>>(),
        ["x.orca", "x_a0.log", "x_b0.log"]
    );
    assert_eq!(check(&path), Ok(Some(2)));
}

#[test]
fn a_master_behind_a_link_that_a_killed_run_has_taken_away_is_replaced_by_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let (path, real) = (folder.path().join("x.orca"), folder.path().join("real"));
    write(outputs(Overwrite::Refuse), &path, &["A", "B"], 1);
    fs::create_dir(&real).unwrap();
    fs::rename(&path, real.join(".m.orca.4999999-1-7.sluice-tmp")).unwrap();
    std::os::unix::fs::symlink("m.orca", real.join("link")).unwrap();
    std::os::unix::fs::symlink("real/link", &path).unwrap();
    write(outputs(Overwrite::Redo), &path, &["A", "B"], 2);
    assert!(path.is_symlink());
    assert_eq!(check(&path), Ok(Some(2)));
    let names = |folder: &Path| -> Vec<_> {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
        entries.collect::<std::collections::BTreeSet<_>>().into_iter().collect()
    };
    assert_eq!(names(folder.path()), ["real", "x.orca", "x_a0.log", "x_b0.log"]);
    assert_eq!(names(&real), ["link", "m.orca"]);
}

#[test]
fn a_subfile_that_another_log_has_taken_since_a_run_was_killed_stays() {
    let whole = tempfile::tempdir().unwrap();
    write(outputs(Overwrite::Refuse), &whole.path().join("x.orca"), &["A"], 1);
    for other in ["x.orca.zst", "x.copy"] {
        let folder = tempfile::tempdir().unwrap();
        leave(folder.path(), &files(whole.path()), 0);
        let (path, other) = (folder.path().join("x.orca"), folder.path().join(other));
        write(outputs(Overwrite::Refuse), &other, &["A"], 2);
        assert!(folder.path().join("x_a0.log").exists());
        write(outputs(Overwrite::Redo), &path, &["A"], 3);
        assert_eq!((check(&path), check(&other)), (Ok(Some(3)), Ok(Some(2))));
    }
}

#[test]
fn what_a_killed_run_left_is_not_replaced_unless_that_is_asked_for() {
    let whole = tempfile::tempdir().unwrap();
    write(outputs(Overwrite::Refuse), &whole.path().join("x.orca"), &["A", "B"], 1);
    let folder = tempfile::tempdir().unwrap();
    leave(folder.path(), &files(whole.path()), 1);
    let before = files(folder.path());
    let context = context(outputs(Overwrite::Refuse));
    let sink = crate::kit::sink(json!({ "path": folder.path().join("x.orca") }));
    let mut output = sink.open(&context, &Default::default()).unwrap();
    let buffers = sluice_model::BlockPool::new(1 << 10, 2);
    let mut preparing = sluice_model::PrepareContext::new(&context.channels, &buffers);
    let batch = crate::kit::batch(&in_order(&events(&["A"], 2)), &context.channels);
    let block = sink.prepare(batch, &mut preparing).unwrap();
    let error = output.push(block).map(drop).unwrap_err().to_string();
    assert!(error.contains("x_a0.log") && error.contains("--overwrite"), "{error}");
    drop((output, context));
    assert_eq!(files(folder.path()), before);
}

#[test]
fn a_log_that_another_run_has_written_since_this_one_looked_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let (path, other) = (folder.path().join("x.orca"), folder.path().join("x.orca"));
    // The first step creates the master's temporary file.
    let faults = Arc::new(FaultInjector::observed(move |step| {
        if step == 0 {
            write(outputs(Overwrite::Replace), &other, &["A", "B"], 1);
        }
    }));
    write(outputs(Overwrite::Replace).with_faults(faults), &path, &["A", "B"], 2);
    assert_eq!(check(&path), Ok(Some(2)));
    let names: Vec<_> = files(folder.path()).into_keys().collect();
    assert_eq!(names, ["x.orca", "x_a0.log", "x_b0.log"]);
}

#[test]
fn a_log_that_another_run_is_writing_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.orca");
    let first = context(outputs(Overwrite::Replace));
    let sink = crate::kit::sink(json!({ "path": path }));
    let output = sink.open(&first, &Default::default()).unwrap();
    let second = context(outputs(Overwrite::Replace));
    let error = sink.open(&second, &Default::default()).map(drop).unwrap_err().to_string();
    assert!(error.contains("another run is writing this output"), "{error}");
    drop((output, first, second));
    write(outputs(Overwrite::Replace), &path, &["A"], 3);
    assert_eq!(check(&path), Ok(Some(3)));
}
