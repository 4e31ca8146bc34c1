//! Merges the records of shards into the record of an unsharded run.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use sluice_io::output::sweep;
use sluice_model::Error;

use super::record::BatchRecord;
use super::recorder::BatchRecorder;
use super::shard::{Shard, ShardFiles, missing_shards, mixed_batches, unfinished_shard};
use super::unit_record::{UnitRecord, has_recorded_hash, has_recorded_length};
use crate::names::NameReport;
use crate::report::Report;

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
        /// The names in options that matched nothing in any unit. Empty if only some shards were
        /// merged again.
        unmatched: Vec<NameReport>,
    },
    /// There are no shard records, but a merged one.
    AlreadyMerged {
        /// The names in options that matched nothing in any unit.
        unmatched: Vec<NameReport>,
    },
    /// The records cannot be merged, for these reasons. Nothing was changed.
    Incomplete(Vec<String>),
}

/// Merges the shard records in a folder, if all shards are complete and valid. The result is the
/// record of an unsharded run.
pub fn merge(folder: &Path, check: FileCheck) -> Result<MergeOutcome, Error> {
    let record = BatchRecord::to_continue(folder)?;
    if record.shards.is_empty() && record.units.is_empty() {
        return Ok(MergeOutcome::Incomplete(vec!["there are no shard records here".to_owned()]));
    }
    // Held until the record is written, so that no shard starts meanwhile.
    let mut recorder = BatchRecorder::open(folder, None)?;
    let BatchRecord { shards: parts, units: merged, .. } = recorder.previous();
    // Shards that ran again and had nothing to do leave no records, but may leave litter.
    let units = merged.iter().chain(shard_units(parts).map(|(_, unit)| unit));
    let outputs = units.flat_map(|unit| &unit.outputs).map(|path| folder.join(path));
    let outputs: BTreeSet<PathBuf> = outputs.collect();
    let remove_litter = || sweep(outputs.iter().map(PathBuf::as_path));
    if parts.is_empty() {
        let outcome = merged_before(recorder.previous());
        remove_litter();
        recorder.abandon();
        return Ok(outcome);
    }
    let problems = merge_problems(folder, (parts, merged), check);
    if !problems.is_empty() {
        return Ok(MergeOutcome::Incomplete(problems));
    }
    // Others may have matched before.
    let is_rerun = parts.iter().flat_map(|part| &part.record).any(|record| record.is_rerun);
    let unmatched = match is_rerun {
        true => Vec::new(),
        false => unmatched_names(shard_units(parts).map(|(_, unit)| unit)),
    };
    let units = shard_units(parts).count();
    let outcome = MergeOutcome::Done { parts: parts.len(), units, unmatched };
    recorder.close(Vec::new(), Vec::new())?;
    remove_litter();
    Ok(outcome)
}

/// The outcome for a folder without shard records: its batch may have run without shards.
fn merged_before(record: &BatchRecord) -> MergeOutcome {
    if record.left.is_empty() && !record.is_open {
        return MergeOutcome::AlreadyMerged { unmatched: unmatched_names(record.units.iter()) };
    }
    MergeOutcome::Incomplete(vec![
        "there are no shard records here, and the batch is not complete; run it again with \
         --resume"
            .to_owned(),
    ])
}

/// The names that matched nothing in any unit.
fn unmatched_names<'u>(units: impl Iterator<Item = &'u UnitRecord>) -> Vec<NameReport> {
    let mut report = Report::default();
    report.add_unmatched(units.map(|unit| unit.ended.unmatched.clone()).collect());
    report.unmatched().cloned().collect()
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

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::shard::ShardHeader;
    use super::*;
    use crate::manifest::RunEnd;

    fn unit(output: &str) -> UnitRecord {
        UnitRecord {
            pipeline: "p".into(),
            name: None,
            sluice: crate::manifest::VERSION.into(),
            plugins: Vec::new(),
            inputs: Vec::new(),
            outputs: vec![output.into()],
            files: Vec::new(),
            ended: RunEnd::default(),
        }
    }

    #[test]
    fn a_merge_that_was_killed_while_it_removed_records_is_completed() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let outputs = ["1", "2", "3"];
        for output in outputs {
            let header = ShardHeader {
                shard: Shard::parse(&format!("{output}/3")).unwrap(),
                batch: "b".into(),
                inputs: 3,
                outputs: outputs.map(PathBuf::from).into(),
            };
            let mut recorder = BatchRecorder::open(folder, Some(header)).unwrap();
            recorder.close(vec![unit(output)], Vec::new()).unwrap();
        }
        // A folder cannot be removed in place of the first journal.
        let journal = folder.join(Shard::parse("1/3").unwrap().journal_name());
        let mut recorder = BatchRecorder::open(folder, None).unwrap();
        fs::create_dir(&journal).unwrap();
        recorder.close(Vec::new(), Vec::new()).unwrap_err();
        drop(recorder);
        fs::remove_dir(&journal).unwrap();
        assert!(!folder.join("_shard-1-of-3.json").exists());
        // As the last one does if it runs again and has nothing to do.
        fs::remove_file(folder.join("_shard-3-of-3.json")).unwrap();
        let merged = merge(folder, FileCheck::Length).unwrap();
        let due = MergeOutcome::Done { parts: 1, units: 1, unmatched: Vec::new() };
        assert_eq!(merged, due);
        let names: Vec<_> = fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names, ["_manifest.json"]);
        assert_eq!(BatchRecord::to_continue(folder).unwrap().units, outputs.map(unit));
    }
}
