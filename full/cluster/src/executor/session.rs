//! One connection of an executor to a scheduler, from joining to losing it. `unit_runner` keeps the
//! units that are running.
//!
//! Ballista's poll loop asks for tasks and reports on them. If a response or a report is lost, each
//! side would believe forever that the other still has the task. So both lists are reconciled
//! regularly: tasks that the scheduler has assigned but that do not run here are reported as lost,
//! and units of jobs that are over are cancelled.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ballista_core::BALLISTA_PROTOCOL_VERSION;
use ballista_core::ids::new_instance_id;
use ballista_core::serde::protobuf::executor_resource::Resource;
use ballista_core::serde::protobuf::failed_task::FailedReason;
use ballista_core::serde::protobuf::{
    ExecutorOperatingSystemSpecification, ExecutorRegistration, ExecutorResource,
    ExecutorSpecification, ExecutorStoppedParams, FailedTask, ResultLost, TaskStatus,
    UpdateTaskStatusParams, task_status,
};
use ballista_core::serde::{BallistaCodec, BallistaLogicalExtensionCodec};
use ballista_core::utils::default_config_producer;
use ballista_executor::execution_loop::poll_loop;
use ballista_executor::executor::Executor;
use ballista_executor::health::ExecutorHealth;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion_proto::protobuf::{LogicalPlanNode, PhysicalPlanNode};
use sluice_pipeline::run::Stop;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use super::context::{ExecutorOptions, MessageSender, send_message};
use super::unit_runner::UnitRunner;
use crate::endpoint::{SchedulerChannel, SchedulerClient, SchedulerEndpoint};
use crate::handshake::SchedulerIdentity;
use crate::http::get_json;
use crate::plan::{BallistaTask, PlanCodec};
use crate::request_error::RequestError;
use crate::scheduler::admin::AssignedTasks;
use crate::{POLL_INTERVAL, host_name, stop_requested};

/// How often the two lists are reconciled.
const RECONCILE_INTERVAL: Duration = Duration::from_secs(2);

/// The shortest and the longest interval at which an executor with free slots asks for work.
const ASK_INTERVALS: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(50)];

/// Between these, the interval is the time since a unit started or ended here, or since the
/// executor started, divided by this.
const ASK_DIVISOR: u32 = 16;

/// How long the scheduler may be unreachable before it counts as lost. By then it has long
/// reassigned our units.
const SCHEDULER_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a report to the scheduler may take.
const REPORT_TIMEOUT: Duration = Duration::from_secs(3);

/// How long other requests may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);

/// One connection to a scheduler.
pub(super) struct SchedulerSession<'s> {
    scheduler: &'s SchedulerEndpoint,
    instance: &'s str,
    id: String,
    slots: usize,
    runner: &'s Arc<UnitRunner>,
    work_dir: &'s Path,
}

impl<'s> SchedulerSession<'s> {
    pub(super) fn new(
        options: &'s ExecutorOptions,
        identity: &'s SchedulerIdentity,
        runner: &'s Arc<UnitRunner>,
        work_dir: &'s Path,
    ) -> Self {
        let name = options.name.as_deref().unwrap_or(host_name());
        // The id becomes part of URLs.
        let plain = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
        let name: String = name.chars().map(plain).take(64).collect();
        let random = new_instance_id();
        let random = random.get(..8).unwrap_or_default();
        Self {
            scheduler: &options.scheduler,
            instance: &identity.instance,
            id: format!("{name}-{}-{random}", std::process::id()),
            slots: options.slots,
            runner,
            work_dir,
        }
    }

    /// Runs units until `stop` is requested, or until the scheduler is lost: `Err` says how.
    pub(super) async fn run(&self, stop: &Stop, messages: &MessageSender) -> Result<(), String> {
        let mut client =
            self.scheduler.grpc_client(REQUEST_TIMEOUT).await.map_err(|e| {
                format!("cannot connect to the scheduler at {}: {e}", self.scheduler)
            })?;
        let health = ExecutorHealth::new();
        let ask = Arc::new(Notify::new());
        let polling = poll_loop::<LogicalPlanNode, PhysicalPlanNode, SchedulerChannel>(
            client.clone(),
            Arc::new(self.executor()),
            BallistaCodec::new(
                Arc::new(BallistaLogicalExtensionCodec::default()),
                Arc::new(PlanCodec::with_worker(Arc::clone(self.runner) as _)),
            ),
            Some(Arc::clone(&ask)),
            None,
            health.clone(),
        );
        let mut polling = tokio::spawn(polling);
        let ended = tokio::select! {
            () = stop_requested(stop) => Ok(()),
            lost = self.reconcile_until_lost(&mut client, &health, messages) => Err(lost),
            ended = &mut polling => Err(format!("the poll loop ended: {ended:?}")),
            never = self.keep_asking(&ask) => match never {},
        };
        polling.abort();
        self.runner.end_all().await;
        if ended.is_ok() {
            self.unregister(&mut client).await;
        }
        ended
    }

    /// Wakes the poll loop, whose own interval is long.
    async fn keep_asking(&self, ask: &Notify) -> Infallible {
        let [least, most] = ASK_INTERVALS;
        loop {
            sleep((self.runner.since_change() / ASK_DIVISOR).clamp(least, most)).await;
            ask.notify_one();
        }
    }

    fn executor(&self) -> Executor {
        let folder = self.work_dir.to_owned();
        let runtime = move |_: &_| {
            let runtime = RuntimeEnvBuilder::new().with_temp_file_path(folder.clone()).build()?;
            Ok(Arc::new(runtime))
        };
        Executor::new_basic(
            self.registration(),
            &self.work_dir.to_string_lossy(),
            Arc::new(runtime),
            Arc::new(default_config_producer),
            self.slots,
        )
    }

    /// Registers without ports: nothing connects to an executor.
    fn registration(&self) -> ExecutorRegistration {
        let vcores = u32::try_from(self.slots).unwrap_or(u32::MAX);
        let resource = ExecutorResource { resource: Some(Resource::Vcores(vcores)) };
        ExecutorRegistration {
            id: self.id.clone(),
            host: None,
            port: 0,
            grpc_port: 0,
            specification: Some(ExecutorSpecification { resources: vec![resource] }),
            os_info: Some(ExecutorOperatingSystemSpecification::default()),
            ballista_protocol_version: BALLISTA_PROTOCOL_VERSION,
        }
    }

    /// Reconciles with the scheduler until it is lost; returns how.
    async fn reconcile_until_lost(
        &self,
        client: &mut SchedulerClient,
        health: &ExecutorHealth,
        messages: &MessageSender,
    ) -> String {
        while !health.is_ready() {
            sleep(POLL_INTERVAL).await;
        }
        let slots = self.slots;
        let units =
            if slots == 1 { "1 unit at a time".into() } else { format!("{slots} units at a time") };
        send_message(messages, format!("joined the scheduler at {}: {units}", self.scheduler))
            .await;
        let mut last_response = Instant::now();
        let mut not_running: Vec<BallistaTask> = Vec::new();
        loop {
            sleep(RECONCILE_INTERVAL).await;
            // Taken before the request: a unit started since cannot be in the response.
            let running = self.runner.running();
            match get_json::<AssignedTasks>(
                self.scheduler,
                &format!("/sluice/executor/{}", self.id),
            )
            .await
            {
                Ok(assigned) if assigned.instance != self.instance => {
                    return format!("the scheduler at {} was restarted", self.scheduler);
                }
                Ok(assigned) => {
                    last_response = Instant::now();
                    self.stop_unwanted(&running, &assigned.jobs);
                    not_running = self.report_lost(client, &not_running, assigned.running).await;
                }
                Err(RequestError::Refused(why)) => return why,
                Err(_) if last_response.elapsed() < SCHEDULER_TIMEOUT => {}
                Err(_) => return format!("the scheduler at {} stopped responding", self.scheduler),
            }
        }
    }

    fn stop_unwanted(&self, running: &[BallistaTask], jobs: &[String]) {
        for task in running.iter().filter(|task| !jobs.contains(&task.job)) {
            self.runner.end(task);
        }
    }

    /// Reports tasks as lost that the scheduler has assigned to this executor but that ran neither
    /// now nor in the previous round. Returns those that are not running now.
    async fn report_lost(
        &self,
        client: &mut SchedulerClient,
        before: &[BallistaTask],
        reported: Vec<BallistaTask>,
    ) -> Vec<BallistaTask> {
        let running = self.runner.running();
        let is_running = |task: &BallistaTask| running.iter().any(|other| other.is_same(task));
        let not_running: Vec<BallistaTask> =
            reported.into_iter().filter(|task| !is_running(task)).collect();
        let twice =
            not_running.iter().filter(|task| before.iter().any(|other| other.is_same(task)));
        let task_status: Vec<TaskStatus> = twice.map(lost_status).collect();
        if !task_status.is_empty() {
            let update = UpdateTaskStatusParams { executor_id: self.id.clone(), task_status };
            // If the report is lost too, the next round repeats it.
            drop(timeout(REPORT_TIMEOUT, client.update_task_status(update)).await);
        }
        not_running
    }

    /// Tells the scheduler to reassign our units at once.
    async fn unregister(&self, client: &mut SchedulerClient) {
        let stopped =
            ExecutorStoppedParams { executor_id: self.id.clone(), reason: "it was stopped".into() };
        // Otherwise the scheduler notices by itself.
        drop(timeout(REPORT_TIMEOUT, client.executor_stopped(stopped)).await);
    }
}

fn lost_status(task: &BallistaTask) -> TaskStatus {
    let failed = FailedTask {
        error: "the result was lost".into(),
        retryable: true,
        count_to_failures: false,
        failed_reason: Some(FailedReason::ResultLost(ResultLost {})),
    };
    TaskStatus {
        task_id: u32::try_from(task.number).unwrap_or(u32::MAX),
        job_id: task.job.clone(),
        stage_id: u32::try_from(task.stage).unwrap_or(u32::MAX),
        status: Some(task_status::Status::Failed(failed)),
        ..TaskStatus::default()
    }
}
