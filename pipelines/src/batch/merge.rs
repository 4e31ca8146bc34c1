//! Merges the records of shards into the record of an unsharded run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use sluice_io::output::sweep;
use sluice_model::Error;

use super::record::BatchRecord;
use super::recorder::BatchRecorder;
use super::shard::{Shard, ShardFiles, missing_shards, mixed_batches, unfinished_shard};
use super::unit_record::{UnitRecord, has_recorded_hash, has_recorded_length};

/// How files are checked before their records are merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileCheck {
    /// They exist with the recorded length.
    Length,
    /// They have the recorded hash. Reads them in full.
    Hash,
}

/// The outcome of a merge.
#[derive(Debug, PartialEq, Eq)]
pub enum MergeOutcome {
    /// The records are merged.
    Done {
        /// The number of shards.
        parts: usize,
        /// The number of units.
        units: usize,
    },
    /// There are no shard records, but a merged one.
    AlreadyMerged,
    /// The records cannot be merged, for these reasons. Nothing was changed.
    Incomplete(Vec<String>),
}

/// Merges the shard records in a folder, if all shards are complete and valid. The result is the
/// record of an unsharded run.
pub fn merge(folder: &Path, check: FileCheck) -> Result<MergeOutcome, Error> {
    let record = BatchRecord::to_continue(folder)?;
    if record.shards.is_empty() {
        let what = "there are no shard records here".to_owned();
        return Ok(if record.units.is_empty() {
            MergeOutcome::Incomplete(vec![what])
        } else {
            MergeOutcome::AlreadyMerged
        });
    }
    // Held until the record is written, so that no shard starts meanwhile.
    let recorder = BatchRecorder::open(folder, None)?;
    let parts = &recorder.previous().shards;
    if parts.is_empty() {
        return Ok(MergeOutcome::AlreadyMerged);
    }
    let problems = merge_problems(folder, (parts, &recorder.previous().units), check);
    if !problems.is_empty() {
        return Ok(MergeOutcome::Incomplete(problems));
    }
    let units: Vec<&UnitRecord> = shard_units(parts).map(|(_, unit)| unit).collect();
    let outputs: Vec<PathBuf> =
        units.iter().flat_map(|unit| &unit.outputs).map(|path| folder.join(path)).collect();
    let merged = MergeOutcome::Done { parts: parts.len(), units: units.len() };
    recorder.close(Vec::new(), Vec::new())?;
    sweep(outputs.iter().map(PathBuf::as_path));
    Ok(merged)
}

/// All units of the batch, each with its shard.
fn shard_units(parts: &[ShardFiles]) -> impl Iterator<Item = (Shard, &UnitRecord)> {
    parts.iter().flat_map(|part| {
        part.record.iter().flat_map(|record| &record.units).map(|unit| (part.shard, unit))
    })
}

/// Why the shards do not form a complete batch.
fn merge_problems(
    folder: &Path,
    (parts, merged): (&[ShardFiles], &[UnitRecord]),
    check: FileCheck,
) -> Vec<String> {
    let mut problems = mixed_batches(parts);
    if problems.is_empty() {
        problems.extend(missing_shards(parts, merged));
        problems.extend(parts.iter().filter_map(unfinished_shard));
        problems.extend(duplicate_outputs(parts));
        problems.extend(changed_files(folder, parts, check));
    }
    problems
}

fn duplicate_outputs(parts: &[ShardFiles]) -> Vec<String> {
    let mut claimed: BTreeMap<&PathBuf, Shard> = BTreeMap::new();
    let mut twice = Vec::new();
    for (shard, unit) in shard_units(parts) {
        for output in &unit.outputs {
            if let Some(other) = claimed.insert(output, shard) {
                let output = output.display();
                twice.push(format!(
                    "shards {other} and {shard} both claim to have written {output}"
                ));
            }
        }
    }
    twice
}

fn changed_files(folder: &Path, parts: &[ShardFiles], check: FileCheck) -> Vec<String> {
    let mut other = Vec::new();
    for (shard, unit) in shard_units(parts) {
        let is_other = |file: &&crate::manifest::OutputFile| match check {
            FileCheck::Length => !has_recorded_length(folder, file),
            FileCheck::Hash => {
                !(has_recorded_length(folder, file) && has_recorded_hash(folder, file))
            }
        };
        let files = unit.files.iter().filter(is_other).map(|file| {
            let path = file.path.display();
            format!(
                "{path} has changed since shard {shard} wrote it; `--shard {shard} --resume` \
                 writes it again"
            )
        });
        other.extend(files);
    }
    other
}
