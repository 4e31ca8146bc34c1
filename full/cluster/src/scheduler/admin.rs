//! The admin API of a scheduler: its identity, the tasks assigned to an executor, the progress of a
//! job, and the state of the cluster. Keeps the messages of executors for the driver of their job.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::extract::{Path, State};
use axum::routing::{get, post};
use axum::{Json, Router};
use ballista_core::ids::new_instance_id;
use ballista_scheduler::scheduler_server::SchedulerServer;
use ballista_scheduler::state::execution_graph::RunningTaskInfo;
use ballista_scheduler::state::task_manager::JobInfoCache;
use datafusion_proto::protobuf::{LogicalPlanNode, PhysicalPlanNode};
use serde::{Deserialize, Serialize};
use sluice_pipeline::dispatch::ProgramIdentity;

use crate::handshake::{self, SchedulerIdentity};
use crate::plan::BallistaTask;

/// Ballista's scheduler with its plan types.
pub(super) type Scheduler = SchedulerServer<LogicalPlanNode, PhysicalPlanNode>;

/// What a scheduler has assigned to an executor.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct AssignedTasks {
    /// Changes each time a scheduler starts.
    pub(crate) instance: String,
    /// The jobs that are running.
    pub(crate) jobs: Vec<String>,
    /// The tasks assigned to this executor.
    pub(crate) running: Vec<BallistaTask>,
}

/// The progress of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JobProgress {
    /// The number of executors in the cluster.
    pub(crate) executors: usize,
    /// The number of units not started; 0 for a job that is over.
    pub(crate) waiting: usize,
    /// The number of running units.
    pub(crate) running: usize,
    /// The messages of executors that the client has not read yet.
    #[serde(rename = "words")]
    pub(crate) messages: Vec<JobMessage>,
}

/// A message of an executor, for the driver of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JobMessage {
    /// The message.
    pub(crate) text: String,
    /// Whether the executor abandoned a unit.
    #[serde(rename = "is_left")]
    pub(crate) is_abandoned: bool,
}

/// The executors and jobs of a cluster.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ClusterState {
    /// The identity of the scheduler.
    #[serde(rename = "hello")]
    pub(crate) identity: SchedulerIdentity,
    /// The executors, by id.
    pub(crate) executors: Vec<ExecutorStatus>,
    /// The jobs that are not over, oldest first.
    pub(crate) jobs: Vec<JobStatus>,
}

/// An executor.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ExecutorStatus {
    /// Its id: host, process and a random part.
    pub(crate) id: String,
    /// The address it connects from.
    pub(crate) host: String,
    /// How many units it runs at a time.
    pub(crate) slots: u32,
    /// How many units are running.
    pub(crate) running: usize,
    /// How many seconds ago its last request was.
    pub(crate) silent: Option<u64>,
}

/// A job.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct JobStatus {
    /// Its id.
    pub(crate) id: String,
    /// The number of units not started.
    pub(crate) waiting: usize,
    /// The number of running units.
    pub(crate) running: usize,
}

/// The most messages per job, and the most jobs with messages.
const MAX_MESSAGES: (usize, usize) = (200, 100);

/// The longest message, in characters.
const MAX_MESSAGE_CHARS: usize = 4 << 10;

/// A job whose progress nobody has polled for this long has lost its driver, which polls every few
/// seconds.
const DRIVER_TIMEOUT: Duration = Duration::from_secs(20);

struct AdminState {
    scheduler: Scheduler,
    identity: SchedulerIdentity,
    /// When the progress of each job was last polled, or when the job was first seen.
    last_polls: Mutex<BTreeMap<String, Instant>>,
    /// By job: ids grow with time, so the first job is the oldest.
    messages: Mutex<BTreeMap<String, Vec<JobMessage>>>,
}

impl AdminState {
    fn last_polls(&self) -> MutexGuard<'_, BTreeMap<String, Instant>> {
        self.last_polls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The jobs that have lost their drivers. Forgets jobs that are over.
    fn abandoned(&self, jobs: &[(String, JobInfoCache)]) -> Vec<String> {
        let mut last_polls = self.last_polls();
        last_polls.retain(|id, _| jobs.iter().any(|(job, _)| job == id));
        let now = Instant::now();
        let silent = jobs.iter().map(|(id, _)| id).filter(|id| {
            now.duration_since(*last_polls.entry((*id).clone()).or_insert(now)) > DRIVER_TIMEOUT
        });
        silent.cloned().collect()
    }

    fn messages(&self) -> MutexGuard<'_, BTreeMap<String, Vec<JobMessage>>> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The routes of the admin API.
pub(crate) fn routes(scheduler: Scheduler, program: &ProgramIdentity) -> Router {
    let identity = SchedulerIdentity::new(program, &new_instance_id());
    let router = Router::new()
        .route(handshake::PATH, get(get_identity))
        .route("/sluice/state", get(get_state))
        .route("/sluice/job/{id}", post(post_message))
        .route("/sluice/job/{id}/{first}", get(get_progress))
        .route("/sluice/executor/{id}", get(get_assigned));
    router.with_state(Arc::new(AdminState {
        scheduler,
        identity,
        messages: Mutex::default(),
        last_polls: Mutex::default(),
    }))
}

async fn get_identity(State(state): State<Arc<AdminState>>) -> Json<SchedulerIdentity> {
    Json(state.identity.clone())
}

async fn get_assigned(
    Path(id): Path<String>,
    State(state): State<Arc<AdminState>>,
) -> Json<AssignedTasks> {
    let jobs = jobs(&state.scheduler);
    for job_id in state.abandoned(&jobs) {
        // Without a driver, its units would be retried for nothing, each for seconds. A failed
        // cancellation is retried soon.
        drop(state.scheduler.cancel_job(job_id.into()).await);
    }
    let mut running = Vec::new();
    for (_, job) in &jobs {
        let tasks = job.execution_graph.read().await.running_tasks();
        running.extend(tasks.iter().filter(|task| task.executor_id == id).map(task_of));
    }
    let jobs = jobs.into_iter().map(|(id, _)| id).collect();
    Json(AssignedTasks { instance: state.identity.instance.clone(), jobs, running })
}

async fn post_message(
    Path(id): Path<String>,
    State(state): State<Arc<AdminState>>,
    Json(message): Json<JobMessage>,
) {
    // Executors send their messages before their task ends. Anything later has no reader.
    if !jobs(&state.scheduler).iter().any(|(job, _)| *job == id) {
        return;
    }
    let mut all = state.messages();
    let messages = all.entry(id).or_default();
    if messages.len() < MAX_MESSAGES.0 {
        let text = message.text.chars().take(MAX_MESSAGE_CHARS).collect();
        messages.push(JobMessage { text, ..message });
    }
    if all.len() > MAX_MESSAGES.1 {
        all.pop_first();
    }
}

async fn get_progress(
    Path((id, first)): Path<(String, usize)>,
    State(state): State<Arc<AdminState>>,
) -> Json<JobProgress> {
    let executors = executors(&state.scheduler, &[]).await.len();
    let messages = state
        .messages()
        .get(&id)
        .and_then(|messages| messages.get(first..))
        .unwrap_or(&[])
        .to_vec();
    let mut progress = JobProgress { executors, waiting: 0, running: 0, messages };
    if let Some((_, job)) = jobs(&state.scheduler).into_iter().find(|(job, _)| *job == id) {
        state.last_polls().insert(id, Instant::now());
        let graph = job.execution_graph.read().await;
        progress.waiting = graph.available_tasks();
        progress.running = graph.running_tasks().len();
    }
    Json(progress)
}

async fn get_state(State(state): State<Arc<AdminState>>) -> Json<ClusterState> {
    let mut job_states = Vec::new();
    let mut tasks = Vec::new();
    for (id, job) in jobs(&state.scheduler) {
        let graph = job.execution_graph.read().await;
        let running = graph.running_tasks();
        job_states.push(JobStatus { id, waiting: graph.available_tasks(), running: running.len() });
        tasks.extend(running);
    }
    let executors = executors(&state.scheduler, &tasks).await;
    Json(ClusterState { identity: state.identity.clone(), executors, jobs: job_states })
}

/// The running jobs, sorted: ids grow with time.
fn jobs(scheduler: &Scheduler) -> Vec<(String, JobInfoCache)> {
    let jobs = scheduler.state.task_manager.get_running_job_cache();
    let mut jobs: Vec<_> = jobs.iter().map(|(id, job)| (id.to_string(), job.clone())).collect();
    jobs.sort_by(|a, b| a.0.cmp(&b.0));
    jobs
}

/// The live executors, sorted by id.
async fn executors(scheduler: &Scheduler, tasks: &[RunningTaskInfo]) -> Vec<ExecutorStatus> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let all = scheduler.state.executor_manager.get_executors_state().await.unwrap_or_default();
    let status_of = |(executor, last_seen, _): (_, Option<Duration>, _)| {
        let executor: ballista_core::serde::scheduler::ExecutorMetadata = executor;
        ExecutorStatus {
            running: tasks.iter().filter(|task| task.executor_id == executor.id).count(),
            id: executor.id,
            host: executor.host,
            slots: executor.specification.vcores,
            silent: last_seen.map(|last_seen| now.saturating_sub(last_seen).as_secs()),
        }
    };
    let mut executors: Vec<ExecutorStatus> = all.into_iter().map(status_of).collect();
    executors.sort_by(|a, b| a.id.cmp(&b.id));
    executors
}

fn task_of(task: &RunningTaskInfo) -> BallistaTask {
    BallistaTask {
        job: task.job_id.to_string(),
        stage: task.stage_id,
        number: task.task_id,
        failures: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credentials::Credentials;
    use crate::runtime;
    use crate::scheduler::{SchedulerOptions, scheduler};

    #[test]
    fn messages_for_unknown_jobs_are_dropped() {
        let options = SchedulerOptions {
            listen: "127.0.0.1:0".parse().unwrap(),
            advertise: None,
            credentials: Credentials::default(),
            executor_timeout: Duration::from_secs(20),
            program: ProgramIdentity::default(),
        };
        runtime(1).unwrap().block_on(async {
            let scheduler = scheduler(&options, "127.0.0.1:1".parse().unwrap()).await.unwrap();
            let identity = SchedulerIdentity::new(&options.program, "instance");
            let (messages, last_polls) = (Mutex::default(), Mutex::default());
            let state = Arc::new(AdminState { scheduler, identity, messages, last_polls });
            let message = JobMessage { text: "rubbish".into(), is_abandoned: true };
            post_message(Path("nowhere".into()), State(Arc::clone(&state)), Json(message)).await;
            drop(get_progress(Path(("nowhere".into(), 0)), State(Arc::clone(&state))).await);
            assert!(state.messages().is_empty() && state.last_polls().is_empty());
        });
    }
}
