//! The tables being written, and which events go into which. Writes nothing.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;

use sluice_model::{
    Batch, Channel, ChannelId, ChannelSet, Channels, Encoding, Error, Name, Payloads,
    PrepareContext, Rows, SinkContext, TypeKey, Written,
};

use super::ParquetSink;
use super::buffered::BufferedPieces;
use crate::file::TableFile;
use crate::group::GroupEncoder;
use crate::meta::{ChannelMeta, in_file_order};
use crate::projection::{ProjectionMatches, TableProjection};

/// The key of a table: `None` for the table of all events, or channel, type and variant.
pub(super) type TableKey = Option<(Arc<str>, Option<TableType>, u32)>;

/// The type of the messages in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TableType {
    pub(super) key: TypeKey,
    /// Whether the columns are parts of records whose payloads hold the rest, and no codec reads
    /// those.
    pub(super) is_partial: bool,
}

/// Events partitioned by table.
#[derive(Default)]
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
        context: &PrepareContext<'_>,
    ) -> Result<PartitionedEvents, Error> {
        let sequence_order = SequenceOrder::from_batch(&batch);
        let (projection, mut matches) = (self.projection(), ProjectionMatches::default());
        let (mut parts, mut without_rows) = (Vec::new(), batch.len() as u64);
        let batch = projection.select_fields(batch, &mut matches)?;
        for (mut key, part) in self.split_by_table(&batch, context)? {
            let (part, message) = projection.drop_empty_lists(part, &mut matches)?;
            if let (Some((_, kind, _)), Some(message)) = (&mut key, message) {
                *kind = Some(TableType { key: message.key, is_partial: false });
            }
            without_rows -= part.len() as u64;
            if !part.is_empty() {
                parts.push((key, part));
            }
        }
        Ok(PartitionedEvents { parts, without_rows, matches, sequence_order })
    }

    /// Splits events by channel and type, with payloads copied: buffered events must not keep whole
    /// input blocks alive.
    fn split_by_table(
        &self,
        batch: &Batch,
        context: &PrepareContext<'_>,
    ) -> Result<Vec<(TableKey, Batch)>, Error> {
        let names =
            self.channel_names.table(context.channels, |channel| Ok(channel.name.text().into()))?;
        const RAW: usize = usize::MAX;
        let mut kinds = vec![RAW; batch.len()];
        for (kind, rows) in batch.rows().iter().enumerate() {
            rows.events.iter().for_each(|event| kinds[*event as usize] = kind);
        }
        let mut by_channel: BTreeMap<(u32, usize), Vec<u32>> = BTreeMap::new();
        for (row, channel_and_kind) in (0..).zip(batch.channels().iter().copied().zip(kinds)) {
            by_channel.entry(channel_and_kind).or_default().push(row);
        }
        // Channels with the same name share a table.
        let mut by_name: BTreeMap<(Arc<str>, usize), Vec<u32>> = BTreeMap::new();
        for ((channel, kind), mut events) in by_channel {
            let name = Arc::clone(&names[channel as usize]);
            by_name.entry((name, kind)).or_default().append(&mut events);
        }
        let parts = by_name.into_iter().map(|((name, kind), mut events)| {
            events.sort_unstable();
            let rows = batch.rows().get(kind).cloned();
            let channel = events.first().map(|event| ChannelId(batch.channels()[*event as usize]));
            let channel = channel.map(|channel| context.channels.get(channel));
            let table_type = |rows| self.table_type(rows, channel.as_deref());
            let key = Some((name, rows.as_ref().map(table_type), 0));
            let part = batch.clone().with_rows(rows.into_iter().collect()).take(events);
            let keeps_payloads = self.has_payload_column(&key);
            (key, if keeps_payloads { part.owned() } else { part.without_payloads() })
        });
        Ok(parts.collect())
    }

    /// The type of the table for these rows of a channel. Whoever selects fields needs no payloads.
    fn table_type(&self, rows: &Rows, channel: Option<&Channel>) -> TableType {
        // Stages make parts of whole messages, too.
        let is_undescribed = channel.is_some_and(|channel| channel.encoding == Encoding::Unknown);
        let is_partial =
            is_undescribed && rows.message.is_part() && rows.payloads == Payloads::Kept;
        TableType { key: rows.message.key, is_partial: is_partial && self.fields.is_none() }
    }
}

/// The tables being written.
pub struct OpenTables {
    pub(super) context: SinkContext,
    pub(super) limits: GroupLimits,
    /// In order of first appearance.
    pub(super) tables: Vec<TableBuffer>,
    pub(super) places: BTreeMap<TableKey, usize>,
    /// The tables to complete once all events are gathered, in this order, with the names of their
    /// files unless these have them already.
    pub(super) unfinished: VecDeque<(usize, Option<PathBuf>)>,
    /// The bytes of events buffered for row groups in all tables.
    pub(super) buffered: usize,
    /// What the arrays of their columns take beside their values.
    pub(super) overhead: usize,
    pub(super) sequence_order: SequenceOrder,
    pub(super) variants: ChannelVariants,
    pub(super) projection: TableProjection,
    pub(super) matches: ProjectionMatches,
    pub(super) encoders: RecentEncoders,
    /// What became of events and is not yet reported to the engine.
    pub(super) unreported: Written,
}

impl OpenTables {
    /// Adds a table, and returns its position.
    pub(super) fn add_table(&mut self, key: TableKey) -> usize {
        self.tables.push(TableBuffer { key: key.clone(), ..TableBuffer::default() });
        self.places.insert(key, self.tables.len() - 1);
        self.tables.len() - 1
    }

    /// A channel with several tables, if another channel has only one.
    pub(super) fn divided_by_type(&self) -> Option<&str> {
        let mut tables: BTreeMap<&str, usize> = BTreeMap::new();
        for (name, ..) in self.places.keys().flatten() {
            *tables.entry(name).or_default() += 1;
        }
        let divided = tables.iter().find(|(_, count)| **count > 1).map(|(name, _)| *name);
        divided.filter(|_| tables.values().any(|count| *count == 1))
    }
}

/// The encoders of the last tables. Those of many channels of one type are the same: names, types
/// and properties of a column take a kilobyte.
#[derive(Default)]
pub(super) struct RecentEncoders(VecDeque<Arc<GroupEncoder>>);

impl RecentEncoders {
    /// An encoder like this one, which is another table's if possible.
    pub(super) fn share(&mut self, new: Arc<GroupEncoder>) -> Arc<GroupEncoder> {
        const MOST: usize = 8;
        if let Some(same) = self.0.iter().find(|encoder| encoder.is_like(&new)) {
            return Arc::clone(same);
        }
        self.0.push_front(Arc::clone(&new));
        self.0.truncate(MOST);
        new
    }
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

    pub(super) fn get(&self, id: u32) -> u32 {
        self.by_channel.get(id as usize).copied().flatten().unwrap_or_default()
    }

    pub(super) fn table(&self) -> Vec<u32> {
        self.by_channel.iter().map(|variant| variant.unwrap_or_default()).collect()
    }
}

/// The limits of a row group, and of what all tables buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct GroupLimits {
    /// The maximum rows per row group.
    pub(super) rows: usize,
    /// The maximum bytes per row group.
    pub(super) bytes: usize,
    /// The maximum bytes buffered in all tables.
    pub(super) buffered: usize,
    /// The maximum bytes of arrays beside their values, above which small pieces are merged.
    pub(super) overhead: usize,
}

#[derive(Default)]
pub(super) struct TableBuffer {
    pub(super) key: TableKey,
    pub(super) pieces: BufferedPieces,
    pub(super) rows: usize,
    pub(super) bytes: usize,
    /// The number of row groups handed over.
    pub(super) groups: usize,
    /// `None` until its first row group is full.
    pub(super) encoder: Option<Arc<GroupEncoder>>,
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
    /// Whether all row groups handed over are written.
    pub(super) fn is_written(&self) -> bool {
        self.rows_by_channel.len() == self.groups
    }

    /// The channels as listed in the footer, and for each row group the indexes and row counts of
    /// its channels.
    pub(super) fn channels(
        &self,
        channels: &Channels,
        variants: &ChannelVariants,
    ) -> (Vec<ChannelMeta>, Vec<Vec<(u32, u32)>>) {
        let groups = self.rows_by_channel.iter().flatten();
        let used: ChannelSet = groups.map(|(id, _)| *id).collect();
        let used = in_file_order(used.iter(), channels);
        let places: HashMap<ChannelId, u32> = used.iter().map(|(id, _)| *id).zip(0..).collect();
        let listed = used.iter().map(|(id, channel)| ChannelMeta {
            variant: variants.get(id.0),
            ..ChannelMeta::from_channel(channel)
        });
        let place = |(id, rows): &(ChannelId, u32)| (places[id], *rows);
        let groups = self.rows_by_channel.iter().map(|group| group.iter().map(place).collect());
        (listed.collect(), groups.collect())
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

    /// What can still be added to its next row group.
    pub(super) fn capacity(&self, first: GroupLimits) -> GroupLimits {
        let limits = self.limits(first);
        let rows = limits.rows.saturating_sub(self.rows);
        GroupLimits { rows, bytes: limits.bytes.saturating_sub(self.bytes), ..limits }
    }
}
