//! Sessions: where queries over logs are planned and run, under a cap on memory. Opens no file: the
//! caller brings the logs, and says what becomes of results.

mod error;
mod identifiers;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::{FairSpillPool, GreedyMemoryPool, MemoryPool};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::execution::{
    SendableRecordBatchStream, SessionState, SessionStateBuilder, TaskContext,
};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::prelude::{SQLOptions, SessionConfig, SessionContext};
use datafusion::sql::parser::{DFParserBuilder, Statement};
use futures::StreamExt;
use sluice_core::{Error, ErrorKind};
use tokio::runtime::Runtime;

pub use error::{InvalidQuery, QueryError, QueryPosition};
pub(crate) use error::{name_list, nearest};

use crate::table::{Catalog, Findings, LogTables, ReadResources};

/// The name of the one catalogue.
const CATALOG_NAME: &str = "sluice";
/// The schema in which logs are tables.
pub(crate) const ROOT: &str = "public";

/// Longer queries are refused: nobody writes them, and a parser has to hold them several times.
const MAX_QUERY_BYTES: usize = 1 << 20;

/// How often a query that is waited for looks whether it is to end.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// What a session may use.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// Threads that read, decode and filter. None: one a core.
    pub jobs: Option<usize>,
    /// The cap on memory, in bytes: of what is read ahead, and of what operators hold.
    pub memory: usize,
    /// What becomes of what operators cannot hold.
    pub spill: Spill,
    /// In how many streams operators work at most. With one, results depend on nothing but logs and query,
    /// and rows come in the order of the log; reading, decoding and filtering use all jobs in any case.
    /// With several, plans that aggregate, sort or join use them: floating-point sums and the order of
    /// groups may then differ from run to run.
    pub partitions: usize,
    /// Rows that operators make at a time.
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

/// What becomes of what operators cannot hold in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Spill {
    /// It goes to a folder in the system's temporary one, which is gone with the session.
    Temporary,
    /// The same, in this folder.
    Folder(PathBuf),
    /// The query fails.
    Never,
}

/// Plans and runs queries over logs.
///
/// A query reads and nothing else: statements that define, change or write something, or set options, are
/// refused, and there is no way to name a file in one. Names are looked up as they are written, then
/// without regard to case if that is unique. What a query may compute is not limited but by the cap on
/// memory, which holds operators and reading, not single values (`repeat('x', 1000000000)`).
pub struct Session {
    context: SessionContext,
    catalog: Catalog,
    threads: usize,
    spills: bool,
    partitions: usize,
    runtime: OnceLock<Runtime>,
}

/// A query that can be run.
#[derive(Clone, Debug)]
pub struct PlannedQuery {
    plan: Arc<dyn ExecutionPlan>,
    context: Arc<TaskContext>,
}

impl PlannedQuery {
    /// The columns of its result.
    pub fn schema(&self) -> SchemaRef {
        self.plan.schema()
    }

    /// How it will be worked out.
    pub fn plan(&self) -> &Arc<dyn ExecutionPlan> {
        &self.plan
    }

    /// Begins to work it out. To be called within a runtime; reading ends when the stream is dropped.
    pub fn execute(&self) -> Result<SendableRecordBatchStream, QueryError> {
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
    /// A session without logs. `Err` is a folder to spill to that cannot be used.
    pub fn new(options: SessionOptions) -> Result<Self, Error> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = options.jobs.filter(|jobs| *jobs > 0).unwrap_or(cores);
        let resources = Arc::new(ReadResources::new(threads, options.memory));
        let operator_memory = options.memory.saturating_sub(resources.max_memory()).max(1 << 20);
        let mut config = SessionConfig::new()
            .with_default_catalog_and_schema(CATALOG_NAME, ROOT)
            .with_create_default_catalog_and_schema(false)
            .with_information_schema(true)
            .with_target_partitions(options.partitions.max(1))
            .with_batch_size(options.batch_rows.max(1))
            .with_extension(Arc::clone(&resources));
        let settings = config.options_mut();
        // Names keep their case: fields of messages have some.
        settings.sql_parser.enable_ident_normalization = false;
        settings.sql_parser.collect_spans = true;
        settings.execution.sort_spill_reservation_bytes = (operator_memory / 8).min(10 << 20);
        let context =
            SessionContext::new_with_config_rt(config, runtime(&options, operator_memory)?);
        let catalog = Catalog::default();
        context.register_catalog(CATALOG_NAME, Arc::new(catalog.clone()));
        let (spills, partitions) = (options.spill != Spill::Never, options.partitions.max(1));
        Ok(Self { context, catalog, threads, spills, partitions, runtime: OnceLock::new() })
    }

    /// Makes a log the table `name`, and a schema of that name with a table for each channel. A log may
    /// have several names. `Err` if there is one of that name already.
    pub fn add_log(&self, name: &str, log: Arc<LogTables>) -> Result<(), Error> {
        self.catalog.add(name, log, true)
    }

    /// Gives a log a second name, under which it is found as well, but listed nowhere.
    pub fn add_alias(&self, name: &str, log: Arc<LogTables>) -> Result<(), Error> {
        self.catalog.add(name, log, false)
    }

    /// The log of exactly that name.
    pub fn log(&self, name: &str) -> Option<Arc<LogTables>> {
        self.catalog.log(name)
    }

    /// The names of its logs, sorted, but for those that are not listed.
    pub fn log_names(&self) -> Vec<String> {
        self.catalog.names()
    }

    /// What DataFusion calls a session: for plans made by hand, and tables that are no logs.
    pub fn context(&self) -> &SessionContext {
        &self.context
    }

    /// What has been found in logs since the last call: damage, and events that could not be shown.
    pub fn take_findings(&self) -> Findings {
        self.catalog.take_findings()
    }

    /// Works out how one query will be run, which may mean reading until the first event of a channel;
    /// waits for that, or until `stop` is raised. Not to be called within a runtime.
    pub fn plan(&self, sql: &str, stop: &AtomicBool) -> Result<PlannedQuery, QueryError> {
        self.block_on(stop, self.plan_async(sql))?
    }

    /// Runs a query to its end, and gives what comes of it, batch by batch, in order. Not to be called
    /// within a runtime.
    ///
    /// Ends with the first error of `take`, and with [`ErrorKind::Aborted`] soon after `stop` is raised.
    pub fn run(
        &self,
        sql: &str,
        stop: &AtomicBool,
        take: &mut dyn FnMut(RecordBatch) -> Result<(), Error>,
    ) -> Result<(), QueryError> {
        let planned = self.plan(sql, stop)?;
        self.run_planned(&planned, stop, take)
    }

    /// As [`run`](Self::run), of a query that was planned before.
    pub fn run_planned(
        &self,
        planned: &PlannedQuery,
        stop: &AtomicBool,
        take: &mut dyn FnMut(RecordBatch) -> Result<(), Error>,
    ) -> Result<(), QueryError> {
        let runtime = self.runtime()?;
        let mut stream = {
            let _entered = runtime.enter();
            planned.execute().map_err(|error| self.with_advice(error))?
        };
        while let Some(batch) = self.block_on(stop, stream.next())? {
            take(batch.map_err(|error| self.with_advice(QueryError::from_datafusion(error)))?)?;
        }
        Ok(())
    }

    /// Waits for something, or until it is to stop.
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

    /// Works out how one query will be run.
    pub async fn plan_async(&self, sql: &str) -> Result<PlannedQuery, QueryError> {
        let state = self.context.state();
        let logical = logical_plan(&state, sql).await.map_err(QueryError::from_datafusion)?;
        let plan = self.physical_plan(&state, &logical).await;
        let plan = plan.map_err(|error| self.with_advice(QueryError::from_datafusion(error)))?;
        Ok(PlannedQuery { plan, context: self.context.task_ctx() })
    }

    async fn physical_plan(
        &self,
        state: &SessionState,
        logical: &LogicalPlan,
    ) -> datafusion::error::Result<Arc<dyn ExecutionPlan>> {
        let logical = state.optimize(logical)?;
        if self.partitions == 1 || breaks_pipeline(&logical)? {
            return state.query_planner().create_physical_plan(&logical, state).await;
        }
        // Rows that are only passed on are to come in the order of the log.
        let config = state.config().clone().with_target_partitions(1);
        let state =
            SessionStateBuilder::new_from_existing(state.clone()).with_config(config).build();
        state.query_planner().create_physical_plan(&logical, &state).await
    }

    fn with_advice(&self, error: QueryError) -> QueryError {
        let QueryError::OutOfMemory(what) = error else { return error };
        let advice = if self.spills {
            "allow more (--memory, or the option `memory`), or ask for less: fewer columns, a shorter time, a LIMIT"
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
            .thread_name("sluice-query")
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
        // A thread that waits for a pipe cannot be waited for.
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

/// The plan of a query that only reads, with names brought into the case they have.
async fn logical_plan(state: &SessionState, sql: &str) -> datafusion::error::Result<LogicalPlan> {
    if sql.len() > MAX_QUERY_BYTES {
        let what = format!("a query of {} bytes: {MAX_QUERY_BYTES} are allowed", sql.len());
        return Err(datafusion::error::DataFusionError::Plan(what));
    }
    let mut statement = statement(state, sql)?;
    error::check_is_query(&statement)?;
    let plan = loop {
        match state.statement_to_plan(statement.clone()).await {
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
    Ok(plan)
}

/// The only statement of a text.
fn statement(state: &SessionState, sql: &str) -> datafusion::error::Result<Statement> {
    let limit = state.config_options().sql_parser.recursion_limit.get();
    let mut parser = DFParserBuilder::new(sql).with_recursion_limit(limit).build()?;
    let mut statements = parser.parse_statements()?;
    let said = |what: &str| datafusion::error::DataFusionError::Plan(what.to_owned());
    match (statements.pop_front(), statements.len()) {
        (Some(statement), 0) => Ok(statement),
        (None, _) => Err(said("there is no query")),
        (Some(_), more) => {
            Err(said(&format!("one statement at a time: {more} more stand behind it")))
        }
    }
}

/// Whether a plan has something that sees many rows before it gives one.
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
