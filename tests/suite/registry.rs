//! Plugins use the plugins of the program that makes them: the registry is passed, not looked up.

use std::fs;
use std::path::Path;

use serde_json::json;
use sluice_model::{Plugin, PluginKind, Registry};

use crate::kit::root;

/// All plugins, but the codec `lcm` is called `mine` and reads types of files `*.mine`.
fn registry_with_renamed_codec() -> Registry {
    let linked = Registry::linked();
    let rename = |plugin: &Plugin| match (plugin.kind(), plugin.name) {
        (PluginKind::Codec, "lcm") => Plugin { name: "mine", extensions: &["mine"], ..*plugin },
        _ => *plugin,
    };
    Registry::from_plugins(linked.iter().map(rename))
}

#[test]
fn decode_uses_the_codecs_of_the_registry_it_is_made_by() {
    let folder = tempfile::tempdir().unwrap();
    let types = "package p; struct pose_t { int64_t utime; }";
    for name in ["pose.mine", "pose.lcm"] {
        fs::write(folder.path().join(name), types).unwrap();
    }
    let options = |name: &str| json!({ "types": folder.path().join(name) });
    let (linked, own) = (Registry::linked(), registry_with_renamed_codec());
    for stage in ["decode", "encode"] {
        assert!(own.stage(stage, options("pose.mine")).is_ok(), "{stage}");
        assert!(own.stage(stage, options("pose.lcm")).is_err(), "{stage}");
        assert!(linked.stage(stage, options("pose.mine")).is_err(), "{stage}");
        assert!(linked.stage(stage, options("pose.lcm")).is_ok(), "{stage}");
    }
}

#[test]
fn archives_hold_the_formats_of_the_registry_they_are_made_by() {
    let linked = Registry::linked();
    let few = Registry::from_plugins(linked.iter().filter(|p| p.name != "vel").copied());
    let options = json!({ "path": "a.vel.zst", "format": "vel" });
    assert!(linked.sink("archive", options.clone()).is_ok());
    let error = few.sink("archive", options).err().unwrap();
    assert_eq!(error.path, ["format"]);
    assert!(error.message.contains("no archive format `vel`; available"), "{error}");
}

#[test]
fn only_the_program_asks_for_what_is_linked() {
    let mut found = Vec::new();
    for folder in ["core", "pipelines", "plugins", "cli/src", "full"] {
        for call in ["Registry::linked()", "Registry::try_linked()"] {
            find_production(&root().join(folder), call, &mut found);
        }
    }
    let found: Vec<_> = found.iter().map(|path| path.strip_prefix(root()).unwrap()).collect();
    assert_eq!(found, [Path::new("cli/src/lib.rs")]);
}

#[test]
fn the_readme_lists_every_plugin() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let rows: String = readme.lines().filter(|line| line.starts_with("| `")).collect();
    for plugin in Registry::linked().iter() {
        assert!(rows.contains(&format!("`{}`", plugin.name)), "{}", plugin.name);
    }
}

#[test]
fn the_command_line_names_no_format() {
    // Words that also mean something else: the text log, files in reports, the sink that drops
    // everything, and JSON as output.
    let also_words = ["text", "files", "null", "json"];
    let mut found = Vec::new();
    for plugin in Registry::linked().iter() {
        if plugin.kind() != PluginKind::Stage && !also_words.contains(&plugin.name) {
            let name = format!("\"{}\"", plugin.name);
            let mut places = Vec::new();
            find_production(&root().join("cli/src"), &name, &mut places);
            found.extend(places.into_iter().map(|path| (name.clone(), path)));
        }
    }
    assert_eq!(found, []);
}

/// The source files below a folder whose code contains `word`, without tests and comments.
fn find_production(folder: &Path, word: &str, found: &mut Vec<std::path::PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && !matches!(&*name, "tests" | "target" | "samples") {
            find_production(&path, word, found);
        } else if name.ends_with(".rs") && !matches!(&*name, "tests.rs" | "testing.rs") {
            let text = fs::read_to_string(&path).unwrap();
            let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
            let mut lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
            found.extend(lines.any(|line| line.contains(word)).then_some(path));
        }
    }
}
