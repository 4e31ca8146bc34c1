//! Makes the report of a run from its results. Runs and publishes nothing.

use std::collections::{BTreeMap, BTreeSet};

use sluice_model::{Error, Input};

use super::stop::Interruption;
use super::windows::WindowedSources;
use super::{ReadPlan, RunResults, Setup, SourcePlan};
use crate::names::NodeNames;
use crate::report::Report;
use crate::spec::PipelineNode;

/// What the report of a run states besides its results.
pub(super) struct ReportContext<'r> {
    setup: &'r Setup,
    /// The inputs, in reading order.
    pub(super) inputs: Vec<Input>,
    /// The name and the inputs of each node.
    pub(super) labels: Vec<(String, Vec<usize>)>,
    names: Vec<NodeNames>,
    is_windowed: bool,
    is_live: bool,
}

impl<'r> ReportContext<'r> {
    pub(super) fn from_plan(nodes: &[PipelineNode], reading: &ReadPlan, setup: &'r Setup) -> Self {
        Self {
            setup,
            inputs: reading.inputs().cloned().collect(),
            labels: nodes.iter().map(|node| (node.name.clone(), node.from.clone())).collect(),
            names: nodes.iter().map(NodeNames::from_node).collect(),
            is_windowed: reading.is_windowed(),
            is_live: reading.sources.iter().all(SourcePlan::is_live),
        }
    }

    /// The report of a run that was driven to its end. `Err` if it was stopped and is discarded, or
    /// its accounting does not balance.
    pub(super) fn report(
        &self,
        results: &RunResults,
        windowed: &WindowedSources,
    ) -> Result<Report, Error> {
        let Self { setup, inputs, labels, .. } = self;
        let windows = (self.is_windowed, self.empty_windows(results, windowed));
        let names = setup.match_names(&self.names, windows, results);
        let report = Report::from_run(labels, results, inputs, setup.channels())?;
        let mut report = report.with_names(names);
        setup.check()?;
        if setup.stop.is_requested() {
            report.interrupted = setup.interruption == Interruption::Truncates;
            if setup.interruption == Interruption::Completes && !self.is_live {
                report.note_early_end(labels);
            }
        }
        Ok(report)
    }

    /// The nodes with a time window that no event meets, and the times of the events around it.
    fn empty_windows(
        &self,
        results: &RunResults,
        windowed: &WindowedSources,
    ) -> BTreeMap<usize, Vec<i64>> {
        let is_empty = |node: usize| results.tally.get(node).left.total() == 0;
        let nodes = self.names.iter().enumerate();
        let empty = nodes.filter(|(node, names)| names.has_window() && is_empty(*node));
        let empty = empty.map(|(node, _)| (node, self.sources_of(node)));
        match results.is_complete && !self.setup.stop.is_requested() {
            true => windowed.without_events(empty.collect(), results, self.setup),
            false => BTreeMap::new(),
        }
    }

    /// The sources whose events reach this node.
    fn sources_of(&self, node: usize) -> BTreeSet<usize> {
        let (mut seen, mut waiting) = (BTreeSet::from([node]), vec![node]);
        while let Some(node) = waiting.pop() {
            let before = self.labels.get(node).map_or(&[][..], |(_, from)| from);
            waiting.extend(before.iter().copied().filter(|before| seen.insert(*before)));
        }
        let is_source =
            |node: &usize| self.labels.get(*node).is_some_and(|(_, from)| from.is_empty());
        seen.into_iter().filter(is_source).collect()
    }

    /// What is known of a run that has failed.
    pub(super) fn failed(&self, results: &RunResults) -> Report {
        Report::from_failed_run(&self.labels, results, &self.inputs, self.setup.channels())
    }
}
