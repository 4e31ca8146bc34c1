//! What a scheduler answers to questions of ours: what it is, what it believes an executor does, how far
//! a job is, who there is. Keeps what executors say of a job for who drives that; changes nothing else.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::extract::{Path, State};
use axum::routing::{get, post};
use axum::{Json, Router};
use ballista_core::ids::new_instance_id;
use ballista_scheduler::state::execution_graph::RunningTaskInfo;
use ballista_scheduler::state::task_manager::JobInfoCache;
use serde::{Deserialize, Serialize};
use sluice_pipeline::dispatch::Greeting;

use super::Scheduler;
use crate::hello::{self, Hello};
use crate::plan::Task;

/// What a scheduler believes of an executor.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Belief {
    /// Another one each time a scheduler is started.
    pub(crate) instance: String,
    /// The jobs that anybody works on.
    pub(crate) jobs: Vec<String>,
    /// What this executor should be at.
    pub(crate) running: Vec<Task>,
}

/// How far a job is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Standing {
    /// How many executors there are.
    pub(crate) executors: usize,
    /// How many of its units nobody has begun; nothing of a job that is over.
    pub(crate) waiting: usize,
    /// How many are under way.
    pub(crate) running: usize,
    /// What executors have said of it, as far as that is new to who asks.
    pub(crate) words: Vec<Word>,
}

/// What an executor says of a job, for who drives it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Word {
    /// The words.
    pub(crate) text: String,
    /// Whether a unit was left to nobody.
    pub(crate) is_left: bool,
}

/// Who there is, and what is being done.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Census {
    /// What the scheduler is.
    pub(crate) hello: Hello,
    /// The executors, by id.
    pub(crate) executors: Vec<Worker>,
    /// The jobs that are not over, oldest first.
    pub(crate) jobs: Vec<Work>,
}

/// An executor.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Worker {
    /// Its name: host, process and a random part.
    pub(crate) id: String,
    /// The address it asks from.
    pub(crate) host: String,
    /// How many units it runs at a time.
    pub(crate) slots: u32,
    /// How many it is at.
    pub(crate) running: usize,
    /// How long ago it was heard, in seconds.
    pub(crate) silent: Option<u64>,
}

/// A job.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Work {
    /// Its id.
    pub(crate) id: String,
    /// How many units nobody has begun.
    pub(crate) waiting: usize,
    /// How many are under way.
    pub(crate) running: usize,
}

/// How many words of a job are kept, and of how many jobs.
const MOST_WORDS: (usize, usize) = (200, 100);

/// How long a word may be.
const LONGEST_WORD: usize = 4 << 10;

/// A job of which nobody has asked for so long has lost its driver, who asks every few seconds.
const SILENCE: Duration = Duration::from_secs(20);

struct Known {
    scheduler: Scheduler,
    hello: Hello,
    /// When somebody asked for each job last, or when it was first seen.
    asked: Mutex<BTreeMap<String, Instant>>,
    /// By job: ids grow with time, so the first is the oldest.
    words: Mutex<BTreeMap<String, Vec<Word>>>,
}

impl Known {
    fn asked(&self) -> MutexGuard<'_, BTreeMap<String, Instant>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those of these jobs that have lost their drivers. Forgets the others that are over.
    fn deserted(&self, jobs: &[(String, JobInfoCache)]) -> Vec<String> {
        let mut asked = self.asked();
        asked.retain(|id, _| jobs.iter().any(|(job, _)| job == id));
        let now = Instant::now();
        let silent = jobs
            .iter()
            .map(|(id, _)| id)
            .filter(|id| now.duration_since(*asked.entry((*id).clone()).or_insert(now)) > SILENCE);
        silent.cloned().collect()
    }

    fn words(&self) -> MutexGuard<'_, BTreeMap<String, Vec<Word>>> {
        self.words.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The routes of these answers.
pub(crate) fn routes(scheduler: Scheduler, greeting: &Greeting) -> Router {
    let hello = Hello::of(greeting, &new_instance_id());
    let router = Router::new()
        .route(hello::PATH, get(say_hello))
        .route("/sluice/state", get(state))
        .route("/sluice/job/{id}", post(hear))
        .route("/sluice/job/{id}/{heard}", get(standing))
        .route("/sluice/executor/{id}", get(belief));
    router.with_state(Arc::new(Known {
        scheduler,
        hello,
        words: Mutex::default(),
        asked: Mutex::default(),
    }))
}

async fn say_hello(State(known): State<Arc<Known>>) -> Json<Hello> {
    Json(known.hello.clone())
}

async fn belief(Path(id): Path<String>, State(known): State<Arc<Known>>) -> Json<Belief> {
    let jobs = jobs(&known.scheduler);
    for job_id in known.deserted(&jobs) {
        // Its units would be tried for nothing, each for seconds. What cannot be cancelled now is tried again soon.
        drop(known.scheduler.cancel_job(job_id.into()).await);
    }
    let mut running = Vec::new();
    for (_, job) in &jobs {
        let tasks = job.execution_graph.read().await.running_tasks();
        running.extend(tasks.iter().filter(|task| task.executor_id == id).map(task_of));
    }
    let jobs = jobs.into_iter().map(|(id, _)| id).collect();
    Json(Belief { instance: known.hello.instance.clone(), jobs, running })
}

async fn hear(Path(id): Path<String>, State(known): State<Arc<Known>>, Json(word): Json<Word>) {
    // Executors say what they have to before their task ends. Whatever else comes would be kept for nobody.
    if !jobs(&known.scheduler).iter().any(|(job, _)| *job == id) {
        return;
    }
    let mut all = known.words();
    let words = all.entry(id).or_default();
    if words.len() < MOST_WORDS.0 {
        let text = word.text.chars().take(LONGEST_WORD).collect();
        words.push(Word { text, ..word });
    }
    if all.len() > MOST_WORDS.1 {
        all.pop_first();
    }
}

async fn standing(
    Path((id, heard)): Path<(String, usize)>,
    State(known): State<Arc<Known>>,
) -> Json<Standing> {
    let executors = executors(&known.scheduler, &[]).await.len();
    let words = known.words().get(&id).and_then(|words| words.get(heard..)).unwrap_or(&[]).to_vec();
    let mut standing = Standing { executors, waiting: 0, running: 0, words };
    if let Some((_, job)) = jobs(&known.scheduler).into_iter().find(|(job, _)| *job == id) {
        known.asked().insert(id, Instant::now());
        let graph = job.execution_graph.read().await;
        standing.waiting = graph.available_tasks();
        standing.running = graph.running_tasks().len();
    }
    Json(standing)
}

async fn state(State(known): State<Arc<Known>>) -> Json<Census> {
    let mut works = Vec::new();
    let mut tasks = Vec::new();
    for (id, job) in jobs(&known.scheduler) {
        let graph = job.execution_graph.read().await;
        let running = graph.running_tasks();
        works.push(Work { id, waiting: graph.available_tasks(), running: running.len() });
        tasks.extend(running);
    }
    let executors = executors(&known.scheduler, &tasks).await;
    Json(Census { hello: known.hello.clone(), executors, jobs: works })
}

/// The jobs that anybody works on, sorted: ids grow with time.
fn jobs(scheduler: &Scheduler) -> Vec<(String, JobInfoCache)> {
    let jobs = scheduler.state.task_manager.get_running_job_cache();
    let mut jobs: Vec<_> = jobs.iter().map(|(id, job)| (id.to_string(), job.clone())).collect();
    jobs.sort_by(|a, b| a.0.cmp(&b.0));
    jobs
}

/// The executors that have been heard lately, sorted.
async fn executors(scheduler: &Scheduler, tasks: &[RunningTaskInfo]) -> Vec<Worker> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let all = scheduler.state.executor_manager.get_executors_state().await.unwrap_or_default();
    let worker = |(executor, heard, _): (_, Option<Duration>, _)| {
        let executor: ballista_core::serde::scheduler::ExecutorMetadata = executor;
        Worker {
            running: tasks.iter().filter(|task| task.executor_id == executor.id).count(),
            id: executor.id,
            host: executor.host,
            slots: executor.specification.vcores,
            silent: heard.map(|heard| now.saturating_sub(heard).as_secs()),
        }
    };
    let mut workers: Vec<Worker> = all.into_iter().map(worker).collect();
    workers.sort_by(|a, b| a.id.cmp(&b.id));
    workers
}

fn task_of(task: &RunningTaskInfo) -> Task {
    Task { job: task.job_id.to_string(), stage: task.stage_id, number: task.task_id, failures: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime;
    use crate::scheduler::{SchedulerOptions, scheduler};

    #[test]
    fn of_a_job_that_is_not_there_nothing_is_kept() {
        let options = SchedulerOptions {
            listen: "127.0.0.1:0".parse().unwrap(),
            advertise: None,
            executor_timeout: Duration::from_secs(20),
            greeting: Greeting::default(),
        };
        runtime(1).unwrap().block_on(async {
            let scheduler = scheduler(&options, "127.0.0.1:1".parse().unwrap()).await.unwrap();
            let hello = Hello::of(&options.greeting, "instance");
            let (words, asked) = (Mutex::default(), Mutex::default());
            let known = Arc::new(Known { scheduler, hello, words, asked });
            let word = Word { text: "rubbish".into(), is_left: true };
            hear(Path("nowhere".into()), State(Arc::clone(&known)), Json(word)).await;
            drop(standing(Path(("nowhere".into(), 0)), State(Arc::clone(&known))).await);
            assert!(known.words().is_empty() && known.asked().is_empty());
        });
    }
}
