//! `query`: asks questions of logs in SQL.

use clap::Args;

use crate::ending::{Failure, Outcome};
use crate::shell::Shell;

#[derive(Debug, Default, Args)]
pub(crate) struct QueryArgs {
    /// The query, and the logs it is asked of; without a query, a prompt.
    pub(crate) words: Vec<String>,
}

pub(crate) fn run(_args: &QueryArgs, _shell: &Shell) -> Outcome {
    let what = "this program was built without --features query; nothing was done";
    Err(Failure::WrongUse(what.into()))
}
