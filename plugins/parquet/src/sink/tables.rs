//! The tables being written, and which events go into which. Writes nothing.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use sluice_kit::unnest::UnnestPiece;
use sluice_model::{
    Batch, ChannelId, ChannelSet, Channels, Error, Name, PrepareContext, SinkContext, TypeKey,
    Written,
};

use super::ParquetSink;
use super::groups::GroupCapacity;
use super::schema::TableSchema;
use crate::file::TableFile;
use crate::group::EncodedGroup;
use crate::meta::{ChannelMeta, in_file_order};
use crate::projection::{ProjectionMatches, TableProjection};

/// The key of a table: `None` for the table of all events, or channel, type and variant.
pub(super) type TableKey = Option<(Arc<str>, Option<TypeKey>, u32)>;

/// Events partitioned by table.
pub struct PartitionedEvents {
    pub(super) parts: Vec<(TableKey, Batch)>,
    /// The number of events without a row, whose unnested list is empty.
    pub(super) without_rows: u64,
    pub(super) matches: ProjectionMatches,
    /// The order of the sequence numbers on arrival.
    pub(super) sequence_order: SequenceOrder,
}

impl ParquetSink {
    /// Partitions events by channel and type, without those that become no row. Called on any
    /// thread, in any order.
    pub(super) fn partition(
        &self,
        batch: Batch,
        numbers: SequenceOrder,
        context: &PrepareContext<'_>,
    ) -> Result<PartitionedEvents, Error> {
        let (projection, mut matches) = (self.projection(), ProjectionMatches::default());
        let events = batch.len();
        let mut parts =
            self.split_by_table(projection.select_fields(batch, &mut matches)?, context)?;
        for (key, part) in &mut parts {
            let (remaining, message) =
                projection.drop_empty_lists(std::mem::take(part), &mut matches)?;
            *part = remaining;
            if let (Some((_, kind, _)), Some(message)) = (key, message) {
                *kind = Some(message.key);
            }
        }
        parts.retain(|(_, part)| !part.is_empty());
        let remaining: usize = parts.iter().map(|(_, part)| part.len()).sum();
        Ok(PartitionedEvents {
            parts,
            without_rows: (events - remaining) as u64,
            matches,
            sequence_order: numbers,
        })
    }

    /// Splits events by channel and type, with payloads copied: buffered events must not keep whole
    /// input blocks alive.
    fn split_by_table(
        &self,
        batch: Batch,
        context: &PrepareContext<'_>,
    ) -> Result<Vec<(TableKey, Batch)>, Error> {
        let names =
            self.channel_names.table(context.channels, |channel| Ok(channel.name.text().into()))?;
        const RAW: usize = usize::MAX;
        let mut kinds = vec![RAW; batch.len()];
        for (kind, rows) in batch.rows().iter().enumerate() {
            rows.events.iter().for_each(|event| kinds[*event as usize] = kind);
        }
        let mut positions: BTreeMap<(Arc<str>, usize), Vec<u32>> = BTreeMap::new();
        let mut last: Option<(u32, usize)> = None;
        let mut places: Vec<Vec<u32>> = Vec::new();
        let mut group_indexes: HashMap<(u32, usize), usize> = HashMap::new();
        let mut at = 0;
        for (row, channel) in batch.channels().iter().enumerate() {
            let group = (*channel, kinds[row]);
            if last != Some(group) {
                at = *group_indexes.entry(group).or_insert_with(|| {
                    places.push(Vec::new());
                    places.len() - 1
                });
                last = Some(group);
            }
            places[at].push(row as u32);
        }
        let mut groups: Vec<((u32, usize), usize)> = group_indexes.into_iter().collect();
        groups.sort_unstable();
        for ((channel, kind), at) in groups {
            let name = Arc::clone(&names[channel as usize]);
            // Channels with the same name share a table.
            positions.entry((name, kind)).or_default().append(&mut places[at]);
        }
        let all = batch.rows().to_vec();
        let sorted = positions.into_iter().map(|((name, kind), mut positions)| {
            positions.sort_unstable();
            let rows = all.get(kind).cloned();
            let key = Some((name, rows.as_ref().map(|rows| rows.message.key), 0));
            let keeps = self.has_payload_column(&key);
            let part = batch.clone().with_rows(rows.into_iter().collect()).take(positions);
            (key, if keeps { part.owned() } else { part.without_payloads() })
        });
        Ok(sorted.collect())
    }
}

/// The tables being written.
pub struct OpenTables {
    pub(super) context: SinkContext,
    pub(super) limits: GroupLimits,
    /// In order of first appearance.
    pub(super) tables: Vec<TableBuffer>,
    pub(super) places: BTreeMap<TableKey, usize>,
    /// The bytes of events buffered for row groups in all tables.
    pub(super) buffered: usize,
    pub(super) sequence_order: SequenceOrder,
    pub(super) variants: ChannelVariants,
    pub(super) projection: Arc<TableProjection>,
    pub(super) matches: ProjectionMatches,
    /// What became of events and is not yet reported to the engine.
    pub(super) unreported: Written,
}

/// A row group to write, and whether its table is complete then.
pub struct TableUnit {
    /// The position of its table.
    pub(super) place: usize,
    /// `None` if the table is complete without another row group.
    pub(super) group: Option<EncodedGroup>,
    /// For the last unit of a table, the name of its file, unless it has that already.
    pub(super) last: Option<Option<PathBuf>>,
}

/// Numbers the channels that have the same name and source, in order of first appearance.
#[derive(Default)]
pub(super) struct ChannelVariants {
    /// By channel number.
    pub(super) by_channel: Vec<Option<u32>>,
    /// The number of channels per name and source.
    pub(super) counts: HashMap<(Name, Arc<str>), u32>,
}

impl ChannelVariants {
    /// The distinct variants of a batch's channels.
    pub(super) fn in_batch(&mut self, batch: &Batch, channels: &Channels) -> BTreeSet<u32> {
        let (mut found, mut last) = (BTreeSet::new(), None);
        for id in batch.channels() {
            if last.replace(*id) == Some(*id) {
                continue;
            }
            let place = *id as usize;
            if self.by_channel.len() <= place {
                self.by_channel.resize(place + 1, None);
            }
            let variant = *self.by_channel[place].get_or_insert_with(|| {
                let channel = channels.get(ChannelId(*id));
                let count = self.counts.entry((channel.name.clone(), Arc::clone(&channel.source)));
                let count = count.or_default();
                *count += 1;
                *count - 1
            });
            found.insert(variant);
        }
        found
    }

    pub(super) fn is(&self, id: u32, variant: u32) -> bool {
        self.by_channel.get(id as usize) == Some(&Some(variant))
    }

    pub(super) fn table(&self) -> Vec<u32> {
        self.by_channel.iter().map(|variant| variant.unwrap_or_default()).collect()
    }
}

/// The limits of the first row group of a table, and of what all buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct GroupLimits {
    /// The maximum rows per row group.
    pub(super) rows: usize,
    /// The maximum bytes per row group.
    pub(super) bytes: usize,
    /// The maximum bytes buffered in all tables.
    pub(super) buffered: usize,
}

pub(super) struct TableBuffer {
    pub(super) key: TableKey,
    pub(super) pieces: Vec<UnnestPiece>,
    pub(super) rows: usize,
    pub(super) bytes: usize,
    /// The number of row groups handed over.
    pub(super) groups: usize,
    pub(super) schema: Option<TableSchema>,
    pub(super) file: Option<TableFile>,
    /// The channels and row counts of each row group written.
    pub(super) rows_by_channel: Vec<Vec<(ChannelId, u32)>>,
}

/// The order of sequence numbers on arrival.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum SequenceOrder {
    /// There are no events.
    #[default]
    Empty,
    /// They rise strictly.
    Rising { first: i64, last: i64 },
    /// They do not rise strictly.
    Unordered,
}

impl SequenceOrder {
    pub(super) fn from_batch(batch: &Batch) -> Self {
        let numbers = batch.sequences();
        let (Some(first), Some(last)) = (numbers.first(), numbers.last()) else {
            return Self::Empty;
        };
        let rise = numbers.windows(2).all(|pair| pair[0] < pair[1]);
        if rise { Self::Rising { first: *first, last: *last } } else { Self::Unordered }
    }

    pub(super) fn then(self, next: Self) -> Self {
        match (self, next) {
            (Self::Empty, other) | (other, Self::Empty) => other,
            (Self::Rising { first, last }, Self::Rising { first: next, last: end })
                if last < next =>
            {
                Self::Rising { first, last: end }
            }
            _ => Self::Unordered,
        }
    }
}

impl TableBuffer {
    pub(super) fn new(key: TableKey) -> Self {
        Self {
            key,
            pieces: Vec::new(),
            rows: 0,
            bytes: 0,
            groups: 0,
            schema: None,
            file: None,
            rows_by_channel: Vec::new(),
        }
    }

    /// The channels as listed in the footer, and for each row group the indexes and row counts of
    /// its channels.
    pub(super) fn channels(
        &self,
        context: &SinkContext,
        variants: &[u32],
    ) -> (Vec<ChannelMeta>, Vec<Vec<(u32, u32)>>) {
        let groups = self.rows_by_channel.iter().flatten();
        let used: ChannelSet = groups.map(|(id, _)| *id).collect();
        let mut places = vec![0; variants.len()];
        let listed = in_file_order(used.iter(), &context.channels);
        let listed = listed.into_iter().zip(0..).map(|((id, channel), place)| {
            places[id.index()] = place;
            ChannelMeta { variant: variants[id.index()], ..ChannelMeta::from_channel(&channel) }
        });
        let listed = listed.collect();
        let place = |(id, rows): &(ChannelId, u32)| (places[id.index()], *rows);
        let groups = self.rows_by_channel.iter().map(|group| group.iter().map(place).collect());
        (listed, groups.collect())
    }

    /// The limits of its next row group. Each row group has metadata that is kept until the file is
    /// complete, and a file can have only so many.
    pub(super) fn limits(&self, first: GroupLimits) -> GroupLimits {
        const DOUBLED_EVERY: usize = 4096;
        let doubled = (self.groups / DOUBLED_EVERY).min(usize::BITS as usize - 1) as u32;
        let grown = |limit: usize| limit.saturating_mul(1 << doubled);
        let bytes = grown(first.bytes).min(first.bytes.max(first.buffered));
        GroupLimits { rows: grown(first.rows), bytes, ..first }
    }

    pub(super) fn capacity(&self, first: GroupLimits) -> GroupCapacity {
        let limits = self.limits(first);
        let bytes = limits.bytes.saturating_sub(self.bytes);
        GroupCapacity {
            rows: limits.rows.saturating_sub(self.rows),
            bytes,
            is_empty: self.rows == 0,
        }
    }
}
