//! Notes about decoded rows that nothing writes: a stage decodes messages, or a source has rows of
//! its own, but all sinks after it store payloads. Reported before the run; changes nothing.

use sluice_model::{RowsEffect, Stage};

use crate::spec::{PipelineNode, PluginInstance};

/// The sinks that decoded rows reach for nothing, by index, with a note each.
pub fn notes(nodes: &[PipelineNode]) -> Vec<(usize, String)> {
    let mut notes: Vec<(usize, String)> = Vec::new();
    for (place, node) in nodes.iter().enumerate() {
        let uses: fn(&Stage) -> bool = match &node.instance {
            PluginInstance::Source(source) if source.has_own_rows() => uses_whole_rows,
            PluginInstance::Stage(stage) if decodes(stage) => uses_rows,
            _ => continue,
        };
        notes.extend(reasons(nodes, place, uses).unwrap_or_default());
    }
    notes.sort();
    notes.dedup();
    notes
}

/// Whether a stage only decodes messages.
fn decodes(stage: &Stage) -> bool {
    let Stage::Map(map) = stage else { return false };
    matches!(map.rows_after(), RowsEffect::Decoded(_))
}

/// Why the sinks that a node's rows reach do not write them; `None` if one does, or a stage uses
/// the rows.
fn reasons(
    nodes: &[PipelineNode],
    origin: usize,
    uses: fn(&Stage) -> bool,
) -> Option<Vec<(usize, String)>> {
    let (mut reached, mut reasons) = (vec![origin], Vec::new());
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
                PluginInstance::Stage(stage) if !uses(stage) => {}
                PluginInstance::Stage(_) | PluginInstance::Source(_) => return None,
            }
        }
    }
    Some(reasons)
}

/// Whether a stage does more with rows than pass them on: their fields are in the payload, too.
fn uses_rows(stage: &Stage) -> bool {
    stage.parts().into_iter().any(part_uses_rows)
}

fn part_uses_rows(part: &Stage) -> bool {
    match part {
        Stage::Map(map) => map.uses_rows(),
        Stage::Fold(fold) => !matches!(fold.rows_after(), RowsEffect::Same),
        Stage::Chain(_) => false,
    }
}

/// Whether a stage changes rows or makes payloads of them.
fn uses_whole_rows(stage: &Stage) -> bool {
    !stage.parts().into_iter().all(passes_rows)
}

/// Whether a part of a stage neither changes rows nor makes payloads of them. What a filter by
/// fields lets through still has its rows.
pub(crate) fn passes_rows(part: &Stage) -> bool {
    let only_reads_fields = |part: &Stage| {
        let Stage::Map(map) = part else { return false };
        matches!(map.rows_after(), RowsEffect::Same) && !map.named_fields().is_empty()
    };
    !part_uses_rows(part) || only_reads_fields(part)
}
