//! Sink `orca`: a master, and beside it one subfile per channel.
//!
//! The header of a master lists all subfiles, which are only known at the end. Until then, data
//! lines are buffered in memory, and spilled to an unnamed temporary file when there are many.
//! Configuration that arrives after data of its subfile is buffered in memory and inserted at the
//! start of the file in the end.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use sluice_io::escape::folded;
use sluice_model::options::OutPath;
use sluice_model::{
    Batch, Channel, Clock, Encoding, Error, OutputFile, Outputs, PerChannel, PrepareContext, Sink,
    SinkContext, SinkTraits, Written,
};

use crate::config_buffer::{ConfigBudget, ConfigBuffer, subtract_ranges};
use crate::master::WriterComment;
use crate::subfile::RecordPrefix;

mod encoded;
mod file_names;
mod line_spill;
mod subfile_key;

use encoded::{
    EncodedEvents, EventEntry, EventRow, is_representable, nearest_micros, time_of, writable_rows,
};
use file_names::{master_name, own_subfiles};
use line_spill::LineSpill;
pub(crate) use subfile_key::RESERVED_KEYS;
use subfile_key::{SubfileKey, SubfileKeys, comment_metadata, is_config};

/// Writes a log of the Orca robotics project: a master file and one subfile per channel beside it.
///
/// Comments in the master hold what its columns cannot, so the source `orca` restores the same
/// channels, whatever they contain.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct OrcaSink {
    /// The master. Subfiles are written beside it, with names that start with the master's. A name
    /// that ends with `.zst` compresses the master, but not the subfiles.
    #[serde(deserialize_with = "master_path")]
    path: OutPath,
    /// The dialect: `A`, used in 2006, or `C`, used from 2007 on.
    #[serde(default)]
    dialect: WriteDialect,
    #[serde(skip)]
    #[schemars(skip)]
    roles: PerChannel<ChannelRole>,
    #[serde(skip)]
    #[schemars(skip)]
    keys: Mutex<SubfileKeys>,
}

/// The dialects that can be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Dialect")]
enum WriteDialect {
    #[default]
    A,
    C,
}

sluice_model::register! {
    sink "orca": OrcaSink,
    about: "writes logs of the Orca robotics project: a master file and one subfile per channel",
    sample: include_str!("../../samples/orca-sink.toml"),
    extensions: &["orca"],
}

/// The path of a master, which must be a file because subfiles are beside it.
fn master_path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<OutPath, D::Error> {
    let path = OutPath::deserialize(deserializer)?;
    if path.is_stdout() || path.is_folder() {
        return Err(serde::de::Error::custom(
            "expected the path of a master file, which has subfiles beside it; found standard \
             output or a folder",
        ));
    }
    Ok(path)
}

/// The maximum number of subfiles: all are open until the log is complete.
const MAX_SUBFILES: usize = 1000;
/// The maximum bytes of configuration buffered in memory.
const MAX_BUFFERED_CONFIG: usize = 16 << 20;
/// Nanoseconds per microsecond.
const MICRO: i128 = 1_000;
/// Microseconds per second.
const SECOND: i128 = 1_000_000;
/// The width of number columns in dialect A.
const WIDTH: usize = 12;

/// The role of a channel's events in the log.
#[derive(Clone, Copy, Debug)]
struct ChannelRole {
    key: u32,
    id: u8,
    is_config: bool,
    /// Whether some of its channel's metadata cannot be written.
    loses_metadata: bool,
    /// Whether its channel has an id that no record can have.
    has_invalid_id: bool,
    /// Whether its payloads are objects, which are never empty.
    is_object: bool,
}

/// The open log.
#[derive(Debug)]
pub(crate) struct LogWriter {
    outputs: Arc<Outputs>,
    path: PathBuf,
    master: OutputFile,
    lines: LineSpill,
    /// In the order of their numbers.
    subfiles: Vec<SubfileWriter>,
    /// The position in `subfiles`, by key number.
    by_key: Vec<Option<usize>>,
    /// The names of its files, folded.
    names: BTreeSet<String>,
    /// The subfiles of the log that this one replaces, or that a killed run left; they are replaced
    /// with it.
    replaced: BTreeSet<Vec<u8>>,
    events: u64,
    /// The time of the first event that has a line.
    first: Option<i128>,
    /// The earliest and the latest time of configuration.
    config_times: Option<(i128, i128)>,
    configs: u64,
    /// The remaining memory for configuration.
    config_budget: ConfigBudget,
    /// The number of configuration records that were written as data.
    late_configs: u64,
    renumbered: u64,
}

impl LogWriter {
    /// Notes about the whole log.
    fn notes(&self) -> Vec<(String, u64)> {
        // Without any data line, configuration is read at time 0.
        let first = self.first.unwrap_or(0);
        let is_moved = self.config_times.is_some_and(|times| times != (first, first));
        let moved = if is_moved { self.configs } else { 0 };
        let fronts = self.subfiles.iter().map(|subfile| subfile.config_buffer.renumbered());
        let renumbered = self.renumbered + fronts.sum::<u64>();
        let all = [
            ("event numbers are not kept: they become the position in the subfile", renumbered),
            ("configuration that arrived after its data is written as data", self.late_configs),
            ("configuration loses its own time: it is read at the time of the first event", moved),
        ];
        all.into_iter().filter(|(_, n)| *n > 0).map(|(what, n)| (what.to_owned(), n)).collect()
    }
}

#[derive(Debug)]
struct SubfileWriter {
    key: Arc<SubfileKey>,
    name: String,
    file: OutputFile,
    config_buffer: ConfigBuffer,
    config: u64,
    data: u64,
}

impl SubfileWriter {
    /// Writes buffered configuration to the head of the file, and completes the file.
    fn finish(mut self) -> Result<(), Error> {
        if let Some((len, head)) =
            self.config_buffer.replacement().filter(|_| self.file.can_replace_head())
        {
            self.file.replace_head(len, &head)?;
        }
        self.file.finish(self.config + self.data)
    }
}

/// Where a configuration record is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ConfigPlacement {
    /// To the end of the subfile, now.
    Append,
    /// To the head of the subfile, at the end of the run.
    Head,
}

impl OrcaSink {
    fn prefix(&self) -> RecordPrefix {
        RecordPrefix { id: self.dialect == WriteDialect::C, ..RecordPrefix::default() }
    }

    fn first_index(&self) -> u64 {
        u64::from(self.dialect == WriteDialect::A)
    }

    fn role(&self, channel: &Channel) -> ChannelRole {
        let parsed_id = channel.metadata.get("orca.id").map(|id| id.parse::<u8>());
        let id = parsed_id.clone().and_then(Result::ok).unwrap_or(0);
        let is_unwritable = comment_metadata(channel).is_none();
        let loses_id = id != 0 && self.dialect == WriteDialect::A;
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        ChannelRole {
            key: keys.number(SubfileKey::from_channel(channel)),
            id,
            is_config: is_config(channel),
            loses_metadata: is_unwritable || loses_id,
            has_invalid_id: parsed_id.is_some_and(|id| id.is_err()),
            is_object: channel.encoding == Encoding::Ice,
        }
    }

    fn key(&self, number: u32) -> Result<Arc<SubfileKey>, Error> {
        let keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        let key = keys.list.get(number as usize).cloned();
        key.ok_or_else(|| Error::internal("an event without a subfile was encoded"))
    }

    /// The position of the subfile with this key, which is created if it is new.
    fn subfile(&self, log: &mut LogWriter, number: u32) -> Result<usize, Error> {
        let key = number as usize;
        if let Some(Some(place)) = log.by_key.get(key) {
            return Ok(*place);
        }
        if log.subfiles.len() >= MAX_SUBFILES {
            return Err(Error::refused(format!(
                "too many channels: each needs a subfile, of which at most {MAX_SUBFILES} are \
                 written; filter the events, or write another format"
            )));
        }
        log.by_key.resize(log.by_key.len().max(key + 1), None);
        log.by_key[key] = Some(log.subfiles.len());
        let key = self.key(number)?;
        let name = log.name_for(&key);
        let file = log.outputs.create_as_is(&log.path.with_file_name(&name))?;
        let config_buffer = ConfigBuffer::default();
        log.subfiles.push(SubfileWriter { key, name, file, config_buffer, config: 0, data: 0 });
        Ok(log.subfiles.len() - 1)
    }

    /// Accounts for a configuration event with this record.
    fn add_config(
        &self,
        log: &mut LogWriter,
        entry: &EventEntry,
        record: &[u8],
    ) -> Result<ConfigPlacement, Error> {
        let place = self.subfile(log, entry.key)?;
        let Some(subfile) = log.subfiles.get_mut(place) else { return Err(missing_subfile()) };
        let placement = if subfile.data == 0 {
            subfile.config_buffer.push_written(entry.sequence, record, &mut log.config_budget);
            ConfigPlacement::Append
        } else if subfile.file.can_replace_head()
            && subfile.config_buffer.push_late(entry.sequence, record, &mut log.config_budget)
        {
            ConfigPlacement::Head
        } else {
            log.late_configs += 1;
            self.add_data(log, entry)?;
            return Ok(ConfigPlacement::Append);
        };
        subfile.config += 1;
        log.configs += 1;
        let (from, to) = log.config_times.unwrap_or((entry.micros, entry.micros));
        log.config_times = Some((from.min(entry.micros), to.max(entry.micros)));
        Ok(placement)
    }

    /// Adds the line of a data event.
    fn add_data(&self, log: &mut LogWriter, entry: &EventEntry) -> Result<(), Error> {
        let place = self.subfile(log, entry.key)?;
        let Some(subfile) = log.subfiles.get_mut(place) else { return Err(missing_subfile()) };
        let index = subfile.data + self.first_index();
        subfile.data += 1;
        log.renumbered += u64::from(i64::try_from(index) != Ok(entry.sequence));
        log.first.get_or_insert(entry.micros);
        let (seconds, micros) = (entry.micros.div_euclid(SECOND), entry.micros.rem_euclid(SECOND));
        let out_of_range = |_| Error::internal("a time outside of the format's range was encoded");
        let seconds = i64::try_from(seconds).map_err(out_of_range)?;
        let width = if self.dialect == WriteDialect::A { WIDTH } else { 0 };
        log.lines.line(width, [seconds, micros as i64, place as i64, index as i64])
    }

    /// Adds the lines of all events of a block. Returns the records that must not be written yet,
    /// sorted by position.
    fn add_lines(
        &self,
        log: &mut LogWriter,
        block: &EncodedEvents,
    ) -> Result<Vec<Range<usize>>, Error> {
        let mut configs = block.configs.iter();
        let mut deferred = Vec::new();
        for entry in &block.events {
            if !entry.is_config {
                self.add_data(log, entry)?;
                continue;
            }
            let place = configs.next().cloned().unwrap_or_default();
            let record = block.bytes.get(place.clone()).unwrap_or_default();
            if self.add_config(log, entry, record)? == ConfigPlacement::Head {
                deferred.push(place);
            }
        }
        deferred.sort_unstable_by_key(|place| place.start);
        Ok(deferred)
    }

    fn header(&self, log: &LogWriter) -> String {
        let mut text = String::new();
        for subfile in &log.subfiles {
            let SubfileKey { channel, source, type_name, is_relative, .. } = &*subfile.key;
            let own = WriterComment {
                config_records: subfile.config,
                prefix: self.prefix(),
                channel: channel.clone(),
                source: source.to_string(),
                type_name: type_name.as_deref().map(str::to_owned),
                clock: if *is_relative { Clock::Relative } else { Clock::Utc },
                interface: subfile.key.comment_interface(),
                is_disabled: self.dialect == WriteDialect::A && !subfile.key.is_enabled,
                metadata: subfile.key.metadata.clone(),
            };
            if let Some(proxy) = &subfile.key.proxy {
                text += &format!("# {proxy}\n");
            }
            text += &own.to_line();
            text += &self.header_line(subfile);
        }
        text + "#data\n"
    }

    fn header_line(&self, subfile: &SubfileWriter) -> String {
        let SubfileKey { interface, encoding, is_enabled, .. } = &*subfile.key;
        let name = &subfile.name;
        match self.dialect {
            WriteDialect::A => {
                let module = if *encoding == Encoding::Ice.as_str() { "::orca::" } else { "::" };
                format!("{:<32} {encoding:<12} {name}\n", format!("{module}{interface}"))
            }
            WriteDialect::C => {
                let interface = if interface.is_empty() { "-" } else { interface };
                format!("{name} {interface} {encoding} {}\n", u8::from(*is_enabled))
            }
        }
    }
}

fn missing_subfile() -> Error {
    Error::internal("a subfile is missing from the log")
}

impl Sink for OrcaSink {
    type Block = EncodedEvents;
    type Unit = EncodedEvents;
    type Output = LogWriter;

    fn traits(&self) -> SinkTraits {
        SinkTraits { accepts_wide_times: true, ..SinkTraits::writing(&self.path.0) }
    }

    fn open(&self, context: &SinkContext) -> Result<LogWriter, Error> {
        let outputs = Arc::clone(&context.outputs);
        let path = outputs.actual_path(&self.path.0);
        // Opening a master that grows empties it.
        let mut replaced = own_subfiles(&outputs, &path);
        let names = BTreeSet::from([folded(&master_name(&path))]);
        let master = outputs.create_index(&self.path.0)?;
        if outputs.growing().is_empty() {
            // Another run may have published the log before this one was found to be alone.
            replaced = own_subfiles(&outputs, &path);
        }
        Ok(LogWriter {
            outputs,
            path,
            master,
            lines: LineSpill::default(),
            subfiles: Vec::new(),
            by_key: Vec::new(),
            names,
            replaced,
            events: 0,
            first: None,
            config_times: None,
            configs: 0,
            config_budget: ConfigBudget(MAX_BUFFERED_CONFIG),
            late_configs: 0,
            renumbered: 0,
        })
    }

    fn prepare(
        &self,
        batch: Batch,
        context: &mut PrepareContext<'_>,
    ) -> Result<EncodedEvents, Error> {
        context.note_schemas_lost(&batch);
        let members = self.roles.table(context.channels, |channel| Ok(self.role(channel)))?;
        let rows: Vec<EventRow> = batch
            .channels()
            .iter()
            .zip(0..)
            .map(|(id, row)| (row, members[*id as usize]))
            .collect();
        let rows = writable_rows(&batch, rows, context);
        let is_beyond = |row: &u32| !is_representable(time_of(&batch, *row));
        context.report.clamped.extend(rows.iter().map(|(row, _)| *row).filter(is_beyond));
        let micros = |row: u32| match time_of(&batch, row) {
            time if is_representable(time) => nearest_micros(time),
            _ => nearest_micros(batch.timestamps()[row as usize].into()),
        };
        let entry = |(row, member): &EventRow| EventEntry {
            micros: micros(*row),
            sequence: batch.sequences()[*row as usize],
            key: member.key,
            is_config: member.is_config,
        };
        let events = rows.iter().map(entry).collect();
        let mut bytes = context.buffers.buffer();
        let (runs, configs) = self.write_records(&batch, rows, &mut bytes);
        Ok(EncodedEvents { bytes, runs, configs, events })
    }

    fn write(&self, log: &mut LogWriter, block: EncodedEvents) -> Result<Written, Error> {
        let deferred = self.add_lines(log, &block)?;
        for (key, run) in block.runs {
            let place = self.subfile(log, key)?;
            let Some(subfile) = log.subfiles.get_mut(place) else { return Err(missing_subfile()) };
            for part in subtract_ranges(run, &deferred) {
                subfile.file.write_binary(block.bytes.get(part).unwrap_or_default())?;
            }
        }
        log.events += block.events.len() as u64;
        Ok(Written::events(block.events.len() as u64))
    }

    fn finish(&self, mut log: LogWriter) -> Result<Written, Error> {
        let notes = log.notes();
        let header = self.header(&log);
        log.master.write(header.as_bytes())?;
        log.lines.copy_to(&mut log.master)?;
        for subfile in log.subfiles {
            subfile.finish()?;
        }
        log.master.finish(log.events)?;
        Ok(Written { notes, ..Written::default() })
    }
}
