//! Discovers the channels of a log and their types, by reading from the start.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sluice_model::{
    Batch, BlockPool, Channel, Error, ErrorKind, PerChannel, Query, Rows, Split, SplitStart,
    StageContext, booleans,
};

use super::LogTables;
use super::channels::ChannelTest;
use super::columns::{RowType, TableKind};

/// The size of splits: small, as the first one usually has what is needed.
const SPLIT_BYTES: u64 = 256 << 10;

/// The type of a channel.
#[derive(Clone, Debug)]
pub(super) enum ChannelSchema {
    /// The log has no such channel.
    Missing,
    /// None of its events can be decoded.
    Payloads,
    /// The type of its first event that can be decoded.
    Fields(Arc<RowType>),
}

impl ChannelSchema {
    pub(super) fn kind(&self, channel: &str) -> Option<TableKind> {
        match self {
            Self::Missing => None,
            Self::Payloads => Some(TableKind::Payloads(channel.into())),
            Self::Fields(rows) => Some(TableKind::Fields(channel.into(), Arc::clone(rows))),
        }
    }
}

/// Discovers the type of a channel. Returns [`ErrorKind::Aborted`] soon after `stop` is set.
pub(super) fn discover_channel(
    log: &LogTables,
    name: &str,
    stop: &AtomicBool,
) -> Result<ChannelSchema, Error> {
    let test = ChannelTest::named(name);
    let query = Query { channels: test.query(), ..Query::default() };
    let (mut known, matches) = (ChannelSchema::Missing, PerChannel::default());
    each_batch(log, &query, stop, |batch| {
        let table = matches.table(&log.channels, |channel: &Channel| Ok(test.holds(channel)))?;
        let batch = batch.retain(|row| table[batch.channels()[row] as usize]);
        if batch.is_empty() {
            return Ok(true);
        }
        log.add_channels(&channels_of(&batch));
        known = match first_rows(booleans::drop_raw_columns(decoded(log, batch)?)) {
            Some(rows) => {
                let (message, columns) = (Arc::clone(&rows.message), rows.columns.schema());
                ChannelSchema::Fields(Arc::new(RowType { message, columns }))
            }
            None => ChannelSchema::Payloads,
        };
        Ok(matches!(known, ChannelSchema::Payloads))
    })?;
    Ok(known)
}

/// Discovers all channels of a log. Stops like [`discover_channel`].
pub(super) fn discover_all(log: &LogTables, stop: &AtomicBool) -> Result<(), Error> {
    each_batch(log, &Query::default(), stop, |batch| {
        log.add_channels(&channels_of(&batch));
        Ok(true)
    })
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

/// Reads a log in order, so that every split starts at a known position, until `visit` returns
/// `false`. Damage is not reported here, but when a query reads it.
fn each_batch(
    log: &LogTables,
    query: &Query,
    stop: &AtomicBool,
    mut visit: impl FnMut(Batch) -> Result<bool, Error>,
) -> Result<(), Error> {
    let context = log.context(query.clone(), BlockPool::new(SPLIT_BYTES as usize + (64 << 10), 2));
    let mut before: Option<(Split, Option<u64>)> = None;
    for split in log.splits(SPLIT_BYTES, query)? {
        let due =
            before.filter(|(last, _)| last.is_followed_by(&split)).and_then(|(_, ended)| ended);
        let entry = SplitStart::At(due.unwrap_or(split.start));
        let mut reader = log.source.read(&split, entry, &context)?;
        while let Some(batch) = reader.next_batch()? {
            if stop.load(Ordering::Relaxed) {
                return Err(ErrorKind::Aborted.into());
            }
            if !visit(batch)? {
                return Ok(());
            }
            // Discard it: a damaged log has much of it.
            drop(context.damage.take());
        }
        before = Some((split, reader.seam().ended));
    }
    Ok(())
}
