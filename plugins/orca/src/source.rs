//! Source `orca`: masters and what they name, cut into splits by the lines of the master.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};
use sluice_core::files::{self, InputContent};
use sluice_core::options::InPaths;
use sluice_core::{
    Error, Input, Query, ReadContext, Reader, SniffResult, Source, Split, SplitStart,
};

use crate::log::{Choices, Log};
use crate::master;
use crate::reader::OrcaReader;
use crate::subfile::{ByteOrder, Prefix};

/// Reads logs of the Orca robotics project, 2006 to 2010.
///
/// Events come in the order of the master's lines, and configuration before them. Lines that lead nowhere are
/// stepped over and reported.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Orca {
    /// The masters: a file, a glob, or a list of them. Subfiles lie beside them; they are not named here.
    #[serde(deserialize_with = "master_paths")]
    path: InPaths,
    /// How many records at the front of a subfile are configuration, by the subfile's name. Told from the
    /// interface and the file where it is not given.
    #[serde(default)]
    config_records: BTreeMap<String, u64>,
    /// What stands before each record of the subfiles: `u32`, `u64`, `id-u32` or `id-u64`. Told from each file
    /// where it is not given.
    #[serde(default)]
    subfile_prefix: Option<PrefixWord>,
    /// Whether the recording machine wrote the lengths of records big-endian.
    #[serde(default)]
    big_endian: bool,
    /// What becomes of subfiles that are marked as not to be played: `read` or `skip`.
    #[serde(default)]
    disabled: Disabled,
    /// Logs that were opened: subfiles are walked over once for all splits.
    #[serde(skip)]
    #[schemars(skip)]
    opened: Mutex<BTreeMap<PathBuf, Arc<Log>>>,
}

/// What stands before a record: its length, perhaps behind a byte that says what it is.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
enum PrefixWord {
    #[serde(rename = "u32")]
    U32,
    #[serde(rename = "u64")]
    U64,
    #[serde(rename = "id-u32")]
    IdU32,
    #[serde(rename = "id-u64")]
    IdU64,
}

/// What becomes of subfiles that are not to be played.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Disabled {
    #[default]
    Read,
    Skip,
}

sluice_core::register! {
    source "orca": Orca,
    about: "reads logs of the Orca robotics project: a master file and its subfiles",
    sample: include_str!("../samples/orca-source.toml"),
    extensions: &["orca"],
    sniff: sniff,
    types: &["orca"],
    sensors_share_names: true,
    when_played: &[("disabled", "\"skip\"")],
}

/// Paths that may be of masters: subfiles have to lie beside them.
fn master_paths<'de, D: Deserializer<'de>>(deserializer: D) -> Result<InPaths, D::Error> {
    let paths = InPaths::deserialize(deserializer)?;
    if paths.0.iter().any(|path| path == Path::new("-")) {
        return Err(serde::de::Error::custom(
            "a master names files beside it and is read more than once: expected a file in their folder, \
             found `-`, which is standard input",
        ));
    }
    Ok(paths)
}

fn sniff(head: &[u8]) -> SniffResult {
    match master::looks_like(head) {
        (true, _) => SniffResult::Yes,
        (false, true) => SniffResult::Maybe,
        (false, false) => SniffResult::No,
    }
}

impl Orca {
    fn choices(&self) -> Choices {
        let prefix = self.subfile_prefix.map(|word| match word {
            PrefixWord::U32 => Prefix::default(),
            PrefixWord::U64 => Prefix { wide: true, ..Prefix::default() },
            PrefixWord::IdU32 => Prefix { id: true, ..Prefix::default() },
            PrefixWord::IdU64 => Prefix { id: true, wide: true, ..Prefix::default() },
        });
        Choices {
            config_records: self.config_records.clone(),
            prefix,
            order: if self.big_endian { ByteOrder::Big } else { ByteOrder::Little },
            skip_disabled: self.disabled == Disabled::Skip,
        }
    }

    /// The log whose master is at `path`; opened once.
    fn log(&self, path: &Path) -> Result<Arc<Log>, Error> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(log) = opened.get(path) {
            return Ok(Arc::clone(log));
        }
        let log = Arc::new(Log::open(path, &self.choices())?);
        opened.insert(path.to_owned(), Arc::clone(&log));
        Ok(log)
    }
}

impl Source for Orca {
    fn is_undecoded(&self) -> bool {
        true
    }

    fn inputs(&self) -> Result<Vec<Input>, Error> {
        let inputs = files::expand(&self.path.0)?;
        match inputs.iter().find(|input| input.bytes.is_none()) {
            Some(stream) => Err(Error::refused(format!(
                "a master names files beside it and is read more than once; it has to be a file in their \
                 folder: {}",
                stream.path.display()
            ))),
            None => Ok(inputs),
        }
    }

    fn files(&self) -> Result<Vec<Input>, Error> {
        let mut files = Vec::new();
        for master in self.inputs()? {
            let log = self.log(&master.path)?;
            files.push(master);
            files.extend(
                log.present()
                    .map(|(file, len)| Input { path: file.path.clone(), bytes: Some(len) }),
            );
        }
        Ok(files)
    }

    fn splits(&self, target: u64, _query: &Query) -> Result<Vec<Split>, Error> {
        let mut splits = Vec::new();
        let inputs = self.inputs()?;
        files::refuse_foreign(&inputs, InputContent::Marked, "a master file")?;
        for Input { path, bytes } in inputs {
            if files::is_zstd(&path)? {
                splits.push(Split::whole(path, None));
                continue;
            }
            let log = self.log(&path)?;
            cut(&log, bytes.unwrap_or(0), target, &mut splits);
        }
        Ok(splits)
    }

    fn read<'s>(
        &'s self,
        split: &Split,
        entry: SplitStart,
        context: &ReadContext,
    ) -> Result<Box<dyn Reader + 's>, Error> {
        let log = self.log(&split.input)?;
        Ok(Box::new(OrcaReader::open(log, split, entry, context)?))
    }
}

/// The fewest bytes of a master that a split has: about a line.
const FEWEST: u64 = 24;
/// The most bytes of a master that a split has: each of its lines may be damage, which takes memory.
const MOST: u64 = 256 << 10;
/// The most splits of a master, however few bytes of it have however many of subfiles.
const MOST_SPLITS: u64 = 64 << 10;

/// Cuts a master into pieces whose events have about `target` bytes, taking its lines for equally long and its
/// objects, too.
fn cut(log: &Log, len: u64, target: u64, splits: &mut Vec<Split>) {
    let events = log.present().map(|(_, len)| len).fold(0, u64::saturating_add);
    let all = u128::from(events.saturating_add(len)).max(1);
    let begin = log.header.data.min(len);
    let lines = len - begin;
    let share = |bytes: u64| {
        u64::try_from(u128::from(bytes) * all / u128::from(len.max(1))).unwrap_or(u64::MAX)
    };
    let span = u64::try_from(u128::from(target) * u128::from(len) / all).unwrap_or(u64::MAX);
    let span = span.max(FEWEST).max(lines / MOST_SPLITS).min(MOST.max(lines / MOST_SPLITS));
    let mut start = 0;
    let mut end = begin;
    loop {
        end = end.saturating_add(span).min(len);
        splits.push(Split {
            input: log.path.clone(),
            start,
            end: Some(end),
            bytes: Some(share(end - start)),
            live: false,
        });
        if end >= len {
            return;
        }
        start = end;
    }
}
