//! Compares folders and files with what was recorded of them: by manifests, by the record of a batch, by
//! reports. Looks into no log.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Component, Path, PathBuf};

use serde::Deserialize;
use sluice_core::Error;
use sluice_core::files::{self, Found};
use sluice_core::output::MANIFEST;
use sluice_core::store::is_address;
use sluice_pipeline::batch::{JOURNAL, Record, UnitRecord};
use sluice_pipeline::manifest::OutputFile;

use super::verdict::Verdict;
use crate::ending::Failure;
use crate::shell::Shell;
use crate::units;

/// What an output is said to be: by a manifest or by a report.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Said {
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
    pub(super) blake3: Option<String>,
    /// Nothing in manifests that were not written by this program.
    pub(super) rows: Option<u64>,
}

impl From<&OutputFile> for Said {
    fn from(file: &OutputFile) -> Self {
        let OutputFile { path, rows, bytes, blake3 } = file.clone();
        Self { path, bytes, blake3, rows: Some(rows) }
    }
}

/// The part of manifests and reports that is looked at.
#[derive(Debug, Deserialize)]
pub(super) struct Listing {
    pub(super) files: Option<Vec<Said>>,
    /// Why there are no files: the run failed.
    pub(super) error: Option<String>,
    #[serde(default)]
    partial: bool,
}

/// Judges an output folder.
pub(super) fn judge_folder(folder: &Path, shell: &Shell) -> Result<Verdict, Failure> {
    if let Some(record) = Record::read(folder)? {
        return judge_batch(folder, &record, shell);
    }
    let place = folder.join(MANIFEST);
    if !files::exists(&place) {
        let what =
            format!("it has no {MANIFEST}: it is no output folder, or it was never completed");
        return Ok(Verdict::different(what));
    }
    let mut verdict = Verdict::default();
    let listing = match listing(&place)? {
        Some(listing) => listing,
        None => return Ok(Verdict::different(format!("{MANIFEST} cannot be understood"))),
    };
    let mut known = BTreeSet::new();
    for said in listing.files.iter().flatten() {
        if is_inside(&said.path) {
            verdict.compare(&folder.join(&said.path), said, shell);
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
    if listing.partial {
        verdict.differences.push("the run was stopped early; --resume does it again".to_owned());
    }
    Ok(verdict)
}

/// Judges the outputs of a batch. Files that its record does not name are those of others.
fn judge_batch(folder: &Path, record: &Record, shell: &Shell) -> Result<Verdict, Failure> {
    let mut verdict = Verdict::default();
    let mut judged = BTreeSet::new();
    let mut recorded = 0;
    for unit in record.recorded() {
        verdict.add(judge_unit(folder, unit, &mut judged, shell)?);
        recorded += 1;
        if unit.partial {
            let outputs: Vec<String> =
                unit.outputs.iter().map(|path| path.display().to_string()).collect();
            verdict.differences.push(format!(
                "{}: the run was stopped early; --resume does it again",
                outputs.join(", ")
            ));
        }
    }
    // The files of the last units may not have appeared any more, or be those of an earlier run.
    for unit in record.journaled() {
        let appeared = unit.files.iter().all(|file| {
            let found = files::look(&folder.join(&file.path));
            found.is_ok_and(|found| found == Some(Found::File(file.bytes)))
        });
        if appeared && unit.files.iter().all(|file| !judged.contains(&folder.join(&file.path))) {
            verdict.add(judge_unit(folder, unit, &mut judged, shell)?);
            recorded += 1;
        }
    }
    verdict.differences.extend(record.in_parts());
    if record.is_open {
        let inputs = units::many(recorded, "input");
        verdict.differences.push(format!(
            "a batch was interrupted, or is still going on: {inputs} recorded; the same command with \
             --resume completes it"
        ));
    }
    Ok(verdict)
}

fn judge_unit(
    folder: &Path,
    unit: &UnitRecord,
    judged: &mut BTreeSet<PathBuf>,
    shell: &Shell,
) -> Result<Verdict, Failure> {
    let mut verdict = Verdict::default();
    let is_manifest = |file: &&OutputFile| file.path.file_name().is_some_and(|n| n == MANIFEST);
    // A folder of its own has a list of its own, which also tells what does not belong there.
    let folders: Vec<PathBuf> = unit
        .files
        .iter()
        .filter(is_manifest)
        .filter_map(|file| Some(folder.join(&file.path).parent()?.to_owned()))
        .filter(|inside| files::exists(&inside.join(MANIFEST)))
        .collect();
    for file in &unit.files {
        let path = folder.join(&file.path);
        let has_list = folders.iter().any(|inside| path.starts_with(inside));
        if !has_list || is_manifest(&file) {
            verdict.compare(&path, &Said::from(file), shell);
        }
        judged.insert(path);
    }
    for inside in folders {
        let mut within = judge_folder(&inside, shell)?;
        let name = inside.strip_prefix(folder).unwrap_or(&inside).display().to_string();
        within.differences.iter_mut().for_each(|one| *one = format!("{name}: {one}"));
        verdict.add(within);
    }
    Ok(verdict)
}

fn is_inside(path: &Path) -> bool {
    path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
}

/// Every file below `folder` but the manifest and what a run that was killed left, sorted.
fn list(folder: &Path, below: &Path, found: &mut Vec<PathBuf>) -> Result<(), Failure> {
    if let Some(objects) = files::objects_below(folder)? {
        let inside = objects.iter().filter_map(|object| object.path.strip_prefix(folder).ok());
        let is_output = |path: &&Path| !path.iter().any(is_litter) && *path != Path::new(MANIFEST);
        found.extend(inside.filter(is_output).map(Path::to_owned));
        return Ok(());
    }
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
        if is_litter(&name) || path == Path::new(MANIFEST) {
            continue;
        }
        if is_folder {
            list(folder, &path, found)?;
        } else {
            found.push(path);
        }
    }
    Ok(())
}

/// Whether it has the name of what runs leave that are killed, files and folders of files: no part of what they
/// wrote.
fn is_litter(name: &OsStr) -> bool {
    let bytes = name.as_encoded_bytes();
    bytes.starts_with(b".") && bytes.ends_with(b".sluice-tmp")
}

/// Paths in reports are as the run saw them: relative to the folder it was run in.
pub(super) fn judge_report(report: &Listing, shell: &Shell) -> Verdict {
    let mut verdict = Verdict::default();
    let on_disk = report.files.iter().flatten().filter(|said| said.path != Path::new("-"));
    on_disk.for_each(|said| verdict.compare(&said.path, said, shell));
    verdict.differences.extend(report.error.iter().map(|error| format!("the run failed: {error}")));
    verdict
}

/// The report in this file, if it is one.
pub(super) fn report(path: &Path) -> Result<Option<Listing>, Failure> {
    let is_json = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"));
    if !is_json { Ok(None) } else { listing(path) }
}

fn listing(path: &Path) -> Result<Option<Listing>, Failure> {
    let bytes = files::read(path)?;
    let listing: Option<Listing> = serde_json::from_slice(&bytes).ok();
    Ok(listing.filter(|listing| listing.files.is_some() || listing.error.is_some()))
}

/// Everything that is recorded of a file in the folders around it, the latest first. Only the first is
/// true, unless a run was killed before the file appeared.
pub(super) fn recorded(path: &Path) -> Result<Vec<Said>, Failure> {
    let (Some(path), Some(name)) = (real(path), path.file_name()) else { return Ok(Vec::new()) };
    for folder in path.ancestors().skip(1) {
        // A store has nothing above its buckets.
        if is_address(&path) && !is_address(folder) {
            break;
        }
        if !files::exists(&folder.join(MANIFEST)) && !has_journal(folder)? {
            continue;
        }
        let place = |said: &Said| folder.join(&said.path) == path;
        let mut said: Vec<Said> = match Record::read(folder)? {
            Some(record) => {
                let files = record.latest_first().flat_map(|unit| &unit.files);
                files.map(Said::from).filter(place).collect()
            }
            None => {
                let listing = listing(&folder.join(MANIFEST))?.and_then(|listing| listing.files);
                listing.into_iter().flatten().filter(place).collect()
            }
        };
        if !said.is_empty() {
            said.iter_mut().for_each(|said| said.path = name.into());
            return Ok(said);
        }
    }
    Ok(Vec::new())
}

/// Whether a batch that is not over has its journal in a folder: a file, or some objects.
fn has_journal(folder: &Path) -> Result<bool, Error> {
    let journal = folder.join(JOURNAL);
    let lines = files::objects_below(&journal)?;
    Ok(lines.map_or_else(|| journal.exists(), |lines| !lines.is_empty()))
}

/// Where a file really lies, through links; addresses are what they are.
fn real(path: &Path) -> Option<PathBuf> {
    if is_address(path) { Some(path.to_owned()) } else { path.canonicalize().ok() }
}
