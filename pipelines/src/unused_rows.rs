//! Notes about decoded rows that nothing writes: a stage decodes messages, but all sinks after it
//! store payloads. Reported before the run; changes nothing.

use sluice_model::{RowsEffect, Stage};

use crate::spec::{PipelineNode, PluginInstance};

/// The sinks after a stage that decodes for nothing, by index, with a note each.
pub fn notes(nodes: &[PipelineNode]) -> Vec<(usize, String)> {
    let mut notes: Vec<(usize, String)> = Vec::new();
    for (place, node) in nodes.iter().enumerate() {
        if decodes(node) {
            notes.extend(reasons(nodes, place).unwrap_or_default());
        }
    }
    notes.sort();
    notes.dedup();
    notes
}

/// Whether a node only decodes messages.
fn decodes(node: &PipelineNode) -> bool {
    let PluginInstance::Stage(Stage::Map(map)) = &node.instance else { return false };
    matches!(map.rows_after(), RowsEffect::Decoded(_))
}

/// Why the sinks that a node's rows reach do not write them; `None` if some path uses the rows.
fn reasons(nodes: &[PipelineNode], decoder: usize) -> Option<Vec<(usize, String)>> {
    let (mut reached, mut reasons) = (vec![decoder], Vec::new());
    let mut done = 0;
    while let Some(from) = reached.get(done).copied() {
        done += 1;
        let readers = nodes.iter().enumerate().filter(|(_, node)| node.from.contains(&from));
        for (place, node) in readers {
            if reached.contains(&place) {
                continue;
            }
            reached.push(place);
            match &node.instance {
                PluginInstance::Sink(sink) => {
                    reasons.push((place, sink.traits().rows_unwritten.as_deref()?.to_owned()))
                }
                PluginInstance::Stage(stage) if !uses_rows(stage) => {}
                PluginInstance::Stage(_) | PluginInstance::Source(_) => return None,
            }
        }
    }
    Some(reasons)
}

fn uses_rows(stage: &Stage) -> bool {
    stage.parts().into_iter().any(|part| match part {
        Stage::Map(map) => map.uses_rows(),
        Stage::Fold(fold) => !matches!(fold.rows_after(), RowsEffect::Same),
        Stage::Chain(_) => false,
    })
}
