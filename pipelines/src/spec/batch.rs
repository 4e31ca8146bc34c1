//! Checks that a pipeline with placeholders in its outputs can run once per input.

use std::path::{Path, PathBuf};

use sluice_model::PluginKind;

use super::check::Check;
use super::node::NodeDraft;
use super::templates::TemplateUse;
use super::{OnDamage, PluginInstance};

impl Check<'_> {
    /// Checks a pipeline with templates, which runs once per input.
    pub(super) fn check_batch(&mut self, nodes: &[NodeDraft]) {
        let Some(first) = nodes.iter().flat_map(|node| &node.templates).next() else { return };
        let sources: Vec<&NodeDraft> = of_kind(nodes, PluginKind::Source).collect();
        match sources[..] {
            [source] => self.check_batch_source(source, first),
            [] => {}
            _ => {
                let message = format!("outputs with placeholders, but {} sources", sources.len());
                let help = "a pipeline whose outputs have placeholders has exactly one source";
                self.mistake_at(first.span.clone(), message, Some(help.to_owned()));
            }
        }
        for sink in of_kind(nodes, PluginKind::Sink) {
            let file = match sink.instance() {
                Some(PluginInstance::Sink(sink)) => first_file(&sink.traits().targets),
                _ => None,
            };
            if let Some(file) = file.filter(|_| sink.templates.is_empty()) {
                let file = file.display();
                let message = format!("every input would be written to the same `{file}`");
                let help = "the outputs of other nodes have placeholders: this one needs one, \
                            too, such as `{stem}`";
                self.mistake_at(sink.path_span(), message, Some(help.to_owned()));
            }
        }
    }

    fn check_batch_source(&mut self, source: &NodeDraft, first: &TemplateUse) {
        if !source.takes("path") {
            let message = format!("`{}` has no input files to name outputs after", source.name);
            let help = "give the sinks paths without placeholders".to_owned();
            self.mistake_at(first.span.clone(), message, Some(help));
        }
        if matches!(source.damage, OnDamage::Quarantine(_)) && source.templates.is_empty() {
            let message = "the damaged bytes of every input would be written to the same file";
            let help =
                "give each a file of its own: `quarantine = \"{stem}.quarantine\"`".to_owned();
            self.mistake_at(source.quarantine_span(), message, Some(help));
        }
    }
}

fn of_kind(nodes: &[NodeDraft], kind: PluginKind) -> impl Iterator<Item = &NodeDraft> {
    nodes.iter().filter(move |node| node.kind == Some(kind))
}

fn first_file(targets: &[PathBuf]) -> Option<&PathBuf> {
    targets.iter().find(|target| *target != Path::new("-"))
}
