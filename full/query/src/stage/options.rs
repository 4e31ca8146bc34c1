//! The options of the stage `sql`, and the stages they make.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use arrow_schema::SchemaRef;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use schemars::JsonSchema;
use serde::Deserialize;
use sluice_model::options::ByteSize;
use sluice_model::{OptionsError, Stage};

use super::declared;
use super::fold::{self, MemoryBudget, QueryFold};
use super::limit::LimitFold;
use super::lineage::needs_memory;
use super::pending::{ChannelPrefilter, DeferredRowMap};
use super::plan::Planner;
use super::query::{Functions, Query, SqlMistake};
use super::row_map::RowMap;
use super::schemas::TableSchemas;

/// Runs an SQL query over events, and turns its rows into events.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SqlStage {
    /// The query: one SELECT over the table `events` and a table per channel, named like the
    /// channel. Names are case-sensitive.
    query: String,
    /// The channel of result rows, if the query has no column `channel`. By default the channel of
    /// the event that a row comes from.
    #[serde(default)]
    channel: Option<String>,
    /// Declares the columns of channels, in the syntax of `CREATE TABLE`: `{ POSE = "utime bigint,
    /// vel double[]" }`. By default they are those of the first message.
    #[serde(default)]
    tables: BTreeMap<String, String>,
    /// The memory for a query that needs all rows before it returns one. What does not fit spills
    /// to temporary files. Without it, such queries are refused.
    #[serde(default)]
    memory: Option<ByteSize>,
    /// The folder for temporary files, which are removed after the run. By default the system's.
    #[serde(default)]
    #[schemars(extend("format" = "sluice-path"))]
    spill: Option<PathBuf>,
}

/// Less memory is too little for any plan.
const MIN_MEMORY: ByteSize = ByteSize(8 << 20);

/// The default limit for events that wait until the columns of their tables are known.
const MAX_PENDING_BYTES: usize = 64 << 20;

/// Rows per batch of per-row queries.
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
                format!("{memory} is too little: at least {MIN_MEMORY} is needed"),
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

sluice_model::register! {
    stage "sql": SqlStage,
    about: "runs an SQL query over events, and turns its rows into events",
    sample: include_str!("../../samples/sql.toml"),
}

/// A planner that only checks queries: it cannot spill.
fn check_only_planner() -> Result<Planner, OptionsError> {
    let disks = DiskManagerBuilder::default().with_mode(DiskManagerMode::Disabled);
    let runtime = RuntimeEnvBuilder::new().with_disk_manager_builder(disks).build_arc();
    let runtime = runtime.map_err(|error| option_error("query", error.to_string()))?;
    Ok(Planner::new(BATCH_ROWS, runtime))
}

impl SqlStage {
    /// The declared columns, by channel.
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
                let what = "the columns of this table are fixed: declare none".to_owned();
                return Err(wrong(channel, what));
            }
            let schema = declared::parse_columns(columns, planner).map_err(|error| {
                let what = SqlMistake::from_planner(error).render("");
                wrong(
                    channel,
                    format!("{what}; expected columns such as `lat double, name varchar`"),
                )
            })?;
            all.insert(channel.as_str(), schema);
        }
        Ok(all)
    }
}

/// The parts of a stage.
struct StageBuilder {
    query: Arc<Query>,
    planner: Planner,
    schemas: TableSchemas,
    channel: Option<String>,
}

impl StageBuilder {
    /// The stage of a per-row query.
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
            let max_bytes = memory.map_or(MAX_PENDING_BYTES, |memory| memory.0 as usize);
            parts.extend(prefilter.map(|prefilter| Stage::Map(Box::new(prefilter))));
            parts.push(Stage::Fold(Box::new(DeferredRowMap::new(row_map, max_bytes))));
        }
        parts.extend(limit.map(|limit| Stage::Fold(Box::new(LimitFold(limit)))));
        Ok(Stage::Chain(parts))
    }

    /// The stage of a query that needs all rows.
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
