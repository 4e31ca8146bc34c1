//! Checks that sinks of payloads read no node whose events have none.

use sluice_model::{RowsEffect, Stage};

use super::PluginInstance;
use super::check::Check;
use super::links::Links;
use super::node::NodeDraft;

impl Check<'_> {
    /// Refuses sinks that could not write any event. Those behind further stages are not refused: a
    /// stage may make payloads.
    pub(super) fn check_payloads(&mut self, nodes: &[NodeDraft], links: &Links) {
        for (node, links) in nodes.iter().zip(links) {
            let Some(PluginInstance::Sink(sink)) = node.instance() else { continue };
            let is_complete = node.from.as_ref().is_some_and(|from| from.len() == links.len());
            let has_payload = |from: &usize| !nodes.get(*from).is_some_and(gives_parts_only);
            if sink.traits().accepts_rows || !is_complete || links.iter().any(has_payload) {
                continue;
            }
            let from = links.iter().filter_map(|from| nodes.get(*from));
            let from: Vec<String> = from.map(|node| format!("`{}`", node.name)).collect();
            if from.is_empty() {
                continue;
            }
            let message = format!(
                "this sink writes payloads, which events of {} do not have",
                from.join(", ")
            );
            let without = node.sink_without("payload", self.registry);
            let what = match without.is_some_and(|sink| sink.traits().accepts_rows) {
                true => "leave out `payload` of this sink",
                false => {
                    "write them as a table (`layout = \"rows\"`), CSV, JSON lines or a dataset"
                }
            };
            let help = format!("{what}, or put the stage `to-protobuf` before the sink");
            self.mistake_at(node.path_span(), message, Some(help));
        }
    }
}

fn gives_parts_only(node: &NodeDraft) -> bool {
    let Some(PluginInstance::Stage(stage)) = node.instance() else { return false };
    matches!(stage.parts().last(), Some(Stage::Fold(fold))
        if fold.rows_after() == RowsEffect::PartsOnly)
}
