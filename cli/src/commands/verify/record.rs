//! Compares folders and files with manifests, batch records and reports. Opens no log.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use sluice_io::escape::path_text;
use sluice_io::files;
use sluice_io::output::MANIFEST;
use sluice_io::store::is_address;
use sluice_model::{Error, units};
use sluice_pipeline::batch::{
    BatchRecord, JOURNAL, Status, UnfinishedUnit, UnitRecord, actual_path,
};
use sluice_pipeline::manifest::OutputFile;

use super::listing::{FileListing, ReportedUnit, is_inside, list, listing, names_in};
use super::result::{RecordedFile, VerifyResult};
use super::unrecorded::unrecorded_tables;
use crate::exit::Failure;
use crate::shell::Shell;
use crate::stdout;

/// The number of unfinished inputs listed.
const MAX_UNFINISHED_SHOWN: usize = 20;

/// The message for outputs of a run that stopped before the end of its input.
pub(super) const STOPPED_EARLY: &str =
    "the run stopped before the end of its input; --overwrite runs it again";

/// Verifies an output folder.
pub(super) fn verify_folder(folder: &Path, shell: &Shell) -> Result<VerifyResult, Failure> {
    if let Some(record) = BatchRecord::read(folder)? {
        return verify_batch(folder, &record, shell);
    }
    match files::exists(&folder.join(MANIFEST)) {
        true => verify_run(folder, shell),
        false => verify_pieces(folder, shell),
    }
}

/// Verifies the output folder of a single run.
fn verify_run(folder: &Path, shell: &Shell) -> Result<VerifyResult, Failure> {
    let mut result = VerifyResult::default();
    let Some(listing) = listing(&folder.join(MANIFEST))? else {
        return Ok(VerifyResult::different(format!(
            "{MANIFEST} is not valid: it is not the manifest of a single run"
        )));
    };
    let mut known = BTreeSet::new();
    for entry in listing.files.iter().flatten() {
        if is_inside(&entry.path) {
            result.compare(&folder.join(&entry.path), entry, shell);
            known.insert(entry.path.clone());
        } else {
            let path = entry.path.display();
            result.differences.push(format!("{MANIFEST} names {path}, which is not in the folder"));
        }
    }
    let mut found = Vec::new();
    list(folder, Path::new(""), &mut found)?;
    for path in found.iter().filter(|path| !known.contains(*path)) {
        result.differences.push(format!("{} is not in {MANIFEST}", path_text(path)));
    }
    if listing.partial {
        result.differences.push(STOPPED_EARLY.to_owned());
    }
    Ok(result)
}

/// Whether a manifest, the record of a batch or the pieces of a recording are in a folder, or it
/// cannot be told.
pub(super) fn has_record(folder: &Path) -> bool {
    files::exists(&folder.join(MANIFEST))
        || !BatchRecord::read(folder).is_ok_and(|record| record.is_none())
        || names_in(folder).iter().any(is_piece)
}

fn is_piece(name: &OsString) -> bool {
    name.as_encoded_bytes().starts_with(b"piece=")
}

/// Verifies the pieces of a recording. Each is an output folder; the folder around them has no
/// manifest, as a later recording may add pieces.
fn verify_pieces(folder: &Path, shell: &Shell) -> Result<VerifyResult, Failure> {
    let (pieces, others): (Vec<_>, Vec<_>) = names_in(folder).into_iter().partition(is_piece);
    if pieces.is_empty() {
        return Ok(VerifyResult::different(no_manifest()));
    }
    let mut result = VerifyResult::default();
    for piece in pieces {
        result.add(verify_inside(folder, &folder.join(piece), shell)?);
    }
    let is_in_none = |name: OsString| format!("{} is in no piece", path_text(Path::new(&name)));
    result.differences.extend(others.into_iter().map(is_in_none));
    Ok(result)
}

fn no_manifest() -> String {
    format!(
        "it has no {MANIFEST}: it is not an output folder, was never completed, or belongs to a \
         batch, whose record is in the folder of its first sink"
    )
}

/// What is wrong with a piece of a recording that has no manifest, and what to do.
fn unfinished_piece(piece: &Path) -> Result<String, Failure> {
    let mut found = Vec::new();
    list(piece, Path::new(""), &mut found)?;
    Ok(if found.is_empty() {
        "it has no tables: a recording is writing it, or was killed before they were complete; if \
         none is running, delete it"
            .to_owned()
    } else {
        format!(
            "it has no {MANIFEST}: a recording is completing it, or was killed while it did, and \
             tables may be missing; if none is running, `sluice convert` it to another folder, \
             which has a manifest, and put that in its place; or delete it"
        )
    })
}

/// Verifies the output folder of a single run that belongs to another one. What it names may lead
/// back here, so nothing else is verified inside.
fn verify_inside(folder: &Path, inside: &Path, shell: &Shell) -> Result<VerifyResult, Failure> {
    let mut within = match files::exists(&inside.join(MANIFEST)) {
        true => verify_run(inside, shell)?,
        false => VerifyResult::different(unfinished_piece(inside)?),
    };
    let name = path_text(inside.strip_prefix(folder).unwrap_or(inside));
    within.differences.iter_mut().for_each(|one| *one = format!("{name}: {one}"));
    Ok(within)
}

/// Verifies the outputs of a batch. The folder may have other files, such as its inputs.
fn verify_batch(
    folder: &Path,
    record: &BatchRecord,
    shell: &Shell,
) -> Result<VerifyResult, Failure> {
    let mut result = VerifyResult::default();
    let current = record.current(folder);
    for unit in &current {
        result.add(verify_unit(folder, unit, shell)?);
    }
    result.differences.extend(unrecorded_tables(folder, &current)?);
    result.differences.extend(record.shard_notes());
    // An input that is left may have been done before: a later batch began it anew.
    let left: BTreeSet<&PathBuf> = record.left.iter().flat_map(|unit| &unit.outputs).collect();
    let is_other = |unit: &&&UnitRecord| !unit.outputs.iter().any(|path| left.contains(path));
    let others = current.iter().filter(is_other).count();
    result.differences.extend(unfinished_inputs(&record.left, others));
    if record.is_open {
        let inputs = units::pluralize(current.len() as u64, "input");
        result.differences.push(format!(
            "a batch was interrupted, or is still running: {inputs} recorded; the same command \
             with --resume completes it"
        ));
    }
    Ok(result)
}

/// Lists the inputs that a completed batch did not finish, beside `others` that are done.
fn unfinished_inputs(left: &[UnfinishedUnit], others: usize) -> Vec<String> {
    if left.is_empty() {
        return Vec::new();
    }
    let count = |status| left.iter().filter(|unit| unit.status == status).count();
    let parts = [Status::Failed, Status::Interrupted, Status::NotStarted].map(|status| {
        let count = count(status);
        (count > 0).then(|| format!("{} {status}", units::count(count as u64)))
    });
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    let is_not_done = if left.len() == 1 { "is not done" } else { "are not done" };
    let all = format!(
        "the batch is incomplete: {} {is_not_done} ({}), of {} in all; the same command with \
         --resume continues",
        units::pluralize(left.len() as u64, "input"),
        parts.join(", "),
        units::count((left.len() + others) as u64),
    );
    let each = left.iter().take(MAX_UNFINISHED_SHOWN).map(|unit| {
        let (input, status) = (stdout::printable_path(&unit.input), unit.status);
        match &unit.error {
            Some(error) => format!("{input}: {status}: {error}"),
            None => format!("{input}: {status}"),
        }
    });
    let more = left.len().saturating_sub(MAX_UNFINISHED_SHOWN);
    let more = (more > 0).then(|| format!("and {} more", units::count(more as u64)));
    std::iter::once(all).chain(each).chain(more).collect()
}

fn verify_unit(folder: &Path, unit: &UnitRecord, shell: &Shell) -> Result<VerifyResult, Failure> {
    let mut result = VerifyResult::default();
    let is_manifest = |file: &&OutputFile| file.path.file_name().is_some_and(|n| n == MANIFEST);
    // A unit's own folder has its own manifest, which also shows extra files.
    let folders: Vec<PathBuf> = unit
        .files
        .iter()
        .filter(is_manifest)
        .filter_map(|file| Some(actual_path(folder, &file.path).parent()?.to_owned()))
        .filter(|inside| files::exists(&inside.join(MANIFEST)))
        .collect();
    for file in &unit.files {
        let path = actual_path(folder, &file.path);
        let has_list = folders.iter().any(|inside| path.starts_with(inside));
        if !has_list || is_manifest(&file) {
            result.compare(&path, &RecordedFile::from(file), shell);
        }
    }
    // A unit's own folders say so in their manifests.
    if unit.ended.partial && folders.is_empty() {
        let outputs: Vec<String> =
            unit.outputs.iter().map(|path| path.display().to_string()).collect();
        result.differences.push(format!("{}: {STOPPED_EARLY}", outputs.join(", ")));
    }
    for inside in folders {
        result.add(verify_inside(folder, &inside, shell)?);
    }
    Ok(result)
}

/// Verifies the files in a report. Their paths are relative to the working directory of the run.
pub(super) fn verify_report(report: &FileListing, shell: &Shell) -> VerifyResult {
    let mut result = VerifyResult::default();
    let on_disk = report.files.iter().flatten().filter(|entry| entry.path != Path::new("-"));
    let on_disk: Vec<&RecordedFile> = on_disk.collect();
    on_disk.iter().for_each(|entry| result.compare(&entry.path, entry, shell));
    let is_elsewhere =
        |entry: &&RecordedFile| entry.path.is_relative() && !files::exists(&entry.path);
    if !on_disk.is_empty() && on_disk.iter().all(is_elsewhere) {
        result.differences.push(
            "paths in a report are relative to the folder in which the run was started: if that \
             is not this folder, verify the report there"
                .to_owned(),
        );
    }
    // That of a batch is the first of its inputs, which are listed.
    let error = report.error.iter().filter(|_| report.units.is_empty());
    result.differences.extend(error.map(|error| format!("the run failed: {error}")));
    let done = |unit: &&ReportedUnit| matches!(unit.status, Status::Done | Status::Skipped);
    let left = report.units.iter().filter(|unit| !done(unit)).map(|unit| UnfinishedUnit {
        input: unit.input.clone(),
        outputs: Vec::new(),
        status: unit.status,
        error: unit.error.clone(),
    });
    let left: Vec<UnfinishedUnit> = left.collect();
    if report.interrupted && report.error.is_none() && left.is_empty() {
        result.differences.push(STOPPED_EARLY.to_owned());
    }
    result.differences.extend(unfinished_inputs(&left, report.units.len() - left.len()));
    result
}

/// Reads a report; `None` if the file is not one.
pub(super) fn report(path: &Path) -> Result<Option<FileListing>, Failure> {
    let is_json = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"));
    if !is_json { Ok(None) } else { listing(path) }
}

/// All records of a file in the folders above it, latest first. Only the first is current, unless a
/// run was killed before the file appeared.
pub(super) fn recorded(path: &Path) -> Result<Vec<RecordedFile>, Failure> {
    let (Some(path), Some(name)) = (canonical(path), path.file_name()) else {
        return Ok(Vec::new());
    };
    for folder in path.ancestors().skip(1) {
        // An object store has nothing above its buckets.
        if is_address(&path) && !is_address(folder) {
            break;
        }
        if !files::exists(&folder.join(MANIFEST)) && !has_journal(folder)? {
            continue;
        }
        let is_this_file = |entry: &RecordedFile| actual_path(folder, &entry.path) == path;
        let mut entries: Vec<RecordedFile> = match BatchRecord::read(folder)? {
            Some(record) => {
                let of_unit = |unit: &UnitRecord| {
                    let partial = unit.ended.partial;
                    let files = unit.files.iter().map(RecordedFile::from);
                    files.map(|entry| RecordedFile { partial, ..entry }).collect::<Vec<_>>()
                };
                record.latest_first().flat_map(of_unit).filter(is_this_file).collect()
            }
            None => {
                let listing = listing(&folder.join(MANIFEST))?;
                let partial = listing.as_ref().is_some_and(|listing| listing.partial);
                let files = listing.and_then(|listing| listing.files).into_iter().flatten();
                files.map(|entry| RecordedFile { partial, ..entry }).filter(is_this_file).collect()
            }
        };
        if !entries.is_empty() {
            entries.iter_mut().for_each(|entry| entry.path = name.into());
            return Ok(entries);
        }
    }
    Ok(Vec::new())
}

/// Whether a folder has the journal of an unfinished batch: a file, or objects.
fn has_journal(folder: &Path) -> Result<bool, Error> {
    let journal = folder.join(JOURNAL);
    let lines = files::objects_below(&journal)?;
    Ok(lines.map_or_else(|| journal.exists(), |lines| !lines.is_empty()))
}

/// Resolves links; object store addresses stay as they are.
fn canonical(path: &Path) -> Option<PathBuf> {
    if is_address(path) { Some(path.to_owned()) } else { path.canonicalize().ok() }
}
