//! `verify`: compares outputs with what was written of them when they were made, and looks for damage.
//! Changes nothing.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex};

use serde::Deserialize;
use sluice_core::{Error, Input};
use sluice_pipeline::manifest;

use crate::args::VerifyArgs;
use crate::commands::info::Counting;
use crate::ending::{Ending, Failure, Outcome};
use crate::inputs;
use crate::shell::Shell;
use crate::units;

const MANIFEST: &str = "_manifest.json";

/// What an output is said to be: by a manifest or by a report.
#[derive(Clone, Debug, Deserialize)]
struct Said {
    path: PathBuf,
    bytes: u64,
    blake3: Option<String>,
}

/// The part of manifests and reports that is looked at.
#[derive(Debug, Deserialize)]
struct Record {
    files: Option<Vec<Said>>,
    /// Why there are no files: the run failed.
    error: Option<String>,
}

/// What was found out about a path.
#[derive(Debug, Default)]
struct Verdict {
    files: u64,
    bytes: u64,
    /// Sentences on what is not as it should be.
    differences: Vec<String>,
    /// Sentences on damage inside.
    damage: Vec<String>,
}

/// Judges every path, also behind one that is wrong.
pub(crate) fn run(args: &VerifyArgs, shell: &Shell) -> Outcome {
    let mut worst = Ending::Done;
    for path in &args.paths {
        let verdict = match judge(path, shell) {
            Ok(verdict) => verdict,
            Err(Failure::WrongUse(message) | Failure::Failed(message)) => {
                Verdict::different(message)
            }
            Err(failure) => return Err(failure),
        };
        io::stdout().write_all(verdict.text(path).as_bytes())?;
        worst = worst.max(verdict.ending());
    }
    Ok(worst)
}

impl Verdict {
    fn different(sentence: String) -> Self {
        Self { differences: vec![sentence], ..Self::default() }
    }

    fn ending(&self) -> Ending {
        match (self.differences.is_empty(), self.damage.is_empty()) {
            (false, _) => Ending::Wrong,
            (true, false) => Ending::Losses,
            (true, true) => Ending::Done,
        }
    }

    fn text(&self, path: &Path) -> String {
        let path = path.display();
        let found = format!("{}, {}", units::many(self.files, "file"), units::bytes(self.bytes));
        let sentences: Vec<&String> = self.differences.iter().chain(&self.damage).collect();
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

    /// Counts files of which nothing is said.
    fn count(&mut self, files: &[Input]) {
        self.files = files.len() as u64;
        self.bytes = files.iter().filter_map(|file| file.bytes).sum();
    }

    /// Compares a file with what is said of it.
    fn compare(&mut self, path: &Path, said: &Said) {
        let name = said.path.display();
        let length = match fs::metadata(path) {
            Ok(meta) if meta.is_file() => meta.len(),
            Ok(_) => return self.differences.push(format!("{name} is not a file")),
            Err(error) => {
                let what = if error.kind() == io::ErrorKind::NotFound {
                    "is missing".into()
                } else {
                    error.to_string()
                };
                return self.differences.push(format!("{name} {what}"));
            }
        };
        self.files += 1;
        self.bytes += length;
        if length != said.bytes {
            let was = said.bytes;
            return self.differences.push(format!("{name} has {length} bytes instead of {was}"));
        }
        let Some(was) = &said.blake3 else { return };
        match manifest::hash_file(path) {
            Ok(is) if is == *was => {}
            Ok(is) => self.differences.push(format!("{name} has the hash {is} instead of {was}")),
            Err(error) => self.differences.push(error.to_string()),
        }
    }
}

fn judge(path: &Path, shell: &Shell) -> Result<Verdict, Failure> {
    if path.is_dir() {
        return judge_folder(path);
    }
    if path.file_name().is_some_and(|name| name == MANIFEST) {
        return judge_folder(path.parent().unwrap_or(Path::new(".")));
    }
    if let Some(report) = report(path)? {
        return Ok(judge_report(&report));
    }
    judge_log(path, shell)
}

fn judge_folder(folder: &Path) -> Result<Verdict, Failure> {
    let place = folder.join(MANIFEST);
    if !place.exists() {
        let what =
            format!("it has no {MANIFEST}: it is no output folder, or it was never completed");
        return Ok(Verdict::different(what));
    }
    let mut verdict = Verdict::default();
    let record = match record(&place)? {
        Some(record) => record,
        None => return Ok(Verdict::different(format!("{MANIFEST} cannot be understood"))),
    };
    let mut known = BTreeSet::new();
    for said in record.files.iter().flatten() {
        if is_inside(&said.path) {
            verdict.compare(&folder.join(&said.path), said);
            known.insert(said.path.clone());
        } else {
            let path = said.path.display();
            verdict
                .differences
                .push(format!("{MANIFEST} names {path}, which is not in the folder"));
        }
    }
    let mut found = Vec::new();
    list(folder, Path::new(""), &mut found)?;
    for path in found.iter().filter(|path| !known.contains(*path)) {
        verdict.differences.push(format!("{} is not in {MANIFEST}", path.display()));
    }
    Ok(verdict)
}

fn is_inside(path: &Path) -> bool {
    path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
}

/// Every file below `folder` but the manifest and what a run that was killed left, sorted.
fn list(folder: &Path, below: &Path, found: &mut Vec<PathBuf>) -> Result<(), Failure> {
    let here = folder.join(below);
    let fail = |e| Error::io("list", &here, e);
    let mut inside = Vec::new();
    for file in fs::read_dir(&here).map_err(fail)? {
        let file = file.map_err(fail)?;
        inside.push((file.file_name(), file.file_type().map_err(fail)?.is_dir()));
    }
    inside.sort();
    for (name, is_folder) in inside {
        let path = below.join(&name);
        let bytes = name.as_encoded_bytes();
        let ours = path == Path::new(MANIFEST) || bytes.ends_with(b".sluice-tmp");
        if is_folder {
            list(folder, &path, found)?;
        } else if !ours {
            found.push(path);
        }
    }
    Ok(())
}

/// The report in this file, if it is one.
fn report(path: &Path) -> Result<Option<Record>, Failure> {
    let is_json = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"));
    if !is_json { Ok(None) } else { record(path) }
}

fn record(path: &Path) -> Result<Option<Record>, Failure> {
    let bytes = fs::read(path).map_err(|e| Error::io("read", path, e))?;
    let record: Option<Record> = serde_json::from_slice(&bytes).ok();
    Ok(record.filter(|record| record.files.is_some() || record.error.is_some()))
}

/// Paths in reports are as the run saw them: relative to the folder it was run in.
fn judge_report(report: &Record) -> Verdict {
    let mut verdict = Verdict::default();
    let on_disk = report.files.iter().flatten().filter(|said| said.path != Path::new("-"));
    on_disk.for_each(|said| verdict.compare(&said.path, said));
    verdict.differences.extend(report.error.iter().map(|error| format!("the run failed: {error}")));
    verdict
}

/// Reads a log through, after comparing it with what the manifest beside it says, if there is one.
fn judge_log(path: &Path, shell: &Shell) -> Result<Verdict, Failure> {
    let mut verdict = Verdict::default();
    let files = inputs::expand(path)?;
    let beside = manifest_beside(path)?;
    match &beside {
        Some(said) => verdict.compare(path, said),
        None => verdict.count(&files),
    }
    for file in &files {
        match inputs::source_of(shell, std::slice::from_ref(file), None) {
            Ok(source) => read_through(&file.path, source, &mut verdict)?,
            // Not all that can be written can be read; then what the manifest says is all there is.
            Err(Failure::WrongUse(_)) if beside.is_some() => {}
            Err(Failure::WrongUse(_)) => verdict.differences.push(NOTHING_TO_COMPARE.to_owned()),
            Err(failure) => return Err(failure),
        }
    }
    Ok(verdict)
}

const NOTHING_TO_COMPARE: &str =
    "no source of this program reads it and no manifest beside it names it, so nothing can be said";

fn read_through(
    path: &Path,
    source: &sluice_core::Plugin,
    verdict: &mut Verdict,
) -> Result<(), Failure> {
    let counting = Counting { result: Arc::new(Mutex::default()) };
    let report = inputs::read_into(source, path, Box::new(counting))?;
    for damage in &report.damage {
        let (length, offset) = (damage.length, damage.offset);
        verdict
            .damage
            .push(format!("{length} bytes at byte {offset} could not be read: {}", damage.reason));
    }
    Ok(())
}

/// What the manifest in the folder of a file says of it, if there is one and it does.
fn manifest_beside(path: &Path) -> Result<Option<Said>, Failure> {
    let (Some(name), folder) = (path.file_name(), path.parent().unwrap_or(Path::new(""))) else {
        return Ok(None);
    };
    let place = folder.join(MANIFEST);
    if !place.exists() {
        return Ok(None);
    }
    let record = record(&place)?;
    let files = record.and_then(|record| record.files);
    Ok(files.into_iter().flatten().find(|said| said.path == Path::new(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(files: &[(&str, &str)], manifest: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        fs::write(folder.path().join(MANIFEST), manifest).unwrap();
        folder
    }

    fn differences(files: &[(&str, &str)], manifest: &str) -> Vec<String> {
        judge_folder(folder(files, manifest).path()).unwrap().differences
    }

    /// The BLAKE3 hash of `abc`.
    const ABC: &str = "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85";

    #[test]
    fn a_folder_that_is_as_it_was_written_is_fine() {
        let manifest =
            format!(r#"{{"files": [{{"path": "x/a", "bytes": 3, "blake3": "{ABC}"}}]}}"#);
        assert_eq!(differences(&[("x/a", "abc")], &manifest), [""; 0]);
        assert_eq!(differences(&[("x/a", "abc"), (".b.1-0.sluice-tmp", "")], &manifest), [""; 0]);
    }

    #[test]
    fn everything_that_differs_is_told() {
        let manifest = format!(
            r#"{{"files": [{{"path": "a", "bytes": 3, "blake3": "{ABC}"}},
                {{"path": "b", "bytes": 3, "blake3": null}}, {{"path": "c", "bytes": 0, "blake3": null}},
                {{"path": "../d", "bytes": 0, "blake3": null}}]}}"#
        );
        let found = differences(&[("a", "abd"), ("b", "abcd"), ("y/e", "")], &manifest);
        let words = [
            "a has the hash",
            "b has 4 bytes instead of 3",
            "c is missing",
            "../d",
            "y/e is not in",
        ];
        assert_eq!(found.len(), words.len(), "{found:?}");
        for (sentence, word) in found.iter().zip(words) {
            assert!(sentence.contains(word), "{sentence}");
        }
    }

    #[test]
    fn a_folder_without_a_manifest_or_with_a_broken_one_differs() {
        let empty = tempfile::tempdir().unwrap();
        assert_eq!(judge_folder(empty.path()).unwrap().ending(), Ending::Wrong);
        assert_eq!(differences(&[], "{").len(), 1);
    }

    #[test]
    fn differences_weigh_more_than_damage() {
        let mut verdict = Verdict { damage: vec!["torn".into()], ..Verdict::default() };
        assert_eq!(verdict.ending().code(), 3);
        verdict.differences.push("other".into());
        assert_eq!(verdict.ending().code(), 1);
    }
}
