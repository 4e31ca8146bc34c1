//! Sink `orca`: a master and a subfile for each channel beside it.
//!
//! The header of a master names every subfile, and which these are is only known at the end: until then, lines
//! of data are kept aside, in memory while they are few and else in a file without a name. Configuration that
//! comes after data of its subfile is kept in memory, and goes to the front once all is written.

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

use crate::front::{Front, Room, without};
use crate::master::{self, Header, Own, is_plain};
use crate::percent;
use crate::subfile::{LONGEST_RECORD, Prefix};

/// Writes a log of the Orca robotics project: a master file and a subfile a channel beside it.
///
/// Comments in the master say what its own columns cannot, so the source of this name gives the same channels
/// back, whatever they hold.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OrcaSink {
    /// The master. Its subfiles are written beside it, under names that begin with its own. `.zst` at its end
    /// compresses it; subfiles stay as they are.
    #[serde(deserialize_with = "master_path")]
    path: OutPath,
    /// Which form of the format: `A`, that of 2006, or `C`, that of 2007 and later.
    #[serde(default)]
    dialect: Dialect,
    #[serde(skip)]
    #[schemars(skip)]
    members: PerChannel<Member>,
    #[serde(skip)]
    #[schemars(skip)]
    groups: Mutex<Groups>,
}

/// The forms that are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
enum Dialect {
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

/// A path that may be of a master: subfiles have to lie beside it.
fn master_path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<OutPath, D::Error> {
    let path = OutPath::deserialize(deserializer)?;
    if path.is_stdout() || path.is_folder() {
        return Err(serde::de::Error::custom(
            "a log is a master and subfiles beside it: expected the file that is to be the master, found \
             standard output or a folder",
        ));
    }
    Ok(path)
}

/// The most subfiles of a log: all are open until it is complete.
const MOST_SUBFILES: usize = 1000;
/// How many bytes of lines are kept in memory.
const MOST_KEPT: usize = 8 << 20;
/// How many bytes of configuration are kept in memory.
const MOST_CONFIG: usize = 16 << 20;
/// Nanoseconds a microsecond.
const MICRO: i128 = 1_000;
/// Microseconds a second.
const SECOND: i128 = 1_000_000;
/// How wide the columns of numbers are in dialect A.
const WIDTH: usize = 12;

/// The events that share a subfile, and what the header says of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Group {
    channel: Vec<u8>,
    source: Arc<str>,
    encoding: &'static str,
    type_name: Option<Arc<str>>,
    is_relative: bool,
    /// The word for the interface, without what the dialect puts before it.
    interface: String,
    /// The interface as the channel says it.
    said_interface: Option<String>,
    /// The name its subfile had where it was read.
    file: Option<String>,
    proxy: Option<String>,
    is_enabled: bool,
    /// What else is known of the channel.
    metadata: BTreeMap<String, String>,
}

/// What else is known of a channel takes no more bytes than this in a comment, which has to fit into a line of
/// which every byte may take three.
const MOST_METADATA: usize = 16 << 10;

/// What is known of a channel that only our comments can say; nothing if these have no place for it: it is too long,
/// or of objects, of which the configuration would be torn from the rest if more was known of it.
fn other_metadata(channel: &Channel) -> Option<BTreeMap<String, String>> {
    let others = channel.metadata.iter().filter(|(key, _)| !KEPT.contains(&key.as_str()));
    let others: BTreeMap<_, _> = others.map(|(key, value)| (key.clone(), value.clone())).collect();
    if channel.encoding == Encoding::Ice && !others.is_empty() {
        return None;
    }
    let bytes: usize = others.iter().map(|(key, value)| key.len() + value.len() + 16).sum();
    (bytes <= MOST_METADATA).then_some(others)
}

impl Group {
    fn of(channel: &Channel) -> Self {
        let said = |key: &str| channel.metadata.get(key).cloned();
        let name = base_name(channel);
        let said_interface = said("ice.interface");
        Self {
            interface: percent::encoded(said_interface.as_deref().map_or(name, str::as_bytes)),
            said_interface,
            channel: name.to_owned(),
            source: Arc::clone(&channel.source),
            encoding: channel.encoding.as_str(),
            type_name: channel.type_name.clone(),
            is_relative: channel.clock == Clock::Relative,
            file: said("orca.file"),
            proxy: said("orca.proxy").filter(|proxy| is_word(proxy)),
            is_enabled: said("orca.enabled").as_deref() != Some("0"),
            metadata: other_metadata(channel).unwrap_or_default(),
        }
    }

    /// The interface, where the header line does not say it.
    fn own_interface(&self) -> Option<String> {
        let is_object = self.encoding == Encoding::Ice.as_str();
        let is_told = |said: &String| is_object && *said == self.interface;
        self.said_interface.clone().filter(|said| !is_told(said))
    }
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic()) && text.contains('@')
}

/// What a channel of configuration is called behind the name of its objects' channel.
const CONFIG: &[u8] = b".config";

fn is_config(channel: &Channel) -> bool {
    channel.metadata.get("ice.config").is_some_and(|said| said == "true")
        && channel.name.as_bytes().ends_with(CONFIG)
}

/// The name of the channel that a channel of configuration belongs to; of others their own.
fn base_name(channel: &Channel) -> &[u8] {
    let name = channel.name.as_bytes();
    if is_config(channel) { name.strip_suffix(CONFIG).unwrap_or(name) } else { name }
}

/// Every group that was met, by number. Numbers depend on timing and reach no output.
#[derive(Debug, Default)]
struct Groups {
    list: Vec<Arc<Group>>,
    numbers: BTreeMap<Arc<Group>, u32>,
}

/// What a channel's events are.
#[derive(Clone, Copy, Debug)]
struct Member {
    group: u32,
    id: u8,
    is_config: bool,
    /// Whether its channel says something that is not written.
    is_cut: bool,
    /// Whether its channel has an id that no record can have.
    has_odd_id: bool,
    /// Whether its payloads are objects, which have at least a byte.
    is_object: bool,
}

/// What the header says of a channel, and our comments beside [`Own::metadata`].
pub(crate) const KEPT: [&str; 8] = [
    "ice.interface",
    "ice.config",
    "orca.file",
    "orca.id",
    "orca.proxy",
    "orca.enabled",
    // Of the log that was read: the one that is written has its own.
    "orca.dialect",
    "orca.encoding",
];

/// An event of a batch, and what it is.
type Row = (u32, Member);
/// The records of a subfile in encoded bytes.
type Run = (u32, Range<usize>);
/// The longest that stands before a record: an id and a length.
const LONGEST_PREFIX: usize = 5;

/// Encoded events.
pub struct Encoded {
    /// Records, subfile by subfile.
    bytes: PooledBlock,
    runs: Vec<Run>,
    /// Where in the bytes the records of configuration lie, in the order of their events.
    configs: Vec<Range<usize>>,
    /// The events in their order.
    events: Vec<Entry>,
}

struct Entry {
    micros: i128,
    sequence: i64,
    group: u32,
    is_config: bool,
}

/// The open log.
#[derive(Debug)]
pub struct OpenLog {
    outputs: Arc<Outputs>,
    path: PathBuf,
    master: OutputFile,
    lines: Spill,
    /// In the order of their numbers.
    subfiles: Vec<Subfile>,
    /// By number of group.
    by_group: Vec<Option<usize>>,
    names: BTreeSet<String>,
    /// The subfiles of the log that this one replaces: they are replaced with it.
    replaced: BTreeSet<Vec<u8>>,
    events: u64,
    /// When the first event that has a line happened.
    first: Option<i128>,
    /// When the first and the last configuration were given.
    configured: Option<(i128, i128)>,
    configs: u64,
    /// How much more configuration may be kept.
    room: Room,
    /// How much came after data and was written as data.
    late: u64,
    renumbered: u64,
}

#[derive(Debug)]
struct Subfile {
    group: Arc<Group>,
    name: String,
    file: OutputFile,
    front: Front,
    config: u64,
    data: u64,
}

impl Subfile {
    /// Puts all configuration where it belongs, and completes the file.
    fn finish(mut self) -> Result<(), Error> {
        if let Some((len, head)) = self.front.replacement().filter(|_| self.file.can_replace_head())
        {
            self.file.replace_head(len, &head)?;
        }
        self.file.finish(self.config + self.data)
    }
}

/// Where a record of configuration goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Goes {
    /// To its subfile, behind what that has.
    Behind,
    /// To the front, once all is written.
    Front,
}

impl OrcaSink {
    fn prefix(&self) -> Prefix {
        Prefix { id: self.dialect == Dialect::C, ..Prefix::default() }
    }

    fn base(&self) -> u64 {
        u64::from(self.dialect == Dialect::A)
    }

    fn member(&self, channel: &Channel) -> Member {
        let said_id = channel.metadata.get("orca.id").map(|id| id.parse::<u8>());
        let id = said_id.clone().and_then(Result::ok).unwrap_or(0);
        let says_more = other_metadata(channel).is_none();
        let loses_id = id != 0 && self.dialect == Dialect::A;
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        Member {
            group: groups.number(Group::of(channel)),
            id,
            is_config: is_config(channel),
            is_cut: says_more || loses_id,
            has_odd_id: said_id.is_some_and(|id| id.is_err()),
            is_object: channel.encoding == Encoding::Ice,
        }
    }

    fn group(&self, number: u32) -> Result<Arc<Group>, Error> {
        let groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        let group = groups.list.get(number as usize).cloned();
        group.ok_or_else(|| Error::internal("an event of no subfile was encoded"))
    }

    /// The place of a group's subfile, which is begun if it is new.
    fn subfile(&self, log: &mut OpenLog, number: u32) -> Result<usize, Error> {
        let group = number as usize;
        if let Some(Some(place)) = log.by_group.get(group) {
            return Ok(*place);
        }
        if log.subfiles.len() >= MOST_SUBFILES {
            return Err(Error::refused(format!(
                "more than {MOST_SUBFILES} channels: each is a subfile of its own; filter the events, or \
                 write another format"
            )));
        }
        log.by_group.resize(log.by_group.len().max(group + 1), None);
        log.by_group[group] = Some(log.subfiles.len());
        let group = self.group(number)?;
        let name = log.name_for(&group);
        let file = log.outputs.create_as_is(&log.path.with_file_name(&name))?;
        let front = Front::default();
        log.subfiles.push(Subfile { group, name, file, front, config: 0, data: 0 });
        Ok(log.subfiles.len() - 1)
    }

    /// Notes an event of configuration, of which this is the record.
    fn note_config(&self, log: &mut OpenLog, entry: &Entry, record: &[u8]) -> Result<Goes, Error> {
        let place = self.subfile(log, entry.group)?;
        let Some(subfile) = log.subfiles.get_mut(place) else { return Err(no_number()) };
        let goes = if subfile.data == 0 {
            subfile.front.begin_with(entry.sequence, record, &mut log.room);
            Goes::Behind
        } else if subfile.file.can_replace_head()
            && subfile.front.keep(entry.sequence, record, &mut log.room)
        {
            Goes::Front
        } else {
            log.late += 1;
            self.note_data(log, entry)?;
            return Ok(Goes::Behind);
        };
        subfile.config += 1;
        log.configs += 1;
        let (from, to) = log.configured.unwrap_or((entry.micros, entry.micros));
        log.configured = Some((from.min(entry.micros), to.max(entry.micros)));
        Ok(goes)
    }

    /// Notes an event that gets a line.
    fn note_data(&self, log: &mut OpenLog, entry: &Entry) -> Result<(), Error> {
        let place = self.subfile(log, entry.group)?;
        let Some(subfile) = log.subfiles.get_mut(place) else { return Err(no_number()) };
        let index = subfile.data + self.base();
        subfile.data += 1;
        log.renumbered += u64::from(i64::try_from(index) != Ok(entry.sequence));
        log.first.get_or_insert(entry.micros);
        let (seconds, micros) = (entry.micros.div_euclid(SECOND), entry.micros.rem_euclid(SECOND));
        let seconds =
            i64::try_from(seconds).map_err(|_| Error::internal("a time has no seconds"))?;
        let width = if self.dialect == Dialect::A { WIDTH } else { 0 };
        log.lines.line(width, [seconds, micros as i64, place as i64, index as i64])
    }

    /// Notes all events of a block; gives the records that are not to be written yet, sorted by place.
    fn note_all(&self, log: &mut OpenLog, block: &Encoded) -> Result<Vec<Range<usize>>, Error> {
        let mut configs = block.configs.iter();
        let mut taken = Vec::new();
        for entry in &block.events {
            if !entry.is_config {
                self.note_data(log, entry)?;
                continue;
            }
            let place = configs.next().cloned().unwrap_or_default();
            let record = block.bytes.get(place.clone()).unwrap_or_default();
            if self.note_config(log, entry, record)? == Goes::Front {
                taken.push(place);
            }
        }
        taken.sort_unstable_by_key(|place| place.start);
        Ok(taken)
    }

    /// Appends records subfile by subfile; within each they stay in their order. Gives the subfiles' runs,
    /// and where configuration lies, in the order of its events.
    fn lay_out(
        &self,
        batch: &Batch,
        mut rows: Vec<Row>,
        bytes: &mut PooledBlock,
    ) -> (Vec<Run>, Vec<Range<usize>>) {
        bytes.reserve(batch.payload_bytes() as usize + rows.len() * LONGEST_PREFIX);
        rows.sort_by_key(|(_, member)| member.group);
        let mut runs: Vec<Run> = Vec::new();
        let mut configs: Vec<(u32, Range<usize>)> = Vec::new();
        for (row, Member { group, id, is_config, .. }) in rows {
            let (payload, from) = (batch.payload(row as usize), bytes.len());
            if self.dialect == Dialect::C {
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

    fn header(&self, log: &OpenLog) -> String {
        let mut text = String::new();
        for subfile in &log.subfiles {
            let Group { channel, source, type_name, is_relative, .. } = &*subfile.group;
            let own = Own {
                config_records: subfile.config,
                prefix: self.prefix(),
                channel: channel.clone(),
                source: source.to_string(),
                type_name: type_name.as_deref().map(str::to_owned),
                clock: if *is_relative { Clock::Relative } else { Clock::Utc },
                interface: subfile.group.own_interface(),
                is_disabled: self.dialect == Dialect::A && !subfile.group.is_enabled,
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

    fn header_line(&self, subfile: &Subfile) -> String {
        let Group { interface, encoding, is_enabled, .. } = &*subfile.group;
        let name = &subfile.name;
        match self.dialect {
            Dialect::A => {
                let module = if *encoding == Encoding::Ice.as_str() { "::orca::" } else { "::" };
                format!("{:<32} {encoding:<12} {name}\n", format!("{module}{interface}"))
            }
            Dialect::C => {
                let interface = if interface.is_empty() { "-" } else { interface };
                format!("{name} {interface} {encoding} {}\n", u8::from(*is_enabled))
            }
        }
    }
}

impl Groups {
    fn number(&mut self, group: Group) -> u32 {
        if let Some(number) = self.numbers.get(&group) {
            return *number;
        }
        // There are fewer groups than channels, and of these fewer than a number holds.
        let (number, group) = (self.list.len() as u32, Arc::new(group));
        self.list.push(Arc::clone(&group));
        self.numbers.insert(group, number);
        number
    }
}

impl OpenLog {
    /// A name for a group's subfile that none of the log has yet: the one it was read from, if that may be.
    ///
    /// What the events say of it is not the user's word: no file that exists is replaced on that account,
    /// unless it belongs to the log that is replaced.
    fn name_for(&mut self, group: &Group) -> String {
        let master =
            escaped(self.path.file_name().unwrap_or_default().as_encoded_bytes()).into_owned();
        let old = group.file.as_ref().filter(|name| is_safe(name) && **name != master);
        let old = old.filter(|name| self.is_own(name) || !is_there(&self.path_of(name)));
        if let Some(name) = old.filter(|name| self.names.insert(folded(name))) {
            return name.clone();
        }
        let stem = stem(&master);
        let interface = lower_case(&group.interface);
        let mut number = 0;
        loop {
            let name = format!("{stem}_{interface}{number}.log");
            if self.names.insert(folded(&name)) && self.may_write(&name) {
                return name;
            }
            number += 1;
        }
    }

    fn path_of(&self, name: &str) -> PathBuf {
        self.path.with_file_name(name)
    }

    /// Whether a subfile of the log that is replaced has this name.
    fn is_own(&self, name: &str) -> bool {
        self.replaced.contains(name.as_bytes())
    }

    /// Whether a name of ours takes the place of no file of others. Devices and pipes are written into.
    fn may_write(&self, name: &str) -> bool {
        let path = self.path_of(name);
        let is_device = fs::metadata(&path).is_ok_and(|meta| !meta.is_file() && !meta.is_dir());
        self.is_own(name) || is_device || !is_there(&path)
    }
}

/// Whether there is anything of that name, be it a link that leads nowhere.
fn is_there(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

/// The names of the subfiles of the log whose master is at `path`; none if there is none that can be read.
fn subfiles_of(path: &Path) -> BTreeSet<Vec<u8>> {
    if !path.is_file() {
        return BTreeSet::new();
    }
    let header = master::open(path).and_then(|mut lines| Header::read(&mut lines));
    let files = header.map(|header| header.files).unwrap_or_default();
    files.into_iter().filter(|file| file.refused.is_none()).map(|file| file.name).collect()
}

/// Whether a name can stand in a column, and is one as loggers gave to files in their folder.
fn is_safe(name: &str) -> bool {
    let begins = name.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_');
    let is_short = name.len() <= 128;
    let is_whole = is_plain(name.as_bytes()) && name.ends_with(".log");
    begins && is_short && is_whole && name.bytes().all(|b| b.is_ascii_graphic())
}

/// The name of a master without what is behind its first dot, as names of subfiles begin with it.
fn stem(master: &str) -> String {
    let stem = master.split('.').find(|part| !part.is_empty()).unwrap_or("log");
    percent::encoded(stem.as_bytes()).chars().take(64).collect()
}

fn lower_case(interface: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    let name: String = interface.to_ascii_lowercase().chars().map(plain).take(64).collect();
    if name.is_empty() { "channel".to_owned() } else { name }
}

/// Lines that are kept until they are wanted.
#[derive(Debug, Default)]
struct Spill {
    kept: Vec<u8>,
    file: Option<std::fs::File>,
}

impl Spill {
    fn line(&mut self, width: usize, columns: [i64; 4]) -> Result<(), Error> {
        let mut digits = itoa::Buffer::new();
        for (place, number) in columns.into_iter().enumerate() {
            let number = digits.format(number).as_bytes();
            self.kept.extend_from_slice(number);
            let is_last = place + 1 == columns.len();
            let blanks = if is_last { 0 } else { width.saturating_sub(number.len()).max(1) };
            self.kept.resize(self.kept.len() + blanks, b' ');
        }
        self.kept.push(b'\n');
        if self.kept.len() < MOST_KEPT { Ok(()) } else { self.put_aside().map_err(failed) }
    }

    fn put_aside(&mut self) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(tempfile::tempfile()?),
        };
        file.write_all(&self.kept)?;
        self.kept.clear();
        Ok(())
    }

    /// Hands all lines over, in order.
    fn hand_over(mut self, to: &mut OutputFile) -> Result<(), Error> {
        if let Some(file) = &mut self.file {
            file.seek(SeekFrom::Start(0)).map_err(failed)?;
            let mut buffer = vec![0; 1 << 20];
            loop {
                let read = file.read(&mut buffer).map_err(failed)?;
                if read == 0 {
                    break;
                }
                to.write(buffer.get(..read).unwrap_or_default())?;
            }
        }
        to.write(&self.kept)
    }
}

fn no_number() -> Error {
    Error::internal("a subfile has no number")
}

fn failed(error: io::Error) -> Error {
    Error::io("keep lines of the master in", std::env::temp_dir(), error)
}

/// The rows that can be written; `context` is told of the others, and of what is lost of these.
fn judged(batch: &Batch, rows: Vec<Row>, context: &mut EncodeContext<'_>) -> Vec<Row> {
    let (mut is_cut, mut is_fine, mut has_odd_id) = (false, false, false);
    let mut kept = rows;
    kept.retain(|(row, member)| match refusal(*member, batch.payload(*row as usize)) {
        Some(reason) => {
            context.refused.push((*row, reason));
            false
        }
        None => {
            is_cut |= member.is_cut;
            has_odd_id |= member.has_odd_id;
            is_fine |= time_of(batch, *row) % MICRO != 0;
            true
        }
    });
    if is_cut {
        context
            .losses
            .insert("ids in dialect A, metadata of objects beyond Orca's, and of others above 16 KiB are not written");
    }
    if has_odd_id {
        context.losses.insert("an `orca.id` that is no number from 0 to 255 is written as 0");
    }
    if is_fine {
        let loss = "times are written in whole microseconds; what is finer is rounded";
        context.losses.insert(loss);
    }
    kept
}

/// When an event happened, in nanoseconds.
fn time_of(batch: &Batch, row: u32) -> i128 {
    let row = row as usize;
    batch.wide_time(row).unwrap_or_else(|| batch.timestamps()[row].into())
}

/// The nearest microsecond: what a double tells of a time is often a little less than what was meant. A time that 64
/// bits can hold stays one.
fn nearest_micros(nanos: i128) -> i128 {
    let (whole, rest) = (nanos.div_euclid(MICRO), nanos.rem_euclid(MICRO));
    let is_last = whole == i128::from(i64::MAX) / MICRO;
    whole + i128::from(rest >= MICRO / 2 && !is_last)
}

/// Whether the seconds of a time can stand in a line.
fn has_line(nanos: i128) -> bool {
    i64::try_from(nearest_micros(nanos).div_euclid(SECOND)).is_ok()
}

/// Why an event cannot be written.
fn refusal(member: Member, payload: &[u8]) -> Option<String> {
    if payload.len() as u64 > LONGEST_RECORD {
        return Some(format!(
            "a payload of {} bytes is longer than a record may be",
            payload.len()
        ));
    }
    let is_empty = payload.is_empty() && member.is_object;
    is_empty.then(|| "an object has at least one byte, and this payload has none".to_owned())
}

impl Sink for OrcaSink {
    type Block = Encoded;
    type Output = OpenLog;

    fn targets(&self) -> Vec<PathBuf> {
        vec![self.path.0.clone()]
    }

    fn accepts_wide_times(&self) -> bool {
        true
    }

    fn open(&self, context: &SinkContext) -> Result<OpenLog, Error> {
        let outputs = Arc::clone(&context.outputs);
        let path = outputs.actual_path(&self.path.0);
        // Before the master is made, which may be in the place of the old one.
        let replaced = subfiles_of(&path);
        let master = outputs.create(&self.path.0)?;
        Ok(OpenLog {
            outputs,
            path,
            master,
            lines: Spill::default(),
            subfiles: Vec::new(),
            by_group: Vec::new(),
            names: BTreeSet::new(),
            replaced,
            events: 0,
            first: None,
            configured: None,
            configs: 0,
            room: Room(MOST_CONFIG),
            late: 0,
            renumbered: 0,
        })
    }

    fn encode(&self, batch: Batch, context: &mut EncodeContext<'_>) -> Result<Encoded, Error> {
        let members = self.members.table(context.channels, |channel| Ok(self.member(channel)))?;
        let rows: Vec<Row> = batch
            .channels()
            .iter()
            .zip(0..)
            .map(|(id, row)| (row, members[*id as usize]))
            .collect();
        let rows = judged(&batch, rows, context);
        let is_beyond = |row: &u32| !has_line(time_of(&batch, *row));
        context.clamped.extend(rows.iter().map(|(row, _)| *row).filter(is_beyond));
        let micros = |row: u32| match time_of(&batch, row) {
            time if has_line(time) => nearest_micros(time),
            _ => nearest_micros(batch.timestamps()[row as usize].into()),
        };
        let entry = |(row, member): &Row| Entry {
            micros: micros(*row),
            sequence: batch.sequences()[*row as usize],
            group: member.group,
            is_config: member.is_config,
        };
        let events = rows.iter().map(entry).collect();
        let mut bytes = context.buffers.buffer();
        let (runs, configs) = self.lay_out(&batch, rows, &mut bytes);
        Ok(Encoded { bytes, runs, configs, events })
    }

    fn append(&self, log: &mut OpenLog, block: Encoded) -> Result<u64, Error> {
        let taken = self.note_all(log, &block)?;
        for (group, run) in block.runs {
            let place = self.subfile(log, group)?;
            let Some(subfile) = log.subfiles.get_mut(place) else { return Err(no_number()) };
            for part in without(run, &taken) {
                subfile.file.write_binary(block.bytes.get(part).unwrap_or_default())?;
            }
        }
        log.events += block.events.len() as u64;
        Ok(block.events.len() as u64)
    }

    fn notes(&self, log: &OpenLog) -> Vec<(String, u64)> {
        // Where no line says a time, configuration is read at 0.
        let first = log.first.unwrap_or(0);
        let is_moved = log.configured.is_some_and(|times| times != (first, first));
        let moved = if is_moved { log.configs } else { 0 };
        let fronts = log.subfiles.iter().map(|subfile| subfile.front.renumbered());
        let renumbered = log.renumbered + fronts.sum::<u64>();
        let all = [
            (
                "event numbers are not kept: a number is the event's place in its subfile",
                renumbered,
            ),
            ("configuration that came after its data is written as data", log.late),
            (
                "configuration has no time of its own: it is read at the time of the first event",
                moved,
            ),
        ];
        all.into_iter().filter(|(_, n)| *n > 0).map(|(what, n)| (what.to_owned(), n)).collect()
    }

    fn finish(&self, mut log: OpenLog) -> Result<u64, Error> {
        let header = self.header(&log);
        log.master.write(header.as_bytes())?;
        log.lines.hand_over(&mut log.master)?;
        for subfile in log.subfiles {
            subfile.finish()?;
        }
        log.master.finish(log.events)?;
        Ok(0)
    }
}
