//! Buffers events per table until a row group is full, hands it over for encoding, and completes
//! tables: footers and folders.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sluice_io::escape::{portable, short_path_escaped};
use sluice_kit::unnest::UnnestPiece;
use sluice_model::{Batch, Error, Job, SinkContext};

use super::tables::{
    ChannelVariants, GroupLimits, OpenTables, SequenceOrder, TableBuffer, TableKey, TableType,
};
use super::{ParquetSink, TableLayout};
use crate::columns::{self, TableColumns};
use crate::file::TableFile;
use crate::group::EncodedGroup;
use crate::meta::{FooterMeta, GroupsMeta};
use crate::projection::TableProjection;
use crate::writers::ColumnWriters;

impl ParquetSink {
    pub(super) fn add(
        &self,
        tables: &mut OpenTables,
        key: TableKey,
        batch: Batch,
        groups: &mut Vec<Job<EncodedGroup>>,
    ) -> Result<(), Error> {
        let place = match tables.places.get(&key) {
            Some(place) => *place,
            None => {
                self.check_other_tables(tables, &key)?;
                self.check_types(&batch)?;
                tables.add_table(key)
            }
        };
        let first = tables.limits;
        let (sizes, mut from) = (RowSizes::measure(&batch, &tables.projection)?, 0);
        while from < batch.len() {
            let table = &tables.tables[place];
            let (capacity, is_empty) = (table.capacity(first), table.rows == 0);
            let share = sizes.fitting(&batch, from, capacity);
            let events = batch.slice(from, share.events);
            from += share.events;
            if share.events > 0 {
                self.buffer(tables, place, UnnestPiece::whole(events), share, groups)?;
            } else if is_empty {
                // The event alone exceeds a row group.
                let size = sizes.share(&batch, from);
                self.add_oversized(tables, place, batch.slice(from, 1), size, groups)?;
                from += 1;
                continue;
            }
            if from < batch.len() {
                groups.extend(self.cut_group(tables, place)?);
            }
        }
        // All channels share the memory: the largest buffers are cut first.
        while tables.buffered > first.buffered {
            let most = tables.tables.iter().enumerate().max_by_key(|(n, t)| (t.bytes, *n));
            let Some((place, _)) = most else { break };
            groups.extend(self.cut_group(tables, place)?);
        }
        Ok(())
    }

    /// Refuses a second table where there is to be one.
    fn check_other_tables(&self, tables: &OpenTables, key: &TableKey) -> Result<(), Error> {
        let first = tables.tables.first().and_then(|table| table.key.as_ref());
        let (TableLayout::Rows, Some((first, ..)), Some((next, ..))) = (self.layout(), first, key)
        else {
            return Ok(());
        };
        let found = if first == next {
            format!(
                "messages on `{first}` of another type, of another channel of this name, or with a \
                 hidden column such as `raw_payload`, which not all of them need"
            )
        } else {
            format!("the channels `{first}` and `{next}`")
        };
        Err(Error::invalid(format!(
            "expected one channel and one type for a table of rows, found {found}: choose one \
             channel, or end the path with a slash for one table per channel: {}",
            self.path.0.display()
        )))
    }

    /// Adds an event that exceeds a row group: its rows are divided among several.
    fn add_oversized(
        &self,
        tables: &mut OpenTables,
        place: usize,
        event: Batch,
        size: GroupShare,
        groups: &mut Vec<Job<EncodedGroup>>,
    ) -> Result<(), Error> {
        let limits = tables.tables[place].limits(tables.limits);
        let row = size.bytes.div_ceil(size.rows.max(1)).max(1);
        let most = limits.bytes.div_ceil(row).clamp(1, limits.rows);
        for start in (0..size.rows).step_by(most) {
            let rows = most.min(size.rows - start);
            let share = GroupShare { events: 0, rows, bytes: rows.saturating_mul(row) };
            let piece = match size.rows {
                1 => UnnestPiece::whole(event.clone()),
                _ => UnnestPiece::elements(event.clone(), start..start + rows),
            };
            self.buffer(tables, place, piece, share, groups)?;
        }
        Ok(())
    }

    /// Adds a piece to the buffer of its table, and cuts a row group if that is full.
    fn buffer(
        &self,
        tables: &mut OpenTables,
        place: usize,
        piece: UnnestPiece,
        share: GroupShare,
        groups: &mut Vec<Job<EncodedGroup>>,
    ) -> Result<(), Error> {
        let table = &mut tables.tables[place];
        let limits = table.limits(tables.limits);
        tables.overhead -= table.pieces.overhead();
        table.pieces.push(piece, share.events > 0);
        table.rows += share.rows;
        table.bytes += share.bytes;
        tables.buffered += share.bytes;
        let others = tables.overhead;
        let is_much =
            |overhead: usize| others + overhead > limits.overhead && overhead > table.bytes;
        if is_much(table.pieces.overhead()) {
            table.pieces.merge_last();
            if is_much(table.pieces.overhead()) {
                table.pieces.merge_many();
            }
        }
        tables.overhead += table.pieces.overhead();
        if table.rows >= limits.rows || table.bytes >= limits.bytes {
            groups.extend(self.cut_group(tables, place)?);
        }
        Ok(())
    }

    /// The job of encoding what a table has buffered, unless that is nothing.
    fn cut_group(
        &self,
        tables: &mut OpenTables,
        place: usize,
    ) -> Result<Option<Job<EncodedGroup>>, Error> {
        let table = &mut tables.tables[place];
        if table.pieces.is_empty() {
            return Ok(None);
        }
        let pieces = std::mem::take(&mut table.pieces);
        let bytes = std::mem::take(&mut table.bytes);
        tables.buffered -= bytes;
        tables.overhead -= pieces.overhead();
        table.rows = 0;
        let known = (&tables.context.channels, &tables.variants);
        let encoder = match &table.encoder {
            Some(encoder) => Arc::clone(encoder),
            None => tables.encoders.share(self.encoder(table, pieces.as_slice(), known)?),
        };
        table.encoder = Some(Arc::clone(&encoder));
        let columns = &encoder.table_columns;
        let has_place = columns.nanos || self.timestamp_ns == Some(false);
        let batches = || pieces.as_slice().iter().map(UnnestPiece::batch);
        if !has_place && batches().any(columns::has_sub_micros) {
            return Err(Error::invalid(format!(
                "events with times finer than microseconds follow a whole row group without any: \
                 set `timestamp_ns = true` (or `false`, to cut them off) for the table {}",
                self.path.0.display()
            )));
        }
        let mut ids = batches().flat_map(Batch::channels);
        if table.key.is_none() && !columns.variant && ids.any(|id| tables.variants.get(*id) > 0) {
            return Err(Error::invalid(format!(
                "two channels of the same name and source differ in their encoding, type or \
                 metadata, and the second one follows a whole row group without such channels; \
                 write one table per channel: {}",
                self.path.0.display()
            )));
        }
        let variants = if columns.variant { tables.variants.table() } else { Vec::new() };
        table.groups += 1;
        let bytes = bytes + pieces.overhead() + encoder.writers.len() * COLUMN_BYTES;
        let encode = move || encoder.encode(pieces.into_pieces(), place, &variants);
        Ok(Some(Job::new(bytes, encode)))
    }

    pub(super) fn write_group(
        &self,
        tables: &mut OpenTables,
        mut group: EncodedGroup,
    ) -> Result<(), Error> {
        let table = &mut tables.tables[group.place];
        table.rows_by_channel.push(std::mem::take(&mut group.channels));
        let mut file = self.take_file(table, &tables.context, &tables.variants)?;
        file.append(group)?;
        table.file = Some(file);
        Ok(())
    }

    /// The file of a table. It is created only once there is something to write: one of a thousand
    /// channels needs no open file yet.
    fn take_file(
        &self,
        table: &mut TableBuffer,
        context: &SinkContext,
        variants: &ChannelVariants,
    ) -> Result<TableFile, Error> {
        if let Some(file) = table.file.take() {
            return Ok(file);
        }
        let file = if self.writes_folder() {
            context.outputs.create_below(&self.folder())?
        } else {
            context.outputs.create_as_is(&self.path.0)?
        };
        let encoder = self.encoder(table, &[], (&context.channels, variants))?;
        let ColumnWriters { parquet, properties, .. } = &encoder.writers;
        TableFile::new(file, Arc::clone(parquet), Arc::clone(properties))
    }

    /// The path of a table. `all` keys are sorted; `otherwise` has other folder names for some
    /// channels.
    fn target(
        &self,
        key: &TableKey,
        all: &[TableKey],
        otherwise: &BTreeMap<String, String>,
    ) -> PathBuf {
        const PART: &str = "part-00000.parquet";
        let Some((channel, kind, variant)) = key else { return self.folder().join(PART) };
        let folder = escaped(channel);
        let folder = otherwise.get(&folder).unwrap_or(&folder);
        let mut path = self.folder().join(format!("channel={folder}"));
        let name_of = |key: &TableKey| key.as_ref().map(|(name, ..)| Arc::clone(name));
        let first = all.partition_point(|other| name_of(other).as_ref() < Some(channel));
        let end = all.partition_point(|other| name_of(other).as_ref() <= Some(channel));
        let of_channel = all.get(first..end).unwrap_or_default();
        if of_channel.len() > 1 {
            let name = kind.map_or_else(|| "raw".to_owned(), |kind| kind.key.to_string());
            let type_key = |kind: &Option<TableType>| kind.map(|kind| kind.key);
            let of_kind =
                of_channel.iter().flatten().filter(|(_, of, _)| type_key(of) == type_key(kind));
            let before = of_kind.filter(|(_, of, at)| (of, at) < (kind, variant)).count();
            let number = if before == 0 { String::new() } else { format!("-{before}") };
            path.push(format!("schema={name}{number}"));
        }
        path.join(PART)
    }

    /// Cuts the last row group of each table, by their keys: completed in this order, each is open
    /// only as long as it is written.
    pub(super) fn last_groups(
        &self,
        tables: &mut OpenTables,
    ) -> Result<Vec<Job<EncodedGroup>>, Error> {
        // Without any events, the table is still written.
        if self.layout() != TableLayout::Channel && tables.tables.is_empty() {
            tables.add_table((self.layout() == TableLayout::Rows).then(|| ("".into(), None, 0)));
        }
        let keys: Vec<TableKey> = tables.places.keys().cloned().collect();
        // Channels `a` and `A` need different folders on case-insensitive file systems.
        let channels = keys.iter().flatten().map(|(channel, ..)| escaped(channel));
        let otherwise = portable(channels, ("channel=", ""));
        let mut groups = Vec::new();
        for key in &keys {
            let place = tables.places[key];
            groups.extend(self.cut_group(tables, place)?);
            let target = self.writes_folder().then(|| self.target(key, &keys, &otherwise));
            tables.unfinished.push_back((place, target));
        }
        Ok(groups)
    }

    /// Completes the next tables, as long as all their row groups are written.
    pub(super) fn close_written(&self, tables: &mut OpenTables) -> Result<(), Error> {
        let next = |tables: &mut OpenTables| {
            tables.unfinished.pop_front_if(|(place, _)| tables.tables[*place].is_written())
        };
        while let Some((place, target)) = next(tables) {
            self.close(tables, place, target.as_deref())?;
        }
        Ok(())
    }

    /// Completes a table: writes the footer.
    fn close(
        &self,
        tables: &mut OpenTables,
        place: usize,
        target: Option<&Path>,
    ) -> Result<(), Error> {
        let OpenTables { tables, context, variants, sequence_order, .. } = tables;
        let table = &mut tables[place];
        let file = self.take_file(table, context, variants)?;
        let (channels, rows) = table.channels(&context.channels, variants);
        let encoder = table.encoder.take();
        let columns = encoder.as_ref().map(|encoder| &encoder.table_columns);
        let meta = FooterMeta {
            channels,
            groups: GroupsMeta { rows, ..file.groups_meta.clone() },
            by_sequence: *sequence_order != SequenceOrder::Unordered,
            message: encoder.as_ref().and_then(|encoder| encoder.message.clone()),
            fields: columns.map(TableColumns::field_metadata).unwrap_or_default(),
            lists: columns.map(TableColumns::list_lengths).unwrap_or_default(),
        };
        file.close(meta.to_entries(&context.origin)?, target)
    }
}

/// A channel's name as Hive partition readers expect it. A name that is too long for a folder is
/// shortened: the footer has it in full.
fn escaped(name: &str) -> String {
    const EMPTY: &str = "__HIVE_DEFAULT_PARTITION__";
    match name {
        "" => EMPTY.to_owned(),
        EMPTY => EMPTY.replacen('_', "%5F", 1),
        name => short_path_escaped(name),
    }
}

/// The size of some events in a row group.
#[derive(Clone, Copy, Debug, Default)]
struct GroupShare {
    events: usize,
    rows: usize,
    bytes: usize,
}

/// The row counts of a batch's events, and the approximate bytes per row without payloads.
struct RowSizes {
    /// `None` means one row per event.
    counts: Option<Vec<u32>>,
    bytes_per_row: usize,
}

/// What each column of a row group takes by itself while it is encoded and written.
const COLUMN_BYTES: usize = 4 << 10;

/// The bytes of a row without payload and message.
const ROW_BYTES: usize = 40;

impl RowSizes {
    fn measure(batch: &Batch, projection: &TableProjection) -> Result<Self, Error> {
        let counts = projection.row_counts(batch)?;
        let all: usize = batch.rows().iter().map(sluice_model::Rows::memory).sum();
        let events = batch.len().max(1);
        let row = match &counts {
            // Fields outside of the list are repeated in each row.
            Some(counts) => {
                let lists: usize =
                    batch.rows().iter().map(|rows| projection.list_bytes(rows)).sum();
                let elements = counts.iter().map(|count| *count as usize).sum::<usize>().max(1);
                all.saturating_sub(lists) / events + lists / elements
            }
            None => all / events,
        };
        Ok(Self { counts, bytes_per_row: ROW_BYTES + row })
    }

    fn rows(&self, event: usize) -> usize {
        self.counts.as_ref().map_or(1, |counts| counts[event] as usize)
    }

    /// The size of the events from `from` on that fit with all their rows.
    fn fitting(&self, batch: &Batch, from: usize, capacity: GroupLimits) -> GroupShare {
        let mut share = GroupShare::default();
        for event in from..batch.len() {
            let next = self.share(batch, event);
            let (rows, bytes) = (share.rows + next.rows, share.bytes.saturating_add(next.bytes));
            if rows > capacity.rows || bytes > capacity.bytes {
                break;
            }
            share = GroupShare { events: share.events + 1, rows, bytes };
        }
        share
    }

    /// The size of one event in a row group.
    fn share(&self, batch: &Batch, event: usize) -> GroupShare {
        let rows = self.rows(event);
        let bytes =
            rows.saturating_mul(self.bytes_per_row).saturating_add(batch.payload_len(event));
        GroupShare { events: 1, rows, bytes }
    }
}
