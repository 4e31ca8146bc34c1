//! Counts the events of a log: a sink that keeps statistics only.
//!
//! Batches are counted on any thread; the counts are combined in the order of events.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use sluice_kit::census::{self, BatchCensus, ChannelCensus, TimeStatistics};
use sluice_kit::{CodecOptions, Codecs, TypePaths, TypesByKey};
use sluice_model::{
    Batch, Channel, Channels, Error, KeyOf, KnownType, MessageType, PerChannel, PrepareContext,
    Sink, SinkContext, SinkTraits, TypeKey, Written,
};

use crate::exit::Failure;
use crate::shell::Shell;

/// Statistics of a log.
#[derive(Debug, Default)]
pub(crate) struct Census {
    /// Statistics over all channels.
    pub(super) all: TimeStatistics,
    /// How often an event number does not follow its predecessor, views aside.
    pub(super) number_jumps: u64,
    /// Every channel, by name and source.
    pub(super) channels: Vec<(Arc<Channel>, ChannelCensus)>,
    /// The names of the known types.
    pub(super) types: BTreeMap<TypeKey, Arc<str>>,
}

/// Known types and their names, to identify payloads.
#[derive(Default)]
pub(crate) struct TypeNames {
    codecs: Codecs,
    names: Arc<BTreeMap<TypeKey, Arc<str>>>,
}

impl TypeNames {
    /// The types declared in these files, and built-in types for the rest. Warns of unusable
    /// declarations.
    pub(crate) fn from_paths(paths: &[PathBuf], shell: &Shell) -> Result<Self, Failure> {
        let all = TypePaths([paths, &TypePaths::built_in().0].concat());
        let all = Self::declared_in(&all, shell)?;
        if paths.is_empty() {
            return Ok(all);
        }
        // Declarations in the files take precedence over built-in types with the same fingerprint.
        let own = Self::declared_in(&TypePaths(paths.to_vec()), shell)?;
        let of_files: BTreeSet<TypeKey> =
            own.codecs.types().map(|known| known.message_type.key).collect();
        let mut names = BTreeMap::clone(&all.names);
        names.retain(|key, _| !of_files.contains(key));
        names.extend(own.names.iter().map(|(key, name)| (*key, Arc::clone(name))));
        Ok(Self { codecs: all.codecs, names: Arc::new(names) })
    }

    fn declared_in(paths: &TypePaths, shell: &Shell) -> Result<Self, Failure> {
        let codecs = Codecs::from_paths(&shell.registry, paths, &CodecOptions::default());
        let codecs = codecs.map_err(|error| Failure::Usage(error.message))?;
        if let Some(refusal) = codecs.refusal() {
            return Err(Failure::Usage(refusal));
        }
        codecs.unusable().iter().for_each(|unusable| shell.warn_once(unusable));
        Ok(Self::from_codecs(codecs))
    }

    /// The types of these codecs.
    pub(crate) fn from_codecs(codecs: Codecs) -> Self {
        let types = TypesByKey::from_codecs(&codecs);
        let name = |(key, known): (_, &KnownType)| (key, Arc::clone(&known.message_type.name));
        let names = Arc::new(types.names().map(name).collect());
        Self { codecs, names }
    }

    /// The type that the log declares for the payloads of this channel.
    fn embedded(&self, channel: &Channel) -> Option<Arc<MessageType>> {
        self.codecs.embedded(channel).map(|known| known.message_type)
    }

    /// The name of a type, if it is known.
    pub(crate) fn name(&self, key: TypeKey) -> Option<&str> {
        self.names.get(&key).map(|name| &**name)
    }

    /// Returns a function from a payload of this channel to its type. If the encoding is unknown,
    /// it only recognises known types.
    pub(crate) fn type_lookup(&self, channel: &Channel) -> KeyOf {
        let embedded = self.embedded(channel).map(|declared| declared.key);
        census::key_lookup(&self.codecs, channel, embedded, &self.names)
    }
}

/// A sink that counts events.
pub(crate) struct CensusSink {
    /// Receives the result.
    result: Arc<Mutex<Census>>,
    /// The types that payloads are matched against.
    types: TypeNames,
    keys: PerChannel<KeyOf>,
    views: PerChannel<bool>,
}

impl CensusSink {
    /// Creates the sink; `finish` stores the census in `result`.
    pub(crate) fn new(result: Arc<Mutex<Census>>, types: TypeNames) -> Self {
        Self { result, types, keys: PerChannel::default(), views: PerChannel::default() }
    }
}

/// The census being built.
pub(crate) struct PartialCensus {
    channels: Arc<Channels>,
    part: BatchCensus,
}

impl Sink for CensusSink {
    type Block = BatchCensus;
    type Unit = BatchCensus;
    type Output = PartialCensus;

    fn traits(&self) -> SinkTraits {
        SinkTraits { accepts_wide_times: true, ..SinkTraits::default().with_rows(true) }
    }

    fn open(&self, context: &SinkContext) -> Result<PartialCensus, Error> {
        Ok(PartialCensus { channels: Arc::clone(&context.channels), part: BatchCensus::default() })
    }

    fn prepare(
        &self,
        batch: Batch,
        context: &mut PrepareContext<'_>,
    ) -> Result<BatchCensus, Error> {
        let keys =
            self.keys.table(context.channels, |channel| Ok(self.types.type_lookup(channel)))?;
        let views = self.views.table(context.channels, |channel| Ok(channel.is_view()))?;
        Ok(BatchCensus::from_batch(&batch, &keys, &views))
    }

    fn write(&self, output: &mut PartialCensus, block: BatchCensus) -> Result<Written, Error> {
        let events = block.all.events;
        output.part.append(block);
        Ok(Written::events(events))
    }

    fn finish(&self, output: PartialCensus) -> Result<Written, Error> {
        let PartialCensus { channels, part } = output;
        let all = channels.since(0);
        let named = part
            .channels
            .into_iter()
            .filter_map(|(id, tally)| Some((Arc::clone(all.get(id as usize)?), tally)));
        let mut channels: Vec<_> = named.collect();
        channels.sort_by(|(a, _), (b, _)| (&a.name, &a.source).cmp(&(&b.name, &b.source)));
        let mut names = part.named;
        for (channel, tally) in &channels {
            // Decoded rows name their own type.
            let unnamed = tally.types.keys().any(|key| !names.contains_key(key));
            if let Some(declared) = unnamed.then(|| self.types.embedded(channel)).flatten() {
                names.insert(declared.key, Arc::clone(&declared.name));
            }
            for key in tally.types.keys() {
                if let Some(name) = self.types.names.get(key) {
                    names.entry(*key).or_insert_with(|| Arc::clone(name));
                }
            }
        }
        let census =
            Census { types: names, all: part.all, number_jumps: part.sequence_jumps, channels };
        *self.result.lock().unwrap_or_else(PoisonError::into_inner) = census;
        Ok(Written::default())
    }
}
