//! Reads one Parquet file as events: its footer, its row groups, and their rows as batches.
//!
//! The file may come from this crate's sink or another program, if it has a column `timestamp`.
//! Columns that are not ours are the fields of a decoded message.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use arrow_schema::{DataType, FieldRef, Fields, Schema, TimeUnit};
use parquet::arrow::arrow_reader::{RowSelection, RowSelector};
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::statistics::Statistics;
use sluice_io::escape::{column_of_field, escaped_path, field_of_column};
use sluice_kit::event_table::{CHANNEL, RESERVED, SOURCE, TIMESTAMP, TIMESTAMP_NS};
use sluice_model::{Damage, Error, LogPayloads, Name, Query, ReadContext};

use crate::input::{GroupSpan, InputOptions, ParquetInput, TableBytes, TimeUnits};
use crate::meta::{CREATED_BY, ChannelMeta, EntryFault, FooterMeta};

mod channel_resolver;
mod group_reader;
mod output;
mod statistics;

use channel_resolver::ChannelResolver;
pub(crate) use group_reader::{GroupReader, TARGET_BYTES};

/// The maximum uncompressed length of a row group whose rows are sorted in memory.
const MAX_SORTED_GROUP: usize = 1 << 30;

/// A Parquet file of events.
pub(crate) struct ParquetTable {
    input: ParquetInput,
    /// Our metadata in the footer.
    pub(crate) meta: FooterMeta,
    /// What is wrong with the footer and the page index, and the entries of our metadata that are
    /// there but cannot be read.
    pub(crate) faults: Vec<String>,
    /// The columns that are fields of a message, by their places, with the fields' own names and
    /// metadata.
    fields: Vec<(usize, FieldRef)>,
    /// Whether `timestamp_ns` has the times of events, and is not a field of the messages.
    has_nanos: bool,
    /// The channel of all rows, if there is no channel column.
    channel: Name,
    /// Indexes of the footer's channels, sorted by name and source: there may be tens of thousands.
    by_name: OnceLock<Vec<u32>>,
}

impl ParquetTable {
    /// Opens a file and reads its footer.
    ///
    /// `Err` if it is not a Parquet file, is cut off, is compressed with another codec, or has no
    /// times.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let words = &[SOURCE, CHANNEL];
        let mut input =
            ParquetInput::open(path, InputOptions { name: "this", words, page_index: true })?;
        let about = input.metadata().file_metadata();
        let (mut meta, mut faults) = FooterMeta::from_entries(about.key_value_metadata());
        if about.created_by().is_none_or(|by| !by.starts_with(CREATED_BY)) {
            meta = meta.for_rewritten_file();
            faults.retain(EntryFault::stays_in_rewritten_file);
        }
        input.set_list_lengths(&meta.lists);
        let of_footer = input.footer_fault().map(str::to_owned);
        let faults = faults.iter().map(ToString::to_string);
        let faults = of_footer.into_iter().chain(faults).collect();
        let channel = channel_of(path, &meta);
        let (fields, has_nanos, by_name) = (Vec::new(), false, OnceLock::new());
        let mut table = Self { input, meta, faults, fields, has_nanos, channel, by_name };
        table.check_columns()?;
        table.has_nanos = table.nanos_are_times();
        table.fields = table.message_fields();
        Ok(table)
    }

    fn check_columns(&self) -> Result<(), Error> {
        let schema = self.input.schema();
        check_names(schema).map_err(|what| {
            Error::invalid(format!("{what}: rename one of them: {}", self.path().display()))
        })?;
        let has = |name: &str| schema.column_with_name(name).map(|(_, field)| field.data_type());
        let nanos = has(TIMESTAMP_NS).is_some_and(|found| *found == DataType::Int64);
        match has(TIMESTAMP) {
            _ if nanos => Ok(()),
            Some(DataType::Timestamp(..)) => Ok(()),
            Some(other) => Err(Error::invalid(format!(
                "expected a timestamp in the column `timestamp`, found {other}: {}",
                self.path().display()
            ))),
            None => Err(Error::invalid(format!(
                "the column `timestamp` is missing, without which rows are not events: {}",
                self.path().display()
            ))),
        }
    }

    fn message_fields(&self) -> Vec<(usize, FieldRef)> {
        let fields = self.input.schema().fields().iter().enumerate();
        let own = fields.filter_map(|(place, field)| {
            let name = match field.name().as_str() {
                TIMESTAMP_NS if !self.has_nanos => TIMESTAMP_NS,
                name => field_of_column(name, &RESERVED)?,
            };
            let mut metadata = field.metadata().clone();
            metadata.extend(self.meta.fields.get(field.name()).cloned().unwrap_or_default());
            let field = field.as_ref().clone().with_name(name).with_metadata(metadata);
            Some((place, Arc::new(field)))
        });
        own.collect()
    }

    /// The units of its INT96 times; none if it has no such times.
    pub(crate) fn time_units_mut(&mut self) -> Option<&mut TimeUnits> {
        self.input.time_units_mut()
    }

    pub(crate) fn path(&self) -> &Path {
        self.input.path()
    }

    fn groups(&self) -> &[RowGroupMetaData] {
        self.input.groups()
    }

    /// The number of rows.
    pub(crate) fn rows(&self) -> u64 {
        self.input.rows()
    }

    /// The bytes of its rows in memory.
    pub(crate) fn bytes(&self) -> u64 {
        self.input.spans().iter().map(|span| span.plain_bytes).fold(0, u64::saturating_add)
    }

    /// Whether there is something to report of the footer.
    pub(crate) fn has_footer_faults(&self) -> bool {
        !self.faults.is_empty() || self.input.arrow_note().is_some()
    }

    /// Reports what is wrong with the footer as damage; with its Arrow schema, without which rows
    /// can be read, as a note.
    pub(crate) fn report_footer(&self, context: &ReadContext) {
        let input: Arc<str> = escaped_path(self.path()).into();
        for fault in &self.faults {
            let damage = Damage::new(&input, self.input.len(), 0, fault.as_str());
            context.damage.report(damage);
        }
        if let Some(note) = self.input.arrow_note() {
            context.losses.note(note, 0);
        }
    }

    /// Whether there is a channel column.
    pub(crate) fn has_channels(&self) -> bool {
        self.input.read_schema().column_with_name(CHANNEL).is_some()
    }

    /// Adds what its channels tell of messages that are not decoded.
    pub(crate) fn add_payloads(&self, found: &mut LogPayloads) {
        let channels = self.meta.channels.iter().filter(|_| self.fields.is_empty());
        for channel in channels.map(ChannelMeta::to_channel) {
            found.declare_types |= channel.may_declare_type();
            found.encodings.insert(channel.encoding);
        }
    }

    /// The row groups at certain places in the file that may have events matching `query`,
    /// according to the footer. `source` is the source of rows without one.
    pub(crate) fn matching_groups(
        &self,
        query: &Query,
        source: Option<&str>,
        is_there: impl Fn(&GroupSpan) -> bool,
    ) -> Vec<GroupSpan> {
        let there = self.input.spans().iter().filter(|span| is_there(span));
        there.filter(|span| self.may_match(span, query, source)).copied().collect()
    }

    /// The offset of the first row group in the footer that may have events matching `query`.
    pub(crate) fn first_start(&self, query: &Query) -> Option<u64> {
        let mut spans = self.input.spans().iter();
        spans.find(|span| self.may_match(span, query, None)).map(|span| span.start)
    }

    fn may_match(&self, span: &GroupSpan, query: &Query, source: Option<&str>) -> bool {
        if self.input.footer_fault().is_some() {
            return true;
        }
        let Some(group) = self.groups().get(span.number) else { return false };
        group.num_rows() > 0
            && self.times(group).is_none_or(|(first, last)| query.wants_times(first, last))
            && self
                .channels_in(span.number)
                .is_none_or(|channels| channels.iter().any(|(channel, _)| wants(query, channel)))
            && (self.has_channels()
                || source.is_none_or(|source| query.channels.wants(self.channel.text(), source)))
    }

    /// The first and the last time of a row group in nanoseconds, if there are statistics.
    fn times(&self, group: &RowGroupMetaData) -> Option<(i64, i64)> {
        let (_, field) = self.input.read_schema().column_with_name(TIMESTAMP)?;
        let DataType::Timestamp(unit, _) = field.data_type() else { return None };
        let nanos = nanos_of(*unit);
        let (least, most) = self.stored_times(group)?;
        let finer = if self.has_nanos { time_tolerance(*unit) } else { 0 };
        Some((
            least.checked_mul(nanos)?.checked_sub(finer)?,
            most.checked_mul(nanos)?.checked_add(finer)?,
        ))
    }

    /// Whether `timestamp_ns` is what the sink writes: the times of the column `timestamp`, but
    /// finer. By the types and the statistics; the rows are compared as they are read.
    fn nanos_are_times(&self) -> bool {
        let schema = self.input.schema();
        let data_type = |name| schema.column_with_name(name).map(|(_, field)| field.data_type());
        let Some(nanos) = data_type(TIMESTAMP_NS) else { return false };
        let Some(DataType::Timestamp(unit, _)) = data_type(TIMESTAMP) else { return true };
        // It cannot be a field if another column is the field of this name.
        let name = column_of_field(TIMESTAMP_NS, &RESERVED);
        if self.input.footer_fault().is_some() || data_type(&name).is_some() {
            return true;
        }
        let fits =
            |time: i64, nanos| is_same_time(time.saturating_mul(nanos_of(*unit)), nanos, *unit);
        (nanos.is_numeric() || matches!(nanos, DataType::Timestamp(..)))
            && self.groups().iter().all(|group| {
                let pair = self.stored_times(group).zip(self.extremes(group, TIMESTAMP_NS));
                pair.is_none_or(|(times, nanos)| fits(times.0, nanos.0) && fits(times.1, nanos.1))
            })
    }

    /// The first and the last time of a row group in the unit of the column, if there are
    /// statistics.
    fn stored_times(&self, group: &RowGroupMetaData) -> Option<(i64, i64)> {
        self.extremes(group, TIMESTAMP)
    }

    /// The least and the greatest value of an integer column in a row group, if there are
    /// statistics.
    fn extremes(&self, group: &RowGroupMetaData, column: &str) -> Option<(i64, i64)> {
        let (place, _) = self.input.read_schema().column_with_name(column)?;
        let leaf = self.leaf(place)?;
        let Some(Statistics::Int64(found)) = group.columns().get(leaf)?.statistics() else {
            return None;
        };
        Some((*found.min_opt()?, *found.max_opt()?))
    }

    /// The Parquet column of a top-level field without children.
    fn leaf(&self, field: usize) -> Option<usize> {
        let schema = self.input.metadata().file_metadata().schema_descr();
        (0..schema.num_columns()).find(|leaf| schema.get_column_root_idx(*leaf) == field)
    }

    /// The metadata of channels with this name and source.
    fn channels_named(&self, name: &str, source: &str) -> impl Iterator<Item = &ChannelMeta> {
        let channels = &self.meta.channels;
        let key = |place: &u32| {
            channels.get(*place as usize).map(|meta| (meta.name.as_str(), meta.source.as_str()))
        };
        let sorted = self.by_name.get_or_init(|| {
            let mut places: Vec<u32> = (0..channels.len() as u32).collect();
            places.sort_by_key(key);
            places
        });
        let requested = Some((name, source));
        let first = sorted.partition_point(|place| key(place) < requested);
        let end = sorted.partition_point(|place| key(place) <= requested);
        let found = sorted.get(first..end).unwrap_or_default().iter();
        found.filter_map(|place| channels.get(*place as usize))
    }

    /// The channels of a row group with their row counts, if the footer has them.
    fn channels_in(&self, number: usize) -> Option<Vec<(&ChannelMeta, u32)>> {
        let rows = self.meta.groups.rows.get(number)?;
        let named = rows.iter().map(|(place, rows)| {
            self.meta.channels.get(*place as usize).map(|channel| (channel, *rows))
        });
        named.collect()
    }

    /// Whether the rows of a group are sorted by channel, and their numbers restore the original
    /// order.
    fn is_by_channel(&self, number: usize) -> bool {
        self.meta.groups.by_channel.get(number).is_some_and(|sorted| *sorted)
    }

    /// Reads the events of a row group in their original order, in batches of about `batch_bytes`.
    ///
    /// Rows that cannot be read are reported as damage.
    pub(crate) fn read_group(
        self: &Arc<Self>,
        place: GroupSpan,
        batch_bytes: usize,
        query: &Query,
        context: &ReadContext,
    ) -> Result<GroupReader, Error> {
        let near = self.input.prefetch(place)?;
        let mut reader = GroupReader {
            table: Arc::clone(self),
            span: place,
            rows: None,
            ready: Vec::new(),
            context: context.clone(),
            resolver: ChannelResolver::default(),
            sequence: self.rows_before(place.number),
        };
        if let Err(reason) = self.check_crc(&near, place)? {
            reader.fail(&reason);
            return Ok(reader);
        }
        context.run.count_read(place.end - place.start);
        let group = &self.groups()[place.number];
        let sorts = self.is_by_channel(place.number);
        if sorts && group.total_byte_size() > MAX_SORTED_GROUP as i64 {
            reader.fail("the row group is too long to sort its rows");
            return Ok(reader);
        }
        if let Some(note) = self.input.choose_time_units(&self.fields)?
            && self.first_start(query) == Some(place.start)
        {
            context.losses.note(note, 0);
        }
        let selection = self.selection(place.number, query);
        match self.input.read(near, place, None, selection, batch_bytes)? {
            Ok(rows) => reader.rows = Some(rows),
            Err(reason) => reader.fail(&reason),
        }
        if sorts {
            reader.sort_by_sequence()?;
        }
        Ok(reader)
    }

    fn rows_before(&self, number: usize) -> i64 {
        let rows = self.groups().iter().take(number).map(RowGroupMetaData::num_rows);
        rows.fold(0, i64::saturating_add)
    }

    /// The rows of requested channels, if rows are sorted by channel.
    fn selection(&self, number: usize, query: &Query) -> Option<RowSelection> {
        let is_damaged = self.input.footer_fault().is_some();
        if is_damaged || query.channels.is_all() || !self.is_by_channel(number) {
            return None;
        }
        let channels = self.channels_in(number)?;
        let all: i64 = channels.iter().map(|(_, rows)| i64::from(*rows)).sum();
        if all != self.groups().get(number)?.num_rows() {
            return None;
        }
        let select = channels.iter().map(|(channel, rows)| {
            let rows = *rows as usize;
            if wants(query, channel) { RowSelector::select(rows) } else { RowSelector::skip(rows) }
        });
        Some(select.collect::<Vec<_>>().into())
    }

    /// Verifies the checksum of a row group, if the footer has one. The inner `Err` says what
    /// differs.
    fn check_crc(&self, bytes: &TableBytes, place: GroupSpan) -> Result<Result<(), String>, Error> {
        let Some(expected) = self.meta.groups.crc32.get(place.number) else { return Ok(Ok(())) };
        let fail = |e| Error::io("read", self.path(), e);
        let (mut crc32, mut buffer) = (crc32fast::Hasher::new(), vec![0; 256 << 10]);
        let mut at = place.start;
        while at < place.end {
            let requested = (place.end - at).min(buffer.len() as u64) as usize;
            let read = bytes.read_at(at, &mut buffer[..requested]);
            bytes.failure().check()?;
            let read = read.map_err(fail)?;
            if read == 0 {
                break;
            }
            crc32.update(&buffer[..read]);
            at += read as u64;
        }
        let found = crc32.finalize();
        if found == *expected {
            return Ok(Ok(()));
        }
        Ok(Err(format!("expected the checksum {expected:08x}, found {found:08x}")))
    }
}

/// Checks that no two columns, or members of a struct, have one name: one of them would be lost.
fn check_names(schema: &Schema) -> Result<(), String> {
    if let Some(name) = repeated_name(schema.fields()) {
        return Err(format!("two columns are called `{name}`"));
    }
    schema.fields().iter().try_for_each(|column| match repeated_member(column.data_type()) {
        Some(name) => {
            let column = column.name();
            Err(format!("two members in the column `{column}` are called `{name}`"))
        }
        None => Ok(()),
    })
}

fn repeated_name(fields: &Fields) -> Option<&str> {
    let mut met = BTreeSet::new();
    fields.iter().map(|field| field.name().as_str()).find(|name| !met.insert(*name))
}

fn repeated_member(data_type: &DataType) -> Option<&str> {
    match data_type {
        DataType::Struct(fields) => repeated_name(fields)
            .or_else(|| fields.iter().find_map(|field| repeated_member(field.data_type()))),
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _) => repeated_member(item.data_type()),
        _ => None,
    }
}

fn wants(query: &Query, channel: &ChannelMeta) -> bool {
    query.channels.wants(&channel.name, &channel.source)
}

/// Whether a time of a column with this unit and one of `timestamp_ns` are the same, both in
/// nanoseconds: the unit cuts or rounds.
fn is_same_time(time: i64, nanos: i64, unit: TimeUnit) -> bool {
    time.abs_diff(nanos) <= time_tolerance(unit).unsigned_abs()
}

fn time_tolerance(unit: TimeUnit) -> i64 {
    nanos_of(unit).max(nanos_of(TimeUnit::Microsecond))
}

fn nanos_of(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1_000_000_000,
        TimeUnit::Millisecond => 1_000_000,
        TimeUnit::Microsecond => 1_000,
        TimeUnit::Nanosecond => 1,
    }
}

/// The channel of a table without a channel column: from the footer, the folder, or the file name.
fn channel_of(path: &Path, meta: &FooterMeta) -> Name {
    if let Some(channel) = meta.channels.first() {
        return Name::from_text(&channel.name);
    }
    let folders = path.ancestors().skip(1).filter_map(Path::file_name).map(|n| n.to_string_lossy());
    let named = folders.into_iter().find_map(|name| name.strip_prefix("channel=").map(unescaped));
    let stem = || path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Name::from_text(&named.unwrap_or_else(stem))
}

/// Percent-decodes a name from a path.
fn unescaped(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match byte.filter(|_| *first == b'%') {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
