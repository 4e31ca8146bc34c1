//! ARCHITECTURE.md and the pages of decisions name only files that exist, and stay short.

use std::fs;

use crate::kit::root;

/// Words in backquotes that look like paths of this repository, with the page that names them.
fn named_paths() -> Vec<(String, String)> {
    let mut pages = vec!["ARCHITECTURE.md".to_owned()];
    for entry in fs::read_dir(root().join("docs/decisions")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        pages.push(format!("docs/decisions/{name}"));
    }
    pages.sort();
    let mut paths = Vec::new();
    for page in pages {
        // What types were called before names files as they were then.
        if page.ends_with("/names.md") {
            continue;
        }
        let text = fs::read_to_string(root().join(&page)).unwrap();
        let quoted = text.split('`').skip(1).step_by(2);
        for word in quoted.filter(|word| is_path(word)) {
            paths.push((page.clone(), word.to_owned()));
        }
    }
    paths
}

/// Whether this is a path below one of the top folders.
fn is_path(word: &str) -> bool {
    let top = word.split('/').next().unwrap_or_default();
    word.contains('/')
        && !word.contains(['<', '*', ' ', ':'])
        && fs::metadata(root().join(top)).is_ok_and(|found| found.is_dir())
}

#[test]
fn every_path_on_the_map_and_in_decisions_exists() {
    let paths = named_paths();
    assert!(paths.len() > 60, "{} paths were found", paths.len());
    let missing: Vec<_> = paths.iter().filter(|(_, path)| !root().join(path).exists()).collect();
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn the_map_fits_two_pages() {
    let map = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let lines = map.lines().count();
    assert!(lines <= 150, "ARCHITECTURE.md has {lines} lines: move reasons to docs/decisions");
}
