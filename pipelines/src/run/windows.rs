//! Finds time windows that no event meets, and when the first and the last event of their logs are.
//! Reads again only logs of which nothing came out of a window.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_kit::reading::{ReadAhead, ReadStep};
use sluice_model::time::TimePoint;
use sluice_model::{
    Batch, ChannelQuery, DamageLog, Error, Query, Source, Split, Stage, TimeWindow,
};

use super::pushdown::before;
use super::setup::add_first_time;
use super::stop::first_read_once;
use super::topology::SourceNode;
use super::{ReadPlan, RunResults, Setup};
use crate::spec::{PipelineNode, PluginInstance};

/// The time window of a node.
#[derive(Default)]
pub(super) struct NodeWindow {
    /// Its bounds as written.
    pub(super) bounds: Vec<(Option<TimePoint>, Option<TimePoint>)>,
    /// The times of the node's inputs that are in it.
    pub(super) inputs: TimeWindow,
    /// By how much the windows of later nodes are wider for the times of this node's inputs;
    /// `None` if they do not hold for these.
    pub(super) reach: Option<i64>,
}

impl NodeWindow {
    pub(super) fn from_node(node: &PipelineNode, origin: Option<i64>) -> Self {
        let PluginInstance::Stage(stage) = &node.instance else {
            return Self { reach: Some(0), ..Self::default() };
        };
        let bounds = |part: &Stage| match part {
            Stage::Map(map) => Some((map.query().start, map.query().end)),
            Stage::Fold(_) | Stage::Chain(_) => None,
        };
        let (own, _) = before(stage, Query::default(), origin);
        let reach = |later: i64| {
            let needs = before(stage, Query { start: Some(later), ..Query::default() }, origin).0;
            Some(later.saturating_sub(needs.start?))
        };
        // Both starts are later than that of the stage's own window, which thus does not count. A
        // stage that puts another start in place of theirs is not equally far from both.
        let reach = reach(i64::MAX).filter(|far| reach(i64::MAX - 1) == Some(*far));
        let bounds = stage.parts().into_iter().filter_map(bounds).collect();
        Self { bounds, inputs: own.window(), reach }
    }
}

/// The sources of a run that are not live, by node.
pub(super) struct StoredSources(BTreeMap<usize, StoredSource>);

/// A source that is not live.
struct StoredSource {
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
    /// The time of the first event, if it is known.
    first: Option<i64>,
    /// The time of the last event, if it is known.
    last: Option<i64>,
}

impl StoredSources {
    pub(super) fn from_plan(sources: &[SourceNode], reading: &ReadPlan) -> Self {
        let pairs = sources.iter().zip(&reading.sources);
        let stored = pairs.filter(|(_, plan)| !plan.is_live()).map(|(source, plan)| {
            let SourceNode { node, name, source, .. } = source;
            let is_file = first_read_once(&plan.splits, &plan.inputs).is_none();
            let is_repeatable = plan.has_files() && is_file;
            let (name, source, query) = (Arc::clone(name), Arc::clone(source), plan.query.clone());
            (*node, StoredSource { name, source, query, is_repeatable })
        });
        Self(stored.collect())
    }

    /// Which of these nodes, given with the sources of their window and the times of each that are
    /// in it, have a window that no event meets, and the times of the first and of the last event,
    /// as far as they are known.
    pub(super) fn without_events(
        &self,
        nodes: Vec<(usize, Vec<(usize, TimeWindow)>)>,
        results: &RunResults,
        setup: &Setup,
    ) -> BTreeMap<usize, Vec<i64>> {
        let mut known = BTreeMap::new();
        let mut around = |(node, window): (usize, TimeWindow)| {
            let find = || self.0.get(&node)?.surroundings((node, window), results, setup);
            known.entry((node, window.start, window.end)).or_insert_with(find).clone()
        };
        let mut empty = BTreeMap::new();
        for (node, sources) in nodes {
            let each: Option<Vec<Surroundings>> = sources.into_iter().map(&mut around).collect();
            let mut each = each.unwrap_or_default();
            each.retain(|around| around.has_events);
            if !each.is_empty() {
                // Nothing is less than any time, so that one which is not known decides.
                let first = each.iter().map(|around| around.first).min().flatten();
                let last = each.iter().map(|around| around.last.map(Reverse)).min().flatten();
                let last = last.map(|Reverse(last)| last).filter(|_| first.is_some());
                empty.insert(node, first.into_iter().chain(last).collect());
            }
        }
        empty
    }
}

impl StoredSource {
    /// What is around a window; `None` if an event is in it, or nobody knows.
    fn surroundings(
        &self,
        (node, window): (usize, TimeWindow),
        results: &RunResults,
        setup: &Setup,
    ) -> Option<Surroundings> {
        // Nothing was read of a window of which all was to be read, or no source skipped a channel.
        let is_empty = self.query.window() == window
            && (self.query.channels.is_all() || setup.left_out.names().is_empty())
            && results.tally.get(node).left.total() == 0;
        if !self.is_repeatable {
            let has_events = !setup.channels().since(0).is_empty();
            return is_empty.then_some(Surroundings { has_events, ..Surroundings::default() });
        }
        // What cannot be read is not known.
        if !is_empty && self.first_in_window(window, setup).ok()?.is_some() {
            return None;
        }
        let first = setup.first_timestamp(&*self.source, &self.name).ok()?;
        let last = self.last_timestamp(setup).ok()?;
        Some(Surroundings { has_events: first.is_some(), first, last })
    }

    /// The time of an event in the window, on whatever channel.
    fn first_in_window(&self, window: TimeWindow, setup: &Setup) -> Result<Option<i64>, Error> {
        let TimeWindow { start, end } = window;
        let query = Query { start, end, channels: ChannelQuery::default() };
        let splits = self.source.splits(setup.split_bytes(), &query)?;
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
