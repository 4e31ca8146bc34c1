//! Options of verbs that run pipelines: with what to run, what to show of it, what to receive.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use sluice_core::options::ByteSize;
use sluice_pipeline::batch::Shard;

use super::values::length;
use crate::ending::Failure;
use crate::extension;

/// How to run a pipeline.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Running")]
pub(crate) struct EngineArgs {
    #[command(flatten)]
    pub(crate) running: RunningArgs,

    /// Replace outputs that exist, once the run has succeeded.
    #[arg(long, alias = "force", conflicts_with = "resume")]
    pub(crate) overwrite: bool,

    /// Go on where an earlier run was interrupted: what it made of the same inputs with the same
    /// pipeline is checked and kept, what else is there is replaced.
    #[arg(long)]
    pub(crate) resume: bool,

    /// Where outputs are named after inputs: when one input fails, go on with the others.
    #[arg(long)]
    pub(crate) keep_going: bool,

    /// Show what would be read and written, and do nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Where to run: on this machine, or on a cluster.
    #[arg(
        long,
        value_name = "ENGINE",
        default_value = "local",
        hide = extension::engine().is_none()
    )]
    pub(crate) engine: Engine,

    #[command(flatten)]
    pub(crate) cluster: ReachArgs,

    /// Where outputs are named after inputs: run the I-th of N parts of the inputs (the I-th, the I+N-th, and so
    /// on), of which others may be run elsewhere at the same time. `merge-manifests` puts their records together.
    #[arg(long, value_name = "I/N", value_parser = Shard::parse)]
    pub(crate) shard: Option<Shard>,
}

/// How a run reaches a cluster.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ReachArgs {
    /// With --engine ballista: the address of the scheduler.
    #[arg(long, value_name = "HOST:PORT", hide = extension::engine().is_none())]
    pub(crate) scheduler: Option<String>,

    /// With --engine ballista: start a scheduler and N executors on this machine, for this run only.
    #[arg(
        long,
        value_name = "N",
        conflicts_with = "scheduler",
        value_parser = executors,
        hide = extension::engine().is_none()
    )]
    pub(crate) local_cluster: Option<usize>,

    /// With --engine ballista: give up work of which nothing is heard for this long although executors
    /// are idle, and hand it out again.
    #[arg(long, value_name = "T", default_value = "30m", hide = true, value_parser = length)]
    pub(crate) cluster_patience: String,
}

/// With what to run, and how to tell of it.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Running")]
pub(crate) struct RunningArgs {
    /// How many threads to use; one a core if left out. Does not change the output.
    #[arg(short, long, value_name = "N")]
    pub(crate) jobs: Option<usize>,

    /// How much memory to use, such as 512MiB; goes before what the pipeline says.
    #[arg(long, value_name = "SIZE", value_parser = ByteSize::parse)]
    pub(crate) memory: Option<ByteSize>,

    /// Write a report of the run as JSON: counts by channel, damage, files with hashes. `-` is
    /// standard output.
    #[arg(long, value_name = "FILE.json")]
    pub(crate) report: Option<PathBuf>,

    /// Let the pipeline run programs. They may do whatever you may: look at what `sluice check` says of
    /// a pipeline that is not yours.
    #[arg(long)]
    pub(crate) allow_exec: bool,

    /// Fail with exit code 2 where a channel or field that is named was nowhere in the input, instead of
    /// warning of it. Nothing is published then, but for inputs of a batch, and what is live.
    #[arg(long)]
    pub(crate) strict: bool,

    /// How to show progress: auto is a bar on a terminal and a line now and then elsewhere.
    #[arg(long, value_name = "FORM", default_value = "auto")]
    pub(crate) progress: ProgressForm,
}

/// What to receive through, and for how long.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Receiving")]
pub(crate) struct ListenArgs {
    /// End after this long: seconds, or 200ms, 1m30s, 2h.
    #[arg(long, value_name = "T", value_parser = length)]
    pub(crate) duration: Option<String>,

    /// End when nothing has come for this long.
    #[arg(long, value_name = "T", value_parser = length)]
    pub(crate) idle_timeout: Option<String>,

    /// End after N messages.
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) limit: Option<u64>,

    /// The network interface to listen on, by name or address; the one the group is routed to if left
    /// out.
    #[arg(long, value_name = "NAME")]
    pub(crate) interface: Option<String>,
}

/// Where to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Engine {
    /// On this machine.
    #[default]
    Local,
    /// On a cluster, by Apache Ballista.
    Ballista,
}

/// How to show progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProgressForm {
    /// A bar on a terminal, a line every five seconds elsewhere.
    #[default]
    Auto,
    /// A bar.
    Bar,
    /// A line every five seconds.
    Plain,
    /// A JSON object twice a second.
    Json,
    /// Nothing.
    None,
}

impl ReachArgs {
    /// Refuses to name a cluster for a run that is to stay here.
    pub(crate) fn refuse_to_stay_here(&self) -> Result<(), Failure> {
        let asked = match (&self.scheduler, self.local_cluster) {
            (Some(_), _) => "--scheduler",
            (_, Some(_)) => "--local-cluster",
            (None, None) => return Ok(()),
        };
        let what =
            format!("{asked} is for runs on a cluster: add --engine ballista; nothing was done");
        Err(Failure::WrongUse(what))
    }
}

/// How many executors one machine may be.
fn executors(text: &str) -> Result<usize, String> {
    let number = text.trim().parse().ok().filter(|number| (1..=64).contains(number));
    number.ok_or_else(|| "expected a number from 1 to 64".to_owned())
}
