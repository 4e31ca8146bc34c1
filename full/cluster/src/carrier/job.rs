//! One job at a scheduler: submits it and follows it until it is done, failed, lost, stuck or
//! cancelled.

use std::time::Duration;

use ballista_core::ids::new_instance_id;
use ballista_core::serde::protobuf::execute_query_params::Query;
use ballista_core::serde::protobuf::execute_query_result::Result as Submitted;
use ballista_core::serde::protobuf::job_status::Status;
use ballista_core::serde::protobuf::{
    CancelJobParams, ExecuteQueryParams, GetJobStatusParams, KeyValuePair, RemoveSessionParams,
};
use ballista_core::version::insert_version_header;
use sluice_model::Error;
use sluice_pipeline::run::Stop;
use tokio::time::{Instant, sleep, timeout};
use tonic::{Code, Request};

use crate::endpoint::{SchedulerClient, SchedulerEndpoint};
use crate::http::get_json;
use crate::scheduler::admin::JobProgress;
use crate::{plan, stop_requested};

/// How often the job's status is polled: at first, and at most.
const STATUS_INTERVALS: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(100)];

/// How often the job's progress is polled.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(2);

/// How long a request may take: a large job is planned in one.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(120);

/// How long a status request may take. A host that is cut off refuses nothing, and the connection
/// does not notice for minutes.
const STATUS_TIMEOUT: Duration = Duration::from_secs(8);

/// How long a scheduler may be unreachable before the job fails.
const SCHEDULER_TIMEOUT: Duration = Duration::from_secs(60);

/// How often to remind the user that no executor has joined.
const REMINDER_INTERVAL: Duration = Duration::from_secs(60);

/// Once this many units were abandoned because no executor sees their folders, and none succeeded,
/// the job fails.
const MAX_ABANDONED: usize = 3;

/// How long cancelling and cleaning up may take.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);

/// A submitted job.
pub(super) struct Job<'a> {
    scheduler: &'a SchedulerEndpoint,
    client: SchedulerClient,
    session: String,
    id: String,
    /// The number of units.
    units: usize,
}

/// The state of a job.
enum State {
    Active,
    Done,
    Failed(String),
    /// The scheduler does not know the job.
    Unknown,
    /// The scheduler does not answer.
    Unreachable(String),
}

impl<'a> Job<'a> {
    /// Submits these orders to a scheduler as one job.
    pub(super) async fn submit(
        scheduler: &'a SchedulerEndpoint,
        shared: &str,
        orders: &[&str],
    ) -> Result<Self, Error> {
        let cannot = |what: &str| {
            Error::refused(format!("the scheduler at {scheduler} refused the orders: {what}"))
        };
        let client = scheduler.grpc_client(REQUEST_TIMEOUT).await;
        let mut client = client.map_err(|e| cannot(&e.to_string()))?;
        let plan = plan::encode_plan(shared, orders).map_err(|e| cannot(&e.to_string()))?;
        let session = new_instance_id();
        let submitted = client.execute_query(request(plan, &session)).await;
        let submitted = submitted.map_err(|status| cannot(status.message()))?.into_inner();
        match submitted.result {
            Some(Submitted::Success(job)) => {
                Ok(Self { scheduler, client, session, id: job.job_id, units: orders.len() })
            }
            other => Err(cannot(&format!("{other:?}"))),
        }
    }

    /// Follows the job until it ends or the run is stopped. The inner `Err` is why executors
    /// abandoned some of its units.
    pub(super) async fn watch(
        &mut self,
        patience: Duration,
        is_local: bool,
        stop: &Stop,
        say: &(dyn Fn(&str) + Sync),
    ) -> Result<Result<(), Error>, Error> {
        let mut watchdog = Watchdog::new(self.units, patience, is_local);
        let result = tokio::select! {
            result = self.until_over(&mut watchdog, say) => result,
            () = stop_requested(stop) => Ok(()),
        };
        watchdog.poll_progress(self.scheduler, &self.id, say).await;
        self.clean_up(result.is_ok() && !stop.is_requested()).await;
        result.map(|()| watchdog.abandoned.pop().map_or(Ok(()), |why| Err(Error::refused(why))))
    }

    async fn until_over(
        &self,
        watchdog: &mut Watchdog,
        say: &(dyn Fn(&str) + Sync),
    ) -> Result<(), Error> {
        let mut client = self.client.clone();
        let mut interval = STATUS_INTERVALS[0];
        let mut last_response = Instant::now();
        loop {
            sleep(interval).await;
            interval = (interval * 2).min(STATUS_INTERVALS[1]);
            match state(&mut client, &self.id).await {
                State::Done => return Ok(()),
                State::Failed(why) => return Err(Error::refused(reason_of(&why))),
                State::Unknown => {
                    let lost = "has lost the job; it was probably restarted";
                    return Err(Error::refused(format!(
                        "the scheduler at {} {lost}",
                        self.scheduler
                    )));
                }
                State::Active => last_response = Instant::now(),
                State::Unreachable(why)
                    if last_response.elapsed() >= SCHEDULER_TIMEOUT.min(watchdog.patience) =>
                {
                    let silent =
                        format!("the scheduler at {} stopped responding: {why}", self.scheduler);
                    return Err(Error::refused(silent));
                }
                State::Unreachable(_) => continue,
            }
            watchdog.check(self.scheduler, &self.id, say).await?;
        }
    }

    /// Cancels the job unless it is over, and removes its session.
    async fn clean_up(&mut self, is_over: bool) {
        let (job_id, session_id) = (self.id.clone(), self.session.clone());
        let clean_up = async {
            if !is_over {
                // A job that cannot be cancelled ends anyway: its units notice that the driver is
                // gone.
                drop(self.client.cancel_job(CancelJobParams { job_id }).await);
            }
            drop(self.client.remove_session(RemoveSessionParams { session_id }).await);
        };
        drop(timeout(CANCEL_TIMEOUT, clean_up).await);
    }
}

fn request(plan: Vec<u8>, session: &str) -> Request<ExecuteQueryParams> {
    // One task per unit, so that a unit that fails takes no other with it.
    let one = ("ballista.scheduler.max_partitions_per_task", "1");
    let name = ("ballista.job.name", "sluice");
    let settings = [one, name]
        .map(|(key, value)| KeyValuePair { key: key.to_owned(), value: Some(value.to_owned()) });
    let mut request = Request::new(ExecuteQueryParams {
        session_id: session.to_owned(),
        settings: settings.to_vec(),
        operation_id: new_instance_id(),
        query: Some(Query::PhysicalPlan(plan)),
    });
    insert_version_header(request.metadata_mut());
    request
}

async fn state(client: &mut SchedulerClient, id: &str) -> State {
    let request = client.get_job_status(GetJobStatusParams { job_id: id.to_owned() });
    let Ok(answer) = timeout(STATUS_TIMEOUT, request).await else {
        let limit = STATUS_TIMEOUT.as_secs();
        return State::Unreachable(format!("no response within {limit} s"));
    };
    match answer.map(|answer| answer.into_inner().status.and_then(|status| status.status)) {
        Ok(Some(Status::Successful(_))) => State::Done,
        Ok(Some(Status::Failed(failed))) => State::Failed(failed.error),
        Ok(Some(Status::Queued(_) | Status::Running(_))) => State::Active,
        Ok(None) => State::Unknown,
        Err(status)
            if matches!(
                status.code(),
                Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Unknown
            ) =>
        {
            State::Unreachable(status.message().to_owned())
        }
        Err(_) => State::Unknown,
    }
}

/// Extracts our message from the error that Ballista wraps around it.
fn reason_of(why: &str) -> String {
    let quoted = why.split_once("error: \"").map(|(_, rest)| rest);
    let inner = quoted.and_then(|rest| rest.split_once("\" }")).map(|(inner, _)| inner);
    inner.unwrap_or(why).trim().to_owned()
}

/// Detects jobs that make no progress, and relays the messages of executors.
struct Watchdog {
    units: usize,
    patience: Duration,
    /// Whether nobody can add executors to the cluster.
    is_local: bool,
    checked: Instant,
    /// When the progress last changed, and to what.
    last_change: (Instant, Option<JobProgress>),
    last_reminder: Instant,
    /// How many messages were read so far.
    messages_read: usize,
    /// Why executors abandoned units, one entry per unit.
    abandoned: Vec<String>,
}

impl Watchdog {
    fn new(units: usize, patience: Duration, is_local: bool) -> Self {
        let now = Instant::now();
        // The first reminder comes early: usually no executor was started.
        let last_reminder = now.checked_sub(REMINDER_INTERVAL).unwrap_or(now) + PROGRESS_INTERVAL;
        let (last_change, abandoned) = ((now, None), Vec::new());
        Self {
            units,
            patience,
            is_local,
            checked: now,
            last_change,
            last_reminder,
            messages_read: 0,
            abandoned,
        }
    }

    /// Polls the progress every few seconds. `Err` if nothing has changed for `patience` while no
    /// executor was working, or if no executor sees the folders of the units.
    async fn check(
        &mut self,
        scheduler: &SchedulerEndpoint,
        job: &str,
        say: &(dyn Fn(&str) + Sync),
    ) -> Result<(), Error> {
        if self.checked.elapsed() < PROGRESS_INTERVAL {
            return Ok(());
        }
        self.checked = Instant::now();
        // Whether the scheduler is reachable is checked in `until_over`.
        let Some(progress) = self.poll_progress(scheduler, job, say).await else { return Ok(()) };
        let ended = self.units.saturating_sub(progress.waiting + progress.running);
        if self.abandoned.len() >= MAX_ABANDONED && ended <= self.abandoned.len() {
            return Err(Error::refused(self.abandoned.pop().unwrap_or_default()));
        }
        if progress.running > 0 || self.last_change.1.as_ref() != Some(&progress) {
            self.last_change.0 = Instant::now();
        }
        if progress.executors == 0 && self.last_reminder.elapsed() >= REMINDER_INTERVAL {
            self.last_reminder = Instant::now();
            say(&if self.is_local {
                "waiting for the executors of the local cluster: none responds".to_owned()
            } else {
                format!(
                    "waiting for executors: none has joined {scheduler}; start one with `sluice \
                     cluster executor --scheduler {scheduler}`"
                )
            });
        }
        let (silence, waiting) = (self.last_change.0.elapsed(), progress.waiting);
        self.last_change.1 = Some(progress);
        if silence < self.patience {
            return Ok(());
        }
        let waited = silence.as_secs();
        Err(Error::refused(format!(
            "no progress for {waited} s: {waiting} units are waiting, and no executor is working"
        )))
    }

    /// Fetches the job's progress, and relays the messages that are new.
    async fn poll_progress(
        &mut self,
        scheduler: &SchedulerEndpoint,
        job: &str,
        say: &(dyn Fn(&str) + Sync),
    ) -> Option<JobProgress> {
        let path = format!("/sluice/job/{job}/{}", self.messages_read);
        let mut progress: JobProgress = get_json(scheduler, &path).await.ok()?;
        for message in progress.messages.drain(..) {
            self.messages_read += 1;
            say(&message.text);
            if message.is_abandoned {
                self.abandoned.push(message.text);
            }
        }
        Some(progress)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_part_of_a_ballista_error_is_reported() {
        let why = r#"Task 0 in Stage 1 failed 8 times, fail the stage, most recent failure reason: "Task failed due to IO error: DataFusionError(IoError(Custom { kind: Other, error: "the folder /x is not there" }))""#;
        assert_eq!(reason_of(why), "the folder /x is not there");
        assert_eq!(reason_of("something else"), "something else");
    }
}
