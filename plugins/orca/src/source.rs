//! Source `orca`: masters and their subfiles, split by the lines of the master.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sluice_io::files::{self, InputContent};
use sluice_model::options::InPaths;
use sluice_model::{
    Encoding, Error, Input, LogPayloads, Query, ReadContext, Reader, SniffResult, Source, Split,
    SplitStart,
};

use crate::log::{LogOptions, OrcaLog, master_of};
use crate::master;
use crate::reader::OrcaReader;
use crate::subfile::{ByteOrder, RecordPrefix};

/// Reads logs of the Orca robotics project, 2006 to 2010.
///
/// Events are in the order of the master's lines, after the configuration. Lines whose event cannot
/// be read are skipped and reported.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Orca {
    /// The masters: a file, a glob, or a list of them. Their subfiles are found beside them.
    #[serde(deserialize_with = "InPaths::without_stdin")]
    path: InPaths,
    /// The number of configuration records at the start of a subfile, by the subfile's name.
    /// Detected from the interface and the file by default.
    #[serde(default)]
    config_records: BTreeMap<String, u64>,
    /// The prefix of each record in subfiles: `u32`, `u64`, `id-u32` or `id-u64`. Detected from
    /// each file by default.
    #[serde(default)]
    subfile_prefix: Option<PrefixWord>,
    /// Whether the recording machine wrote the lengths of records big-endian.
    #[serde(default)]
    big_endian: bool,
    /// Whether to read subfiles that are marked as disabled: `read` or `skip`.
    #[serde(default)]
    disabled: DisabledSubfiles,
    /// Opened logs: subfiles are indexed once for all splits.
    #[serde(skip)]
    #[schemars(skip)]
    logs: Mutex<BTreeMap<PathBuf, Arc<OrcaLog>>>,
}

/// The prefix of a record: its length, with or without an id byte before it.
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

/// Whether disabled subfiles are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "Disabled")]
enum DisabledSubfiles {
    #[default]
    Read,
    Skip,
}

sluice_model::register! {
    source "orca": Orca,
    about: "reads logs of the Orca robotics project: a master file and its subfiles",
    sample: include_str!("../samples/orca-source.toml"),
    extensions: &["orca"],
    sniff: sniff,
    index_of: master_of,
    types: &["orca"],
    payloads: Some(payloads),
    sensors_share_names: true,
    when_played: &[("disabled", "\"skip\"")],
}

fn sniff(head: &[u8]) -> SniffResult {
    match master::looks_like_master(head) {
        (true, _) => SniffResult::Yes,
        (false, true) => SniffResult::Maybe,
        (false, false) => SniffResult::No,
    }
}

/// What the header of a master tells of payloads that are none of Orca: those of other formats, of
/// which the log was made.
fn payloads(path: &Path) -> Result<LogPayloads, Error> {
    let mut encodings = OrcaLog::open(path, &LogOptions::default())?.encodings();
    encodings.retain(|one| !matches!(one, Encoding::Ice | Encoding::Text | Encoding::Unknown));
    Ok(LogPayloads { encodings, declare_types: false })
}

impl Orca {
    fn log_options(&self) -> LogOptions {
        let prefix = self.subfile_prefix.map(|word| match word {
            PrefixWord::U32 => RecordPrefix::default(),
            PrefixWord::U64 => RecordPrefix { wide: true, ..RecordPrefix::default() },
            PrefixWord::IdU32 => RecordPrefix { id: true, ..RecordPrefix::default() },
            PrefixWord::IdU64 => RecordPrefix { id: true, wide: true, ..RecordPrefix::default() },
        });
        LogOptions {
            config_records: self.config_records.clone(),
            prefix,
            order: if self.big_endian { ByteOrder::Big } else { ByteOrder::Little },
            skip_disabled: self.disabled == DisabledSubfiles::Skip,
        }
    }

    /// The log whose master is at `path`, opened once.
    fn log(&self, path: &Path) -> Result<Arc<OrcaLog>, Error> {
        let mut opened = self.logs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(log) = opened.get(path) {
            return Ok(Arc::clone(log));
        }
        let log = Arc::new(OrcaLog::open(path, &self.log_options())?);
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
                "a master has to be a file in the folder of its subfiles, and not a stream: {}",
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
                log.readable_subfiles()
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
            cut_splits(&log, bytes.unwrap_or(0), target, &mut splits);
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

/// The minimum bytes of a master per split: about a line.
const MIN_SPLIT: u64 = 24;
/// The maximum bytes of a master per split: each of its lines may be damage, which takes memory.
const MAX_SPLIT: u64 = 256 << 10;
/// The maximum number of splits of a master.
const MAX_SPLITS: u64 = 64 << 10;

/// Cuts a master into splits with about `target` bytes of events each, assuming lines and objects
/// of equal length.
fn cut_splits(log: &OrcaLog, len: u64, target: u64, splits: &mut Vec<Split>) {
    let events = log.readable_subfiles().map(|(_, len)| len).fold(0, u64::saturating_add);
    let all = u128::from(events.saturating_add(len)).max(1);
    let begin = log.header.data_start.min(len);
    let lines = len - begin;
    let share = |bytes: u64| {
        u64::try_from(u128::from(bytes) * all / u128::from(len.max(1))).unwrap_or(u64::MAX)
    };
    let span = u64::try_from(u128::from(target) * u128::from(len) / all).unwrap_or(u64::MAX);
    let span = span.max(MIN_SPLIT).max(lines / MAX_SPLITS).min(MAX_SPLIT.max(lines / MAX_SPLITS));
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
