//! Checks options and samples, which every kind of plugin has: unknown options are refused, known
//! ones are documented, and the sample is a valid part of a pipeline file that shows all of them.
//! Runs nothing.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use sluice_model::{OptionsError, Plugin, PluginFactory, PluginKind, Registry};
use sluice_pipeline::{Document, Mistakes, Pipeline, Variables};

use crate::kit_plugins::{KEEP, NOTHING};
use crate::{Finding, Promise};

/// An option that no plugin has.
const MADE_UP: &str = "an_option_that_nobody_has";

/// All findings about the options and the sample of this plugin. `options` are some that it
/// accepts.
pub(crate) fn findings(plugin: &Plugin, options: &Value, registry: &Registry) -> Vec<Finding> {
    let mut findings: Vec<Finding> =
        [about(plugin), unknown_option_accepted(plugin, options)].into_iter().flatten().collect();
    findings.extend(loose_tables(plugin));
    findings.extend(undocumented_options(plugin));
    findings.extend(options_missing_in_sample(plugin));
    findings.extend(sample(plugin, registry).err());
    findings
}

/// The finding that no plugin of this kind is registered under this name.
pub(crate) fn unregistered(kind: PluginKind, name: &str) -> Finding {
    let what = format!(
        "no {kind} is registered as `{name}`; a crate that no code names is not linked: \
         `use the_crate as _;`"
    );
    Finding::new(Promise::Options, what)
}

fn about(plugin: &Plugin) -> Option<Finding> {
    let about = plugin.about;
    let is_a_line = !about.is_empty() && !about.ends_with('.') && !about.contains('\n');
    let what = || {
        format!("`about` says in one line, without a full stop, what it does; it says `{about}`")
    };
    (!is_a_line).then(|| Finding::new(Promise::Options, what()))
}

/// Creates a plugin and drops it.
fn make(plugin: &Plugin, options: Value) -> Result<(), OptionsError> {
    let registry = crate::kit_plugins::registry();
    match plugin.make {
        PluginFactory::Source(make) => make(options, &registry).map(drop),
        PluginFactory::Stage(make) => make(options, &registry).map(drop),
        PluginFactory::Codec(make) => make(options, &registry).map(drop),
        PluginFactory::Sink(make) => make(options, &registry).map(drop),
        PluginFactory::Service(make) => make(options, &registry).map(drop),
    }
}

/// Checks that an unknown option is refused.
fn unknown_option_accepted(plugin: &Plugin, options: &Value) -> Option<Finding> {
    let mut options = options.as_object().cloned().unwrap_or_default();
    options.insert(MADE_UP.to_owned(), Value::Bool(true));
    let what = match make(plugin, Value::Object(options)) {
        Ok(()) => "it is created anyway: a misspelt option would be ignored".to_owned(),
        Err(error) if names_option(&error, MADE_UP) => return None,
        Err(error) => format!("the refusal does not name the option: `{error}`"),
    };
    let advice = "add `#[serde(deny_unknown_fields)]` to its options";
    Some(Finding::new(
        Promise::Options,
        format!("given the made-up option `{MADE_UP}`, {what}; {advice}"),
    ))
}

/// Checks that tables inside options refuse unknown options, by the schema: valid tables to try it
/// with are not known.
fn loose_tables(plugin: &Plugin) -> Vec<Finding> {
    let mut loose = BTreeSet::new();
    note_loose_tables(&Value::from((plugin.schema)()), "", &mut loose);
    let tell = |name: String| {
        let what = format!(
            "`{name}` is a table that accepts unknown options: a misspelt one would be ignored; \
             add `#[serde(deny_unknown_fields)]` to its type"
        );
        Finding::new(Promise::Options, what)
    };
    // The options themselves are tried.
    loose.into_iter().filter(|name| !name.is_empty()).map(tell).collect()
}

/// Adds the types, or else the options, that are tables with named options and accept others.
fn note_loose_tables(schema: &Value, name: &str, loose: &mut BTreeSet<String>) {
    // If it consists of other schemas, these decide.
    const DECIDED_BY: [&str; 4] =
        ["additionalProperties", "unevaluatedProperties", "$ref", "allOf"];
    let Some(schema) = schema.as_object() else { return };
    if schema.contains_key("properties") && !DECIDED_BY.iter().any(|key| schema.contains_key(*key))
    {
        loose.insert(name.to_owned());
    }
    for (keyword, inner) in schema {
        match (&keyword[..], inner) {
            ("properties" | "$defs", Value::Object(named)) => {
                named.iter().for_each(|(name, inner)| note_loose_tables(inner, name, loose));
            }
            ("anyOf" | "oneOf" | "allOf" | "prefixItems", Value::Array(list)) => {
                list.iter().for_each(|inner| note_loose_tables(inner, name, loose));
            }
            ("items" | "additionalProperties", inner) => note_loose_tables(inner, name, loose),
            _ => {}
        }
    }
}

fn names_option(error: &OptionsError, key: &str) -> bool {
    error.message.contains(key) || error.path.iter().any(|part| part == key)
}

fn undocumented_options(plugin: &Plugin) -> Vec<Finding> {
    let schema = Value::from((plugin.schema)());
    let is_explained = |option: &str| {
        let about = schema.pointer(&format!("/properties/{option}/description"));
        about.and_then(Value::as_str).is_some_and(|text| !text.trim().is_empty())
    };
    let options = plugin.option_names().into_iter().filter(|option| !is_explained(option));
    let tell =
        |option| Finding::new(Promise::Options, format!("`{option}` has no doc comment: add one"));
    options.map(tell).collect()
}

fn options_missing_in_sample(plugin: &Plugin) -> Vec<Finding> {
    let is_mentioned = |option: &String| {
        plugin.sample.lines().any(|line| {
            let line = line.trim_start_matches(['#', ' ']);
            line.strip_prefix(&option[..]).is_some_and(|rest| rest.trim_start().starts_with('='))
        })
    };
    let options = plugin.option_names().into_iter().filter(|option| !is_mentioned(option));
    let tell = |option| {
        Finding::new(Promise::Sample, format!("the sample does not show `{option} = …`: add it"))
    };
    options.map(tell).collect()
}

/// `Err` if the sample is not a valid part of a pipeline file, or accepts an unknown option.
fn sample(plugin: &Plugin, registry: &Registry) -> Result<(), Finding> {
    let wrong = |what: String| Finding::new(Promise::Sample, what);
    let table: toml::Table = plugin
        .sample
        .parse()
        .map_err(|error| wrong(format!("the sample is not TOML: {error}").trim().to_owned()))?;
    // Stages and the command line show how codecs and services are used.
    let Some(group) = group(plugin.kind()) else { return Ok(()) };
    let shown = table.get(group).and_then(toml::Value::as_table).into_iter().flatten();
    let uses =
        |node: &toml::Value| node.get("plugin").and_then(toml::Value::as_str) == Some(plugin.name);
    let Some((node, _)) = shown.into_iter().find(|(_, node)| uses(node)) else {
        return Err(wrong(format!(
            "the sample has no `[{group}.NAME]` with `plugin = \"{}\"`",
            plugin.name
        )));
    };
    let text = completed(plugin.sample, &table);
    read(&text, registry).map_err(|mistakes| {
        wrong(format!("the sample is not a valid part of a pipeline file: {mistakes}"))
    })?;
    let header = format!("[{group}.{node}]");
    refuses(&text, &header, registry)
}

/// Checks that a pipeline file with an unknown option in this node is refused at that option.
fn refuses(text: &str, header: &str, registry: &Registry) -> Result<(), Finding> {
    // With inline tables, the check of `make` has to suffice.
    let Some(at) = text.find(header).map(|at| at + header.len()) else { return Ok(()) };
    let (before, after) = text.split_at(at);
    let text = format!("{before}\n{MADE_UP} = true\n{after}");
    let wrong = |what: &str| {
        let what = format!("a pipeline file with the option `{MADE_UP}` is {what}");
        Err(Finding::new(Promise::Options, what))
    };
    let Err(mistakes) = read(&text, registry) else { return wrong("accepted anyway") };
    let points = |span: &std::ops::Range<usize>| {
        text.get(span.clone()).is_some_and(|text| text.contains(MADE_UP))
    };
    let told = mistakes
        .list
        .iter()
        .any(|mistake| points(&mistake.span) && mistake.message.contains(MADE_UP));
    if told { Ok(()) } else { wrong("refused, but not with the line of that option") }
}

fn group(kind: PluginKind) -> Option<&'static str> {
    match kind {
        PluginKind::Source => Some("sources"),
        PluginKind::Stage => Some("stages"),
        PluginKind::Sink => Some("sinks"),
        PluginKind::Codec | PluginKind::Service => None,
    }
}

fn read(text: &str, registry: &Registry) -> Result<Pipeline, Mistakes> {
    let variables = Variables { set: BTreeMap::new(), environment: false };
    Pipeline::read(&Document::generated("sample.toml", text), &variables, registry)
}

/// Completes a sample to a pipeline, with sources for what it reads from and sinks for what it
/// produces.
fn completed(sample: &str, table: &toml::Table) -> String {
    let nodes = || table.values().filter_map(toml::Value::as_table).flatten();
    let heard: Vec<&str> = nodes().flat_map(|(_, node)| from(node)).collect();
    let mut missing: Vec<&str> =
        heard.iter().filter(|from| !nodes().any(|(name, _)| name == *from)).copied().collect();
    missing.sort_unstable();
    missing.dedup();
    let mut text = sample.to_owned();
    for name in missing {
        text += &format!("\n[sources.{name}]\nplugin = \"{NOTHING}\"\n");
    }
    let sinks = table.get("sinks").and_then(toml::Value::as_table);
    for (name, _) in nodes() {
        let is_end = sinks.is_some_and(|sinks| sinks.contains_key(name));
        if !is_end && !heard.contains(&&name[..]) {
            text += &format!(
                "\n[sinks.{name}_end]\nplugin = \"{KEEP}\"\nfrom = \"{name}\"\nplace = 0\n"
            );
        }
    }
    text
}

/// The nodes that a node reads from.
fn from(node: &toml::Value) -> Vec<&str> {
    match node.get("from") {
        Some(toml::Value::String(one)) => vec![one],
        Some(toml::Value::Array(list)) => list.iter().filter_map(toml::Value::as_str).collect(),
        _ => Vec::new(),
    }
}
