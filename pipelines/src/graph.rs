//! Renders a pipeline's graph as text for Mermaid and Graphviz.

use sluice_model::PluginKind;

use sluice_io::escape::printable;

use crate::spec::{Outline, OutlineNode};

/// The graph as a Mermaid flowchart. Ends with a newline.
pub fn mermaid(pipeline: &Outline) -> String {
    let node = |at: usize, node: &OutlineNode| {
        let (name, plugin) = (entities(&node.name), entities(&node.plugin));
        let (open, close) = match node.kind {
            PluginKind::Source => ("([", "])"),
            PluginKind::Sink => ("[(", ")]"),
            PluginKind::Stage | PluginKind::Codec | PluginKind::Service => ("[", "]"),
        };
        format!("    n{at}{open}\"{name}<br/>{plugin}\"{close}")
    };
    draw("flowchart LR", pipeline, node, |from, to| format!("    n{from} --> n{to}"))
}

/// The graph in Graphviz's DOT language. Ends with a newline.
pub fn dot(pipeline: &Outline) -> String {
    let node = |at: usize, node: &OutlineNode| {
        let (name, plugin) = (escaped(&node.name), escaped(&node.plugin));
        let shape = match node.kind {
            PluginKind::Source => "oval",
            PluginKind::Sink => "cylinder",
            PluginKind::Stage | PluginKind::Codec | PluginKind::Service => "box",
        };
        format!("    n{at} [label=\"{name}\\n{plugin}\", shape={shape}];")
    };
    let head = "digraph pipeline {\n    rankdir=LR;";
    draw(head, pipeline, node, |from, to| format!("    n{from} -> n{to};")) + "}\n"
}

fn draw(
    head: &str,
    pipeline: &Outline,
    node: impl Fn(usize, &OutlineNode) -> String,
    edge: impl Fn(usize, usize) -> String,
) -> String {
    let nodes = || pipeline.nodes.iter().enumerate();
    let boxes = nodes().map(|(at, each)| node(at, each));
    let edge = &edge;
    let edges = nodes().flat_map(|(at, each)| each.from.iter().map(move |from| edge(*from, at)));
    std::iter::once(head.to_owned()).chain(boxes).chain(edges).map(|line| line + "\n").collect()
}

/// `text` for Mermaid, with everything that could be syntax as a character reference.
fn entities(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if c.is_ascii_alphanumeric() || matches!(c, '-' | '_') {
            out.push(c);
        } else {
            out += &format!("#{};", u32::from(c));
        }
    }
    out
}

/// `text` inside Graphviz quotes, with control characters escaped.
fn escaped(text: &str) -> String {
    printable(text).replace('\\', "\\\\").replace('"', "\\\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_break_out_of_their_quotes() {
        assert_eq!(entities("a-b_1\"]"), "a-b_1#34;#93;");
        assert_eq!(escaped("a\"\\"), "a\\\"\\\\");
        assert_eq!(escaped("\n\u{202e}"), "\\\\n\\\\u{202e}");
    }
}
