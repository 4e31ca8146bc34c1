//! What is known of one file.

use std::path::PathBuf;

use sluice_pipeline::Report;

use super::census::Census;

/// The summary of one file.
pub(super) struct LogSummary {
    pub(super) path: PathBuf,
    pub(super) format: &'static str,
    /// The length of all files that the source reads for it, if known.
    pub(super) bytes: Option<u64>,
    pub(super) census: Census,
    pub(super) report: Report,
    /// What the source reports about the file.
    pub(super) findings: Vec<String>,
}
