//! `merge-manifests`: puts together the records of a batch that was run in parts.

use std::path::PathBuf;

use clap::Args;

use crate::ending::{Failure, Outcome};
use crate::shell::Shell;

#[derive(Debug, Args)]
pub(crate) struct MergeManifestsArgs {
    /// The folder with the records of the parts.
    pub(crate) folder: PathBuf,
}

pub(crate) fn run(_args: &MergeManifestsArgs, _shell: &Shell) -> Outcome {
    Err(Failure::WrongUse("not there yet".into()))
}
