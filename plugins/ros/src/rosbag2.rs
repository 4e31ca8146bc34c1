//! Source `rosbag2`: a folder that ROS 2 has recorded. Its `metadata.yaml` names the parts, which
//! the source `mcap` reads.

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

/// The file that describes a bag.
const METADATA: &str = "metadata.yaml";
/// The longest that is read.
const MAX_METADATA: usize = 16 << 20;
/// The source of the parts.
const PARTS: &str = "mcap";

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
    parts: OnceLock<Box<dyn Source>>,
}

sluice_model::register! {
    source "rosbag2": Rosbag2Options,
    make: PluginFactory::Source(make),
    about: "reads folders that ROS 2 has recorded as MCAP",
    sample: include_str!("../samples/rosbag2.toml"),
    sniff_path: sniff_path,
    types: &["embedded"],
    sensors_share_names: true,
}

fn make(value: Value, registry: &Registry) -> Result<Box<dyn Source>, OptionsError> {
    let (options, registry) = (options::read(value)?, registry.clone());
    Ok(Box::new(Rosbag2 { options, registry, parts: OnceLock::new() }))
}

fn sniff_path(path: &Path) -> Result<SniffResult, Error> {
    let file = path.join(METADATA);
    let is_bag = files::is_folder(path) && files::is_file(&file) && {
        let head = files::head(&file, 512)?;
        String::from_utf8_lossy(&head).contains("rosbag2_bagfile_information")
    };
    Ok(if is_bag { SniffResult::Yes } else { SniffResult::No })
}

impl Rosbag2 {
    /// The descriptions of the bags, in order.
    fn descriptions(&self) -> Result<Vec<Input>, Error> {
        let file = |path: &PathBuf| match path.ends_with(METADATA) {
            true => path.clone(),
            false => path.join(METADATA),
        };
        files::expand(&self.options.path.0.iter().map(file).collect::<Vec<_>>())
    }

    /// The source of all parts.
    fn parts(&self) -> Result<&dyn Source, Error> {
        if self.parts.get().is_none() {
            let described = self.descriptions()?;
            let each = described.iter().map(|file| parts_of(&file.path));
            let parts = each.collect::<Result<Vec<_>, _>>()?.concat();
            let made = self.registry.source(PARTS, json!({ "path": parts }));
            let made = made.map_err(|e| Error::refused(e.to_string()))?;
            // Another thread may have made the same.
            self.parts.get_or_init(|| made);
        }
        let made = self.parts.get().map(|parts| &**parts);
        made.ok_or_else(|| Error::internal("the parts of a bag were made"))
    }
}

/// The files of the bag that this file describes.
fn parts_of(description: &Path) -> Result<Vec<PathBuf>, Error> {
    let text = files::head(description, MAX_METADATA)?;
    Metadata::parse(&String::from_utf8_lossy(&text)).parts(description)
}

/// What is needed of a bag's description.
#[derive(Debug, Default, PartialEq, Eq)]
struct Metadata {
    storage: String,
    compression_mode: String,
    parts: Vec<String>,
}

impl Metadata {
    /// Finds the keys in the text, which programs write in a few forms only.
    fn parse(text: &str) -> Self {
        let mut metadata = Self::default();
        let mut lines = text.lines().peekable();
        while let Some(line) = lines.next() {
            let Some((key, value)) = line.trim().split_once(':') else { continue };
            match key {
                "storage_identifier" => metadata.storage = plain(value),
                "compression_mode" => metadata.compression_mode = plain(value),
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
    fn parts(&self, file: &Path) -> Result<Vec<PathBuf>, Error> {
        let shown = file.display();
        let folder = file.parent().unwrap_or(Path::new("."));
        if self.storage == "sqlite3" {
            return Err(Error::refused(format!(
                "the bag is stored in SQLite, which this program does not read; convert it to \
                 MCAP: rosbags-convert --src {0} --dst {0}-mcap --dst-storage mcap (PyPI rosbags), \
                 or ros2 bag convert: {shown}",
                folder.display()
            )));
        }
        if self.storage != "mcap" {
            let found = &self.storage;
            return Err(Error::refused(format!(
                "expected a bag with `storage_identifier: mcap`, found `{found}`: {shown}"
            )));
        }
        if self.compression_mode.eq_ignore_ascii_case("message") {
            return Err(Error::refused(format!(
                "the messages of the bag are compressed one by one, which is not supported; \
                 convert it with ros2 bag convert: {shown}"
            )));
        }
        if self.parts.is_empty() {
            return Err(Error::refused(format!("the bag has no parts: {shown}")));
        }
        self.parts.iter().map(|part| locate(folder, part)).collect()
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
    match part.file_name() {
        Some(name) if !files::exists(&path) => Ok(folder.join(name)),
        _ => Ok(path),
    }
}

impl Source for Rosbag2 {
    fn is_undecoded(&self) -> bool {
        true
    }

    fn inputs(&self) -> Result<Vec<Input>, Error> {
        self.parts()?.inputs()
    }

    fn logs(&self) -> Result<Vec<Input>, Error> {
        let each = self.descriptions()?.into_iter().map(|Input { path, .. }| {
            // Reading reports what is wrong with a bag.
            let parts = parts_of(&path).and_then(|parts| files::expand(&parts));
            let bytes = parts.ok().and_then(|parts| parts.iter().map(|part| part.bytes).sum());
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            Ok(Input { path: folder.unwrap_or(Path::new(".")).to_owned(), bytes })
        });
        each.collect()
    }

    fn files(&self) -> Result<Vec<Input>, Error> {
        Ok([self.inputs()?, self.descriptions()?].concat())
    }

    fn splits(&self, target: u64, query: &Query) -> Result<Vec<Split>, Error> {
        self.parts()?.splits(target, query)
    }

    fn events_in(&self, input: &Path) -> Result<Option<u64>, Error> {
        self.parts()?.events_in(input)
    }

    fn findings(&self, input: &Path) -> Result<Vec<String>, Error> {
        self.parts()?.findings(input)
    }

    fn faults(&self, input: &Path) -> Result<Vec<String>, Error> {
        self.parts()?.faults(input)
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
        compression_format: \"\"\n  compression_mode: \"\"\n  files:\n    - path: a_0.mcap\n";

    #[test]
    fn metadata_names_the_parts() {
        let metadata = Metadata::parse(TEXT);
        assert_eq!(metadata.parts, ["a_0.mcap", "a_1.mcap"]);
        let found = metadata.parts(Path::new("bag/metadata.yaml")).unwrap();
        assert_eq!(found, [Path::new("bag/a_0.mcap"), Path::new("bag/a_1.mcap")]);
        let inline = Metadata::parse("relative_file_paths: [bag/a.mcap, 'b.mcap']\n");
        assert_eq!(inline.parts, ["bag/a.mcap", "b.mcap"]);
    }

    #[test]
    fn what_cannot_be_read_says_why() {
        for (from, to, why) in [
            ("identifier: mcap", "identifier: sqlite3", "rosbags-convert"),
            ("identifier: mcap", "identifier: other", "found `other`"),
            ("mode: \"\"", "mode: MESSAGE", "one by one"),
            ("a_1.mcap", "/etc/passwd", "not in its bag"),
            ("a_1.mcap", "../b.mcap", "not in its bag"),
            ("relative_file_paths", "paths", "no parts"),
        ] {
            let metadata = Metadata::parse(&TEXT.replace(from, to));
            let error = metadata.parts(Path::new("bag/metadata.yaml")).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
