//! Sink `parquet`: sorts events into tables and cuts row groups; encoding them is `group`'s
//! business, writing them `file`'s.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use parquet::arrow::ArrowSchemaConverter;
use parquet::arrow::add_encoded_arrow_schema_to_metadata;
use parquet::arrow::arrow_writer::ArrowRowGroupWriterFactory;
use parquet::basic::{Compression as Codec, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesPtr};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::SchemaDescPtr;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};
use sluice_core::name::{portable, short_path_escaped};
use sluice_core::options::{ByteSize, OutPath};
use sluice_core::selection::FieldList;
use sluice_core::unnest::{Piece, list_path};
use sluice_core::{
    Batch, ChannelId, Channels, EncodeContext, Error, FieldPath, MessageType, Name, Ordered,
    PerChannel, Sink, SinkContext, TypeKey,
};

use crate::encoding::{self, Choice};
use crate::file::TableFile;
use crate::group::{Group, GroupEncoder, unfit};
use crate::meta::{CREATED_BY, ChannelMeta, GroupsMeta, Meta};
use crate::shape::{self, PAYLOAD, Shape};
use crate::taking::{Seen, Taking};

/// Writes Parquet tables.
///
/// A table a channel, below a folder, for those who analyse; or one table of all events, which turns
/// back into the log it was made from. What is written is the same for any number of threads.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct ParquetSink {
    /// The table; or, with a slash at its end, the folder for a table a channel.
    path: OutPath,
    /// `channel`: a folder with a table a channel. `single`: one table of all events. Told from the path
    /// if left out.
    #[serde(default)]
    layout: Option<Layout>,
    /// How pages are compressed: `zstd`, `snappy` or `none`.
    #[serde(default)]
    compression: Compression,
    /// The level of zstd, 1 to 22: more is smaller and slower.
    #[serde(default = "usual_level", deserialize_with = "level")]
    level: i32,
    /// Whether tables have a column with the events' bytes: `auto` where they were not decoded, `keep`
    /// always, `drop` never.
    #[serde(default)]
    payload: Payload,
    /// The fields of decoded messages that are columns, flat, in this order and named by their paths; all
    /// where none are named.
    #[serde(default)]
    fields: Option<FieldList>,
    /// A list in decoded messages that is taken apart: each of its elements is a row of its own.
    #[serde(default, deserialize_with = "list_path")]
    unnest: Option<FieldPath>,
    /// Whether tables have a column with nanoseconds: told from the first row group if left out.
    #[serde(default)]
    timestamp_ns: Option<bool>,
    /// How rows lie in the row groups of one table of all events: `channel` sorts each row group by
    /// channel, `time` leaves rows as they come. Numbers of events tell their order in both cases.
    #[serde(default)]
    order: Order,
    /// Most rows of a row group.
    #[serde(default = "usual_rows", deserialize_with = "above_zero")]
    row_group_rows: u32,
    /// Most bytes of a row group, before compression. It is also kept below a sixteenth of the memory
    /// that a run may use, and below half of that where there is a table a channel.
    #[serde(default = "usual_bytes")]
    row_group_bytes: ByteSize,
    #[serde(skip)]
    names: PerChannel<Arc<str>>,
}

/// How events are laid out in tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Layout {
    Channel,
    Single,
}

/// How pages are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Compression {
    #[default]
    Zstd,
    Snappy,
    None,
}

/// Which tables have payloads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Payload {
    #[default]
    Auto,
    Keep,
    Drop,
}

/// How rows lie in a row group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Order {
    #[default]
    Channel,
    Time,
}

sluice_core::register! {
    sink "parquet": ParquetSink,
    about: "writes Parquet tables, one a channel or one of all events",
    sample: include_str!("../samples/parquet-sink.toml"),
    extensions: &["parquet"],
}

fn usual_level() -> i32 {
    3
}

fn usual_rows() -> u32 {
    128 << 10
}

fn usual_bytes() -> ByteSize {
    ByteSize(64 << 20)
}

fn level<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<i32, D::Error> {
    let level = i32::deserialize(deserializer)?;
    if ZstdLevel::try_new(level).is_ok() {
        return Ok(level);
    }
    Err(serde::de::Error::custom("expected a level from 1 to 22"))
}

fn above_zero<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    match u32::deserialize(deserializer)? {
        0 => Err(serde::de::Error::custom("expected a number above 0")),
        rows => Ok(rows),
    }
}

/// How long pages are before compression. zstd works on what lies in a core's own cache: with pages of a
/// quarter of a megabyte it takes a tenth to a sixth less time than with a whole one, for 0.2 % (by
/// channel) to 1 % (by time) more bytes.
const PAGE: usize = 256 << 10;

/// How many tables are completed beside each other: each is an open file until then.
const CLOSED_AT_ONCE: usize = 256;

/// The longest payload that a page can hold.
const LONGEST: usize = 1 << 30;

/// Which table an event belongs to: nothing for the one of all, or channel, type and variant.
type Key = Option<(Arc<str>, Option<TypeKey>, u32)>;

/// Events by the table they belong to.
pub struct Sorted {
    parts: Vec<(Key, Batch)>,
    /// How many events have no row: the list that is taken apart has no element.
    without_rows: u64,
    seen: Seen,
    /// What the numbers of the events did, in the order in which they came.
    numbers: Numbers,
}

/// The tables in the making.
pub struct Tables {
    context: SinkContext,
    limits: Limits,
    /// In order of first appearance.
    tables: Vec<Table>,
    places: BTreeMap<Key, usize>,
    /// Bytes of events that wait for their row group to be full, in all tables.
    waiting: usize,
    groups: Ordered<(usize, Group)>,
    numbers: Numbers,
    variants: Variants,
    taking: Arc<Taking>,
    seen: Seen,
}

/// Which of several channels of one name and source each channel is, in order of first appearance.
#[derive(Default)]
struct Variants {
    /// By the channels' numbers.
    of: Vec<Option<u32>>,
    /// How many there are of a name and source.
    known: BTreeMap<(Name, Arc<str>), u32>,
}

impl Variants {
    /// The variants of a batch's channels, each once.
    fn of(&mut self, batch: &Batch, channels: &Channels) -> BTreeSet<u32> {
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

    fn is(&self, id: u32, variant: u32) -> bool {
        self.of.get(id as usize) == Some(&Some(variant))
    }

    fn table(&self) -> Vec<u32> {
        self.of.iter().map(|variant| variant.unwrap_or_default()).collect()
    }
}

#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Rows of a row group.
    rows: usize,
    /// Bytes of a row group.
    bytes: usize,
    /// Bytes that may wait.
    waiting: usize,
}

struct Table {
    key: Key,
    waiting: Vec<Piece>,
    rows: usize,
    bytes: usize,
    /// Row groups handed over.
    groups: usize,
    form: Option<Form>,
    file: Option<TableFile>,
    /// For each row group written, its channels and their rows.
    rows_by_channel: Vec<Vec<(ChannelId, u32)>>,
}

/// What is known of a table once its first row group is full.
#[derive(Clone)]
struct Form {
    encoder: Arc<GroupEncoder>,
    schema: SchemaDescPtr,
    properties: WriterPropertiesPtr,
    message: Option<Arc<MessageType>>,
}

/// What the numbers of events do, in the order in which they come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Numbers {
    /// There are no events.
    #[default]
    None,
    /// They rise from the first to the last.
    Rise { first: i64, last: i64 },
    /// Some are not above those before.
    Fall,
}

impl Numbers {
    fn of(batch: &Batch) -> Self {
        let numbers = batch.sequences();
        let (Some(first), Some(last)) = (numbers.first(), numbers.last()) else {
            return Self::None;
        };
        let rise = numbers.windows(2).all(|pair| pair[0] < pair[1]);
        if rise { Self::Rise { first: *first, last: *last } } else { Self::Fall }
    }

    fn and_then(self, next: Self) -> Self {
        match (self, next) {
            (Self::None, other) | (other, Self::None) => other,
            (Self::Rise { first, last }, Self::Rise { first: next, last: end }) if last < next => {
                Self::Rise { first, last: end }
            }
            _ => Self::Fall,
        }
    }
}

impl<'de> Deserialize<'de> for ParquetSink {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let sink = Self::deserialize(deserializer)?;
        sink.check().map_err(serde::de::Error::custom)?;
        Ok(sink)
    }
}

impl ParquetSink {
    /// Whether its options go together.
    fn check(&self) -> Result<(), &'static str> {
        let has_messages = self.unnest.is_some() || self.fields.is_some();
        if has_messages && self.layout() == Layout::Single {
            return Err(
                "one table of all events has payloads and no fields, so `unnest` and `fields` are for a \
                 table a channel: end `path` with a slash",
            );
        }
        if self.unnest.is_some() && self.payload == Payload::Keep {
            return Err(
                "`unnest` takes events apart, and none of their rows has a payload; leave out `payload`, \
                 or `unnest`",
            );
        }
        Ok(())
    }

    fn taking(&self) -> Taking {
        Taking { unnest: self.unnest.clone(), fields: self.fields.clone() }
    }

    fn layout(&self) -> Layout {
        let told = if self.path.is_folder() { Layout::Channel } else { Layout::Single };
        self.layout.unwrap_or(told)
    }

    /// The folder for a table a channel.
    fn folder(&self) -> PathBuf {
        let mut path = self.path.0.clone().into_os_string();
        if !self.path.is_folder() {
            path.push("/");
        }
        path.into()
    }

    fn writes_folder(&self) -> bool {
        self.layout() == Layout::Channel || self.path.is_folder()
    }

    fn has_payload(&self, key: &Key) -> bool {
        let decoded = matches!(key, Some((_, Some(_), _)));
        match self.payload {
            Payload::Auto => !decoded,
            Payload::Keep => true,
            Payload::Drop => false,
        }
    }

    fn compression(&self) -> Result<Codec, Error> {
        Ok(match self.compression {
            Compression::Zstd => Codec::ZSTD(ZstdLevel::try_new(self.level).map_err(unfit)?),
            Compression::Snappy => Codec::SNAPPY,
            Compression::None => Codec::UNCOMPRESSED,
        })
    }

    /// The form of a table whose first row group holds these events.
    fn form(
        &self,
        key: &Key,
        first: &[Piece],
        taking: &Arc<Taking>,
        context: &SinkContext,
    ) -> Result<Form, Error> {
        let sample = sample(first, taking)?;
        let mut shape = Shape::of(&sample, key.is_none(), self.has_payload(key));
        shape.nanos =
            self.timestamp_ns.unwrap_or_else(|| first.iter().map(Piece::batch).any(shape::is_fine));
        // Formats that say more of a channel than its name may say it of several with one name.
        shape.variant = key.is_none() && says_more(first, &context.channels);
        let arrow = shape.schema();
        let schema = ArrowSchemaConverter::new().convert(&arrow).map_err(unfit)?;
        let mut properties = WriterProperties::builder()
            .set_created_by(format!("{CREATED_BY}{}", env!("CARGO_PKG_VERSION")))
            .set_compression(self.compression()?)
            .set_data_page_size_limit(PAGE)
            .set_statistics_enabled(EnabledStatistics::Page);
        let leaves = shape::leaves(&shape.columns(&sample, &context.channels, &[])?);
        for (column, leaf) in schema.columns().iter().zip(&leaves) {
            let path = column.path().clone();
            if column.name() == PAYLOAD && shape.payload {
                // The least and greatest of payloads tell nothing.
                properties =
                    properties.set_column_statistics_enabled(path.clone(), EnabledStatistics::None);
            }
            properties = match encoding::choose(leaf) {
                Choice::Dictionary => properties.set_column_dictionary_enabled(path, true),
                Choice::Plain(encoding) => properties
                    .set_column_dictionary_enabled(path.clone(), false)
                    .set_column_encoding(path, encoding),
            };
        }
        let mut properties = properties.build();
        add_encoded_arrow_schema_to_metadata(&arrow, &mut properties);
        let properties = Arc::new(properties);
        // Row groups are encoded before their file exists; the library wants to see one.
        let root = schema.root_schema_ptr();
        let stand_in = SerializedFileWriter::new(io::sink(), root, Arc::clone(&properties));
        let stand_in = stand_in.map_err(unfit)?;
        let columns = ArrowRowGroupWriterFactory::new(&stand_in, Arc::clone(&arrow));
        let message = sample.rows().first().map(|rows| Arc::clone(&rows.message));
        let encoder = GroupEncoder {
            by_channel: self.order == Order::Channel && shape.channel,
            shape,
            schema: arrow,
            columns,
            channels: Arc::clone(&context.channels),
            taking: Arc::clone(taking),
        };
        Ok(Form { encoder: Arc::new(encoder), schema: Arc::new(schema), properties, message })
    }

    fn add(&self, tables: &mut Tables, key: Key, batch: Batch) -> Result<u64, Error> {
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
                written += self.gather(tables, place, Piece::of(events), share)?;
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
                1 => Piece::of(event.clone()),
                _ => Piece::of_elements(event.clone(), start..start + rows),
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
        piece: Piece,
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
    fn cut(&self, tables: &mut Tables, place: usize) -> Result<u64, Error> {
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
        let form = table.form.as_ref().ok_or_else(|| Error::broken("a table without a form"))?;
        let has_place = form.encoder.shape.nanos || self.timestamp_ns == Some(false);
        let batches = || pieces.iter().map(Piece::batch);
        if !has_place && batches().any(shape::is_fine) {
            return Err(Error::unfit(format!(
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
            return Err(Error::unfit(format!(
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

    fn write(&self, tables: &mut Tables, place: usize, group: Group) -> Result<u64, Error> {
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
    fn create(&self, table: &Table, context: &SinkContext) -> Result<TableFile, Error> {
        let file = if self.writes_folder() {
            context.outputs.create_below(&self.folder())?
        } else {
            context.outputs.create_as_is(&self.path.0)?
        };
        let form = table.form.as_ref();
        let form = form.ok_or_else(|| Error::broken("a row group without a table"))?;
        TableFile::new(file, Arc::clone(&form.schema), Arc::clone(&form.properties))
    }

    /// Where a table is, in the folder or as the file that was asked for. `all` keys are sorted; the folders of
    /// some channels are called otherwise.
    fn place(&self, key: &Key, all: &[Key], otherwise: &BTreeMap<String, String>) -> PathBuf {
        const PART: &str = "part-00000.parquet";
        let Some((channel, kind, variant)) = key else { return self.folder().join(PART) };
        let folder = escaped(channel);
        let folder = otherwise.get(&folder).unwrap_or(&folder);
        let mut path = self.folder().join(format!("channel={folder}"));
        let name_of = |key: &Key| key.as_ref().map(|(name, ..)| Arc::clone(name));
        let first = all.partition_point(|other| name_of(other).as_ref() < Some(channel));
        let end = all.partition_point(|other| name_of(other).as_ref() <= Some(channel));
        let of_channel = all.get(first..end).unwrap_or_default();
        if of_channel.len() > 1 {
            let name = kind.map_or_else(|| "raw".to_owned(), |kind| kind.to_string());
            let of_kind = of_channel.iter().flatten().filter(|(_, of, _)| of == kind);
            let before = of_kind.filter(|(.., at)| at < variant).count();
            let number = if before == 0 { String::new() } else { format!("-{before}") };
            path.push(format!("schema={name}{number}"));
        }
        path.join(PART)
    }

    /// Completes the tables of `keys`; `all` are those of the whole output, sorted.
    fn close(&self, tables: &mut Tables, keys: &[Key], all: &[Key]) -> Result<(), Error> {
        let by_sequence = tables.numbers != Numbers::Fall;
        // Channels `a` and `A` must not get one folder where case is ignored.
        let channels = all.iter().flatten().map(|(channel, ..)| escaped(channel));
        let otherwise = portable(channels, ("channel=", ""));
        let Tables { tables, places, context, variants, .. } = tables;
        // Footers are written and files synced beside each other; they are completed in order.
        let mut closing = Ordered::new(&context.tasks, 4 * context.tasks.width());
        let variants = variants.table();
        for place in keys.iter().filter_map(|key| places.get(key)) {
            let table = &mut tables[*place];
            let Some(file) = table.file.take() else { continue };
            let (channels, rows) = table.channels(context, &variants);
            let (key, form) = (&table.key, table.form.take());
            let meta = Meta {
                channels,
                groups: GroupsMeta { rows, ..file.said.clone() },
                by_sequence,
                message: form.as_ref().and_then(|form| form.message.clone()),
            };
            let entries = meta.to_entries(&context.origin)?;
            let target = self.writes_folder().then(|| self.place(key, all, &otherwise));
            let close = move || Ok((file.close(entries)?, target));
            if let Some((table, target)) = closing.push(close)? {
                table.finish(target.as_deref())?;
            }
        }
        while let Some((table, target)) = closing.take_oldest()? {
            table.finish(target.as_deref())?;
        }
        Ok(())
    }

    /// Events by channel and type, without those that become no row.
    fn sorted(
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

/// Whether anything is said of the channels of these events beside name, source and encoding.
fn says_more(pieces: &[Piece], channels: &Channels) -> bool {
    let all = pieces.iter().flat_map(|piece| piece.batch().channels());
    let used: BTreeSet<u32> = all.copied().collect();
    used.into_iter().any(|id| !channels.get(ChannelId(id)).metadata.is_empty())
}

/// What still fits into a row group.
struct Room {
    rows: usize,
    bytes: usize,
    /// Nothing is in it yet.
    is_empty: bool,
}

/// Some events, and what they are in a row group.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    events: usize,
    rows: usize,
    bytes: usize,
}

impl Room {
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
    counts: Option<Vec<u32>>,
    /// Bytes of a row.
    row: usize,
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

/// The first rows of these pieces, as many as encodings are chosen by.
fn sample(pieces: &[Piece], taking: &Taking) -> Result<Batch, Error> {
    const ROWS: usize = 8192;
    let (mut batches, mut picks) = (Vec::new(), Vec::new());
    for (n, piece) in pieces.iter().enumerate() {
        if picks.len() >= ROWS {
            break;
        }
        let rows = taking.rows(piece)?;
        let count = rows.len().min(ROWS - picks.len());
        picks.extend((0..count).map(|row| (n as u32, row as u32)));
        batches.push(rows);
    }
    Ok(Batch::interleave(&batches, &picks))
}

/// A channel's name as readers of folders with values in their names expect it. What is too long for a
/// folder is shortened: the table's footer has the whole name.
fn escaped(name: &str) -> String {
    const EMPTY: &str = "__HIVE_DEFAULT_PARTITION__";
    match name {
        "" => EMPTY.to_owned(),
        EMPTY => EMPTY.replacen('_', "%5F", 1),
        name => short_path_escaped(name),
    }
}

impl Table {
    fn new(key: Key) -> Self {
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
    fn channels(
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

    fn room(&self, limits: Limits) -> Room {
        let bytes = limits.bytes.saturating_sub(self.bytes);
        Room { rows: limits.rows.saturating_sub(self.rows), bytes, is_empty: self.rows == 0 }
    }
}

impl Sink for ParquetSink {
    type Block = Sorted;
    type Output = Tables;

    fn targets(&self) -> Vec<PathBuf> {
        vec![if self.writes_folder() { self.folder() } else { self.path.0.clone() }]
    }

    fn holds_events(&self) -> bool {
        true
    }

    fn wants_hashes(&self) -> bool {
        true
    }

    fn takes_rows(&self) -> bool {
        match self.layout() {
            Layout::Channel => self.payload != Payload::Keep,
            Layout::Single => self.payload == Payload::Drop,
        }
    }

    fn open(&self, context: &SinkContext) -> Result<Tables, Error> {
        if self.path.is_stdout() && self.layout() == Layout::Channel {
            return Err(Error::unfit("a table a channel needs a folder; `-` takes one table"));
        }
        if self.writes_folder() {
            context.outputs.folder(&self.folder())?;
        } else {
            context.outputs.judge(&context.outputs.named(&self.path.0))?;
        }
        let share = context.memory;
        let bytes = usize::try_from(self.row_group_bytes.0).unwrap_or(usize::MAX);
        // A column of a row group is one thread's work. Of many tables one may have most of the bytes, and
        // most of these in one column: its row groups have to be small for others to help.
        let part = if self.layout() == Layout::Channel { 16 } else { 8 };
        let bytes = bytes.min(share / part).max(1 << 10);
        let limits = Limits { rows: self.row_group_rows as usize, bytes, waiting: share / 4 };
        let most = (context.tasks.width() * part / 8).min(share / 2 / bytes);
        Ok(Tables {
            limits,
            tables: Vec::new(),
            places: BTreeMap::new(),
            waiting: 0,
            groups: Ordered::new(&context.tasks, most),
            numbers: Numbers::default(),
            variants: Variants::default(),
            taking: Arc::new(self.taking()),
            seen: Seen::default(),
            context: context.clone(),
        })
    }

    fn encode(&self, batch: Batch, context: &mut EncodeContext<'_>) -> Result<Sorted, Error> {
        let long = (0..batch.len()).filter(|row| batch.payload_len(*row) > LONGEST);
        let refused = long.map(|row| {
            (row as u32, format!("a payload of more than {LONGEST} bytes does not fit into a page"))
        });
        let refused: Vec<(u32, String)> = refused.collect();
        let batch = if refused.is_empty() {
            batch
        } else {
            let is_refused = |row| refused.iter().any(|(r, _)| *r as usize == row);
            batch.retain(|row| !is_refused(row))
        };
        context.refused.extend(refused);
        if self.timestamp_ns == Some(false) && shape::is_fine(&batch) {
            context
                .losses
                .insert("times are written in whole microseconds; what is finer is cut off");
        }
        let numbers = Numbers::of(&batch);
        let parts = match self.layout() {
            Layout::Channel => return self.sorted(batch, numbers, context),
            Layout::Single if self.payload == Payload::Drop => {
                vec![(None, batch.with_rows(Vec::new()).without_payloads())]
            }
            Layout::Single => vec![(None, batch.with_rows(Vec::new()).compact())],
        };
        Ok(Sorted { parts, without_rows: 0, seen: Seen::default(), numbers })
    }

    fn append(&self, tables: &mut Tables, sorted: Sorted) -> Result<u64, Error> {
        let Sorted { parts, without_rows, seen, numbers } = sorted;
        tables.numbers = tables.numbers.and_then(numbers);
        tables.seen.add(seen);
        let mut written = without_rows;
        for (key, batch) in parts {
            let variants = tables.variants.of(&batch, &tables.context.channels);
            match key {
                // Channels of one name and source that differ are in tables of their own.
                Some((name, kind, _)) if variants.len() > 1 || !variants.contains(&0) => {
                    for variant in variants {
                        let is_it = |row: usize| tables.variants.is(batch.channels()[row], variant);
                        let part = batch.retain(is_it);
                        let key = Some((Arc::clone(&name), kind, variant));
                        written += self.add(tables, key, part)?;
                    }
                }
                key => written += self.add(tables, key, batch)?,
            }
        }
        Ok(written)
    }

    fn notes(&self, tables: &Tables) -> Vec<(String, u64)> {
        let is_lost = self.layout() == Layout::Channel
            && tables.numbers == Numbers::Fall
            && tables.tables.len() > 1;
        let what = "numbers of events do not rise: put together again, tables give events by time, and \
                    those of one time in any order";
        let mut notes = tables.taking.notes(&tables.seen);
        notes.extend(is_lost.then(|| (what.to_owned(), 0)));
        notes
    }

    fn finish(&self, mut tables: Tables) -> Result<u64, Error> {
        let mut written = 0;
        // A table of no events is still a table.
        if self.layout() == Layout::Single && tables.tables.is_empty() {
            tables.tables.push(Table::new(None));
            tables.places.insert(None, 0);
            let form = self.form(&None, &[], &tables.taking, &tables.context)?;
            let table = &mut tables.tables[0];
            table.form = Some(form);
            table.file = Some(self.create(table, &tables.context)?);
        }
        let keys: Vec<Key> = tables.places.keys().cloned().collect();
        for keys_at_once in keys.chunks(CLOSED_AT_ONCE) {
            // What is left is held already, so all of it may be under way; the longest first, so that no
            // thread is left alone with it. In which order tables are written does not show in any of them.
            let mut places: Vec<usize> =
                keys_at_once.iter().filter_map(|key| tables.places.get(key).copied()).collect();
            places.sort_by_key(|place| std::cmp::Reverse(tables.tables[*place].bytes));
            tables.groups.allow(tables.groups.len() + places.len());
            for place in places {
                written += self.cut(&mut tables, place)?;
            }
            while let Some((place, group)) = tables.groups.take_oldest()? {
                written += self.write(&mut tables, place, group)?;
            }
            self.close(&mut tables, keys_at_once, &keys)?;
        }
        Ok(written)
    }
}
