//! Checks that sinks of payloads read no node whose events have none.

use std::collections::BTreeSet;

use sluice_model::{RowsEffect, Stage};

use super::PluginInstance;
use super::check::Check;
use super::links::Links;
use super::node::NodeDraft;
use crate::unused_rows::passes_rows;

impl Check<'_> {
    /// Refuses sinks that could not write any event.
    pub(super) fn check_payloads(&mut self, nodes: &[NodeDraft], links: &Links) {
        let without = without_payloads(nodes, links);
        for (node, links) in nodes.iter().zip(links) {
            let Some(PluginInstance::Sink(sink)) = node.instance() else { continue };
            if sink.traits().accepts_rows || !reads_only(&without, node, links) {
                continue;
            }
            let from = links.iter().filter_map(|from| nodes.get(*from));
            let from: Vec<String> = from.map(|node| format!("`{}`", node.name)).collect();
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

/// The nodes whose events have no payloads, by index.
fn without_payloads(nodes: &[NodeDraft], links: &Links) -> BTreeSet<usize> {
    let mut without = BTreeSet::new();
    // Nodes may be in any order in the file.
    loop {
        let before = without.len();
        for (place, (node, links)) in nodes.iter().zip(links).enumerate() {
            let Some(PluginInstance::Stage(stage)) = node.instance() else { continue };
            let inputs = reads_only(&without, node, links);
            if stage.parts().into_iter().fold(inputs, has_no_payloads) {
                without.insert(place);
            }
        }
        if without.len() == before {
            return without;
        }
    }
}

/// Whether a node reads from these nodes only.
fn reads_only(nodes: &BTreeSet<usize>, node: &NodeDraft, links: &[usize]) -> bool {
    let is_complete = node.from.as_ref().is_some_and(|from| from.len() == links.len());
    is_complete && !links.is_empty() && links.iter().all(|from| nodes.contains(from))
}

/// Whether events have no payloads behind a part of a stage; `before` says it of its inputs.
fn has_no_payloads(before: bool, part: &Stage) -> bool {
    match part {
        Stage::Fold(fold) if fold.rows_after() == RowsEffect::PartsOnly => true,
        part => before && passes_rows(part),
    }
}
