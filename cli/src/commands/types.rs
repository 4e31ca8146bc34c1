//! `types`: the types that files declare, with their fingerprints, and which of them clash.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sluice_core::name::{json_escaped, printable, printable_sentence};
use sluice_core::{CodecOptions, Codecs, KnownType, TypeKey, TypePaths, registry};

use crate::args::TypesArgs;
use crate::ending::{Ending, Failure, Outcome};
use crate::out;
use crate::shell::Shell;
use crate::terminal::width;

pub(crate) fn run(args: &TypesArgs, shell: &Shell) -> Outcome {
    print(args.files.clone(), args.json, shell)
}

/// Prints the types that these files declare, those of all built-in sets if there are none.
pub fn print(files: Vec<PathBuf>, as_json: bool, shell: &Shell) -> Outcome {
    let files = TypePaths(files);
    let paths = if files.0.is_empty() { TypePaths::built_in() } else { files };
    let codecs = Codecs::from_paths(&shell.registry, &paths, &CodecOptions::default());
    let codecs = codecs.map_err(|error| Failure::WrongUse(error.message))?;
    let types: Vec<KnownType> = codecs.types().cloned().collect();
    let clashes = Clashes::of(&types);
    let text = if as_json {
        let line = |known| json_escaped(&json(known, &clashes).to_string()).into_owned() + "\n";
        types.iter().map(line).collect()
    } else {
        table(&types)
    };
    out::text(&text)?;
    if !as_json {
        clashes.tell(shell);
    }
    codecs.mistakes().map_or(Ok(Ending::Done), |mistakes| Err(Failure::WrongUse(mistakes)))
}

/// Types that cannot be told apart by one of the two things that name them.
struct Clashes {
    /// Names that share a fingerprint.
    names: BTreeMap<TypeKey, BTreeSet<String>>,
    /// Places that declare different types of one name.
    places: BTreeMap<String, Vec<String>>,
}

impl Clashes {
    fn of(types: &[KnownType]) -> Self {
        let mut names: BTreeMap<TypeKey, BTreeSet<String>> = BTreeMap::new();
        let mut versions: BTreeMap<String, BTreeMap<(TypeKey, &str), String>> = BTreeMap::new();
        // Versions side by side are what built-in sets are for.
        let sets = registry::type_sets();
        let is_built_in = |known: &KnownType| {
            let file = known.file.as_deref();
            file.is_some_and(|file| sets.iter().any(|set| file.starts_with(set.name)))
        };
        for known in types.iter().filter(|known| !is_built_in(known)) {
            let (name, key) = (known.described.name.to_string(), known.described.key);
            names.entry(key).or_default().insert(name.clone());
            let version = (key, &*known.described.text);
            versions.entry(name).or_default().entry(version).or_insert_with(|| place(known));
        }
        names.retain(|_, names| names.len() > 1);
        versions.retain(|_, versions| versions.len() > 1);
        let places = versions.into_iter();
        let places = places.map(|(name, places)| (name, places.into_values().collect())).collect();
        Self { names, places }
    }

    fn tell(&self, shell: &Shell) {
        for (key, names) in &self.names {
            shell.warn(&format!(
                "{} share the fingerprint {key}: messages are taken for the first, unless --type \
                 (`channel_types` of `decode`) says otherwise",
                few(names.iter().map(String::as_str), " and ")
            ));
        }
        for (name, places) in &self.places {
            let places = few(places.iter().map(String::as_str), ", ");
            shell.warn(&format!("{name} has several versions: {places}"));
        }
    }
}

/// The first of many, and how many more there are.
fn few<'w>(words: impl ExactSizeIterator<Item = &'w str>, between: &str) -> String {
    const FEW: usize = 8;
    let more = words.len().saturating_sub(FEW);
    let text = words.take(FEW).collect::<Vec<_>>().join(between);
    if more == 0 { text } else { format!("{text} and {more} more") }
}

fn place(known: &KnownType) -> String {
    let file = known.file.as_deref().unwrap_or(Path::new("built in"));
    format!("{}:{}", file.display(), known.line)
}

fn json(known: &KnownType, clashes: &Clashes) -> Value {
    let KnownType { described, file, line, form } = known;
    let name = &*described.name;
    let mut object = json!({
        "name": name,
        "fingerprint": described.key.to_string(),
        "file": file.as_deref().map(Path::to_string_lossy),
        "line": line,
    });
    if let Some(names) = clashes.names.get(&described.key) {
        let others: Vec<&String> = names.iter().filter(|other| *other != name).collect();
        object["same_fingerprint"] = json!(others);
    }
    if let Some(places) = clashes.places.get(name) {
        object["versions"] = json!(places);
    }
    if let Err(why) = form {
        object["not_decoded"] = json!(why);
    }
    object
}

fn table(types: &[KnownType]) -> String {
    /// A longer name is not cut, but others are not lined up with it.
    const WIDEST: usize = 100;
    let names = types.iter().map(|known| width(&printable(&known.described.name)));
    let room = names.max().unwrap_or(0).min(WIDEST);
    let mut text = String::new();
    for known in types {
        let described = &known.described;
        let unfit = known.form.as_ref().err().map(|why| format!("  (not decoded: {why})"));
        // Writing to a string does not fail.
        let _written = writeln!(
            text,
            "{}  {}  {}{}",
            described.key,
            padded(&described.name, room),
            printable(&place(known)),
            printable_sentence(&unfit.unwrap_or_default())
        );
    }
    text
}

/// A name, and the blanks that fill its column.
fn padded(name: &str, room: usize) -> String {
    let name = printable(name);
    let blanks = room.saturating_sub(width(&name));
    format!("{name}{:blanks$}", "")
}
