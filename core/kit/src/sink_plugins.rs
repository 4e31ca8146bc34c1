//! Which sinks of a run write files, for sources whose inputs have more than events.

use std::collections::BTreeSet;

/// The plugins of the sinks of a run that write files. The run shares them with its sources;
/// outside of a run there are none.
#[derive(Clone, Debug, Default)]
pub struct SinkPlugins(pub BTreeSet<&'static str>);

impl SinkPlugins {
    /// Whether the run has such sinks, but none with this plugin.
    pub fn lacks(&self, plugin: &str) -> bool {
        !self.0.is_empty() && !self.0.contains(plugin)
    }
}
