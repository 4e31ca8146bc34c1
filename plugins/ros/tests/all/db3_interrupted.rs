//! What the source `ros2-db3` reads of bags whose recording was interrupted: as much as SQLite, and
//! it changes none of their files.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use proptest::prelude::*;
use serde::Deserialize;
use sluice_io::files::InputFiles;
use sluice_kit::contract::{any_splitting_is_the_same, gather_splits, gather_with, overwrite};
use sluice_model::{Error, Input, Query, ReadContext, Reader, Split, SplitStart};
use tempfile::TempDir;

use crate::db3::source;
use crate::peers::python;

/// A bag, as `interrupted.py` made it.
#[derive(Deserialize)]
struct Case {
    /// How the file beside it was damaged.
    how: String,
    /// What SQLite reads of it, if it can: before the damage, and with it.
    intact: Option<Vec<Row>>,
    messages: Option<Vec<Row>>,
}

/// The number, the topic, the time and the data of a message.
type Row = (i64, i64, i64, String);

/// The messages of a bag, and whether anything is reported of it.
fn read(path: &Path) -> Result<(Vec<Row>, bool, bool), Error> {
    let source = source(path);
    let context = ReadContext::standalone("test");
    let mut rows = Vec::new();
    for split in source.splits(u64::MAX, &Query::default())? {
        let mut reader = source.read(&split, SplitStart::At(split.start), &context)?;
        while let Some(batch) = reader.next_batch()? {
            rows.extend(batch.iter().map(|event| {
                let hex = event.payload.iter().map(|byte| format!("{byte:02x}")).collect();
                let is_other = context.channels.get(event.channel).name.text() == "/other";
                (event.sequence, 1 + i64::from(is_other), event.timestamp, hex)
            }));
        }
    }
    let is_damaged = !context.damage.take().is_empty();
    Ok((rows, is_damaged, !context.losses.take_notes().is_empty()))
}

/// All files of a folder.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| (path.display().to_string(), fs::read(path).unwrap())).collect()
}

#[test]
fn interrupted_bags_have_the_messages_that_sqlite_reads_of_a_copy() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let count = std::env::var("PROPTEST_CASES").map_or(120, |cases| cases.parse().unwrap());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interrupted.py");
    let mut make = Command::new(python);
    make.arg("-B").arg(script).arg(folder.path()).args(["1", &count.to_string()]);
    assert!(make.status().unwrap().success());
    let mut compared = 0;
    for number in 0..count {
        let folder = folder.path().join(number.to_string());
        let path = folder.join("log.db3");
        let before = files(&folder);
        let text = fs::read_to_string(folder.join("expected.json")).unwrap();
        let case: Case = serde_json::from_str(&text).unwrap();
        let shown = format!("{number}, {}", case.how);
        let found = read(&path);
        if found.is_ok() {
            any_splitting_is_the_same(&*source(&path), &[1, 9000]);
        }
        assert!(files(&folder) == before, "{shown}: a file was changed");
        let Some(expected) = case.messages else { continue };
        let (rows, is_damaged, is_noted) = found.expect(&shown);
        assert!(rows == expected, "{shown}: {} rows, not {}", rows.len(), expected.len());
        let is_damaged_on_purpose = ["byte", "hole", "cut"].map(|how| case.how.ends_with(how));
        match is_damaged_on_purpose {
            [false, false, false] => assert!(!is_damaged, "{shown}"),
            [false, false, true] => {}
            _ => {
                // The checksums of a journal are of a few bytes only, and there is always a note.
                let is_log = case.how.starts_with("-wal");
                let is_less = match &case.intact {
                    Some(intact) if !is_log => intact.len() != expected.len(),
                    intact => intact.as_ref() != Some(&expected),
                };
                let is_reported = is_damaged || is_log && is_noted;
                assert!(!is_less || is_reported, "{shown}: nothing is reported");
            }
        }
        compared += 1;
    }
    assert!(compared > count / 2, "{compared}");
}

/// A folder with a file of a case, and the file beside it.
fn case(name: &str) -> (TempDir, PathBuf, PathBuf) {
    let case = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name);
    let folder = tempfile::tempdir().unwrap();
    let mut beside = None;
    for end in ["", "-wal", "-journal"] {
        let (from, to) = (format!("log.db3{end}"), folder.path().join(format!("log.db3{end}")));
        if case.join(&from).exists() {
            fs::copy(case.join(&from), &to).unwrap();
            beside = Some(to);
        }
    }
    let path = folder.path().join("log.db3");
    (folder, path, beside.unwrap())
}

fn count(path: &Path) -> usize {
    read(path).unwrap().0.len()
}

#[test]
fn what_is_beside_the_file_that_a_link_leads_to_is_read() {
    let (folder, path, _) = case("db3-interrupted");
    let link = folder.path().join("link.db3");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    assert_eq!(count(&link), 60);
    // Of a copy, nothing is beside it.
    let copy = folder.path().join("copy.db3");
    fs::copy(&path, &copy).unwrap();
    assert_eq!(count(&copy), 0);
}

#[test]
fn the_files_of_a_bag_are_those_beside_it_too_but_only_it_is_an_input() {
    let (folder, path, beside) = case("db3-interrupted");
    let source = source(&folder.path().join("log.db3*"));
    let paths = |inputs: Vec<Input>| inputs.into_iter().map(|input| input.path).collect::<Vec<_>>();
    assert_eq!(paths(source.inputs().unwrap()), std::slice::from_ref(&path));
    assert_eq!(paths(source.files().unwrap()), [path.clone(), beside.clone()]);
    let index = folder.path().join("log.db3-shm");
    fs::write(&index, "").unwrap();
    assert_eq!(paths(source.inputs().unwrap()), std::slice::from_ref(&path));
    fs::remove_file(index).unwrap();
    fs::write(&beside, "").unwrap();
    assert_eq!(source.files().unwrap().len(), 1);
}

#[test]
fn a_bag_is_not_read_without_a_log_that_cannot_be_looked_up() {
    let (_folder, path, beside) = case("db3-interrupted");
    fs::remove_file(&beside).unwrap();
    std::os::unix::fs::symlink(&beside, &beside).unwrap();
    let error = source(&path).files().unwrap_err().to_string();
    assert!(error.contains("log.db3-wal"), "{error}");
    assert!(read(&path).is_err());
}

#[test]
fn any_cut_of_a_log_leaves_its_complete_transactions() {
    let (_folder, path, beside) = case("db3-interrupted");
    let whole = fs::read(&beside).unwrap();
    let mut counts = Vec::new();
    for len in (0..=whole.len()).rev().step_by(67) {
        fs::write(&beside, &whole[..len]).unwrap();
        let (rows, is_damaged, _) = read(&path).unwrap();
        assert!(!is_damaged && rows.len() % 10 == 0, "{len}: {}", rows.len());
        counts.push(rows.len());
    }
    assert!(counts.is_sorted_by(|before, after| before >= after), "{counts:?}");
    counts.dedup();
    assert_eq!(counts, [60, 50, 40, 30, 20, 10, 0]);
}

#[test]
fn any_changed_byte_of_a_log_is_reported_if_messages_are_missing() {
    let (_folder, path, beside) = case("db3-interrupted");
    let mut whole = fs::read(&beside).unwrap();
    // Up to the last complete transaction, there is nothing to be noted.
    while read(&path).unwrap().2 {
        whole.truncate(whole.len() - (24 + 512));
        fs::write(&beside, &whole).unwrap();
    }
    assert_eq!(count(&path), 60);
    for at in (0..whole.len()).step_by(31) {
        let mut changed = whole.clone();
        changed[at] ^= 0x10;
        fs::write(&beside, changed).unwrap();
        let (rows, is_damaged, is_noted) = read(&path).unwrap();
        assert!(rows.len() % 10 == 0 && is_noted | is_damaged, "{at}: {}", rows.len());
        assert!(is_damaged || rows.len() >= 50, "{at}: {}", rows.len());
    }
}

#[test]
fn a_log_that_is_begun_again_or_removed_while_it_is_read_is_no_wrong_data() {
    // With new salts, and after a checkpoint of all of it.
    let begin_again = |beside: &Path| {
        let mut log = fs::read(beside).unwrap();
        log[16] ^= 1;
        overwrite(beside, &log).unwrap();
    };
    let remove = |beside: &Path| fs::remove_file(beside).unwrap();
    for change in [&begin_again as &dyn Fn(&Path), &remove] {
        let (_folder, path, beside) = case("db3-interrupted");
        let source = source(&path);
        let context = ReadContext::standalone("test");
        let splits = source.splits(1, &Query::default()).unwrap();
        assert!(splits.len() > 2);
        let open = |split: &Split| source.read(split, SplitStart::At(split.start), &context);
        let mut readers: Vec<_> = splits.iter().map(|split| open(split).unwrap()).collect();
        assert!(readers[0].next_batch().unwrap().is_some());
        change(&beside);
        for reader in &mut readers {
            let mut batches = std::iter::from_fn(|| reader.next_batch().transpose());
            let error = batches.find_map(Result::err).unwrap().to_string();
            let is_expected = error.contains("overwritten while") && error.ends_with("log.db3-wal");
            assert!(is_expected, "{error}");
        }
    }
}

#[test]
fn a_bag_that_changes_between_two_splits_is_not_read_as_a_mix() {
    let begin_again = |path: &Path| {
        let mut log = fs::read(path).unwrap();
        log[16] ^= 1;
        overwrite(path, &log).unwrap();
    };
    let make_again = |path: &Path| {
        let log = fs::read(path).unwrap();
        // The number of the file that was there is not used again meanwhile.
        fs::rename(path, path.with_extension("old")).unwrap();
        fs::write(path, log).unwrap();
    };
    let cut = |path: &Path| overwrite(path, &fs::read(path).unwrap()[..4096]).unwrap();
    // As a checkpoint does.
    let write = |path: &Path| {
        let (bytes, before) = (fs::read(path).unwrap(), fs::metadata(path).unwrap());
        while fs::metadata(path).unwrap().modified().unwrap() == before.modified().unwrap() {
            overwrite(path, &bytes).unwrap();
        }
    };
    let changes = [
        (&begin_again as &dyn Fn(&Path), "-wal"),
        (&make_again, "-wal"),
        (&cut, "-wal"),
        (&write, ""),
    ];
    for is_open in [false, true] {
        for (change, end) in changes {
            let (_folder, path, _) = case("db3-interrupted");
            let source = source(&path);
            let files = Arc::<InputFiles>::default();
            source.files().unwrap().iter().for_each(|input| files.note(input));
            let context = ReadContext::standalone("test");
            let context = ReadContext { run: context.run.sharing(&files), ..context };
            let splits = source.splits(1, &Query::default()).unwrap();
            let open = |split: &Split| source.read(split, SplitStart::At(split.start), &context);
            let read = |split: Result<Box<dyn Reader + '_>, Error>| -> Result<(), Error> {
                let mut reader = split?;
                while reader.next_batch()?.is_some() {}
                Ok(())
            };
            read(open(&splits[0])).unwrap();
            let mut second = is_open.then(|| open(&splits[1]));
            change(&path.with_extension(format!("db3{end}")));
            let second = second.take().unwrap_or_else(|| open(&splits[1]));
            let error = read(second).unwrap_err().to_string();
            let is_expected = error.contains("while it was read; run again");
            assert!(is_expected && error.ends_with(&format!("log.db3{end}")), "{error}");
        }
    }
}

#[test]
fn damage_in_a_journal_without_a_number_of_pages_is_reported() {
    let (_folder, path, beside) = case("db3-to-be-rolled-back");
    let mut whole = fs::read(&beside).unwrap();
    let count = u32::from_be_bytes(*whole[8..].first_chunk().unwrap()) as usize;
    assert!(count > 2);
    // As it is without `synchronous`.
    whole[8..12].fill(0xff);
    let record = 4 + 512 + 4;
    whole.truncate(512 + count * record);
    // Those of an earlier transaction follow.
    whole.extend(vec![1; 3 * record]);
    fs::write(&beside, &whole).unwrap();
    let (rows, is_damaged, _) = read(&path).unwrap();
    assert!(!is_damaged && rows.len() == 60);
    for number in 0..count {
        let mut changed = whole.clone();
        changed[512 + number * record + record - 1] ^= 0x10;
        fs::write(&beside, changed).unwrap();
        // The last one may not have been written in whole.
        let is_last = number + 1 == count;
        assert_eq!(read(&path).map_or(true, |(_, is_damaged, _)| is_damaged), !is_last, "{number}");
    }
}

#[test]
fn of_what_grows_beside_a_bag_the_part_is_read_that_was_there_at_the_beginning() {
    let (_folder, path, beside) = case("db3-interrupted");
    let (whole, frame) = (fs::read(&beside).unwrap(), 24 + 512);
    let source = source(&path);
    let begin = |len: usize| {
        fs::write(&beside, &whole[..len]).unwrap();
        let files = Arc::<InputFiles>::default();
        source.files().unwrap().iter().for_each(|input| files.note(input));
        let context = ReadContext::standalone("test");
        fs::write(&beside, &whole).unwrap();
        ReadContext { run: context.run.sharing(&files), ..context }
    };
    let mut counts = Vec::new();
    for len in [0, 32, 32 + 20 * frame, whole.len()] {
        let context = begin(len);
        let found = gather_with(&*source, u64::MAX, &context).unwrap();
        counts.push(found.events.len());
    }
    assert!(counts[0] == 0 && counts[1] == 0 && counts[3] == 60, "{counts:?}");
    assert!((10..60).contains(&counts[2]), "{counts:?}");
    // Nor is a bag read without what was there.
    let context = begin(whole.len());
    let splits = source.splits(u64::MAX, &Query::default()).unwrap();
    fs::remove_file(&beside).unwrap();
    let error = gather_splits(&*source, splits, &context).unwrap_err().to_string();
    assert!(error.contains("removed while it was read"), "{error}");
}

proptest! {
    #[test]
    fn whatever_is_beside_a_bag_it_is_read_the_same_in_pieces(
        name in prop::sample::select(vec!["db3-interrupted", "db3-to-be-rolled-back"]),
        at in any::<prop::sample::Index>(),
        at_start in any::<bool>(),
        put in prop::collection::vec(any::<u8>(), 1..12),
    ) {
        let (_folder, path, beside) = case(name);
        let mut bytes = fs::read(&beside).unwrap();
        let at = at.index(if at_start { 60 } else { bytes.len() });
        let end = (at + put.len()).min(bytes.len());
        bytes.splice(at..end, put);
        fs::write(&beside, &bytes).unwrap();
        if read(&path).is_ok() {
            any_splitting_is_the_same(&*source(&path), &[1, 2000]);
        }
    }
}
