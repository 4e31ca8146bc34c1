//! Fields in options that no declared type has. Reported before the run where types are known by
//! then.

use sluice_kit::suggestion::nearest_of;
use sluice_model::{DeclaredColumns, FieldPath, RowsEffect, Stage};

use super::NameOption;
use crate::mistake::Mistake;
use crate::spec::PluginInstance;

/// A node of the graph, as far as it could be read.
pub(crate) struct GraphNode<'n> {
    /// The nodes that it reads from; none if not all of them are known.
    pub(crate) from: Vec<usize>,
    /// `None` after a mistake in its options.
    pub(crate) instance: Option<&'n PluginInstance>,
    pub(crate) names: Vec<NameOption>,
}

/// The columns that decoded rows may have at a point of the graph.
#[derive(Clone, Debug, Default)]
enum RowColumns {
    /// Not known before events arrive.
    #[default]
    Unknown,
    /// These, by type; empty if nothing is decoded.
    Types(DeclaredColumns),
}

/// The maximum number of suggestions.
const MAX_SUGGESTED: usize = 3;

/// Finds fields in options that none of the types at that point has.
pub(crate) fn undeclared(nodes: &[GraphNode<'_>]) -> Vec<Mistake> {
    let mut columns: Vec<Option<RowColumns>> = vec![None; nodes.len()];
    let mut mistakes = Vec::new();
    for at in topological_order(nodes) {
        let Some(node) = nodes.get(at) else { continue };
        let before = columns_before(node, &columns);
        if let RowColumns::Types(types) = &before {
            mistakes.extend(node.names.iter().filter_map(|name| mistake(name, types)));
        }
        let after = match &node.instance {
            Some(PluginInstance::Stage(stage)) => columns_after(stage, before),
            Some(PluginInstance::Source(_) | PluginInstance::Sink(_)) => before,
            None => RowColumns::Unknown,
        };
        if let Some(place) = columns.get_mut(at) {
            *place = Some(after);
        }
    }
    mistakes
}

/// The nodes, each after all nodes that it reads from.
fn topological_order(nodes: &[GraphNode<'_>]) -> Vec<usize> {
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

/// The columns of rows that enter a node.
fn columns_before(node: &GraphNode<'_>, columns: &[Option<RowColumns>]) -> RowColumns {
    if let Some(PluginInstance::Source(source)) = node.instance {
        let none = RowColumns::Types(DeclaredColumns::default());
        return if source.is_undecoded() { none } else { RowColumns::Unknown };
    }
    if node.from.is_empty() {
        return RowColumns::Unknown;
    }
    let mut all = DeclaredColumns::default();
    for from in &node.from {
        match columns.get(*from).cloned().flatten() {
            Some(RowColumns::Types(types)) => all.add(types),
            _ => return RowColumns::Unknown,
        }
    }
    RowColumns::Types(all)
}

fn columns_after(stage: &Stage, before: RowColumns) -> RowColumns {
    stage.parts().into_iter().fold(before, |before, part| {
        let after = match part {
            Stage::Map(map) => map.rows_after(),
            Stage::Fold(fold) => fold.rows_after(),
            Stage::Chain(_) => RowsEffect::Unclear,
        };
        match (before, after) {
            (_, RowsEffect::Unclear | RowsEffect::PartsOnly) | (RowColumns::Unknown, _) => {
                RowColumns::Unknown
            }
            (before, RowsEffect::Same) => before,
            (RowColumns::Types(mut types), RowsEffect::Decoded(more)) => {
                types.add(more);
                RowColumns::Types(types)
            }
        }
    })
}

fn mistake(name: &NameOption, types: &DeclaredColumns) -> Option<Mistake> {
    let field = name.name.field()?;
    // If nothing is decoded, the run reports it.
    if types.is_empty() || field.is_in(types) {
        return None;
    }
    let span = name.span.clone();
    let message = format!("no declared type has a field `{}`", field.path);
    let help = suggestion(&field.path, &field.columns(types));
    Some(Mistake { span, message, help, detail: None })
}

fn suggestion(field: &FieldPath, types: &DeclaredColumns) -> Option<String> {
    let (known, written) = (types.paths(), field.to_string());
    let near = nearest_of(&written, known.iter().map(String::as_str), MAX_SUGGESTED);
    let near: Vec<String> = near.iter().map(|name| format!("`{name}`")).collect();
    (!near.is_empty()).then(|| format!("did you mean {}?", near.join(" or ")))
}
