//! Every plugin family is linked, and every crate depends only on those it may.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;

use serde_json::Value;
use sluice_model::registry::type_set;
use sluice_model::{PluginKind, Registry};

use crate::kit::root;

struct Crate {
    /// Its folder, from the root of the workspace: `plugins/lcm`.
    folder: String,
    /// All dependencies, for building, running and testing.
    dependencies: BTreeSet<String>,
}

impl Crate {
    fn is_family(&self) -> bool {
        self.folder.starts_with("plugins/") && self.folder != "plugins/all"
    }
}

/// The crates of both workspaces, by name.
static CRATES: LazyLock<BTreeMap<String, Crate>> =
    LazyLock::new(|| crates_of(root()).into_iter().chain(crates_of(root().join("full"))).collect());

fn crates_of(workspace: PathBuf) -> Vec<(String, Crate)> {
    let cargo = Command::new(env!("CARGO"))
        .args(["metadata", "--offline", "--no-deps", "--format-version", "1"])
        .current_dir(workspace)
        .output()
        .unwrap();
    assert!(cargo.status.success(), "{}", String::from_utf8_lossy(&cargo.stderr));
    let metadata: Value = serde_json::from_slice(&cargo.stdout).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let each = metadata["packages"].as_array().unwrap().iter().map(|package| {
        let manifest = text(&package["manifest_path"]);
        let folder = manifest.strip_suffix("/Cargo.toml").unwrap();
        let folder = folder.strip_prefix(&format!("{}/", root().display())).unwrap().to_owned();
        let dependencies = package["dependencies"].as_array().unwrap();
        let dependencies = dependencies.iter().map(|d| text(&d["name"])).collect();
        (text(&package["name"]), Crate { folder, dependencies })
    });
    each.collect()
}

/// The folders of all crates, from the root.
pub(crate) fn crate_folders() -> Vec<String> {
    CRATES.values().map(|it| it.folder.clone()).collect()
}

/// The crates of the workspaces that this one depends on.
fn own_dependencies(name: &str) -> BTreeSet<&str> {
    let dependencies = &CRATES[name].dependencies;
    dependencies.iter().map(|d| &d[..]).filter(|d| CRATES.contains_key(*d)).collect()
}

/// The crates of core, each of which may depend on those before it.
const CORE: [&str; 4] = ["sluice-io", "sluice-model", "sluice-kit", "sluice-views"];

/// The crates of the workspaces that this one depends on, without core.
fn beside_core(name: &str) -> BTreeSet<&str> {
    let mut ours = own_dependencies(name);
    ours.retain(|name| !CORE.contains(name));
    ours
}

fn families() -> Vec<(&'static str, &'static Crate)> {
    CRATES.iter().filter(|(_, c)| c.is_family()).map(|(name, c)| (&name[..], c)).collect()
}

/// `sluice` belongs to others in the public registry; these names are available.
#[test]
fn every_crate_has_a_name_it_can_be_published_under_and_the_program_is_sluice() {
    assert!(CRATES.keys().all(|name| name.starts_with("sluice-")), "{:?}", CRATES.keys());
    assert_eq!(CRATES["sluice-logs"].folder, "cli");
    let manifest = fs::read_to_string(root().join("cli/Cargo.toml")).unwrap();
    let manifest: toml::Table = manifest.parse().unwrap();
    assert_eq!(manifest["lib"]["name"].as_str(), Some("sluice"));
    assert_eq!(manifest["bin"][0]["name"].as_str(), Some("sluice"));
}

#[test]
fn every_folder_of_plugins_is_a_crate_of_that_name() {
    let folders = fs::read_dir(root().join("plugins")).unwrap().map(|entry| entry.unwrap());
    let folders = folders.filter(|entry| entry.path().is_dir());
    for name in folders.map(|entry| entry.file_name().into_string().unwrap()) {
        let member = CRATES.get(&format!("sluice-{name}"));
        assert_eq!(member.map(|c| c.folder.clone()), Some(format!("plugins/{name}")));
    }
}

#[test]
fn every_family_but_the_example_is_named_so_that_it_is_linked() {
    let text = fs::read_to_string(root().join("plugins/all/src/lib.rs")).unwrap();
    let lines = text.lines().filter_map(|line| line.strip_prefix("use ")?.strip_suffix(" as _;"));
    let used: BTreeSet<String> = lines.map(|name| name.replace('_', "-")).collect();
    let families = families().into_iter().map(|(name, _)| name.to_owned());
    let families: BTreeSet<String> = families.filter(|name| name != "sluice-example").collect();
    assert_eq!(used, families, "plugins/all/src/lib.rs and the folders of plugins/");
    assert_eq!(CRATES["sluice-all"].dependencies, families, "plugins/all/Cargo.toml");
}

#[test]
fn every_family_has_its_plugins_in_the_registry() {
    let registry = Registry::linked();
    for (name, family) in families() {
        let names = registered_in(&root().join(&family.folder).join("src"));
        assert!(!names.is_empty(), "{name} registers nothing");
        for (kind, plugin) in names {
            let found = match kind {
                Some(kind) => registry.get(kind, &plugin).is_some(),
                None => type_set(plugin.as_ref()).is_some(),
            };
            assert_eq!(found, name != "sluice-example", "{kind:?} {plugin} of {name}");
        }
    }
}

/// The `register!` calls in a crate: `source "lcm-log": …`. Sets of types have no kind.
fn registered_in(folder: &std::path::Path) -> Vec<(Option<PluginKind>, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            found.extend(registered_in(&entry));
            continue;
        }
        let text = fs::read_to_string(entry).unwrap();
        for registration in text.split("register! {").skip(1) {
            let (kind, rest) = registration.trim_start().split_once(" \"").unwrap();
            let kinds = [
                PluginKind::Source,
                PluginKind::Stage,
                PluginKind::Codec,
                PluginKind::Sink,
                PluginKind::Service,
            ];
            let known = kinds.into_iter().find(|k| k.to_string() == kind);
            assert!(known.is_some() || kind == "types", "{kind}");
            found.push((known, rest.split('"').next().unwrap().to_owned()));
        }
    }
    found
}

#[test]
fn the_core_stands_on_itself_in_order_and_knows_no_thread_pool_and_no_toml() {
    for (at, name) in CORE.into_iter().enumerate() {
        let mut ours = own_dependencies(name);
        // For examples in its documentation.
        if name == "sluice-model" {
            ours.remove("sluice-kit");
        }
        assert!(ours.is_subset(&CORE[..at].iter().copied().collect()), "{name}: {ours:?}");
        for unwanted in ["rayon", "tokio", "toml", "clap"] {
            // Maps are TOML.
            if (name, unwanted) == ("sluice-views", "toml") {
                continue;
            }
            assert!(!CRATES[name].dependencies.contains(unwanted), "{name}: {unwanted}");
        }
    }
}

#[test]
fn pipelines_know_the_core_only() {
    assert!(beside_core("sluice-pipeline").is_empty());
}

#[test]
fn families_know_the_core_only_and_no_other_but_lerobot_that_of_parquet() {
    for name in families().into_iter().map(|(name, _)| name).chain(["sluice-query"]) {
        let mut ours = beside_core(name);
        // Test dependencies.
        ours.remove("sluice-conformance");
        // LeRobot datasets consist of Parquet files.
        if name == "sluice-lerobot" {
            ours.remove("sluice-parquet");
        }
        assert!(ours.is_empty(), "{name}: {ours:?}");
    }
}

#[test]
fn sql_the_cluster_and_object_stores_know_no_plugin_and_only_the_full_program_knows_them() {
    assert_eq!(beside_core("sluice-cluster"), BTreeSet::from(["sluice-pipeline"]));
    assert!(beside_core("sluice-storage").is_empty());
    for engine in ["sluice-cluster", "sluice-query", "sluice-storage"] {
        let users = CRATES.keys().filter(|name| own_dependencies(name).contains(engine));
        assert_eq!(users.collect::<Vec<_>>(), ["sluice-full"], "{engine}");
    }
}

#[test]
fn the_conformance_kit_knows_no_plugin() {
    assert_eq!(beside_core("sluice-conformance"), BTreeSet::from(["sluice-pipeline"]));
}

#[test]
fn only_programs_tests_and_benches_name_all_plugins() {
    let tests = ["sluice-tests", "sluice-benches", "sluice-fuzz-targets"];
    let users = CRATES.keys().filter(|name| own_dependencies(name).contains("sluice-all"));
    let users: BTreeSet<&str> = users.map(|name| &name[..]).collect();
    let programs = ["sluice-logs", "sluice-full"];
    let allowed = |name: &&str| programs.contains(name) || tests.contains(name);
    assert!(users.iter().all(allowed), "{users:?}");
}

#[test]
fn nothing_but_tests_benches_and_the_full_program_depends_on_the_program() {
    let users = CRATES.keys().filter(|name| own_dependencies(name).contains("sluice-logs"));
    let users: BTreeSet<&str> = users.map(|name| &name[..]).collect();
    let allowed = BTreeSet::from(["sluice-tests", "sluice-benches", "sluice-full"]);
    assert!(users.is_subset(&allowed), "{users:?}");
}
