//! The result of verifying a path, and the comparison of one file with its record.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Value, json};
use sluice_io::escape::{path_text, printable_sentence};
use sluice_io::files::{self, PathKind};
use sluice_model::units;
use sluice_pipeline::manifest::OutputFile;

use crate::exit::{ExitStatus, Failure};
use crate::shell::Shell;
use crate::sniffing;
use crate::stdout;

/// The result of verifying a path.
#[derive(Debug, Default)]
pub(super) struct VerifyResult {
    pub(super) files: u64,
    pub(super) bytes: u64,
    /// Differences from the record.
    pub(super) differences: Vec<String>,
    /// Damage inside logs.
    pub(super) damage: Vec<String>,
}

/// An output file as recorded by a manifest or report.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct RecordedFile {
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
    pub(super) blake3: Option<String>,
    /// `None` in manifests of other programs.
    pub(super) rows: Option<u64>,
    /// Whether the run that wrote it stopped before the end of its input.
    #[serde(skip)]
    pub(super) partial: bool,
}

impl From<&OutputFile> for RecordedFile {
    fn from(file: &OutputFile) -> Self {
        let OutputFile { path, rows, bytes, blake3 } = file.clone();
        Self { path, bytes, blake3, rows: Some(rows), partial: false }
    }
}

impl VerifyResult {
    pub(super) fn different(sentence: String) -> Self {
        Self { differences: vec![sentence], ..Self::default() }
    }

    pub(super) fn status(&self) -> ExitStatus {
        match (self.differences.is_empty(), self.damage.is_empty()) {
            (false, _) => ExitStatus::Failed,
            (true, false) => ExitStatus::Losses,
            (true, true) => ExitStatus::Done,
        }
    }

    pub(super) fn text(&self, path: &Path) -> String {
        let path = stdout::printable_path(path);
        let found =
            format!("{}, {}", units::pluralize(self.files, "file"), units::bytes(self.bytes));
        let sentences = self.differences.iter().chain(&self.damage);
        let sentences: Vec<Cow<'_, str>> = sentences.map(|one| printable_sentence(one)).collect();
        match (sentences.as_slice(), self.status()) {
            ([], _) => format!("{path}: ok ({found})\n"),
            ([one], ExitStatus::Failed) => format!("{path}: differs: {one}\n"),
            ([one], _) => format!("{path}: damaged: {one}\n"),
            (many, ending) => {
                let word = if ending == ExitStatus::Failed { "differs" } else { "damaged" };
                let lines: String = many.iter().map(|one| format!("  {one}\n")).collect();
                format!("{path}: {word}:\n{lines}")
            }
        }
    }

    pub(super) fn to_json(&self, path: &Path) -> Value {
        json!({
            "path": path_text(path),
            "files": self.files,
            "bytes": self.bytes,
            "differences": self.differences,
            "damage": self.damage,
            "exit": self.status().code(),
        })
    }

    /// Adds the result of a part.
    pub(super) fn add(&mut self, part: Self) {
        self.files += part.files;
        self.bytes += part.bytes;
        self.differences.extend(part.differences);
        self.damage.extend(part.damage);
    }

    /// Compares a file with its record.
    pub(super) fn compare(&mut self, path: &Path, expected: &RecordedFile, shell: &Shell) {
        let name = expected.path.display();
        let length = match files::path_kind(path) {
            Ok(Some(PathKind::File(length))) => length,
            Ok(Some(_)) => return self.differences.push(format!("{name} is not a file")),
            Ok(None) => return self.differences.push(format!("{name} is missing")),
            Err(error) => return self.differences.push(error.to_string()),
        };
        self.files += 1;
        self.bytes += length;
        if length != expected.bytes {
            let was = expected.bytes;
            return self.differences.push(format!("{name} has {length} bytes instead of {was}"));
        }
        if let Some(was) = &expected.blake3 {
            match files::hash_file(path) {
                Ok(is) if is == *was => {}
                Ok(is) => {
                    return self
                        .differences
                        .push(format!("{name} has the hash {is} instead of {was}"));
                }
                Err(error) => return self.differences.push(error.to_string()),
            }
        }
        match expected.rows.map(|was| (count_rows(path, shell), was)) {
            Some((Ok(Some(is)), was)) if is != was => {
                self.differences.push(format!("{name} has {is} rows instead of {was}"));
            }
            // The bytes are those that were written: some tables are of formats that only whole
            // folders show.
            Some((Err(_), _)) if expected.blake3.is_some() => {}
            Some((Err(reason), _)) => self.differences.push(format!("{name}: {reason}")),
            _ => {}
        }
    }
}

/// The number of rows in a file, if its format counts them.
fn count_rows(path: &Path, shell: &Shell) -> Result<Option<u64>, String> {
    let found = match sniffing::sniff(shell, path) {
        Ok(found) => found,
        Err(failure @ (Failure::Failed(_) | Failure::Error(_))) => return Err(failure.message()),
        // Some formats can only be written.
        Err(_) => return Ok(None),
    };
    let Some(text) = path.to_str() else { return Ok(None) };
    let source = shell.registry.source(found.name, json!({ "path": text }));
    let Ok(source) = source else { return Ok(None) };
    source.events_in(path).map_err(|error| error.to_string())
}
