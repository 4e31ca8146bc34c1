//! Queries that have to see all rows: rows are handed to one plan as they come, which holds what it has to in as
//! much memory as it may take, and the rest in temporary files. What it gives comes at the end.

mod feed;
mod running;

use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::RecordBatch;
use sluice_core::options::ByteSize;
use sluice_core::{Batch, Clock, Error, ErrorKind, Fold, Pattern, StageContext};

use super::each::named;
use super::known::Known;
use super::outcome::{New, Outcome};
use super::plan::{Planned, Planner};
use super::query::{Mistake, Query};
use super::tables;
use super::waiting::Held;
use crate::session::QueryError;
use running::{Running, Step};

/// What a query may use.
#[derive(Clone, Debug)]
pub(super) struct Room {
    pub(super) memory: ByteSize,
    /// Where temporary files are written; the system's folder for such where nothing is said.
    pub(super) spill: Option<PathBuf>,
}

/// A query over everything.
#[derive(Debug)]
pub(super) struct Whole {
    query: Arc<Query>,
    known: Known,
    channel: Option<String>,
    room: Room,
    held: Held,
    work: Work,
    /// The number of the next event.
    next: i64,
    /// What times of events that came count from, if that is one thing.
    clock: Option<Clock>,
}

/// How far the work has come.
#[derive(Debug)]
enum Work {
    /// No row has come that the plan could be made for.
    Ahead,
    Begun(Box<Running>, Outcome),
    /// The plan has given its last row.
    Over,
}

impl Whole {
    pub(super) fn new(
        query: Arc<Query>,
        known: Known,
        channel: Option<String>,
        room: Room,
    ) -> Self {
        let held = Held::within(quarter(&room));
        let (work, next, clock) = (Work::Ahead, 0, None);
        Self { query, known, channel, room, held, work, next, clock }
    }

    /// Hands the rows of a batch to the plan, which is made with the first ones.
    fn feed(&mut self, batch: &Batch, context: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        let mut given = Vec::new();
        self.note_clock(batch, context);
        let one_open = self.known.is_one_open();
        let shares = if one_open { Vec::new() } else { self.known.shares(batch, context)? };
        for share in shares {
            if share.rows.iter().flatten().all(|rows| rows.num_rows() == 0) {
                continue;
            }
            if matches!(self.work, Work::Ahead) {
                self.begin(&share.schemas)?;
            }
            let mut left = Left(share.rows);
            while let Work::Begun(running, _) = &mut self.work
                && let Some((table, rows)) = left.next(running)?
            {
                let more = running.give(table, &rows);
                more.map_err(|error| failed(error, &self.query, &self.room))?;
                // So what the plan works on first depends on events, and not on how many come together.
                loop {
                    let rows = self.step(context)?;
                    if rows.is_empty() {
                        break;
                    }
                    given.extend(rows);
                }
            }
        }
        Ok(given)
    }

    fn begin(&mut self, schemas: &[arrow_schema::SchemaRef]) -> Result<(), Error> {
        let planner = self.room.planner()?;
        let planned = plan(&planner, &self.query, schemas, self.channel.as_deref());
        let (planned, outcome) = planned.map_err(|mistake| wrong(&mistake, &self.query))?;
        let running = Running::begin(planned, &planner, quarter(&self.room));
        let running = running.map_err(|error| failed(error, &self.query, &self.room))?;
        self.work = Work::Begun(Box::new(running), outcome);
        Ok(())
    }

    fn note_clock(&mut self, batch: &Batch, context: &StageContext<'_>) {
        let mut last = None;
        for id in batch.channels() {
            if last.replace(*id) != Some(*id) {
                let clock = context.channels.get(sluice_core::ChannelId(*id)).clock;
                // Where there are several, times that are put together are taken as they are.
                let same = self.clock.is_none_or(|known| known == clock);
                self.clock = Some(if same { clock } else { Clock::Utc });
            }
        }
    }

    /// Lets the plan work until it has rows, or has nothing more to do.
    fn step(&mut self, context: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        let Work::Begun(running, outcome) = &mut self.work else { return Ok(Vec::new()) };
        let outcome = outcome.clone();
        loop {
            let step = running.step(&|| context.talk.is_aborted());
            match step.map_err(|error| failed(error, &self.query, &self.room))? {
                Step::Rows(rows) if rows.num_rows() == 0 => {}
                Step::Rows(rows) => return Ok(vec![self.events(&rows, &outcome, context)?]),
                Step::Hungry => return Ok(Vec::new()),
                Step::Aborted => return Err(ErrorKind::Aborted.into()),
                Step::Done => {
                    self.work = Work::Over;
                    return Ok(Vec::new());
                }
            }
        }
    }

    fn events(
        &mut self,
        rows: &RecordBatch,
        outcome: &Outcome,
        context: &mut StageContext<'_>,
    ) -> Result<Batch, Error> {
        let source = match context.talk.node() {
            "" => "sql",
            node => node,
        };
        let clock = self.clock.unwrap_or_default();
        let new = New { channel: self.channel.as_deref(), source, clock };
        let made = outcome.made(rows, self.next, &new, context.channels);
        let made = made.map_err(|error| {
            Error::unfit(format!("the query `{}`: {error}", self.query.shown()))
        })?;
        self.next = self.next.saturating_add(made.len() as i64);
        context.added.extend(made.origins());
        Ok(made)
    }
}

impl Fold for Whole {
    fn push(&mut self, batch: Batch, context: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        context.filtered += batch.len() as u64;
        if batch.is_empty() || matches!(self.work, Work::Over) {
            return Ok(Vec::new());
        }
        context.clamps_times(&batch);
        self.known.learn(&batch, context.channels)?;
        if !self.known.open().is_empty() {
            if self.known.is_one_open() {
                // There is nothing in it for the one table there is.
                let shares = self.known.shares(&batch, context)?;
                debug_assert!(shares.is_empty(), "messages tell the columns of their table");
                return Ok(Vec::new());
            }
            self.held.hold(batch, &self.known)?;
            return Ok(Vec::new());
        }
        let mut given = Vec::new();
        for batch in self.held.take().into_iter().chain([batch]) {
            given.extend(self.feed(&batch, context)?);
        }
        Ok(given)
    }

    fn finish(&mut self, context: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        self.held.end(&self.known)?;
        if let Work::Begun(running, _) = &mut self.work {
            running.end().map_err(|error| failed(error, &self.query, &self.room))?;
        }
        self.step(context)
    }

    fn more(&mut self, context: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        self.step(context)
    }

    fn is_done(&self) -> bool {
        matches!(self.work, Work::Over)
    }

    fn named_channels(&self) -> Vec<(&'static str, Pattern)> {
        named(&self.query.tables)
    }
}

/// Rows of a batch that are not given to a plan yet, by the tables' places.
struct Left(Vec<Option<RecordBatch>>);

impl Left {
    /// Rows of one table, no more than a plan lacks to go on: of that table for which these come first.
    fn next(&mut self, running: &Running) -> Result<Option<(usize, RecordBatch)>, Error> {
        let piece = |(table, rows): (usize, &Option<RecordBatch>)| {
            let rows = rows.as_ref().filter(|rows| rows.num_rows() > 0)?;
            let lacks = running.lacks(table).unwrap_or(usize::MAX);
            let count = lacks.min(rows.num_rows());
            // What completes nothing is given last.
            let last = if lacks > count { u32::MAX } else { tables::event_of(rows, count - 1) };
            Some((last, table, count))
        };
        let first = self.0.iter().enumerate().filter_map(piece).min();
        let Some((_, table, count)) = first else { return Ok(None) };
        let Some(Some(rows)) = self.0.get_mut(table) else { return Ok(None) };
        let piece = rows.slice(0, count);
        *rows = rows.slice(count, rows.num_rows() - count);
        Ok(Some((table, tables::without_event(&piece)?)))
    }
}

/// The plan for tables of these columns, and what its rows say.
pub(super) fn plan(
    planner: &Planner,
    query: &Query,
    schemas: &[arrow_schema::SchemaRef],
    channel: Option<&str>,
) -> Result<(Planned, Outcome), Mistake> {
    use super::columns::Own;
    let planned = planner.whole(query, schemas).map_err(Mistake::of_planner)?;
    let outcome = Outcome::of(&planned.physical.schema()).map_err(Mistake::new)?;
    if !outcome.says(Own::Timestamp) {
        return Err(Mistake::new(
            "the query gives no column `timestamp`, and what is made of many events has no time of its own: \
             add one, such as `max(timestamp) as timestamp`",
        ));
    }
    if !outcome.says(Own::Channel) && channel.is_none() {
        return Err(Mistake::new(
            "the query gives no column `channel`, and what is made of many events is on none: name one in \
             the option `channel`",
        ));
    }
    Ok((planned, outcome))
}

impl Room {
    /// What plans within this memory are made and run with. Folders are made when something is written there.
    fn planner(&self) -> Result<Planner, Error> {
        let pool = self.memory.0 as usize - quarter(self);
        running::planner(pool, self.spill.as_deref())
    }
}

/// How much of the memory rows may take that wait to be taken by a plan.
fn quarter(room: &Room) -> usize {
    usize::try_from(room.memory.0 / 4).unwrap_or(usize::MAX)
}

fn wrong(mistake: &Mistake, query: &Query) -> Error {
    Error::unfit(format!("the query `{}`: {}", query.shown(), query.show(mistake)))
}

fn failed(error: QueryError, query: &Query, room: &Room) -> Error {
    match error {
        QueryError::Exhausted(what) => Error::unfit(format!(
            "the query `{}` does not fit into `memory = \"{}\"`, even with temporary files: {what}; give it \
             more, or ask for less",
            query.shown(),
            room.memory
        )),
        QueryError::Wrong(what) => Error::unfit(format!("the query `{}`: {what}", query.shown())),
        QueryError::Failed(error) => error,
    }
}
