//! What a run reads: inputs, queries and splits. Reads nothing.

use sluice_model::{Input, Query, Split};

use super::pushdown::Pushdown;

/// The read plan of a pipeline: inputs, queries and splits of its sources.
#[derive(Debug)]
pub struct ReadPlan {
    /// The plan of each source.
    pub sources: Vec<SourcePlan>,
    pub(super) origins: Vec<Option<i64>>,
    pub(super) pushdown: Pushdown,
}

/// The read plan of one source.
#[derive(Debug)]
pub struct SourcePlan {
    /// The index of the source's node.
    pub node: usize,
    /// Its inputs.
    pub inputs: Vec<Input>,
    /// The pushed-down query.
    pub query: Query,
    /// The splits to read.
    pub splits: Vec<Split>,
}

impl SourcePlan {
    /// Whether the source is live.
    pub(super) fn is_live(&self) -> bool {
        self.splits.iter().any(|split| split.live)
    }

    /// Whether it reads files or streams, as opposed to made-up or live data.
    pub(super) fn has_files(&self) -> bool {
        !self.is_live() && !self.inputs.is_empty()
    }
}

impl ReadPlan {
    /// Whether a source that is not live is limited to a time window.
    pub(super) fn is_windowed(&self) -> bool {
        let is_windowed = |source: &SourcePlan| {
            !source.is_live() && (source.query.start.is_some() || source.query.end.is_some())
        };
        self.sources.iter().any(is_windowed)
    }

    pub(super) fn inputs(&self) -> impl Iterator<Item = &Input> {
        self.sources.iter().flat_map(|source| &source.inputs)
    }
}
