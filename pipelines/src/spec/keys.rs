//! The keys that nodes have besides their plugin's options: `from`, `on_damage`, `quarantine` and
//! `source_name`. For `when`, see `when.rs`.

use std::ops::Range;
use std::path::PathBuf;

use serde_json::json;
use sluice_model::PluginKind;
use sluice_model::options::PATH_FORMAT;
use toml::de::{DeTable, DeValue};

use super::OnDamage;
use super::check::{Check, TomlValue};
use super::messages::{did_you_mean, joined};
use super::reference::DAMAGE_WORDS as WORDS;
use super::schema_view::SchemaView;
use super::values::normalized;
use crate::batch::template::Template;

/// The names that a node reads from, with their positions.
pub(super) type FromNames = Vec<(String, Range<usize>)>;

impl Check<'_> {
    /// What a node reads from. Optional for a node of unknown kind.
    pub(super) fn from(
        &mut self,
        kind: Option<PluginKind>,
        header: &Range<usize>,
        table: &DeTable<'_>,
    ) -> Option<FromNames> {
        match (kind, table.get_key_value("from")) {
            (Some(PluginKind::Source), Some((key, _))) => {
                let help = "`from` belongs on stages and sinks".to_owned();
                self.mistake_at(key.span(), "a source does not read from other nodes", Some(help));
                Some(Vec::new())
            }
            (Some(PluginKind::Source), None) => Some(Vec::new()),
            (Some(_), None) => {
                let help = "add `from = \"…\"` with the name of a source or stage".to_owned();
                self.missing(
                    header.clone(),
                    "`from` is missing: the node has no input",
                    Some(help),
                );
                None
            }
            (None, None) => None,
            (_, Some((_, value))) => self.sources_named(value),
        }
    }

    fn sources_named(&mut self, value: &TomlValue<'_>) -> Option<FromNames> {
        let listed = match value.get_ref() {
            DeValue::Array(list) if list.is_empty() => {
                self.mistake_at(value.span(), "`from` is empty: the node has no input", None);
                return None;
            }
            DeValue::Array(list) => list.iter().collect(),
            _ => vec![value],
        };
        let names: Vec<_> = listed.into_iter().map(|name| self.source_named(name)).collect();
        names.into_iter().collect()
    }

    fn source_named(&mut self, value: &TomlValue<'_>) -> Option<(String, Range<usize>)> {
        match value.get_ref() {
            DeValue::String(text) => Some((self.expand(text, value.span())?.text, value.span())),
            _ => {
                self.expected("the name of a source or stage", value);
                None
            }
        }
    }

    /// How the source of this name handles damage.
    pub(super) fn on_damage(&mut self, name: &str, table: &DeTable<'_>) -> OnDamage {
        let file = table.get_key_value("quarantine");
        let path = file.map(|(_, path)| self.damage_file(path));
        let damage = self.damage_word(name, table, path.clone().flatten());
        let unused = matches!(damage, Some(OnDamage::Skip | OnDamage::Stop));
        if let (Some((key, _)), Some(Some(_)), true) = (file, path, unused) {
            let help = "add `on_damage = \"quarantine\"`, or leave the file out".to_owned();
            self.mistake_at(key.span(), "a quarantine file that nothing writes", Some(help));
        }
        damage.unwrap_or_default()
    }

    /// The source name of a node's events.
    pub(super) fn source_name(&mut self, table: &DeTable<'_>) -> Option<String> {
        let value = table.get("source_name")?;
        let DeValue::String(text) = value.get_ref() else {
            self.expected("a name", value);
            return None;
        };
        let text = self.expand(text, value.span())?.text;
        for reason in Template::parse_source_name(&text).err().into_iter().flatten() {
            self.mistake_at(value.span(), reason.message, Some(reason.help));
        }
        Some(text)
    }

    fn damage_file(&mut self, value: &TomlValue<'_>) -> Option<PathBuf> {
        let shape = json!({ "type": "string", "format": PATH_FORMAT });
        if !value.get_ref().is_str() {
            self.expected("a path", value);
            return None;
        }
        self.reads_templates = true;
        let path = self.value(value, &SchemaView::from_schema(&shape));
        self.reads_templates = false;
        path?.as_str().map(PathBuf::from)
    }

    /// `on_damage`, with its file if there is one. `None` after a mistake.
    fn damage_word(
        &mut self,
        name: &str,
        table: &DeTable<'_>,
        path: Option<PathBuf>,
    ) -> Option<OnDamage> {
        let Some(value) = table.get("on_damage") else { return Some(OnDamage::default()) };
        let DeValue::String(text) = value.get_ref() else {
            self.expected(&joined(&WORDS, "or"), value);
            return None;
        };
        let word = self.expand(text, value.span())?.text;
        match word.as_str() {
            "skip" => Some(OnDamage::Skip),
            "stop" => Some(OnDamage::Stop),
            "quarantine" => {
                let default = || self.located(&format!("{name}.quarantine"), true);
                Some(OnDamage::Quarantine(path.unwrap_or_else(|| normalized(&default()).into())))
            }
            other => {
                let message = format!("expected {}, found `{other}`", joined(&WORDS, "or"));
                self.mistake_at(value.span(), message, did_you_mean(other, &WORDS));
                None
            }
        }
    }
}
