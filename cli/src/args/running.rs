//! Options of the verbs that run pipelines: resources, progress, and receiving.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use sluice_io::escape::escaped;
use sluice_model::options::ByteSize;
use sluice_pipeline::batch::{FailurePolicy, Shard};

use super::values::duration;
use crate::exit::Failure;
use crate::features;

/// How to run a pipeline.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Running")]
pub(crate) struct EngineArgs {
    #[command(flatten)]
    pub(crate) running: RunningArgs,

    /// Replace existing outputs, once the run has succeeded.
    #[arg(long, alias = "force", conflicts_with = "resume")]
    pub(crate) overwrite: bool,

    /// Continue an interrupted run: outputs it completed for the same inputs, pipeline and
    /// `--memory` are checked and kept, anything else is replaced, except outputs of inputs that
    /// cannot be read again.
    #[arg(long)]
    pub(crate) resume: bool,

    /// For outputs named after inputs: if one input fails, continue with the others. This includes
    /// names without a file, names that are not UTF-8 and, where the format is detected, files of
    /// no known format, which are otherwise errors before the first.
    #[arg(long)]
    pub(crate) keep_going: bool,

    /// Show what would be read and written, and exit; writes no --report.
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Where to run: on this machine, or on a cluster.
    #[arg(
        long,
        value_name = "ENGINE",
        default_value = "local",
        hide = !features::CLUSTER.is_linked()
    )]
    pub(crate) engine: EngineKind,

    #[command(flatten)]
    pub(crate) cluster: ClusterRunArgs,

    /// For outputs named after inputs: run the I-th of N parts of the inputs (the I-th, the I+N-th,
    /// and so on). Other parts may run elsewhere at the same time. `merge-manifests` merges their
    /// records.
    #[arg(long, value_name = "I/N", value_parser = Shard::parse)]
    pub(crate) shard: Option<Shard>,
}

impl EngineArgs {
    /// The file of the report, if a run is to write one.
    pub(crate) fn report(&self) -> Option<&Path> {
        self.running.report.as_deref().filter(|_| !self.dry_run)
    }

    /// What happens to the other inputs of a batch when one fails. A cluster reads files only, and
    /// what is only printed has to be the same as what runs.
    pub(crate) fn failing(&self, only_prints: bool) -> FailurePolicy {
        match self.keep_going && self.engine == EngineKind::Local && !only_prints {
            true => FailurePolicy::Continue,
            false => FailurePolicy::Stop,
        }
    }
}

/// How a run reaches a cluster.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ClusterRunArgs {
    /// With --engine ballista: the address of the scheduler.
    #[arg(long, value_name = "HOST:PORT", hide = !features::CLUSTER.is_linked())]
    pub(crate) scheduler: Option<String>,

    /// With --engine ballista: start a scheduler and N executors on this machine, for this run
    /// only.
    #[arg(
        long,
        value_name = "N",
        conflicts_with = "scheduler",
        value_parser = executor_count,
        hide = !features::CLUSTER.is_linked()
    )]
    pub(crate) local_cluster: Option<usize>,

    #[command(flatten)]
    pub(crate) credentials: CredentialArgs,

    /// With --engine ballista: how long a unit may show no sign of life while executors are idle,
    /// before it is given to another executor; 30m by default.
    #[arg(
        long,
        value_name = "T",
        value_parser = duration,
        hide = !features::CLUSTER.is_linked()
    )]
    pub(crate) cluster_patience: Option<String>,
}

/// What proves to a cluster that a process belongs to it.
#[derive(Clone, Debug, Default, Args)]
pub struct CredentialArgs {
    /// The file with the secret of the cluster: one line of at least 32 characters, the same for
    /// all its processes. Only its owner may read it.
    #[arg(long, value_name = "FILE", hide = !features::CLUSTER.is_linked())]
    pub secret_file: Option<PathBuf>,

    /// The folder with the certificates of this process for mutual TLS: ca.crt, tls.crt and
    /// tls.key.
    #[arg(long, value_name = "DIR", hide = !features::CLUSTER.is_linked())]
    pub tls: Option<PathBuf>,

    /// Use a cluster on other machines without a secret and without TLS. Everybody on that network
    /// may then read and write files wherever an executor runs.
    #[arg(
        long,
        conflicts_with_all = ["secret_file", "tls"],
        hide = !features::CLUSTER.is_linked()
    )]
    pub insecure: bool,
}

/// Resources of a run, and how to report it.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Running")]
pub(crate) struct RunningArgs {
    /// The number of threads; by default, or with 0, one per core, but beyond four at most one per
    /// 32 MiB of memory. Does not change the output.
    #[arg(short, long, value_name = "N")]
    pub(crate) jobs: Option<usize>,

    /// How much memory to use, such as 1GiB; overrides the pipeline file, whose default is 512MiB.
    #[arg(long, value_name = "SIZE", value_parser = ByteSize::parse_positive)]
    pub(crate) memory: Option<ByteSize>,

    /// Write a report of the run as JSON: counts per channel, damage, files with hashes. Replaces
    /// an existing file. `-` is standard output.
    #[arg(long, value_name = "FILE.json")]
    pub(crate) report: Option<PathBuf>,

    /// Allow the pipeline to run programs, with all your permissions: `sluice check` lists them;
    /// look at them first if the pipeline is not yours.
    #[arg(long)]
    pub(crate) allow_exec: bool,

    /// Fail with exit code 2 if a channel or field named in an option is not in the input, or no
    /// event is in the time window, instead of printing a warning. Nothing is published then,
    /// except for inputs of a batch, and what was received live. With `--shard`, it stays a
    /// warning: other parts may have the name. `merge-manifests --strict` fails if none has it.
    #[arg(long)]
    pub(crate) strict: bool,

    /// How to show progress: auto is a bar on a terminal, and a line every few seconds elsewhere.
    #[arg(long, value_name = "FORM", default_value = "auto")]
    pub(crate) progress: ProgressFormat,
}

/// How to receive, and for how long.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Receiving")]
pub(crate) struct ListenArgs {
    /// Stop after this long: seconds, or 200ms, 1m30s, 2h.
    #[arg(long, value_name = "T", value_parser = duration, allow_hyphen_values = true)]
    pub(crate) duration: Option<String>,

    /// Stop if nothing is received for this long.
    #[arg(long, value_name = "T", value_parser = duration, allow_hyphen_values = true)]
    pub(crate) idle_timeout: Option<String>,

    /// Stop after N messages.
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) limit: Option<u64>,

    /// The network interface to listen on, by name or address. By default the one the group is
    /// routed to.
    #[arg(long, value_name = "NAME")]
    pub(crate) interface: Option<String>,
}

/// Where to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum EngineKind {
    /// On this machine.
    #[default]
    Local,
    /// On a cluster, by Apache Ballista.
    Ballista,
}

/// How to show progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProgressFormat {
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

impl ClusterRunArgs {
    /// Refuses cluster options without `--engine ballista`.
    pub(crate) fn refuse_without_cluster_engine(&self) -> Result<(), Failure> {
        let CredentialArgs { secret_file, tls, insecure } = &self.credentials;
        let options = [
            ("--scheduler", self.scheduler.is_some()),
            ("--local-cluster", self.local_cluster.is_some()),
            ("--cluster-patience", self.cluster_patience.is_some()),
            ("--secret-file", secret_file.is_some()),
            ("--tls", tls.is_some()),
            ("--insecure", *insecure),
        ];
        let Some((asked, _)) = options.into_iter().find(|(_, is_given)| *is_given) else {
            return Ok(());
        };
        let what =
            format!("{asked} is for runs on a cluster: add --engine ballista; nothing was done");
        Err(Failure::Usage(what))
    }
}

/// Refuses `--interface` for a hub, whose address alone says how it is reached. Without a URL,
/// plugins use that of the environment.
pub(crate) fn refuse_interface_of_hub(
    interface: Option<&str>,
    url: Option<&str>,
) -> Result<(), Failure> {
    let url = match (interface, url) {
        (None, _) => None,
        (Some(_), Some(url)) => Some(url.to_owned()),
        (Some(_), None) => default_url()?,
    };
    match url.filter(|url| url.starts_with("tcpq://")) {
        None => Ok(()),
        Some(url) => Err(Failure::Usage(format!(
            "--interface is only for multicast (udpm://…); leave it out for a hub: {url}"
        ))),
    }
}

/// The address in the environment that live inputs and outputs use by default.
pub(crate) fn default_url() -> Result<Option<String>, Failure> {
    const VARIABLE: &str = "LCM_DEFAULT_URL";
    let url = std::env::var_os(VARIABLE).map(OsString::into_string).transpose();
    url.map_err(|url| {
        let url = escaped(url.as_encoded_bytes());
        Failure::Usage(format!("the environment variable `{VARIABLE}` is not UTF-8: `{url}`"))
    })
}

/// Parses the number of local executors.
fn executor_count(text: &str) -> Result<usize, String> {
    let number = text.trim().parse().ok().filter(|number| (1..=64).contains(number));
    number.ok_or_else(|| "expected a number from 1 to 64".to_owned())
}
