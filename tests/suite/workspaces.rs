//! The three workspaces, and crates outside, agree on versions, lints and profiles.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use toml::{Table, Value};

use crate::kit::root;

/// Crates that only queries need optimised.
const FAST_IN_QUERIES: [&str; 4] = ["aho-corasick", "arrow-cast", "arrow-ord", "regex-automata"];

fn toml(path: &str) -> Table {
    fs::read_to_string(root().join(path)).unwrap().parse().unwrap()
}

/// Asserts that the crates of a workspace have the version, licence and lints of the base. Only the
/// base is published.
#[track_caller]
fn assert_same_package(base: &Table, other: &Table) {
    let (base, other) = (&base["workspace"], &other["workspace"]);
    for key in ["version", "edition", "rust-version", "license"] {
        assert_eq!(base["package"][key], other["package"][key], "{key}");
    }
    assert_eq!(base["lints"], other["lints"]);
}

/// The workspace of the base, without what only its benches are built with.
fn base() -> Table {
    let mut base = toml("Cargo.toml");
    let packages = base["profile"]["release"]["package"].as_table_mut().unwrap();
    assert!(packages.remove("sluice-benches").is_some());
    base
}

#[test]
fn the_full_program_is_built_with_the_dependencies_lints_and_profiles_of_the_base() {
    let (base, mut full) = (base(), toml("full/Cargo.toml"));
    assert_same_package(&base, &full);
    let dependencies = full["workspace"]["dependencies"].as_table().unwrap();
    for (name, expected) in dependencies.iter().filter(|(name, _)| !name.starts_with("sluice-")) {
        let of_base = base["workspace"]["dependencies"].get(name);
        assert!(of_base.is_none_or(|of_base| of_base == expected), "{name}");
    }
    let in_base = versions("Cargo.lock");
    for (profile, level) in [("release", Value::from(0)), ("dist", Value::from("s"))] {
        let packages = full["profile"][profile]["package"].as_table_mut().unwrap();
        // What only plans queries, and the rest of the crates that the base is built without.
        for (name, options) in packages.iter().filter(|(name, _)| !in_base.contains_key(*name)) {
            assert_eq!(options["opt-level"], level, "{profile} {name}");
        }
        packages.retain(|name, _| in_base.contains_key(name));
        for package in FAST_IN_QUERIES {
            let of_base = base["profile"][profile]["package"][package].clone();
            assert!(packages.insert(package.to_owned(), of_base).is_none(), "{profile} {package}");
        }
    }
    // Fat LTO would take hours for DataFusion.
    let lto = base["profile"]["dist"]["lto"].clone();
    let dist = full["profile"]["dist"].as_table_mut().unwrap();
    assert_eq!(dist.insert("lto".to_owned(), lto), Some("thin".into()));
    assert_eq!(base["profile"], full["profile"]);
}

#[test]
fn the_python_package_is_built_with_the_dependencies_lints_and_profiles_of_the_base() {
    let (base, python) = (base(), toml("python/Cargo.toml"));
    assert_same_package(&base, &python);
    assert_eq!(base["profile"], python["profile"]);
    let dependencies = python["workspace"]["dependencies"].as_table().unwrap();
    for (name, expected) in dependencies.iter().filter(|(name, _)| !name.starts_with("sluice-")) {
        let of_base = base["workspace"]["dependencies"].get(name);
        assert!(of_base.is_none_or(|of_base| of_base == expected), "{name}");
    }
}

/// Otherwise crates would be compiled again, or tests of new plugins would be slow.
#[test]
fn crates_outside_are_compiled_as_those_of_the_base() {
    let base = &toml("Cargo.toml")["profile"]["dev"];
    for name in ["tests/outsider/Cargo.toml", "cli/templates/common/Cargo.toml.in"] {
        let manifest = fs::read_to_string(root().join(name)).unwrap();
        // The placeholders of a template come first.
        let profiles: Table = manifest[manifest.find("[profile.").unwrap()..].parse().unwrap();
        assert_eq!(&profiles["profile"]["dev"], base, "{name}");
    }
}

#[test]
fn all_workspaces_are_made_of_the_same_versions() {
    let base = versions("Cargo.lock");
    for lock in ["full/Cargo.lock", "python/Cargo.lock"] {
        let other = versions(lock);
        for (name, of_base) in &base {
            // A dependency may need an older version as well.
            let Some(of_other) = other.get(name) else { continue };
            let agree = of_base.is_subset(of_other) || of_other.is_subset(of_base);
            assert!(agree, "{lock}: {name}: {of_base:?} and {of_other:?}");
        }
    }
}

fn versions(lock: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut versions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in toml(lock)["package"].as_array().unwrap() {
        let text = |key: &str| package.get(key).and_then(Value::as_str).unwrap().to_owned();
        versions.entry(text("name")).or_default().insert(text("version"));
    }
    versions
}
