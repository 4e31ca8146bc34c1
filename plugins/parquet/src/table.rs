//! Reads one Parquet file as events: its footer, its row groups, and their rows as batches.
//!
//! The file may come from this crate's sink or another program, if it has a column `timestamp`.
//! Columns that are not ours are the fields of a decoded message.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{Array, ArrayRef, BinaryViewArray, RecordBatch, RecordBatchOptions};
use arrow_cast::cast;
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader,
    ParquetRecordBatchReaderBuilder, RowSelection, RowSelector,
};
use parquet::file::metadata::{PageIndexPolicy, RowGroupMetaData};
use parquet::file::reader::Length;
use parquet::file::statistics::Statistics;
use sluice_core::{
    Batch, Channel, ChannelId, Damage, Encoding, Error, MessageType, Name, Payloads, Query,
    ReadContext, Rows, TypeKey,
};

use crate::bytes::{ReadFailure, TableBytes};
use crate::columns::{
    CHANNEL, PAYLOAD, SEQUENCE, SOURCE, TIMESTAMP, TIMESTAMP_NS, VARIANT, to_field_name,
};
use crate::meta::{CREATED_BY, ChannelMeta, FooterMeta};

/// The maximum rows per batch.
const MAX_ROWS: usize = 8 << 10;
/// The approximate bytes per batch.
const TARGET_BYTES: usize = 2 << 20;
/// The maximum uncompressed length of a row group whose rows are sorted in memory.
const MAX_SORTED_GROUP: i64 = 1 << 30;

/// A Parquet file whose footer has been read.
pub(crate) struct ParquetTable {
    path: PathBuf,
    bytes: TableBytes,
    footer: ArrowReaderMetadata,
    /// Our metadata in the footer.
    pub(crate) meta: FooterMeta,
    /// The channel of all rows, if there is no channel column.
    channel: Name,
    /// Indexes of the footer's channels, sorted by name and source: there may be tens of thousands.
    by_name: OnceLock<Vec<u32>>,
}

/// A row group in its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupSpan {
    /// Its number in the file.
    pub(crate) number: usize,
    /// The offset of its first byte.
    pub(crate) start: u64,
    /// The offset behind its last byte.
    pub(crate) end: u64,
    /// The uncompressed bytes of its rows.
    pub(crate) plain_bytes: u64,
}

impl ParquetTable {
    /// Opens a file and reads its footer.
    ///
    /// `Err` if it is not a Parquet file, is cut off, or has no times.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let bytes = TableBytes::open(path)?;
        let len = bytes.len();
        let wrong = |what: String| {
            let what = format!("this is not a complete Parquet file: {what}");
            Error::malformed(path.to_string_lossy(), len, what)
        };
        let options =
            || ArrowReaderOptions::new().with_page_index_policy(PageIndexPolicy::Optional);
        let footer = catch_panics(|| ArrowReaderMetadata::load(&bytes, options()));
        bytes.failure().check()?;
        let footer = footer.map_err(wrong)?;
        let about = footer.metadata().file_metadata();
        let mut said = FooterMeta::from_entries(about.key_value_metadata());
        if about.created_by().is_none_or(|by| !by.starts_with(CREATED_BY)) {
            said = said.for_rewritten_file();
        }
        let own = zero_copy_schema(footer.schema());
        let metadata = Arc::clone(footer.metadata());
        // Types that cannot be read as views are cast later.
        let footer =
            catch_panics(|| ArrowReaderMetadata::try_new(metadata, options().with_schema(own)))
                .unwrap_or(footer);
        let table = Self {
            channel: channel_of(path, &said),
            path: path.to_owned(),
            bytes,
            footer,
            meta: said,
            by_name: OnceLock::new(),
        };
        table.check(len).map_err(wrong)?;
        table.check_columns()?;
        Ok(table)
    }

    /// Checks that the row groups of the footer are in the file.
    fn check(&self, len: u64) -> Result<(), String> {
        for (number, group) in self.groups().iter().enumerate() {
            if group.num_rows() < 0 {
                return Err(format!("row group {number} claims {} rows", group.num_rows()));
            }
            for column in group.columns() {
                // As the library computes them; it does not check for negative values.
                let start = column.dictionary_page_offset().unwrap_or(column.data_page_offset());
                let bytes = column.compressed_size();
                let end = u64::try_from(start).ok().zip(u64::try_from(bytes).ok());
                let end = end.and_then(|(start, bytes)| start.checked_add(bytes));
                if end.is_none_or(|end| end > len) {
                    return Err(format!(
                        "row group {number} claims that its column `{}` is outside of the file",
                        column.column_path()
                    ));
                }
            }
        }
        Ok(())
    }

    fn check_columns(&self) -> Result<(), Error> {
        let schema = self.footer.schema();
        let has = |name: &str| schema.column_with_name(name).map(|(_, field)| field.data_type());
        let nanos = has(TIMESTAMP_NS).is_some_and(|found| *found == DataType::Int64);
        match has(TIMESTAMP) {
            _ if nanos => Ok(()),
            Some(DataType::Timestamp(..)) => Ok(()),
            Some(other) => Err(Error::invalid(format!(
                "expected a timestamp in the column `timestamp`, found {other}: {}",
                self.path.display()
            ))),
            None => Err(Error::invalid(format!(
                "the column `timestamp` is missing, without which rows are not events: {}",
                self.path.display()
            ))),
        }
    }

    fn groups(&self) -> &[RowGroupMetaData] {
        self.footer.metadata().row_groups()
    }

    /// The number of rows.
    pub(crate) fn rows(&self) -> u64 {
        self.groups().iter().map(|group| group.num_rows() as u64).sum()
    }

    /// The uncompressed bytes of its rows.
    pub(crate) fn bytes(&self) -> u64 {
        let each = self.groups().iter().map(|group| group.total_byte_size().max(0) as u64);
        each.fold(0, u64::saturating_add)
    }

    /// Whether there is a channel column.
    pub(crate) fn has_channels(&self) -> bool {
        self.footer.schema().column_with_name(CHANNEL).is_some()
    }

    /// The row groups that may have events matching `query`, according to the footer. `source` is
    /// the source of rows without one.
    pub(crate) fn matching_groups(&self, query: &Query, source: Option<&str>) -> Vec<GroupSpan> {
        let groups = self.groups().iter().enumerate();
        let wanted = groups.filter(|(number, group)| {
            group.num_rows() > 0
                && self.times(group).is_none_or(|(first, last)| query.wants_times(first, last))
                && self.channels_in(*number).is_none_or(|channels| {
                    channels.iter().any(|(channel, _)| wants(query, channel))
                })
                && (self.has_channels()
                    || source
                        .is_none_or(|source| query.channels.wants(self.channel.text(), source)))
        });
        wanted
            .map(|(number, group)| {
                let (start, end) = byte_range(group);
                let plain = group.total_byte_size().max(0) as u64;
                GroupSpan { number, start, end, plain_bytes: plain }
            })
            .collect()
    }

    /// The first and the last time of a row group in nanoseconds, if there are statistics.
    fn times(&self, group: &RowGroupMetaData) -> Option<(i64, i64)> {
        let (place, field) = self.footer.schema().column_with_name(TIMESTAMP)?;
        let DataType::Timestamp(unit, _) = field.data_type() else { return None };
        let leaf = self.leaf(place)?;
        let Some(Statistics::Int64(found)) = group.columns().get(leaf)?.statistics() else {
            return None;
        };
        let nanos = nanos_of(*unit);
        let (least, most) = (*found.min_opt()?, *found.max_opt()?);
        // Times finer than the unit were cut off.
        Some((least.checked_mul(nanos)?, most.checked_mul(nanos)?.checked_add(nanos - 1)?))
    }

    /// The Parquet column of a top-level field without children.
    fn leaf(&self, field: usize) -> Option<usize> {
        let schema = self.footer.parquet_schema();
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
        let wanted = Some((name, source));
        let first = sorted.partition_point(|place| key(place) < wanted);
        let end = sorted.partition_point(|place| key(place) <= wanted);
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

    /// Reads the events of a row group in their original order.
    ///
    /// Rows that cannot be read are reported as damage.
    pub(crate) fn read_group(
        self: &Arc<Self>,
        place: GroupSpan,
        query: &Query,
        context: &ReadContext,
    ) -> Result<GroupReader, Error> {
        let near = self.bytes.prefetch(place.start, place.end)?;
        let mut reader = GroupReader {
            table: Arc::clone(self),
            span: place,
            rows: None,
            failure: near.failure(),
            ready: Vec::new(),
            context: context.clone(),
            resolver: ChannelResolver::default(),
            sequence: self.rows_before(place.number),
        };
        if let Err(reason) = self.check_crc(&near, place)? {
            reader.report(&reason);
            return Ok(reader);
        }
        context.count_read(place.end - place.start);
        let group = &self.groups()[place.number];
        let selection = self.selection(place.number, query);
        let sorts = self.is_by_channel(place.number);
        if sorts && group.total_byte_size() > MAX_SORTED_GROUP {
            reader.report("the row group is too long to sort its rows");
            return Ok(reader);
        }
        let bytes = usize::try_from(group.total_byte_size()).unwrap_or(usize::MAX);
        let rows = usize::try_from(group.num_rows()).unwrap_or(usize::MAX).max(1);
        let batch = (TARGET_BYTES / (bytes / rows).max(1)).clamp(1, MAX_ROWS);
        let rows = self.record_batches(near, place.number, selection, batch);
        reader.failure.check()?;
        match rows {
            Ok(rows) => reader.rows = Some(rows),
            Err(reason) => reader.report(&reason),
        }
        if sorts {
            reader.sort_by_sequence()?;
        }
        Ok(reader)
    }

    fn rows_before(&self, number: usize) -> i64 {
        self.groups().iter().take(number).map(RowGroupMetaData::num_rows).sum()
    }

    fn record_batches(
        &self,
        bytes: TableBytes,
        number: usize,
        selection: Option<RowSelection>,
        batch: usize,
    ) -> Result<ParquetRecordBatchReader, String> {
        catch_panics(|| {
            let mut builder =
                ParquetRecordBatchReaderBuilder::new_with_metadata(bytes, self.footer.clone())
                    .with_row_groups(vec![number])
                    .with_batch_size(batch);
            if let Some(selection) = selection {
                builder = builder.with_row_selection(selection);
            }
            builder.build()
        })
    }

    /// The rows of requested channels, if rows are sorted by channel.
    fn selection(&self, number: usize, query: &Query) -> Option<RowSelection> {
        if query.channels.is_all() || !self.is_by_channel(number) {
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
        let fail = |e| Error::io("read", &self.path, e);
        let (mut crc32, mut buffer) = (crc32fast::Hasher::new(), vec![0; 256 << 10]);
        let mut at = place.start;
        while at < place.end {
            let wanted = (place.end - at).min(buffer.len() as u64) as usize;
            let read = bytes.read_at(at, &mut buffer[..wanted]);
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

/// Calls the Parquet library, which panics on some malformed files.
fn catch_panics<T, E: std::fmt::Display>(call: impl FnOnce() -> Result<T, E>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => result.map_err(|e| e.to_string()),
        Err(_) => Err("the Parquet library panicked".to_owned()),
    }
}

fn wants(query: &Query, channel: &ChannelMeta) -> bool {
    query.channels.wants(&channel.name, &channel.source)
}

/// The byte range of a row group.
fn byte_range(group: &RowGroupMetaData) -> (u64, u64) {
    let ranges = group.columns().iter().map(|column| {
        let (start, len) = column.byte_range();
        (start, start.saturating_add(len))
    });
    let hull = ranges.reduce(|(a, b), (c, d)| (a.min(c), b.max(d)));
    hull.unwrap_or_default()
}

/// The schema with types that need no copying: views, and dictionaries of strings.
fn zero_copy_schema(schema: &SchemaRef) -> SchemaRef {
    let fields = schema.fields().iter().map(|field| {
        let data_type = match (field.name().as_str(), field.data_type()) {
            (PAYLOAD, DataType::Binary | DataType::LargeBinary) => DataType::BinaryView,
            (SOURCE | CHANNEL, DataType::Utf8) => word_dictionary(),
            _ => return Arc::clone(field),
        };
        Arc::new(field.as_ref().clone().with_data_type(data_type))
    });
    let fields: Vec<Arc<Field>> = fields.collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

fn word_dictionary() -> DataType {
    DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
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
fn channel_of(path: &Path, said: &FooterMeta) -> Name {
    if let Some(channel) = said.channels.first() {
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

/// Reads a row group.
pub(crate) struct GroupReader {
    table: Arc<ParquetTable>,
    span: GroupSpan,
    /// The rows still to be decoded.
    rows: Option<ParquetRecordBatchReader>,
    /// Whether reading the bytes failed.
    failure: ReadFailure,
    /// Decoded batches, the next one last.
    ready: Vec<Batch>,
    context: ReadContext,
    resolver: ChannelResolver,
    /// The number of the next row, for tables without a sequence column.
    sequence: i64,
}

impl GroupReader {
    /// The next events; `None` at the end of the group.
    pub(crate) fn next_batch(&mut self) -> Result<Option<Batch>, Error> {
        match self.ready.pop() {
            Some(batch) => Ok(Some(batch)),
            None => self.decode(),
        }
    }

    fn decode(&mut self) -> Result<Option<Batch>, Error> {
        loop {
            let Some(rows) = &mut self.rows else { return Ok(None) };
            let next = catch_panics(|| rows.next().transpose());
            self.failure.check()?;
            let decoded = match next {
                Ok(None) => return Ok(None),
                Ok(Some(rows)) if rows.num_rows() == 0 => continue,
                Ok(Some(rows)) => self.batch(&rows)?,
                Err(reason) => Err(reason),
            };
            match decoded {
                Ok(batch) => return Ok(Some(batch)),
                Err(reason) => {
                    self.report(&reason);
                    self.rows = None;
                    return Ok(None);
                }
            }
        }
    }

    fn report(&self, reason: &str) {
        let GroupSpan { number, start, end, .. } = self.span;
        let input: Arc<str> = self.table.path.to_string_lossy().into();
        let reason = format!("row group {number}: {reason}");
        self.context.damage.report(Damage::new(&input, start, end - start, reason));
    }

    /// Decodes all rows and sorts them by sequence number.
    fn sort_by_sequence(&mut self) -> Result<(), Error> {
        let mut batches = Vec::new();
        while let Some(batch) = self.decode()? {
            batches.push(batch);
        }
        let mut picks: Vec<(i64, (u32, u32))> = Vec::new();
        for (n, batch) in batches.iter().enumerate() {
            let rows = batch.sequences().iter().enumerate();
            picks.extend(rows.map(|(row, number)| (*number, (n as u32, row as u32))));
        }
        // Rows come as one sorted run per channel, which a stable sort exploits.
        picks.sort_by_key(|(number, _)| *number);
        let picks: Vec<(u32, u32)> = picks.into_iter().map(|(_, pick)| pick).collect();
        let mut start = 0;
        while start < picks.len() {
            let (mut end, mut bytes) = (start, 0);
            while end < picks.len() && end - start < MAX_ROWS && bytes < TARGET_BYTES {
                let (n, row) = picks[end];
                bytes += batches[n as usize].payload_len(row as usize);
                end += 1;
            }
            self.ready.push(Batch::interleave(&batches, &picks[start..end]));
            start = end;
        }
        self.ready.reverse();
        Ok(())
    }

    /// Converts rows to events. The inner `Err` is the reason that is not possible.
    fn batch(&mut self, rows: &RecordBatch) -> Result<Result<Batch, String>, Error> {
        let read = self.columns(rows);
        let EventColumns { timestamps, sequences, channels: named, payloads } = match read {
            Ok(columns) => columns,
            Err(reason) => return Ok(Err(reason)),
        };
        let channels =
            self.resolver.resolve(rows.num_rows(), &named, &self.table, &self.context)?;
        let batch = Batch::from_columns(timestamps.into(), sequences.into(), channels, &payloads);
        Ok(Ok(match self.message(rows) {
            Some(message) => batch.with_rows(vec![message]),
            None => batch,
        }))
    }

    fn columns(&mut self, rows: &RecordBatch) -> Result<EventColumns, String> {
        let len = rows.num_rows();
        let column = |name: &str, data_type: &DataType| -> Result<Option<ArrayRef>, String> {
            let Some(column) = rows.column_by_name(name) else { return Ok(None) };
            let column = if column.data_type() == data_type {
                Arc::clone(column)
            } else {
                cast(column, data_type).map_err(|e| format!("column `{name}`: {e}"))?
            };
            if column.null_count() > 0 {
                return Err(format!("column `{name}` has nulls"));
            }
            Ok(Some(column))
        };
        let timestamps = match column(TIMESTAMP_NS, &DataType::Int64)? {
            Some(nanos) => nanos.as_primitive::<Int64Type>().values().to_vec(),
            None => self.timestamps(rows)?,
        };
        let sequences = match column(SEQUENCE, &DataType::Int64)? {
            Some(sequences) => sequences.as_primitive::<Int64Type>().values().to_vec(),
            None => (self.sequence..).take(len).collect(),
        };
        self.sequence = self.sequence.saturating_add(len as i64);
        let payloads = match column(PAYLOAD, &DataType::BinaryView)? {
            Some(payloads) => payloads.as_binary_view().clone(),
            None => BinaryViewArray::from_iter_values(std::iter::repeat_n(b"", len)),
        };
        let (sources, names) =
            (column(SOURCE, &word_dictionary())?, column(CHANNEL, &word_dictionary())?);
        let variants = column(VARIANT, &DataType::Int32)?;
        let variants = variants.map(|column| column.as_primitive::<Int32Type>().values().to_vec());
        Ok(EventColumns {
            timestamps,
            sequences,
            channels: ChannelColumns { sources, names, variants },
            payloads,
        })
    }

    fn timestamps(&self, rows: &RecordBatch) -> Result<Vec<i64>, String> {
        let missing = || "a row group without times".to_owned();
        let column = rows.column_by_name(TIMESTAMP).ok_or_else(missing)?;
        let DataType::Timestamp(unit, _) = column.data_type() else { return Err(missing()) };
        if column.null_count() > 0 {
            return Err("column `timestamp` has nulls".to_owned());
        }
        let nanos = nanos_of(*unit);
        let unitless = cast(column, &DataType::Int64).map_err(|e| e.to_string())?;
        let times = unitless.as_primitive::<Int64Type>().values().iter();
        let each = times.map(|time| {
            time.checked_mul(nanos).ok_or_else(|| format!("the time {time} is out of range"))
        });
        each.collect()
    }

    /// The columns that are fields of a message.
    fn message(&self, rows: &RecordBatch) -> Option<Rows> {
        let schema = rows.schema();
        let mine = schema.fields().iter().zip(rows.columns()).filter_map(|(field, column)| {
            let name = to_field_name(field.name())?;
            Some((Arc::new(field.as_ref().clone().with_name(name)), Arc::clone(column)))
        });
        let (fields, columns): (Vec<_>, Vec<_>) = mine.unzip();
        let said = self.table.meta.message.clone();
        let has_payload = schema.column_with_name(PAYLOAD).is_some();
        if fields.is_empty() && said.is_none() && has_payload {
            return None;
        }
        // For a table of another program, only the column names identify the type.
        let message = said.unwrap_or_else(|| {
            MessageType::named(self.table.channel.text(), key_of(&fields)).into()
        });
        let payloads = if has_payload { Payloads::Kept } else { Payloads::Gone };
        let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
        let schema = Arc::new(Schema::new(fields));
        let columns = RecordBatch::try_new_with_options(schema, columns, &options).ok()?;
        let events = (0..rows.num_rows() as u32).collect();
        Some(Rows { message, payloads, events, columns })
    }
}

/// A key for a type without one: the same for the same fields.
fn key_of(fields: &[Arc<Field>]) -> TypeKey {
    let mut hasher = crc32fast::Hasher::new();
    fields.hash(&mut hasher);
    TypeKey(hasher.finish())
}

struct EventColumns {
    timestamps: Vec<i64>,
    sequences: Vec<i64>,
    channels: ChannelColumns,
    payloads: BinaryViewArray,
}

/// The columns that identify the channel of each event.
struct ChannelColumns {
    sources: Option<ArrayRef>,
    names: Option<ArrayRef>,
    /// The variant among channels of one name and source.
    variants: Option<Vec<i32>>,
}

/// Resolves source, name and variant to a channel, once per batch and combination.
#[derive(Default)]
struct ChannelResolver(HashMap<(String, String, Option<i32>), ChannelId>);

impl ChannelResolver {
    fn resolve(
        &mut self,
        len: usize,
        named: &ChannelColumns,
        table: &ParquetTable,
        context: &ReadContext,
    ) -> Result<Vec<u32>, Error> {
        let ChannelColumns { sources, names, variants } = named;
        let sources = sources.as_ref().map(|column| column.as_dictionary::<Int32Type>());
        let names = names.as_ref().map(|column| column.as_dictionary::<Int32Type>());
        let mut known: HashMap<(i32, i32, Option<i32>), u32> = HashMap::new();
        let (mut last, mut channels) = (None, Vec::with_capacity(len));
        for row in 0..len {
            let source = sources.map_or(-1, |column| column.keys().value(row));
            let name = names.map_or(-1, |column| column.keys().value(row));
            let variant = variants.as_ref().and_then(|column| column.get(row).copied());
            let keys = (source, name, variant);
            let channel = match last {
                Some((same, channel)) if same == keys => channel,
                _ => match known.get(&keys) {
                    Some(channel) => *channel,
                    None => {
                        let word = |column: Option<&arrow_array::Int32DictionaryArray>,
                                    key: i32| {
                            let values = column?.values().as_string::<i32>();
                            Some(values.value(usize::try_from(key).ok()?).to_owned())
                        };
                        let source_word =
                            word(sources, source).unwrap_or_else(|| context.source.to_string());
                        let name_word =
                            word(names, name).unwrap_or_else(|| table.channel.text().to_owned());
                        let words = (source_word, name_word, variant);
                        let id = self.channel(words, table, context)?.0;
                        known.insert(keys, id);
                        id
                    }
                },
            };
            last = Some((keys, channel));
            channels.push(channel);
        }
        Ok(channels)
    }

    fn channel(
        &mut self,
        words: (String, String, Option<i32>),
        table: &ParquetTable,
        context: &ReadContext,
    ) -> Result<ChannelId, Error> {
        if let Some(id) = self.0.get(&words) {
            return Ok(*id);
        }
        let (source, name, variant) = &words;
        let is_variant = |meta: &&ChannelMeta| {
            variant.is_none_or(|variant| i64::from(meta.variant) == i64::from(variant))
        };
        let all: Vec<&ChannelMeta> =
            table.channels_named(name, source).filter(is_variant).collect();
        let channel = match ChannelMeta::common(&all) {
            Some(meta) => meta.to_channel(),
            None => Channel::new(Name::from_text(name), source.as_str(), Encoding::Unknown),
        };
        let id = context.channels.intern(channel)?;
        self.0.insert(words, id);
        Ok(id)
    }
}
