//! Plugins of the kit's own: a source of nothing and a sink that keeps what it is given. No pipeline file
//! but the kit's can name them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use serde::Deserialize;
use sluice_core::contract::PlainEvent;
use sluice_core::registry::{make_sink, make_source, schema_of};
use sluice_core::schemars::JsonSchema;
use sluice_core::{
    Batch, Channels, EncodeContext, Error, Input, Plugin, PluginFactory, ReadContext, Reader,
    Registry, Sink, SinkContext, Source, Split, SplitStart,
};

/// The source that has no event.
pub(crate) const NOTHING: &str = "conformance-nothing";
/// The sink that keeps what it is given, for [`kept`].
pub(crate) const KEEP: &str = "conformance-keep";

/// Every linked plugin, and the kit's own.
pub(crate) fn registry() -> Registry {
    let linked = Registry::linked();
    let own = [
        Plugin::new(NOTHING, PluginFactory::Source(make_source::<Nothing>), schema_of::<Nothing>),
        Plugin::new(KEEP, PluginFactory::Sink(make_sink::<Keep>), schema_of::<Keep>),
    ];
    Registry::from_plugins(linked.iter().copied().chain(own))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "sluice_core::schemars")]
struct Nothing {}

impl Source for Nothing {
    fn inputs(&self) -> Result<Vec<Input>, Error> {
        Ok(Vec::new())
    }

    fn read<'s>(
        &'s self,
        _: &Split,
        _: SplitStart,
        _: &ReadContext,
    ) -> Result<Box<dyn Reader + 's>, Error> {
        Ok(Box::new(std::iter::empty()))
    }
}

static KEPT: Mutex<BTreeMap<u64, Vec<PlainEvent>>> = Mutex::new(BTreeMap::new());

/// A place for what one run gives.
pub(crate) fn new_place() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Takes what a run that finished has left at a place.
pub(crate) fn kept(place: u64) -> Vec<PlainEvent> {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner).remove(&place).unwrap_or_default()
}

/// A batch's events, free of the run.
pub(crate) fn plain<'b>(
    batch: &'b Batch,
    channels: &'b Channels,
) -> impl Iterator<Item = PlainEvent> + 'b {
    batch.iter().map(|event| {
        let channel = channels.get(event.channel);
        PlainEvent {
            timestamp: event.timestamp,
            sequence: event.sequence,
            source: channel.source.to_string(),
            channel: channel.name.text().to_owned(),
            payload: event.payload.to_vec(),
        }
    })
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "sluice_core::schemars")]
struct Keep {
    place: u64,
}

impl Sink for Keep {
    type Block = Vec<PlainEvent>;
    type Output = Vec<PlainEvent>;

    fn targets(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    fn accepts_rows(&self) -> bool {
        true
    }

    fn open(&self, _: &SinkContext) -> Result<Self::Output, Error> {
        Ok(Vec::new())
    }

    fn encode(&self, batch: Batch, context: &mut EncodeContext<'_>) -> Result<Self::Block, Error> {
        Ok(plain(&batch, context.channels).collect())
    }

    fn append(&self, output: &mut Self::Output, mut block: Self::Block) -> Result<u64, Error> {
        let events = block.len() as u64;
        output.append(&mut block);
        Ok(events)
    }

    fn finish(&self, output: Self::Output) -> Result<u64, Error> {
        KEPT.lock().unwrap_or_else(PoisonError::into_inner).insert(self.place, output);
        Ok(0)
    }
}
