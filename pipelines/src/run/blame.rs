//! Names the node whose plugin panicked or broke a promise. Handles no other errors.

use std::path::Path;
use std::sync::Arc;

use sluice_model::{Error, ErrorKind};

use crate::spec::PipelineNode;

/// What messages call each node, by index.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeLabels(Arc<[String]>);

impl NodeLabels {
    pub(super) fn from_nodes(nodes: &[PipelineNode]) -> Self {
        let label = |node: &PipelineNode| {
            format!("{} `{}` (plugin `{}`)", node.kind, node.name, node.plugin)
        };
        Self(nodes.iter().map(label).collect())
    }

    /// Calls the plugin of a node. If it panics, the run fails, and what it was given is dropped.
    pub(super) fn call<T>(
        &self,
        node: usize,
        call: impl FnOnce() -> Result<T, Error>,
    ) -> Result<T, Error> {
        Error::catching(call).map_err(|error| self.blame(node, None, error))
    }

    /// Names the node, and the input that it reads, in an error that is the fault of its plugin.
    pub(super) fn blame(&self, node: usize, input: Option<&Path>, error: Error) -> Error {
        let ErrorKind::Internal { what, input: known } = error.kind() else { return error };
        let Some(label) = self.0.get(node) else { return error };
        let input = input.filter(|input| !input.as_os_str().is_empty());
        let reading = input.map(|input| format!(", reading {}", input.display()));
        let what = format!("{label}{}: {what}", reading.unwrap_or_default());
        let input = input.map(Path::to_owned).or_else(|| known.clone());
        ErrorKind::Internal { what, input }.into()
    }
}
