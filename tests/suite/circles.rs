//! Files of a crate import each other in no circle: each builds on those below it. A module and the
//! ones inside it are one thing, and may know each other.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::kit::root;
use crate::linking::crate_folders;

/// The path of a module in its crate.
type Module = Vec<String>;

/// A file: what it brings into scope, by name, and all other paths in it.
#[derive(Default)]
struct SourceFile {
    imports: Vec<(String, Module)>,
    paths: Vec<Module>,
}

/// The files of a crate, by module; tests left out.
struct SourceCrate(BTreeMap<Module, SourceFile>);

impl SourceCrate {
    fn read(sources: &Path) -> Self {
        let mut files = BTreeMap::new();
        let mut folders = vec![(sources.to_owned(), Module::new())];
        while let Some((folder, inside)) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
                let mut module = inside.clone();
                if !["mod", "lib", "main"].contains(&&*name) || path.is_dir() {
                    module.push(name.clone());
                }
                match () {
                    () if ["tests", "testing", "bin"].contains(&&*name) => {}
                    () if path.is_dir() => folders.push((path, module)),
                    () if path.extension().is_some_and(|end| end == "rs") => {
                        files.insert(module, fs::read_to_string(path).unwrap());
                    }
                    () => {}
                }
            }
        }
        let modules: BTreeSet<Module> = files.keys().cloned().collect();
        let parsed = files.into_iter().map(|(module, text)| {
            let file = SourceFile::parse(&text, &module, &modules);
            (module, file)
        });
        Self(parsed.collect())
    }

    /// The module whose file defines what a path leads to. Names that a file brings into scope are
    /// followed to where they come from.
    fn definition(&self, path: &[String], steps: usize) -> Option<&Module> {
        let len = (0..=path.len()).rev().find(|len| self.0.contains_key(&path[..*len]))?;
        let (module, file) = self.0.get_key_value(&path[..len])?;
        let import = path.get(len).and_then(|name| file.imports.iter().find(|(n, _)| n == name));
        match import {
            Some((_, from)) if steps > 0 => self.definition(from, steps - 1).or(Some(module)),
            _ => Some(module),
        }
    }

    /// The modules whose definitions each module uses, without those around it and inside it.
    fn edges(&self) -> BTreeMap<&Module, BTreeSet<&Module>> {
        let used = |(module, file): (&'_ Module, &SourceFile)| {
            let imported = file.imports.iter().map(|(_, from)| from);
            let found = imported.chain(&file.paths).filter_map(|path| self.definition(path, 8));
            found.filter(|other| !other.starts_with(module) && !module.starts_with(other)).collect()
        };
        self.0.iter().map(|(module, file)| (module, used((module, file)))).collect()
    }

    /// The modules from which a way leads back to them.
    fn circles(&self) -> BTreeSet<String> {
        let mut edges = self.edges();
        // What uses nothing that is left is in no circle, nor is what nothing uses.
        loop {
            let used: BTreeSet<&Module> = edges.values().flatten().copied().collect();
            let before = edges.len();
            edges.retain(|module, uses| !uses.is_empty() && used.contains(module));
            let left: BTreeSet<&Module> = edges.keys().copied().collect();
            edges.values_mut().for_each(|uses| uses.retain(|other| left.contains(other)));
            if edges.len() == before {
                break;
            }
        }
        let text = |module: &&Module| module.join("::");
        let with_uses = |(module, uses): (&Module, BTreeSet<&Module>)| {
            let uses: Vec<String> = uses.iter().map(text).collect();
            format!("{} uses {}", text(&module), uses.join(", "))
        };
        edges.into_iter().map(with_uses).collect()
    }
}

impl SourceFile {
    fn parse(text: &str, module: &Module, modules: &BTreeSet<Module>) -> Self {
        let tests = text.find("\nmod tests {").unwrap_or(text.len());
        let text = text.get(..tests).unwrap_or_default();
        let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default());
        let text: String = lines.flat_map(|line| [line, "\n"]).collect();
        let mut file = Self::default();
        let mut rest = &*text;
        let mut code = String::new();
        while let Some(at) = next_use(rest) {
            let end = at + rest[at..].find(';').unwrap();
            code += &rest[..at];
            expand(&rest[at + "use ".len()..end], "", &mut |path, name| {
                if let Some(path) = absolute(path, module, modules) {
                    file.imports.push((name.to_owned(), path));
                }
            });
            rest = &rest[end..];
        }
        code += rest;
        let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
        for word in code.split(|c| !is_part(c)).filter(|word| word.contains("::")) {
            let first = word.split("::").next().unwrap_or_default();
            let imported = file.imports.iter().find(|(name, _)| name == first);
            let path = match imported {
                Some((_, from)) => {
                    let inside = word.split("::").skip(1).map(str::to_owned);
                    Some(from.iter().cloned().chain(inside).collect())
                }
                None => absolute(word, module, modules),
            };
            file.paths.extend(path);
        }
        // A module that is brought into scope counts by what is used of it.
        file.imports.retain(|(_, from)| !modules.contains(from));
        file
    }
}

/// Where the next `use` begins that starts a statement.
fn next_use(text: &str) -> Option<usize> {
    let starts = text.match_indices("use ").map(|(at, _)| at);
    starts.into_iter().find(|at| {
        let before = text[..*at].trim_end_matches(' ');
        before.is_empty() || before.ends_with(['\n', ')']) || before.ends_with("pub")
    })
}

/// Calls `leaf` with each path of a tree of imports, and with the name that it gets.
fn expand(tree: &str, before: &str, leaf: &mut dyn FnMut(&str, &str)) {
    let (mut depth, mut start) = (0, 0);
    for (at, c) in tree.char_indices().chain([(tree.len(), ',')]) {
        depth += i32::from(c == '{') - i32::from(c == '}');
        if c != ',' || depth != 0 {
            continue;
        }
        let branch = tree[start..at].trim();
        start = at + 1;
        if let Some((path, inside)) = branch.split_once("::{") {
            expand(inside.strip_suffix('}').unwrap(), &format!("{before}{path}::"), leaf);
        } else if !branch.is_empty() {
            let (path, alias) = branch.split_once(" as ").unwrap_or((branch, ""));
            let path = format!("{before}{path}");
            let path = path.strip_suffix("::self").unwrap_or(&path);
            let name = path.rsplit("::").next().unwrap_or_default();
            leaf(path, if alias.is_empty() { name } else { alias });
        }
    }
}

/// A path from the root of the crate; `None` if it leads out of it.
fn absolute(path: &str, module: &Module, modules: &BTreeSet<Module>) -> Option<Module> {
    let mut parts: Vec<String> = path.split("::").map(str::to_owned).collect();
    let mut base = module.clone();
    match &*parts[0] {
        "crate" => base.clear(),
        "self" => {}
        "super" => {
            while parts.first().is_some_and(|part| part == "super") {
                base.pop();
                parts.remove(0);
            }
            return Some([base, parts].concat());
        }
        first => {
            base.push(first.to_owned());
            if !modules.contains(&base) {
                return None;
            }
        }
    }
    parts.remove(0);
    Some([base, parts].concat())
}

#[test]
fn no_files_import_each_other_in_a_circle() {
    let folders = crate_folders().into_iter().chain(["python".to_owned()]);
    let sources = folders.map(|folder| (root().join(&folder).join("src"), folder));
    let (mut count, mut circles) = (0, Vec::new());
    for (sources, folder) in sources.filter(|(sources, _): &(PathBuf, _)| sources.is_dir()) {
        let read = SourceCrate::read(&sources);
        count += read.0.len();
        circles.extend(read.circles().into_iter().map(|circle| format!("{folder}: {circle}")));
    }
    assert!(circles.is_empty(), "{}", circles.join("\n"));
    assert!(count > 500, "{count}");
}

#[test]
fn a_circle_is_found_through_names_that_others_hand_on() {
    let files = [
        ("lib.rs", "mod a;\nmod b;\nmod c;\npub use a::One;\n"),
        ("a.rs", "use crate::b;\npub struct One(b::Two);\n"),
        ("b/mod.rs", "pub use self::inside::Two;\nmod inside;\n"),
        ("b/inside.rs", "use super::super::{c::Other, One};\npub struct Two(Option<One>);\n"),
        ("c.rs", "use crate::One;\n// use crate::d::Three;\npub struct Other;\n"),
    ];
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("b")).unwrap();
    files.iter().for_each(|(name, text)| fs::write(folder.path().join(name), text).unwrap());
    let circles = SourceCrate::read(folder.path()).circles();
    let expected = ["a uses b::inside", "b::inside uses a, c", "c uses a"];
    assert_eq!(circles.into_iter().collect::<Vec<_>>(), expected);
    fs::write(folder.path().join("c.rs"), "pub struct Other;\n").unwrap();
    fs::write(folder.path().join("b/inside.rs"), "pub struct Two;\n").unwrap();
    assert!(SourceCrate::read(folder.path()).circles().is_empty());
}
