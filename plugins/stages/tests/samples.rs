//! Samples and README of every plugin: they show every option, and what they show works.

use serde_json::{Map, Value};
use sluice_core::{Make, Plugin, Registry};
use sluice_stages as _;

const README: &str = include_str!("../README.md");

/// The options of each part of the pipeline that uses the plugin.
fn tables(plugin: &Plugin) -> Vec<Map<String, Value>> {
    let file: Map<String, Value> = toml::from_str(plugin.sample).expect("a sample is TOML");
    let parts = file.values().flat_map(|kind| kind.as_object().expect("a table of parts").values());
    let tables = parts.map(|part| {
        let mut table = part.as_object().expect("a part is a table").clone();
        assert_eq!(table.shift_remove("plugin"), Some(plugin.name.into()));
        assert!(table.shift_remove("from").is_some());
        table
    });
    tables.collect()
}

fn make(plugin: &Plugin, options: Value) {
    match plugin.make {
        Make::Stage(make) => drop(make(options).expect("options of a sample are right")),
        Make::Sink(make) => drop(make(options).expect("options of a sample are right")),
        _ => panic!("{plugin:?} is not one of this crate"),
    }
}

#[test]
fn samples_work_and_show_every_option() {
    let registry = Registry::linked();
    assert_eq!(registry.iter().count(), 6);
    for plugin in registry.iter() {
        let tables = tables(plugin);
        for option in plugin.option_names() {
            assert!(tables.iter().any(|t| t.contains_key(&option)), "{plugin:?}: {option}");
        }
        tables.into_iter().for_each(|table| make(plugin, table.into()));
        assert!(!plugin.about.is_empty());
    }
}

#[test]
fn the_readme_tells_of_every_plugin_and_option() {
    for plugin in Registry::linked().iter() {
        let heading = format!("## `{}`", plugin.name);
        let section = README.split(&heading).nth(1).unwrap_or_else(|| panic!("no {heading}"));
        let section = section.split("\n## ").next().unwrap();
        for option in plugin.option_names() {
            assert!(section.contains(&format!("| `{option}` |")), "{plugin:?}: {option}");
        }
    }
}
