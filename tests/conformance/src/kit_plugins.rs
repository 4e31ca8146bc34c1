//! The kit's own plugins: an empty source and a sink that keeps its events. Only the kit's
//! pipelines can name them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use serde::Deserialize;
use sluice_kit::contract::PlainEvent;
use sluice_model::registry::{make_sink, make_source, schema_of};
use sluice_model::schemars::JsonSchema;
use sluice_model::{
    Batch, Channels, Error, Input, Plugin, PluginFactory, PrepareContext, ReadContext, Reader,
    Registry, Sink, SinkContext, SinkTraits, Source, Split, SplitStart, Written,
};

/// The source without events.
pub(crate) const NOTHING: &str = "conformance-nothing";
/// The sink that keeps its events, for [`take_kept`].
pub(crate) const KEEP: &str = "conformance-keep";

/// All linked plugins, and the kit's own.
pub(crate) fn registry() -> Registry {
    let linked = Registry::linked();
    let own = [
        Plugin::new(
            NOTHING,
            PluginFactory::Source(make_source::<NothingSource>),
            schema_of::<NothingSource>,
        ),
        Plugin::new(KEEP, PluginFactory::Sink(make_sink::<KeepSink>), schema_of::<KeepSink>),
    ];
    Registry::from_plugins(linked.iter().copied().chain(own))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "sluice_model::schemars")]
struct NothingSource {}

impl Source for NothingSource {
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

/// A new slot for the events of one run.
pub(crate) fn new_place() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Takes the events that a finished run has left in a slot.
pub(crate) fn take_kept(place: u64) -> Vec<PlainEvent> {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner).remove(&place).unwrap_or_default()
}

/// A batch's events, independent of the run.
pub(crate) fn plain_events<'b>(
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
#[schemars(crate = "sluice_model::schemars")]
struct KeepSink {
    place: u64,
}

impl Sink for KeepSink {
    type Block = Vec<PlainEvent>;
    type Unit = Vec<PlainEvent>;
    type Output = Vec<PlainEvent>;

    fn traits(&self) -> SinkTraits {
        SinkTraits::default().with_rows(true)
    }

    fn open(&self, _: &SinkContext) -> Result<Self::Output, Error> {
        Ok(Vec::new())
    }

    fn prepare(
        &self,
        batch: Batch,
        context: &mut PrepareContext<'_>,
    ) -> Result<Self::Block, Error> {
        Ok(plain_events(&batch, context.channels).collect())
    }

    fn write(&self, output: &mut Self::Output, mut block: Self::Unit) -> Result<Written, Error> {
        let events = block.len() as u64;
        output.append(&mut block);
        Ok(Written::events(events))
    }

    fn finish(&self, output: Self::Output) -> Result<Written, Error> {
        KEPT.lock().unwrap_or_else(PoisonError::into_inner).insert(self.place, output);
        Ok(Written::default())
    }
}
