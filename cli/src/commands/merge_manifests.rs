//! `merge-manifests`: merges the records of batches that were run in parts.

use std::path::Path;

use sluice_model::units;
use sluice_pipeline::Report;
use sluice_pipeline::batch::{self, FileCheck, MergeOutcome};

use crate::args::MergeManifestsArgs;
use crate::commands::execute::report_unmatched;
use crate::commands::verify;
use crate::exit::{CommandResult, ExitStatus};
use crate::flags::PipelineOrigin;
use crate::shell::Shell;

/// The number of reasons listed per folder.
const MOST_SHOWN: usize = 20;

pub(crate) fn run(args: &MergeManifestsArgs, shell: &Shell) -> CommandResult {
    let check = if args.verify { FileCheck::Hash } else { FileCheck::Length };
    let (mut ending, mut is_unmatched) = (ExitStatus::Done, false);
    let mut report_names = |unmatched| {
        let report = Report { names: unmatched, ..Report::default() };
        let fails = args.strict && report.unmatched().next().is_some();
        let status = if fails { ExitStatus::Unmatched } else { ExitStatus::Done };
        report_unmatched(&report, PipelineOrigin::File, status, shell);
        is_unmatched |= fails;
    };
    for folder in &args.folders {
        match batch::merge(folder, check)? {
            MergeOutcome::Done { parts, units, unmatched } => {
                report_names(unmatched);
                shell.info(&merged_text(folder, parts, units));
            }
            MergeOutcome::AlreadyMerged { unmatched } => {
                let differences = match args.verify {
                    true => verify::folder_differences(folder, shell)?,
                    false => Vec::new(),
                };
                if !differences.is_empty() {
                    report_reasons(folder, &differences, shell);
                    ending = ExitStatus::Failed;
                    continue;
                }
                report_names(unmatched);
                shell.info(&format!("{}: already merged", folder.display()));
            }
            MergeOutcome::Incomplete(reasons) => {
                report_reasons(folder, &reasons, shell);
                ending = ExitStatus::Failed;
            }
        }
    }
    // What is missing comes before names that matched nothing.
    let is_unmatched = is_unmatched && ending == ExitStatus::Done;
    Ok(if is_unmatched { ExitStatus::Unmatched } else { ending })
}

fn merged_text(folder: &Path, shards: usize, inputs: usize) -> String {
    let (shards, inputs) =
        (units::pluralize(shards as u64, "shard"), units::pluralize(inputs as u64, "input"));
    format!("{}: merged {shards}, {inputs}", folder.display())
}

fn report_reasons(folder: &Path, reasons: &[String], shell: &Shell) {
    for reason in reasons.iter().take(MOST_SHOWN) {
        shell.error(&format!("{}: {reason}", folder.display()));
    }
    let more = reasons.len().saturating_sub(MOST_SHOWN) as u64;
    if more > 0 {
        shell.error(&format!("and {} more", units::count(more)));
    }
}
