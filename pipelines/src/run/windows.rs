//! Finds time windows that no event meets, and when the first and the last event of their logs are.
//! Reads again only logs of which nothing came out of a window.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sluice_kit::reading::{ReadAhead, ReadStep};
use sluice_model::{Batch, ChannelQuery, DamageLog, Error, Query, Source, Split};

use super::setup::add_first_time;
use super::stop::first_read_once;
use super::topology::SourceNode;
use super::{ReadPlan, RunResults, Setup};

/// The sources of a run of which only a time window is read, by node.
pub(super) struct WindowedSources(BTreeMap<usize, WindowedSource>);

/// A source of which only a time window is read.
struct WindowedSource {
    name: Arc<str>,
    source: Arc<dyn Source>,
    query: Query,
    /// Whether it can be read again.
    is_repeatable: bool,
}

/// What is known of the events around a time window that has none.
#[derive(Clone, Default)]
struct Surroundings {
    has_events: bool,
    /// The times of the first and of the last event, as far as they are known.
    times: Vec<i64>,
}

impl WindowedSources {
    pub(super) fn from_plan(sources: &[SourceNode], reading: &ReadPlan) -> Self {
        let pairs = sources.iter().zip(&reading.sources);
        let pairs = pairs.filter(|(_, plan)| !plan.is_live() && !plan.query.window().is_open());
        let windowed = pairs.map(|(source, plan)| {
            let SourceNode { node, name, source, .. } = source;
            let is_file = first_read_once(&plan.splits, &plan.inputs).is_none();
            let is_repeatable = plan.has_files() && is_file;
            let (name, source, query) = (Arc::clone(name), Arc::clone(source), plan.query.clone());
            (*node, WindowedSource { name, source, query, is_repeatable })
        });
        Self(windowed.collect())
    }

    /// Which of these nodes, given with the sources before them, have a time window that no event
    /// meets, and the times of the first and of the last event, as far as they are known.
    pub(super) fn without_events(
        &self,
        nodes: Vec<(usize, BTreeSet<usize>)>,
        results: &RunResults,
        setup: &Setup,
    ) -> BTreeMap<usize, Vec<i64>> {
        let mut known = BTreeMap::new();
        let mut around = |node: usize| {
            let find = || self.0.get(&node)?.surroundings(node, results, setup);
            known.entry(node).or_insert_with(find).clone()
        };
        let mut empty = BTreeMap::new();
        for (node, sources) in nodes {
            let each: Option<Vec<Surroundings>> = sources.into_iter().map(&mut around).collect();
            let each = each.unwrap_or_default();
            if each.iter().any(|around| around.has_events) {
                let times = || each.iter().flat_map(|around| &around.times).copied();
                empty.insert(node, times().min().into_iter().chain(times().max()).collect());
            }
        }
        empty
    }
}

impl WindowedSource {
    /// What is around the window; `None` if an event is in it, or nobody knows.
    fn surroundings(
        &self,
        node: usize,
        results: &RunResults,
        setup: &Setup,
    ) -> Option<Surroundings> {
        let is_of_all_channels = self.query.channels.is_all();
        let came_out = results.tally.get(node).left.total() > 0;
        if !self.is_repeatable {
            let is_empty = is_of_all_channels && !came_out;
            let has_events = !setup.channels().since(0).is_empty();
            return is_empty.then_some(Surroundings { has_events, times: Vec::new() });
        }
        // What cannot be read is not known.
        let has_window = came_out || !is_of_all_channels;
        if has_window && self.first_in_window(setup).ok()?.is_some() {
            return None;
        }
        let first = setup.first_timestamp(&*self.source, &self.name).ok()?;
        let last = self.last_timestamp(setup).ok()?;
        let times = first.into_iter().chain(last).collect();
        Some(Surroundings { has_events: first.is_some(), times })
    }

    /// The time of an event in the window, on whatever channel.
    fn first_in_window(&self, setup: &Setup) -> Result<Option<i64>, Error> {
        let query = Query { channels: ChannelQuery::default(), ..self.query.clone() };
        let splits = self.source.splits(setup.split_bytes(), &query)?;
        let window = query.window();
        self.find(splits, query, setup, move |batch, step| add_first_time(batch, window, step))
    }

    /// The latest time near the end of the inputs; `None` if all of one would have to be read.
    fn last_timestamp(&self, setup: &Setup) -> Result<Option<i64>, Error> {
        let mut splits = self.source.splits(setup.split_bytes(), &Query::default())?;
        while let Some(split) = splits.pop().filter(|split| split.bytes.is_some()) {
            let found = self.find(vec![split], Query::default(), setup, add_last_time)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    fn find(
        &self,
        splits: Vec<Split>,
        query: Query,
        setup: &Setup,
        add: impl Fn(Batch, &mut ReadStep<Option<i64>>) -> Result<(), Error> + Send + Sync,
    ) -> Result<Option<i64>, Error> {
        let mut context = setup.context(&self.name, DamageLog::default());
        context.run = context.run.counting_in(Arc::default());
        context.query = query;
        for step in ReadAhead::in_turn(&*self.source, splits, context, add) {
            if let Some(time) = step?.output {
                return Ok(Some(time));
            }
        }
        Ok(None)
    }
}

/// Finds the latest time that is within the range of times.
fn add_last_time(batch: Batch, step: &mut ReadStep<Option<i64>>) -> Result<(), Error> {
    let times = batch.timestamps().iter().enumerate();
    let in_range = times.filter(|(row, _)| batch.wide_time(*row).is_none());
    step.output = in_range.map(|(_, time)| *time).max().max(step.output);
    Ok(())
}
