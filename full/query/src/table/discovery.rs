//! Discovers the channels of a log and their types, by reading from the start.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sluice_kit::event_table::{ChannelSchema, RowType};
use sluice_kit::reading::{ReadAhead, ReadStep};
use sluice_model::{
    Batch, BlockPool, Channel, Error, ErrorKind, PerChannel, Query, Rows, StageContext, raw,
};

use super::LogTables;
use super::channels::ChannelTest;

/// The size of splits: small, as the first one usually has what is needed.
const SPLIT_BYTES: u64 = 256 << 10;

impl LogTables {
    /// Discovers the type of a channel. Returns [`ErrorKind::Aborted`] soon after `stop` is set.
    pub(super) fn discover_channel(
        &self,
        name: &str,
        stop: &AtomicBool,
    ) -> Result<ChannelSchema, Error> {
        self.discover(Some(ChannelTest::named(name)), stop)
    }

    /// Discovers all channels. Stops like [`discover_channel`](Self::discover_channel).
    pub(super) fn discover_all(&self, stop: &AtomicBool) -> Result<(), Error> {
        self.discover(None, stop).map(drop)
    }

    /// Reads the log until the type of the channel is known. Damage is not reported here, but when
    /// a query reads it.
    fn discover(
        &self,
        channel: Option<ChannelTest>,
        stop: &AtomicBool,
    ) -> Result<ChannelSchema, Error> {
        let channels = channel.as_ref().map(ChannelTest::query).unwrap_or_default();
        let query = Query { channels, ..Query::default() };
        let splits = self.splits(SPLIT_BYTES, &query)?;
        let context = self.context(query, BlockPool::new(SPLIT_BYTES as usize + (64 << 10), 2));
        let discovery = Discovery { log: self, stop, channel, matches: PerChannel::default() };
        let add = |batch: Batch, step: &mut ReadStep<ChannelSchema>| {
            discovery.add(batch, &mut step.output)?;
            step.is_enough = matches!(step.output, ChannelSchema::Fields(_));
            Ok(())
        };
        let mut known = ChannelSchema::Missing;
        for step in ReadAhead::in_turn(&*self.source, splits, context, add) {
            match step?.output {
                ChannelSchema::Missing => {}
                ChannelSchema::Payloads => known = ChannelSchema::Payloads,
                fields => return Ok(fields),
            }
        }
        Ok(known)
    }
}

struct Discovery<'l> {
    log: &'l LogTables,
    stop: &'l AtomicBool,
    /// The channel whose type is wanted; `None` for the names of all.
    channel: Option<ChannelTest>,
    matches: PerChannel<bool>,
}

impl Discovery<'_> {
    fn add(&self, batch: Batch, known: &mut ChannelSchema) -> Result<(), Error> {
        let Self { log, stop, channel, matches } = self;
        if stop.load(Ordering::Relaxed) {
            return Err(ErrorKind::Aborted.into());
        }
        let Some(test) = channel else {
            log.add_channels(&channels_of(&batch));
            return Ok(());
        };
        let table = matches.table(&log.channels, |channel: &Channel| Ok(test.holds(channel)))?;
        let batch = batch.retain(|row| table[batch.channels()[row] as usize]);
        if batch.is_empty() {
            return Ok(());
        }
        log.add_channels(&channels_of(&batch));
        *known = match first_rows(raw::drop_raw_columns(decoded(log, batch)?)) {
            Some(rows) => {
                let (message, columns) = (Arc::clone(&rows.message), rows.columns.schema());
                ChannelSchema::Fields(Arc::new(RowType { message, columns }))
            }
            None => ChannelSchema::Payloads,
        };
        Ok(())
    }
}

/// Which channels a batch has, by channel id.
pub(super) fn channels_of(batch: &Batch) -> Vec<bool> {
    let len = batch.channels().iter().max().map_or(0, |id| *id as usize + 1);
    let mut present = vec![false; len];
    batch.channels().iter().for_each(|id| present[*id as usize] = true);
    present
}

fn decoded(log: &LogTables, batch: Batch) -> Result<Batch, Error> {
    match &log.decode {
        Some(decode) => decode.apply(batch, &mut StageContext::new(&log.channels, None)),
        None => Ok(batch),
    }
}

/// The rows of the first decoded event.
fn first_rows(batch: Batch) -> Option<Rows> {
    let with_rows = batch.rows().iter().filter(|rows| !rows.events.is_empty());
    with_rows.min_by_key(|rows| rows.events.first().copied()).cloned()
}
