//! Broken pipeline files and their messages: `mistakes/NAME.toml` and `NAME.txt`. `BLESS=1` updates
//! the messages.

use std::fs;
use std::path::Path;

use sluice_pipeline::{Document, Pipeline, Variables};

use crate::toys;

#[test]
fn every_mistake_has_the_expected_message() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mistakes");
    let mut names: Vec<_> = fs::read_dir(&folder).unwrap().map(|f| f.unwrap().path()).collect();
    names.retain(|path| path.extension().is_some_and(|e| e == "toml"));
    names.sort();
    assert!(!names.is_empty());
    let wrong: Vec<String> = names.iter().filter_map(|path| compare(path)).collect();
    assert!(wrong.is_empty(), "BLESS=1 accepts these:\n{}", wrong.join("\n"));
}

fn compare(path: &Path) -> Option<String> {
    let name = path.file_name().unwrap().to_str().unwrap();
    let document = Document::generated(name, fs::read_to_string(path).unwrap());
    let found = Pipeline::read(&document, &Variables::default(), &toys::registry());
    let said = found.err().map_or("no mistakes\n".to_owned(), |mistakes| mistakes.to_string());
    let golden = path.with_extension("txt");
    if std::env::var_os("BLESS").is_some() {
        fs::write(&golden, &said).unwrap();
    }
    let expected = fs::read_to_string(&golden).unwrap_or_default();
    (said != expected).then(|| format!("--- {name}, expected\n{expected}\n--- found\n{said}"))
}

#[test]
fn colours_are_only_added() {
    let document = Document::generated("x", "[sources.a]\nplugin = \"nope\"\n");
    let mistakes = Pipeline::read(&document, &Variables::default(), &toys::registry()).unwrap_err();
    let coloured = mistakes.render(true);
    assert!(coloured.contains("\u{1b}["));
    let mut plain = String::new();
    let mut rest = coloured.as_str();
    while let Some((before, after)) = rest.split_once('\u{1b}') {
        plain += before;
        rest = after.split_once('m').unwrap().1;
    }
    assert_eq!(plain + rest, mistakes.render(false));
}
