//! Sessions plan and run queries over logs, within a memory limit. They open no files: the caller
//! adds the logs, and handles the results.

mod centroids;
mod depth;
mod durations;
mod error;
mod identifiers;
mod interruption;
mod invalid_query;
mod moving_frames;
mod order_by;
mod planner_message;
mod planning;
mod repeated_keys;
mod result_names;
mod selected_rows;
mod set_comparisons;
mod statement_queries;
mod statements;
mod window_inputs;

use std::convert::Infallible;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use datafusion::common::config::ConfigOptions;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::{FairSpillPool, GreedyMemoryPool, MemoryPool};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::execution::{FunctionRegistry, SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::planner::ExprPlanner;
use datafusion::optimizer::AnalyzerRule;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::StreamExt;
use futures::channel::oneshot;
use futures::future::{Either, select};
use sluice_model::{Error, ErrorKind};
use tokio::runtime::Runtime;
use tokio::task::JoinError;

pub(crate) use depth::with_deep_stack;
use durations::PartsOfDurations;
pub use error::QueryError;
pub(crate) use error::{catch_panics, name_list, nearest};
pub(crate) use interruption::{StopCheck, stoppable};
pub use invalid_query::{InvalidQuery, QueryPosition};
pub(crate) use order_by::statement_to_plan;
use planning::SessionPlanner;
pub(crate) use planning::optimized;
use selected_rows::SelectedRows;
pub(crate) use set_comparisons::with_own_names;

use crate::arithmetic::{CheckedArithmetic, WideArithmetic};
use crate::dates::TimesOfDates;
use crate::functions::{octet_length, own_aggregates};
use crate::table::{Catalog, Findings, LogTables, ROOT_SCHEMA, ReadResources};

/// The name of the only catalog.
const CATALOG_NAME: &str = "sluice";

/// How often a running query checks whether to stop.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// How long a stopped query may take to drop what it holds, such as temporary files. One that
/// computes without a pause is left to itself then.
const STOP_GRACE: Duration = Duration::from_secs(1);

/// How many stopped plans may compute on before no other query is planned.
const MAX_ABANDONED: usize = 2;

/// The name of threads that execute queries.
const EXECUTION_THREAD: &str = "sluice-query";

/// Options of a session.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// Threads that read, decode and filter; one per core if `None`.
    pub jobs: Option<usize>,
    /// The memory limit in bytes, for reading ahead and for operators.
    pub memory: usize,
    /// What happens when operators exceed the limit.
    pub spill: Spill,
    /// The most partitions of a plan. With one, results depend only on logs and query, and rows
    /// come in log order; reading, decoding and filtering use all threads in any case. With
    /// several, plans that aggregate, sort or join run in parallel: floating-point sums and the
    /// order of groups may then differ between runs.
    pub partitions: usize,
    /// Rows per batch of an operator.
    pub batch_rows: usize,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            jobs: None,
            memory: 512 << 20,
            spill: Spill::Temporary,
            partitions: 1,
            batch_rows: 8192,
        }
    }
}

/// What happens when operators exceed the memory limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Spill {
    /// They spill to a temporary folder, which is removed with the session.
    Temporary,
    /// They spill to a temporary folder in this one.
    Folder(PathBuf),
    /// The query fails.
    Never,
}

/// Plans and runs queries over logs.
///
/// Queries only read: statements that define, change or write something, or set options, are
/// refused, and no query can name a file. Names are looked up as written, then ignoring case if
/// that is unambiguous. Nothing limits what a query computes except the memory limit, which covers
/// operators and reading, but not single values (`repeat('x', 1000000000)`).
pub struct Session {
    planner: SessionPlanner,
    catalog: Catalog,
    threads: usize,
    runtime: OnceLock<Runtime>,
    /// Threads whose plans nobody waits for, and which may still compute.
    abandoned: Mutex<Vec<JoinHandle<()>>>,
}

/// A query that is ready to run.
#[derive(Clone, Debug)]
pub struct PlannedQuery {
    plan: Arc<dyn ExecutionPlan>,
    context: Arc<TaskContext>,
    /// Makes joins fail that run on.
    stopped: Arc<AtomicBool>,
}

impl PlannedQuery {
    /// The columns of the result.
    pub fn schema(&self) -> SchemaRef {
        self.plan.schema()
    }

    /// The physical plan.
    pub fn plan(&self) -> &Arc<dyn ExecutionPlan> {
        &self.plan
    }

    /// Starts the query. Must be called within a Tokio runtime; dropping the stream stops reading.
    pub fn execute(&self) -> Result<SendableRecordBatchStream, QueryError> {
        self.stopped.store(false, Ordering::Relaxed);
        let stream = execute_stream(Arc::clone(&self.plan), Arc::clone(&self.context));
        stream.map_err(QueryError::from_datafusion)
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("logs", &self.catalog).finish_non_exhaustive()
    }
}

impl Session {
    /// A session without logs. `Err` if the spill folder cannot be used.
    pub fn new(options: SessionOptions) -> Result<Self, Error> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = options.jobs.filter(|jobs| *jobs > 0).unwrap_or(cores);
        let resources = Arc::new(ReadResources::new(threads, options.memory));
        let operator_memory = options.memory.saturating_sub(resources.max_memory()).max(1 << 20);
        let mut config = SessionConfig::new()
            .with_default_catalog_and_schema(CATALOG_NAME, ROOT_SCHEMA)
            .with_create_default_catalog_and_schema(false)
            .with_information_schema(true)
            .with_target_partitions(options.partitions.max(1))
            .with_batch_size(options.batch_rows.max(1))
            .with_extension(Arc::clone(&resources));
        let settings = config.options_mut();
        set_semantics(settings);
        settings.execution.sort_spill_reservation_bytes = (operator_memory / 8).min(10 << 20);
        let mut context =
            SessionContext::new_with_config_rt(config, runtime(&options, operator_memory)?);
        context.register_udf((*octet_length()).clone());
        let registered = expr_planners()
            .into_iter()
            .try_for_each(|planner| context.register_expr_planner(planner));
        registered.map_err(|error| Error::from(QueryError::from_datafusion(error)))?;
        analyzer_rules().into_iter().for_each(|rule| context.add_analyzer_rule(rule));
        own_aggregates().iter().for_each(|own| context.register_udaf((**own).clone()));
        let catalog = Catalog::default();
        context.register_catalog(CATALOG_NAME, Arc::new(catalog.clone()));
        let (spills, partitions) = (options.spill != Spill::Never, options.partitions.max(1));
        let planner = SessionPlanner { context, spills, partitions };
        let (runtime, abandoned) = (OnceLock::new(), Mutex::default());
        Ok(Self { planner, catalog, threads, runtime, abandoned })
    }

    /// Adds a log as the table `name`, and a schema `name` with a table per channel. A log may have
    /// several names. `Err` if the name is in use.
    pub fn add_log(&self, name: &str, log: Arc<LogTables>) -> Result<(), Error> {
        self.catalog.add(name, log, true)
    }

    /// Adds a second name for a log. It works in queries, but is not listed.
    pub fn add_alias(&self, name: &str, log: Arc<LogTables>) -> Result<(), Error> {
        self.catalog.add(name, log, false)
    }

    /// The log with exactly this name.
    pub fn log(&self, name: &str) -> Option<Arc<LogTables>> {
        self.catalog.log(name)
    }

    /// The names of the logs, sorted, without aliases.
    pub fn log_names(&self) -> Vec<String> {
        self.catalog.names()
    }

    /// The DataFusion session, for custom plans and other tables.
    pub fn context(&self) -> &SessionContext {
        &self.planner.context
    }

    /// What was found in the logs since the last call: damage, and events that are missing in
    /// results.
    pub fn take_findings(&self) -> Findings {
        self.catalog.take_findings()
    }

    /// Plans a query. This may read a log up to the first event of a channel; blocks until that is
    /// done or `stop` is set: planning may compute on for a while then. `Err` while two stopped
    /// ones do, as each keeps its memory. Must not be called within a Tokio runtime.
    pub fn plan(&self, sql: &str, stop: &AtomicBool) -> Result<PlannedQuery, QueryError> {
        let still_computing = {
            let mut abandoned = self.abandoned.lock().unwrap_or_else(PoisonError::into_inner);
            abandoned.retain(|thread| !thread.is_finished());
            abandoned.len()
        };
        if still_computing >= MAX_ABANDONED {
            return Err(QueryError::Failed(Error::refused(format!(
                "{still_computing} stopped queries still compute plans or constants: try again \
                 later, or end the program"
            ))));
        }
        let (planner, sql) = (self.planner.clone(), sql.to_owned());
        let runtime = self.runtime()?.handle().clone();
        let (sender, done) = sync_channel(1);
        // Ends what waits for a log once nobody waits for the plan.
        let (_waiting, abandoned) = oneshot::channel::<Infallible>();
        let plan = move || {
            let planned = runtime.block_on(async {
                match select(pin!(planner.plan(&sql)), abandoned).await {
                    Either::Left((planned, _)) => planned,
                    Either::Right(_) => Err(aborted()),
                }
            });
            drop(sender.send(planned));
        };
        let thread = depth::spawn_deep(plan).map_err(|error| cannot_start(&error))?;
        match receive_until(stop, &done) {
            Received::Value(planned) => planned,
            Received::Stopped => {
                let mut abandoned = self.abandoned.lock().unwrap_or_else(PoisonError::into_inner);
                abandoned.push(thread);
                Err(aborted())
            }
            Received::Ended => Err(match thread.join() {
                Err(panic) => QueryError::from_panic(&*panic),
                Ok(()) => aborted(),
            }),
        }
    }

    /// Runs a query, and passes its result to `take`, batch by batch, in order. Must not be called
    /// within a Tokio runtime.
    ///
    /// Returns the first error of `take`, or [`ErrorKind::Aborted`] soon after `stop` is set. The
    /// session can be used further then, but an operator may compute on for a while.
    pub fn run(
        &self,
        sql: &str,
        stop: &AtomicBool,
        take: &mut dyn FnMut(RecordBatch) -> Result<(), Error>,
    ) -> Result<(), QueryError> {
        let planned = self.plan(sql, stop)?;
        self.run_planned(&planned, stop, take)
    }

    /// Like [`run`](Self::run), for a planned query.
    pub fn run_planned(
        &self,
        planned: &PlannedQuery,
        stop: &AtomicBool,
        take: &mut dyn FnMut(RecordBatch) -> Result<(), Error>,
    ) -> Result<(), QueryError> {
        let ended = self.run_until(planned.clone(), stop, take);
        // Threads may still compute what nobody waits for.
        planned.stopped.store(true, Ordering::Relaxed);
        ended
    }

    fn run_until(
        &self,
        planned: PlannedQuery,
        stop: &AtomicBool,
        take: &mut dyn FnMut(RecordBatch) -> Result<(), Error>,
    ) -> Result<(), QueryError> {
        let stopped = Arc::clone(&planned.stopped);
        let started = self.block_on_worker(stop, &stopped, async move { planned.execute() })?;
        let mut stream = started.map_err(|error| self.planner.with_advice(error))?;
        loop {
            let next = async move { (stream.next().await, stream) };
            let (batch, rest) = self.block_on_worker(stop, &stopped, next)?;
            let Some(batch) = batch else { return Ok(()) };
            take(
                batch.map_err(|error| {
                    self.planner.with_advice(QueryError::from_datafusion(error))
                })?,
            )?;
            stream = rest;
        }
    }

    /// Runs it on a thread of the runtime: what computes for long between two pauses does not keep
    /// the caller, and a panic is an error. Sets `stopped` when `stop` is set.
    fn block_on_worker<T: Send + 'static>(
        &self,
        stop: &AtomicBool,
        stopped: &AtomicBool,
        what: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, QueryError> {
        let runtime = self.runtime()?;
        let (sender, done) = sync_channel(1);
        let task = runtime.spawn(async move { drop(sender.send(what.await)) });
        match receive_until(stop, &done) {
            Received::Value(result) => Ok(result),
            Received::Stopped => {
                stopped.store(true, Ordering::Relaxed);
                task.abort();
                drop(done.recv_timeout(STOP_GRACE));
                Err(aborted())
            }
            Received::Ended => {
                Err(match runtime.block_on(task).map_err(JoinError::try_into_panic) {
                    Err(Ok(panic)) => QueryError::from_panic(&*panic),
                    _ => aborted(),
                })
            }
        }
    }

    fn runtime(&self) -> Result<&Runtime, QueryError> {
        if let Some(runtime) = self.runtime.get() {
            return Ok(runtime);
        }
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(self.threads)
            .thread_name(EXECUTION_THREAD)
            .thread_stack_size(depth::EXECUTION_STACK)
            .enable_time()
            .build();
        let runtime = runtime.map_err(|error| cannot_start(&error))?;
        Ok(self.runtime.get_or_init(|| runtime))
    }
}

/// What a thread returned.
enum Received<T> {
    Value(T),
    /// Nothing yet, and `stop` is set.
    Stopped,
    /// Nothing: it ended, such as by a panic.
    Ended,
}

/// Waits for the result of a thread until `stop` is set.
fn receive_until<T>(stop: &AtomicBool, done: &Receiver<T>) -> Received<T> {
    while !stop.load(Ordering::Relaxed) {
        // Nobody drives a timer of the runtime while all of its threads compute.
        match done.recv_timeout(STOP_POLL_INTERVAL) {
            Ok(value) => return Received::Value(value),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Received::Ended,
        }
    }
    Received::Stopped
}

fn aborted() -> QueryError {
    QueryError::Failed(ErrorKind::Aborted.into())
}

fn cannot_start(error: &std::io::Error) -> QueryError {
    QueryError::Failed(Error::refused(format!("cannot start threads for queries: {error}")))
}

impl Drop for Session {
    fn drop(&mut self) {
        // Do not wait for threads: one may be blocked on a pipe.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn runtime(options: &SessionOptions, memory: usize) -> Result<Arc<RuntimeEnv>, Error> {
    let (mode, pool): (_, Arc<dyn MemoryPool>) = match &options.spill {
        Spill::Never => (DiskManagerMode::Disabled, Arc::new(GreedyMemoryPool::new(memory))),
        Spill::Temporary => (DiskManagerMode::OsTmpDirectory, Arc::new(FairSpillPool::new(memory))),
        Spill::Folder(folder) => {
            let folders = vec![folder.clone()];
            (DiskManagerMode::Directories(folders), Arc::new(FairSpillPool::new(memory)))
        }
    };
    let disks = DiskManagerBuilder::default().with_mode(mode);
    let runtime = RuntimeEnvBuilder::new().with_memory_pool(pool).with_disk_manager_builder(disks);
    runtime.build_arc().map_err(|error| QueryError::from_datafusion(error).into())
}

/// How operators differ from DataFusion's, in sessions and in stages.
pub(crate) fn expr_planners() -> [Arc<dyn ExprPlanner>; 2] {
    [Arc::new(WideArithmetic), Arc::new(TimesOfDates)]
}

/// How expressions of coerced types differ from DataFusion's, in sessions and in stages.
pub(crate) fn analyzer_rules() -> [Arc<dyn AnalyzerRule + Send + Sync>; 3] {
    // Parts of durations are computed with operators.
    [Arc::new(PartsOfDurations), Arc::new(CheckedArithmetic), Arc::new(SelectedRows)]
}

/// Sets what decides the meaning of queries, in sessions and in stages.
pub(crate) fn set_semantics(settings: &mut ConfigOptions) {
    // `timestamptz` has a zone, as the times of events have.
    settings.execution.time_zone = Some("UTC".to_owned());
    // Names keep their case: channels and fields of messages are case-sensitive.
    settings.sql_parser.enable_ident_normalization = false;
    settings.sql_parser.collect_spans = true;
    // A LIMIT after a subquery takes its first rows.
    settings.sql_parser.enable_subquery_sort_elimination = false;
    // It would refuse queries that are right, for whether their `x IS TRUE` can be NULL.
    settings.execution.skip_physical_aggregate_schema_check = true;
    // It loses columns of joins on an expression of a field of a struct.
    settings.optimizer.enable_leaf_expression_pushdown = false;
}

/// Whether the current thread plans or executes queries: its panics become errors of their query.
pub fn is_query_thread() -> bool {
    let thread = std::thread::current();
    thread.name().is_some_and(|name| [EXECUTION_THREAD, depth::PLANNING_THREAD].contains(&name))
}
