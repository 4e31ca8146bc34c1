//! Writes the nodes of a generated pipeline. `recipe` decides which ones there are.

use std::fmt::Write;

use sluice_model::{ConversionStage, PluginKind};
use sluice_pipeline::spec::{quoted as key, string_literal as string};

use crate::args::{AlignArgs, Assignment, SelectionArgs};
use crate::node_names::{ALIGNED_NAME, EPISODES_NAME};
use crate::plugin_lookup::is_url;

/// The text of a pipeline, node by node.
#[derive(Default)]
pub(super) struct PipelineText {
    pub(super) text: String,
    /// The previous node, which the next one reads from.
    pub(super) before: Option<&'static str>,
}

impl PipelineText {
    pub(super) fn node(&mut self, kind: PluginKind, name: &'static str, plugin: &str) {
        let gap = if self.text.is_empty() { "" } else { "\n" };
        self.line(format_args!("{gap}[{kind}s.{name}]"));
        self.option("plugin", &string(plugin));
        if let Some(before) = self.before.replace(name) {
            self.option("from", &string(before));
        }
    }

    /// Stages of conversions, of events whose channels may be named.
    pub(super) fn stages(&mut self, stages: &[ConversionStage], names_channels: bool) {
        for ConversionStage { plugin, options, with_named_channels } in stages {
            self.node(PluginKind::Stage, plugin, plugin);
            let more = with_named_channels.iter().filter(|_| names_channels);
            options.iter().chain(more).for_each(|(key, value)| self.option(key, value));
        }
    }

    pub(super) fn inputs(&mut self, inputs: &[String]) {
        // Without inputs, the source uses its default.
        if let Some(first) = inputs.first() {
            self.option(path_or_url_key(first), &strings(inputs));
        }
    }

    pub(super) fn channels(&mut self, selection: &SelectionArgs) {
        for (key, patterns) in
            [("channels", &selection.patterns.channel), ("exclude", &selection.patterns.exclude)]
        {
            if !patterns.is_empty() {
                self.option(key, &strings(patterns));
            }
        }
    }

    pub(super) fn window(&mut self, selection: &SelectionArgs) {
        for (key, time) in [("start", &selection.start), ("end", &selection.end)] {
            if let Some(time) = time {
                self.option(key, &string(time));
            }
        }
    }

    pub(super) fn types(&mut self, types: &[String], selection: Option<&SelectionArgs>) {
        if !types.is_empty() {
            self.option("types", &strings(types));
        }
        let each = selection
            .map(|selection| selection.decoding.channel_types.as_slice())
            .unwrap_or_default();
        let each = each.iter();
        let each = each.map(|(channel, name)| format!("{} = {}", key(channel), string(name)));
        let each: Vec<String> = each.collect();
        if !each.is_empty() {
            self.option("channel_types", &format!("{{ {} }}", each.join(", ")));
        }
    }

    /// Rows on one time base, those of them in the window, and their episodes.
    pub(super) fn aligned_rows(
        &mut self,
        rows: &str,
        args: &AlignArgs,
        fields: &[String],
        selection: Option<&SelectionArgs>,
    ) {
        self.node(PluginKind::Stage, ALIGNED_NAME, "align");
        self.alignment(rows, args.tolerance.as_deref(), fields);
        if let Some(selection) = selection.filter(|selection| selects_times(selection)) {
            self.node(PluginKind::Stage, "window", "filter");
            self.window(selection);
        }
        if !args.episodes.is_empty() {
            self.node(PluginKind::Stage, EPISODES_NAME, "episodes");
            self.options(&args.episodes);
        }
    }

    fn alignment(&mut self, rows: &str, tolerance: Option<&str>, fields: &[String]) {
        self.option(if rate(rows).is_some() { "rate" } else { "clock" }, &string(rows));
        tolerance.iter().for_each(|tolerance| self.option("tolerance", &string(tolerance)));
        let mut named: Vec<(&str, Vec<String>)> = Vec::new();
        for field in fields {
            let (name, path) = field.split_once('=').unwrap_or((field, field));
            match named.iter_mut().find(|(other, _)| *other == name) {
                Some((_, paths)) => paths.push(path.to_owned()),
                None => named.push((name, vec![path.to_owned()])),
            }
        }
        self.line(format_args!("[stages.aligned.fields]"));
        named.iter().for_each(|(name, paths)| self.option(&key(name), &strings(paths)));
    }

    pub(super) fn expectations(&mut self, file: &str) {
        self.node(PluginKind::Stage, "expect", "expect");
        self.option("file", &string(file));
    }

    pub(super) fn renames(&mut self, renames: &[(String, String)]) {
        let rule = |(from, to): &(String, String)| {
            format!("    {{ from = {}, to = {} }},\n", string(from), string(to))
        };
        let rules: String = renames.iter().map(rule).collect();
        self.option("channels", &format!("[\n{rules}]"));
    }

    pub(super) fn own_names(&mut self, names: &[String]) {
        self.line(format_args!("[stages.own_names.map]"));
        names
            .iter()
            .for_each(|name| self.option(&key(name), &string(&format!("{name}.{{source}}"))));
    }

    pub(super) fn options(&mut self, options: &[Assignment]) {
        options.iter().for_each(|Assignment { name, value }| self.option(name, &toml_value(value)));
    }

    pub(super) fn option(&mut self, key: &str, value: &str) {
        self.line(format_args!("{key} = {value}"));
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a string does not fail.
        let _written = writeln!(self.text, "{line}");
    }
}

/// A single string, or a list.
fn strings(texts: &[String]) -> String {
    match texts {
        [one] => string(one),
        many => list(many),
    }
}

/// A list with one line per string.
pub(super) fn list(texts: &[String]) -> String {
    let lines: String = texts.iter().map(|text| format!("    {},\n", string(text))).collect();
    format!("[\n{lines}]")
}

/// The rows per second, if this is a rate, such as `50Hz`, and not the name of a channel.
pub(crate) fn rate(text: &str) -> Option<f64> {
    let lower = text.to_ascii_lowercase();
    let number = lower.strip_suffix("hz").unwrap_or(&lower).trim_end();
    number.parse::<f64>().ok().filter(|rate| rate.is_finite())
}

/// The name of the option for an input or output.
pub(super) fn path_or_url_key(text: &str) -> &'static str {
    if is_url(text) { "url" } else { "path" }
}

pub(super) fn selects_times(selection: &SelectionArgs) -> bool {
    selection.start.is_some() || selection.end.is_some()
}

/// `value` as it is if it is valid TOML, otherwise as a string.
pub(crate) fn toml_value(value: &str) -> String {
    let table = toml::from_str::<toml::Table>(&format!("value = {value}"));
    let is_toml = table.is_ok_and(|table| table.len() == 1);
    if is_toml { value.trim().to_owned() } else { string(value) }
}
