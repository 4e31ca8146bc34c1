//! Every target passes on its seeds, and none is missing anywhere.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use sluice_fuzz_targets::{EVERY_COUNT, TARGETS};

/// The maximum total size of seeds.
const MOST_BYTES: u64 = 300_000;

fn fuzz(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

fn names_in(path: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(fuzz(path)).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect()
}

fn targets() -> BTreeSet<String> {
    TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect()
}

/// The seeds of a target, sorted by name.
fn seeds(target: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(fuzz("seeds").join(target)).unwrap();
    let mut seeds: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    seeds.sort();
    seeds
}

#[test]
fn every_target_keeps_its_promises_for_its_seeds() {
    EVERY_COUNT.store(true, Ordering::Relaxed);
    for (name, target) in TARGETS {
        for seed in seeds(name) {
            // Shown if it is the last one before a panic.
            println!("{}", seed.display());
            target(&fs::read(seed).unwrap());
        }
    }
}

#[test]
fn every_target_takes_nothing_and_a_little_of_anything() {
    for (name, target) in TARGETS {
        for len in 0..12 {
            for byte in [0, 1, 2, 3, b'{', 0x80, 0xff] {
                println!("{name}: {len} times {byte}");
                target(&vec![byte; len]);
            }
        }
    }
}

#[test]
fn every_target_has_a_program_seeds_and_a_line_in_the_readme() {
    assert!(TARGETS.is_sorted_by_key(|(name, _)| name));
    assert_eq!(names_in("fuzz_targets"), targets());
    assert_eq!(names_in("seeds"), targets());
    assert!(targets().iter().all(|name| !seeds(name).is_empty()));
    let readme = fs::read_to_string(fuzz("README.md")).unwrap();
    let told = readme.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    assert_eq!(told.map(str::to_owned).collect::<BTreeSet<_>>(), targets());
}

#[test]
fn every_program_is_built_and_calls_the_target_of_its_name() {
    let manifest = fs::read_to_string(fuzz("Cargo.toml")).unwrap();
    assert_eq!(manifest.matches("[[bin]]").count(), TARGETS.len());
    for name in targets() {
        assert!(manifest.contains(&format!("path = \"fuzz_targets/{name}.rs\"")), "{name}");
        assert!(manifest.contains(&format!("\n{name} = [")), "{name} names no covered crates");
        let program = fs::read_to_string(fuzz(&format!("fuzz_targets/{name}.rs"))).unwrap();
        assert!(program.contains(&format!("sluice_fuzz_targets::{name}(")), "{name}");
    }
}

#[test]
fn seeds_are_small() {
    let seeds: Vec<_> = targets().iter().flat_map(|name| seeds(name)).collect();
    let bytes = seeds.iter().map(|seed| seed.metadata().unwrap().len());
    assert!(bytes.sum::<u64>() <= MOST_BYTES);
}
