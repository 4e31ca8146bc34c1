//! One Parquet file read as events: its footer, its row groups, and their rows as batches.
//!
//! Reads tables of this crate's sink and of others: what is needed is a column `timestamp`. Columns that
//! are not ours are the fields of a decoded message.

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

use crate::bytes::{TableBytes, Unread};
use crate::meta::{CREATED_BY, ChannelMeta, Meta};
use crate::shape::{
    CHANNEL, PAYLOAD, SEQUENCE, SOURCE, TIMESTAMP, TIMESTAMP_NS, VARIANT, inner_name,
};

/// Most rows of a batch.
const ROWS: usize = 8 << 10;
/// About how many bytes a batch takes.
const BYTES: usize = 2 << 20;
/// The longest row group, uncompressed, whose rows are put into order: they have to be held.
const LONGEST: i64 = 1 << 30;

/// A Parquet file whose footer has been read.
pub(crate) struct Table {
    path: PathBuf,
    bytes: TableBytes,
    footer: ArrowReaderMetadata,
    /// What its footer says beside what Parquet has a place for.
    pub(crate) said: Meta,
    /// The channel of all rows, where there is no column of channels.
    channel: Name,
    /// The places of what is said of channels, sorted by name and source: tables may have tens of thousands.
    by_name: OnceLock<Vec<u32>>,
}

/// A row group that is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupPlace {
    /// Its number in the file.
    pub(crate) number: usize,
    /// Where it begins.
    pub(crate) start: u64,
    /// Where it ends.
    pub(crate) end: u64,
    /// How many bytes its rows take, uncompressed.
    pub(crate) plain: u64,
}

impl Table {
    /// Opens a file and reads its footer.
    ///
    /// `Err` if it is no Parquet file, is cut off, or has no times.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let bytes = TableBytes::open(path)?;
        let len = bytes.len();
        let wrong = |what: String| {
            let what = format!("this is no whole Parquet file: {what}");
            Error::malformed(path.to_string_lossy(), len, what)
        };
        let options =
            || ArrowReaderOptions::new().with_page_index_policy(PageIndexPolicy::Optional);
        let footer = guarded(|| ArrowReaderMetadata::load(&bytes, options()));
        bytes.unread().check()?;
        let footer = footer.map_err(wrong)?;
        let about = footer.metadata().file_metadata();
        let mut said = Meta::of(about.key_value_metadata());
        if about.created_by().is_none_or(|by| !by.starts_with(CREATED_BY)) {
            said = said.of_rewritten();
        }
        let own = with_views(footer.schema());
        let metadata = Arc::clone(footer.metadata());
        // Where the file's own types do not take our views, they are cast later.
        let footer = guarded(|| ArrowReaderMetadata::try_new(metadata, options().with_schema(own)))
            .unwrap_or(footer);
        let table = Self {
            channel: channel_of(path, &said),
            path: path.to_owned(),
            bytes,
            footer,
            said,
            by_name: OnceLock::new(),
        };
        table.check(len).map_err(wrong)?;
        table.check_columns()?;
        Ok(table)
    }

    /// What the footer says of places must lie in the file.
    fn check(&self, len: u64) -> Result<(), String> {
        for (number, group) in self.groups().iter().enumerate() {
            if group.num_rows() < 0 {
                return Err(format!("row group {number} says it has {} rows", group.num_rows()));
            }
            for column in group.columns() {
                // As the library takes them: it does not look at what is below zero.
                let start = column.dictionary_page_offset().unwrap_or(column.data_page_offset());
                let bytes = column.compressed_size();
                let end = u64::try_from(start).ok().zip(u64::try_from(bytes).ok());
                let end = end.and_then(|(start, bytes)| start.checked_add(bytes));
                if end.is_none_or(|end| end > len) {
                    return Err(format!(
                        "row group {number} says its column `{}` lies outside of the file",
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
                "its column `timestamp` is {other}, and a timestamp is needed: {}",
                self.path.display()
            ))),
            None => Err(Error::invalid(format!(
                "it has no column `timestamp`, by which its rows would be events: {}",
                self.path.display()
            ))),
        }
    }

    fn groups(&self) -> &[RowGroupMetaData] {
        self.footer.metadata().row_groups()
    }

    /// How many rows it has.
    pub(crate) fn rows(&self) -> u64 {
        self.groups().iter().map(|group| group.num_rows() as u64).sum()
    }

    /// How many bytes its rows take, uncompressed.
    pub(crate) fn bytes(&self) -> u64 {
        let each = self.groups().iter().map(|group| group.total_byte_size().max(0) as u64);
        each.fold(0, u64::saturating_add)
    }

    /// Whether rows say which channel they are of.
    pub(crate) fn has_channels(&self) -> bool {
        self.footer.schema().column_with_name(CHANNEL).is_some()
    }

    /// The row groups that hold what `query` asks for, as far as the footer tells. `source` is the source
    /// of rows that do not say theirs.
    pub(crate) fn wanted(&self, query: &Query, source: Option<&str>) -> Vec<GroupPlace> {
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
                let (start, end) = extent(group);
                let plain = group.total_byte_size().max(0) as u64;
                GroupPlace { number, start, end, plain }
            })
            .collect()
    }

    /// The first and the last time of a row group, in nanoseconds, where its statistics tell.
    fn times(&self, group: &RowGroupMetaData) -> Option<(i64, i64)> {
        let (place, field) = self.footer.schema().column_with_name(TIMESTAMP)?;
        let DataType::Timestamp(unit, _) = field.data_type() else { return None };
        let leaf = self.leaf(place)?;
        let Some(Statistics::Int64(found)) = group.columns().get(leaf)?.statistics() else {
            return None;
        };
        let nanos = nanos_of(*unit);
        let (least, most) = (*found.min_opt()?, *found.max_opt()?);
        // What is finer than the unit was cut off.
        Some((least.checked_mul(nanos)?, most.checked_mul(nanos)?.checked_add(nanos - 1)?))
    }

    /// The Parquet column of a top-level field that has no columns below it.
    fn leaf(&self, field: usize) -> Option<usize> {
        let schema = self.footer.parquet_schema();
        (0..schema.num_columns()).find(|leaf| schema.get_column_root_idx(*leaf) == field)
    }

    /// What is said of the channels of that name and source.
    fn called(&self, name: &str, source: &str) -> impl Iterator<Item = &ChannelMeta> {
        let channels = &self.said.channels;
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

    /// The channels of a row group with their rows, where the footer tells.
    fn channels_in(&self, number: usize) -> Option<Vec<(&ChannelMeta, u32)>> {
        let rows = self.said.groups.rows.get(number)?;
        let named = rows.iter().map(|(place, rows)| {
            self.said.channels.get(*place as usize).map(|channel| (channel, *rows))
        });
        named.collect()
    }

    /// Whether the rows of a group are sorted by channel, and their numbers give back their order.
    fn is_by_channel(&self, number: usize) -> bool {
        self.said.groups.by_channel.get(number).is_some_and(|sorted| *sorted)
    }

    /// Reads a row group: its events in the order in which they were written down first.
    ///
    /// What cannot be read is reported as damage.
    pub(crate) fn read_group(
        self: &Arc<Self>,
        place: GroupPlace,
        query: &Query,
        context: &ReadContext,
    ) -> Result<GroupReader, Error> {
        let near = self.bytes.with_range(place.start, place.end)?;
        let mut reader = GroupReader {
            table: Arc::clone(self),
            place,
            rows: None,
            unread: near.unread(),
            ready: Vec::new(),
            context: context.clone(),
            names: Names::default(),
            sequence: self.rows_before(place.number),
        };
        if let Err(reason) = self.verify(&near, place)? {
            reader.report(&reason);
            return Ok(reader);
        }
        context.count_read(place.end - place.start);
        let group = &self.groups()[place.number];
        let selection = self.selection(place.number, query);
        let sorts = self.is_by_channel(place.number);
        if sorts && group.total_byte_size() > LONGEST {
            reader.report("the row group is too long to put its rows into order");
            return Ok(reader);
        }
        let bytes = usize::try_from(group.total_byte_size()).unwrap_or(usize::MAX);
        let rows = usize::try_from(group.num_rows()).unwrap_or(usize::MAX).max(1);
        let batch = (BYTES / (bytes / rows).max(1)).clamp(1, ROWS);
        let rows = self.record_batches(near, place.number, selection, batch);
        reader.unread.check()?;
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
        guarded(|| {
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

    /// The rows of the wanted channels, where rows are sorted by channel.
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

    /// Compares a row group with its checksum, where the footer has one. `Err` inside says what differs.
    fn verify(&self, bytes: &TableBytes, place: GroupPlace) -> Result<Result<(), String>, Error> {
        let Some(expected) = self.said.groups.crc32.get(place.number) else { return Ok(Ok(())) };
        let fail = |e| Error::io("read", &self.path, e);
        let (mut crc32, mut buffer) = (crc32fast::Hasher::new(), vec![0; 256 << 10]);
        let mut at = place.start;
        while at < place.end {
            let wanted = (place.end - at).min(buffer.len() as u64) as usize;
            let read = bytes.read_at(at, &mut buffer[..wanted]);
            bytes.unread().check()?;
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
        Ok(Err(format!("its checksum is {found:08x} instead of {expected:08x}")))
    }
}

/// Calls the Parquet library, which panics on some files that are not what they seem.
fn guarded<T, E: std::fmt::Display>(call: impl FnOnce() -> Result<T, E>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => result.map_err(|e| e.to_string()),
        Err(_) => Err("the Parquet library gave up on it".to_owned()),
    }
}

fn wants(query: &Query, channel: &ChannelMeta) -> bool {
    query.channels.wants(&channel.name, &channel.source)
}

/// Where a row group begins and ends.
fn extent(group: &RowGroupMetaData) -> (u64, u64) {
    let ranges = group.columns().iter().map(|column| {
        let (start, len) = column.byte_range();
        (start, start.saturating_add(len))
    });
    let hull = ranges.reduce(|(a, b), (c, d)| (a.min(c), b.max(d)));
    hull.unwrap_or_default()
}

/// The schema with the types in which nothing has to be copied: views, and dictionaries of words.
fn with_views(schema: &SchemaRef) -> SchemaRef {
    let fields = schema.fields().iter().map(|field| {
        let data_type = match (field.name().as_str(), field.data_type()) {
            (PAYLOAD, DataType::Binary | DataType::LargeBinary) => DataType::BinaryView,
            (SOURCE | CHANNEL, DataType::Utf8) => words(),
            _ => return Arc::clone(field),
        };
        Arc::new(field.as_ref().clone().with_data_type(data_type))
    });
    let fields: Vec<Arc<Field>> = fields.collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

fn words() -> DataType {
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

/// The channel that a table without a column of channels is of: what its footer says, or its folder, or
/// else its name.
fn channel_of(path: &Path, said: &Meta) -> Name {
    if let Some(channel) = said.channels.first() {
        return Name::from_text(&channel.name);
    }
    let folders = path.ancestors().skip(1).filter_map(Path::file_name).map(|n| n.to_string_lossy());
    let named = folders.into_iter().find_map(|name| name.strip_prefix("channel=").map(unescaped));
    let stem = || path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Name::from_text(&named.unwrap_or_else(stem))
}

/// A name out of a path, where some bytes stand as `%` and two digits.
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
    table: Arc<Table>,
    place: GroupPlace,
    /// What is still to be decoded.
    rows: Option<ParquetRecordBatchReader>,
    /// Whether that could not be read.
    unread: Unread,
    /// Batches that wait, the next one last.
    ready: Vec<Batch>,
    context: ReadContext,
    names: Names,
    /// The number of the next row, for tables that do not number events.
    sequence: i64,
}

impl GroupReader {
    /// The next events, or nothing at the end of the group.
    pub(crate) fn next_batch(&mut self) -> Result<Option<Batch>, Error> {
        match self.ready.pop() {
            Some(batch) => Ok(Some(batch)),
            None => self.decode(),
        }
    }

    fn decode(&mut self) -> Result<Option<Batch>, Error> {
        loop {
            let Some(rows) = &mut self.rows else { return Ok(None) };
            let next = guarded(|| rows.next().transpose());
            self.unread.check()?;
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
        let GroupPlace { number, start, end, .. } = self.place;
        let input: Arc<str> = self.table.path.to_string_lossy().into();
        let reason = format!("row group {number}: {reason}");
        self.context.damage.report(Damage::new(&input, start, end - start, reason));
    }

    /// Decodes all rows and puts them into the order of their numbers.
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
        // Rows come as a sorted run for each channel, which a stable sort makes use of.
        picks.sort_by_key(|(number, _)| *number);
        let picks: Vec<(u32, u32)> = picks.into_iter().map(|(_, pick)| pick).collect();
        let mut start = 0;
        while start < picks.len() {
            let (mut end, mut bytes) = (start, 0);
            while end < picks.len() && end - start < ROWS && bytes < BYTES {
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

    /// Rows as events. `Err` inside says why they are none.
    fn batch(&mut self, rows: &RecordBatch) -> Result<Result<Batch, String>, Error> {
        let read = self.columns(rows);
        let Columns { timestamps, sequences, named, payloads } = match read {
            Ok(columns) => columns,
            Err(reason) => return Ok(Err(reason)),
        };
        let channels = self.names.of(rows.num_rows(), &named, &self.table, &self.context)?;
        let batch = Batch::from_columns(timestamps.into(), sequences.into(), channels, &payloads);
        Ok(Ok(match self.message(rows) {
            Some(message) => batch.with_rows(vec![message]),
            None => batch,
        }))
    }

    fn columns(&mut self, rows: &RecordBatch) -> Result<Columns, String> {
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
        let (sources, names) = (column(SOURCE, &words())?, column(CHANNEL, &words())?);
        let variants = column(VARIANT, &DataType::Int32)?;
        let variants = variants.map(|column| column.as_primitive::<Int32Type>().values().to_vec());
        Ok(Columns { timestamps, sequences, named: Named { sources, names, variants }, payloads })
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

    /// The columns that are the fields of a message.
    fn message(&self, rows: &RecordBatch) -> Option<Rows> {
        let schema = rows.schema();
        let mine = schema.fields().iter().zip(rows.columns()).filter_map(|(field, column)| {
            let name = inner_name(field.name())?;
            Some((Arc::new(field.as_ref().clone().with_name(name)), Arc::clone(column)))
        });
        let (fields, columns): (Vec<_>, Vec<_>) = mine.unzip();
        let said = self.table.said.message.clone();
        let has_payload = schema.column_with_name(PAYLOAD).is_some();
        if fields.is_empty() && said.is_none() && has_payload {
            return None;
        }
        // A table of another program: what its rows are called is all that is known of their type.
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

/// A number for a type that has none: the same for the same fields.
fn key_of(fields: &[Arc<Field>]) -> TypeKey {
    let mut hasher = crc32fast::Hasher::new();
    fields.hash(&mut hasher);
    TypeKey(hasher.finish())
}

struct Columns {
    timestamps: Vec<i64>,
    sequences: Vec<i64>,
    named: Named,
    payloads: BinaryViewArray,
}

/// The columns that say which channel each event is on.
struct Named {
    sources: Option<ArrayRef>,
    names: Option<ArrayRef>,
    /// Which of several channels of one name and source.
    variants: Option<Vec<i32>>,
}

/// Which channel a source, a name and a variant stand for, looked up once a batch and combination.
#[derive(Default)]
struct Names(HashMap<(String, String, Option<i32>), ChannelId>);

impl Names {
    fn of(
        &mut self,
        len: usize,
        named: &Named,
        table: &Table,
        context: &ReadContext,
    ) -> Result<Vec<u32>, Error> {
        let Named { sources, names, variants } = named;
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
        table: &Table,
        context: &ReadContext,
    ) -> Result<ChannelId, Error> {
        if let Some(id) = self.0.get(&words) {
            return Ok(*id);
        }
        let (source, name, variant) = &words;
        let is_variant = |meta: &&ChannelMeta| {
            variant.is_none_or(|variant| i64::from(meta.variant) == i64::from(variant))
        };
        let all: Vec<&ChannelMeta> = table.called(name, source).filter(is_variant).collect();
        let channel = match ChannelMeta::common(&all) {
            Some(meta) => meta.channel(),
            None => Channel::new(Name::from_text(name), source.as_str(), Encoding::Unknown),
        };
        let id = context.channels.intern(channel)?;
        self.0.insert(words, id);
        Ok(id)
    }
}
