//! Source `rosbag2`: a folder that ROS 2 has recorded. Its `metadata.yaml` names the parts, and
//! their storage, whose source reads them; without one, the names of files tell both.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};
use std::sync::OnceLock;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use sluice_io::files;
use sluice_model::options::{self, InPaths};
use sluice_model::{
    Error, Input, OptionsError, PluginFactory, Query, ReadContext, Reader, Registry, SniffResult,
    Source, Split, SplitStart,
};

use crate::db3;

/// The file that describes a bag.
const METADATA: &str = "metadata.yaml";
/// The longest that is read.
const MAX_METADATA: usize = 16 << 20;
/// The storages of parts, and the sources that read them.
const STORAGES: [(&str, &str); 2] = [("mcap", "mcap"), ("sqlite3", "ros2-db3")];

/// Options of `rosbag2`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rosbag2Options {
    /// The folder of a bag, a glob, or a list of them, read in this order.
    #[serde(deserialize_with = "InPaths::without_stdin")]
    path: InPaths,
}

/// Reads bags of ROS 2.
pub struct Rosbag2 {
    options: Rosbag2Options,
    registry: Registry,
    opened: OnceLock<OpenedBags>,
}

/// The bags in order, each with its files, and the source of all of them.
struct OpenedBags {
    bags: Vec<(PathBuf, Parts)>,
    source: Box<dyn Source>,
}

sluice_model::register! {
    source "rosbag2": Rosbag2Options,
    make: PluginFactory::Source(make),
    about: "reads folders that ROS 2 has recorded, as MCAP or in SQLite",
    sample: include_str!("../samples/rosbag2.toml"),
    sniff_path: sniff_path,
    types: &["embedded"],
    sensors_share_names: true,
}

fn make(value: Value, registry: &Registry) -> Result<Box<dyn Source>, OptionsError> {
    let (options, registry) = (options::read(value)?, registry.clone());
    Ok(Box::new(Rosbag2 { options, registry, opened: OnceLock::new() }))
}

fn sniff_path(path: &Path) -> Result<SniffResult, Error> {
    if !files::is_folder(path) {
        return Ok(SniffResult::No);
    }
    let file = path.join(METADATA);
    let is_bag = files::is_file(&file) && {
        let head = files::head(&file, 512)?;
        String::from_utf8_lossy(&head).contains("rosbag2_bagfile_information")
    };
    Ok(match is_bag {
        true => SniffResult::Yes,
        false if interrupted_parts(path).is_some() => SniffResult::Maybe,
        false => SniffResult::No,
    })
}

impl Rosbag2 {
    /// The bags, in order: the description of each, or the folder of one that has none.
    fn bags(&self) -> Result<Vec<PathBuf>, Error> {
        let mut bags = Vec::new();
        for path in &self.options.path.0 {
            let is_description = path.ends_with(METADATA);
            let file = if is_description { path.clone() } else { path.join(METADATA) };
            let mut found = files::folders(path)?;
            found.retain(|folder| interrupted_parts(folder).is_some());
            match files::expand(&[file]) {
                Ok(described) => found.extend(described.into_iter().map(|input| input.path)),
                Err(error) if found.is_empty() => return Err(error),
                Err(_) => {}
            }
            found.sort();
            bags.extend(found);
        }
        Ok(bags)
    }

    /// The bags with their files, which are looked for once only.
    fn opened(&self) -> Result<&OpenedBags, Error> {
        if self.opened.get().is_none() {
            let (mut source, mut paths, mut bags) = (None, Vec::new(), Vec::new());
            for path in self.bags()? {
                let parts = parts_of(&path)?;
                if *source.get_or_insert(parts.source) != parts.source {
                    return Err(Error::refused(format!(
                        "these bags have different storages; read them as two sources: {}",
                        path.display()
                    )));
                }
                paths.extend_from_slice(&parts.paths);
                bags.push((path, parts));
            }
            let source = source.unwrap_or_default();
            let made = self.registry.source(source, json!({ "path": paths }));
            let made = made.map_err(|e| Error::refused(e.to_string()))?;
            // Another thread may have made the same.
            self.opened.get_or_init(|| OpenedBags { bags, source: made });
        }
        self.opened.get().ok_or_else(|| Error::internal("the parts of a bag were made"))
    }

    /// The source of all parts.
    fn parts(&self) -> Result<&dyn Source, Error> {
        Ok(&*self.opened()?.source)
    }

    /// The bag of which this is the first file.
    fn bag_from(&self, first: &Path) -> Result<Option<&(PathBuf, Parts)>, Error> {
        let is_first =
            |(_, parts): &&(PathBuf, Parts)| parts.paths.first().is_some_and(|it| it == first);
        Ok(self.opened()?.bags.iter().find(is_first))
    }

    /// What is wrong if the parts of a bag have other messages than its description counts.
    fn count_fault(
        &self,
        described: &Metadata,
        parts: &[PathBuf],
    ) -> Result<Option<String>, Error> {
        let mut found = 0;
        for part in parts {
            let Some(count) = self.parts()?.events_in(part)? else { return Ok(None) };
            found += count;
        }
        let expected = described.messages.filter(|expected| *expected != found);
        Ok(expected.map(|expected| {
            format!("{METADATA} counts {expected} messages, but the files have {found}")
        }))
    }
}

/// The files of a bag, and the source that reads them.
#[derive(Debug, PartialEq, Eq)]
struct Parts {
    source: &'static str,
    paths: Vec<PathBuf>,
}

/// The files of a bag, of its description or of the folder if it has none.
fn parts_of(bag: &Path) -> Result<Parts, Error> {
    match interrupted_parts(bag) {
        Some(parts) => Ok(parts),
        None => Metadata::read(bag)?.parts(bag),
    }
}

/// The files of a bag whose recording was interrupted, so that nothing describes it: `NAME_0.db3`,
/// `NAME_1.db3` and so on, or in MCAP. `None` if there is a description, if they are of several
/// bags, or if the first of them is none of a bag.
fn interrupted_parts(folder: &Path) -> Option<Parts> {
    if files::exists(&folder.join(METADATA)) {
        return None;
    }
    let (mut bag, mut paths) = (None, BTreeMap::new());
    for entry in std::fs::read_dir(folder).ok()? {
        let path = entry.ok()?.path();
        // One that was completed may be compressed, and decompressed beside that.
        let packed = unpacked(&path);
        let plain = packed.as_ref().unwrap_or(&path);
        let source = match plain.extension().and_then(OsStr::to_str) {
            Some("db3") => "ros2-db3",
            Some("mcap") => "mcap",
            _ => continue,
        };
        if !files::is_file(&path) {
            continue;
        }
        let (name, number) = plain.file_stem()?.to_str()?.rsplit_once('_')?;
        let key: (u64, String) = (number.parse().ok()?, number.to_owned());
        if *bag.get_or_insert_with(|| (source, name.to_owned())) != (source, name.to_owned()) {
            return None;
        }
        if packed.is_none() || !paths.contains_key(&key) {
            paths.insert(key, path);
        }
    }
    let (source, _) = bag?;
    let ((number, _), first) = paths.first_key_value()?;
    let is_bag = *number == 0 && is_bag(source, first).unwrap_or_default();
    is_bag.then(|| Parts { source, paths: paths.into_values().collect() })
}

/// Whether the first part of what may be a bag is that of one.
fn is_bag(source: &str, first: &Path) -> Result<bool, Error> {
    if source == "ros2-db3" {
        return db3::is_bag(first);
    }
    // Behind the magic, a header of some length begins with the profile.
    let head = files::head(first, 25)?;
    Ok(head.starts_with(b"\x89MCAP0\r\n\x01") && head.ends_with(b"\x04\0\0\0ros2"))
}

/// The path of a compressed part once it is decompressed; `None` if it is not compressed.
fn unpacked(part: &Path) -> Option<PathBuf> {
    part.extension().is_some_and(|extension| extension == "zstd").then(|| part.with_extension(""))
}

/// What is wrong if some of the parts of a bag that nothing describes are missing.
fn gap(parts: &[PathBuf]) -> Option<String> {
    let number = |part: &PathBuf| {
        let plain = unpacked(part).unwrap_or_else(|| part.clone());
        plain.file_stem()?.to_str()?.rsplit_once('_')?.1.parse().ok()
    };
    let numbers: BTreeSet<u64> = parts.iter().filter_map(number).collect();
    let missing = (0..).zip(&numbers).find(|(expected, number)| expected != *number)?.0;
    let (last, count) = (numbers.last()?, numbers.len());
    Some(format!("the bag has {count} files, up to number {last}: number {missing} is missing"))
}

/// What is wrong if there are files like the parts of a bag that its description does not list.
fn unlisted(description: &Path, parts: &[PathBuf]) -> Option<String> {
    let extension = parts.first()?.extension()?;
    let folder = std::fs::read_dir(description.parent()?).ok()?;
    let is_like = |path: &PathBuf| path.extension() == Some(extension) && !parts.contains(path);
    let mut names: Vec<String> = folder
        .filter_map(|entry| Some(entry.ok()?.path()).filter(is_like))
        .filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned()))
        .collect();
    names.sort();
    let first = names.first()?;
    let count = names.len();
    Some(format!("{METADATA} does not list {count} of the files, such as {first}: not read"))
}

/// What is needed of a bag's description.
#[derive(Debug, Default, PartialEq, Eq)]
struct Metadata {
    storage: String,
    compression_mode: String,
    parts: Vec<String>,
    /// The number of messages in all parts.
    messages: Option<u64>,
}

impl Metadata {
    fn read(description: &Path) -> Result<Self, Error> {
        let text = files::head(description, MAX_METADATA)?;
        Ok(Self::parse(&String::from_utf8_lossy(&text)))
    }

    /// Finds the keys in the text, which programs write in a few forms only.
    fn parse(text: &str) -> Self {
        let mut metadata = Self::default();
        let indent = |line: &str| line.len() - line.trim_start().len();
        let is_key = |line: &&str| line.trim_start().starts_with("storage_identifier:");
        let indent_of_keys = text.lines().find(is_key).map_or(0, indent);
        let mut lines = text.lines().peekable();
        while let Some(line) = lines.next() {
            let Some((key, value)) = line.trim().split_once(':') else { continue };
            match key {
                "storage_identifier" => metadata.storage = plain(value),
                "compression_mode" => metadata.compression_mode = plain(value),
                // Those of parts and topics are further to the right.
                "message_count" if indent(line) <= indent_of_keys => {
                    metadata.messages = plain(value).parse().ok();
                }
                "relative_file_paths" if metadata.parts.is_empty() => {
                    let inline = value.trim().strip_prefix('[').and_then(|v| v.strip_suffix(']'));
                    let inline = inline.into_iter().flat_map(|all| all.split(','));
                    metadata.parts.extend(inline.map(plain).filter(|part| !part.is_empty()));
                    let next = |line: &&str| line.trim_start().starts_with("- ");
                    while let Some(line) = lines.next_if(next) {
                        metadata.parts.push(plain(line.trim_start().trim_start_matches("- ")));
                    }
                }
                _ => {}
            }
        }
        metadata
    }

    /// The files of the bag that this file describes.
    fn parts(&self, file: &Path) -> Result<Parts, Error> {
        let shown = file.display();
        let folder = file.parent().unwrap_or(Path::new("."));
        let known = STORAGES.iter().find(|(storage, _)| *storage == self.storage);
        let Some((_, source)) = known else {
            let found = &self.storage;
            return Err(Error::refused(format!(
                "expected a bag with `storage_identifier: mcap` or `sqlite3`, found `{found}`: \
                 {shown}"
            )));
        };
        if self.compression_mode.eq_ignore_ascii_case("message") {
            return Err(Error::refused(format!(
                "the messages of the bag are compressed one by one, which is not supported; \
                 convert it with ros2 bag convert: {shown}"
            )));
        }
        if self.parts.is_empty() {
            return Err(Error::refused(format!("the bag has no parts: {shown}")));
        }
        let paths = self.parts.iter().map(|part| locate(folder, part));
        let paths = paths.collect::<Result<Vec<_>, _>>()?;
        let mut before = BTreeSet::new();
        if let Some(twice) = paths.iter().find(|path| !before.insert(*path)) {
            let twice = twice.display();
            return Err(Error::refused(format!("a part is listed twice, as {twice}: {shown}")));
        }
        Ok(Parts { source, paths })
    }
}

/// The value of a key, without quotes.
fn plain(value: &str) -> String {
    value.trim().trim_matches(['"', '\'']).to_owned()
}

/// The file of a part. Old versions put the name of the folder before it.
fn locate(folder: &Path, part: &str) -> Result<PathBuf, Error> {
    let part = Path::new(part);
    if !part.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir)) {
        let (part, folder) = (part.display(), folder.display());
        return Err(Error::refused(format!("a part is not in its bag: {part}: {folder}")));
    }
    let path = folder.join(part);
    let beside = part.file_name().map(|name| folder.join(name));
    // One that was decompressed is still listed as it was.
    let others = [unpacked(&path), beside].into_iter().flatten();
    if files::exists(&path) {
        return Ok(path);
    }
    Ok(others.fold(path, |path, other| if files::exists(&other) { other } else { path }))
}

impl Source for Rosbag2 {
    fn is_undecoded(&self) -> bool {
        true
    }

    fn inputs(&self) -> Result<Vec<Input>, Error> {
        self.parts()?.inputs()
    }

    fn logs(&self) -> Result<Vec<Input>, Error> {
        let each = self.bags()?.into_iter().map(|bag| {
            // Reading reports what is wrong with a bag.
            let parts = parts_of(&bag).and_then(|parts| files::expand(&parts.paths));
            let bytes = parts.ok().and_then(|parts| parts.iter().map(|part| part.bytes).sum());
            let folder = if bag.ends_with(METADATA) { bag.parent() } else { Some(&*bag) };
            let folder = folder.filter(|folder| !folder.as_os_str().is_empty());
            Ok(Input { path: folder.unwrap_or(Path::new(".")).to_owned(), bytes })
        });
        each.collect()
    }

    fn files(&self) -> Result<Vec<Input>, Error> {
        let bags = self.opened()?.bags.iter().map(|(bag, _)| bag);
        let described: Vec<_> = bags.filter(|bag| bag.ends_with(METADATA)).cloned().collect();
        Ok([self.parts()?.files()?, files::expand(&described)?].concat())
    }

    fn splits(&self, target: u64, query: &Query) -> Result<Vec<Split>, Error> {
        self.parts()?.splits(target, query)
    }

    fn events_in(&self, input: &Path) -> Result<Option<u64>, Error> {
        self.parts()?.events_in(input)
    }

    fn findings(&self, input: &Path) -> Result<Vec<String>, Error> {
        let mut findings = self.parts()?.findings(input)?;
        if let Some((bag, parts)) = self.bag_from(input)?
            && !bag.ends_with(METADATA)
        {
            findings.push(format!(
                "the bag has no {METADATA}, because its recording was interrupted: files are read \
                 in the order of their numbers"
            ));
            findings.extend(gap(&parts.paths));
        }
        Ok(findings)
    }

    /// Those of a part; of the first one also those of the bag as a whole.
    fn faults(&self, input: &Path) -> Result<Vec<String>, Error> {
        let mut faults = self.parts()?.faults(input)?;
        match self.bag_from(input)? {
            Some((path, parts)) if path.ends_with(METADATA) => {
                faults.extend(self.count_fault(&Metadata::read(path)?, &parts.paths)?);
                faults.extend(unlisted(path, &parts.paths));
            }
            Some((_, parts)) => faults.extend(gap(&parts.paths)),
            None => {}
        }
        Ok(faults)
    }

    fn read<'s>(
        &'s self,
        split: &Split,
        entry: SplitStart,
        context: &ReadContext,
    ) -> Result<Box<dyn Reader + 's>, Error> {
        self.parts()?.read(split, entry, context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "rosbag2_bagfile_information:\n  version: 5\n  \
        storage_identifier: mcap\n  relative_file_paths:\n    - \"a_0.mcap\"\n    - a_1.mcap\n  \
        compression_format: \"\"\n  compression_mode: \"\"\n  files:\n    - path: a_0.mcap\n      \
        message_count: 3\n  \
        message_count: 7\n  topics_with_message_count:\n    - message_count: 7\n";

    #[test]
    fn metadata_names_the_parts() {
        let metadata = Metadata::parse(TEXT);
        assert_eq!(metadata.parts, ["a_0.mcap", "a_1.mcap"]);
        assert_eq!(metadata.messages, Some(7));
        let found = metadata.parts(Path::new("bag/metadata.yaml")).unwrap();
        let paths = ["bag/a_0.mcap", "bag/a_1.mcap"].map(PathBuf::from).to_vec();
        assert_eq!(found, Parts { source: "mcap", paths });
        let text = TEXT.replace("mcap", "db3").replace("identifier: db3", "identifier: sqlite3");
        let found = Metadata::parse(&text).parts(Path::new("bag/metadata.yaml")).unwrap();
        assert_eq!((found.source, found.paths.len()), ("ros2-db3", 2));
        let inline = Metadata::parse("relative_file_paths: [bag/a.mcap, 'b.mcap']\n");
        assert_eq!(inline.parts, ["bag/a.mcap", "b.mcap"]);
    }

    #[test]
    fn without_metadata_the_parts_are_found_by_their_numbers() {
        let folder = tempfile::tempdir().unwrap();
        let head = b"\x89MCAP0\r\n\x01\x0c\0\0\0\0\0\0\0\x04\0\0\0ros2";
        let parts = |names: &[&str]| {
            for name in names {
                std::fs::write(folder.path().join(name), head).unwrap();
            }
            let found = interrupted_parts(folder.path())?;
            let names = found.paths.into_iter().map(|path| path.file_name().unwrap().to_owned());
            let names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
            Some((found.source, names.join(" ")))
        };
        let some = |source, names: &str| Some((source, names.to_owned()));
        assert_eq!(parts(&["notes.txt"]), None);
        // Files of several logs have numbers, too, but none is a part.
        assert_eq!(parts(&["a_b_10.mcap", "a_b_9.mcap"]), None);
        std::fs::write(folder.path().join("a_b_0.mcap"), &head[..24]).unwrap();
        assert_eq!(parts(&[]), None);
        let names = "a_b_0.mcap a_b_9.mcap a_b_10.mcap";
        assert_eq!(parts(&["a_b_0.mcap"]), some("mcap", names));
        let packed = ["a_b_11.mcap.zstd", "a_b_9.mcap.zstd", "a_b_11.mcap-wal"];
        let names = "a_b_0.mcap a_b_9.mcap a_b_10.mcap a_b_11.mcap.zstd";
        assert_eq!(parts(&packed), some("mcap", names));
        std::fs::write(folder.path().join(METADATA), "").unwrap();
        assert_eq!(parts(&[]), None);
        std::fs::remove_file(folder.path().join(METADATA)).unwrap();
        assert_eq!(parts(&["other_0.mcap"]), None);
    }

    #[test]
    fn a_gap_in_the_numbers_is_a_fault() {
        let gap = |names: &[&str]| gap(&names.iter().map(PathBuf::from).collect::<Vec<_>>());
        assert_eq!(gap(&["b_0.db3", "b_1.db3.zstd", "b_2.db3"]), None);
        let found = gap(&["b_0.db3", "b_1.db3", "b_18446744073709551615.db3"]).unwrap();
        assert!(found.ends_with("number 2 is missing"), "{found}");
    }

    #[test]
    fn what_cannot_be_read_says_why() {
        for (from, to, why) in [
            ("identifier: mcap", "identifier: other", "found `other`"),
            ("mode: \"\"", "mode: MESSAGE", "one by one"),
            ("a_1.mcap", "/etc/passwd", "not in its bag"),
            ("a_1.mcap", "../b.mcap", "not in its bag"),
            ("a_1.mcap", "a_0.mcap", "listed twice"),
            ("relative_file_paths", "paths", "no parts"),
        ] {
            let metadata = Metadata::parse(&TEXT.replace(from, to));
            let error = metadata.parts(Path::new("bag/metadata.yaml")).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
