//! The tables being written, and their state. Writes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use sluice_kit::unnest::UnnestPiece;
use sluice_model::{Batch, ChannelId, Channels, Name, SinkContext, TypeKey, Written};

use super::groups::GroupCapacity;
use super::schema::TableSchema;
use crate::file::TableFile;
use crate::group::EncodedGroup;
use crate::meta::ChannelMeta;
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
    pub(super) counts: BTreeMap<(Name, Arc<str>), u32>,
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
        let used: BTreeSet<ChannelId> = groups.map(|(id, _)| *id).collect();
        let named = used.iter().map(|id| {
            let variant = variants.get(id.index()).copied().unwrap_or_default();
            (ChannelMeta { variant, ..ChannelMeta::from_channel(&context.channels.get(*id)) }, *id)
        });
        let mut named: Vec<(ChannelMeta, ChannelId)> = named.collect();
        named.sort();
        let places: BTreeMap<ChannelId, u32> =
            named.iter().enumerate().map(|(place, (_, id))| (*id, place as u32)).collect();
        let place = |(id, rows): &(ChannelId, u32)| (places[id], *rows);
        let groups = self.rows_by_channel.iter().map(|group| group.iter().map(place).collect());
        let groups = groups.collect();
        (named.into_iter().map(|(channel, _)| channel).collect(), groups)
    }

    pub(super) fn capacity(&self, limits: GroupLimits) -> GroupCapacity {
        let bytes = limits.bytes.saturating_sub(self.bytes);
        GroupCapacity {
            rows: limits.rows.saturating_sub(self.rows),
            bytes,
            is_empty: self.rows == 0,
        }
    }
}
