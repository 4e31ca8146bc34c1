//! What there is in a cluster, as text and as JSON. Asks the scheduler once.

use sluice_core::Error;

use crate::address::Address;
use crate::ask::ask;
use crate::hello::{Hello, unmet};
use crate::runtime;
use crate::scheduler::answers::{Census, Work, Worker};

/// What there is in a cluster.
#[derive(Debug)]
pub struct Status(Census);

impl Status {
    /// Asks the scheduler at this address.
    pub fn of(scheduler: &Address) -> Result<Self, Error> {
        let state = runtime(1)?.block_on(ask(scheduler, "/sluice/state"));
        Ok(Self(state.map_err(|no| unmet(scheduler, no))?))
    }

    /// As JSON.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::json!({
            "sluice": self.0.hello.sluice,
            "ballista": self.0.hello.ballista,
            "plugins": self.0.hello.plugins,
            "executors": self.0.executors,
            "jobs": self.0.jobs,
        })
    }

    /// As lines for people.
    pub fn lines(&self) -> Vec<String> {
        let Census { hello: Hello { sluice, ballista, .. }, executors, jobs } = &self.0;
        let mut lines = vec![format!("Sluice {sluice} with Ballista {ballista}")];
        let slots: u32 = executors.iter().map(|executor| executor.slots).sum();
        lines.push(format!("executors: {}, units at a time: {slots}", executors.len()));
        lines.extend(executors.iter().map(worker));
        lines.push(format!("jobs: {}", jobs.len()));
        lines.extend(jobs.iter().map(work));
        lines
    }
}

fn worker(worker: &Worker) -> String {
    let Worker { id, host, slots, running, silent } = worker;
    let heard = silent.map(|seconds| format!(", heard {seconds} s ago")).unwrap_or_default();
    format!("  {id} from {host}: {running} of {slots} at work{heard}")
}

fn work(work: &Work) -> String {
    let Work { id, waiting, running } = work;
    format!("  {id}: {running} under way, {waiting} waiting")
}
