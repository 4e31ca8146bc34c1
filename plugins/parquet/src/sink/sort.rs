//! Sorts the events of a batch by the tables they belong to. Any thread, any order.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_core::{Batch, EncodeContext, Error};

use super::ParquetSink;
use super::tables::{Key, Numbers, Sorted};
use crate::taking::Seen;

impl ParquetSink {
    /// Events by channel and type, without those that become no row.
    pub(super) fn sorted(
        &self,
        batch: Batch,
        numbers: Numbers,
        context: &EncodeContext<'_>,
    ) -> Result<Sorted, Error> {
        let (taking, mut seen) = (self.taking(), Seen::default());
        let events = batch.len();
        let mut parts = self.sort(taking.before_sorting(batch, &mut seen)?, context)?;
        for (key, part) in &mut parts {
            let (kept, message) = taking.with_elements(std::mem::take(part), &mut seen)?;
            *part = kept;
            if let (Some((_, kind, _)), Some(message)) = (key, message) {
                *kind = Some(message.key);
            }
        }
        parts.retain(|(_, part)| !part.is_empty());
        let kept: usize = parts.iter().map(|(_, part)| part.len()).sum();
        Ok(Sorted { parts, without_rows: (events - kept) as u64, seen, numbers })
    }

    /// Events by channel and type, with payloads of their own: what a table gathers must not keep whole
    /// blocks of input alive.
    fn sort(&self, batch: Batch, context: &EncodeContext<'_>) -> Result<Vec<(Key, Batch)>, Error> {
        let names = self.names.table(context.channels, |channel| Ok(channel.name.text().into()))?;
        const RAW: usize = usize::MAX;
        let mut kinds = vec![RAW; batch.len()];
        for (kind, rows) in batch.rows().iter().enumerate() {
            rows.events.iter().for_each(|event| kinds[*event as usize] = kind);
        }
        let mut positions: BTreeMap<(Arc<str>, usize), Vec<u32>> = BTreeMap::new();
        let mut last: Option<(u32, usize)> = None;
        let mut places: Vec<Vec<u32>> = Vec::new();
        let mut known: std::collections::HashMap<(u32, usize), usize> = Default::default();
        let mut at = 0;
        for (row, channel) in batch.channels().iter().enumerate() {
            let group = (*channel, kinds[row]);
            if last != Some(group) {
                at = *known.entry(group).or_insert_with(|| {
                    places.push(Vec::new());
                    places.len() - 1
                });
                last = Some(group);
            }
            places[at].push(row as u32);
        }
        let mut groups: Vec<((u32, usize), usize)> = known.into_iter().collect();
        groups.sort_unstable();
        for ((channel, kind), at) in groups {
            let name = Arc::clone(&names[channel as usize]);
            // Channels that differ in something else than their name share a table.
            positions.entry((name, kind)).or_default().append(&mut places[at]);
        }
        let all = batch.rows().to_vec();
        let sorted = positions.into_iter().map(|((name, kind), mut positions)| {
            positions.sort_unstable();
            let rows = all.get(kind).cloned();
            let key = Some((name, rows.as_ref().map(|rows| rows.message.key), 0));
            let keeps = self.has_payload(&key);
            let part = batch.clone().with_rows(rows.into_iter().collect()).take(positions);
            (key, if keeps { part.owned() } else { part.without_payloads() })
        });
        Ok(sorted.collect())
    }
}
