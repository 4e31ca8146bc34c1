//! What is known of a log's channels: read from its beginning, until it is known. Makes no table.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sluice_core::{
    Batch, BlockPool, Channel, Error, ErrorKind, PerChannel, Query, Rows, Split, SplitStart,
    StageContext, booleans,
};

use super::LogTables;
use super::channels::ChannelTest;
use super::columns::{RowType, Shape};

/// The size of pieces to read in: small, as mostly the first holds what is looked for.
const PIECE: u64 = 256 << 10;

/// What is known of a channel.
#[derive(Clone, Debug)]
pub(super) enum Known {
    /// There is no such channel.
    Missing,
    /// Its events cannot be decoded.
    Payloads,
    /// Its first event that can be decoded is of this type.
    Fields(Arc<RowType>),
}

impl Known {
    pub(super) fn shape(&self, channel: &str) -> Option<Shape> {
        match self {
            Self::Missing => None,
            Self::Payloads => Some(Shape::Payloads(channel.into())),
            Self::Fields(rows) => Some(Shape::Fields(channel.into(), Arc::clone(rows))),
        }
    }
}

/// Finds out what the events of a channel are. Ends with [`ErrorKind::Aborted`] soon after `stop` is raised.
pub(super) fn find(log: &LogTables, name: &str, stop: &AtomicBool) -> Result<Known, Error> {
    let test = ChannelTest::named(name);
    let query = Query { channels: test.query(), ..Query::default() };
    let (mut known, is_wanted) = (Known::Missing, PerChannel::default());
    each_batch(log, &query, stop, |batch| {
        let table = is_wanted.table(&log.channels, |channel: &Channel| Ok(test.holds(channel)))?;
        let batch = batch.retain(|row| table[batch.channels()[row] as usize]);
        if batch.is_empty() {
            return Ok(true);
        }
        log.meet(&met(&batch));
        known = match first_rows(booleans::hide(decoded(log, batch)?)) {
            Some(rows) => {
                let (message, columns) = (Arc::clone(&rows.message), rows.columns.schema());
                Known::Fields(Arc::new(RowType { message, columns }))
            }
            None => Known::Payloads,
        };
        Ok(matches!(known, Known::Payloads))
    })?;
    Ok(known)
}

/// Meets every channel of a log. Ends as [`find`] does.
pub(super) fn meet_all(log: &LogTables, stop: &AtomicBool) -> Result<(), Error> {
    each_batch(log, &Query::default(), stop, |batch| {
        log.meet(&met(&batch));
        Ok(true)
    })
}

/// The channels of a batch, by number.
pub(super) fn met(batch: &Batch) -> Vec<bool> {
    let most = batch.channels().iter().max().map_or(0, |id| *id as usize + 1);
    let mut met = vec![false; most];
    batch.channels().iter().for_each(|id| met[*id as usize] = true);
    met
}

fn decoded(log: &LogTables, batch: Batch) -> Result<Batch, Error> {
    match &log.decode {
        Some(decode) => decode.apply(batch, &mut StageContext::new(&log.channels, None)),
        None => Ok(batch),
    }
}

/// The rows of the first event that has some.
fn first_rows(batch: Batch) -> Option<Rows> {
    let with_rows = batch.rows().iter().filter(|rows| !rows.events.is_empty());
    with_rows.min_by_key(|rows| rows.events.first().copied()).cloned()
}

/// Reads a log front to back, so that no place is guessed, until `look` has seen enough. What is damaged is
/// told by whoever reads it for a result.
fn each_batch(
    log: &LogTables,
    query: &Query,
    stop: &AtomicBool,
    mut look: impl FnMut(Batch) -> Result<bool, Error>,
) -> Result<(), Error> {
    let context = log.context(query.clone(), BlockPool::new(PIECE as usize + (64 << 10), 2));
    let mut before: Option<(Split, Option<u64>)> = None;
    for split in log.splits(PIECE, query)? {
        let due =
            before.filter(|(last, _)| last.is_followed_by(&split)).and_then(|(_, ended)| ended);
        let entry = SplitStart::At(due.unwrap_or(split.start));
        let mut reader = log.source.read(&split, entry, &context)?;
        while let Some(batch) = reader.next_batch()? {
            if stop.load(Ordering::Relaxed) {
                return Err(ErrorKind::Aborted.into());
            }
            if !look(batch)? {
                return Ok(());
            }
            // Nobody asks for it here, and a damaged log has much of it.
            drop(context.damage.take());
        }
        before = Some((split, reader.seam().ended));
    }
    Ok(())
}
