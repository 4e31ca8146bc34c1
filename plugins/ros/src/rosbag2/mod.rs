//! Source `rosbag2`: a folder that ROS 2 has recorded. Its `metadata.yaml` names the parts, and
//! their storage, whose source reads them; without one, the names of files tell both.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use sluice_io::escape::escaped_path;
use sluice_io::files;
use sluice_model::options::{self, InPaths};
use sluice_model::{
    Error, Input, OptionsError, PluginFactory, Query, ReadContext, Reader, Registry, SniffResult,
    Source, Split, SplitStart,
};

mod description;
mod interrupted;

use description::{METADATA, Metadata, Parts, folder_of, is_description, unlisted};
use interrupted::{gap, interrupted_parts};

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
    sample: include_str!("../../samples/rosbag2.toml"),
    sniff_path: sniff_path,
    refusal: refusal,
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
    let is_bag = files::is_file(&file) && is_description(&files::head(&file, 512)?);
    Ok(match is_bag {
        true => SniffResult::Yes,
        false if interrupted_parts(path).is_some() => SniffResult::Maybe,
        false => SniffResult::No,
    })
}

/// Why the file that describes a bag is no log.
fn refusal(head: &[u8]) -> Option<&'static str> {
    is_description(head).then_some(
        "it describes a bag of ROS 2; pass the folder that it is in, and the files that it lists \
         are read",
    )
}

impl Rosbag2 {
    /// The bags, in order: the description of each, or the folder of one that has none, or one
    /// that lists no files.
    fn bags(&self) -> Result<Vec<PathBuf>, Error> {
        let mut bags = Vec::new();
        for path in &self.options.path.0 {
            let mut found = files::folders(path)?;
            found.retain(|folder| interrupted_parts(folder).is_some());
            match files::expand(&[description_of(path)]) {
                Ok(described) => {
                    found.extend(described.into_iter().map(|input| bag_of(input.path)))
                }
                Err(error) if found.is_empty() => return Err(error),
                Err(_) => {}
            }
            found.sort();
            found.dedup();
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

/// The bag that this file describes: the folder if nothing is listed in there.
fn bag_of(description: PathBuf) -> PathBuf {
    let folder = folder_of(&description);
    if interrupted_parts(folder).is_some() { folder.to_owned() } else { description }
}

/// The file that describes a bag, which may be missing.
fn description_of(bag: &Path) -> PathBuf {
    if bag.ends_with(METADATA) { bag.to_owned() } else { bag.join(METADATA) }
}

fn bag_folder(bag: &Path) -> &Path {
    if bag.ends_with(METADATA) { folder_of(bag) } else { bag }
}

/// Why the files of a bag are not those that a description lists; `None` if they are.
fn undescribed(bag: &Path) -> Option<String> {
    if bag.ends_with(METADATA) {
        return None;
    }
    let why = match files::exists(&description_of(bag)) {
        true => format!("{METADATA} lists no files, as if it were cut off"),
        false => format!("the bag has no {METADATA}, because its recording was interrupted"),
    };
    Some(format!("{why}: files are read in the order of their numbers"))
}

/// What is wrong if the description of a bag is cut off, or if it has files that are not read, or
/// lacks some.
fn incomplete(bag: &Path, parts: &[PathBuf]) -> impl Iterator<Item = String> {
    let cut = undescribed(bag).filter(|_| files::exists(&description_of(bag)));
    let files = if bag.ends_with(METADATA) { unlisted(bag, parts) } else { gap(parts) };
    cut.into_iter().chain(files)
}

/// The files of a bag, of its description or of the folder if it has none.
fn parts_of(bag: &Path) -> Result<Parts, Error> {
    match interrupted_parts(bag) {
        Some(parts) => Ok(parts),
        None => Metadata::read(bag)?.parts(bag),
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
        let each = self.bags()?.into_iter().map(|bag| {
            // Reading reports what is wrong with a bag.
            let parts = parts_of(&bag).and_then(|parts| files::expand(&parts.paths));
            let bytes = parts.ok().and_then(|parts| parts.iter().map(|part| part.bytes).sum());
            Ok(Input { path: bag_folder(&bag).to_owned(), bytes })
        });
        each.collect()
    }

    fn files(&self) -> Result<Vec<Input>, Error> {
        let described = self.opened()?.bags.iter().map(|(bag, _)| description_of(bag));
        let described: Vec<_> = described.filter(|file| files::exists(file)).collect();
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
        if let Some((bag, _)) = self.bag_from(input)? {
            findings.extend(undescribed(bag));
        }
        Ok(findings)
    }

    /// Those of a part; of the first one also those of the bag as a whole.
    fn faults(&self, input: &Path) -> Result<Vec<String>, Error> {
        let mut faults = self.parts()?.faults(input)?;
        if let Some((bag, parts)) = self.bag_from(input)? {
            if bag.ends_with(METADATA) {
                faults.extend(self.count_fault(&Metadata::read(bag)?, &parts.paths)?);
            }
            faults.extend(incomplete(bag, &parts.paths));
        }
        Ok(faults)
    }

    fn read<'s>(
        &'s self,
        split: &Split,
        entry: SplitStart,
        context: &ReadContext,
    ) -> Result<Box<dyn Reader + 's>, Error> {
        if split.start == 0
            && let Some((bag, parts)) = self.bag_from(&split.input)?
        {
            for what in incomplete(bag, &parts.paths) {
                context.losses.note(format!("{}: {what}", escaped_path(bag_folder(bag))), 0);
            }
        }
        self.parts()?.read(split, entry, context)
    }
}
