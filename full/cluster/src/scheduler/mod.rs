//! The scheduler: Ballista's, with the admin API on the same port. Hands out orders, and reassigns
//! those of a lost executor. Keeps nothing on disk, and sees no data.
//!
//! Executors poll for work (the pull policy), so nothing has to connect to them: this port is the
//! only way into a cluster.

pub(crate) mod admin;
mod authentication;
mod listener;
mod refusal_log;

use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ballista_core::config::TaskSchedulingPolicy;
use ballista_core::serde::BallistaLogicalExtensionCodec;
use ballista_core::serde::protobuf::scheduler_grpc_server::SchedulerGrpcServer;
use ballista_scheduler::cluster::BallistaCluster;
use ballista_scheduler::config::{SchedulerConfig, TaskDistributionPolicy};
use ballista_scheduler::scheduler_process::create_scheduler;
use sluice_model::{Error, ErrorKind};
use sluice_pipeline::dispatch::ProgramIdentity;
use sluice_pipeline::run::Stop;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tonic::service::RoutesBuilder;

use admin::Scheduler;
use authentication::authenticated;
use listener::{PeerAddress, SchedulerListener};
use refusal_log::RefusalLog;

use crate::address::Address;
use crate::credentials::{ADVICE, Credentials};
use crate::plan::PlanCodec;
use crate::{MESSAGE_LIMIT, runtime, stop_requested};

/// How long a cluster without executors keeps its jobs.
const IDLE_CLUSTER_TIMEOUT: Duration = Duration::from_secs(120);

/// How often Ballista may retry a unit: more often than the executors do, so that they decide.
const MAX_ATTEMPTS: usize = 8;

/// Options of a scheduler.
#[derive(Clone, Debug)]
pub struct SchedulerOptions {
    /// The address to listen on; port 0 picks a free one.
    pub listen: Address,
    /// The host that clients use, if it is not the one listened on.
    pub advertise: Option<String>,
    /// What requests must prove.
    pub credentials: Credentials,
    /// How long an executor may be silent before it counts as lost.
    pub executor_timeout: Duration,
    /// The version and plugins of this program.
    pub program: ProgramIdentity,
}

/// Serves as a scheduler until `stop` is requested. Reports its address once it listens.
///
/// `Err` if it cannot listen on the address, or if other machines can reach it and there are no
/// credentials.
pub fn serve(
    options: &SchedulerOptions,
    stop: &Stop,
    say: &(dyn Fn(&str) + Sync),
) -> Result<(), Error> {
    // Orders are small: one thread would do, but a second one responds while a large job is
    // planned.
    let runtime = runtime(2)?;
    let result = runtime.block_on(run(options, stop, say));
    runtime.shutdown_background();
    result
}

/// Executors that are silent for twice as long as they are when busy are lost.
const SAFE_TIMEOUT: Duration = Duration::from_secs(10);

async fn run(
    options: &SchedulerOptions,
    stop: &Stop,
    say: &(dyn Fn(&str) + Sync),
) -> Result<(), Error> {
    let Address { host, port } = &options.listen;
    let cannot = |e| Error::refused(format!("cannot listen on {}: {e}", options.listen));
    let listener = TcpListener::bind((host.as_str(), *port)).await.map_err(cannot)?;
    let bound = listener.local_addr().map_err(cannot)?;
    if !options.credentials.suffice_for(bound.ip()) {
        return Err(ErrorKind::NotAllowed(format!(
            "other machines can reach {bound}, and there are no credentials: {ADVICE}"
        ))
        .into());
    }
    if let Some(tls) = options.credentials.tls() {
        tls.check_server()?;
    }
    let scheduler = scheduler(options, bound).await;
    let scheduler =
        scheduler.map_err(|e| Error::refused(format!("cannot start the scheduler: {e}")))?;
    let host = options.advertise.clone().unwrap_or_else(|| bound.ip().to_string());
    let (messages, mut refused) = mpsc::channel::<String>(16);
    let refusals = Arc::new(RefusalLog::new(messages));
    let (secret, tls) = (options.credentials.secret(), options.credentials.tls());
    let service = routes(scheduler, &options.program);
    let service = authenticated(service, secret.cloned(), Arc::clone(&refusals));
    let service = service.into_make_service_with_connect_info::<PeerAddress>();
    let listener = SchedulerListener::start(listener, bound, tls.cloned(), refusals);
    say(&format!("listening on {}", Address { host, port: bound.port() }));
    if options.executor_timeout < SAFE_TIMEOUT {
        say(&format!(
            "warning: with --executor-timeout {} s, busy executors, which report every 5 s, may be \
             considered lost, and their units start again; {} s and more are safe",
            options.executor_timeout.as_secs_f64(),
            SAFE_TIMEOUT.as_secs(),
        ));
    }
    // Another process may wait for that line in a pipe.
    drop(std::io::stderr().flush());
    let serving = axum::serve(listener, service).into_future();
    tokio::pin!(serving);
    loop {
        tokio::select! {
            served = &mut serving => return served.map_err(cannot),
            Some(refusal) = refused.recv() => say(&refusal),
            () = stop_requested(stop) => return Ok(()),
        }
    }
}

async fn scheduler(
    options: &SchedulerOptions,
    bound: SocketAddr,
) -> ballista_core::error::Result<Scheduler> {
    let timeout = options.executor_timeout.as_secs().max(1);
    let limit = u32::try_from(MESSAGE_LIMIT).unwrap_or(u32::MAX);
    let config = SchedulerConfig {
        bind_host: bound.ip().to_string(),
        bind_port: bound.port(),
        external_host: options.advertise.clone().unwrap_or_else(|| bound.ip().to_string()),
        scheduling_policy: TaskSchedulingPolicy::PullStaged,
        task_distribution: TaskDistributionPolicy::RoundRobin,
        executor_timeout_seconds: timeout,
        expire_dead_executor_interval_seconds: (timeout / 8).clamp(1, 15),
        no_executors_grace_period_seconds: IDLE_CLUSTER_TIMEOUT.as_secs().max(timeout),
        grpc_server_max_decoding_message_size: limit,
        grpc_server_max_encoding_message_size: limit,
        grpc_client_max_message_size: limit,
        task_max_failures: MAX_ATTEMPTS,
        stage_max_failures: MAX_ATTEMPTS,
        override_logical_codec: Some(Arc::new(BallistaLogicalExtensionCodec::default())),
        override_physical_codec: Some(Arc::new(PlanCodec::for_planning())),
        ..SchedulerConfig::default()
    };
    let cluster = BallistaCluster::new_from_config(&config).await?;
    create_scheduler(cluster, Arc::new(config)).await
}

fn routes(scheduler: Scheduler, program: &ProgramIdentity) -> axum::Router {
    let service = SchedulerGrpcServer::new(scheduler.clone())
        .max_decoding_message_size(MESSAGE_LIMIT)
        .max_encoding_message_size(MESSAGE_LIMIT);
    let mut grpc = RoutesBuilder::default();
    grpc.add_service(service);
    grpc.routes().into_axum_router().merge(admin::routes(scheduler, program))
}
