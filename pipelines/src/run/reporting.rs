//! Makes the report of a run from its results. Runs and publishes nothing.

use sluice_model::{Error, Input};

use super::stop::Interruption;
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
    pub(super) fn report(&self, results: &RunResults) -> Result<Report, Error> {
        let Self { setup, inputs, labels, .. } = self;
        let names = setup.match_names(&self.names, self.is_windowed, results);
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

    /// What is known of a run that has failed.
    pub(super) fn failed(&self, results: &RunResults) -> Report {
        Report::from_failed_run(&self.labels, results, &self.inputs, self.setup.channels())
    }
}
