//! Calls the plugins of nodes, and names the node in the options or data that one refuses. Faults
//! of the plugins themselves are left to `blame`.

use std::path::Path;
use std::sync::Arc;

use sluice_model::Error;

use super::blame::NodeLabels;
use crate::spec::Pipeline;

/// What errors call each node, by index.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeCalls {
    labels: NodeLabels,
    /// The same, with the lines where they are written.
    places: Arc<[String]>,
}

impl NodeCalls {
    pub(super) fn of_pipeline(pipeline: &Pipeline) -> Self {
        Self {
            labels: NodeLabels::from_nodes(&pipeline.nodes),
            places: pipeline.nodes.iter().map(|node| pipeline.place_of(node)).collect(),
        }
    }

    /// Calls the plugin of a node. If it panics, the run fails, and what it was given is dropped.
    pub(super) fn call<T>(
        &self,
        node: usize,
        call: impl FnOnce() -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.labels.call(node, call).map_err(|error| self.place(node, error))
    }

    /// Names the node, and the input that it reads if its plugin is at fault.
    pub(super) fn blame(&self, node: usize, input: Option<&Path>, error: Error) -> Error {
        self.place(node, self.labels.blame(node, input, error))
    }

    fn place(&self, node: usize, error: Error) -> Error {
        match self.places.get(node) {
            Some(place) => error.at_node(place),
            None => error,
        }
    }
}
