//! Output paths with placeholders: finds the options that hold one, and checks that the pipeline
//! can run once per input.

use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sluice_model::PluginKind;
use toml::de::DeValue;

use super::check::{Check, TomlValue};
use super::node::NodeDraft;
use super::schema_view::SchemaView;
use super::{OnDamage, PluginInstance};
use crate::batch::template::Template;

/// A template in a pipeline file, and the value it fills.
#[derive(Clone, Debug)]
pub struct TemplateSlot {
    /// The node, as an index of [`super::Pipeline::nodes`].
    pub(crate) node: usize,
    pub(crate) target: TemplateTarget,
    pub(crate) template: Template,
}

/// The value that a template fills.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum TemplateTarget {
    /// An option of a sink, by the keys and list positions that lead to it.
    Option(Vec<String>),
    /// The file for a source's damaged bytes.
    Quarantine,
}

/// A template of a node that is being read, with its position.
#[derive(Clone, Debug)]
pub(super) struct TemplateUse {
    pub(super) target: TemplateTarget,
    pub(super) template: Template,
    pub(super) span: Range<usize>,
}

impl Check<'_> {
    /// Finds the templates in an option of a sink. Paths without placeholders are unescaped.
    pub(super) fn templates(
        &mut self,
        at: &[String],
        given: &TomlValue<'_>,
        json: &mut Value,
        shape: &SchemaView<'_>,
    ) -> Vec<TemplateUse> {
        let below = |step: String| [at, &[step]].concat();
        match (given.get_ref(), json) {
            (DeValue::String(_), Value::String(text)) if shape.is_path() => self
                .template(TemplateTarget::Option(at.to_vec()), text, given.span())
                .into_iter()
                .collect(),
            (DeValue::Array(list), Value::Array(values)) => {
                let each = list.iter().zip(values).enumerate();
                let found = each.map(|(n, (given, value))| {
                    self.templates(&below(n.to_string()), given, value, &shape.element())
                });
                found.flatten().collect()
            }
            (DeValue::Table(table), Value::Object(fields)) => {
                let mut found = Vec::new();
                for (key, given) in table {
                    let key = key.get_ref();
                    if let Some(value) = fields.get_mut(key.as_ref()) {
                        let place = below(key.to_string());
                        found.extend(self.templates(&place, given, value, &shape.property(key)));
                    }
                }
                found
            }
            _ => Vec::new(),
        }
    }

    /// The template in a source's quarantine path. Without placeholders, the path is unescaped.
    pub(super) fn quarantine_template(
        &mut self,
        damage: &mut OnDamage,
        span: Range<usize>,
    ) -> Option<TemplateUse> {
        let OnDamage::Quarantine(Some(path)) = damage else { return None };
        let mut text = path.to_string_lossy().into_owned();
        let found = self.template(TemplateTarget::Quarantine, &mut text, span);
        *path = PathBuf::from(text);
        found
    }

    fn template(
        &mut self,
        place: TemplateTarget,
        text: &mut String,
        span: Range<usize>,
    ) -> Option<TemplateUse> {
        match Template::parse(text) {
            Ok(template) => match template.literal() {
                Some(fixed) => {
                    *text = fixed;
                    None
                }
                None => Some(TemplateUse { target: place, template, span }),
            },
            Err(wrong) => {
                for reason in wrong {
                    self.mistake_at(span.clone(), reason.message, Some(reason.help));
                }
                None
            }
        }
    }

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
            let writes = match sink.instance() {
                Some(PluginInstance::Sink(sink)) => writes_file(&sink.traits().targets),
                _ => false,
            };
            if writes && sink.templates.is_empty() {
                let message = format!("every input would be written to the same `{}`", sink.name);
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

fn writes_file(targets: &[PathBuf]) -> bool {
    targets.iter().any(|target| target != Path::new("-"))
}
