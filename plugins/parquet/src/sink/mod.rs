//! Sink `parquet`: sorts events into tables and cuts row groups; encoding them is `group`'s
//! business, writing them `file`'s.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use parquet::basic::ZstdLevel;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};
use sluice_core::options::{ByteSize, OutPath};
use sluice_core::selection::FieldList;
use sluice_core::unnest::list_path;
use sluice_core::{
    Batch, EncodeContext, Error, FieldPath, OrderedTasks, PerChannel, Sink, SinkContext,
};

use crate::shape;
use crate::taking::{Seen, Taking};

mod close;
mod form;
mod groups;
mod sort;
mod tables;

use tables::{Key, Limits, Numbers, Sorted, Table, Tables, Variants};

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
    sample: include_str!("../../samples/parquet-sink.toml"),
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

/// How many tables are completed beside each other: each is an open file until then.
const CLOSED_AT_ONCE: usize = 256;

/// The longest payload that a page can hold.
const LONGEST: usize = 1 << 30;

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
}

impl Sink for ParquetSink {
    type Block = Sorted;
    type Output = Tables;

    fn targets(&self) -> Vec<PathBuf> {
        vec![if self.writes_folder() { self.folder() } else { self.path.0.clone() }]
    }

    fn buffers_events(&self) -> bool {
        true
    }

    fn wants_hashes(&self) -> bool {
        true
    }

    fn accepts_rows(&self) -> bool {
        match self.layout() {
            Layout::Channel => self.payload != Payload::Keep,
            Layout::Single => self.payload == Payload::Drop,
        }
    }

    fn rows_unwritten(&self) -> Option<String> {
        let why = "decoded fields are not written: one table of all events has their payloads. A path that \
                   ends in a slash, such as `tables/`, gives a table a channel with a column a field";
        (self.layout() == Layout::Single).then(|| why.to_owned())
    }

    fn open(&self, context: &SinkContext) -> Result<Tables, Error> {
        if self.path.is_stdout() && self.layout() == Layout::Channel {
            return Err(Error::invalid("a table a channel needs a folder; `-` takes one table"));
        }
        if self.writes_folder() {
            context.outputs.folder(&self.folder())?;
        } else {
            context.outputs.check_target(&context.outputs.actual_path(&self.path.0))?;
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
            groups: OrderedTasks::new(&context.tasks, most),
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
            tables.groups.set_limit(tables.groups.len() + places.len());
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
