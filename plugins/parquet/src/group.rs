//! Encodes one row group: events in, column chunks out. Runs on any thread and writes nothing.

use std::sync::Arc;

use arrow_array::ArrayRef;
use parquet::arrow::arrow_writer::{ArrowColumnChunk, ArrowLeafColumn, compute_leaves};
use rayon::prelude::*;
use sluice_kit::counts::EventCounts;
use sluice_kit::unnest::UnnestPiece;
use sluice_model::{Batch, ChannelId, Channels, Error, MessageType};

use crate::columns::TableColumns;
use crate::meta::in_file_order;
use crate::projection::TableProjection;
use crate::writers::ColumnWriters;

/// What all row groups of a table share.
pub(crate) struct GroupEncoder {
    pub(crate) table_columns: TableColumns,
    pub(crate) writers: ColumnWriters,
    /// The type of the messages, if they were decoded.
    pub(crate) message: Option<Arc<MessageType>>,
    pub(crate) channels: Arc<Channels>,
    /// Whether to sort rows by channel if their numbers preserve the original order.
    pub(crate) by_channel: bool,
    /// The fields and lists that are written.
    pub(crate) projection: TableProjection,
}

/// An encoded row group on its way to its table.
pub struct EncodedGroup {
    /// The position of its table.
    pub(crate) place: usize,
    pub(crate) chunks: Vec<ArrowColumnChunk>,
    pub(crate) rows: u64,
    /// The number of events that start in it.
    pub(crate) events: u64,
    pub(crate) order: RowOrder,
    /// The channels in it with their row counts, by source and name.
    pub(crate) channels: Vec<(ChannelId, u32)>,
}

/// The order of rows in a group, as verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowOrder {
    /// By source, channel and sequence; not the order of arrival.
    Channel,
    /// By time, in order of arrival.
    Time,
    /// In order of arrival, not sorted.
    Arrival,
}

impl GroupEncoder {
    /// Whether both, of tables of the same sink, encode events in the same way.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        self.table_columns == other.table_columns
            && self.message == other.message
            && self.writers.is_like(&other.writers)
    }

    /// Encodes these events as a row group of the table at `place`.
    pub(crate) fn encode(
        &self,
        pieces: Vec<UnnestPiece>,
        place: usize,
        variants: &[u32],
    ) -> Result<EncodedGroup, Error> {
        let events = pieces.iter().map(UnnestPiece::events).sum();
        let apart = pieces.iter().map(|piece| self.projection.rows(piece));
        let batches: Vec<Batch> = apart.collect::<Result<_, Error>>()?;
        drop(pieces);
        let channels = self.channel_counts(&batches);
        let rows = batches.iter().map(|batch| batch.len() as u64).sum();
        let sorts = self.by_channel && channels.len() > 1 && numbers_rise(&batches);
        let (batches, order) = if sorts {
            let sorted = sorted_by_channel(&batches, &channels);
            drop(batches);
            (vec![sorted], RowOrder::Channel)
        } else {
            let order = if times_rise(&batches) { RowOrder::Time } else { RowOrder::Arrival };
            (batches, order)
        };
        let chunks = self.chunks(batches, variants)?;
        Ok(EncodedGroup { place, chunks, rows, events, order, channels })
    }

    /// The channels of these events with their event counts, by source and name.
    fn channel_counts(&self, batches: &[Batch]) -> Vec<(ChannelId, u32)> {
        let mut counts = EventCounts::default();
        batches.iter().for_each(|batch| counts.add(&EventCounts::count(batch.channels())));
        let ordered = in_file_order(counts.channels(), &self.channels);
        let rows = |id: ChannelId| u32::try_from(counts.get(id.index())).unwrap_or(u32::MAX);
        ordered.into_iter().map(|(id, _)| (id, rows(id))).collect()
    }

    fn chunks(
        &self,
        batches: Vec<Batch>,
        variants: &[u32],
    ) -> Result<Vec<ArrowColumnChunk>, Error> {
        let columns = |batch| self.table_columns.columns(batch, &self.channels, variants);
        let columns: Vec<Vec<ArrayRef>> = batches.iter().map(columns).collect::<Result<_, _>>()?;
        drop(batches);
        let properties = self.writers.properties_for(&columns).map_err(encode_error)?;
        let mut leaves: Vec<Vec<ArrowLeafColumn>> = Vec::new();
        leaves.resize_with(self.writers.len(), Vec::new);
        for columns in columns {
            let mut places = leaves.iter_mut();
            for (field, column) in self.writers.arrow.fields().iter().zip(&columns) {
                for leaf in compute_leaves(field, column).map_err(encode_error)? {
                    let place = places.next();
                    place.ok_or_else(|| Error::internal("more columns than writers"))?.push(leaf);
                }
            }
        }
        let encode = |(leaf, parts): (usize, Vec<ArrowLeafColumn>)| {
            let mut writer = self.writers.of_leaf(leaf, &properties)?;
            // Each part is freed once it is encoded: its blocks are then read into again.
            parts.into_iter().try_for_each(|part| writer.write(&part))?;
            writer.close()
        };
        let leaves = leaves.into_par_iter().enumerate();
        leaves.map(encode).collect::<Result<_, _>>().map_err(encode_error)
    }
}

/// The events grouped by channel, in the order of the list.
fn sorted_by_channel(batches: &[Batch], channels: &[(ChannelId, u32)]) -> Batch {
    let most = channels.iter().map(|(id, _)| id.index() + 1).max().unwrap_or_default();
    let (mut next, mut start) = (vec![0; most], 0);
    for (id, count) in channels {
        next[id.index()] = start;
        start += *count as usize;
    }
    let mut picks = vec![(0, 0); start];
    for (n, batch) in batches.iter().enumerate() {
        for (row, channel) in batch.channels().iter().enumerate() {
            let place = &mut next[*channel as usize];
            picks[*place] = (n as u32, row as u32);
            *place += 1;
        }
    }
    Batch::interleave(batches, &picks)
}

fn numbers_rise(batches: &[Batch]) -> bool {
    batches.iter().flat_map(Batch::sequences).is_sorted_by(|before, next| before < next)
}

fn times_rise(batches: &[Batch]) -> bool {
    batches.iter().flat_map(Batch::timestamps).is_sorted()
}

/// The Parquet library only rejects our values because of a bug, or for lack of memory.
#[expect(clippy::needless_pass_by_value, reason = "used as a function value")]
pub(crate) fn encode_error(error: parquet::errors::ParquetError) -> Error {
    Error::internal(format!("a row group cannot be encoded: {error}"))
}
