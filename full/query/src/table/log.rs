//! A log that can be queried: its source, the types its messages are decoded by, and what of it is known.
//! Reads only what has to be known before a query can be planned.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use arrow_schema::SchemaRef;
use serde_json::{Value, json};
use sluice_core::{
    BlockPool, ChannelId, Channels, Error, LossLog, Map, OptionsError, PluginFactory, PluginKind,
    Query, ReadContext, Registry, Source, Split, Stage,
};

use super::columns::{ChannelLabels, TableKind};
use super::discovery::{self, ChannelSchema};
use super::findings::FindingsLog;

/// A log that can be queried. Made once; shared by all queries that read it.
pub struct LogTables {
    pub(super) source: Arc<dyn Source>,
    source_name: Arc<str>,
    registry: Registry,
    /// The options of stages that know the types.
    types: Value,
    /// Turns payloads into rows, if types are known.
    pub(super) decode: Option<Arc<dyn Map>>,
    /// Makes payloads of rows that have none; made when it is first needed.
    encode: OnceLock<Result<Arc<dyn Map>, String>>,
    /// Every channel that any reader met: of one that guessed its place wrong, too.
    pub(super) channels: Arc<Channels>,
    /// Those that are in the log, by number, as far as it was read.
    discovered: Mutex<BTreeSet<u32>>,
    all_discovered: AtomicBool,
    labels: Mutex<Option<Arc<ChannelLabels>>>,
    /// What is known of channels, by their names.
    known: Mutex<HashMap<String, ChannelSchema>>,
    /// The inputs, and how long they were, when somebody last asked.
    input_lengths: Mutex<Option<InputLengths>>,
    /// Whether an input that can be read once only has been read.
    was_read: AtomicBool,
    pub(super) findings: FindingsLog,
    bytes_read: Arc<AtomicU64>,
}

/// Inputs, and how long they are.
type InputLengths = Vec<(PathBuf, Option<u64>)>;

impl std::fmt::Debug for LogTables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogTables").field("source_name", &self.source_name).finish_non_exhaustive()
    }
}

impl LogTables {
    /// What `source` reads, without types: sources that give rows need none. `source_name` is what events'
    /// source is called where the format has none of its own. Opens nothing.
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
            labels: Mutex::default(),
            known: Mutex::default(),
            input_lengths: Mutex::default(),
            was_read: AtomicBool::new(false),
            findings: FindingsLog::default(),
            bytes_read: Arc::default(),
        }
    }

    /// The same, decoded by these types, as the stage `decode` has them: files, globs, folders and names
    /// of built-in sets; `channel_types` says which type channels have where several would do. `Err` says
    /// what is wrong with the types. None leave it as it is.
    pub fn with_types(
        self,
        types: &[String],
        channel_types: &BTreeMap<String, String>,
    ) -> Result<Self, OptionsError> {
        if types.is_empty() {
            return Ok(self);
        }
        let types = json!({ "types": types, "channel_types": channel_types });
        let decode = stateless_stage(&self.registry, "decode", types.clone())?;
        let notes = decode.notes().into_iter().map(|note| (note, 0)).collect();
        self.findings.add_counts(&BTreeMap::new(), &notes);
        Ok(Self { decode: Some(decode), types, ..self })
    }

    /// The names of its channels, sorted. Reads the whole log once, unless that has been done; of an input
    /// that can be read once only, those that were met so far.
    pub fn channels(&self) -> Result<Vec<String>, Error> {
        self.channels_until(&AtomicBool::new(false))
    }

    /// As [`channels`](Self::channels); ends with [`ErrorKind::Aborted`](sluice_core::ErrorKind::Aborted) soon
    /// after `stop` is raised.
    pub fn channels_until(&self, stop: &AtomicBool) -> Result<Vec<String>, Error> {
        if !self.all_discovered.load(Ordering::Relaxed) && !self.is_read_once()? {
            discovery::discover_all(self, stop)?;
            self.all_discovered.store(true, Ordering::Relaxed);
        }
        Ok(self.known_channels())
    }

    /// The names of the channels that were met so far, sorted. Reads nothing.
    pub fn known_channels(&self) -> Vec<String> {
        let discovered = self.discovered.lock().unwrap_or_else(PoisonError::into_inner);
        let names =
            discovered.iter().map(|id| self.channels.get(ChannelId(*id)).name.text().to_owned());
        names.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// The columns of the table of a channel, called exactly like this; nothing if there is none. Reads
    /// until its first event that can be decoded.
    pub fn channel_schema(&self, channel: &str) -> Result<Option<SchemaRef>, Error> {
        Ok(self.table_kind(channel, &AtomicBool::new(false))?.map(|kind| kind.schema()))
    }

    /// Forgets which channels are not there, if inputs are longer or shorter than when this was last called:
    /// for logs that are still written, between one query and the next.
    pub fn refresh(&self) -> Result<(), Error> {
        let now: Vec<_> =
            self.source.inputs()?.into_iter().map(|input| (input.path, input.bytes)).collect();
        let mut lengths = self.input_lengths.lock().unwrap_or_else(PoisonError::into_inner);
        if lengths.replace(now.clone()).is_some_and(|before| before != now) {
            self.all_discovered.store(false, Ordering::Relaxed);
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            known.retain(|_, known| matches!(known, ChannelSchema::Fields(_)));
        }
        Ok(())
    }

    /// Bytes of input that were read so far, for progress.
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Ordering::Relaxed)
    }

    /// The bytes of all inputs, where they have a length: what reading everything comes to.
    pub fn bytes(&self) -> Result<Option<u64>, Error> {
        let inputs = self.source.inputs()?;
        Ok(inputs.into_iter().map(|input| input.bytes).sum())
    }

    /// What the table of a channel holds, if there is such a channel.
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
        let known = discovery::discover_channel(self, channel, stop)?;
        let kind = known.kind(channel);
        lock().insert(channel.to_owned(), known);
        Ok(kind)
    }

    /// Channels that are in the log, by number.
    pub(super) fn add_channels(&self, seen: &[bool]) {
        let mut all = self.discovered.lock().unwrap_or_else(PoisonError::into_inner);
        all.extend(seen.iter().enumerate().filter(|(_, seen)| **seen).map(|(id, _)| id as u32));
    }

    /// The words of every channel met so far; at least of those of a batch that is there.
    pub(super) fn labels(&self) -> Arc<ChannelLabels> {
        let mut known = self.labels.lock().unwrap_or_else(PoisonError::into_inner);
        match &*known {
            Some(labels) if labels.len() >= self.channels.len() => Arc::clone(labels),
            _ => Arc::clone(known.insert(Arc::new(ChannelLabels::from_channels(&self.channels)))),
        }
    }

    /// Makes payloads of rows that have none.
    pub(super) fn encode(&self) -> Result<&dyn Map, Error> {
        let made = self.encode.get_or_init(|| {
            stateless_stage(&self.registry, "encode", self.types.clone())
                .map_err(|error| error.message)
        });
        made.as_deref().map_err(|why| Error::invalid(why.clone()))
    }

    /// What is needed to read it.
    pub(super) fn context(&self, query: Query, blocks: BlockPool) -> ReadContext {
        ReadContext {
            source: Arc::clone(&self.source_name),
            channels: Arc::clone(&self.channels),
            damage: Arc::default(),
            losses: Arc::<LossLog>::default(),
            keep_damaged_bytes: false,
            query,
            blocks,
            cancelled: Arc::default(),
            abandoned: Arc::default(),
            run_handle: sluice_core::programs::RunHandle::default(),
            bytes_read: Arc::clone(&self.bytes_read),
        }
    }

    /// The pieces it is read in. `Err` if it has no end.
    pub(super) fn splits(&self, split_bytes: u64, query: &Query) -> Result<Vec<Split>, Error> {
        let splits = self.source.splits(split_bytes, query)?;
        match splits.iter().find(|split| split.live) {
            None => Ok(splits),
            Some(live) => Err(Error::invalid(format!(
                "{} has no end, and a query needs one: record it first (sluice record), then ask the log",
                live.input.display()
            ))),
        }
    }

    /// Says that it is read now. `Err` if that can be done once only, and has been.
    pub(super) fn claim_read(&self) -> Result<(), Error> {
        if !self.is_read_once()? || !self.was_read.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        Err(Error::invalid(
            "standard input, or a pipe, can be read once only: a query can name it once, and only the first \
             query gets it; write it to a file first",
        ))
    }

    fn check_rereadable(&self, channel: &str) -> Result<(), Error> {
        if !self.is_read_once()? {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "what columns the channel `{channel}` has is found out by reading, and standard input, or a pipe, \
             can be read once only: write it to a file first"
        )))
    }

    /// Whether one of its inputs is a pipe.
    fn is_read_once(&self) -> Result<bool, Error> {
        let inputs = self.source.inputs()?;
        Ok(inputs.iter().any(|input| input.bytes.is_none() && !input.path.is_dir()))
    }
}

/// A stage without memory, made of these options.
fn stateless_stage(
    registry: &Registry,
    name: &str,
    options: Value,
) -> Result<Arc<dyn Map>, OptionsError> {
    let missing = |message: String| OptionsError { path: Vec::new(), message };
    let plugin = registry.get(PluginKind::Stage, name);
    let plugin = plugin.ok_or_else(|| missing(format!("this program has no stage `{name}`")))?;
    let PluginFactory::Stage(make) = plugin.make else {
        return Err(missing(format!("`{name}` is no stage")));
    };
    match make(options)? {
        Stage::Map(map) => Ok(Arc::from(map)),
        _ => {
            Err(missing(format!("the stage `{name}` has a memory, and cannot be used for tables")))
        }
    }
}
