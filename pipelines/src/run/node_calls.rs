//! Calls the plugins of nodes, and names the node that panicked, broke a promise, or refuses its
//! options or data. Handles no other errors.

use std::path::Path;
use std::sync::Arc;

use sluice_model::{Error, ErrorKind};

use crate::spec::{Pipeline, PipelineNode};

/// The plugins of nodes, by index.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeCalls(Arc<[NodeNames]>);

/// What errors call a node.
#[derive(Clone, Debug)]
struct NodeNames {
    label: String,
    /// The same, with the line where it is written.
    place: String,
}

impl NodeCalls {
    pub(super) fn of_pipeline(pipeline: &Pipeline) -> Self {
        let names =
            |node: &PipelineNode| NodeNames { label: node.label(), place: pipeline.place_of(node) };
        Self(pipeline.nodes.iter().map(names).collect())
    }

    /// Calls the plugin of a node. If it panics, the run fails, and what it was given is dropped.
    pub(super) fn call<T>(
        &self,
        node: usize,
        call: impl FnOnce() -> Result<T, Error>,
    ) -> Result<T, Error> {
        Error::catching(call).map_err(|error| self.name(node, None, error))
    }

    /// Names the node in an error that is the fault of its plugin, options or data; of a plugin
    /// also the input that it reads.
    pub(super) fn name(&self, node: usize, input: Option<&Path>, error: Error) -> Error {
        let Some(NodeNames { label, place }) = self.0.get(node) else { return error };
        let ErrorKind::Internal { what, input: known } = error.kind() else {
            return error.at_node(place);
        };
        let input = input.filter(|input| !input.as_os_str().is_empty());
        let reading = input.map(|input| format!(", reading {}", input.display()));
        let what = format!("{label}{}: {what}", reading.unwrap_or_default());
        let input = input.map(Path::to_owned).or_else(|| known.clone());
        ErrorKind::Internal { what, input }.into()
    }
}
