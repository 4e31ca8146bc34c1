//! Sink `parquet`: partitions events into tables and cuts row groups. `group` encodes them, `file`
//! writes them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;

use parquet::basic::ZstdLevel;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use sluice_io::escape::printable;
use sluice_kit::selection::FieldList;
use sluice_kit::unnest::list_path;
use sluice_model::options::{ByteSize, OutPath};
use sluice_model::{
    Batch, Error, FieldPath, Job, PerChannel, PrepareContext, Sink, SinkContext, SinkInput,
    SinkTraits, Written,
};

use crate::columns;
use crate::group::EncodedGroup;
use crate::projection::{ProjectionMatches, TableProjection};

mod buffered;
mod groups;
mod schema;
mod tables;

use tables::{
    ChannelVariants, GroupLimits, OpenTables, PartitionedEvents, RecentEncoders, SequenceOrder,
    TableKey,
};

/// Writes Parquet tables.
///
/// Either one table per channel below a folder, for analysis, or one table of all events, which
/// converts back to the same log. The output is the same for any number of threads.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct ParquetSink {
    /// The table; or, with a trailing slash, the folder for one table per channel.
    path: OutPath,
    /// `channel`: a folder with one table per channel. `single`: one table of all events. `rows`:
    /// one table of the decoded messages of one channel. Follows from the path by default.
    #[serde(default)]
    layout: Option<TableLayout>,
    /// The compression of pages: `zstd`, `snappy` or `none`.
    #[serde(default)]
    compression: Compression,
    /// The zstd level, 1 to 22: higher is smaller and slower. With the default, columns of bytes
    /// have a lower level where that is as small.
    #[serde(default = "usual_level", deserialize_with = "level")]
    level: i32,
    /// Whether tables have a column with the events' bytes: `auto` if they were not decoded, or
    /// are described in part, `keep` always, `drop` never.
    #[serde(default)]
    payload: PayloadColumn,
    /// The fields of decoded messages to write as flat columns, in this order, named by their
    /// paths. All by default.
    #[serde(default)]
    fields: Option<FieldList>,
    /// A list in decoded messages to unnest: each of its elements becomes a row.
    #[serde(default, deserialize_with = "list_path")]
    unnest: Option<FieldPath>,
    /// Whether tables have a column with nanoseconds. Follows from the first row group by default.
    #[serde(default)]
    timestamp_ns: Option<bool>,
    /// The order of rows in the row groups of one table of all events: `channel` sorts each row
    /// group by channel, `time` keeps the order of arrival. The sequence numbers preserve the order
    /// in both cases.
    #[serde(default)]
    order: RowSorting,
    /// The maximum rows per row group. This and `row_group_bytes` double after every 4,096 row
    /// groups of a table, as far as memory allows: a file can have at most 32,767.
    #[serde(default = "usual_rows", deserialize_with = "above_zero")]
    row_group_rows: u32,
    /// The maximum bytes per row group, before compression. Also limited to a sixteenth of the
    /// run's memory, divided by the number of sinks that buffer events; with one table per channel,
    /// to half of that unless that is less than 4 MiB.
    #[serde(default = "usual_bytes")]
    row_group_bytes: ByteSize,
    #[serde(skip)]
    channel_names: PerChannel<Arc<str>>,
}

/// How events are divided into tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "Layout")]
enum TableLayout {
    Channel,
    Single,
    Rows,
}

/// The compression of pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Compression {
    #[default]
    Zstd,
    Snappy,
    None,
}

/// Which tables have a payload column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "Payload")]
enum PayloadColumn {
    #[default]
    Auto,
    Keep,
    Drop,
}

/// The order of rows in a row group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "Order")]
enum RowSorting {
    #[default]
    Channel,
    Time,
}

sluice_model::register! {
    sink "parquet": ParquetSink,
    about: "writes Parquet tables, one per channel or one of all events",
    sample: include_str!("../../samples/parquet-sink.toml"),
    default_for: &[sluice_model::DefaultRole::Tables],
    extensions: &["parquet"],
    for_one_channel: &[("layout", "\"rows\"")],
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

const NO_FIELDS_IN_SINGLE: &str = "decoded fields are not written: one table of all events has \
    only payloads. For one table per channel with one column per field, end the path with a \
    slash, as in `tables/`; for a table of one channel, say `layout = \"rows\"`";

const NOT_DECODED: &str = "an event that is not decoded does not fit into a table of rows";

const CONTENTS_DROPPED: &str = "events that are not decoded are written without their contents, \
    by `payload = \"drop\"`: `auto` keeps those";

/// Below this size of row groups, what each column costs by itself takes more time than other
/// threads would save.
const FEW_BYTES: usize = 4 << 20;

/// The maximum length of a payload in a page.
const MAX_PAYLOAD: usize = 1 << 30;

impl<'de> Deserialize<'de> for ParquetSink {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let sink = Self::deserialize(deserializer)?;
        sink.check().map_err(serde::de::Error::custom)?;
        Ok(sink)
    }
}

impl ParquetSink {
    /// Checks that the options are compatible.
    fn check(&self) -> Result<(), &'static str> {
        let ending = self.path.0.extension().filter(|_| !self.path.is_folder());
        if ending.is_some_and(|ending| ending.eq_ignore_ascii_case("zst")) {
            return Err(
                "a table is compressed inside, and programs would not read one that is compressed \
                 as a whole: leave `.zst` out of its name",
            );
        }
        let has_messages = self.unnest.is_some() || self.fields.is_some();
        if has_messages && self.layout() == TableLayout::Single {
            return Err(
                "`unnest` and `fields` need one table per channel: end `path` with a slash, or say \
                 `layout = \"rows\"` for a table of one channel",
            );
        }
        if self.path.is_stdout() && self.layout() == TableLayout::Channel {
            return Err(
                "`layout = \"channel\"` writes a folder, found `-`, which is standard output: name \
                 a folder in `path`",
            );
        }
        if self.layout() == TableLayout::Rows && self.path.is_folder() {
            return Err("`layout = \"rows\"` writes one file: `path` must not end with a slash");
        }
        if self.unnest.is_some() && self.payload == PayloadColumn::Keep {
            return Err("rows of unnested events have no payload: leave out `payload` or `unnest`");
        }
        if self.compression != Compression::Zstd && self.level != usual_level() {
            return Err("`level` needs `compression = \"zstd\"`");
        }
        if self.layout() != TableLayout::Single && self.order != RowSorting::default() {
            return Err("`order` needs one table of all events, `layout = \"single\"`");
        }
        Ok(())
    }

    fn projection(&self) -> TableProjection {
        TableProjection { unnest: self.unnest.clone(), fields: self.fields.clone() }
    }

    fn layout(&self) -> TableLayout {
        let by_path =
            if self.path.is_folder() { TableLayout::Channel } else { TableLayout::Single };
        self.layout.unwrap_or(by_path)
    }

    /// The folder of the tables per channel.
    fn folder(&self) -> PathBuf {
        let mut path = self.path.0.clone().into_os_string();
        if !self.path.is_folder() {
            path.push("/");
        }
        path.into()
    }

    fn writes_folder(&self) -> bool {
        self.layout() == TableLayout::Channel || self.path.is_folder()
    }

    /// Notes about the whole output.
    fn notes(&self, tables: &OpenTables) -> Vec<(String, u64)> {
        let is_lost = self.layout() == TableLayout::Channel
            && tables.sequence_order == SequenceOrder::Unordered
            && tables.tables.len() > 1;
        let what = "event numbers do not rise: the tables read back in order of time, and events \
                    of the same time in any order";
        let mut notes = tables.projection.notes(&tables.matches);
        notes.extend(is_lost.then(|| (what.to_owned(), 0)));
        if self.layout() == TableLayout::Channel {
            notes.extend(tables.divided_by_type().map(|name| {
                let what = format!(
                    "the channel `{}` is divided by type into folders `schema=…`, and others \
                     are not: DuckDB and Polars cannot read the column `channel` of all tables \
                     together",
                    printable(name)
                );
                (what, 0)
            }));
        }
        notes
    }

    fn has_payload_column(&self, key: &TableKey) -> bool {
        let table_type = key.as_ref().and_then(|(_, kind, _)| *kind);
        let is_decoded = table_type.is_some() || self.layout() == TableLayout::Rows;
        match self.payload {
            PayloadColumn::Auto => !is_decoded || table_type.is_some_and(|kind| kind.is_partial),
            PayloadColumn::Keep => true,
            PayloadColumn::Drop => false,
        }
    }
}

impl Sink for ParquetSink {
    type Block = PartitionedEvents;
    type Unit = EncodedGroup;
    type Output = OpenTables;

    fn traits(&self) -> SinkTraits {
        let accepts_rows = match self.layout() {
            TableLayout::Channel | TableLayout::Rows => self.payload != PayloadColumn::Keep,
            TableLayout::Single => self.payload == PayloadColumn::Drop,
        };
        let is_single = self.layout() == TableLayout::Single;
        SinkTraits {
            buffers_events: true,
            wants_hashes: true,
            accepts_rows,
            rows_unwritten: is_single.then_some(NO_FIELDS_IN_SINGLE.into()),
            ..SinkTraits::writing(if self.writes_folder() {
                self.folder()
            } else {
                self.path.0.clone()
            })
        }
    }

    fn open(&self, context: &SinkContext) -> Result<OpenTables, Error> {
        if self.path.is_stdout() && self.layout() == TableLayout::Channel {
            return Err(Error::invalid(
                "one table per channel needs a folder; `-` takes a single \
                table",
            ));
        }
        if self.writes_folder() {
            context.outputs.folder(&self.folder())?;
        } else {
            context.outputs.check_target(&context.outputs.actual_path(&self.path.0))?;
        }
        let share = context.memory;
        let bytes = usize::try_from(self.row_group_bytes.0).unwrap_or(usize::MAX);
        // Each column of a row group is encoded by one thread. One of many tables may have most of
        // the bytes, most of them in one column: small row groups let other threads help.
        let most = share / 8;
        let part = match self.layout() {
            TableLayout::Single => most,
            _ => (most / 2).max(most.min(FEW_BYTES)),
        };
        let bytes = bytes.min(part).max(1 << 10);
        let limits = GroupLimits {
            rows: self.row_group_rows as usize,
            bytes,
            buffered: share / 4,
            overhead: share / 8,
        };
        Ok(OpenTables {
            limits,
            tables: Vec::new(),
            places: BTreeMap::new(),
            unfinished: VecDeque::new(),
            buffered: 0,
            overhead: 0,
            sequence_order: SequenceOrder::default(),
            variants: ChannelVariants::default(),
            projection: self.projection(),
            matches: ProjectionMatches::default(),
            encoders: RecentEncoders::default(),
            unreported: Written::default(),
            context: context.clone(),
        })
    }

    fn prepare(
        &self,
        batch: Batch,
        context: &mut PrepareContext<'_>,
    ) -> Result<PartitionedEvents, Error> {
        let long = (0..batch.len()).filter(|row| batch.payload_len(*row) > MAX_PAYLOAD);
        let refused = long.map(|row| {
            (
                row as u32,
                format!("a payload of more than {MAX_PAYLOAD} bytes does not fit into a page"),
            )
        });
        let mut refused: Vec<(u32, String)> = refused.collect();
        if self.layout() == TableLayout::Rows {
            let undecoded = (0..).zip(batch.decoded_mask()).filter(|(_, is_decoded)| !is_decoded);
            refused.extend(undecoded.map(|(row, _)| (row, NOT_DECODED.to_owned())));
        }
        let batch = if refused.is_empty() {
            batch
        } else {
            let rows: BTreeSet<u32> = refused.iter().map(|(row, _)| *row).collect();
            batch.retain(|row| !rows.contains(&(row as u32)))
        };
        context.report.refused.extend(refused);
        if self.timestamp_ns == Some(false) && columns::has_sub_micros(&batch) {
            context
                .report
                .losses
                .insert("times are written in whole microseconds; what is finer is cut off");
        }
        if self.layout() != TableLayout::Single {
            if self.payload == PayloadColumn::Drop && batch.decoded_mask().contains(&false) {
                context.report.losses.insert(CONTENTS_DROPPED);
            }
            return self.partition(batch, context);
        }
        let sequence_order = SequenceOrder::from_batch(&batch);
        let batch = batch.with_rows(Vec::new());
        let batch = match self.payload {
            PayloadColumn::Drop => batch.without_payloads(),
            PayloadColumn::Auto | PayloadColumn::Keep => batch.compact(),
        };
        let parts = vec![(None, batch)];
        Ok(PartitionedEvents { parts, sequence_order, ..PartitionedEvents::default() })
    }

    fn gather(
        &self,
        tables: &mut OpenTables,
        input: SinkInput<PartitionedEvents>,
    ) -> Result<Vec<Job<EncodedGroup>>, Error> {
        let PartitionedEvents { parts, without_rows, matches, sequence_order } = match input {
            SinkInput::Block(partitioned) => partitioned,
            // The size of row groups must not depend on when a recording is flushed.
            SinkInput::Flush => return Ok(Vec::new()),
            SinkInput::End => return self.last_groups(tables),
        };
        tables.sequence_order = tables.sequence_order.then(sequence_order);
        tables.matches.add(matches);
        tables.unreported.events += without_rows;
        let mut groups = Vec::new();
        for (key, batch) in parts {
            let variants = tables.variants.in_batch(&batch, &tables.context.channels);
            match key {
                // Channels of one name and source that differ get tables of their own.
                Some((name, kind, _)) if variants.len() > 1 || !variants.contains(&0) => {
                    for variant in variants {
                        let of_row = |row: usize| tables.variants.get(batch.channels()[row]);
                        let part = batch.retain(|row| of_row(row) == variant);
                        let key = Some((Arc::clone(&name), kind, variant));
                        self.add(tables, key, part, &mut groups)?;
                    }
                }
                key => self.add(tables, key, batch, &mut groups)?,
            }
        }
        Ok(groups)
    }

    fn write(&self, tables: &mut OpenTables, group: EncodedGroup) -> Result<Written, Error> {
        let mut written = std::mem::take(&mut tables.unreported);
        written.events += group.events;
        self.write_group(tables, group)?;
        self.close_written(tables)?;
        Ok(written)
    }

    fn finish(&self, mut tables: OpenTables) -> Result<Written, Error> {
        self.close_written(&mut tables)?;
        let mut written = std::mem::take(&mut tables.unreported);
        written.notes = self.notes(&tables);
        Ok(written)
    }
}
