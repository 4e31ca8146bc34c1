//! Every plugin has a description and an example.

use std::collections::BTreeMap;

use sluice_model::{Plugin, PluginKind, Registry};
use sluice_pipeline::{Document, Pipeline, Variables};

/// Completes the sample to a pipeline, with a source for its inputs and a sink for its outputs.
pub(crate) fn complete_sample(plugin: &Plugin) -> String {
    let table: toml::Table = plugin.sample.parse().unwrap_or_else(|e| panic!("{plugin:?}: {e}"));
    let nodes = || table.values().filter_map(toml::Value::as_table).flatten();
    let mut from: Vec<&str> = nodes().filter_map(|(_, node)| node.get("from")?.as_str()).collect();
    from.dedup();
    let mut text = plugin.sample.to_owned();
    for name in from.iter().filter(|from| !nodes().any(|(name, _)| name == *from)) {
        text += &format!("\n[sources.{name}]\nplugin = \"demo\"\n");
    }
    let sinks = table.get("sinks").and_then(toml::Value::as_table);
    for (name, _) in nodes() {
        let read = from.contains(&&name[..]) || sinks.is_some_and(|sinks| sinks.contains_key(name));
        if !read {
            text += &format!("\n[sinks.{name}_end]\nplugin = \"null\"\nfrom = \"{name}\"\n");
        }
    }
    text
}

#[test]
fn every_sample_is_a_piece_of_a_pipeline_file() {
    let registry = Registry::linked();
    for plugin in registry
        .iter()
        .filter(|plugin| !matches!(plugin.kind(), PluginKind::Codec | PluginKind::Service))
    {
        let document = Document::generated(plugin.name, complete_sample(plugin));
        let variables = Variables { set: BTreeMap::new(), environment: false };
        let read = Pipeline::read(&document, &variables, &registry);
        let pipeline = read.unwrap_or_else(|mistakes| panic!("{plugin:?}:\n{mistakes}"));
        let shown =
            pipeline.nodes.iter().any(|n| n.plugin == plugin.name && n.kind == plugin.kind());
        assert!(shown, "the sample of {plugin:?} uses it");
    }
}

#[test]
fn every_sample_mentions_every_option() {
    for plugin in Registry::linked().iter() {
        for option in plugin.option_names() {
            let mentions = plugin.sample.lines().any(|line| {
                let line = line.trim_start_matches(['#', ' ']);
                line.strip_prefix(&option).is_some_and(|rest| rest.trim_start().starts_with('='))
            });
            assert!(mentions, "{plugin:?}: the sample has no `{option} = …`");
        }
    }
}

#[test]
fn every_option_is_explained() {
    for plugin in Registry::linked().iter() {
        let schema = (plugin.schema)().to_value();
        for option in plugin.option_names() {
            let about = &schema["properties"][&option];
            assert!(about["description"].is_string(), "{plugin:?}: `{option}` has no doc comment");
        }
    }
}

#[test]
fn every_plugin_says_what_it_does_in_one_line() {
    for plugin in Registry::linked().iter() {
        let about = plugin.about;
        assert!(!about.is_empty() && !about.ends_with('.') && !about.contains('\n'), "{plugin:?}");
    }
}

#[test]
fn a_readme_describes_every_plugin_and_option() {
    let families =
        std::fs::read_dir(crate::kit::root().join("plugins")).expect("there are plugins");
    let readmes: Vec<String> = families
        .filter_map(|family| std::fs::read_to_string(family.ok()?.path().join("README.md")).ok())
        .collect();
    for plugin in Registry::linked().iter() {
        let tells = |readme: &&String| {
            let options = plugin.option_names();
            readme.contains(&format!("`{}`", plugin.name))
                && options.iter().all(|option| readme.contains(&format!("| `{option}` |")))
        };
        assert!(
            readmes.iter().any(|readme| tells(&readme)),
            "{plugin:?} is in no README with all options"
        );
    }
}
