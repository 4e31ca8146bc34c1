//! The tables in the making, and what is known of each. Writes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sluice_core::unnest::UnnestPiece;
use sluice_core::{Batch, ChannelId, Channels, Name, OrderedTasks, SinkContext, TypeKey};

use super::form::Form;
use super::groups::GroupCapacity;
use crate::file::TableFile;
use crate::group::Group;
use crate::meta::ChannelMeta;
use crate::taking::{Seen, Taking};

/// Which table an event belongs to: nothing for the one of all, or channel, type and variant.
pub(super) type Key = Option<(Arc<str>, Option<TypeKey>, u32)>;

/// Events by the table they belong to.
pub struct Sorted {
    pub(super) parts: Vec<(Key, Batch)>,
    /// How many events have no row: the list that is taken apart has no element.
    pub(super) without_rows: u64,
    pub(super) seen: Seen,
    /// What the numbers of the events did, in the order in which they came.
    pub(super) numbers: Numbers,
}

/// The tables in the making.
pub struct Tables {
    pub(super) context: SinkContext,
    pub(super) limits: Limits,
    /// In order of first appearance.
    pub(super) tables: Vec<Table>,
    pub(super) places: BTreeMap<Key, usize>,
    /// Bytes of events that wait for their row group to be full, in all tables.
    pub(super) waiting: usize,
    pub(super) groups: OrderedTasks<(usize, Group)>,
    pub(super) numbers: Numbers,
    pub(super) variants: Variants,
    pub(super) taking: Arc<Taking>,
    pub(super) seen: Seen,
}

/// Which of several channels of one name and source each channel is, in order of first appearance.
#[derive(Default)]
pub(super) struct Variants {
    /// By the channels' numbers.
    pub(super) of: Vec<Option<u32>>,
    /// How many there are of a name and source.
    pub(super) known: BTreeMap<(Name, Arc<str>), u32>,
}

impl Variants {
    /// The variants of a batch's channels, each once.
    pub(super) fn of(&mut self, batch: &Batch, channels: &Channels) -> BTreeSet<u32> {
        let (mut found, mut last) = (BTreeSet::new(), None);
        for id in batch.channels() {
            if last.replace(*id) == Some(*id) {
                continue;
            }
            let place = *id as usize;
            if self.of.len() <= place {
                self.of.resize(place + 1, None);
            }
            let variant = *self.of[place].get_or_insert_with(|| {
                let channel = channels.get(ChannelId(*id));
                let count = self.known.entry((channel.name.clone(), Arc::clone(&channel.source)));
                let count = count.or_default();
                *count += 1;
                *count - 1
            });
            found.insert(variant);
        }
        found
    }

    pub(super) fn is(&self, id: u32, variant: u32) -> bool {
        self.of.get(id as usize) == Some(&Some(variant))
    }

    pub(super) fn table(&self) -> Vec<u32> {
        self.of.iter().map(|variant| variant.unwrap_or_default()).collect()
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Rows of a row group.
    pub(super) rows: usize,
    /// Bytes of a row group.
    pub(super) bytes: usize,
    /// Bytes that may wait.
    pub(super) waiting: usize,
}

pub(super) struct Table {
    pub(super) key: Key,
    pub(super) waiting: Vec<UnnestPiece>,
    pub(super) rows: usize,
    pub(super) bytes: usize,
    /// Row groups handed over.
    pub(super) groups: usize,
    pub(super) form: Option<Form>,
    pub(super) file: Option<TableFile>,
    /// For each row group written, its channels and their rows.
    pub(super) rows_by_channel: Vec<Vec<(ChannelId, u32)>>,
}

/// What the numbers of events do, in the order in which they come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Numbers {
    /// There are no events.
    #[default]
    None,
    /// They rise from the first to the last.
    Rise { first: i64, last: i64 },
    /// Some are not above those before.
    Fall,
}

impl Numbers {
    pub(super) fn of(batch: &Batch) -> Self {
        let numbers = batch.sequences();
        let (Some(first), Some(last)) = (numbers.first(), numbers.last()) else {
            return Self::None;
        };
        let rise = numbers.windows(2).all(|pair| pair[0] < pair[1]);
        if rise { Self::Rise { first: *first, last: *last } } else { Self::Fall }
    }

    pub(super) fn and_then(self, next: Self) -> Self {
        match (self, next) {
            (Self::None, other) | (other, Self::None) => other,
            (Self::Rise { first, last }, Self::Rise { first: next, last: end }) if last < next => {
                Self::Rise { first, last: end }
            }
            _ => Self::Fall,
        }
    }
}

impl Table {
    pub(super) fn new(key: Key) -> Self {
        Self {
            key,
            waiting: Vec::new(),
            rows: 0,
            bytes: 0,
            groups: 0,
            form: None,
            file: None,
            rows_by_channel: Vec::new(),
        }
    }

    /// The channels as the footer lists them, and for each row group their places and rows.
    pub(super) fn channels(
        &self,
        context: &SinkContext,
        variants: &[u32],
    ) -> (Vec<ChannelMeta>, Vec<Vec<(u32, u32)>>) {
        let groups = self.rows_by_channel.iter().flatten();
        let used: BTreeSet<ChannelId> = groups.map(|(id, _)| *id).collect();
        let named = used.iter().map(|id| {
            let variant = variants.get(id.index()).copied().unwrap_or_default();
            (ChannelMeta { variant, ..ChannelMeta::of(&context.channels.get(*id)) }, *id)
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

    pub(super) fn room(&self, limits: Limits) -> GroupCapacity {
        let bytes = limits.bytes.saturating_sub(self.bytes);
        GroupCapacity {
            rows: limits.rows.saturating_sub(self.rows),
            bytes,
            is_empty: self.rows == 0,
        }
    }
}
