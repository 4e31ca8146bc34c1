//! One row group: events in, encoded column chunks out. Runs on any thread and writes nothing.

use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_schema::SchemaRef;
use parquet::arrow::arrow_writer::{
    ArrowColumnChunk, ArrowColumnWriter, ArrowLeafColumn, ArrowRowGroupWriterFactory,
    compute_leaves,
};
use rayon::prelude::*;
use sluice_core::unnest::UnnestPiece;
use sluice_core::{Batch, ChannelId, Channels, Error};

use crate::meta::ChannelMeta;
use crate::shape::Shape;
use crate::taking::Taking;

/// What every row group of a table needs.
pub(crate) struct GroupEncoder {
    pub(crate) shape: Shape,
    pub(crate) schema: SchemaRef,
    pub(crate) columns: ArrowRowGroupWriterFactory,
    pub(crate) channels: Arc<Channels>,
    /// Whether rows are to be sorted by channel where their order can be told from their numbers.
    pub(crate) by_channel: bool,
    /// What of messages is written.
    pub(crate) taking: Arc<Taking>,
}

/// An encoded row group.
pub(crate) struct Group {
    pub(crate) chunks: Vec<ArrowColumnChunk>,
    pub(crate) rows: u64,
    /// How many events begin in it.
    pub(crate) events: u64,
    pub(crate) order: RowOrder,
    /// The channels that are in it and how many rows each has, by source and name.
    pub(crate) channels: Vec<(ChannelId, u32)>,
}

/// How the rows of a group are sorted, as was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowOrder {
    /// By source, channel and sequence, and their order was another before.
    Channel,
    /// By time, as they came.
    Time,
    /// In no order, as they came.
    Arrival,
}

impl GroupEncoder {
    /// Encodes these events as row group number `number` of their table.
    pub(crate) fn encode(
        &self,
        pieces: Vec<UnnestPiece>,
        number: usize,
        variants: &[u32],
    ) -> Result<Group, Error> {
        let events = pieces.iter().map(UnnestPiece::events).sum();
        let apart = pieces.iter().map(|piece| self.taking.rows(piece));
        let batches: Vec<Batch> = apart.collect::<Result<_, Error>>()?;
        drop(pieces);
        let channels = self.used_channels(&batches);
        let rows = batches.iter().map(|batch| batch.len() as u64).sum();
        let sorts = self.by_channel && channels.len() > 1 && numbers_rise(&batches);
        let (batches, order) = if sorts {
            (vec![sorted_by_channel(&batches, &channels)], RowOrder::Channel)
        } else {
            let order = if times_rise(&batches) { RowOrder::Time } else { RowOrder::Arrival };
            (batches, order)
        };
        let chunks = self.chunks(&batches, number, variants)?;
        Ok(Group { chunks, rows, events, order, channels })
    }

    /// The channels of these events with how many there are of each, by source and name.
    fn used_channels(&self, batches: &[Batch]) -> Vec<(ChannelId, u32)> {
        let mut counts: Vec<u32> = Vec::new();
        for channel in batches.iter().flat_map(Batch::channels) {
            let place = *channel as usize;
            if counts.len() <= place {
                counts.resize(place + 1, 0);
            }
            counts[place] += 1;
        }
        let used = counts.into_iter().enumerate().filter(|(_, count)| *count > 0);
        let named = used.map(|(place, count)| {
            let id = ChannelId(place as u32);
            (ChannelMeta::of(&self.channels.get(id)), id, count)
        });
        let mut named: Vec<_> = named.collect();
        named.sort();
        named.into_iter().map(|(_, id, count)| (id, count)).collect()
    }

    fn chunks(
        &self,
        batches: &[Batch],
        number: usize,
        variants: &[u32],
    ) -> Result<Vec<ArrowColumnChunk>, Error> {
        let writers = self.columns.create_column_writers(number).map_err(unfit)?;
        let mut leaves: Vec<Vec<ArrowLeafColumn>> = Vec::new();
        leaves.resize_with(writers.len(), Vec::new);
        for batch in batches {
            let columns: Vec<ArrayRef> = self.shape.columns(batch, &self.channels, variants)?;
            let mut places = leaves.iter_mut();
            for (field, column) in self.schema.fields().iter().zip(&columns) {
                for leaf in compute_leaves(field, column).map_err(unfit)? {
                    let place = places.next();
                    place.ok_or_else(|| Error::internal("more columns than writers"))?.push(leaf);
                }
            }
        }
        let encode = |(mut writer, leaves): (ArrowColumnWriter, Vec<ArrowLeafColumn>)| {
            leaves.iter().try_for_each(|leaf| writer.write(leaf))?;
            writer.close()
        };
        let columns: Vec<_> = writers.into_iter().zip(leaves).collect();
        columns.into_par_iter().map(encode).collect::<Result<_, _>>().map_err(unfit)
    }
}

/// The events with those of each of these channels together, in the order of the list.
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

/// What the Parquet library refuses of values that we made is our mistake, or a lack of memory.
#[expect(clippy::needless_pass_by_value, reason = "used as a function value")]
pub(crate) fn unfit(error: parquet::errors::ParquetError) -> Error {
    Error::internal(format!("a row group cannot be encoded: {error}"))
}
