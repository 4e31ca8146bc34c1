//! A log that can be queried: its source, its types, and what is known of its channels. Before a
//! query runs, only what planning needs is read.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::SystemTime;

use arrow_schema::SchemaRef;
use serde_json::{Value, json};
use sluice_io::files::FileIdentity;
use sluice_kit::event_table::{ChannelLabels, ChannelSchema, TableKind};
use sluice_model::{
    BlockPool, ChannelId, Channels, Error, Input, LossLog, Map, OptionsError, Query, ReadContext,
    Registry, RunHandle, Source, Split, Stage,
};

use super::findings::FindingsLog;
use crate::cache::TableCache;

/// Where the tables of a log are stored.
pub(super) struct LogCache {
    pub(super) tables: Arc<TableCache>,
    /// The plugin of the source and its options.
    pub(super) source: String,
}

/// A log that can be queried; shared by all queries that read it.
pub struct LogTables {
    pub(super) source: Arc<dyn Source>,
    pub(super) source_name: Arc<str>,
    registry: Registry,
    /// The options of `decode` and `encode`.
    pub(super) types: Value,
    /// Decodes payloads, if types were set.
    pub(super) decode: Option<Arc<dyn Map>>,
    /// Encodes rows that have no payloads; created on first use.
    encode: OnceLock<Result<Arc<dyn Map>, String>>,
    /// Every channel that a reader has seen, including readers that started at a wrong position.
    pub(super) channels: Arc<Channels>,
    /// The ids of channels that are in the log, as far as it was read.
    discovered: Mutex<BTreeSet<u32>>,
    all_discovered: AtomicBool,
    /// The names of channels that cached tables list.
    cached_channels: Mutex<BTreeSet<String>>,
    labels: Mutex<Option<Arc<ChannelLabels>>>,
    /// The discovered types, by channel name.
    known: Mutex<HashMap<String, ChannelSchema>>,
    /// The inputs at the last `refresh`.
    inputs: Mutex<Option<Vec<InputState>>>,
    /// Whether an input that can be read only once was read.
    was_read: AtomicBool,
    pub(super) findings: FindingsLog,
    bytes_read: Arc<AtomicU64>,
    /// Where tables are stored, if anywhere.
    pub(super) cache: Option<LogCache>,
}

/// An input, as far as that shows whether its contents are the same.
#[derive(Clone, Debug, PartialEq, Eq)]
struct InputState {
    path: PathBuf,
    bytes: Option<u64>,
    /// `None` for what is no file on this machine.
    identity: Option<FileIdentity>,
    written: Option<SystemTime>,
}

impl InputState {
    fn read(input: Input) -> Self {
        let Input { path, bytes } = input;
        let written = fs::metadata(&path).and_then(|meta| meta.modified()).ok();
        Self { identity: FileIdentity::read(&path), written, path, bytes }
    }

    /// Whether the contents of the other one may still be there, with more behind them.
    fn may_continue(&self, earlier: &Self) -> bool {
        let is_same_file = self.path == earlier.path && self.identity == earlier.identity;
        is_same_file && (self == earlier || self.bytes > earlier.bytes)
    }
}

impl std::fmt::Debug for LogTables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogTables").field("source_name", &self.source_name).finish_non_exhaustive()
    }
}

impl LogTables {
    /// The log that `source` reads, without types; sources of decoded rows need none. `source_name`
    /// is the source of events whose format has none. Opens nothing.
    pub fn new(source: Box<dyn Source>, source_name: &str, registry: &Registry) -> Self {
        Self {
            source: Arc::from(source),
            source_name: source_name.into(),
            registry: registry.clone(),
            types: json!({}),
            decode: None,
            encode: OnceLock::new(),
            channels: Arc::default(),
            discovered: Mutex::default(),
            all_discovered: AtomicBool::new(false),
            cached_channels: Mutex::default(),
            labels: Mutex::default(),
            known: Mutex::default(),
            inputs: Mutex::default(),
            was_read: AtomicBool::new(false),
            findings: FindingsLog::default(),
            bytes_read: Arc::default(),
            cache: None,
        }
    }

    /// Decodes payloads by these types, given as for the stage `decode`: files, globs, folders and
    /// names of built-in sets. `channel_types` resolves ambiguous channels. `Err` if the types are
    /// wrong; none at all change nothing.
    pub fn with_types(
        self,
        types: &[String],
        channel_types: &BTreeMap<String, String>,
    ) -> Result<Self, OptionsError> {
        if types.is_empty() && channel_types.is_empty() {
            return Ok(self);
        }
        let types = json!({ "types": types, "channel_types": channel_types });
        let decode = stateless_stage(&self.registry, "decode", types.clone())?;
        let notes = decode.notes().into_iter().map(|note| (note, 0)).collect();
        self.findings.add_counts(&BTreeMap::new(), &notes);
        Ok(Self { decode: Some(decode), types, ..self })
    }

    /// Stores tables that queries read completely, for later queries. `source` tells apart sources
    /// that read the same files: the plugin and its options. These must name no other files: only
    /// changes of the files of the source and of its types are noticed.
    pub fn with_cache(self, tables: Arc<TableCache>, source: &str) -> Self {
        Self { cache: Some(LogCache { tables, source: source.to_owned() }), ..self }
    }

    /// The names of its channels, sorted. Reads the whole log once; if its input can be read only
    /// once, returns the channels discovered so far.
    pub fn channels(&self) -> Result<Vec<String>, Error> {
        self.channels_until(&AtomicBool::new(false))
    }

    /// Like [`channels`](Self::channels), but returns
    /// [`ErrorKind::Aborted`](sluice_model::ErrorKind::Aborted) soon after `stop` is set.
    pub fn channels_until(&self, stop: &AtomicBool) -> Result<Vec<String>, Error> {
        if !self.all_discovered.load(Ordering::Relaxed) && !self.is_read_once()? {
            self.discover_all(stop)?;
            self.all_discovered.store(true, Ordering::Relaxed);
        }
        Ok(self.known_channels())
    }

    /// The names of the channels discovered so far, sorted. Reads nothing.
    pub fn known_channels(&self) -> Vec<String> {
        let discovered = self.discovered.lock().unwrap_or_else(PoisonError::into_inner);
        let names =
            discovered.iter().map(|id| self.channels.get(ChannelId(*id)).name.text().to_owned());
        let cached = self.cached_channels.lock().unwrap_or_else(PoisonError::into_inner);
        names.chain(cached.iter().cloned()).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// The columns of the channel with exactly this name; `None` if there is none. Reads up to its
    /// first event that can be decoded.
    pub fn channel_schema(&self, channel: &str) -> Result<Option<SchemaRef>, Error> {
        Ok(self.table_kind(channel, &AtomicBool::new(false))?.map(|kind| kind.schema()))
    }

    /// Forgets what inputs that have changed since the last call may no longer hold: if they have
    /// only grown, which channels do not exist, or else all channels. Call it between queries on
    /// logs that are written or replaced.
    pub fn refresh(&self) -> Result<(), Error> {
        let now: Vec<_> = self.source.inputs()?.into_iter().map(InputState::read).collect();
        let lock = || self.inputs.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(before) = lock().replace(now.clone()).filter(|before| *before != now) else {
            return Ok(());
        };
        let mut pairs = now.iter().zip(&before);
        let has_grown = now.len() >= before.len() && pairs.all(|(now, old)| now.may_continue(old));
        self.all_discovered.store(false, Ordering::Relaxed);
        let is_kept =
            |known: &ChannelSchema| has_grown && matches!(known, ChannelSchema::Fields(_));
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known().retain(|_, known| is_kept(known));
        if !has_grown {
            self.discovered.lock().unwrap_or_else(PoisonError::into_inner).clear();
            self.cached_channels.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }
        Ok(())
    }

    /// The input bytes read so far, for progress.
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Ordering::Relaxed)
    }

    /// The total length of all inputs, as far as known.
    pub fn bytes(&self) -> Result<Option<u64>, Error> {
        let inputs = self.source.inputs()?;
        Ok(inputs.into_iter().map(|input| input.bytes).sum())
    }

    /// The kind of a channel's table; `None` if there is no such channel.
    pub(super) fn table_kind(
        &self,
        channel: &str,
        stop: &AtomicBool,
    ) -> Result<Option<TableKind>, Error> {
        let lock = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lock().get(channel) {
            return Ok(known.kind(channel));
        }
        self.check_rereadable(channel)?;
        let known = self.discover_channel(channel, stop)?;
        let kind = known.kind(channel);
        lock().insert(channel.to_owned(), known);
        Ok(kind)
    }

    /// Adds channels of the log, by channel id.
    pub(super) fn add_channels(&self, seen: &[bool]) {
        let mut all = self.discovered.lock().unwrap_or_else(PoisonError::into_inner);
        all.extend(seen.iter().enumerate().filter(|(_, seen)| **seen).map(|(id, _)| id as u32));
    }

    /// Adds all channels of the log, as an earlier read of the whole log found them.
    pub(super) fn add_all_channels(&self, names: Vec<String>) {
        self.cached_channels.lock().unwrap_or_else(PoisonError::into_inner).extend(names);
        self.all_discovered.store(true, Ordering::Relaxed);
    }

    /// The labels of all channels seen so far.
    pub(super) fn labels(&self) -> Arc<ChannelLabels> {
        let mut known = self.labels.lock().unwrap_or_else(PoisonError::into_inner);
        match &*known {
            Some(labels) if labels.len() >= self.channels.len() => Arc::clone(labels),
            _ => Arc::clone(known.insert(Arc::new(ChannelLabels::from_channels(&self.channels)))),
        }
    }

    /// The stage that encodes rows that have no payloads.
    pub(super) fn encode(&self) -> Result<&dyn Map, Error> {
        let stage = self.encode.get_or_init(|| {
            stateless_stage(&self.registry, "encode", self.types.clone())
                .map_err(|error| error.message)
        });
        stage.as_deref().map_err(|why| Error::invalid(why.clone()))
    }

    /// The context for reading the log.
    pub(super) fn context(&self, query: Query, blocks: BlockPool) -> ReadContext {
        ReadContext {
            source: Arc::clone(&self.source_name),
            channels: Arc::clone(&self.channels),
            damage: Arc::default(),
            losses: Arc::<LossLog>::default(),
            query,
            blocks,
            run: RunHandle::default().counting_in(Arc::clone(&self.bytes_read)),
        }
    }

    /// The splits of the log. `Err` if it is a live source.
    pub(super) fn splits(&self, split_bytes: u64, query: &Query) -> Result<Vec<Split>, Error> {
        let splits = self.source.splits(split_bytes, query)?;
        match splits.iter().find(|split| split.live) {
            None => Ok(splits),
            Some(live) => Err(Error::invalid(format!(
                "{} is live and has no end: record it first (sluice record), then query the \
                 recording",
                live.input.display()
            ))),
        }
    }

    /// Marks the log as read. `Err` if it can be read only once and was read before.
    pub(super) fn claim_read(&self) -> Result<(), Error> {
        if !self.is_read_once()? || !self.was_read.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        Err(Error::invalid(
            "standard input or a pipe can be read only once, by one query that names it once; \
             write it to a file first",
        ))
    }

    fn check_rereadable(&self, channel: &str) -> Result<(), Error> {
        if !self.is_read_once()? {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "finding the columns of channel `{channel}` means reading the log, and standard input \
             or a pipe can be read only once: write it to a file first"
        )))
    }

    /// Whether an input is a pipe.
    fn is_read_once(&self) -> Result<bool, Error> {
        let inputs = self.source.inputs()?;
        Ok(inputs.iter().any(|input| input.bytes.is_none() && !input.path.is_dir()))
    }
}

/// Creates a stage that must be a map.
fn stateless_stage(
    registry: &Registry,
    name: &str,
    options: Value,
) -> Result<Arc<dyn Map>, OptionsError> {
    let missing = |message: String| OptionsError { path: Vec::new(), message };
    match registry.stage(name, options)? {
        Stage::Map(map) => Ok(Arc::from(map)),
        _ => Err(missing(format!("the stage `{name}` keeps state, and cannot be used for tables"))),
    }
}
