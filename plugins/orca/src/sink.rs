//! Sink `orca`: a master, and beside it one subfile per channel.
//!
//! The header of a master lists all subfiles, which are only known at the end. Until then, data
//! lines are buffered in memory, and spilled to an unnamed temporary file when there are many.
//! Configuration that arrives after data of its subfile is buffered in memory and inserted at the
//! start of the file in the end.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};
use sluice_core::name::{escaped, folded};
use sluice_core::options::OutPath;
use sluice_core::pool::PooledBlock;
use sluice_core::{
    Batch, Channel, Clock, EncodeContext, Encoding, Error, OutputFile, Outputs, PerChannel, Sink,
    SinkContext,
};

use crate::config_buffer::{ConfigBudget, ConfigBuffer, subtract_ranges};
use crate::master::{self, MasterHeader, WriterComment, is_file_name};
use crate::percent;
use crate::subfile::{LONGEST_RECORD, RecordPrefix};

/// Writes a log of the Orca robotics project: a master file and one subfile per channel beside it.
///
/// Comments in the master hold what its columns cannot, so the source `orca` restores the same
/// channels, whatever they contain.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OrcaSink {
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[schemars(rename = "Dialect")]
enum WriteDialect {
    #[default]
    A,
    C,
}

sluice_core::register! {
    sink "orca": OrcaSink,
    about: "writes logs of the Orca robotics project: a master file and a subfile a channel",
    sample: include_str!("../samples/orca-sink.toml"),
    extensions: &["orca"],
}

/// The path of a master, which must be a file because subfiles are beside it.
fn master_path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<OutPath, D::Error> {
    let path = OutPath::deserialize(deserializer)?;
    if path.is_stdout() || path.is_folder() {
        return Err(serde::de::Error::custom(
            "expected the path of a master file, which has subfiles beside it; found standard output or a folder",
        ));
    }
    Ok(path)
}

/// The maximum number of subfiles: all are open until the log is complete.
const MAX_SUBFILES: usize = 1000;
/// The maximum bytes of data lines buffered in memory.
const MAX_BUFFERED_LINES: usize = 8 << 20;
/// The maximum bytes of configuration buffered in memory.
const MAX_BUFFERED_CONFIG: usize = 16 << 20;
/// Nanoseconds per microsecond.
const MICRO: i128 = 1_000;
/// Microseconds per second.
const SECOND: i128 = 1_000_000;
/// The width of number columns in dialect A.
const WIDTH: usize = 12;

/// What identifies a subfile, and goes into its header line and comment.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SubfileKey {
    channel: Vec<u8>,
    source: Arc<str>,
    encoding: &'static str,
    type_name: Option<Arc<str>>,
    is_relative: bool,
    /// The interface, without the dialect's module.
    interface: String,
    /// The interface in the channel's metadata.
    channel_interface: Option<String>,
    /// The name of the subfile it was read from.
    file: Option<String>,
    proxy: Option<String>,
    is_enabled: bool,
    /// The remaining metadata of the channel.
    metadata: BTreeMap<String, String>,
}

/// The maximum bytes of remaining metadata in a comment, which must fit into a line even if every
/// byte is escaped as three.
const MAX_METADATA: usize = 16 << 10;

/// The metadata of a channel that only our comments can hold. `None` if they cannot: it is too
/// long, or it belongs to objects, whose configuration it would separate from the data.
fn comment_metadata(channel: &Channel) -> Option<BTreeMap<String, String>> {
    let others = channel.metadata.iter().filter(|(key, _)| !RESERVED_KEYS.contains(&key.as_str()));
    let others: BTreeMap<_, _> = others.map(|(key, value)| (key.clone(), value.clone())).collect();
    if channel.encoding == Encoding::Ice && !others.is_empty() {
        return None;
    }
    let bytes: usize = others.iter().map(|(key, value)| key.len() + value.len() + 16).sum();
    (bytes <= MAX_METADATA).then_some(others)
}

impl SubfileKey {
    fn from_channel(channel: &Channel) -> Self {
        let said = |key: &str| channel.metadata.get(key).cloned();
        let name = base_name(channel);
        let said_interface = said("ice.interface");
        Self {
            interface: percent::encoded(said_interface.as_deref().map_or(name, str::as_bytes)),
            channel_interface: said_interface,
            channel: name.to_owned(),
            source: Arc::clone(&channel.source),
            encoding: channel.encoding.as_str(),
            type_name: channel.type_name.clone(),
            is_relative: channel.clock == Clock::Relative,
            file: said("orca.file"),
            proxy: said("orca.proxy").filter(|proxy| is_proxy(proxy)),
            is_enabled: said("orca.enabled").as_deref() != Some("0"),
            metadata: comment_metadata(channel).unwrap_or_default(),
        }
    }

    /// The interface, unless the header line has it.
    fn comment_interface(&self) -> Option<String> {
        let is_object = self.encoding == Encoding::Ice.as_str();
        let is_told = |said: &String| is_object && *said == self.interface;
        self.channel_interface.clone().filter(|said| !is_told(said))
    }
}

fn is_proxy(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic()) && text.contains('@')
}

/// The suffix of a configuration channel, after the name of the objects' channel.
const CONFIG_SUFFIX: &[u8] = b".config";

fn is_config(channel: &Channel) -> bool {
    channel.metadata.get("ice.config").is_some_and(|said| said == "true")
        && channel.name.as_bytes().ends_with(CONFIG_SUFFIX)
}

/// The name of the objects' channel: without the suffix for a configuration channel.
fn base_name(channel: &Channel) -> &[u8] {
    let name = channel.name.as_bytes();
    if is_config(channel) { name.strip_suffix(CONFIG_SUFFIX).unwrap_or(name) } else { name }
}

/// All subfile keys, numbered. Numbers depend on timing and never reach the output.
#[derive(Debug, Default)]
struct SubfileKeys {
    list: Vec<Arc<SubfileKey>>,
    numbers: BTreeMap<Arc<SubfileKey>, u32>,
}

/// The role of a channel's events in the log.
#[derive(Clone, Copy, Debug)]
struct ChannelRole {
    group: u32,
    id: u8,
    is_config: bool,
    /// Whether some of its channel's metadata cannot be written.
    loses_metadata: bool,
    /// Whether its channel has an id that no record can have.
    has_invalid_id: bool,
    /// Whether its payloads are objects, which are never empty.
    is_object: bool,
}

/// The metadata keys that header lines and comments hold outside of [`WriterComment::metadata`].
pub(crate) const RESERVED_KEYS: [&str; 8] = [
    "ice.interface",
    "ice.config",
    "orca.file",
    "orca.id",
    "orca.proxy",
    "orca.enabled",
    // These describe the log that was read; the one being written has its own.
    "orca.dialect",
    "orca.encoding",
];

/// A row of a batch and the role of its event.
type EventRow = (u32, ChannelRole);
/// The range of a subfile's records in encoded bytes.
type SubfileRun = (u32, Range<usize>);
/// The maximum length of a record's prefix: an id and a length.
const LONGEST_PREFIX: usize = 5;

/// Encoded events.
pub struct EncodedEvents {
    /// Records, subfile by subfile.
    bytes: PooledBlock,
    runs: Vec<SubfileRun>,
    /// The ranges of configuration records in `bytes`, in the order of their events.
    configs: Vec<Range<usize>>,
    /// The events, in order.
    events: Vec<EventEntry>,
}

struct EventEntry {
    micros: i128,
    sequence: i64,
    group: u32,
    is_config: bool,
}

/// The open log.
#[derive(Debug)]
pub struct LogWriter {
    outputs: Arc<Outputs>,
    path: PathBuf,
    master: OutputFile,
    lines: LineSpill,
    /// In the order of their numbers.
    subfiles: Vec<SubfileWriter>,
    /// The position in `subfiles`, by key number.
    by_group: Vec<Option<usize>>,
    names: BTreeSet<String>,
    /// The subfiles of the log that this one replaces; they are replaced with it.
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

#[derive(Debug)]
struct SubfileWriter {
    group: Arc<SubfileKey>,
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
        let said_id = channel.metadata.get("orca.id").map(|id| id.parse::<u8>());
        let id = said_id.clone().and_then(Result::ok).unwrap_or(0);
        let says_more = comment_metadata(channel).is_none();
        let loses_id = id != 0 && self.dialect == WriteDialect::A;
        let mut groups = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        ChannelRole {
            group: groups.number(SubfileKey::from_channel(channel)),
            id,
            is_config: is_config(channel),
            loses_metadata: says_more || loses_id,
            has_invalid_id: said_id.is_some_and(|id| id.is_err()),
            is_object: channel.encoding == Encoding::Ice,
        }
    }

    fn key(&self, number: u32) -> Result<Arc<SubfileKey>, Error> {
        let groups = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        let group = groups.list.get(number as usize).cloned();
        group.ok_or_else(|| Error::internal("an event without a subfile was encoded"))
    }

    /// The position of the subfile with this key, which is created if it is new.
    fn subfile(&self, log: &mut LogWriter, number: u32) -> Result<usize, Error> {
        let group = number as usize;
        if let Some(Some(place)) = log.by_group.get(group) {
            return Ok(*place);
        }
        if log.subfiles.len() >= MAX_SUBFILES {
            return Err(Error::refused(format!(
                "too many channels: each needs a subfile, of which at most {MAX_SUBFILES} are \
                 written; filter the events, or write another format"
            )));
        }
        log.by_group.resize(log.by_group.len().max(group + 1), None);
        log.by_group[group] = Some(log.subfiles.len());
        let group = self.key(number)?;
        let name = log.name_for(&group);
        let file = log.outputs.create_as_is(&log.path.with_file_name(&name))?;
        let front = ConfigBuffer::default();
        log.subfiles.push(SubfileWriter {
            group,
            name,
            file,
            config_buffer: front,
            config: 0,
            data: 0,
        });
        Ok(log.subfiles.len() - 1)
    }

    /// Accounts for a configuration event with this record.
    fn add_config(
        &self,
        log: &mut LogWriter,
        entry: &EventEntry,
        record: &[u8],
    ) -> Result<ConfigPlacement, Error> {
        let place = self.subfile(log, entry.group)?;
        let Some(subfile) = log.subfiles.get_mut(place) else { return Err(missing_subfile()) };
        let goes = if subfile.data == 0 {
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
        Ok(goes)
    }

    /// Adds the line of a data event.
    fn add_data(&self, log: &mut LogWriter, entry: &EventEntry) -> Result<(), Error> {
        let place = self.subfile(log, entry.group)?;
        let Some(subfile) = log.subfiles.get_mut(place) else { return Err(missing_subfile()) };
        let index = subfile.data + self.first_index();
        subfile.data += 1;
        log.renumbered += u64::from(i64::try_from(index) != Ok(entry.sequence));
        log.first.get_or_insert(entry.micros);
        let (seconds, micros) = (entry.micros.div_euclid(SECOND), entry.micros.rem_euclid(SECOND));
        let seconds = i64::try_from(seconds).map_err(|_| {
            Error::internal(
                "a time outside of the \
            format's range was encoded",
            )
        })?;
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
        let mut taken = Vec::new();
        for entry in &block.events {
            if !entry.is_config {
                self.add_data(log, entry)?;
                continue;
            }
            let place = configs.next().cloned().unwrap_or_default();
            let record = block.bytes.get(place.clone()).unwrap_or_default();
            if self.add_config(log, entry, record)? == ConfigPlacement::Head {
                taken.push(place);
            }
        }
        taken.sort_unstable_by_key(|place| place.start);
        Ok(taken)
    }

    /// Appends the records to `bytes` by subfile, in order within each. Returns the range of each
    /// subfile, and of each configuration record in the order of events.
    fn write_records(
        &self,
        batch: &Batch,
        mut rows: Vec<EventRow>,
        bytes: &mut PooledBlock,
    ) -> (Vec<SubfileRun>, Vec<Range<usize>>) {
        bytes.reserve(batch.payload_bytes() as usize + rows.len() * LONGEST_PREFIX);
        rows.sort_by_key(|(_, member)| member.group);
        let mut runs: Vec<SubfileRun> = Vec::new();
        let mut configs: Vec<(u32, Range<usize>)> = Vec::new();
        for (row, ChannelRole { group, id, is_config, .. }) in rows {
            let (payload, from) = (batch.payload(row as usize), bytes.len());
            if self.dialect == WriteDialect::C {
                bytes.push(id);
            }
            bytes.extend_from_slice(&(payload.len() as u32).to_le_bytes());
            bytes.extend_from_slice(payload);
            if is_config {
                configs.push((row, from..bytes.len()));
            }
            match runs.last_mut() {
                Some((same, run)) if *same == group => run.end = bytes.len(),
                _ => runs.push((group, from..bytes.len())),
            }
        }
        configs.sort_unstable_by_key(|(row, _)| *row);
        (runs, configs.into_iter().map(|(_, place)| place).collect())
    }

    fn header(&self, log: &LogWriter) -> String {
        let mut text = String::new();
        for subfile in &log.subfiles {
            let SubfileKey { channel, source, type_name, is_relative, .. } = &*subfile.group;
            let own = WriterComment {
                config_records: subfile.config,
                prefix: self.prefix(),
                channel: channel.clone(),
                source: source.to_string(),
                type_name: type_name.as_deref().map(str::to_owned),
                clock: if *is_relative { Clock::Relative } else { Clock::Utc },
                interface: subfile.group.comment_interface(),
                is_disabled: self.dialect == WriteDialect::A && !subfile.group.is_enabled,
                metadata: subfile.group.metadata.clone(),
            };
            if let Some(proxy) = &subfile.group.proxy {
                text += &format!("# {proxy}\n");
            }
            text += &own.to_line();
            text += &self.header_line(subfile);
        }
        text + "#data\n"
    }

    fn header_line(&self, subfile: &SubfileWriter) -> String {
        let SubfileKey { interface, encoding, is_enabled, .. } = &*subfile.group;
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

impl SubfileKeys {
    fn number(&mut self, group: SubfileKey) -> u32 {
        if let Some(number) = self.numbers.get(&group) {
            return *number;
        }
        // There are no more keys than channels, whose number fits.
        let (number, group) = (self.list.len() as u32, Arc::new(group));
        self.list.push(Arc::clone(&group));
        self.numbers.insert(group, number);
        number
    }
}

impl LogWriter {
    /// An unused name for a subfile: the one it was read from, if that is allowed.
    ///
    /// That name comes from the events, not from the user: it must not overwrite an existing file,
    /// unless that belongs to the log being replaced.
    fn name_for(&mut self, group: &SubfileKey) -> String {
        let master =
            escaped(self.path.file_name().unwrap_or_default().as_encoded_bytes()).into_owned();
        let old = group.file.as_ref().filter(|name| is_safe_file_name(name) && **name != master);
        let old = old.filter(|name| self.is_replaced(name) || !exists(&self.path_of(name)));
        if let Some(name) = old.filter(|name| self.names.insert(folded(name))) {
            return name.clone();
        }
        let stem = stem(&master);
        let interface = file_name_part(&group.interface);
        let mut number = 0;
        loop {
            let name = format!("{stem}_{interface}{number}.log");
            if self.names.insert(folded(&name)) && self.is_free(&name) {
                return name;
            }
            number += 1;
        }
    }

    fn path_of(&self, name: &str) -> PathBuf {
        self.path.with_file_name(name)
    }

    /// Whether the log being replaced has a subfile of this name.
    fn is_replaced(&self, name: &str) -> bool {
        self.replaced.contains(name.as_bytes())
    }

    /// Whether writing to this name overwrites no file of others. Devices and pipes may be written
    /// to.
    fn is_free(&self, name: &str) -> bool {
        let path = self.path_of(name);
        let is_device = fs::metadata(&path).is_ok_and(|meta| !meta.is_file() && !meta.is_dir());
        self.is_replaced(name) || is_device || !exists(&path)
    }
}

/// Whether the path exists, even as a dangling link.
fn exists(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

/// The subfile names of the log at `path`; none if there is no readable log.
fn subfiles_of_master(path: &Path) -> BTreeSet<Vec<u8>> {
    if !path.is_file() {
        return BTreeSet::new();
    }
    let header = master::open(path).and_then(|mut lines| MasterHeader::read(&mut lines));
    let files = header.map(|header| header.files).unwrap_or_default();
    files.into_iter().filter(|file| file.refused.is_none()).map(|file| file.name).collect()
}

/// Whether a name fits into a column and looks like one that a logger gave to a file.
fn is_safe_file_name(name: &str) -> bool {
    let begins = name.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_');
    let is_short = name.len() <= 128;
    let is_whole = is_file_name(name.as_bytes()) && name.ends_with(".log");
    begins && is_short && is_whole && name.bytes().all(|b| b.is_ascii_graphic())
}

/// The start of subfile names: the master's name up to its first dot.
fn stem(master: &str) -> String {
    let stem = master.split('.').find(|part| !part.is_empty()).unwrap_or("log");
    percent::encoded(stem.as_bytes()).chars().take(64).collect()
}

fn file_name_part(interface: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    let name: String = interface.to_ascii_lowercase().chars().map(plain).take(64).collect();
    if name.is_empty() { "channel".to_owned() } else { name }
}

/// Data lines, buffered until the header can be written.
#[derive(Debug, Default)]
struct LineSpill {
    buffer: Vec<u8>,
    file: Option<std::fs::File>,
}

impl LineSpill {
    fn line(&mut self, width: usize, columns: [i64; 4]) -> Result<(), Error> {
        let mut digits = itoa::Buffer::new();
        for (place, number) in columns.into_iter().enumerate() {
            let number = digits.format(number).as_bytes();
            self.buffer.extend_from_slice(number);
            let is_last = place + 1 == columns.len();
            let blanks = if is_last { 0 } else { width.saturating_sub(number.len()).max(1) };
            self.buffer.resize(self.buffer.len() + blanks, b' ');
        }
        self.buffer.push(b'\n');
        if self.buffer.len() < MAX_BUFFERED_LINES {
            Ok(())
        } else {
            self.spill().map_err(spill_error)
        }
    }

    fn spill(&mut self) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(tempfile::tempfile()?),
        };
        file.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }

    /// Writes all lines to the master, in order.
    fn copy_to(mut self, to: &mut OutputFile) -> Result<(), Error> {
        if let Some(file) = &mut self.file {
            file.seek(SeekFrom::Start(0)).map_err(spill_error)?;
            let mut buffer = vec![0; 1 << 20];
            loop {
                let read = file.read(&mut buffer).map_err(spill_error)?;
                if read == 0 {
                    break;
                }
                to.write(buffer.get(..read).unwrap_or_default())?;
            }
        }
        to.write(&self.buffer)
    }
}

fn missing_subfile() -> Error {
    Error::internal("a subfile is missing from the log")
}

fn spill_error(error: io::Error) -> Error {
    Error::io("keep lines of the master in", std::env::temp_dir(), error)
}

/// The rows that can be written; reports the others, and what is lost, to `context`.
fn writable_rows(
    batch: &Batch,
    rows: Vec<EventRow>,
    context: &mut EncodeContext<'_>,
) -> Vec<EventRow> {
    let (mut is_cut, mut is_fine, mut has_odd_id) = (false, false, false);
    let mut kept = rows;
    kept.retain(|(row, member)| match refusal(*member, batch.payload(*row as usize)) {
        Some(reason) => {
            context.refused.push((*row, reason));
            false
        }
        None => {
            is_cut |= member.loses_metadata;
            has_odd_id |= member.has_invalid_id;
            is_fine |= time_of(batch, *row) % MICRO != 0;
            true
        }
    });
    if is_cut {
        context.losses.insert(
            "ids in dialect A, metadata of objects that is not Orca's, and metadata above \
                16 KiB are not written",
        );
    }
    if has_odd_id {
        context.losses.insert("`orca.id` that is not a number from 0 to 255 is written as 0");
    }
    if is_fine {
        let loss = "times are rounded to whole microseconds";
        context.losses.insert(loss);
    }
    kept
}

/// The time of an event in nanoseconds.
fn time_of(batch: &Batch, row: u32) -> i128 {
    let row = row as usize;
    batch.wide_time(row).unwrap_or_else(|| batch.timestamps()[row].into())
}

/// The nearest microsecond: times stored as doubles are often slightly too low. A time that fits
/// into 64 bits still does afterwards.
fn nearest_micros(nanos: i128) -> i128 {
    let (whole, rest) = (nanos.div_euclid(MICRO), nanos.rem_euclid(MICRO));
    let is_last = whole == i128::from(i64::MAX) / MICRO;
    whole + i128::from(rest >= MICRO / 2 && !is_last)
}

/// Whether the seconds of a time fit into a data line.
fn is_representable(nanos: i128) -> bool {
    i64::try_from(nearest_micros(nanos).div_euclid(SECOND)).is_ok()
}

/// The reason an event cannot be written.
fn refusal(member: ChannelRole, payload: &[u8]) -> Option<String> {
    if payload.len() as u64 > LONGEST_RECORD {
        return Some(format!(
            "a payload of {} bytes is longer than a record can be",
            payload.len()
        ));
    }
    let is_empty = payload.is_empty() && member.is_object;
    is_empty.then(|| "an object has at least one byte, but this payload is empty".to_owned())
}

impl Sink for OrcaSink {
    type Block = EncodedEvents;
    type Output = LogWriter;

    fn targets(&self) -> Vec<PathBuf> {
        vec![self.path.0.clone()]
    }

    fn accepts_wide_times(&self) -> bool {
        true
    }

    fn open(&self, context: &SinkContext) -> Result<LogWriter, Error> {
        let outputs = Arc::clone(&context.outputs);
        let path = outputs.actual_path(&self.path.0);
        // Before the new master is created, which may replace the old one.
        let replaced = subfiles_of_master(&path);
        let master = outputs.create(&self.path.0)?;
        Ok(LogWriter {
            outputs,
            path,
            master,
            lines: LineSpill::default(),
            subfiles: Vec::new(),
            by_group: Vec::new(),
            names: BTreeSet::new(),
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

    fn encode(
        &self,
        batch: Batch,
        context: &mut EncodeContext<'_>,
    ) -> Result<EncodedEvents, Error> {
        let members = self.roles.table(context.channels, |channel| Ok(self.role(channel)))?;
        let rows: Vec<EventRow> = batch
            .channels()
            .iter()
            .zip(0..)
            .map(|(id, row)| (row, members[*id as usize]))
            .collect();
        let rows = writable_rows(&batch, rows, context);
        let is_beyond = |row: &u32| !is_representable(time_of(&batch, *row));
        context.clamped.extend(rows.iter().map(|(row, _)| *row).filter(is_beyond));
        let micros = |row: u32| match time_of(&batch, row) {
            time if is_representable(time) => nearest_micros(time),
            _ => nearest_micros(batch.timestamps()[row as usize].into()),
        };
        let entry = |(row, member): &EventRow| EventEntry {
            micros: micros(*row),
            sequence: batch.sequences()[*row as usize],
            group: member.group,
            is_config: member.is_config,
        };
        let events = rows.iter().map(entry).collect();
        let mut bytes = context.buffers.buffer();
        let (runs, configs) = self.write_records(&batch, rows, &mut bytes);
        Ok(EncodedEvents { bytes, runs, configs, events })
    }

    fn append(&self, log: &mut LogWriter, block: EncodedEvents) -> Result<u64, Error> {
        let taken = self.add_lines(log, &block)?;
        for (group, run) in block.runs {
            let place = self.subfile(log, group)?;
            let Some(subfile) = log.subfiles.get_mut(place) else { return Err(missing_subfile()) };
            for part in subtract_ranges(run, &taken) {
                subfile.file.write_binary(block.bytes.get(part).unwrap_or_default())?;
            }
        }
        log.events += block.events.len() as u64;
        Ok(block.events.len() as u64)
    }

    fn notes(&self, log: &LogWriter) -> Vec<(String, u64)> {
        // Without any data line, configuration is read at time 0.
        let first = log.first.unwrap_or(0);
        let is_moved = log.config_times.is_some_and(|times| times != (first, first));
        let moved = if is_moved { log.configs } else { 0 };
        let fronts = log.subfiles.iter().map(|subfile| subfile.config_buffer.renumbered());
        let renumbered = log.renumbered + fronts.sum::<u64>();
        let all = [
            ("event numbers are not kept: they become the position in the subfile", renumbered),
            ("configuration that arrived after its data is written as data", log.late_configs),
            ("configuration loses its own time: it is read at the time of the first event", moved),
        ];
        all.into_iter().filter(|(_, n)| *n > 0).map(|(what, n)| (what.to_owned(), n)).collect()
    }

    fn finish(&self, mut log: LogWriter) -> Result<u64, Error> {
        let header = self.header(&log);
        log.master.write(header.as_bytes())?;
        log.lines.copy_to(&mut log.master)?;
        for subfile in log.subfiles {
            subfile.finish()?;
        }
        log.master.finish(log.events)?;
        Ok(0)
    }
}
