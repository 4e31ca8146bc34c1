//! Row groups: events wait in their tables until one is full, and are handed over to be encoded.

use std::sync::Arc;

use sluice_core::unnest::UnnestPiece;
use sluice_core::{Batch, Error, SinkContext};

use super::ParquetSink;
use super::tables::{Key, Table, Tables};
use crate::file::TableFile;
use crate::group::Group;
use crate::shape;
use crate::taking::Taking;

impl ParquetSink {
    pub(super) fn add(&self, tables: &mut Tables, key: Key, batch: Batch) -> Result<u64, Error> {
        let mut written = 0;
        let place = match tables.places.get(&key) {
            Some(place) => *place,
            None => {
                tables.tables.push(Table::new(key.clone()));
                tables.places.insert(key, tables.tables.len() - 1);
                tables.tables.len() - 1
            }
        };
        let limits = tables.limits;
        let (sizes, mut from) = (Sizes::of(&batch, &tables.taking)?, 0);
        while from < batch.len() {
            let room = tables.tables[place].room(limits);
            let share = room.take(&batch, from, &sizes);
            let events = batch.slice(from, share.events);
            from += share.events;
            if share.events > 0 {
                written += self.gather(tables, place, UnnestPiece::whole(events), share)?;
            } else if room.is_empty {
                // More than a row group for itself.
                let size = sizes.share(&batch, from);
                written += self.add_alone(tables, place, batch.slice(from, 1), size)?;
                from += 1;
                continue;
            }
            if from < batch.len() {
                written += self.cut(tables, place)?;
            }
        }
        // Many channels share the memory: those that have gathered most give way.
        while tables.waiting > limits.waiting {
            let most = tables.tables.iter().enumerate().max_by_key(|(n, t)| (t.bytes, *n));
            let Some((place, _)) = most else { break };
            written += self.cut(tables, place)?;
        }
        Ok(written)
    }

    /// Adds an event for which a row group has no room. The rows it becomes are cut into several.
    fn add_alone(
        &self,
        tables: &mut Tables,
        place: usize,
        event: Batch,
        size: Share,
    ) -> Result<u64, Error> {
        let (mut written, limits) = (0, tables.limits);
        let row = size.bytes.div_ceil(size.rows.max(1)).max(1);
        let most = (limits.bytes / row).clamp(1, limits.rows);
        for start in (0..size.rows).step_by(most) {
            let rows = most.min(size.rows - start);
            let share = Share { events: 0, rows, bytes: rows.saturating_mul(row) };
            let piece = match size.rows {
                1 => UnnestPiece::whole(event.clone()),
                _ => UnnestPiece::elements(event.clone(), start..start + rows),
            };
            written += self.gather(tables, place, piece, share)?;
        }
        Ok(written)
    }

    /// Lets a piece wait in its table until a row group is full.
    fn gather(
        &self,
        tables: &mut Tables,
        place: usize,
        piece: UnnestPiece,
        share: Share,
    ) -> Result<u64, Error> {
        let (table, limits) = (&mut tables.tables[place], tables.limits);
        table.waiting.push(piece);
        table.rows += share.rows;
        table.bytes += share.bytes;
        tables.waiting += share.bytes;
        if table.rows >= limits.rows || table.bytes >= limits.bytes {
            return self.cut(tables, place);
        }
        Ok(0)
    }

    /// Hands what waits in a table over as a row group. Gives the rows that were written meanwhile.
    pub(super) fn cut(&self, tables: &mut Tables, place: usize) -> Result<u64, Error> {
        let table = &mut tables.tables[place];
        if table.waiting.is_empty() {
            return Ok(0);
        }
        let pieces = std::mem::take(&mut table.waiting);
        tables.waiting -= std::mem::take(&mut table.bytes);
        table.rows = 0;
        if table.form.is_none() {
            table.form = Some(self.form(&table.key, &pieces, &tables.taking, &tables.context)?);
        }
        let form = table.form.as_ref().ok_or_else(|| Error::internal("a table without a form"))?;
        let has_place = form.encoder.shape.nanos || self.timestamp_ns == Some(false);
        let batches = || pieces.iter().map(UnnestPiece::batch);
        if !has_place && batches().any(shape::is_fine) {
            return Err(Error::invalid(format!(
                "events with times between microseconds came after a whole row group without any: say \
                 `timestamp_ns = true` (or false, to cut them off) for the table {}",
                self.path.0.display()
            )));
        }
        let variants = tables.variants.table();
        let has_variants = |batch: &Batch| {
            batch.channels().iter().any(|id| variants.get(*id as usize).is_some_and(|v| *v > 0))
        };
        if table.key.is_none() && !form.encoder.shape.variant && batches().any(has_variants) {
            return Err(Error::invalid(format!(
                "two channels have one name and one source, and differ in what else is said of them; that \
                 came after a whole row group of channels of which nothing else is said. Write a table a \
                 channel: {}",
                self.path.0.display()
            )));
        }
        let (encoder, number) = (Arc::clone(&form.encoder), table.groups);
        table.groups += 1;
        let encode = move || Ok((place, encoder.encode(pieces, number, &variants)?));
        let done = tables.groups.push(encode)?;
        done.map_or(Ok(0), |(place, group)| self.write(tables, place, group))
    }

    pub(super) fn write(
        &self,
        tables: &mut Tables,
        place: usize,
        group: Group,
    ) -> Result<u64, Error> {
        let (table, events) = (&mut tables.tables[place], group.events);
        table.rows_by_channel.push(group.channels.clone());
        let mut file = match table.file.take() {
            Some(file) => file,
            None => self.create(table, &tables.context)?,
        };
        file.append(group)?;
        table.file = Some(file);
        Ok(events)
    }

    /// Begins the file of a table. Not before there is something to write: a channel in a thousand needs
    /// no open file.
    pub(super) fn create(&self, table: &Table, context: &SinkContext) -> Result<TableFile, Error> {
        let file = if self.writes_folder() {
            context.outputs.create_below(&self.folder())?
        } else {
            context.outputs.create_as_is(&self.path.0)?
        };
        let form = table.form.as_ref();
        let form = form.ok_or_else(|| Error::internal("a row group without a table"))?;
        TableFile::new(file, Arc::clone(&form.schema), Arc::clone(&form.properties))
    }
}

/// What still fits into a row group.
pub(super) struct GroupCapacity {
    pub(super) rows: usize,
    pub(super) bytes: usize,
    /// Nothing is in it yet.
    pub(super) is_empty: bool,
}

/// Some events, and what they are in a row group.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    pub(super) events: usize,
    pub(super) rows: usize,
    pub(super) bytes: usize,
}

impl GroupCapacity {
    /// How many events of the batch from `from` on fit with all their rows.
    fn take(&self, batch: &Batch, from: usize, sizes: &Sizes) -> Share {
        let mut share = Share::default();
        for event in from..batch.len() {
            let next = sizes.share(batch, event);
            let (rows, bytes) = (share.rows + next.rows, share.bytes.saturating_add(next.bytes));
            if rows > self.rows || bytes > self.bytes {
                break;
            }
            share = Share { events: share.events + 1, rows, bytes };
        }
        share
    }
}

/// How many rows the events of a batch become, and about how many bytes these take beside payloads.
struct Sizes {
    /// One for each event, if there is nothing.
    pub(super) counts: Option<Vec<u32>>,
    /// Bytes of a row.
    pub(super) row: usize,
}

/// What a row takes beside its payload and message.
const ROW_BYTES: usize = 40;

impl Sizes {
    fn of(batch: &Batch, taking: &Taking) -> Result<Self, Error> {
        let counts = taking.row_counts(batch)?;
        let all: usize = batch.rows().iter().map(sluice_core::Rows::memory).sum();
        let events = batch.len().max(1);
        let row = match &counts {
            // Of what is not in a list each row has its own.
            Some(counts) => {
                let lists: usize = batch.rows().iter().map(|rows| taking.list_bytes(rows)).sum();
                let elements = counts.iter().map(|count| *count as usize).sum::<usize>().max(1);
                all.saturating_sub(lists) / events + lists / elements
            }
            None => all / events,
        };
        Ok(Self { counts, row: ROW_BYTES + row })
    }

    fn rows(&self, event: usize) -> usize {
        self.counts.as_ref().map_or(1, |counts| counts[event] as usize)
    }

    /// What an event is in a row group.
    fn share(&self, batch: &Batch, event: usize) -> Share {
        let rows = self.rows(event);
        let bytes = rows.saturating_mul(self.row).saturating_add(batch.payload_len(event));
        Share { events: 1, rows, bytes }
    }
}
