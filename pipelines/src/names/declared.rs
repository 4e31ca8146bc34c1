//! Fields that no declared type has: told before a run, where types are known by then.

use sluice_core::suggestion::nearest_of;
use sluice_core::{DeclaredColumns, FieldPath, RowsEffect, Stage};

use super::{NameOption, SearchedName};
use crate::mistake::Mistake;
use crate::spec::{Node, Part};

/// The columns that decoded rows may have at a place of a graph.
#[derive(Clone, Debug, Default)]
enum Columns {
    /// Nobody can tell before events are there.
    #[default]
    Unclear,
    /// These, by type; none where nothing is decoded.
    Types(DeclaredColumns),
}

/// How many fields are suggested.
const MOST_SUGGESTED: usize = 3;

/// The fields in options that no type has which may come there.
pub(crate) fn undeclared(nodes: &[Node]) -> Vec<Mistake> {
    let mut columns: Vec<Option<Columns>> = vec![None; nodes.len()];
    let mut mistakes = Vec::new();
    for at in in_order(nodes) {
        let Some(node) = nodes.get(at) else { continue };
        let before = before(node, &columns);
        if let Columns::Types(types) = &before {
            mistakes.extend(node.names.iter().filter_map(|name| mistake(name, types)));
        }
        let after = match &node.part {
            Part::Stage(stage) => after(stage, before),
            Part::Source(_) | Part::Sink(_) => before,
        };
        if let Some(place) = columns.get_mut(at) {
            *place = Some(after);
        }
    }
    mistakes
}

/// The nodes, each after all that it reads from.
fn in_order(nodes: &[Node]) -> Vec<usize> {
    let mut waits: Vec<usize> = nodes.iter().map(|node| node.from.len()).collect();
    let mut order: Vec<usize> = (0..nodes.len()).filter(|at| waits.get(*at) == Some(&0)).collect();
    let mut done = 0;
    while let Some(before) = order.get(done).copied() {
        done += 1;
        for (at, node) in nodes.iter().enumerate().filter(|(_, node)| node.from.contains(&before)) {
            let Some(waits) = waits.get_mut(at) else { continue };
            *waits = waits.saturating_sub(node.from.iter().filter(|from| **from == before).count());
            if *waits == 0 {
                order.push(at);
            }
        }
    }
    order
}

/// What rows may have where a node gets them.
fn before(node: &Node, columns: &[Option<Columns>]) -> Columns {
    if let Part::Source(source) = &node.part {
        let none = Columns::Types(DeclaredColumns::default());
        return if source.is_undecoded() { none } else { Columns::Unclear };
    }
    let mut all = DeclaredColumns::default();
    for from in &node.from {
        match columns.get(*from).cloned().flatten() {
            Some(Columns::Types(types)) => all.add(types),
            _ => return Columns::Unclear,
        }
    }
    Columns::Types(all)
}

fn after(stage: &Stage, before: Columns) -> Columns {
    stage.parts().into_iter().fold(before, |before, part| {
        let after = match part {
            Stage::Map(map) => map.rows_after(),
            Stage::Fold(fold) => fold.rows_after(),
            Stage::Chain(_) => RowsEffect::Unclear,
        };
        match (before, after) {
            (_, RowsEffect::Unclear) | (Columns::Unclear, _) => Columns::Unclear,
            (before, RowsEffect::Same) => before,
            (Columns::Types(mut types), RowsEffect::Decoded(more)) => {
                types.add(more);
                Columns::Types(types)
            }
        }
    })
}

fn mistake(name: &NameOption, types: &DeclaredColumns) -> Option<Mistake> {
    let SearchedName::Field(field) = &name.name else { return None };
    // Where nothing is decoded the run says so.
    if types.is_empty() || types.has(field) {
        return None;
    }
    let span = name.span.clone();
    let message = format!("no declared type has a field `{field}`");
    Some(Mistake { span, message, help: suggestion(field, types), detail: None })
}

fn suggestion(field: &FieldPath, types: &DeclaredColumns) -> Option<String> {
    let (known, written) = (types.paths(), field.to_string());
    let near = nearest_of(&written, known.iter().map(String::as_str), MOST_SUGGESTED);
    let near: Vec<String> = near.iter().map(|name| format!("`{name}`")).collect();
    (!near.is_empty()).then(|| format!("did you mean {}?", near.join(" or ")))
}
