//! Sends orders to executors through a scheduler: up to some thousands per job, one job after
//! another. Results are in the run's staging directory; this only waits until nobody works on the
//! orders.

mod job;

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use sluice_model::Error;
use sluice_pipeline::dispatch::{Carrier, ProgramIdentity, UnitOrder};
use sluice_pipeline::run::Stop;

use crate::endpoint::SchedulerEndpoint;
use crate::handshake::check_scheduler;
use crate::local::LocalCluster;
use crate::{POLL_INTERVAL, runtime, stop_requested};
use job::Job;

/// The most orders in a job: a scheduler plans each job as a whole.
const MAX_ORDERS: usize = 5_000;

/// The most bytes of orders in a job that has more than one.
const MAX_BYTES: usize = 8 << 20;

/// A cluster, from the driver's side.
#[derive(Debug)]
pub struct Ballista {
    scheduler: SchedulerEndpoint,
    program: ProgramIdentity,
    patience: Duration,
    /// Stopped when this is dropped.
    local: Option<Mutex<LocalCluster>>,
}

impl Ballista {
    /// Uses this scheduler, which must run this program. Gives up a job that makes
    /// no progress for `patience` while executors are idle.
    pub fn with_scheduler(
        scheduler: SchedulerEndpoint,
        program: ProgramIdentity,
        patience: Duration,
    ) -> Self {
        Self { scheduler, program, patience, local: None }
    }

    /// Uses the cluster of processes on this machine.
    pub fn with_local_cluster(
        local: LocalCluster,
        program: ProgramIdentity,
        patience: Duration,
    ) -> Self {
        let scheduler = local.scheduler().clone();
        Self { scheduler, program, patience, local: Some(Mutex::new(local)) }
    }

    /// Returns once there is a local cluster that cannot work any more.
    async fn local_ended(&self) -> Error {
        let Some(local) = &self.local else { return std::future::pending().await };
        loop {
            if let Some(error) = local.lock().unwrap_or_else(PoisonError::into_inner).ended() {
                return error;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Submits the orders, and waits until nobody works on them or the run is stopped.
    async fn carry_all(
        &self,
        orders: &[(String, String)],
        stop: &Stop,
        say: &(dyn Fn(&str) + Sync),
    ) -> Result<(), Error> {
        let Some(checked) =
            unless_stopped(stop, check_scheduler(&self.scheduler, &self.program)).await
        else {
            return Ok(());
        };
        checked?;
        let mut result = Ok(());
        for (shared, some) in split_into_jobs(orders) {
            // If the scheduler accepts it nonetheless, its units find that the run is over.
            let submitted = unless_stopped(stop, Job::submit(&self.scheduler, shared, &some)).await;
            let Some(job) = submitted else { break };
            let mut job = job?;
            let ended = job.watch(self.patience, self.local.is_some(), stop, say).await?;
            result = result.and(ended);
        }
        result
    }

    /// Checks that the scheduler is reachable and runs the same program. Submits nothing.
    pub fn check(&self) -> Result<(), Error> {
        let identity = runtime(1)?.block_on(check_scheduler(&self.scheduler, &self.program));
        Ok(identity.map(drop)?)
    }
}

impl Carrier for Ballista {
    fn carry(
        &self,
        orders: &[UnitOrder],
        stop: &Stop,
        say: &(dyn Fn(&str) + Sync),
    ) -> Result<(), Error> {
        let orders = orders.iter().map(UnitOrder::to_json_parts).collect::<Result<Vec<_>, _>>()?;
        let runtime = runtime(1)?;
        let result = runtime.block_on(async {
            tokio::select! {
                biased;
                error = self.local_ended() => Err(error),
                result = self.carry_all(&orders, stop, say) => result,
            }
        });
        runtime.shutdown_background();
        result
    }
}

/// The result of `work`, or `None` as soon as the run is stopped.
async fn unless_stopped<T>(stop: &Stop, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        () = stop_requested(stop) => None,
        done = work => Some(done),
    }
}

/// What the orders of a job share, and the rest of each order.
type JobOrders<'o> = (&'o str, Vec<&'o str>);

/// Splits the orders into jobs, within the limits of a job.
fn split_into_jobs(orders: &[(String, String)]) -> Vec<JobOrders<'_>> {
    let mut jobs: Vec<JobOrders<'_>> = Vec::new();
    let mut bytes = 0;
    for (shared, order) in orders {
        bytes += order.len();
        let is_full = |last: &JobOrders<'_>| last.1.len() >= MAX_ORDERS || bytes > MAX_BYTES;
        match jobs.last_mut() {
            Some(last) if last.0 == shared && !is_full(last) => last.1.push(order),
            _ => {
                bytes = order.len();
                jobs.push((shared, vec![order]));
            }
        }
    }
    jobs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_have_every_order_once_in_order_and_within_limits() {
        let long = "x".repeat(MAX_BYTES - 10);
        let mut orders = vec![long.clone(), "abc".into(), long, "y".repeat(2 * MAX_BYTES)];
        orders.extend((0..MAX_ORDERS + 7).map(|number| number.to_string()));
        let orders: Vec<_> = orders.into_iter().map(|order| ("s".to_owned(), order)).collect();
        let jobs = split_into_jobs(&orders);
        let all = jobs.iter().flat_map(|(_, some)| some.clone());
        assert!(all.eq(orders.iter().map(|(_, order)| order.as_str())));
        let lengths: Vec<usize> = jobs.iter().map(|(_, some)| some.len()).collect();
        assert_eq!(lengths, [2, 1, 1, MAX_ORDERS, 7]);
    }

    #[test]
    fn an_unresponsive_scheduler_does_not_delay_stopping() {
        let stop = Stop::default();
        stop.request();
        let runtime = runtime(1).unwrap();
        assert_eq!(runtime.block_on(unless_stopped(&stop, std::future::pending::<()>())), None);
        assert_eq!(runtime.block_on(unless_stopped(&Stop::default(), async { 1 })), Some(1));
    }

    #[test]
    fn no_orders_are_no_job() {
        assert!(split_into_jobs(&[]).is_empty());
    }
}
