//! An engine that runs units on other machines, if another crate adds one.

use sluice_pipeline::dispatch::Carrier;

use crate::args::CredentialArgs;
use crate::exit::Failure;
use crate::shell::Shell;

/// The cluster that a run uses, and what the run may do there.
#[derive(Clone, Debug, Default)]
pub struct ClusterOptions {
    /// `--scheduler`: the address of the scheduler.
    pub scheduler: Option<String>,
    /// `--local-cluster`: how many executors to start on this machine.
    pub local_cluster: Option<usize>,
    /// `--secret-file`, `--tls`, `--insecure`: what proves to the scheduler that the run may use
    /// the cluster.
    pub credentials: CredentialArgs,
    /// `--cluster-patience`: how long a unit may go without a sign of life before it is given to
    /// another executor.
    pub patience: Option<String>,
    /// `--jobs`.
    pub jobs: Option<usize>,
    /// `--allow-exec`.
    pub allow_exec: bool,
}

/// An engine that runs units on other machines: `--engine ballista`.
#[derive(Debug)]
pub struct Engine {
    /// Connects to the cluster. Sends no work yet.
    pub connect: Connect,
}

/// Connects a run to a cluster.
pub type Connect = fn(&ClusterOptions, &Shell) -> Result<Box<dyn Carrier>, Failure>;

inventory::collect!(Engine);

/// The engine linked into this program, if there is one.
pub(crate) fn engine() -> Option<&'static Engine> {
    inventory::iter::<Engine>.into_iter().next()
}
