//! `cluster`: the parts of a cluster, and how a run reaches one.

use clap::{Args, Subcommand};

use crate::ending::{Failure, Outcome};
use crate::shell::Shell;

/// How a run reaches a cluster.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ReachArgs {
    /// With --engine ballista: the address of the scheduler.
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) scheduler: Option<String>,

    /// With --engine ballista: start a scheduler and N executors on this machine, for this run only.
    #[arg(long, value_name = "N", conflicts_with = "scheduler")]
    pub(crate) local_cluster: Option<usize>,
}

#[derive(Debug, Args)]
pub(crate) struct ClusterArgs {
    #[command(subcommand)]
    pub(crate) part: Part,
}

/// The parts of a cluster.
#[derive(Debug, Subcommand)]
pub(crate) enum Part {
    /// Hand out work
    Scheduler,
    /// Do work
    Executor,
}

pub(crate) fn run(args: &ClusterArgs, _shell: &Shell) -> Outcome {
    match args.part {
        Part::Scheduler | Part::Executor => refuse_without_feature().map(|()| unreachable!()),
    }
}

pub(crate) fn refuse_without_feature() -> Result<(), Failure> {
    let what = "this program was built without --features cluster; nothing was done";
    Err(Failure::WrongUse(what.into()))
}
