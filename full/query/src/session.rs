//! Sessions plan and run queries over logs, within a memory limit. They open no files: the caller
//! adds the logs, and handles the results.

mod centroids;
mod depth;
mod error;
mod identifiers;
mod interruption;
mod moving_frames;
mod order_by;
mod planner_message;
mod statements;
mod window_inputs;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use datafusion::common::config::ConfigOptions;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::{FairSpillPool, GreedyMemoryPool, MemoryPool};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::execution::{
    FunctionRegistry, SendableRecordBatchStream, SessionState, SessionStateBuilder, TaskContext,
};
use datafusion::logical_expr::LogicalPlan;
use datafusion::logical_expr::planner::ExprPlanner;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::prelude::{SQLOptions, SessionConfig, SessionContext};
use datafusion::sql::parser::{DFParserBuilder, Statement};
use futures::StreamExt;
use sluice_model::{Error, ErrorKind};
use tokio::runtime::Runtime;
use tokio::task::JoinError;

pub(crate) use depth::with_deep_stack;
pub use error::{InvalidQuery, QueryError, QueryPosition};
pub(crate) use error::{catch_panics, name_list, nearest};
pub(crate) use interruption::{StopCheck, stoppable};
pub(crate) use order_by::statement_to_plan;

use crate::arithmetic::WideArithmetic;
use crate::dates::TimesOfDates;
use crate::extremes::{max, min};
use crate::functions::octet_length;
use crate::precedence::correct_statement;
use crate::refusals::{check_numbers, check_subqueries, check_types};
use crate::table::{Catalog, Findings, LogTables, ROOT_SCHEMA, ReadResources};

/// The name of the only catalog.
const CATALOG_NAME: &str = "sluice";

/// Longer queries are refused: a parser holds several copies of the text.
const MAX_QUERY_BYTES: usize = 1 << 20;

/// How often a running query checks whether to stop.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// How long a stopped query may take to drop what it holds, such as temporary files. One that
/// computes without a pause is left to itself then.
const STOP_GRACE: Duration = Duration::from_secs(1);

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
    context: SessionContext,
    catalog: Catalog,
    threads: usize,
    spills: bool,
    partitions: usize,
    runtime: OnceLock<Runtime>,
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
        context.register_udaf((*min()).clone());
        context.register_udaf((*max()).clone());
        let catalog = Catalog::default();
        context.register_catalog(CATALOG_NAME, Arc::new(catalog.clone()));
        let (spills, partitions) = (options.spill != Spill::Never, options.partitions.max(1));
        Ok(Self { context, catalog, threads, spills, partitions, runtime: OnceLock::new() })
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
        &self.context
    }

    /// What was found in the logs since the last call: damage, and events that are missing in
    /// results.
    pub fn take_findings(&self) -> Findings {
        self.catalog.take_findings()
    }

    /// Plans a query. This may read a log up to the first event of a channel; blocks until that is
    /// done or `stop` is set. Must not be called within a Tokio runtime.
    pub fn plan(&self, sql: &str, stop: &AtomicBool) -> Result<PlannedQuery, QueryError> {
        let plan = || self.block_on(stop, self.plan_async(sql)).flatten();
        with_deep_stack(plan).map_err(QueryError::from_datafusion).flatten()
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
        let mut stream = started.map_err(|error| self.with_advice(error))?;
        loop {
            let next = async move { (stream.next().await, stream) };
            let (batch, rest) = self.block_on_worker(stop, &stopped, next)?;
            let Some(batch) = batch else { return Ok(()) };
            take(batch.map_err(|error| self.with_advice(QueryError::from_datafusion(error)))?)?;
            stream = rest;
        }
    }

    /// Like [`block_on`](Self::block_on), on a thread of the runtime: what computes for long
    /// between two pauses does not keep the caller, and a panic is an error. Sets `stopped` when
    /// `stop` is set.
    fn block_on_worker<T: Send + 'static>(
        &self,
        stop: &AtomicBool,
        stopped: &AtomicBool,
        what: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, QueryError> {
        let runtime = self.runtime()?;
        let (sender, done) = sync_channel(1);
        let task = runtime.spawn(async move { drop(sender.send(what.await)) });
        while !stop.load(Ordering::Relaxed) {
            // Nobody drives a timer of the runtime while all of its threads compute.
            match done.recv_timeout(STOP_POLL_INTERVAL) {
                Ok(result) => return Ok(result),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(match runtime.block_on(task).map_err(JoinError::try_into_panic) {
                        Err(Ok(panic)) => QueryError::from_panic(&*panic),
                        _ => QueryError::Failed(ErrorKind::Aborted.into()),
                    });
                }
            }
        }
        stopped.store(true, Ordering::Relaxed);
        task.abort();
        drop(done.recv_timeout(STOP_GRACE));
        Err(QueryError::Failed(ErrorKind::Aborted.into()))
    }

    /// Blocks until the future is done or `stop` is set.
    fn block_on<T>(
        &self,
        stop: &AtomicBool,
        what: impl Future<Output = T>,
    ) -> Result<T, QueryError> {
        self.runtime()?.block_on(async {
            let mut what = std::pin::pin!(what);
            loop {
                if stop.load(Ordering::Relaxed) {
                    return Err(QueryError::Failed(ErrorKind::Aborted.into()));
                }
                if let Ok(done) = tokio::time::timeout(STOP_POLL_INTERVAL, what.as_mut()).await {
                    return Ok(done);
                }
            }
        })
    }

    /// Plans a query. Deep queries need a deep stack: [`plan`](Self::plan) has one.
    pub async fn plan_async(&self, sql: &str) -> Result<PlannedQuery, QueryError> {
        let state = self.context.state();
        let logical = logical_plan(&state, sql).await.map_err(QueryError::from_planner)?;
        let stopped = Arc::<AtomicBool>::default();
        let is_stopped = {
            let stopped = Arc::clone(&stopped);
            StopCheck::new(move || stopped.load(Ordering::Relaxed))
        };
        let plan = self.physical_plan(&state, &logical).await;
        let plan = plan.and_then(|plan| stoppable(plan, &is_stopped));
        let plan = plan.map_err(|error| self.with_advice(QueryError::from_planner(error)))?;
        Ok(PlannedQuery { plan, context: self.context.task_ctx(), stopped })
    }

    async fn physical_plan(
        &self,
        state: &SessionState,
        logical: &LogicalPlan,
    ) -> datafusion::error::Result<Arc<dyn ExecutionPlan>> {
        let logical = optimized(state, logical)?;
        if self.partitions == 1 || breaks_pipeline(&logical)? {
            return state.query_planner().create_physical_plan(&logical, state).await;
        }
        // Without pipeline breakers, rows come in log order.
        let config = state.config().clone().with_target_partitions(1);
        let state =
            SessionStateBuilder::new_from_existing(state.clone()).with_config(config).build();
        state.query_planner().create_physical_plan(&logical, &state).await
    }

    fn with_advice(&self, error: QueryError) -> QueryError {
        let QueryError::OutOfMemory(what) = error else { return error };
        let advice = if self.spills {
            "allow more (--memory, or the option `memory`), or query less: fewer columns, a \
             shorter time, a LIMIT"
        } else {
            "allow more memory, or let it spill to a folder"
        };
        QueryError::Failed(Error::refused(format!("{what}; {advice}")))
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
        let runtime =
            runtime.map_err(|e| Error::refused(format!("cannot start threads for queries: {e}")));
        let runtime = runtime.map_err(QueryError::Failed)?;
        Ok(self.runtime.get_or_init(|| runtime))
    }
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

/// The logical plan of a query that only reads. Corrects the case of names.
async fn logical_plan(state: &SessionState, sql: &str) -> datafusion::error::Result<LogicalPlan> {
    if sql.len() > MAX_QUERY_BYTES {
        let what =
            format!("the query has {} bytes, and at most {MAX_QUERY_BYTES} are allowed", sql.len());
        return Err(datafusion::error::DataFusionError::Plan(what));
    }
    let mut statement = statement(state, sql)?;
    depth::check_depth(&statement)?;
    statements::check_is_query(&statement)?;
    statements::check_syntax(&statement)?;
    check_numbers(sql).map_err(datafusion::error::DataFusionError::Plan)?;
    let plan = loop {
        match statement_to_plan(state, statement.clone()).await {
            Ok(plan) => break plan,
            Err(error) => {
                let renamed = identifiers::other_case(&error).is_some_and(|(written, actual)| {
                    identifiers::rename(&mut statement, &written, &actual)
                });
                if !renamed {
                    return Err(error);
                }
            }
        }
    };
    let only_reads = SQLOptions::new();
    let only_reads = only_reads.with_allow_ddl(false).with_allow_dml(false);
    only_reads.with_allow_statements(false).verify_plan(&plan)?;
    check_types(&plan)?;
    check_subqueries(&plan)?;
    Ok(plan)
}

/// How operators differ from DataFusion's, in sessions and in stages.
pub(crate) fn expr_planners() -> [Arc<dyn ExprPlanner>; 2] {
    [Arc::new(WideArithmetic), Arc::new(TimesOfDates)]
}

/// Sets what decides the meaning of queries, in sessions and in stages.
pub(crate) fn set_semantics(settings: &mut ConfigOptions) {
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

/// Parses a text of exactly one statement.
fn statement(state: &SessionState, sql: &str) -> datafusion::error::Result<Statement> {
    let limit = state.config_options().sql_parser.recursion_limit.get();
    let mut parser = DFParserBuilder::new(sql).with_recursion_limit(limit).build()?;
    let mut statements = parser.parse_statements()?;
    let plan_error = |what: &str| datafusion::error::DataFusionError::Plan(what.to_owned());
    match (statements.pop_front(), statements.len()) {
        (Some(mut statement), 0) => {
            correct_statement(&mut statement);
            Ok(statement)
        }
        (None, _) => Err(plan_error("there is no query")),
        (Some(_), more) => Err(plan_error(&format!("one statement at a time: {more} more follow"))),
    }
}

/// Whether the current thread plans or executes queries: its panics become errors of their query.
pub fn is_query_thread() -> bool {
    let thread = std::thread::current();
    thread.name().is_some_and(|name| [EXECUTION_THREAD, depth::PLANNING_THREAD].contains(&name))
}

/// Optimises a plan, checks it, makes its frames exact, and limits what its windows keep.
pub(crate) fn optimized(
    state: &SessionState,
    plan: &LogicalPlan,
) -> datafusion::error::Result<LogicalPlan> {
    let plan = state.optimize(plan)?;
    centroids::check_centroids(&plan)?;
    let plan = moving_frames::with_exact_frames(plan, &state.runtime_env().memory_pool)?;
    window_inputs::with_copied_inputs(plan, state)
}

/// Whether a plan has a pipeline breaker: a node that needs many rows before it returns one.
fn breaks_pipeline(plan: &LogicalPlan) -> datafusion::error::Result<bool> {
    use datafusion::common::tree_node::TreeNodeRecursion;
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        found |= matches!(
            node,
            LogicalPlan::Aggregate(_)
                | LogicalPlan::Distinct(_)
                | LogicalPlan::Join(_)
                | LogicalPlan::Sort(_)
                | LogicalPlan::Window(_)
        );
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}
