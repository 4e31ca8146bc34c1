//! The cluster engine: the units of a pipeline, run on many machines by Apache Ballista.
//!
//! Knows how orders reach executors, and when one is tried again; what an order is, and what becomes of
//! what it made, is `sluice_pipeline::dispatch`. Nothing of the data goes through the cluster: orders do,
//! and outputs appear where all executors and the driver see them.

mod address;
pub mod carrier;
pub mod executor;
mod handshake;
mod http;
pub mod local;
pub mod logging;
mod plan;
pub mod scheduler;
pub mod status;
pub mod unit;

pub use address::Address;
pub use carrier::Ballista;
pub use local::LocalCluster;

use std::sync::LazyLock;
use std::time::Duration;

use sluice_core::Error;
use sluice_pipeline::run::Stop;
use tokio::runtime::{Builder, Runtime};

/// How large a message between the parts of a cluster may be: thousands of orders come in one.
const MESSAGE_LIMIT: usize = 64 << 20;

/// How often it is looked whether to end.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Returns once a run or service is asked to end.
async fn stop_requested(stop: &Stop) {
    while !stop.is_requested() {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Threads that wait for the network.
fn runtime(threads: usize) -> Result<Runtime, Error> {
    let mut builder = Builder::new_multi_thread();
    let runtime =
        builder.worker_threads(threads).thread_name("sluice-cluster").enable_all().build();
    runtime.map_err(|e| Error::refused(format!("cannot start threads for the network: {e}")))
}

/// The name of this computer, for people.
pub(crate) fn host_name() -> &'static str {
    static HOST: LazyLock<String> =
        LazyLock::new(|| rustix::system::uname().nodename().to_string_lossy().into_owned());
    &HOST
}
