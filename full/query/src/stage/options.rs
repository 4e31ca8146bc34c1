//! Options of the stage `sql`, and the stage that they describe. Asks nothing.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use arrow_schema::SchemaRef;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use schemars::JsonSchema;
use serde::Deserialize;
use sluice_core::options::ByteSize;
use sluice_core::{OptionsError, Stage};

use super::declared;
use super::fold::{self, MemoryBudget, QueryFold};
use super::limit::LimitFold;
use super::pending::{ChannelPrefilter, DeferredRowMap};
use super::plan::Planner;
use super::query::{Functions, Query, SqlMistake};
use super::row_map::RowMap;
use super::schemas::TableSchemas;

/// Asks a query of events, and gives its rows as events.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SqlStage {
    /// The query: one SELECT over the table `events` and a table for each channel, called by its name. Names
    /// are taken as they are written.
    query: String,
    /// The channel of rows of which the query gives no column `channel`. By default that of the event a row is
    /// made of.
    #[serde(default)]
    channel: Option<String>,
    /// Columns of channels' messages, by channel, as `CREATE TABLE` has them: `{ POSE = "utime bigint, vel
    /// double[]" }`. Without it they are those of the messages that come.
    #[serde(default)]
    tables: BTreeMap<String, String>,
    /// How much memory the query may take to hold rows, if it has to see all of them before it gives one. What
    /// does not fit goes to temporary files. Without it, such queries are refused.
    #[serde(default)]
    memory: Option<ByteSize>,
    /// The folder for temporary files; they are gone when the run is over. The system's by default.
    #[serde(default)]
    #[schemars(extend("format" = "sluice-path"))]
    spill: Option<PathBuf>,
}

/// Less memory is no room to work in.
const MIN_MEMORY: ByteSize = ByteSize(8 << 20);

/// How much may wait for the columns of tables where nothing is said of memory.
const MAX_PENDING_BYTES: usize = 64 << 20;

/// How many rows are worked on at a time where each is decided alone.
const BATCH_ROWS: usize = 8192;

fn option_error(option: &str, message: impl Into<String>) -> OptionsError {
    OptionsError { path: vec![option.to_owned()], message: message.into() }
}

impl TryFrom<SqlStage> for Stage {
    type Error = OptionsError;

    fn try_from(options: SqlStage) -> Result<Self, OptionsError> {
        let in_query = |mistake: SqlMistake| option_error("query", mistake.render(&options.query));
        if let Some(memory) = options.memory.filter(|memory| *memory < MIN_MEMORY) {
            return Err(option_error(
                "memory",
                format!("{memory} is too little: {MIN_MEMORY} is the least"),
            ));
        }
        let query = Query::parse(&options.query, &Functions::known()).map_err(in_query)?;
        let planner = check_only_planner()?;
        let declared = options.declared(&planner, &query)?;
        let schemas = TableSchemas::new(&query, |channel| declared.get(channel).cloned());
        let builder = StageBuilder {
            query: Arc::new(query),
            planner,
            schemas,
            channel: options.channel.clone(),
        };
        match (builder.query.pipeline_breaker.clone(), options.memory) {
            (None, _) => builder.row_map_stage(options.memory).map_err(in_query),
            (Some(breaker), None) => {
                let what = needs_memory(&breaker.0);
                Err(option_error("query", what))
            }
            (Some(_), Some(memory)) => builder
                .fold_stage(MemoryBudget { memory, spill: options.spill.clone() })
                .map_err(in_query),
        }
    }
}

sluice_core::register! {
    stage "sql": SqlStage,
    about: "asks a query in SQL of events, and gives its rows as events",
    sample: include_str!("../../samples/sql.toml"),
}

/// What is said of queries that need more than they may have.
pub(super) fn needs_memory(what: &str) -> String {
    format!(
        "{what} has to see all rows before the query gives one: say how much memory that may take, such as \
         `memory = \"256MiB\"`; what does not fit goes to temporary files"
    )
}

/// What plans are made with that are not run: nothing is written.
fn check_only_planner() -> Result<Planner, OptionsError> {
    let disks = DiskManagerBuilder::default().with_mode(DiskManagerMode::Disabled);
    let runtime = RuntimeEnvBuilder::new().with_disk_manager_builder(disks).build_arc();
    let runtime = runtime.map_err(|error| option_error("query", error.to_string()))?;
    Ok(Planner::new(BATCH_ROWS, runtime))
}

impl SqlStage {
    /// The fields that are declared, by channel.
    fn declared(
        &self,
        planner: &Planner,
        query: &Query,
    ) -> Result<BTreeMap<&str, SchemaRef>, OptionsError> {
        let wrong = |channel: &str, message: String| OptionsError {
            path: vec!["tables".to_owned(), channel.to_owned()],
            message,
        };
        let mut all = BTreeMap::new();
        for (channel, columns) in &self.tables {
            if !query.tables.iter().any(|table| table.name() == channel) {
                let what = format!("the query reads no table `{channel}`");
                return Err(wrong(channel, what));
            }
            if channel == super::query::EVENTS {
                let what = "the columns of this table are always the same: declare none".to_owned();
                return Err(wrong(channel, what));
            }
            let schema = declared::parse_columns(columns, planner).map_err(|error| {
                let what = SqlMistake::from_planner(error).render("");
                wrong(channel, format!("{what}; write such as `lat double, name varchar`"))
            })?;
            all.insert(channel.as_str(), schema);
        }
        Ok(all)
    }
}

/// What a stage is made of.
struct StageBuilder {
    query: Arc<Query>,
    planner: Planner,
    schemas: TableSchemas,
    channel: Option<String>,
}

impl StageBuilder {
    /// A stage that decides of each row alone.
    fn row_map_stage(self, memory: Option<ByteSize>) -> Result<Stage, SqlMistake> {
        let Self { query, planner, schemas, channel } = self;
        let (all_schemas, single_unknown, limit) =
            (schemas.all_known(), schemas.has_single_unknown(), query.limit);
        let prefilter = ChannelPrefilter::new(&query);
        let row_map = RowMap::new(query, planner, schemas, channel);
        if let Some(schemas) = &all_schemas {
            row_map.plan(schemas)?;
        }
        let mut parts = Vec::new();
        if all_schemas.is_some() || single_unknown {
            parts.push(Stage::Map(Box::new(row_map)));
        } else {
            let most = memory.map_or(MAX_PENDING_BYTES, |memory| memory.0 as usize);
            parts.extend(prefilter.map(|prefilter| Stage::Map(Box::new(prefilter))));
            parts.push(Stage::Fold(Box::new(DeferredRowMap::new(row_map, most))));
        }
        parts.extend(limit.map(|limit| Stage::Fold(Box::new(LimitFold(limit)))));
        Ok(Stage::Chain(parts))
    }

    /// A stage that sees everything before it gives anything.
    fn fold_stage(self, budget: MemoryBudget) -> Result<Stage, SqlMistake> {
        let Self { query, planner, schemas, channel } = self;
        if let Some(schemas) = schemas.all_known() {
            fold::plan(&planner, &query, &schemas, channel.as_deref())?;
        }
        let prefilter =
            ChannelPrefilter::new(&query).map(|prefilter| Stage::Map(Box::new(prefilter)));
        let fold = Stage::Fold(Box::new(QueryFold::new(query, schemas, channel, budget)));
        Ok(Stage::Chain(prefilter.into_iter().chain([fold]).collect()))
    }
}
