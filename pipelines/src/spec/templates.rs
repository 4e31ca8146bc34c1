//! Output paths with placeholders: finds the options that hold one, and checks that the pipeline
//! can run once per input.

use std::ops::Range;
use std::path::PathBuf;

use serde_json::Value;
use toml::de::DeValue;

use super::check::{Check, TomlValue};
use super::schema_view::SchemaView;
use super::{OnDamage, TemplateTarget};
use crate::batch::template::Template;

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
        let OnDamage::Quarantine(path) = damage else { return None };
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
}
