//! One job at a scheduler: submitting it, and seeing it to an end: done, failed, lost, stuck, or unwanted.

use std::time::Duration;

use ballista_core::ids::new_instance_id;
use ballista_core::serde::protobuf::execute_query_params::Query;
use ballista_core::serde::protobuf::execute_query_result::Result as Submitted;
use ballista_core::serde::protobuf::job_status::Status;
use ballista_core::serde::protobuf::scheduler_grpc_client::SchedulerGrpcClient;
use ballista_core::serde::protobuf::{
    CancelJobParams, ExecuteQueryParams, GetJobStatusParams, KeyValuePair, RemoveSessionParams,
};
use ballista_core::utils::{GrpcClientConfig, create_grpc_client_endpoint};
use ballista_core::version::insert_version_header;
use sluice_core::Error;
use sluice_pipeline::run::Stop;
use tokio::time::{Instant, sleep, timeout};
use tonic::transport::Channel;
use tonic::{Code, Request};

use crate::address::Address;
use crate::http::get_json;
use crate::scheduler::admin::JobProgress;
use crate::{MESSAGE_LIMIT, POLL_INTERVAL, plan, stop_requested};

/// How often it is asked how a job is, at first and later.
const STATUS_INTERVALS: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(500)];

/// How often it is asked how far a job is.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(2);

/// How long a scheduler may be silent.
const SCHEDULER_TIMEOUT: Duration = Duration::from_secs(60);

/// When it is first said that nothing happens, and how often again.
const REMINDER_INTERVAL: Duration = Duration::from_secs(60);

/// Of how many units it has to be said that nobody sees their folders, before that is taken for true of all.
const MAX_ABANDONED: usize = 3;

/// How long it may take to say that a job is not wanted any more.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);

/// A job that has been submitted.
pub(super) struct Job<'a> {
    scheduler: &'a Address,
    client: SchedulerGrpcClient<Channel>,
    session: String,
    id: String,
    /// How many units it has.
    units: usize,
}

/// How a job is.
enum State {
    Active,
    Done,
    Failed(String),
    /// The scheduler does not know it.
    Unknown,
    /// The scheduler does not answer.
    Unreachable(String),
}

impl<'a> Job<'a> {
    /// Has a scheduler hand out these orders.
    pub(super) async fn submit(
        scheduler: &'a Address,
        shared: &str,
        orders: &[&str],
    ) -> Result<Self, Error> {
        let cannot = |what: &str| {
            Error::refused(format!("the scheduler at {scheduler} does not take the orders: {what}"))
        };
        let config = GrpcClientConfig { timeout_seconds: 120, ..GrpcClientConfig::default() };
        let endpoint = create_grpc_client_endpoint(scheduler.url(), Some(&config));
        let channel = endpoint.map_err(|e| cannot(&e.to_string()))?.connect().await;
        let client = SchedulerGrpcClient::new(channel.map_err(|e| cannot(&e.to_string()))?);
        let mut client = client
            .max_decoding_message_size(MESSAGE_LIMIT)
            .max_encoding_message_size(MESSAGE_LIMIT);
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

    /// Sees it to its end, or to where it is asked to stop. The inner `Err` says why executors left some
    /// of it.
    pub(super) async fn watch(
        &mut self,
        patience: Duration,
        stop: &Stop,
        say: &(dyn Fn(&str) + Sync),
    ) -> Result<Result<(), Error>, Error> {
        let mut watchdog = Watchdog::new(self.units, patience);
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
            sleep(interval.max(POLL_INTERVAL / 2)).await;
            interval = (interval * 2).min(STATUS_INTERVALS[1]);
            match state(&mut client, &self.id).await {
                State::Done => return Ok(()),
                State::Failed(why) => return Err(Error::refused(reason_of(&why))),
                State::Unknown => {
                    let lost = "has lost the job: it was probably started anew";
                    return Err(Error::refused(format!(
                        "the scheduler at {} {lost}",
                        self.scheduler
                    )));
                }
                State::Active => last_response = Instant::now(),
                State::Unreachable(why)
                    if last_response.elapsed() >= SCHEDULER_TIMEOUT.min(watchdog.patience) =>
                {
                    let silent = format!("the scheduler at {} fell silent: {why}", self.scheduler);
                    return Err(Error::refused(silent));
                }
                State::Unreachable(_) => continue,
            }
            watchdog.check(self.scheduler, &self.id, say).await?;
        }
    }

    /// Has nobody work for it any more, and nothing kept of it.
    async fn clean_up(&mut self, is_over: bool) {
        let (job_id, session_id) = (self.id.clone(), self.session.clone());
        let clean_up = async {
            if !is_over {
                // What cannot be cancelled ends for want of its driver.
                drop(self.client.cancel_job(CancelJobParams { job_id }).await);
            }
            drop(self.client.remove_session(RemoveSessionParams { session_id }).await);
        };
        drop(timeout(CANCEL_TIMEOUT, clean_up).await);
    }
}

fn request(plan: Vec<u8>, session: &str) -> Request<ExecuteQueryParams> {
    // A task for each unit, so that one that fails takes no other with it.
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

async fn state(client: &mut SchedulerGrpcClient<Channel>, id: &str) -> State {
    let answer = client.get_job_status(GetJobStatusParams { job_id: id.to_owned() }).await;
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

/// The reason in what Ballista says of a job that failed: it wraps what we said into much of its own.
fn reason_of(why: &str) -> String {
    let quoted = why.split_once("error: \"").map(|(_, rest)| rest);
    let inner = quoted.and_then(|rest| rest.split_once("\" }")).map(|(inner, _)| inner);
    inner.unwrap_or(why).trim().to_owned()
}

/// Watches over whether anything happens at all, and hears what executors say of a job.
struct Watchdog {
    units: usize,
    patience: Duration,
    checked: Instant,
    /// When there was news last, and how the job stood.
    last_change: (Instant, Option<JobProgress>),
    last_reminder: Instant,
    /// How many words have been heard.
    messages_read: usize,
    /// Why executors have left units to nobody.
    abandoned: Vec<String>,
}

impl Watchdog {
    fn new(units: usize, patience: Duration) -> Self {
        let now = Instant::now();
        // The first word comes soon: what is missing is mostly an executor.
        let last_reminder = now.checked_sub(REMINDER_INTERVAL).unwrap_or(now) + PROGRESS_INTERVAL;
        let (last_change, abandoned) = ((now, None), Vec::new());
        Self {
            units,
            patience,
            checked: now,
            last_change,
            last_reminder,
            messages_read: 0,
            abandoned,
        }
    }

    /// Looks how far the job is, now and then. `Err` if nothing has happened for too long although nobody
    /// was at work, or if nobody sees what it is about.
    async fn check(
        &mut self,
        scheduler: &Address,
        job: &str,
        say: &(dyn Fn(&str) + Sync),
    ) -> Result<(), Error> {
        if self.checked.elapsed() < PROGRESS_INTERVAL {
            return Ok(());
        }
        self.checked = Instant::now();
        // Whether the scheduler is there at all is asked elsewhere.
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
            say(&format!(
                "waiting for executors: none has joined {scheduler}; `sluice cluster executor --scheduler \
                 {scheduler}` starts one"
            ));
        }
        let (silence, waiting) = (self.last_change.0.elapsed(), progress.waiting);
        self.last_change.1 = Some(progress);
        if silence < self.patience {
            return Ok(());
        }
        let waited = silence.as_secs();
        Err(Error::refused(format!(
            "nothing has happened for {waited} s: units wait ({waiting}), and nobody is at work"
        )))
    }

    /// Asks how the job stands, and passes on what executors have said of it since.
    async fn poll_progress(
        &mut self,
        scheduler: &Address,
        job: &str,
        say: &(dyn Fn(&str) + Sync),
    ) -> Option<JobProgress> {
        let asked = format!("/sluice/job/{job}/{}", self.messages_read);
        let mut progress: JobProgress = get_json(scheduler, &asked).await.ok()?;
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
    fn of_what_ballista_says_of_a_failure_only_our_words_are_told() {
        let why = r#"Task 0 in Stage 1 failed 8 times, fail the stage, most recent failure reason: "Task failed due to IO error: DataFusionError(IoError(Custom { kind: Other, error: "the folder /x is not there" }))""#;
        assert_eq!(reason_of(why), "the folder /x is not there");
        assert_eq!(reason_of("something else"), "something else");
    }
}
