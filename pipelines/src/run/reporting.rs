//! Makes the report of a run from its results. Runs and publishes nothing.

use std::collections::{BTreeMap, BTreeSet};

use sluice_model::{Error, ErrorKind, Input, TimeWindow};

use super::stop::Interruption;
use super::windows::{NodeWindow, StoredSources};
use super::{ReadPlan, RunResults, Setup};
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
    windows: Vec<NodeWindow>,
    is_windowed: bool,
}

impl<'r> ReportContext<'r> {
    pub(super) fn from_plan(nodes: &[PipelineNode], reading: &ReadPlan, setup: &'r Setup) -> Self {
        let origins = reading.origins.iter().copied();
        let windows = nodes.iter().zip(origins).map(|(node, at)| NodeWindow::from_node(node, at));
        Self {
            setup,
            inputs: reading.inputs().cloned().collect(),
            labels: nodes.iter().map(|node| (node.name.clone(), node.from.clone())).collect(),
            names: nodes.iter().map(NodeNames::from_node).collect(),
            windows: windows.collect(),
            is_windowed: reading.is_windowed(),
        }
    }

    /// The report of a run that was driven to its end. `Err` if it was stopped and is discarded, or
    /// its accounting does not balance.
    pub(super) fn report(
        &self,
        results: &RunResults,
        stored: &StoredSources,
    ) -> Result<Report, Error> {
        let Self { setup, inputs, labels, .. } = self;
        let windows = (self.is_windowed, self.empty_windows(results, stored));
        let names = setup.match_names(&self.names, windows, results);
        let report = Report::from_run(labels, results, inputs, setup.channels())?;
        let mut report = report.with_names(names);
        setup.check()?;
        if setup.stop.is_requested() {
            report.interrupted = setup.interruption == Interruption::Truncates;
            if setup.interruption == Interruption::EndsSending {
                report.note_early_end(labels);
            }
        }
        Ok(report)
    }

    /// The nodes with a time window that no event meets, and the times of the events around it.
    /// The windows of nodes with the same bounds are one.
    fn empty_windows(
        &self,
        results: &RunResults,
        stored: &StoredSources,
    ) -> BTreeMap<usize, Vec<i64>> {
        if !results.is_complete || self.setup.stop.is_requested() {
            return BTreeMap::new();
        }
        let is_empty = |node: usize| results.tally.get(node).left.total() == 0;
        let windows = self.names.iter().zip(&self.windows).enumerate();
        let windows = windows.filter(|(_, (names, _))| names.has_window());
        let windows: Vec<(usize, &NodeWindow)> =
            windows.map(|(node, (_, window))| (node, window)).collect();
        let sources = |(node, window): &(usize, &NodeWindow)| {
            let same = windows.iter().filter(|(_, other)| other.bounds == window.bounds);
            let each = same.map(|(node, _)| self.sources_of(*node).filter(|_| is_empty(*node)));
            let each: Vec<_> = each.collect::<Option<_>>()?;
            Some((*node, each.concat()))
        };
        stored.without_events(windows.iter().filter_map(sources).collect(), results, self.setup)
    }

    /// The sources whose events reach a node with a window, and the times of each that are in it,
    /// or near enough to decide about what is; `None` if a node between changes times or may drop
    /// events before the window does.
    fn sources_of(&self, node: usize) -> Option<Vec<(usize, TimeWindow)>> {
        let (mut seen, mut waiting) = (BTreeSet::from([node]), vec![node]);
        let mut reach = 0_i64;
        let mut sources = Vec::new();
        while let Some(node) = waiting.pop() {
            let (_, from) = self.labels.get(node)?;
            if from.is_empty() {
                sources.push(node);
            }
            for before in from {
                let further = self.windows.get(*before)?.reach?;
                if seen.insert(*before) {
                    reach = reach.saturating_add(further);
                    waiting.push(*before);
                }
            }
        }
        let TimeWindow { start, end } = self.windows.get(node)?.inputs;
        let window = TimeWindow {
            start: start.map(|start| start.saturating_sub(reach)),
            end: end.map(|end| end.saturating_add(reach)),
        };
        Some(sources.into_iter().map(|source| (source, window)).collect())
    }

    /// Names the input in an error that is the fault of a plugin, if the run has only one.
    pub(super) fn name_only_input(&self, error: Error) -> Error {
        match (error.kind(), &self.inputs[..]) {
            (ErrorKind::Internal { what, input: None }, [only]) => {
                ErrorKind::Internal { what: what.clone(), input: Some(only.path.clone()) }.into()
            }
            _ => error,
        }
    }

    /// What is known of a run that has failed.
    pub(super) fn failed(&self, results: &RunResults) -> Report {
        Report::from_failed_run(&self.labels, results, &self.inputs, self.setup.channels())
    }
}
