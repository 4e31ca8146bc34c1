//! Cases as folders: inputs, a pipeline that reads them, and the events and damage to expect. Knows
//! no format; a case fails with the first line that differs.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

use sluice_kit::contract::{PlainEvent, splits_cover_the_inputs};
use sluice_model::{BlockPool, Registry, Source};
use sluice_pipeline::{Document, PluginInstance};

use crate::engine_run::{self, RUN_CONFIGS};
use crate::kit_plugins::{self, KEEP};
use crate::reading::{ReadBounds, ReadResult, read_all, source_remarks};

/// The pipeline of a case; a folder without one is not a case.
const PIPELINE: &str = "pipeline.toml";
/// What the files of expectations have in common.
const EXPECTED: &str = "expected.";
/// The variable that replaces expectations by what is found.
const BLESS: &str = "BLESS";
/// Sizes of splits and blocks. Splits of a byte are for small inputs.
const SPLITS: [u64; 6] = [1, 7, 40, 100, 1000, u64::MAX];
const BLOCKS: [usize; 3] = [1, 29, 1 << 20];
const MAX_SPLITS: u64 = 2_000;

/// Runs the cases in a folder, one per subfolder.
///
/// A case is a `pipeline.toml` without sinks, the inputs that it names, and what its last node
/// yields: `expected.jsonl`, an event per line with the payload in hexadecimal digits;
/// `expected.damage`; `expected.notes`, with what sources find in their inputs; and
/// `expected.error`, if it fails. A file that is not there expects nothing. `NAME.hex` is `NAME` as
/// hexadecimal digits, with comments after `#`.
///
/// The engine runs each case with several numbers of threads and little memory, and each source is
/// read in splits and blocks of many sizes, with the same result. With `BLESS=1` in the
/// environment, expectations become what is found.
///
/// # Panics
///
/// If the folder has no cases, or if one differs, with the first different line of each.
#[track_caller]
pub fn cases(folder: impl AsRef<Path>) {
    let bless = std::env::var_os(BLESS).is_some();
    let registry = kit_plugins::registry();
    let folders = case_folders(folder.as_ref()).expect("the folder of cases can be read");
    assert!(!folders.is_empty(), "no case in {}", folder.as_ref().display());
    let mut wrong = String::new();
    for case in folders {
        if let Err(difference) = check_case(&case, &registry, bless) {
            _ = write!(wrong, "\n  {}: {difference}", case.display());
        }
    }
    assert!(wrong.is_empty(), "cases differ; {BLESS}=1 accepts what is found:{wrong}");
}

fn case_folders(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder)?.map(|entry| Ok(entry?.path()));
    let mut folders = entries.collect::<io::Result<Vec<PathBuf>>>()?;
    folders.retain(|path| path.join(PIPELINE).exists());
    folders.sort();
    Ok(folders)
}

/// What a case yields, by the name of the file that expects it, if it yields any.
type CaseFiles = BTreeMap<&'static str, String>;

fn check_case(case: &Path, registry: &Registry, bless: bool) -> Result<(), String> {
    let found = run_case(case, registry)?;
    for name in ["error", "damage", "notes", "jsonl"] {
        let path = case.join(format!("{EXPECTED}{name}"));
        let found = found.get(name).map_or("", String::as_str);
        let expected = fs::read_to_string(&path).unwrap_or_default();
        if found == expected {
            continue;
        }
        if !bless {
            return Err(format!("{EXPECTED}{name}, {}", first_difference(&expected, found)));
        }
        let blessed =
            if found.is_empty() { fs::remove_file(&path) } else { fs::write(&path, found) };
        blessed.map_err(|error| format!("{EXPECTED}{name}: {error}"))?;
    }
    Ok(())
}

fn first_difference(expected: &str, found: &str) -> String {
    let (mut expected, mut found) = (expected.lines(), found.lines());
    let mut line = 0;
    loop {
        line += 1;
        let (due, is) = (expected.next(), found.next());
        if due != is || due.is_none() {
            let shown = |text: Option<&str>| text.unwrap_or("nothing").to_owned();
            return format!(
                "line {line}:\n    expected {}\n    found    {}",
                shown(due),
                shown(is)
            );
        }
    }
}

fn run_case(case: &Path, registry: &Registry) -> Result<CaseFiles, String> {
    let failed = |error: io::Error| error.to_string();
    let folder = tempfile::tempdir().map_err(failed)?;
    copy_inputs(case, folder.path()).map_err(failed)?;
    let text = fs::read_to_string(case.join(PIPELINE)).map_err(failed)?;
    let last = last_node(&text)?;
    let document = |place: u64| {
        let sink = format!("[sinks.kept]\nplugin = {KEEP:?}\nfrom = {last:?}\nplace = {place}");
        let file = Some(folder.path().join(PIPELINE));
        let (name, text) = (PIPELINE.to_owned(), format!("{text}\n{sink}\n"));
        Ok(Document { file, ..Document::generated(name, text) })
    };
    let mut whole: Option<(CaseFiles, ReadResult)> = None;
    for limits in RUN_CONFIGS {
        let (read, notes) = engine_run::run_document(document, limits, registry)?;
        let files = case_files(&read, notes, folder.path());
        match &whole {
            Some((first, _)) if *first != files => {
                return Err(format!("{limits:?} threads and MiB: another result"));
            }
            Some(_) => {}
            None => whole = Some((files, read)),
        }
    }
    let (mut files, read) = whole.unwrap_or_default();
    let pipeline = engine_run::read_document(&document(0)?, registry)?;
    let is_only_a_source = pipeline.nodes.len() == 2;
    let mut findings = String::new();
    for node in &pipeline.nodes {
        let PluginInstance::Source(source) = &node.instance else { continue };
        let direct = read_in_pieces(&**source, folder_len(folder.path()))?;
        if is_only_a_source && direct.events.len() != read.events.len() {
            return Err("the engine reads other events".to_owned());
        }
        for finding in source_remarks(&**source) {
            _ = writeln!(findings, "{}: {finding}", node.name);
        }
    }
    if !findings.is_empty() {
        files.entry("notes").or_default().push_str(&findings);
    }
    Ok(files)
}

/// Reads a source in splits and blocks of many sizes, and whole. `Err` names those that differ.
fn read_in_pieces(source: &dyn Source, len: u64) -> Result<ReadResult, String> {
    let bounds = ReadBounds::of_length(usize::try_from(len).unwrap_or(usize::MAX));
    let read = |target, block| read_all(source, target, &BlockPool::new(block, 2), bounds);
    let whole = read(u64::MAX, 1 << 20);
    if whole.error.is_none() {
        splits_cover_the_inputs(source, 60);
    }
    for target in SPLITS.into_iter().filter(|target| len / target <= MAX_SPLITS) {
        for block in BLOCKS {
            if let Some(difference) = whole.difference(&read(target, block)) {
                return Err(format!("splits of {target}, blocks of {block} bytes: {difference}"));
            }
        }
    }
    Ok(whole)
}

/// The files of a case but for its pipeline and its expectations; those in digits as bytes.
fn copy_inputs(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            copy_inputs(&path, &to.join(name))?;
        } else if let Some(name) = name.strip_suffix(".hex") {
            fs::write(to.join(name), bytes_of_hex(&fs::read_to_string(&path)?)?)?;
        } else if name != PIPELINE && !name.starts_with(EXPECTED) {
            fs::copy(&path, to.join(name))?;
        }
    }
    Ok(())
}

fn folder_len(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.metadata().ok()).map(|file| file.len()).sum()
}

/// Bytes as digits, with white space anywhere and comments after `#`.
fn bytes_of_hex(text: &str) -> io::Result<Vec<u8>> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    let digits: Vec<char> = lines.flat_map(str::chars).filter(|c| !c.is_whitespace()).collect();
    let byte = |pair: &[char]| u8::from_str_radix(&String::from_iter(pair), 16);
    digits.chunks(2).map(byte).collect::<Result<_, _>>().map_err(io::Error::other)
}

/// The node that no other one reads.
fn last_node(text: &str) -> Result<String, String> {
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| error.to_string())?;
    let groups = ["sources", "stages"].map(|group| table.get(group)?.as_table());
    let nodes: Vec<(&String, &toml::Value)> = groups.into_iter().flatten().flatten().collect();
    let reads = |node: &toml::Value, name: &str| match node.get("from") {
        Some(toml::Value::Array(list)) => list.iter().any(|from| from.as_str() == Some(name)),
        from => from.and_then(toml::Value::as_str) == Some(name),
    };
    let names = nodes.iter().map(|(name, _)| *name);
    let mut last = names.filter(|name| !nodes.iter().any(|(_, node)| reads(node, name)));
    match (last.next(), last.next()) {
        (Some(name), None) => Ok(name.clone()),
        _ => Err(format!("expected one node in {PIPELINE} that no other reads")),
    }
}

fn case_files(read: &ReadResult, notes: Vec<String>, folder: &Path) -> CaseFiles {
    let plain = |text: &str| text.replace(&format!("{}/", folder.display()), "");
    let damage = read.damage.iter().map(|damage| {
        let (offset, length) = (damage.offset, damage.length);
        plain(&format!("{} {offset}+{length}: {}\n", damage.input, damage.reason))
    });
    let files = [
        ("jsonl", read.events.iter().map(line).collect()),
        ("damage", damage.collect()),
        ("notes", notes.iter().map(|note| plain(note) + "\n").collect()),
        ("error", read.error.iter().map(|error| plain(error) + "\n").collect()),
    ];
    files.into_iter().filter(|(_, text): &(_, String)| !text.is_empty()).collect()
}

/// An event as a line of JSON, with the keys of the sink `jsonl`.
fn line(event: &PlainEvent) -> String {
    let PlainEvent { timestamp, sequence, source, channel, payload } = event;
    let [source, channel] =
        [source, channel].map(|name| serde_json::Value::from(name.as_str()).to_string());
    let payload: String = payload.iter().map(|byte| format!("{byte:02x}")).collect();
    format!(
        "{{\"timestamp_ns\":{timestamp},\"source\":{source},\"channel\":{channel},\
         \"sequence\":{sequence},\"payload\":\"{payload}\"}}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_may_have_comments_and_white_space_and_nothing_else() {
        assert_eq!(bytes_of_hex("# a head\n0a ff00 # three\n\n7f").unwrap(), [10, 255, 0, 127]);
        assert!(bytes_of_hex("0g").is_err());
    }

    #[test]
    fn the_last_node_is_the_one_that_none_reads() {
        let two = "[sources.a]\n[sources.b]\n";
        assert!(last_node(two).is_err());
        assert_eq!(last_node(&format!("{two}[stages.c]\nfrom = [\"a\", \"b\"]")).unwrap(), "c");
        assert_eq!(last_node("[sources.a]\n[stages.c]\nfrom = \"a\"").unwrap(), "c");
    }

    #[test]
    fn a_case_that_differs_shows_where_and_is_blessed_if_asked() {
        let folder = tempfile::tempdir().unwrap();
        let case = |name: &str| folder.path().join(name);
        let pipeline = format!("[sources.nothing]\nplugin = {:?}\n", kit_plugins::NOTHING);
        fs::write(case(PIPELINE), pipeline).unwrap();
        fs::write(case("expected.damage"), "log 0+4: garbage\n").unwrap();
        let check = |bless| check_case(folder.path(), &kit_plugins::registry(), bless);
        let differs = check(false).unwrap_err();
        assert!(differs.contains("expected.damage, line 1"), "{differs}");
        check(true).unwrap();
        check(false).unwrap();
        assert!(!case("expected.damage").exists());
    }

    #[test]
    fn a_difference_shows_its_line() {
        let shown = first_difference("a\nb\n", "a\n");
        assert_eq!(shown, "line 2:\n    expected b\n    found    nothing");
    }
}
