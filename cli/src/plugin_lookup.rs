//! Finds plugins by what arguments say: names, jobs, URLs and extensions. Looks into no input.

use std::path::Path;

use serde_json::json;
use sluice_io::store::is_address;
use sluice_kit::suggestion::nearest;
use sluice_model::{DefaultRole, OptionsError, Plugin, PluginKind};

use crate::exit::Failure;
use crate::shell::Shell;

/// The plugin of this kind and name.
pub(crate) fn plugin_named<'s>(
    shell: &'s Shell,
    kind: PluginKind,
    name: &str,
) -> Result<&'s Plugin, Failure> {
    let found = shell.registry.get(kind, name);
    found.ok_or_else(|| match nearest(name, &shell.registry.names(kind)) {
        Some(near) => {
            Failure::Usage(format!("this program has no {kind} `{name}`; did you mean `{near}`?"))
        }
        None => no_such_plugin(shell, kind, &format!("`{name}`")),
    })
}

/// The plugin of this kind that has a job by default.
pub(crate) fn default_plugin(
    shell: &Shell,
    kind: PluginKind,
    role: DefaultRole,
) -> Result<&Plugin, Failure> {
    let found = shell.registry.default_for(kind, role);
    found.ok_or_else(|| no_such_plugin(shell, kind, &format!("for {role}")))
}

/// The failure that this program has no such plugin.
fn no_such_plugin(shell: &Shell, kind: PluginKind, what: &str) -> Failure {
    let names = shell.registry.names(kind).join(", ");
    Failure::Usage(format!("this program has no {kind} {what}; it has: {names}"))
}

/// The plugin that handles this URL.
pub(crate) fn plugin_for_url<'s>(
    shell: &'s Shell,
    kind: PluginKind,
    url: &str,
) -> Result<&'s Plugin, Failure> {
    shell.registry.by_url(kind, url).ok_or_else(|| {
        let all = shell.registry.iter().filter(|plugin| plugin.kind() == kind);
        let schemes: Vec<String> =
            all.flat_map(|plugin| plugin.schemes).map(|s| format!("{s}://")).collect();
        Failure::Usage(format!(
            "this program has no {kind} for {url}; it has one for: {}",
            schemes.join(", ")
        ))
    })
}

/// Refuses a URL for a plugin that takes none, or only other ones.
pub(crate) fn refuse_other_url(plugin: &Plugin, url: &str, shell: &Shell) -> Result<(), Failure> {
    if !is_url(url) || has_option(plugin, "url") {
        return Ok(());
    }
    let (kind, other) = (plugin.kind(), plugin_for_url(shell, plugin.kind(), url)?);
    Err(Failure::Usage(format!(
        "{url} is for the {kind} `{}`, not for `{}`",
        other.name, plugin.name
    )))
}

/// Whether this is the URL of something live, such as `udpm://…`: neither a path nor the URL of a
/// file or an object.
pub(crate) fn is_url(text: &str) -> bool {
    if is_address(Path::new(text)) {
        return false;
    }
    let scheme = text.split_once("://").map(|(scheme, _)| scheme);
    scheme.is_some_and(|scheme| {
        !scheme.is_empty() && scheme.chars().all(|c| c.is_ascii_alphanumeric())
    })
}

/// The extension of a path without `.zst`, and whether `.zst` was there.
pub fn extension(path: &Path) -> (Option<String>, bool) {
    let last = |path: &Path| path.extension().map(|e| e.to_string_lossy().into_owned());
    match last(path) {
        Some(packed) if packed == "zst" => (last(&path.with_extension("")), true),
        other => (other, false),
    }
}

/// The names of the sources that read files and require no other option.
pub(crate) fn sources_of_plain_files(shell: &Shell) -> Vec<&'static str> {
    let sources = shell.registry.iter().filter(|plugin| plugin.kind() == PluginKind::Source);
    let readers = sources
        .filter(|plugin| has_option(plugin, "path") && missing_options(plugin, shell).is_none());
    readers.map(|plugin| plugin.name).collect()
}

/// Whether a plugin has an option: `path` if it is for files, `url` if for something live.
fn has_option(plugin: &Plugin, option: &str) -> bool {
    plugin.option_names().iter().any(|name| name == option)
}

/// The error that names the options a source requires besides the path, if any.
fn missing_options(plugin: &Plugin, shell: &Shell) -> Option<OptionsError> {
    shell.registry.source(plugin.name, json!({ "path": "log" })).err()
}

/// Refuses a source that reads files but requires more options than the path.
pub(crate) fn check_path_suffices(plugin: &Plugin, shell: &Shell) -> Result<(), Failure> {
    match missing_options(plugin, shell).filter(|_| has_option(plugin, "path")) {
        None => Ok(()),
        Some(missing) => Err(Failure::Usage(format!(
            "`{0}` needs more options than the path: {missing}; give them with --describe \
             FILE.toml or --source-option, or in a pipeline file: `sluice plugins {0}` shows how",
            plugin.name
        ))),
    }
}
