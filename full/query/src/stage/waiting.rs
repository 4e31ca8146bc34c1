//! Queries over several tables that decide of each row alone: events wait until the columns of all tables are
//! known, and are asked from then on as they come.

use sluice_core::options::ByteSize;
use sluice_core::{Batch, Error, Fold, Map, Pattern, StageContext};

use super::each::{Each, wanted};
use super::known::Known;
use super::query::{Query, Table};
use super::tables::Members;

/// Events that wait for the columns of tables, in as much memory as they may take.
#[derive(Debug)]
pub(super) struct Held {
    batches: Vec<Batch>,
    bytes: usize,
    most: usize,
}

impl Held {
    pub(super) fn within(most: usize) -> Self {
        Self { batches: Vec::new(), bytes: 0, most }
    }

    /// Holds a batch for tables that `known` does not know yet. `Err` if too much waits.
    pub(super) fn hold(&mut self, batch: Batch, known: &Known) -> Result<(), Error> {
        // Payloads are in no table but that of all events.
        let batch = if known.has_events() { batch.compact() } else { batch.without_payloads() };
        self.bytes += batch.memory();
        self.batches.push(batch);
        if self.bytes <= self.most {
            return Ok(());
        }
        Err(Error::unfit(format!(
            "more than {} of events came before a decoded one of {}: declare the columns in `tables`, and \
             nothing waits",
            ByteSize(self.most as u64),
            listed(&known.open())
        )))
    }

    /// What has waited.
    pub(super) fn take(&mut self) -> Vec<Batch> {
        self.bytes = 0;
        std::mem::take(&mut self.batches)
    }

    /// Says what it means that the tables that are open stay so: nothing, if nothing waits for them.
    pub(super) fn end(&mut self, known: &Known) -> Result<(), Error> {
        if self.take().is_empty() {
            return Ok(());
        }
        Err(Error::unfit(format!(
            "no decoded event of {} came, so the columns are not known: declare them in `tables`, or leave \
             the table out of the query",
            listed(&known.open())
        )))
    }
}

fn listed(tables: &[&Table]) -> String {
    tables.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ")
}

/// A query whose tables are learned on the way.
#[derive(Debug)]
pub(super) struct Waiting {
    each: Each,
    held: Held,
}

impl Waiting {
    pub(super) fn new(each: Each, most: usize) -> Self {
        Self { each, held: Held::within(most) }
    }
}

impl Fold for Waiting {
    fn push(&mut self, batch: Batch, context: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        self.each.known.learn(&batch, context.channels)?;
        if !self.each.known.open().is_empty() {
            self.held.hold(batch, &self.each.known)?;
            return Ok(Vec::new());
        }
        let held = self.held.take();
        held.iter().chain([&batch]).map(|batch| self.each.ask(batch, context)).collect()
    }

    fn finish(&mut self, _: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        self.held.end(&self.each.known)?;
        Ok(Vec::new())
    }

    fn named_channels(&self) -> Vec<(&'static str, Pattern)> {
        self.each.named_channels()
    }
}

/// Leaves out events that no table of a query has, so that sources can.
#[derive(Debug)]
pub(super) struct Narrow {
    tables: Vec<Table>,
    members: Members,
}

impl Narrow {
    /// For this query; nothing if it reads all events.
    pub(super) fn of(query: &Query) -> Option<Self> {
        let tables = query.tables.clone();
        let members = Members::of(&tables);
        (!tables.contains(&Table::Events)).then_some(Self { tables, members })
    }
}

impl Map for Narrow {
    fn apply(&self, batch: Batch, context: &mut StageContext<'_>) -> Result<Batch, Error> {
        let places = self.members.places(context.channels)?;
        let channels = batch.channels();
        let kept = batch.retain(|row| places[channels[row] as usize].is_some());
        context.filtered += (batch.len() - kept.len()) as u64;
        Ok(kept)
    }

    fn query(&self) -> sluice_core::plugin::MapQuery {
        sluice_core::plugin::MapQuery {
            channels: wanted(&self.tables),
            keeps_times: true,
            keeps_channels: true,
            ..Default::default()
        }
    }
}
