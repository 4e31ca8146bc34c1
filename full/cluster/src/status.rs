//! The status of a cluster, as text and as JSON.

use sluice_model::Error;

use crate::endpoint::SchedulerEndpoint;
use crate::handshake::{SchedulerIdentity, handshake_error};
use crate::http::get_json;
use crate::runtime;
use crate::scheduler::admin::{ClusterState, ExecutorStatus, JobStatus};

/// The executors and jobs of a cluster.
#[derive(Debug)]
pub struct ClusterStatus(ClusterState);

impl ClusterStatus {
    /// Fetches the status from this scheduler.
    pub fn fetch(scheduler: &SchedulerEndpoint) -> Result<Self, Error> {
        let state = runtime(1)?.block_on(get_json(scheduler, "/sluice/state"));
        Ok(Self(state.map_err(|error| handshake_error(scheduler, error))?))
    }

    /// As JSON.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::json!({
            "sluice": self.0.identity.sluice,
            "ballista": self.0.identity.ballista,
            "plugins": self.0.identity.plugins,
            "executors": self.0.executors,
            "jobs": self.0.jobs,
        })
    }

    /// As lines of text.
    pub fn lines(&self) -> Vec<String> {
        let ClusterState { identity: SchedulerIdentity { sluice, ballista, .. }, executors, jobs } =
            &self.0;
        let mut lines = vec![format!("Sluice {sluice} with Ballista {ballista}")];
        let slots: u32 = executors.iter().map(|executor| executor.slots).sum();
        lines.push(format!("executors: {}, units at a time: {slots}", executors.len()));
        lines.extend(executors.iter().map(executor_line));
        lines.push(format!("jobs: {}", jobs.len()));
        lines.extend(jobs.iter().map(job_line));
        lines
    }
}

fn executor_line(executor: &ExecutorStatus) -> String {
    let ExecutorStatus { id, host, slots, running, silent } = executor;
    let last_seen =
        silent.map(|seconds| format!(", last seen {seconds} s ago")).unwrap_or_default();
    format!("  {id} from {host}: {running} of {slots} units running{last_seen}")
}

fn job_line(job: &JobStatus) -> String {
    let JobStatus { id, waiting, running } = job;
    format!("  {id}: {running} running, {waiting} waiting")
}
