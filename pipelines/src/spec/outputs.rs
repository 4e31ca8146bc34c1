//! Checks that no two sinks write to one file.

use std::collections::BTreeMap;

use sluice_io::files::is_stream;
use sluice_io::output::canonical_path;

use super::PluginInstance;
use super::check::Check;
use super::node::NodeDraft;

impl Check<'_> {
    pub(super) fn check_outputs(&mut self, nodes: &[NodeDraft]) {
        let mut writers = BTreeMap::new();
        for node in nodes {
            let Some(PluginInstance::Sink(sink)) = node.instance() else { continue };
            for target in sink.traits().targets.iter().filter(|target| !is_stream(target)) {
                let earlier = writers.insert(canonical_path(target), &node.name);
                if let Some(other) = earlier.filter(|other| **other != node.name) {
                    let message = format!("`{other}` and `{}` write to one file", node.name);
                    let help = "give each sink a path of its own".to_owned();
                    self.mistake_at(node.path_span(), message, Some(help));
                }
            }
        }
    }
}
