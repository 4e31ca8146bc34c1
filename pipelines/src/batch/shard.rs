//! Shards: a batch that is run in parts, by processes that know nothing of each other but a folder, and the records of
//! the parts, which [`merge`] puts together.
//!
//! The I-th of N shards has the inputs I, I + N, I + 2 N, … of the list: which ones these are depends on the list
//! alone, not on how long inputs are, which may change between the start of one shard and another; and logs of one day, which
//! lie side by side, are dealt out evenly.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sluice_core::Error;
use sluice_core::output::sweep;

use super::book::Book;
use super::record::{Record, UnitRecord, has_length, is_as_written, lines};
use crate::manifest::VERSION;

/// A part of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shard {
    /// Which one, from 1.
    number: usize,
    of: usize,
}

/// The most parts that a batch may have.
const MOST: usize = 1_000_000;

impl Shard {
    /// Reads `I/N`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no part: write I/N, such as 1/4 for the first of four");
        let (number, of) = text.split_once('/').ok_or_else(wrong)?;
        let parse =
            |text: &str| text.trim().parse::<usize>().ok().filter(|n| (1..=MOST).contains(n));
        let (number, of) = (parse(number).ok_or_else(wrong)?, parse(of).ok_or_else(wrong)?);
        if number > of {
            return Err(format!("there is no part {number} of {of}: parts count from 1"));
        }
        Ok(Self { number, of })
    }

    /// Whether it has the input at this place, from 0.
    pub(super) fn has(self, place: usize) -> bool {
        place % self.of == self.number - 1
    }

    /// The file that says what it did.
    pub(super) fn record(self) -> String {
        format!("{BEGIN}{}-of-{}.json", self.number, self.of)
    }

    /// The file that says what it has done so far.
    pub(super) fn journal(self) -> String {
        format!("{BEGIN}{}-of-{}.units.jsonl", self.number, self.of)
    }

    /// Keeps others from running it at the same time, as long as what this gives lives.
    ///
    /// `Err` if somebody does. Where locks do not work, that is only not noticed.
    pub(super) fn lock(self, folder: &Path) -> Result<Locked, Error> {
        // Named as what is nobody's output.
        let path = folder.join(format!(".shard-{}-of-{}.sluice-tmp", self.number, self.of));
        loop {
            let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
            let file = file.map_err(|e| Error::io("create", &path, e))?;
            if let Err(TryLockError::WouldBlock) = file.try_lock() {
                return Err(Error::refused(format!(
                    "part {self} of this batch is being run; wait for it to end: {}",
                    folder.display()
                )));
            }
            // Who had it before may have removed it meanwhile; what is locked then is a file without a name.
            if is_same(&file, &path) {
                return Ok(Locked { path, _file: file });
            }
        }
    }

    /// The part whose record or journal has this name.
    fn of_name(name: &str) -> Option<Self> {
        let rest = name.strip_prefix(BEGIN)?;
        let rest = rest.strip_suffix(".json").or_else(|| rest.strip_suffix(".units.jsonl"))?;
        Self::parse(&rest.replacen("-of-", "/", 1)).ok()
    }
}

/// What the names of records of parts begin with.
const BEGIN: &str = "_shard-";

/// Whether a file is what a batch that is run in parts has in its folder.
pub(super) fn is_record(name: &str) -> bool {
    Shard::of_name(name).is_some()
}

fn is_same(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let (Ok(file), Ok(path)) = (file.metadata(), fs::metadata(path)) else { return false };
    (file.dev(), file.ino()) == (path.dev(), path.ino())
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

/// A part that nobody else may run now.
#[derive(Debug)]
pub(super) struct Locked {
    path: PathBuf,
    _file: File,
}

impl Drop for Locked {
    fn drop(&mut self) {
        drop(fs::remove_file(&self.path));
    }
}

/// What a part of a batch is a part of.
#[derive(Clone, Debug)]
pub(crate) struct Heading {
    pub(super) shard: Shard,
    /// Tells batches apart: by pipeline, memory, version, inputs and outputs.
    pub(super) batch: String,
    /// How many inputs the whole batch has.
    pub(super) inputs: usize,
    /// The inputs of the part, each with what it is to write.
    pub(super) due: Vec<(PathBuf, Vec<PathBuf>)>,
}

/// What the record of a part says.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ShardRecord {
    sluice: String,
    shard: usize,
    of: usize,
    batch: String,
    /// How many inputs the whole batch has.
    inputs: usize,
    /// Inputs of the part that are not done.
    left: Vec<PathBuf>,
    units: Vec<UnitRecord>,
    /// What was in the record before, and is not of this batch, or could not be done again.
    earlier: Vec<UnitRecord>,
}

impl ShardRecord {
    /// The record of a part of which these units are done.
    pub(super) fn of(
        heading: &Heading,
        mut done: Vec<UnitRecord>,
        earlier: Vec<UnitRecord>,
    ) -> Self {
        let is_left = |(_, outputs): &&(PathBuf, Vec<PathBuf>)| {
            !done.iter().any(|unit| unit.outputs == *outputs)
        };
        let left = heading.due.iter().filter(is_left).map(|(input, _)| input.clone()).collect();
        done.sort_by(|a, b| a.outputs.cmp(&b.outputs));
        let Heading { shard, batch, inputs, .. } = heading;
        Self {
            sluice: VERSION.to_owned(),
            shard: shard.number,
            of: shard.of,
            batch: batch.clone(),
            inputs: *inputs,
            left,
            units: done,
            earlier,
        }
    }
}

/// What is in a folder of one part of a batch.
#[derive(Debug)]
pub(super) struct Part {
    shard: Shard,
    /// Nothing, if it never came to its end.
    record: Option<ShardRecord>,
    /// The units of a part that is not over, in the order in which they were done.
    pub(super) journal: Vec<UnitRecord>,
    /// Whether it is not over.
    is_open: bool,
}

impl Part {
    /// The parts in a folder, in their order.
    pub(super) fn all(folder: &Path) -> Result<Vec<Self>, Error> {
        let here = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        let entries = match fs::read_dir(here) {
            Ok(entries) => entries,
            // Whoever needs the folder says so.
            Err(_) => return Ok(Vec::new()),
        };
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let mut shards: Vec<Shard> = names.filter_map(|name| Shard::of_name(&name)).collect();
        shards.sort_by_key(|shard| (shard.of, shard.number));
        shards.dedup();
        shards.into_iter().map(|shard| Self::read(here, shard)).collect()
    }

    fn read(folder: &Path, shard: Shard) -> Result<Self, Error> {
        let path = folder.join(shard.record());
        let record = read_if_there(&path)?.map(|text| serde_json::from_slice(&text));
        let record = record.transpose().map_err(|e| {
            Error::refused(format!(
                "this record of a part of a batch cannot be understood: {e}: {}",
                path.display()
            ))
        })?;
        let journal = read_if_there(&folder.join(shard.journal()))?;
        let is_open = journal.is_some();
        Ok(Self { shard, record, journal: lines(&journal.unwrap_or_default()), is_open })
    }

    /// Whether it is this one.
    pub(super) fn is(&self, shard: Shard) -> bool {
        self.shard == shard
    }

    /// What its record says was done.
    pub(super) fn recorded(&self) -> impl Iterator<Item = &UnitRecord> {
        self.record.iter().flat_map(|record| record.units.iter().chain(&record.earlier))
    }

    /// Every unit, the latest first.
    pub(super) fn latest_first(&self) -> impl Iterator<Item = &UnitRecord> {
        self.journal.iter().rev().chain(self.recorded())
    }

    /// Removes its files: all that they say is elsewhere.
    pub(super) fn remove(&self, folder: &Path) -> Result<(), Error> {
        for name in [self.shard.record(), self.shard.journal()] {
            let path = folder.join(name);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(Error::io("remove", path, error));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// What is to be said of a folder that has parts of a batch: how many there are, and what is missing.
pub(super) fn told(parts: &[Part]) -> Vec<String> {
    if parts.is_empty() {
        return Vec::new();
    }
    let open = parts.iter().filter(|part| part.is_open).count();
    let over = parts.len() - open;
    let going = match open {
        0 => String::new(),
        open => format!(", and {open} interrupted or still going on"),
    };
    let text = format!(
        "a batch was run in parts: {over} recorded{going}; `sluice merge-manifests` puts their records \
         together"
    );
    std::iter::once(text).chain(missing(parts)).chain(parts.iter().filter_map(unfinished)).collect()
}

fn read_if_there(path: &Path) -> Result<Option<Vec<u8>>, Error> {
    match fs::read(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io("read", path, error)),
    }
}

/// How closely files are looked at before their records are put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Looking {
    /// Whether they are there, as long as they were.
    Length,
    /// Whether they hold what they did. Reads them whole.
    Hash,
}

/// What putting records together came to.
#[derive(Debug, PartialEq, Eq)]
pub enum Merged {
    /// There is one record now.
    Done {
        /// How many parts there were.
        parts: usize,
        /// How many units they had.
        units: usize,
    },
    /// There are no records of parts, but one of a batch.
    Before,
    /// It cannot be done, for these reasons. Nothing was changed.
    Lacking(Vec<String>),
}

/// Puts the records of the parts of a batch in a folder together, if all are there and right: the folder's record
/// is then the one of a run of the whole batch.
pub fn merge(folder: &Path, looking: Looking) -> Result<Merged, Error> {
    let record = Record::to_continue(folder)?;
    if record.parts.is_empty() {
        let what = "there is no record of a part of a batch here".to_owned();
        return Ok(if record.units.is_empty() {
            Merged::Lacking(vec![what])
        } else {
            Merged::Before
        });
    }
    // Kept until the record is written, so that no part is run again meanwhile.
    let book = Book::open(folder, None)?;
    let parts = &book.before().parts;
    if parts.is_empty() {
        return Ok(Merged::Before);
    }
    let lacking = lacking(folder, parts, looking);
    if !lacking.is_empty() {
        return Ok(Merged::Lacking(lacking));
    }
    let units: Vec<&UnitRecord> = units(parts).map(|(_, unit)| unit).collect();
    let outputs: Vec<PathBuf> =
        units.iter().flat_map(|unit| &unit.outputs).map(|path| folder.join(path)).collect();
    let merged = Merged::Done { parts: parts.len(), units: units.len() };
    book.close(Vec::new(), Vec::new())?;
    sweep(outputs.iter().map(PathBuf::as_path));
    Ok(merged)
}

/// Every unit of the batch, with its part.
fn units(parts: &[Part]) -> impl Iterator<Item = (Shard, &UnitRecord)> {
    parts.iter().flat_map(|part| {
        part.record.iter().flat_map(|record| &record.units).map(|unit| (part.shard, unit))
    })
}

/// Why parts are no whole batch.
fn lacking(folder: &Path, parts: &[Part], looking: Looking) -> Vec<String> {
    let mut lacking = of_one_batch(parts);
    if lacking.is_empty() {
        lacking.extend(missing(parts));
        lacking.extend(parts.iter().filter_map(unfinished));
        lacking.extend(claimed_twice(parts));
        lacking.extend(other_files(folder, parts, looking));
    }
    lacking
}

/// Whether parts are of different batches.
fn of_one_batch(parts: &[Part]) -> Vec<String> {
    let Some(first) = parts.first() else { return Vec::new() };
    if let Some(other) = parts.iter().find(|part| part.shard.of != first.shard.of) {
        return vec![format!(
            "there are records of {} and of {} parts; remove those that are out of date ({BEGIN}*)",
            first.shard.of, other.shard.of
        )];
    }
    let records = || parts.iter().filter_map(|part| Some((part.shard, part.record.as_ref()?)));
    let Some((one, record)) = records().next() else { return Vec::new() };
    let versions = records().filter(|(_, other)| other.sluice != VERSION).map(|(shard, other)| {
        format!("part {shard} was run by version {} of Sluice, and this is {VERSION}", other.sluice)
    });
    let batches = records().filter(|(_, other)| other.batch != record.batch).map(|(shard, other)| {
        format!(
            "parts {one} and {shard} are of different batches, of {} and {} inputs: pipeline, options and \
             inputs have to be the same; run them again with --resume",
            record.inputs, other.inputs
        )
    });
    versions.chain(batches).collect()
}

fn missing(parts: &[Part]) -> Option<String> {
    let of = parts.first()?.shard.of;
    let is_there = |number: &usize| parts.iter().any(|part| part.shard.number == *number);
    let missing: Vec<usize> = (1..=of).filter(|number| !is_there(number)).collect();
    let shown: Vec<String> =
        missing.iter().take(20).map(|number| Shard { number: *number, of }.to_string()).collect();
    let more = match missing.len().saturating_sub(shown.len()) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let text = format!("parts are missing: {}{more}; run them with --shard", shown.join(", "));
    (!missing.is_empty()).then_some(text)
}

fn unfinished(part: &Part) -> Option<String> {
    let Part { shard, record, is_open, .. } = part;
    if *is_open {
        return Some(format!(
            "part {shard} was interrupted, or is still going on; `--shard {shard} --resume` completes it"
        ));
    }
    let left = &record.as_ref()?.left;
    let first = left.first()?.display();
    let count = match left.len() {
        1 => format!("{first} is not done"),
        many => format!("{many} inputs are not done, such as {first}"),
    };
    Some(format!("part {shard} is not complete: {count}; run it again with --resume"))
}

fn claimed_twice(parts: &[Part]) -> Vec<String> {
    let mut claimed: BTreeMap<&PathBuf, Shard> = BTreeMap::new();
    let mut twice = Vec::new();
    for (shard, unit) in units(parts) {
        for output in &unit.outputs {
            if let Some(other) = claimed.insert(output, shard) {
                let output = output.display();
                twice.push(format!("parts {other} and {shard} both say that they wrote {output}"));
            }
        }
    }
    twice
}

fn other_files(folder: &Path, parts: &[Part], looking: Looking) -> Vec<String> {
    let mut other = Vec::new();
    for (shard, unit) in units(parts) {
        let is_other = |file: &&crate::manifest::OutputFile| match looking {
            Looking::Length => !has_length(folder, file),
            Looking::Hash => !(has_length(folder, file) && is_as_written(folder, file)),
        };
        let files = unit.files.iter().filter(is_other).map(|file| {
            let path = file.path.display();
            format!(
                "{path} is not as part {shard} wrote it; `--shard {shard} --resume` writes it again"
            )
        });
        other.extend(files);
    }
    other
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_read_and_shown_as_they_are_written() {
        for text in ["1/1", "2/3", "1000000/1000000"] {
            assert_eq!(Shard::parse(text).unwrap().to_string(), text);
        }
        for wrong in ["", "1", "0/3", "4/3", "a/b", "1/0", "-1/3", "1/3/5", "1/1000001"] {
            Shard::parse(wrong).unwrap_err();
        }
    }

    #[test]
    fn every_input_is_in_one_part() {
        let shards: Vec<Shard> = (1..=3).map(|number| Shard { number, of: 3 }).collect();
        for place in 0..10 {
            assert_eq!(shards.iter().filter(|shard| shard.has(place)).count(), 1, "{place}");
        }
        assert_eq!((0..10).filter(|place| shards[1].has(*place)).collect::<Vec<_>>(), [1, 4, 7]);
    }

    #[test]
    fn names_tell_which_part_they_are_of() {
        let shard = Shard { number: 2, of: 3 };
        for name in [shard.record(), shard.journal()] {
            assert_eq!(Shard::of_name(&name), Some(shard));
        }
        for other in ["_shard-4-of-3.json", "_shard-1-of-3", "_manifest.json", "shard-1-of-3.json"]
        {
            assert!(!is_record(other), "{other}");
        }
    }
}
