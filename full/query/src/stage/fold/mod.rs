//! Queries that need all rows: rows are pushed to one plan as they come, which keeps them within a
//! memory budget and spills to temporary files. Most results come at the end.

mod execution;
mod feed;

use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::RecordBatch;
use sluice_model::options::ByteSize;
use sluice_model::{Batch, Clock, Error, ErrorKind, Fold, Pattern, RunHandle, StageContext};

use super::event_mapping::{EventMapping, NewEventDefaults};
use super::pending::PendingEvents;
use super::plan::{Planner, StagePlan};
use super::query::{Query, SqlMistake};
use super::row_map::named_channels;
use super::schemas::TableSchemas;
use super::tables;
use crate::session::{QueryError, StopCheck};
use execution::{ExecutionStep, PlanExecution};

/// The memory and spill folder of a query.
#[derive(Clone, Debug)]
pub(super) struct MemoryBudget {
    pub(super) memory: ByteSize,
    /// The folder for temporary files; the system's by default.
    pub(super) spill: Option<PathBuf>,
}

/// A query that needs all rows.
#[derive(Debug)]
pub(super) struct QueryFold {
    query: Arc<Query>,
    schemas: TableSchemas,
    channel: Option<String>,
    budget: MemoryBudget,
    pending: PendingEvents,
    state: FoldState,
    /// The sequence number of the next event.
    next: i64,
    /// The clock of all events so far, or UTC if they differ.
    clock: Option<Clock>,
}

/// The state of the plan.
#[derive(Debug)]
enum FoldState {
    /// No rows yet, so the columns may be unknown.
    NotStarted,
    Running(Box<PlanExecution>, EventMapping),
    /// The plan has returned its last row.
    Finished,
}

impl QueryFold {
    pub(super) fn new(
        query: Arc<Query>,
        schemas: TableSchemas,
        channel: Option<String>,
        budget: MemoryBudget,
    ) -> Self {
        let pending = PendingEvents::with_budget(queue_bytes(&budget));
        let (state, next, clock) = (FoldState::NotStarted, 0, None);
        Self { query, schemas, channel, budget, pending, state, next, clock }
    }

    /// Pushes the rows of a batch to the plan. The first rows start it.
    fn feed(&mut self, batch: &Batch, context: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        let mut output = Vec::new();
        self.note_clock(batch, context);
        let single_unknown = self.schemas.has_single_unknown();
        let inputs =
            if single_unknown { Vec::new() } else { self.schemas.plan_inputs(batch, context)? };
        for input in inputs {
            if input.rows.iter().flatten().all(|rows| rows.num_rows() == 0) {
                continue;
            }
            if matches!(self.state, FoldState::NotStarted) {
                self.begin(&input.schemas, &context.run)?;
            }
            let mut unfed = UnfedRows(input.rows);
            while let FoldState::Running(execution, _) = &mut self.state
                && let Some((table, rows)) = unfed.next(execution)?
            {
                let more = execution.push(table, &rows);
                more.map_err(|error| run_error(error, &self.query, &self.budget))?;
                // Step after each push: the order of work must not depend on how events are
                // batched.
                loop {
                    let rows = self.step(context)?;
                    if rows.is_empty() {
                        break;
                    }
                    output.extend(rows);
                }
            }
        }
        Ok(output)
    }

    fn begin(&mut self, schemas: &[arrow_schema::SchemaRef], run: &RunHandle) -> Result<(), Error> {
        let planner = self.budget.planner()?;
        let planned = plan(&planner, &self.query, schemas, self.channel.as_deref());
        let (planned, mapping) = planned.map_err(|mistake| mistake_error(&mistake, &self.query))?;
        let check = {
            let run = run.clone();
            StopCheck::new(move || run.is_aborted())
        };
        let execution = PlanExecution::begin(planned, &planner, queue_bytes(&self.budget), check);
        let execution = execution.map_err(|error| run_error(error, &self.query, &self.budget))?;
        self.state = FoldState::Running(Box::new(execution), mapping);
        Ok(())
    }

    fn note_clock(&mut self, batch: &Batch, context: &StageContext<'_>) {
        let mut last = None;
        for id in batch.channels() {
            if last.replace(*id) != Some(*id) {
                let clock = context.channels.get(sluice_model::ChannelId(*id)).clock;
                // With several clocks, times are taken as they are.
                let same = self.clock.is_none_or(|schemas| schemas == clock);
                self.clock = Some(if same { clock } else { Clock::Utc });
            }
        }
    }

    /// Runs the plan until it has rows or needs more input.
    fn step(&mut self, context: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        let FoldState::Running(execution, mapping) = &mut self.state else { return Ok(Vec::new()) };
        let mapping = mapping.clone();
        loop {
            let step = execution.step();
            match step.map_err(|error| run_error(error, &self.query, &self.budget))? {
                ExecutionStep::Rows(rows) if rows.num_rows() == 0 => {}
                ExecutionStep::Rows(rows) => {
                    return Ok(vec![self.events(&rows, &mapping, context)?]);
                }
                ExecutionStep::NeedsRows => return Ok(Vec::new()),
                ExecutionStep::Aborted => return Err(ErrorKind::Aborted.into()),
                ExecutionStep::Done => {
                    self.state = FoldState::Finished;
                    return Ok(Vec::new());
                }
            }
        }
    }

    fn events(
        &mut self,
        rows: &RecordBatch,
        mapping: &EventMapping,
        context: &mut StageContext<'_>,
    ) -> Result<Batch, Error> {
        let source = match context.run.node() {
            "" => "sql",
            node => node,
        };
        let clock = self.clock.unwrap_or_default();
        let defaults = NewEventDefaults { channel: self.channel.as_deref(), source, clock };
        let events = mapping.new_events(rows, self.next, &defaults, context.channels);
        let events = events.map_err(|error| {
            Error::invalid(format!("the query `{}`: {error}", self.query.excerpt()))
        })?;
        self.next = self.next.saturating_add(events.len() as i64);
        context.report.added.extend(events.origins());
        Ok(events)
    }
}

impl Fold for QueryFold {
    fn push(&mut self, batch: Batch, context: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        context.report.filtered += batch.len() as u64;
        if batch.is_empty() || matches!(self.state, FoldState::Finished) {
            return Ok(Vec::new());
        }
        context.note_clamped_times(&batch);
        self.schemas.discover(&batch, context.channels)?;
        if !self.schemas.unknown_tables().is_empty() {
            if self.schemas.has_single_unknown() {
                // The batch has nothing for the only table.
                let inputs = self.schemas.plan_inputs(&batch, context)?;
                debug_assert!(inputs.is_empty(), "messages determine the columns of their table");
                return Ok(Vec::new());
            }
            self.pending.push(batch, &self.schemas)?;
            return Ok(Vec::new());
        }
        let mut output = Vec::new();
        for batch in self.pending.take().into_iter().chain([batch]) {
            output.extend(self.feed(&batch, context)?);
        }
        Ok(output)
    }

    fn finish(&mut self, context: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        self.pending.end(&self.schemas)?;
        if let FoldState::Running(execution, _) = &mut self.state {
            execution.end().map_err(|error| run_error(error, &self.query, &self.budget))?;
        }
        self.step(context)
    }

    fn more(&mut self, context: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        self.step(context)
    }

    fn is_done(&self) -> bool {
        matches!(self.state, FoldState::Finished)
    }

    fn named_channels(&self) -> Vec<(&'static str, Pattern)> {
        named_channels(&self.query.tables)
    }
}

/// The rows of a batch that were not pushed yet, per table.
struct UnfedRows(Vec<Option<RecordBatch>>);

impl UnfedRows {
    /// The next rows to push: of the table whose batch is completed by the earliest event.
    fn next(&mut self, execution: &PlanExecution) -> Result<Option<(usize, RecordBatch)>, Error> {
        let next_rows = |(table, rows): (usize, &Option<RecordBatch>)| {
            let rows = rows.as_ref().filter(|rows| rows.num_rows() > 0)?;
            let rows_needed = execution.rows_needed(table).unwrap_or(usize::MAX);
            let count = rows_needed.min(rows.num_rows());
            // Rows that complete no batch come last.
            let last =
                if rows_needed > count { u32::MAX } else { tables::event_of(rows, count - 1) };
            Some((last, table, count))
        };
        let first = self.0.iter().enumerate().filter_map(next_rows).min();
        let Some((_, table, count)) = first else { return Ok(None) };
        let Some(Some(rows)) = self.0.get_mut(table) else { return Ok(None) };
        let next_rows = rows.slice(0, count);
        *rows = rows.slice(count, rows.num_rows() - count);
        Ok(Some((table, tables::without_event(&next_rows)?)))
    }
}

/// Plans a query for tables with these columns.
pub(super) fn plan(
    planner: &Planner,
    query: &Query,
    schemas: &[arrow_schema::SchemaRef],
    channel: Option<&str>,
) -> Result<(StagePlan, EventMapping), SqlMistake> {
    use super::columns::EventColumn;
    let planned = planner.plan_all(query, schemas).map_err(SqlMistake::from_planner)?;
    let mapping = EventMapping::from_schema(&planned.physical.schema()).map_err(SqlMistake::new)?;
    if !mapping.has(EventColumn::Timestamp) {
        return Err(SqlMistake::new(
            "the query returns no column `timestamp`, and rows of many events have no time of \
             their own: add one, such as `max(timestamp) as timestamp`",
        ));
    }
    if !mapping.has(EventColumn::Channel) && channel.is_none() {
        return Err(SqlMistake::new(
            "the query returns no column `channel`, and rows of many events have no channel of \
             their own: set the option `channel`",
        ));
    }
    Ok((planned, mapping))
}

impl MemoryBudget {
    /// A planner within this budget. Spill folders are created on first use.
    fn planner(&self) -> Result<Planner, Error> {
        let pool = self.memory.0 as usize - queue_bytes(self);
        execution::planner(pool, self.spill.as_deref())
    }
}

/// The share of the memory for the queues of a plan.
fn queue_bytes(budget: &MemoryBudget) -> usize {
    usize::try_from(budget.memory.0 / 4).unwrap_or(usize::MAX)
}

fn mistake_error(mistake: &SqlMistake, query: &Query) -> Error {
    Error::invalid(format!("the query `{}`: {}", query.excerpt(), query.render(mistake)))
}

fn run_error(error: QueryError, query: &Query, budget: &MemoryBudget) -> Error {
    match error {
        QueryError::OutOfMemory(what) => Error::invalid(format!(
            "the query `{}` does not fit into `memory = \"{}\"`, even with temporary files: \
             {what}; allow more, or query less",
            query.excerpt(),
            budget.memory
        )),
        QueryError::Invalid(what) => {
            Error::invalid(format!("the query `{}`: {what}", query.excerpt()))
        }
        QueryError::Failed(error) => error,
    }
}
