//! Arguments of `sluice cluster`.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use sluice::extension::{CredentialArgs, duration};
use sluice_cluster::Address;

#[derive(Debug, Args)]
#[command(after_help = "\
A cluster is one scheduler and any number of executors, all running the same version of this
program. Executors read inputs and write outputs themselves: these must have the same paths on all
executors and where the run is started (a shared file system), or be in an object store.

Whoever can send orders to a cluster can read and write files wherever an executor runs. So every
process needs the secret of the cluster (--secret-file), certificates for mutual TLS (--tls), or
both; `sluice cluster keys` makes them. Only processes on one machine need neither. The secret is
not encrypted on its way: where others may listen, use TLS.

Examples:
  sluice cluster scheduler --listen 10.0.0.5:50050 --secret-file secret     on one machine
  sluice cluster executor --scheduler 10.0.0.5:50050 --secret-file secret   on each worker machine
  sluice cluster status --scheduler 10.0.0.5:50050 --secret-file secret
  sluice run tables.toml --engine ballista --scheduler 10.0.0.5:50050 --secret-file secret
  sluice run tables.toml --engine ballista --local-cluster 2   try it on one machine")]
pub(crate) struct ClusterArgs {
    #[command(subcommand)]
    pub(crate) command: ClusterCommand,
}

/// The processes of a cluster.
#[derive(Debug, Subcommand)]
pub(crate) enum ClusterCommand {
    /// Hand out units to executors
    Scheduler(SchedulerArgs),
    /// Run units
    Executor(ExecutorArgs),
    /// Show executors and running jobs
    Status(StatusArgs),
    /// Make a secret and certificates for trying out a cluster
    Keys(KeysArgs),
    /// Run one unit read from standard input; started by executors
    #[command(hide = true)]
    Unit(UnitArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "\
The scheduler runs until Ctrl-C or kill, keeps nothing on disk and sees no data. If it restarts,
executors reconnect by themselves; runs wait for it for a minute.

It refuses requests without the secret, and connections without a certificate, and reports some of
them with the address they came from. Without either, it listens only on addresses of this machine.

Exit codes: 0 stopped; 1 failed, for example because the port is in use; 2 wrong use, or no
credentials.")]
pub(crate) struct SchedulerArgs {
    /// The address and port to listen on. Port 0 picks a free one and prints it.
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:50050",
        value_parser = NonEmptyStringValueParser::new())]
    pub(crate) listen: String,

    /// The name or address that executors and runs connect to, if it is not the one to listen on.
    #[arg(long, value_name = "HOST", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) advertise: Option<String>,

    /// Give the units of an executor to others once it has been silent for this long. A busy
    /// executor reports every 5 s, so 10s and more are safe.
    #[arg(long, value_name = "T", default_value = "20s", value_parser = duration)]
    pub(crate) executor_timeout: String,

    #[command(flatten)]
    pub(crate) credentials: CredentialArgs,

    /// Read the secret from the first line of standard input, and exit when that closes.
    #[arg(long, hide = true, conflicts_with_all = ["secret_file", "tls", "insecure"])]
    pub(crate) with_parent: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The executor polls the scheduler for units, so it needs no port or address of its own. Each unit
runs in a child process, in the folder in which the run was started.

It runs until Ctrl-C or kill: then it cancels its units, and other executors run them again. If the
scheduler ends, it waits until the scheduler is back.

Exit codes: 0 stopped; 1 the scheduler cannot be reached; 2 wrong use, or the scheduler has another
version, other plugins or other credentials.")]
pub(crate) struct ExecutorArgs {
    /// The address of the scheduler.
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) scheduler: String,

    /// Its name in `status`; the host name by default.
    #[arg(long, value_name = "NAME", value_parser = name)]
    pub(crate) name: Option<String>,

    /// How many units to run at a time; one per core by default.
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub(crate) slots: Option<usize>,

    /// How many threads each unit uses; by default the cores divided by the slots. Does not change
    /// the output.
    #[arg(short, long, value_name = "N", value_parser = at_least_one)]
    pub(crate) jobs: Option<usize>,

    /// Where the scheduler protocol keeps its (small) files; a temporary folder by default.
    #[arg(long, value_name = "DIR")]
    pub(crate) work_dir: Option<PathBuf>,

    /// Let pipelines run programs here, if the run allows it too. These programs may do whatever
    /// this executor may.
    #[arg(long)]
    pub(crate) allow_exec: bool,

    #[command(flatten)]
    pub(crate) credentials: CredentialArgs,

    /// Read the secret from the first line of standard input, and exit when that closes.
    #[arg(long, hide = true, conflicts_with_all = ["secret_file", "tls", "insecure"])]
    pub(crate) with_parent: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// The address of the scheduler.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:50050")]
    pub(crate) scheduler: String,

    #[command(flatten)]
    pub(crate) credentials: CredentialArgs,

    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Makes a new folder:
  secret       for --secret-file of every process
  scheduler/   for --tls of the scheduler
  client/      for --tls of executors, runs and status

The certificates are valid for a year, and the key of their authority is not kept. For a cluster
that lasts, use certificates of your own authority: ca.crt, tls.crt and tls.key in a folder per
process.

Example: sluice cluster keys keys --host 10.0.0.5

Exit codes: 0 made; 1 failed, for example because the folder exists; 2 wrong use.")]
pub(crate) struct KeysArgs {
    /// The folder to make.
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,

    /// A host name or address of the scheduler, as in --scheduler. May be repeated. Those of this
    /// machine (localhost) are always valid.
    #[arg(long, value_name = "HOST", value_parser = host)]
    pub(crate) host: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct UnitArgs {
    /// How many threads to use.
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) jobs: usize,

    /// Let the pipeline run programs, if the run allows it too.
    #[arg(long)]
    pub(crate) allow_exec: bool,
}

fn at_least_one(text: &str) -> Result<usize, String> {
    let number = text.trim().parse().ok().filter(|number| (1..=4096).contains(number));
    number.ok_or_else(|| "expected a number from 1 to 4096".to_owned())
}

/// A certificate is for hosts, not for their ports.
fn host(text: &str) -> Result<String, String> {
    let text = text.trim();
    if text.parse::<IpAddr>().is_ok() {
        return Ok(text.to_owned());
    }
    match format!("{text}:0").parse::<Address>() {
        Ok(address) if address.host == text => Ok(address.host),
        _ => Err("expected a host name or an IP address without a port, such as 10.0.0.5".into()),
    }
}

/// A name becomes part of URLs.
fn name(text: &str) -> Result<String, String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    if text.is_empty() || text.len() > 64 || !text.chars().all(allowed) {
        return Err("expected up to 64 letters, digits, `.`, `-` and `_`".to_owned());
    }
    Ok(text.to_owned())
}
