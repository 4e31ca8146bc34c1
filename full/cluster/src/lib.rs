//! The cluster engine: runs the units of a pipeline on many machines with Apache Ballista.
//!
//! This crate knows how orders reach executors and when an order is retried. What an order is, and
//! what becomes of its output, is in `sluice_pipeline::dispatch`. No data goes through the cluster,
//! only orders: inputs and outputs must be visible to all executors and the driver.

mod address;
pub mod carrier;
mod credentials;
mod endpoint;
pub mod executor;
mod handshake;
mod http;
pub mod local;
pub mod logging;
mod plan;
mod request_error;
pub mod scheduler;
pub mod status;
pub mod unit;

pub use address::Address;
pub use carrier::Ballista;
pub use credentials::{Credentials, Secret, write_keys};
pub use endpoint::SchedulerEndpoint;
pub use local::LocalCluster;

use std::sync::LazyLock;
use std::time::Duration;

use sluice_model::Error;
use sluice_pipeline::run::Stop;
use tokio::runtime::{Builder, Runtime};

/// The largest message between cluster processes: one message carries thousands of orders.
const MESSAGE_LIMIT: usize = 64 << 20;

/// How often to check whether to stop.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Returns once `stop` is requested.
async fn stop_requested(stop: &Stop) {
    while !stop.is_requested() {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// A Tokio runtime for network I/O.
fn runtime(threads: usize) -> Result<Runtime, Error> {
    let mut builder = Builder::new_multi_thread();
    let runtime =
        builder.worker_threads(threads).thread_name("sluice-cluster").enable_all().build();
    runtime.map_err(|e| Error::refused(format!("cannot start threads for the network: {e}")))
}

/// The name of this host, for messages.
pub(crate) fn host_name() -> &'static str {
    static HOST: LazyLock<String> =
        LazyLock::new(|| rustix::system::uname().nodename().to_string_lossy().into_owned());
    &HOST
}
