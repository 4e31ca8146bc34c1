//! Checks that no two nodes write to one file or folder, or read standard input.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use sluice_io::files::{is_standard_input, is_standard_output, is_stream};
use sluice_io::output::canonical_path;
use sluice_model::PluginKind;

use super::check::Check;
use super::node::NodeDraft;
use super::{OnDamage, PluginInstance};

impl Check<'_> {
    pub(super) fn check_outputs(&mut self, nodes: &[NodeDraft]) {
        let mut writers: BTreeMap<PathBuf, Writer<'_>> = BTreeMap::new();
        for node in nodes {
            for (target, span) in targets(node) {
                let is_stdout = is_standard_output(&target);
                if is_stream(&target) && !is_stdout {
                    continue;
                }
                let is_folder = target.as_os_str().as_encoded_bytes().ends_with(b"/");
                let name = if is_stdout { "-".into() } else { canonical_path(&target) };
                let writer = Writer { node: &node.name, is_folder, span: span.clone() };
                let Some(other) = writers.insert(name, writer) else { continue };
                if *other.node == node.name {
                    continue;
                }
                let to = if is_stdout { "standard output" } else { "one file" };
                let message = format!("`{}` and `{}` write to {to}", other.node, node.name);
                let help = "give each a path of its own".to_owned();
                self.mistake_at(span, message, Some(help));
            }
        }
        for (path, writer) in &writers {
            let above = path.ancestors().skip(1).find_map(|folder| writers.get(folder));
            let Some(&Writer { node: other, is_folder, .. }) = above else { continue };
            let node = writer.node;
            let message = match is_folder {
                false => format!("`{other}` writes a file where `{node}` needs a folder"),
                true if node == other => continue,
                true if writer.is_folder => {
                    format!("`{node}` writes a folder within that of `{other}`")
                }
                true => format!("`{node}` writes a file within the folder of `{other}`"),
            };
            let help = Some("give each a path of its own".to_owned());
            self.mistake_at(writer.span.clone(), message, help);
        }
    }
}

impl Check<'_> {
    /// Each of two readers of standard input would get parts of it.
    pub(super) fn check_standard_input(&mut self, nodes: &[NodeDraft]) {
        let sources = nodes.iter().filter(|node| node.kind == Some(PluginKind::Source));
        let mut reader: Option<&str> = None;
        for node in sources {
            for _ in node.files_read().iter().filter(|file| is_standard_input(file)) {
                let Some(other) = reader.replace(&node.name) else { continue };
                let message = match other == node.name {
                    true => format!("`{other}` reads standard input twice"),
                    false => format!("`{other}` and `{}` read standard input", node.name),
                };
                let help = "it can be read once: save it to a file, or let one source read it";
                self.mistake_at(node.path_span(), message, Some(help.to_owned()));
            }
        }
    }
}

/// What writes to a path.
struct Writer<'n> {
    node: &'n str,
    is_folder: bool,
    span: Range<usize>,
}

/// What a node writes, and where the file says so.
fn targets(node: &NodeDraft) -> Vec<(Cow<'_, Path>, Range<usize>)> {
    let mut targets: Vec<(Cow<'_, Path>, Range<usize>)> = Vec::new();
    if let Some(PluginInstance::Sink(sink)) = node.instance() {
        let paths = sink.traits().targets.iter().map(PathBuf::as_path);
        targets.extend(paths.map(|path| (path.into(), node.path_span())));
    }
    if let OnDamage::Quarantine(path) = &node.damage {
        targets.push((path.into(), node.quarantine_span()));
    }
    targets
}
