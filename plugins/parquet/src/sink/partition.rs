//! Partitions the events of a batch by table. Runs on any thread, in any order.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_model::{Batch, Error, PrepareContext};

use super::ParquetSink;
use super::tables::{PartitionedEvents, SequenceOrder, TableKey};
use crate::projection::ProjectionMatches;

impl ParquetSink {
    /// Partitions events by channel and type, without those that become no row.
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
        let mut group_indexes: std::collections::HashMap<(u32, usize), usize> = Default::default();
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
