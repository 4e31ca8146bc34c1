//! Decoded rows that nothing writes: a stage decodes messages, and all that comes of them is sinks
//! that hold payloads. Says so before a run; changes nothing.

use sluice_core::{RowsEffect, Stage};

use crate::spec::{Node, Part};

/// The sinks behind a stage that decodes for nothing, by their places, with what each says of it.
pub fn notes(nodes: &[Node]) -> Vec<(usize, String)> {
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

/// Whether all that a node does is to decode messages.
fn decodes(node: &Node) -> bool {
    let Part::Stage(Stage::Map(map)) = &node.part else { return false };
    matches!(map.rows_after(), RowsEffect::Decoded(_))
}

/// Why the sinks that rows of a node come to do not write them; nothing if rows are of use on any
/// way.
fn reasons(nodes: &[Node], decoder: usize) -> Option<Vec<(usize, String)>> {
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
            match &node.part {
                Part::Sink(sink) => reasons.push((place, sink.rows_unwritten()?)),
                Part::Stage(stage) if !uses_rows(stage) => {}
                Part::Stage(_) | Part::Source(_) => return None,
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
