//! The resolved pipeline file: everything that decides its outputs, with variables and placeholders
//! filled in.

use std::fmt::Write;

use serde_json::Value;
use sluice_io::escape::printable;
use sluice_io::files::hash_file;
use sluice_model::PluginKind;
use sluice_model::options::ByteSize;

use crate::batch::template::escape_braces;
use crate::spec::{
    GROUPS, OnDamage, Pipeline, PipelineNode, PluginInstance, string_literal as string,
};

/// The pipeline file without variables and placeholders that does what `pipeline` does with this
/// memory cap. Equal texts mean equal outputs.
pub(crate) fn text(pipeline: &Pipeline, memory: ByteSize) -> String {
    let mut text = String::new();
    if let Some(name) = &pipeline.name {
        line(&mut text, format_args!("name = {}", string(name)));
    }
    line(&mut text, format_args!("memory = {}", memory.0));
    for node in &pipeline.nodes {
        describe(&mut text, pipeline, node);
    }
    text
}

fn describe(text: &mut String, pipeline: &Pipeline, node: &PipelineNode) {
    let group = GROUPS.iter().find(|(_, kind)| *kind == node.kind).map_or("", |(group, _)| group);
    line(text, format_args!("\n[{group}.{}]", node.name));
    line(text, format_args!("plugin = {}", string(node.plugin)));
    if !node.from.is_empty() {
        let names: Vec<String> =
            node.from.iter().map(|from| string(&pipeline.nodes[*from].name)).collect();
        line(text, format_args!("from = [{}]", names.join(", ")));
    }
    match &node.damage {
        OnDamage::Skip => {}
        OnDamage::Stop => line(text, format_args!("on_damage = \"stop\"")),
        OnDamage::Quarantine(path) => {
            line(text, format_args!("on_damage = \"quarantine\""));
            let path = string(&escape_braces(&path.to_string_lossy()));
            line(text, format_args!("quarantine = {path}"));
        }
    }
    if let Some(name) = &node.source_name {
        line(text, format_args!("source_name = {}", string(name)));
    }
    for (key, option) in node.options.as_object().into_iter().flatten() {
        // Only paths of sinks have placeholders.
        let braces = node.kind == PluginKind::Sink && key == "path";
        line(text, format_args!("{} = {}", bare(key), value(option, braces)));
    }
    if let PluginInstance::Stage(stage) = &node.instance {
        stage.fingerprints().iter().for_each(|beside| line(text, format_args!("# {beside}")));
    }
    for file in node.program.iter().flat_map(|program| &program.files) {
        // Whoever runs the program reports a file that cannot be read.
        let hash = hash_file(file).unwrap_or_else(|_| "cannot be read".to_owned());
        line(text, format_args!("# {} {hash}", printable(&file.to_string_lossy())));
    }
}

fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to a string does not fail.
    let _written = writeln!(text, "{line}");
}

fn value(json: &Value, braces: bool) -> String {
    match json {
        // TOML has no null; null options were never written.
        Value::Null => "\"\"".to_owned(),
        Value::Bool(boolean) => boolean.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(text) if braces => string(&escape_braces(text)),
        Value::String(text) => string(text),
        Value::Array(list) => {
            let each: Vec<String> = list.iter().map(|json| value(json, braces)).collect();
            format!("[{}]", each.join(", "))
        }
        Value::Object(fields) => {
            let each =
                fields.iter().map(|(key, json)| format!("{} = {}", bare(key), value(json, braces)));
            format!("{{ {} }}", each.collect::<Vec<_>>().join(", "))
        }
    }
}

fn bare(key: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if !key.is_empty() && key.chars().all(is_bare) { key.to_owned() } else { string(key) }
}
