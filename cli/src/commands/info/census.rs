//! The census of a log: a sink that counts events, and keeps nothing of them.
//!
//! Batches are counted on any thread; what that gives is put together in the order of the events.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use sluice_core::census::{self, BatchCensus, ChannelCensus, TimeStatistics};
use sluice_core::{
    Batch, Channel, Channels, CodecOptions, Codecs, EncodeContext, Error, KeyOf, KnownType,
    PerChannel, Sink, SinkContext, TypeKey, TypePaths, TypesByKey,
};

use crate::ending::Failure;
use crate::shell::Shell;

/// What there is in a log.
#[derive(Debug, Default)]
pub(crate) struct Census {
    /// All events, whatever their channel.
    pub(super) all: TimeStatistics,
    /// How often an event's number is not the one after that of the event before.
    pub(super) number_jumps: u64,
    /// Every channel, by name and source.
    pub(super) channels: Vec<(Arc<Channel>, ChannelCensus)>,
    /// The names of the types, as far as they are known.
    pub(super) types: BTreeMap<TypeKey, Arc<str>>,
}

/// The types that payloads and rows may be of.
#[derive(Default)]
pub(crate) struct Types {
    codecs: Codecs,
    names: Arc<BTreeMap<TypeKey, Arc<str>>>,
}

impl Types {
    /// Those that these files declare; built-in ones have names where the files have none. Warns of
    /// what cannot be used of the files.
    pub(crate) fn named(paths: &[PathBuf], shell: &Shell) -> Result<Self, Failure> {
        let all = TypePaths([paths, &TypePaths::built_in().0].concat());
        let all = Self::declared(&all, shell)?;
        if paths.is_empty() {
            return Ok(all);
        }
        // A number that the files have a type for is of that type, whatever is built in.
        let own = Self::declared(&TypePaths(paths.to_vec()), shell)?;
        let of_files: BTreeSet<TypeKey> =
            own.codecs.types().map(|known| known.described.key).collect();
        let mut names = BTreeMap::clone(&all.names);
        names.retain(|key, _| !of_files.contains(key));
        names.extend(own.names.iter().map(|(key, name)| (*key, Arc::clone(name))));
        Ok(Self { codecs: all.codecs, names: Arc::new(names) })
    }

    fn declared(paths: &TypePaths, shell: &Shell) -> Result<Self, Failure> {
        let codecs = Codecs::from_paths(&shell.registry, paths, &CodecOptions::default());
        let codecs = codecs.map_err(|error| Failure::WrongUse(error.message))?;
        if let Some(refusal) = codecs.refusal() {
            return Err(Failure::WrongUse(refusal));
        }
        codecs.unusable().iter().for_each(|unusable| shell.warn_once(unusable));
        Ok(Self::of(codecs))
    }

    /// Those that these codecs know.
    pub(crate) fn of(codecs: Codecs) -> Self {
        let types = TypesByKey::from_codecs(&codecs);
        let name = |(key, known): (_, &KnownType)| (key, Arc::clone(&known.described.name));
        let names = Arc::new(types.names().map(name).collect());
        Self { codecs, names }
    }

    /// The name of a type, if it is known.
    pub(crate) fn name(&self, key: TypeKey) -> Option<&str> {
        self.names.get(&key).map(|name| &**name)
    }

    /// Gives the number of the type that a payload of this channel is of. Where its encoding is not
    /// known, only if its type is.
    pub(crate) fn keys(&self, channel: &Channel) -> KeyOf {
        census::type_of(&self.codecs, channel, &self.names)
    }
}

/// The sink that counts.
pub(crate) struct Counting {
    /// Where the census is left.
    result: Arc<Mutex<Census>>,
    /// What payloads may be.
    types: Types,
    keys: PerChannel<KeyOf>,
}

impl Counting {
    /// Leaves the census at `result`.
    pub(crate) fn new(result: Arc<Mutex<Census>>, types: Types) -> Self {
        Self { result, types, keys: PerChannel::default() }
    }
}

/// The census in the making.
pub(crate) struct Count {
    channels: Arc<Channels>,
    part: BatchCensus,
}

impl Sink for Counting {
    type Block = BatchCensus;
    type Output = Count;

    fn targets(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    fn open(&self, context: &SinkContext) -> Result<Count, Error> {
        Ok(Count { channels: Arc::clone(&context.channels), part: BatchCensus::default() })
    }

    fn takes_rows(&self) -> bool {
        true
    }

    fn takes_wide_times(&self) -> bool {
        true
    }

    fn encode(&self, batch: Batch, context: &mut EncodeContext<'_>) -> Result<BatchCensus, Error> {
        let keys = self.keys.table(context.channels, |channel| Ok(self.types.keys(channel)))?;
        Ok(BatchCensus::from_batch(&batch, &keys))
    }

    fn append(&self, output: &mut Count, block: BatchCensus) -> Result<u64, Error> {
        let events = block.all.events;
        output.part.append(block);
        Ok(events)
    }

    fn finish(&self, output: Count) -> Result<u64, Error> {
        let Count { channels, part } = output;
        let all = channels.since(0);
        let named = part
            .channels
            .into_iter()
            .filter_map(|(id, tally)| Some((Arc::clone(all.get(id as usize)?), tally)));
        let mut channels: Vec<_> = named.collect();
        channels.sort_by(|(a, _), (b, _)| (&a.name, &a.source).cmp(&(&b.name, &b.source)));
        let mut names = part.named;
        for key in channels.iter().flat_map(|(_, tally)| tally.types.keys()) {
            if let Some(name) = self.types.names.get(key) {
                // What rows were decoded as they say themselves.
                names.entry(*key).or_insert_with(|| Arc::clone(name));
            }
        }
        let census =
            Census { types: names, all: part.all, number_jumps: part.number_jumps, channels };
        *self.result.lock().unwrap_or_else(PoisonError::into_inner) = census;
        Ok(0)
    }
}
