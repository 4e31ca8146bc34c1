//! Compares the index of a log with its messages.

use std::fmt;
use std::path::Path;

use sluice_io::files::LogFile;
use sluice_kit::window::ReadAt;
use sluice_model::Error;

use super::{IndexBuilder, walk};
use crate::rules::{DeletedMessages, Rules};
use crate::start::{self, FileStart};
use crate::wire::{ENTRY_LEN, HEAD_LEN, UNUSED};

/// Wrong entries reported one by one.
const MAX_REPORTED: usize = 20;

/// The result of checking an index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexReport {
    /// Number of entries.
    pub entries: u64,
    /// Entries that agree with the messages.
    pub right: u64,
    /// Entries without a position.
    pub unused: u64,
    /// Entries that contradict the messages.
    pub wrong: u64,
    /// The first wrong entries, at most twenty.
    pub first_wrong: Vec<WrongEntry>,
    /// Number of entries up to the last one with a position.
    pub reach: u64,
    /// Seconds covered by the messages.
    pub seconds: u64,
}

/// An entry that contradicts the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongEntry {
    /// Its number, from 0.
    pub entry: u64,
    /// The position it has.
    pub found: i64,
    /// The correct position; `None` for a second after the last message.
    pub expected: Option<u64>,
}

impl IndexReport {
    /// Compares an entry with the one computed from the messages.
    fn add(&mut self, found: i64, expected: Option<u64>) {
        let entry = self.entries;
        self.entries += 1;
        if found == UNUSED {
            self.unused += 1;
            return;
        }
        self.reach = self.entries;
        if expected.is_some_and(|expected| u64::try_from(found) == Ok(expected)) {
            self.right += 1;
            return;
        }
        self.wrong += 1;
        if self.first_wrong.len() < MAX_REPORTED {
            self.first_wrong.push(WrongEntry { entry, found, expected });
        }
    }

    /// All findings, one sentence each: the figures, the first wrong entries, and seconds at the
    /// end that are not indexed.
    pub fn findings(&self) -> Vec<String> {
        let mut sentences = vec![self.to_string()];
        sentences.extend(self.wrong_entries());
        let (seconds, reach) = (self.seconds, self.reach);
        if reach < seconds {
            let left = seconds - reach;
            sentences.push(format!(
                "{left} of the log's {seconds} seconds are not indexed, from second {reach} to \
                 the end"
            ));
        }
        sentences
    }

    /// The faults, one sentence each: the figures and the first wrong entries. Empty if every entry
    /// is right or unused.
    pub fn faults(&self) -> Vec<String> {
        let figures = (self.wrong > 0).then(|| self.to_string());
        figures.into_iter().chain(self.wrong_entries()).collect()
    }

    fn wrong_entries(&self) -> impl Iterator<Item = String> {
        let more = self.wrong.saturating_sub(self.first_wrong.len() as u64);
        let more = (more > 0).then(|| format!("{more} more entries are wrong"));
        self.first_wrong.iter().map(WrongEntry::to_string).chain(more)
    }
}

impl fmt::Display for IndexReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { entries, right, unused, wrong, .. } = self;
        write!(f, "index: {entries} entries, {right} right, {unused} unused, {wrong} wrong")
    }
}

impl fmt::Display for WrongEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { entry, found, expected } = self;
        write!(f, "entry {entry} points to byte {found}, expected ")?;
        match expected {
            Some(expected) => write!(f, "{expected}"),
            None => write!(f, "unused"),
        }
    }
}

/// Checks the index of the file at `path` against its messages; `None` if the head does not tell
/// how long the index is. Reads the headers of all messages, and skips damage.
pub fn inspect(path: &Path, rules: &Rules) -> Result<Option<IndexReport>, Error> {
    check_index(&mut LogFile::open(path)?, rules)
}

/// As [`inspect`], for an open log.
pub fn check_index(log: &mut dyn ReadAt, rules: &Rules) -> Result<Option<IndexReport>, Error> {
    // Messages may have been deleted after they were indexed.
    let rules = &Rules { deleted: DeletedMessages::Keep, ..rules.clone() };
    let FileStart::Sound { body, head } = start::read_start(log, rules)? else { return Ok(None) };
    let entries = entries(log, u64::from(head.entries))?;
    let mut seconds = IndexBuilder::new(entries.len() as u64);
    walk(log, body..u64::MAX, rules, |at, header| {
        seconds.add_message(at, header.ms);
        true
    })?;
    let mut verdict = IndexReport { seconds: seconds.count(), ..IndexReport::default() };
    for (entry, found) in entries.into_iter().enumerate() {
        verdict.add(found, seconds.positions().get(entry).copied());
    }
    Ok(Some(verdict))
}

/// Reads the entries of a file. Their number is bounded: the head has been checked.
fn entries(log: &mut dyn ReadAt, count: u64) -> Result<Vec<i64>, Error> {
    let mut bytes = vec![0; count as usize * ENTRY_LEN];
    let there = log.read_at(HEAD_LEN as u64, &mut bytes)?;
    bytes.truncate(there);
    let (entries, _) = bytes.as_chunks();
    Ok(entries.iter().map(|entry| i64::from_le_bytes(*entry)).collect())
}
