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
use super::each::Each;
use super::known::Known;
use super::plan::Planner;
use super::query::{Functions, Mistake, Query};
use super::take::Take;
use super::waiting::{Narrow, Waiting};
use super::whole::{self, Room, Whole};

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
const LEAST_MEMORY: ByteSize = ByteSize(8 << 20);

/// How much may wait for the columns of tables where nothing is said of memory.
const MOST_WAITING: usize = 64 << 20;

/// How many rows are worked on at a time where each is decided alone.
const BATCH_ROWS: usize = 8192;

fn mistake(option: &str, message: impl Into<String>) -> OptionsError {
    OptionsError { path: vec![option.to_owned()], message: message.into() }
}

impl TryFrom<SqlStage> for Stage {
    type Error = OptionsError;

    fn try_from(options: SqlStage) -> Result<Self, OptionsError> {
        let in_query = |mistake: Mistake| self::mistake("query", mistake.shown(&options.query));
        if let Some(memory) = options.memory.filter(|memory| *memory < LEAST_MEMORY) {
            return Err(mistake(
                "memory",
                format!("{memory} is too little: {LEAST_MEMORY} is the least"),
            ));
        }
        let query = Query::parse(&options.query, &Functions::known()).map_err(in_query)?;
        let planner = checking()?;
        let declared = options.declared(&planner, &query)?;
        let known = Known::of(&query, |channel| declared.get(channel).cloned());
        let parts =
            Parts { query: Arc::new(query), planner, known, channel: options.channel.clone() };
        match (parts.query.gathers.clone(), options.memory) {
            (None, _) => parts.each(options.memory).map_err(in_query),
            (Some(gathers), None) => {
                let what = needs_everything(&gathers.0);
                Err(mistake("query", what))
            }
            (Some(_), Some(memory)) => {
                parts.whole(Room { memory, spill: options.spill.clone() }).map_err(in_query)
            }
        }
    }
}

sluice_core::register! {
    stage "sql": SqlStage,
    about: "asks a query in SQL of events, and gives its rows as events",
    sample: include_str!("../../samples/sql.toml"),
}

/// What is said of queries that need more than they may have.
pub(super) fn needs_everything(what: &str) -> String {
    format!(
        "{what} has to see all rows before the query gives one: say how much memory that may take, such as \
         `memory = \"256MiB\"`; what does not fit goes to temporary files"
    )
}

/// What plans are made with that are not run: nothing is written.
fn checking() -> Result<Planner, OptionsError> {
    let disks = DiskManagerBuilder::default().with_mode(DiskManagerMode::Disabled);
    let runtime = RuntimeEnvBuilder::new().with_disk_manager_builder(disks).build_arc();
    let runtime = runtime.map_err(|error| mistake("query", error.to_string()))?;
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
            let schema = declared::columns(columns, planner).map_err(|error| {
                let what = Mistake::of_planner(error).shown("");
                wrong(channel, format!("{what}; write such as `lat double, name varchar`"))
            })?;
            all.insert(channel.as_str(), schema);
        }
        Ok(all)
    }
}

/// What a stage is made of.
struct Parts {
    query: Arc<Query>,
    planner: Planner,
    known: Known,
    channel: Option<String>,
}

impl Parts {
    /// A stage that decides of each row alone.
    fn each(self, memory: Option<ByteSize>) -> Result<Stage, Mistake> {
        let Self { query, planner, known, channel } = self;
        let (known_now, one_open, taken) = (known.all(), known.is_one_open(), query.taken);
        let narrow = Narrow::of(&query);
        let each = Each::new(query, planner, known, channel);
        if let Some(schemas) = &known_now {
            each.plan(schemas)?;
        }
        let mut parts = Vec::new();
        if known_now.is_some() || one_open {
            parts.push(Stage::Map(Box::new(each)));
        } else {
            let most = memory.map_or(MOST_WAITING, |memory| memory.0 as usize);
            parts.extend(narrow.map(|narrow| Stage::Map(Box::new(narrow))));
            parts.push(Stage::Fold(Box::new(Waiting::new(each, most))));
        }
        parts.extend(taken.map(|taken| Stage::Fold(Box::new(Take(taken)))));
        Ok(Stage::Chain(parts))
    }

    /// A stage that sees everything before it gives anything.
    fn whole(self, room: Room) -> Result<Stage, Mistake> {
        let Self { query, planner, known, channel } = self;
        if let Some(schemas) = known.all() {
            whole::plan(&planner, &query, &schemas, channel.as_deref())?;
        }
        let narrow = Narrow::of(&query).map(|narrow| Stage::Map(Box::new(narrow)));
        let whole = Stage::Fold(Box::new(Whole::new(query, known, channel, room)));
        Ok(Stage::Chain(narrow.into_iter().chain([whole]).collect()))
    }
}
