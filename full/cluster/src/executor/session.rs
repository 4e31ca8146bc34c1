//! One stay of an executor with a scheduler, from joining to losing it. What it is at, the workshop knows.
//!
//! Ballista's loop asks for work and tells of it; where an answer or a report is lost on the way, both
//! sides would believe for ever that the other is at it. So both lists are compared all the time: what
//! the scheduler believes of us and we are not at is told to be lost, and what we are at for a job that
//! is over is ended.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ballista_core::BALLISTA_PROTOCOL_VERSION;
use ballista_core::ids::new_instance_id;
use ballista_core::serde::protobuf::executor_resource::Resource;
use ballista_core::serde::protobuf::failed_task::FailedReason;
use ballista_core::serde::protobuf::scheduler_grpc_client::SchedulerGrpcClient;
use ballista_core::serde::protobuf::{
    ExecutorOperatingSystemSpecification, ExecutorRegistration, ExecutorResource,
    ExecutorSpecification, ExecutorStoppedParams, FailedTask, ResultLost, TaskStatus,
    UpdateTaskStatusParams, task_status,
};
use ballista_core::serde::{BallistaCodec, BallistaLogicalExtensionCodec};
use ballista_core::utils::{
    GrpcClientConfig, create_grpc_client_endpoint, default_config_producer,
};
use ballista_executor::execution_loop::poll_loop;
use ballista_executor::executor::Executor;
use ballista_executor::health::ExecutorHealth;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion_proto::protobuf::{LogicalPlanNode, PhysicalPlanNode};
use sluice_pipeline::run::Stop;
use tokio::time::{Instant, sleep, timeout};
use tonic::transport::Channel;

use super::workshop::Workshop;
use super::{ExecutorOptions, Voice, tell};
use crate::address::Address;
use crate::ask::ask;
use crate::hello::Hello;
use crate::plan::{Codec, Task};
use crate::scheduler::answers::Belief;
use crate::{LOOK, MESSAGE_LIMIT, host, requested};

/// How often both sides are compared.
const COMPARE: Duration = Duration::from_secs(2);

/// After how long a silence the scheduler is lost. It has given our work to others long before.
const SILENCE: Duration = Duration::from_secs(60);

/// How long a goodbye may take.
const GOODBYE: Duration = Duration::from_secs(3);

type Client = SchedulerGrpcClient<Channel>;

/// One stay with a scheduler.
pub(super) struct Session<'s> {
    scheduler: &'s Address,
    instance: &'s str,
    id: String,
    slots: usize,
    workshop: &'s Arc<Workshop>,
    work_dir: &'s Path,
}

impl<'s> Session<'s> {
    pub(super) fn new(
        options: &'s ExecutorOptions,
        hello: &'s Hello,
        workshop: &'s Arc<Workshop>,
        work_dir: &'s Path,
    ) -> Self {
        let name = options.name.as_deref().unwrap_or(host());
        // It becomes a part of addresses.
        let plain = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
        let name: String = name.chars().map(plain).take(64).collect();
        let random = new_instance_id();
        let random = random.get(..8).unwrap_or_default();
        Self {
            scheduler: &options.scheduler,
            instance: &hello.instance,
            id: format!("{name}-{}-{random}", std::process::id()),
            slots: options.slots,
            workshop,
            work_dir,
        }
    }

    /// Works until it is asked to stop, or until the scheduler is lost: then says how.
    pub(super) async fn run(&self, stop: &Stop, voice: &Voice) -> Result<(), String> {
        let mut client = self.client().await?;
        let health = ExecutorHealth::new();
        let polling = poll_loop::<LogicalPlanNode, PhysicalPlanNode, Channel>(
            client.clone(),
            Arc::new(self.executor()),
            BallistaCodec::new(
                Arc::new(BallistaLogicalExtensionCodec::default()),
                Arc::new(Codec::of(Arc::clone(self.workshop) as _)),
            ),
            None,
            None,
            health.clone(),
        );
        let mut polling = tokio::spawn(polling);
        let ended = tokio::select! {
            () = requested(stop) => Ok(()),
            lost = self.watch(&mut client, &health, voice) => Err(lost),
            ended = &mut polling => Err(format!("asking for work ended: {ended:?}")),
        };
        polling.abort();
        self.workshop.end_all().await;
        if ended.is_ok() {
            self.say_goodbye(&mut client).await;
        }
        ended
    }

    async fn client(&self) -> Result<Client, String> {
        let cannot = |e: tonic::transport::Error| {
            format!("cannot connect to the scheduler at {}: {e}", self.scheduler)
        };
        let config = GrpcClientConfig::default();
        let endpoint = create_grpc_client_endpoint(self.scheduler.url(), Some(&config));
        let channel = endpoint.map_err(cannot)?.connect().await.map_err(cannot)?;
        let client = SchedulerGrpcClient::new(channel);
        Ok(client.max_decoding_message_size(MESSAGE_LIMIT).max_encoding_message_size(MESSAGE_LIMIT))
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

    /// Without ports: nobody has to reach us.
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

    /// Compares both sides until the scheduler is lost, and says how it was.
    async fn watch(&self, client: &mut Client, health: &ExecutorHealth, voice: &Voice) -> String {
        while !health.is_ready() {
            sleep(LOOK).await;
        }
        let slots = self.slots;
        let units =
            if slots == 1 { "1 unit at a time".into() } else { format!("{slots} units at a time") };
        tell(voice, format!("joined the scheduler at {}: {units}", self.scheduler)).await;
        let mut heard = Instant::now();
        let mut missed: Vec<Task> = Vec::new();
        loop {
            sleep(COMPARE).await;
            // Taken before asking: what was begun since cannot be in the answer.
            let running = self.workshop.running();
            match ask::<Belief>(self.scheduler, &format!("/sluice/executor/{}", self.id)).await {
                Ok(belief) if belief.instance != self.instance => {
                    return format!("the scheduler at {} was started anew", self.scheduler);
                }
                Ok(belief) => {
                    heard = Instant::now();
                    self.end_unwanted(&running, &belief.jobs);
                    missed = self.tell_missed(client, &missed, belief.running).await;
                }
                Err(_) if heard.elapsed() < SILENCE => {}
                Err(_) => return format!("the scheduler at {} fell silent", self.scheduler),
            }
        }
    }

    fn end_unwanted(&self, running: &[Task], jobs: &[String]) {
        for task in running.iter().filter(|task| !jobs.contains(&task.job)) {
            self.workshop.end(task);
        }
    }

    /// Has the scheduler give to others what it believes us to be at, and what we were not at now and
    /// before. Gives back what we are not at now.
    async fn tell_missed(
        &self,
        client: &mut Client,
        before: &[Task],
        believed: Vec<Task>,
    ) -> Vec<Task> {
        let running = self.workshop.running();
        let is_at = |task: &Task| running.iter().any(|other| other.is(task));
        let missed: Vec<Task> = believed.into_iter().filter(|task| !is_at(task)).collect();
        let twice = missed.iter().filter(|task| before.iter().any(|other| other.is(task)));
        let task_status: Vec<TaskStatus> = twice.map(lost).collect();
        if !task_status.is_empty() {
            let told = UpdateTaskStatusParams { executor_id: self.id.clone(), task_status };
            // Where that is lost, too, it is told again.
            drop(timeout(GOODBYE, client.update_task_status(told)).await);
        }
        missed
    }

    /// Has the scheduler give our work to others at once.
    async fn say_goodbye(&self, client: &mut Client) {
        let goodbye =
            ExecutorStoppedParams { executor_id: self.id.clone(), reason: "it was stopped".into() };
        // Otherwise it notices by itself.
        drop(timeout(GOODBYE, client.executor_stopped(goodbye)).await);
    }
}

fn lost(task: &Task) -> TaskStatus {
    let failed = FailedTask {
        error: "what became of it was lost on the way".into(),
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
