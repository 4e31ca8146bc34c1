//! Pages name only what exists: links between pages lead to a file and a heading, and the map
//! (ARCHITECTURE.md) and the pages of decisions name paths of the repository.

use std::fs;
use std::path::{Path, PathBuf};

use crate::kit::root;
use crate::readmes::gather;

/// Words in backquotes that look like paths of this repository, with the page that names them.
fn named_paths() -> Vec<(PathBuf, String)> {
    let is_map = |page: &PathBuf| {
        // The page of old names has paths as they were then.
        page == Path::new("ARCHITECTURE.md")
            || page.starts_with("docs/decisions") && !page.ends_with("names.md")
    };
    let mut paths = Vec::new();
    for page in pages().into_iter().filter(is_map) {
        let text = fs::read_to_string(root().join(&page)).unwrap();
        let quoted = text.split('`').skip(1).step_by(2);
        paths.extend(
            quoted.filter(|word| is_path(word)).map(|word| (page.clone(), word.to_owned())),
        );
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

/// Every page of the repository, by its path in it.
fn pages() -> Vec<PathBuf> {
    let mut found = Vec::new();
    gather(&root(), &mut found);
    let pages = found.iter().map(|page| page.strip_prefix(root()).unwrap().to_owned());
    // Templates are pages of crates that do not exist yet.
    pages.filter(|page| !page.starts_with("cli/templates")).collect()
}

/// The text of a page without its blocks of code.
fn prose(page: &Path) -> String {
    let text = fs::read_to_string(root().join(page)).unwrap();
    text.split("```").step_by(2).collect()
}

/// The targets of the links on a page that lead to other pages, or within it.
fn links(text: &str) -> Vec<&str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets.filter(|target| !target.contains("://") && !target.contains(' ')).collect()
}

/// The anchors of a page's headings, as they are made on GitHub.
fn anchors(text: &str) -> Vec<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let titles = headings.map(|line| line.trim_start_matches('#').trim().to_lowercase());
    let kept = |letter: &char| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_');
    titles.map(|title| title.chars().filter(kept).collect::<String>().replace(' ', "-")).collect()
}

#[test]
fn links_between_pages_lead_to_a_file_and_a_heading() {
    let pages = pages();
    assert!(pages.len() > 30, "{} pages were found", pages.len());
    let mut broken = Vec::new();
    for page in &pages {
        for link in links(&prose(page)) {
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let folder = page.parent().unwrap();
            let target = if path.is_empty() { page.clone() } else { folder.join(path) };
            let exists = root().join(&target).exists();
            if !exists || !anchor.is_empty() && !anchors(&prose(&target)).contains(&anchor.into()) {
                broken.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}
