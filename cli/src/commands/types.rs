//! `types`: lists the types that files declare, with their fingerprints and clashes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sluice_io::escape::{json_escaped, path_text, printable, printable_sentence};
use sluice_kit::{CodecOptions, Codecs, EMBEDDED_TYPES, TypePaths};
use sluice_model::{KnownType, TypeKey, registry};

use crate::args::TypesArgs;
use crate::exit::{CommandResult, ExitStatus, Failure};
use crate::shell::Shell;
use crate::stdout;
use crate::terminal::width;

pub(crate) fn run(args: &TypesArgs, shell: &Shell) -> CommandResult {
    print(args.files.clone(), args.json, shell)
}

/// Prints the types declared in these files, or those of all built-in sets.
pub fn print(files: Vec<PathBuf>, as_json: bool, shell: &Shell) -> CommandResult {
    let files = TypePaths(files);
    let paths = if files.0.is_empty() { TypePaths::built_in() } else { files };
    let codecs = Codecs::from_paths(&shell.registry, &paths, &CodecOptions::default());
    let codecs = codecs.map_err(|error| Failure::Usage(error.message))?;
    let types: Vec<KnownType> = codecs.types().cloned().collect();
    if paths.0 == [Path::new(EMBEDDED_TYPES)] {
        shell.info(
            "`embedded` are the types that each log declares itself: `sluice info LOG` shows them",
        );
    }
    let clashes = Clashes::find(&types);
    let text = if as_json {
        let line = |known| json_escaped(&json(known, &clashes).to_string()).into_owned() + "\n";
        types.iter().map(line).collect()
    } else {
        table(&types)
    };
    stdout::text(&text, shell)?;
    if !as_json {
        clashes.warn(shell);
    }
    codecs.mistakes().map_or(Ok(ExitStatus::Done), |mistakes| Err(Failure::Usage(mistakes)))
}

/// Types that share a fingerprint or a name.
struct Clashes {
    /// Names that share a fingerprint.
    names: BTreeMap<TypeKey, BTreeSet<String>>,
    /// The places of different declarations with the same name.
    places: BTreeMap<String, Vec<String>>,
}

impl Clashes {
    fn find(types: &[KnownType]) -> Self {
        let mut names: BTreeMap<TypeKey, BTreeSet<String>> = BTreeMap::new();
        let mut versions: BTreeMap<String, BTreeMap<(TypeKey, &str), String>> = BTreeMap::new();
        // Built-in sets contain several versions on purpose.
        let sets = registry::type_sets();
        let is_built_in = |known: &KnownType| {
            let file = known.file.as_deref();
            file.is_some_and(|file| sets.iter().any(|set| file.starts_with(set.name)))
        };
        for known in types.iter().filter(|known| !is_built_in(known)) {
            let (name, key) = (known.message_type.name.to_string(), known.message_type.key);
            names.entry(key).or_default().insert(name.clone());
            let version = (key, &*known.message_type.text);
            versions.entry(name).or_default().entry(version).or_insert_with(|| location(known));
        }
        names.retain(|_, names| names.len() > 1);
        versions.retain(|_, versions| versions.len() > 1);
        let places = versions.into_iter();
        let places = places.map(|(name, places)| (name, places.into_values().collect())).collect();
        Self { names, places }
    }

    fn warn(&self, shell: &Shell) {
        for (key, names) in &self.names {
            shell.warn(&format!(
                "{} share the fingerprint {key}: messages are decoded as the first, unless --type \
                 (`channel_types` of `decode`) says otherwise",
                first_few(names.iter().map(String::as_str), " and ")
            ));
        }
        for (name, places) in &self.places {
            let places = first_few(places.iter().map(String::as_str), ", ");
            shell.warn(&format!("{name} has several versions: {places}"));
        }
    }
}

/// Lists the first few words, and how many follow.
fn first_few<'w>(words: impl ExactSizeIterator<Item = &'w str>, between: &str) -> String {
    const FEW: usize = 8;
    let more = words.len().saturating_sub(FEW);
    let text = words.take(FEW).collect::<Vec<_>>().join(between);
    if more == 0 { text } else { format!("{text} and {more} more") }
}

fn location(known: &KnownType) -> String {
    let file = known.file.as_deref().unwrap_or(Path::new("built in"));
    format!("{}:{}", file.display(), known.line)
}

fn json(known: &KnownType, clashes: &Clashes) -> Value {
    let KnownType { message_type: described, file, line, payload_type: form } = known;
    let name = &*described.name;
    let mut object = json!({
        "name": name,
        "fingerprint": described.key.to_string(),
        "file": file.as_deref().map(path_text),
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
    /// Longer names are not clipped, but do not widen the column.
    const WIDEST: usize = 100;
    let names = types.iter().map(|known| width(&printable(&known.message_type.name)));
    let column_width = names.max().unwrap_or(0).min(WIDEST);
    let mut text = String::new();
    for known in types {
        let described = &known.message_type;
        let unfit = known.payload_type.as_ref().err().map(|why| format!("  (not decoded: {why})"));
        // Writing to a string does not fail.
        let _written = writeln!(
            text,
            "{}  {}  {}{}",
            described.key,
            padded(&described.name, column_width),
            printable(&location(known)),
            printable_sentence(&unfit.unwrap_or_default())
        );
    }
    text
}

/// A name, padded to the width of its column.
fn padded(name: &str, column_width: usize) -> String {
    let name = printable(name);
    let blanks = column_width.saturating_sub(width(&name));
    format!("{name}{:blanks$}", "")
}
