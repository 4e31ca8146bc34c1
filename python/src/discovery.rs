//! Finds the columns of a channel: those of its first event that can be decoded. Reads no more of
//! the log than that takes.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use sluice_kit::event_table::{ChannelSchema, RowType};
use sluice_model::{
    Batch, ChannelId, Error, PrepareContext, Rows, Sink, SinkContext, SinkTraits, Written, raw,
};
use sluice_pipeline::run::Stop;

/// What a discovery has found so far.
#[derive(Debug, Default)]
pub(crate) struct Discovered {
    pub(crate) schema: ChannelSchema,
    /// The channels of the events so far.
    pub(crate) channels: BTreeSet<String>,
    /// What stages noted of events that they left out.
    pub(crate) notes: Vec<String>,
}

/// A sink that stops the run once it knows the type of the events.
pub(crate) struct DiscoverySink {
    pub(crate) found: Arc<Mutex<Discovered>>,
    pub(crate) stop: Arc<Stop>,
}

/// The events of a batch, and the type of the first that is decoded.
pub(crate) struct BatchTypes {
    events: u64,
    channels: BTreeSet<String>,
    first: Option<RowType>,
}

impl Sink for DiscoverySink {
    type Block = BatchTypes;
    type Unit = BatchTypes;
    type Output = ();

    fn traits(&self) -> SinkTraits {
        SinkTraits { accepts_wide_times: true, ..SinkTraits::default().with_rows(true) }
    }

    fn open(&self, _: &SinkContext) -> Result<(), Error> {
        Ok(())
    }

    fn prepare(&self, batch: Batch, context: &mut PrepareContext<'_>) -> Result<BatchTypes, Error> {
        let ids: BTreeSet<u32> = batch.channels().iter().copied().collect();
        let name = |id: u32| context.channels.get(ChannelId(id)).name.text().to_owned();
        let (events, channels) = (batch.len() as u64, ids.into_iter().map(name).collect());
        let batch = raw::drop_raw_columns(batch);
        let decoded = batch.rows().iter().filter(|rows| !rows.events.is_empty());
        let first: Option<&Rows> = decoded.min_by_key(|rows| rows.events.first().copied());
        Ok(BatchTypes { events, channels, first: first.map(RowType::from_rows) })
    }

    fn write(&self, (): &mut (), batch: BatchTypes) -> Result<Written, Error> {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.channels.extend(batch.channels);
        match (&found.schema, batch.first) {
            (ChannelSchema::Fields(_), _) => {}
            (_, Some(first)) => {
                found.schema = ChannelSchema::Fields(Arc::new(first));
                self.stop.request();
            }
            (_, None) if batch.events > 0 => found.schema = ChannelSchema::Payloads,
            (_, None) => {}
        }
        Ok(Written::events(batch.events))
    }

    fn finish(&self, (): ()) -> Result<Written, Error> {
        Ok(Written::default())
    }
}
