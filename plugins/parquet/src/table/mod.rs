//! Reads one Parquet file as events: its footer, its row groups, and their rows as batches.
//!
//! The file may come from this crate's sink or another program, if it has a column `timestamp`.
//! Columns that are not ours are the fields of a decoded message.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use arrow_schema::{DataType, SchemaRef, TimeUnit};
use parquet::arrow::ARROW_SCHEMA_META_KEY;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader,
    ParquetRecordBatchReaderBuilder, RowSelection, RowSelector,
};
use parquet::file::metadata::{PageIndexPolicy, RowGroupMetaData};
use parquet::file::reader::Length;
use parquet::file::statistics::Statistics;
use sluice_kit::event_table::{CHANNEL, TIMESTAMP, TIMESTAMP_NS};
use sluice_model::{Damage, Error, Name, Query, ReadContext, panics};

use crate::bytes::TableBytes;
use crate::meta::{CREATED_BY, ChannelMeta, FooterMeta};

mod channel_resolver;
mod codec;
mod expansion;
mod group_reader;
mod nesting;
mod span;
mod stored;
mod types;

use channel_resolver::ChannelResolver;
use group_reader::MAX_ROWS;
pub(crate) use group_reader::{GroupReader, TARGET_BYTES};
pub(crate) use span::GroupSpan;

/// The maximum uncompressed length of a row group whose rows are sorted in memory.
const MAX_SORTED_GROUP: usize = 1 << 30;

/// A Parquet file whose footer has been read.
pub(crate) struct ParquetTable {
    path: PathBuf,
    bytes: TableBytes,
    /// Read with types of which rows share what is stored once.
    footer: ArrowReaderMetadata,
    /// The columns with the types that the file has.
    schema: SchemaRef,
    /// Our metadata in the footer.
    pub(crate) meta: FooterMeta,
    /// Why the Arrow schema that its writer stored cannot be read, if there is one that cannot.
    arrow_fault: Option<String>,
    /// Its row groups, by number.
    spans: Vec<GroupSpan>,
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
        let bytes = TableBytes::open(path)?;
        let len = bytes.len();
        let malformed = |what: String| Error::malformed(path.to_string_lossy(), len, what);
        let incomplete =
            |what: String| malformed(format!("this is not a complete Parquet file: {what}"));
        let nesting = nesting::check(&bytes);
        bytes.failure().check()?;
        nesting.map_err(malformed)?;
        let (footer, arrow_fault) = load_footer(&bytes)?.map_err(incomplete)?;
        let about = footer.metadata().file_metadata();
        let mut meta = FooterMeta::from_entries(about.key_value_metadata());
        if about.created_by().is_none_or(|by| !by.starts_with(CREATED_BY)) {
            meta = meta.for_rewritten_file();
        }
        let schema = types::readable(footer.schema());
        let own = types::shared(&schema);
        let metadata = Arc::clone(footer.metadata());
        // Types that cannot be read as views are cast later.
        let footer =
            catch_panics(|| ArrowReaderMetadata::try_new(metadata, reading().with_schema(own)))
                .unwrap_or(footer);
        let spans = GroupSpan::of_all(footer.metadata().row_groups(), len).map_err(incomplete)?;
        let table = Self {
            channel: channel_of(path, &meta),
            path: path.to_owned(),
            bytes,
            footer,
            schema,
            meta,
            arrow_fault,
            spans,
            by_name: OnceLock::new(),
        };
        table.check_codecs()?;
        table.check_columns()?;
        Ok(table)
    }

    /// Refuses a table with a codec that this program is built without.
    fn check_codecs(&self) -> Result<(), Error> {
        match codec::unread_codec(self.groups()) {
            None => Ok(()),
            Some(codec) => Err(Error::invalid(format!(
                "this table is compressed with {codec}, which this program does not read; write \
                 it with zstd, snappy or no compression: {}",
                self.path.display()
            ))),
        }
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

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn groups(&self) -> &[RowGroupMetaData] {
        self.footer.metadata().row_groups()
    }

    /// The number of rows.
    pub(crate) fn rows(&self) -> u64 {
        self.groups().iter().map(|group| group.num_rows() as u64).fold(0, u64::saturating_add)
    }

    /// The bytes of its rows in memory.
    pub(crate) fn bytes(&self) -> u64 {
        self.spans.iter().map(|span| span.plain_bytes).fold(0, u64::saturating_add)
    }

    /// Whether records of the footer cannot be read.
    pub(crate) fn has_footer_faults(&self) -> bool {
        !self.meta.faults.is_empty() || self.arrow_fault.is_some()
    }

    /// Reports the records of the footer that cannot be read as damage; its Arrow schema, without
    /// which rows can be read, as a note.
    pub(crate) fn report_footer(&self, context: &ReadContext) {
        let input: Arc<str> = self.path.to_string_lossy().into();
        for fault in &self.meta.faults {
            let damage = Damage::new(&input, self.bytes.len(), 0, fault.to_string());
            context.damage.report(damage);
        }
        if let Some(reason) = &self.arrow_fault {
            let note = format!(
                "{input}: the footer's record `{ARROW_SCHEMA_META_KEY}` cannot be read: {reason}; \
                 columns get their types from the Parquet schema"
            );
            context.losses.note(note, 0);
        }
    }

    /// Whether there is a channel column.
    pub(crate) fn has_channels(&self) -> bool {
        self.footer.schema().column_with_name(CHANNEL).is_some()
    }

    /// The row groups at certain places in the file that may have events matching `query`,
    /// according to the footer. `source` is the source of rows without one.
    pub(crate) fn matching_groups(
        &self,
        query: &Query,
        source: Option<&str>,
        is_there: impl Fn(&GroupSpan) -> bool,
    ) -> Vec<GroupSpan> {
        let there = self.spans.iter().filter(|span| is_there(span));
        there.filter(|span| self.may_match(span, query, source)).copied().collect()
    }

    /// The offset of the first row group in the footer that may have events matching `query`.
    pub(crate) fn first_start(&self, query: &Query) -> Option<u64> {
        let mut spans = self.spans.iter();
        spans.find(|span| self.may_match(span, query, None)).map(|span| span.start)
    }

    fn may_match(&self, span: &GroupSpan, query: &Query, source: Option<&str>) -> bool {
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
        let near = self.bytes.prefetch(place.start, place.end)?;
        let mut reader = GroupReader {
            table: Arc::clone(self),
            span: place,
            rows: None,
            failure: near.failure(),
            slices: Vec::new(),
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
        let selection = self.selection(place.number, query);
        let sorts = self.is_by_channel(place.number);
        if sorts && group.total_byte_size() > MAX_SORTED_GROUP as i64 {
            reader.fail("the row group is too long to sort its rows");
            return Ok(reader);
        }
        let bytes = expansion::bytes_per_row(group);
        let batch = bytes.map(|bytes| (batch_bytes / bytes.max(1)).clamp(1, MAX_ROWS));
        let rows =
            batch.and_then(|batch| self.record_batches(near, place.number, selection, batch));
        reader.failure.check()?;
        match rows {
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

/// Calls the Parquet library, which panics on some malformed files.
fn catch_panics<T, E: std::fmt::Display>(call: impl FnOnce() -> Result<T, E>) -> Result<T, String> {
    panics::catch_panics("the Parquet library", call)
}

fn reading() -> ArrowReaderOptions {
    ArrowReaderOptions::new().with_page_index_policy(PageIndexPolicy::Optional)
}

/// The footer of a table, and why the Arrow schema that its writer stored cannot be read, if so: it
/// may be damaged, or have types that are not known here. The inner `Err` says what is wrong with
/// the file.
fn load_footer(
    bytes: &TableBytes,
) -> Result<Result<(ArrowReaderMetadata, Option<String>), String>, Error> {
    let load = |options| {
        let footer = catch_panics(|| ArrowReaderMetadata::load(bytes, options));
        bytes.failure().check().map(|()| footer)
    };
    Ok(match load(reading())? {
        Ok(footer) => Ok((footer, None)),
        Err(reason) => {
            let footer = load(reading().with_skip_arrow_metadata(true))?;
            footer.map(|footer| (footer, Some(reason)))
        }
    })
}

fn wants(query: &Query, channel: &ChannelMeta) -> bool {
    query.channels.wants(&channel.name, &channel.source)
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
