//! Inputs of every kind that shrink, grow, vanish, are replaced or overwritten between planning and
//! reading: every event read was in the input, and anything missing is reported.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use serde_json::json;
use sluice_io::files::InputFiles;
use sluice_model::{Error, Query, ReadContext, Registry, Source, SplitStart};

use crate::kit::{Folder, drive, log, run};

/// Plugins that read files, and a file name for each.
const KINDS: [(&str, &str); 8] = [
    ("lcm-log", "log.lcm"),
    ("mcap", "log.mcap"),
    ("lcm-log", "log.lcm.zst"),
    ("vel", "log.vel"),
    ("orca", "orca/log.txt"),
    ("parquet", "log.parquet"),
    ("archive", "archive.lcm.zst"),
    ("jsonl", "log.jsonl"),
];

/// The number of events in each file.
const EVENTS: i64 = 1_500;

/// A folder with a file of each kind, all with the same events.
fn folder_of(seed: u64) -> Folder {
    let folder = Folder::new();
    folder.write("in.lcm", log(&drive(seed, EVENTS)));
    fs::create_dir(folder.at("orca")).unwrap();
    let mut text = "[sources.log]\nplugin = \"lcm-log\"\npath = \"${DIR}/in.lcm\"\n".to_owned();
    for (n, (plugin, name)) in KINDS.iter().enumerate() {
        let options = match *plugin {
            "jsonl" => "payload = true\n",
            "mcap" => "chunk = \"16KiB\"\n",
            _ => "",
        };
        text += &format!(
            "[sinks.o{n}]\nplugin = \"{plugin}\"\nfrom = \"log\"\npath = \"${{DIR}}/{name}\"\n\
             {options}"
        );
    }
    run(&text, folder.path(), 2).unwrap();
    folder
}

/// An event as it is compared.
type ComparedEvent = (i64, String, Vec<u8>);

struct ReadResult {
    events: Vec<ComparedEvent>,
    damaged: usize,
    error: Option<Error>,
}

/// Plans the splits of a file, applies `change` to it, and reads it.
fn read_after(plugin: &str, path: &Path, target: u64, change: impl FnOnce()) -> ReadResult {
    read_within(plugin, path, target, &InputFiles::default().into(), |_| change())
}

/// As [`read_after`], as a run that has noted these inputs reads it. `change` gets the source.
fn read_within(
    plugin: &str,
    path: &Path,
    target: u64,
    noted: &Arc<InputFiles>,
    change: impl FnOnce(&dyn Source),
) -> ReadResult {
    let source = Registry::linked().source(plugin, json!({ "path": path })).unwrap();
    let splits = source.splits(target, &Query::default()).unwrap();
    change(&*source);
    let mut context = ReadContext::standalone("log");
    context.run = context.run.sharing(noted);
    let mut events = Vec::new();
    let error = read(&*source, &splits, &context, &mut events).err();
    ReadResult { events, damaged: context.damage.take().len(), error }
}

fn read(
    source: &dyn Source,
    splits: &[sluice_model::Split],
    context: &ReadContext,
    events: &mut Vec<ComparedEvent>,
) -> Result<(), Error> {
    let mut ended = None;
    for split in splits {
        // As the engine does: each split starts where the previous one stopped.
        let entry = SplitStart::At(ended.unwrap_or(split.start));
        let mut reader = source.read(split, entry, context)?;
        while let Some(batch) = reader.next_batch()? {
            for event in batch.iter() {
                let name = context.channels.get(event.channel).name.text().to_owned();
                events.push((event.timestamp, name, event.payload.to_vec()));
            }
        }
        ended = reader.seam().ended;
    }
    Ok(())
}

/// The events that may be read: those of both folders, by kind.
fn allowed_events(folders: [&Folder; 2], plugin: &str, name: &str) -> BTreeSet<ComparedEvent> {
    let all = folders.map(|folder| read_after(plugin, &folder.at(name), u64::MAX, || ()));
    for read in &all {
        assert!(read.error.is_none() && read.damaged == 0, "{name}: {:?}", read.error);
        assert_eq!(read.events.len(), EVENTS as usize, "{name}");
    }
    all.into_iter().flat_map(|read| read.events).collect()
}

/// Changes every kind of file while it is read, in one and in several splits. `loses` says that
/// events are gone, which must be reported.
fn change_all(loses: bool, change: impl Fn(&Path, &Path)) {
    change_some(loses, |_| true, change);
}

fn change_some(loses: bool, which: impl Fn((&str, &str)) -> bool, change: impl Fn(&Path, &Path)) {
    let (folder, other) = (folder_of(1), folder_of(2));
    for (plugin, name) in KINDS.into_iter().filter(|kind| which(*kind)) {
        let (path, known) = (folder.at(name), allowed_events([&folder, &other], plugin, name));
        let whole = fs::read(&path).unwrap();
        for target in [u64::MAX, 40_000] {
            let read = read_after(plugin, &path, target, || change(&path, &other.at(name)));
            let strange = read.events.iter().find(|event| !known.contains(event));
            assert!(strange.is_none(), "{name}, pieces of {target}: an event that never was");
            if loses && read.events.len() < EVENTS as usize {
                let is_reported = read.damaged > 0 || read.error.is_some();
                let events = read.events.len();
                assert!(is_reported, "{name}, pieces of {target}: {events} events, and no report");
            }
            drop(fs::remove_file(&path));
            fs::write(&path, &whole).unwrap();
        }
    }
}

fn len(path: &Path) -> u64 {
    fs::metadata(path).unwrap().len()
}

fn open_for_writing(path: &Path) -> fs::File {
    OpenOptions::new().write(true).open(path).unwrap()
}

#[test]
fn a_truncated_input_is_reported() {
    for part in [0, 1, 2, 3] {
        let change =
            |path: &Path, _: &Path| open_for_writing(path).set_len(len(path) * part / 4).unwrap();
        change_some(true, |(plugin, _)| plugin != OF_SEVERAL_FILES, change);
    }
}

#[test]
fn a_vanished_input_is_reported() {
    change_all(true, |path, _| fs::remove_file(path).unwrap());
}

#[test]
fn an_input_that_became_a_folder_is_reported() {
    let (folder, other) = (folder_of(1), folder_of(2));
    drop(other);
    for (plugin, name) in KINDS {
        let path = folder.at(name);
        let read = read_after(plugin, &path, 40_000, || {
            fs::remove_file(&path).unwrap();
            fs::create_dir(&path).unwrap();
        });
        let (events, is_reported) = (read.events.len(), read.damaged > 0 || read.error.is_some());
        assert!(is_reported || events == EVENTS as usize, "{name}: {events} events, and no report");
    }
}

/// A log of several files: if the file that lists the events is replaced or truncated, nothing
/// shows it.
const OF_SEVERAL_FILES: &str = "orca";

#[test]
fn a_replaced_input_never_gives_a_mixture_of_both() {
    let change = |path: &Path, other: &Path| fs::copy(other, path).map(drop).unwrap();
    change_some(false, |(plugin, _)| plugin != OF_SEVERAL_FILES, change);
}

/// Formats whose bytes have checksums.
const CHECKED: [&str; 2] = ["log.parquet", "archive.lcm.zst"];

#[test]
fn zeros_in_an_input_with_checksums_are_no_events() {
    let change = |path: &Path, _: &Path| {
        let middle = len(path) / 2;
        open_for_writing(path).write_all_at(&[0; 5_000], middle).unwrap();
    };
    change_some(true, |(_, name)| CHECKED.contains(&name), change);
}

#[test]
fn appending_to_an_input_loses_no_event() {
    change_all(true, |path, _| {
        let file = open_for_writing(path);
        file.write_all_at(&[7; 10_000], len(path)).unwrap();
    });
}

#[test]
fn what_is_appended_to_an_input_of_a_run_is_neither_read_nor_damage() {
    let folder = folder_of(1);
    for (plugin, name) in KINDS {
        let path = folder.at(name);
        for target in [u64::MAX, 40_000] {
            let mut lengths = Vec::new();
            let noted = Arc::default();
            let read = read_within(plugin, &path, target, &noted, |source| {
                for input in source.files().unwrap() {
                    noted.note(&input);
                    let (file, len) = (open_for_writing(&input.path), len(&input.path));
                    file.write_all_at(&[7; 10_000], len).unwrap();
                    lengths.push((file, len));
                }
            });
            let found = (read.events.len(), read.damaged, read.error.map(|e| e.to_string()));
            assert_eq!(found, (EVENTS as usize, 0, None), "{name}, pieces of {target}");
            lengths.into_iter().for_each(|(file, len)| file.set_len(len).unwrap());
        }
    }
}

#[test]
fn missing_or_truncated_subfiles_are_reported() {
    let (folder, other) = (folder_of(1), folder_of(2));
    let known = allowed_events([&folder, &other], "orca", "orca/log.txt");
    let master = folder.at("orca/log.txt");
    let subfiles: Vec<_> = super::files(&folder.at("orca"));
    for subfile in subfiles.iter().filter(|path| **path != master) {
        let whole = fs::read(subfile).unwrap();
        let changes: [&dyn Fn(); 2] = [&|| fs::remove_file(subfile).unwrap(), &|| {
            open_for_writing(subfile).set_len(len(subfile) / 2).unwrap()
        }];
        for change in changes {
            let read = read_after("orca", &master, 40_000, change);
            assert!(read.events.iter().all(|event| known.contains(event)));
            assert!(read.events.len() < EVENTS as usize || read.error.is_some());
            assert!(read.damaged > 0 || read.error.is_some(), "{}", subfile.display());
            fs::write(subfile, &whole).unwrap();
        }
    }
}
