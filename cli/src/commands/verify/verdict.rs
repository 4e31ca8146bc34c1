//! What was found out about a path, and comparing one file with what is said of it.

use std::borrow::Cow;
use std::path::Path;

use serde_json::json;
use sluice_core::files::{self, PathKind};
use sluice_core::name::printable_sentence;
use sluice_core::{Input, PluginFactory};
use sluice_pipeline::manifest;

use super::record::Said;
use crate::ending::{Ending, Failure};
use crate::inputs;
use crate::out;
use crate::shell::Shell;
use crate::units;

/// What was found out about a path.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    pub(super) files: u64,
    pub(super) bytes: u64,
    /// Sentences on what is not as it should be.
    pub(super) differences: Vec<String>,
    /// Sentences on damage inside.
    pub(super) damage: Vec<String>,
}

impl Verdict {
    pub(super) fn different(sentence: String) -> Self {
        Self { differences: vec![sentence], ..Self::default() }
    }

    pub(super) fn ending(&self) -> Ending {
        match (self.differences.is_empty(), self.damage.is_empty()) {
            (false, _) => Ending::Wrong,
            (true, false) => Ending::Losses,
            (true, true) => Ending::Done,
        }
    }

    pub(super) fn text(&self, path: &Path) -> String {
        let path = out::path(path);
        let found = format!("{}, {}", units::many(self.files, "file"), units::bytes(self.bytes));
        let sentences = self.differences.iter().chain(&self.damage);
        let sentences: Vec<Cow<'_, str>> = sentences.map(|one| printable_sentence(one)).collect();
        match (sentences.as_slice(), self.ending()) {
            ([], _) => format!("{path}: ok ({found})\n"),
            ([one], Ending::Wrong) => format!("{path}: differs: {one}\n"),
            ([one], _) => format!("{path}: damaged: {one}\n"),
            (many, ending) => {
                let word = if ending == Ending::Wrong { "differs" } else { "damaged" };
                let lines: String = many.iter().map(|one| format!("  {one}\n")).collect();
                format!("{path}: {word}:\n{lines}")
            }
        }
    }

    /// Adds what was found out about a part.
    pub(super) fn add(&mut self, part: Self) {
        self.files += part.files;
        self.bytes += part.bytes;
        self.differences.extend(part.differences);
        self.damage.extend(part.damage);
    }

    /// Counts files of which nothing is said.
    pub(super) fn count(&mut self, files: &[Input]) {
        self.files = files.len() as u64;
        self.bytes = files.iter().filter_map(|file| file.bytes).sum();
    }

    /// Compares a file with what is said of it.
    pub(super) fn compare(&mut self, path: &Path, said: &Said, shell: &Shell) {
        let name = said.path.display();
        let length = match files::look(path) {
            Ok(Some(PathKind::File(length))) => length,
            Ok(Some(_)) => return self.differences.push(format!("{name} is not a file")),
            Ok(None) => return self.differences.push(format!("{name} is missing")),
            Err(error) => return self.differences.push(error.to_string()),
        };
        self.files += 1;
        self.bytes += length;
        if length != said.bytes {
            let was = said.bytes;
            return self.differences.push(format!("{name} has {length} bytes instead of {was}"));
        }
        if let Some(was) = &said.blake3 {
            match manifest::hash_file(path) {
                Ok(is) if is == *was => {}
                Ok(is) => {
                    return self
                        .differences
                        .push(format!("{name} has the hash {is} instead of {was}"));
                }
                Err(error) => return self.differences.push(error.to_string()),
            }
        }
        match said.rows.map(|was| (rows_in(path, shell), was)) {
            Some((Ok(Some(is)), was)) if is != was => {
                self.differences.push(format!("{name} has {is} rows instead of {was}"));
            }
            Some((Err(reason), _)) => self.differences.push(format!("{name}: {reason}")),
            _ => {}
        }
    }
}

/// How many rows a file says it has, where its format counts them.
fn rows_in(path: &Path, shell: &Shell) -> Result<Option<u64>, String> {
    let file = Input { path: path.to_owned(), bytes: None };
    let found = match inputs::source_of(shell, std::slice::from_ref(&file), None) {
        Ok(found) => found,
        // Not all that can be written can be read.
        Err(Failure::WrongUse(_)) => return Ok(None),
        Err(failure @ (Failure::Failed(_) | Failure::Error(_))) => return Err(failure.message()),
        Err(_) => return Ok(None),
    };
    let (PluginFactory::Source(make), Some(text)) = (found.make, path.to_str()) else {
        return Ok(None);
    };
    let Ok(source) = make(json!({ "path": text })) else { return Ok(None) };
    source.events_in(path).map_err(|error| error.to_string())
}
