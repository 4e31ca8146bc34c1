//! The output of `plan` for a pipeline with unset variables: the plan, with variable names in
//! place. Opens nothing.

use serde_json::{Value, json};
use sluice_io::escape::{json_escaped, printable, printable_sentence};
use sluice_model::PluginKind;
use sluice_pipeline::{Outline, OutlineNode};

/// As text for people.
pub(super) fn text(outline: &Outline) -> String {
    let of = |kind: PluginKind| outline.nodes.iter().filter(move |node| node.kind == kind);
    let nodes = of(PluginKind::Source).chain(of(PluginKind::Stage)).chain(of(PluginKind::Sink));
    let mut text: String = nodes.map(|node| line(outline, node)).collect();
    for left_out in &outline.pruned {
        text += &format!("left out: {}\n", printable_sentence(&left_out.to_string()));
    }
    text + &format!("unset  {}\n", outline.unset.join(", "))
}

fn line(outline: &Outline, node: &OutlineNode) -> String {
    let verb = match node.kind {
        PluginKind::Source => "reads ",
        PluginKind::Sink => "writes",
        _ => "does  ",
    };
    let from = match node.from.is_empty() {
        true => String::new(),
        false => format!(" from {}", from(outline, node).join(", ")),
    };
    let (name, plugin) = (printable(&node.name), printable(&node.plugin));
    format!("{verb} {name} ({plugin}){from}  {}\n", json_escaped(&node.options.to_string()))
}

fn from<'o>(outline: &'o Outline, node: &OutlineNode) -> Vec<&'o str> {
    let names = node.from.iter().filter_map(|from| outline.nodes.get(*from));
    names.map(|node| node.name.as_str()).collect()
}

/// As JSON in the form of a plan, without what depends on values.
pub(super) fn json(outline: &Outline) -> Value {
    let of = |kind: PluginKind| {
        let nodes = outline.nodes.iter().filter(|node| node.kind == kind);
        nodes.map(|node| node_json(outline, node)).collect::<Vec<_>>()
    };
    let left_out = outline.pruned.iter();
    let left_out = left_out.map(|left| json!({ "name": left.node, "why": left.why }));
    json!({
        "name": outline.name,
        "unset": outline.unset,
        "left_out": left_out.collect::<Vec<_>>(),
        "sources": of(PluginKind::Source),
        "stages": of(PluginKind::Stage),
        "sinks": of(PluginKind::Sink),
    })
}

fn node_json(outline: &Outline, node: &OutlineNode) -> Value {
    let mut value = json!({ "name": node.name, "plugin": node.plugin, "options": node.options });
    if node.kind != PluginKind::Source {
        value["from"] = json!(from(outline, node));
    }
    value
}
