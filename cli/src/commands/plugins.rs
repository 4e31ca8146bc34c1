//! `plugins`: lists the plugins of this program, or describes one.

use std::fmt::Write as _;

use serde_json::Value;
use sluice_kit::suggestion::nearest;
use sluice_model::registry::type_sets;
use sluice_model::{Plugin, PluginKind};
use sluice_pipeline::schema;

use crate::args::PluginsArgs;
use crate::exit::{CommandResult, ExitStatus, Failure};
use crate::shell::Shell;
use crate::stdout;

const KINDS: [PluginKind; 5] = [
    PluginKind::Source,
    PluginKind::Stage,
    PluginKind::Codec,
    PluginKind::Sink,
    PluginKind::Service,
];

pub(crate) fn run(args: &PluginsArgs, shell: &Shell) -> CommandResult {
    let selected: Vec<&Plugin> = match &args.name {
        Some(name) => find_plugins(name, shell)?,
        None => shell.registry.iter().collect(),
    };
    let text = match (args.json, &args.name) {
        (true, _) => {
            format!("{:#}\n", selected.iter().map(|p| schema::plugin_json(p)).collect::<Value>())
        }
        (false, Some(_)) => {
            selected.iter().map(|plugin| details(plugin)).collect::<Vec<_>>().join("\n\n")
        }
        (false, None) => list(&selected),
    };
    stdout::text(&text, shell)?;
    Ok(ExitStatus::Done)
}

fn find_plugins<'s>(name: &str, shell: &'s Shell) -> Result<Vec<&'s Plugin>, Failure> {
    let found: Vec<&Plugin> = shell.registry.iter().filter(|plugin| plugin.name == name).collect();
    if found.is_empty() {
        if type_sets().iter().any(|set| set.name == name) {
            let what = format!("`{name}` is a set of types: `sluice types {name}` shows them");
            return Err(Failure::Usage(what));
        }
        let mut names: Vec<&str> = shell.registry.iter().map(|plugin| plugin.name).collect();
        names.dedup();
        let hint = match nearest(name, &names) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("it has: {}", names.join(", ")),
        };
        return Err(Failure::Usage(format!("this program has no plugin `{name}`; {hint}")));
    }
    Ok(found)
}

fn list(plugins: &[&Plugin]) -> String {
    let width = plugins.iter().map(|plugin| plugin.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for kind in KINDS {
        let of_kind: Vec<_> = plugins.iter().filter(|plugin| plugin.kind() == kind).collect();
        if of_kind.is_empty() {
            continue;
        }
        let gap = if text.is_empty() { "" } else { "\n" };
        line(&mut text, format_args!("{gap}{kind}s"));
        for plugin in of_kind {
            line(&mut text, format_args!("  {:width$}  {}", plugin.name, plugin.about));
        }
    }
    if !type_sets().is_empty() {
        line(&mut text, format_args!("\ntypes"));
        for set in type_sets() {
            line(&mut text, format_args!("  {:width$}  {}", set.name, set.about));
        }
    }
    text + "\n`sluice plugins NAME` shows the options of a plugin, `sluice types NAME` the types \
        of a set.\n"
}

fn details(plugin: &Plugin) -> String {
    let mut text = format!("{} {}: {}\n", plugin.kind(), plugin.name, plugin.about);
    if plugin.program.is_some() {
        line(&mut text, format_args!("\n  It runs a program: `sluice run` needs --allow-exec."));
    }
    let json = schema::plugin_json(plugin);
    for option in json["options"].as_array().into_iter().flatten() {
        write_option(option, &mut text);
        let nested = option["nested"].as_array().into_iter().flatten();
        nested.for_each(|key| write_option(key, &mut text));
    }
    let keys = json["keys"].as_array().filter(|keys| !keys.is_empty());
    if keys.is_some() {
        line(&mut text, format_args!("\nkeys of every {}", plugin.kind()));
    }
    for key in keys.into_iter().flatten() {
        write_option(key, &mut text);
    }
    if keys.is_some() {
        line(&mut text, format_args!("\ntop-level keys of the pipeline file"));
        let top = schema::top_level_json();
        top.as_array().into_iter().flatten().for_each(|key| write_option(key, &mut text));
    }
    if !plugin.sample.is_empty() {
        line(&mut text, format_args!("\nexample\n"));
        plugin.sample.trim_end().lines().for_each(|l| line(&mut text, format_args!("    {l}")));
    }
    text
}

fn write_option(option: &Value, text: &mut String) {
    let word = |key: &str| option[key].as_str().unwrap_or_default();
    let when = match (&option["default"], option["required"].as_bool()) {
        (_, Some(true)) => ", required".to_owned(),
        (Value::Null, _) => String::new(),
        (default, _) => format!(", default {default}"),
    };
    line(text, format_args!("\n  {}  ({}{when})", word("name"), word("type")));
    word("doc").lines().for_each(|doc| line(text, format_args!("      {doc}")));
}

fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to a string does not fail.
    let _written = writeln!(text, "{line}");
}
