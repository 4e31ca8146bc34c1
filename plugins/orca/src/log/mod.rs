//! An opened log: the header of its master, its subfiles, and their indexes. Reads no events.
//!
//! A subfile is indexed when it is first needed, once for all readers of the log. A bad subfile is
//! not an error: its events are damage, and the others are read.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use sluice_io::escape::{escaped, escaped_path, printable};
use sluice_io::files::{InputFiles, LogFile};
use sluice_io::store::is_address;
use sluice_model::{Channel, Encoding, Error, Name};

use crate::config::{self, ConfigEvidence};
use crate::display::display_name;
use crate::master::{self, DataLine, Dialect, FileLine, MasterHeader, MasterLines, ParsedLine};
use crate::sink::RESERVED_KEYS;
use crate::subfile::{ByteOrder, FramingHints, RecordIndex, RecordPrefix};

mod beside;
mod content;
mod probe;

pub(crate) use beside::{master_of, name_key, subfiles_in};
pub(crate) use content::{RecordKind, SubfileContent, is_picture};
use probe::{
    class_names, picture_folder, record_lengths, starts_with_localise2d, starts_with_picture_info,
};

/// The maximum number of record offsets kept for all subfiles of a log: 16 MiB.
const MAX_OFFSETS: usize = 2 << 20;
/// The maximum number of record offsets kept for one subfile.
const MAX_OFFSETS_PER_SUBFILE: usize = 1 << 20;

/// The user's options for reading a log.
#[derive(Clone, Debug, Default)]
pub(crate) struct LogOptions {
    /// The number of configuration records, by name of the subfile.
    pub(crate) config_records: BTreeMap<String, u64>,
    /// The prefix of each record, instead of detecting it.
    pub(crate) prefix: Option<RecordPrefix>,
    /// The byte order of lengths.
    pub(crate) order: ByteOrder,
    /// Whether to skip subfiles that are marked as disabled.
    pub(crate) skip_disabled: bool,
}

/// A subfile as declared by its header line.
#[derive(Debug)]
pub(crate) struct Subfile {
    /// The header line.
    pub(crate) line: FileLine,
    /// The path.
    pub(crate) path: PathBuf,
    /// The content.
    pub(crate) content: SubfileContent,
    /// The source of its channels.
    pub(crate) source: Arc<str>,
    indexed: Mutex<Option<Arc<IndexOutcome>>>,
}

/// The index of a subfile, or the reason it cannot be read.
pub(crate) type IndexOutcome = Result<IndexedSubfile, String>;

/// A subfile whose records have been indexed.
#[derive(Debug)]
pub(crate) struct IndexedSubfile {
    /// The positions of its records.
    pub(crate) index: RecordIndex,
    /// The number of configuration records.
    pub(crate) config_records: u64,
    /// The number of records before the first object: configuration, and the picture folder of a
    /// text.
    pub(crate) records_before_objects: u64,
    /// The folder of its pictures.
    pub(crate) picture_folder: Option<PathBuf>,
    /// Notes for the report, with counts.
    pub(crate) notes: Vec<(String, u64)>,
}

/// A summary of a master's data lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MasterSummary {
    /// The time of the first line whose time fits into 64 bits.
    pub(crate) first_time: Option<i64>,
    /// The number of lines and the highest index, by subfile.
    pub(crate) lines_by_subfile: Vec<(u64, i64)>,
}

impl MasterSummary {
    fn add(&mut self, data: &DataLine) {
        self.first_time = self.first_time.or(i64::try_from(data.time).ok());
        let number = usize::try_from(data.subfile).ok();
        if let Some((lines, highest)) = number.and_then(|n| self.lines_by_subfile.get_mut(n)) {
            *lines += 1;
            *highest = data.index.max(*highest);
        }
    }
}

/// A log whose header has been read.
#[derive(Debug)]
pub(crate) struct OrcaLog {
    /// The master.
    pub(crate) path: PathBuf,
    /// The master's name in damage reports.
    pub(crate) input: Arc<str>,
    /// The header of the master.
    pub(crate) header: MasterHeader,
    /// The subfiles, in the order of their numbers.
    pub(crate) subfiles: Vec<Subfile>,
    options: LogOptions,
    summary: Mutex<Option<Arc<MasterSummary>>>,
}

impl OrcaLog {
    /// Reads the header of the master at `path`.
    ///
    /// `Err` for a master in an object store too, whose subfiles would all seem to be missing.
    pub(crate) fn open(path: &Path, options: &LogOptions) -> Result<Self, Error> {
        if is_address(path) {
            return Err(Error::refused(format!(
                "Orca logs are read from a local folder, which holds the master and its subfiles; \
                 copy them there first: {}",
                printable(&path.to_string_lossy())
            )));
        }
        let header = MasterHeader::read(&mut master::open(path)?)?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let subfile = |line: &FileLine| Subfile {
            path: folder.join(OsStr::from_bytes(&line.name)),
            content: SubfileContent::from_header_line(header.dialect, line),
            source: line
                .comment
                .as_ref()
                .map_or_else(|| source_of(&line.name), |comment| comment.source.as_str().into()),
            line: line.clone(),
            indexed: Mutex::default(),
        };
        let subfiles = header.files.iter().map(subfile).collect();
        let (path, input) = (path.to_owned(), escaped_path(path).into());
        let (options, summary) = (options.clone(), Mutex::default());
        Ok(Self { path, input, header, subfiles, options, summary })
    }

    /// The subfiles that exist and may be read, with their lengths.
    pub(crate) fn readable_subfiles(&self) -> impl Iterator<Item = (&Subfile, u64)> {
        self.subfiles.iter().filter_map(|file| {
            let meta = fs::metadata(&file.path).ok().filter(fs::Metadata::is_file)?;
            file.line.refused.is_none().then_some((file, meta.len()))
        })
    }

    /// Whether subfile `number` is skipped because it is disabled.
    pub(crate) fn skips(&self, number: usize) -> bool {
        let is_off = |file: &Subfile| self.options.skip_disabled && !file.line.enabled;
        self.subfiles.get(number).is_some_and(is_off)
    }

    /// The names in `config_records` that the header does not have.
    pub(crate) fn unknown_names(&self) -> impl Iterator<Item = &str> {
        let is_named =
            |name: &str| self.subfiles.iter().any(|file| escaped(&file.line.name) == name);
        let names = self.options.config_records.keys().map(String::as_str);
        names.filter(move |name| !is_named(name))
    }

    /// The channel for records of this kind and id in subfile `number`.
    pub(crate) fn channel(&self, number: usize, id: u8, kind: RecordKind) -> Option<Channel> {
        let Subfile { line, source, content, .. } = self.subfiles.get(number)?;
        let comment = line.comment.as_ref();
        let usual = || [b"orca.", line.interface.as_slice()].concat();
        let mut name = comment.map_or_else(usual, |comment| comment.channel.clone());
        name.extend(kind.suffix().as_bytes());
        let encoding = self.encoding(line, content, kind);
        let mut channel = Channel::new(Name::from_bytes(&name), Arc::clone(source), encoding);
        let explicit = comment.and_then(|comment| comment.interface.as_deref());
        let mut interface = explicit.map_or_else(|| escaped(&line.interface), Cow::Borrowed);
        if kind == RecordKind::PictureInfo {
            interface.to_mut().push_str("Info");
        }
        channel.type_name = match comment {
            Some(comment) => comment.type_name.as_deref().map(Arc::from),
            None if is_picture(content) && kind == RecordKind::Object => Some("jpeg".into()),
            None => Some(interface.as_ref().into()),
        };
        channel.clock = comment.map(|comment| comment.clock).unwrap_or_default();
        let others = comment.into_iter().flat_map(|comment| &comment.metadata);
        // A comment cannot override the header.
        let others = others.filter(|(key, _)| !RESERVED_KEYS.contains(&key.as_str()));
        channel.metadata.extend(others.map(|(key, value)| (key.clone(), value.clone())));
        let mut insert = |key: &str, value: &str| {
            channel.metadata.insert(key.to_owned(), value.to_owned());
        };
        if comment.is_none() || explicit.is_some() || line.encoding == b"ice" {
            insert("ice.interface", &interface);
        }
        insert("orca.dialect", self.header.dialect.letter());
        insert("orca.encoding", &escaped(&line.encoding));
        // If the events are written to a log again, its pictures keep this file name, and their
        // info records get another.
        if kind != RecordKind::PictureInfo {
            insert("orca.file", &escaped(&line.name));
        }
        if kind == RecordKind::Config {
            insert("ice.config", "true");
        }
        if id != 0 {
            insert("orca.id", &id.to_string());
        }
        if let Some(proxy) = &line.proxy {
            insert("orca.proxy", proxy);
        }
        if !line.enabled {
            insert("orca.enabled", "0");
        }
        Some(channel)
    }

    /// How the objects of its subfiles are encoded.
    pub(crate) fn encodings(&self) -> BTreeSet<Encoding> {
        let of_objects =
            |file: &Subfile| self.encoding(&file.line, &file.content, RecordKind::Object);
        self.subfiles.iter().map(of_objects).collect()
    }

    fn encoding(&self, line: &FileLine, content: &SubfileContent, kind: RecordKind) -> Encoding {
        match content {
            SubfileContent::Lines => Encoding::Text,
            SubfileContent::PictureLines if kind != RecordKind::Object => Encoding::Text,
            SubfileContent::PictureRecords if kind != RecordKind::Object => Encoding::Ice,
            SubfileContent::PictureLines | SubfileContent::PictureRecords => Encoding::Unknown,
            _ => Encoding::from_word(&escaped(&line.encoding)),
        }
    }

    /// A summary of the data lines, as the inputs of the run were noted. Reads the master once and
    /// caches the result.
    pub(crate) fn summary(&self, inputs: &InputFiles) -> Result<Arc<MasterSummary>, Error> {
        let mut cached = self.summary.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(summary) = cached.as_ref() {
            return Ok(Arc::clone(summary));
        }
        let summary = Arc::new(self.read_summary(inputs)?);
        *cached = Some(Arc::clone(&summary));
        Ok(summary)
    }

    fn read_summary(&self, inputs: &InputFiles) -> Result<MasterSummary, Error> {
        let log = inputs.open(&self.path)?;
        let mut lines = MasterLines::behind_header(log, self.header.data_start)?;
        let mut summary = MasterSummary {
            first_time: None,
            lines_by_subfile: vec![(0, -1); self.subfiles.len()],
        };
        loop {
            while let Some((data, _)) = lines.next_plain() {
                summary.add(&data);
            }
            let Some(line) = lines.next()? else {
                if self.header.is_cut || lines.pass_gap()?.is_none() {
                    return Ok(summary);
                }
                continue;
            };
            if let Ok(Some(ParsedLine { data, .. })) = line.data(self.subfiles.len()) {
                summary.add(&data);
            }
        }
    }

    /// The index of subfile `number`, as the inputs of the run were noted. Scans the subfile once
    /// and caches the result.
    pub(crate) fn indexed_subfile(
        &self,
        number: usize,
        inputs: &InputFiles,
    ) -> Result<Arc<IndexOutcome>, Error> {
        let Some(file) = self.subfiles.get(number) else {
            return Ok(Arc::new(Err(self.no_subfile_reason(number))));
        };
        let mut indexed = file.indexed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(outcome) = indexed.as_ref() {
            return Ok(Arc::clone(outcome));
        }
        let outcome = Arc::new(self.index_subfile(number, file, inputs)?);
        *indexed = Some(Arc::clone(&outcome));
        Ok(outcome)
    }

    /// The reason that there is no subfile `number`.
    fn no_subfile_reason(&self, number: usize) -> String {
        let known = self.subfiles.len();
        if self.header.is_truncated {
            return format!(
                "the header line of subfile {number} is not read: only the first {known} lines \
                 of the header are"
            );
        }
        format!("there is no subfile {number}: the header has {known}")
    }

    fn index_subfile(
        &self,
        number: usize,
        file: &Subfile,
        inputs: &InputFiles,
    ) -> Result<IndexOutcome, Error> {
        if let Some(reason) = &file.line.refused {
            return Ok(Err(reason.clone()));
        }
        if let SubfileContent::Unsupported(reason) = &file.content {
            return Ok(Err(reason.clone()));
        }
        let mut log = match open_subfile(inputs, &file.path) {
            Ok(log) => log,
            Err(reason) => return Ok(Err(reason)),
        };
        let len = log.len().unwrap_or(0);
        let mut index = self.record_index(file, len, &mut log)?;
        let (lines, indexed) = self.line_counts(number, inputs)?;
        let name = display_name(&file.line.name);
        let mut notes = Vec::new();
        if index.has_ambiguous_length {
            let note = format!(
                "the length of the only whole record of `{name}` may have four bytes or eight; set \
                 `subfile_prefix` if the wrong one is assumed"
            );
            notes.push((note, 0));
        }
        let config = self.decide_config_records(file, &index, indexed, &mut log, &mut notes)?;
        let has_folder = file.content == SubfileContent::PictureLines;
        let before = config + u64::from(has_folder);
        let objects = index.records.saturating_sub(before);
        if objects > lines {
            let what = format!("objects of `{name}` have no line in the master");
            notes.push((what, objects - lines));
        }
        if file.line.comment.is_some() && objects > indexed && index.damage.is_none() {
            let reason = format!(
                "the subfile has {objects} records and the master counts {indexed}: lines of the \
                 master are missing, or the length of a record is wrong"
            );
            index.damage = Some((0, reason));
        }
        let mut pictures = None;
        if has_folder {
            match picture_folder(&index, config, &mut log, &self.path)? {
                Ok(folder) => pictures = Some(folder),
                Err(reason) => return Ok(Err(reason)),
            }
        }
        Ok(Ok(IndexedSubfile {
            index,
            config_records: config,
            records_before_objects: before,
            picture_folder: pictures,
            notes,
        }))
    }

    /// The number of a subfile's lines in the master, and of the objects they count.
    fn line_counts(&self, number: usize, inputs: &InputFiles) -> Result<(u64, u64), Error> {
        let (lines, highest) =
            self.summary(inputs)?.lines_by_subfile.get(number).copied().unwrap_or((0, -1));
        let base = self.header.dialect.first_index();
        let indexed = highest.saturating_add(1).saturating_sub_unsigned(base);
        Ok((lines, u64::try_from(indexed).unwrap_or(0)))
    }

    fn record_index(
        &self,
        file: &Subfile,
        len: u64,
        log: &mut LogFile,
    ) -> Result<RecordIndex, Error> {
        let most = (MAX_OFFSETS / self.subfiles.len().max(1)).min(MAX_OFFSETS_PER_SUBFILE);
        let mut read = |at, buffer: &mut [u8]| log.read_at(at, buffer);
        if matches!(file.content, SubfileContent::Lines | SubfileContent::PictureLines) {
            return RecordIndex::build_lines(len, &mut read, most);
        }
        let comment = file.line.comment.as_ref();
        let hints = FramingHints {
            prefix: self.options.prefix.or(comment.map(|comment| comment.prefix)),
            byte_order: self.options.order,
            // Our own sink writes no empty objects either.
            may_be_empty: comment.is_some() && file.line.encoding != b"ice",
            first_may_lack_id: self.header.dialect == Dialect::B && file.line.interface == b"Gps",
        };
        RecordIndex::build_framed(hints, len, &mut read, most)
    }

    /// The number of configuration records: as the user or our own sink says, or else the best
    /// guess.
    fn decide_config_records(
        &self,
        file: &Subfile,
        index: &RecordIndex,
        indexed: u64,
        log: &mut LogFile,
        notes: &mut Vec<(String, u64)>,
    ) -> Result<u64, Error> {
        let name = escaped(&file.line.name);
        let explicit = self.options.config_records.get(name.as_ref()).copied();
        let explicit =
            explicit.or(file.line.comment.as_ref().map(|comment| comment.config_records));
        let explicit = explicit.or((file.content == SubfileContent::PictureLines).then_some(1));
        if let Some(explicit) = explicit {
            return Ok(explicit.min(index.records));
        }
        let (dialect, interface) = (self.header.dialect, &file.line.interface[..]);
        let is_localise2d = (dialect, interface) == (Dialect::C, b"Localise2d");
        let is_camera = file.content == SubfileContent::PictureRecords;
        let facts = ConfigEvidence {
            dialect,
            interface,
            records: index.records,
            indexed,
            by_name: config::count_by_class(&class_names(index, log)?),
            starts_with_object: (is_localise2d && starts_with_localise2d(index, log)?)
                || (is_camera && starts_with_picture_info(index, log)?),
            lengths: &record_lengths(index, log)?,
        };
        let (config, is_sure) = config::decide_config_count(facts);
        if !is_sure && (index.records > 0 || indexed > 0) {
            let name = printable(&name);
            notes.push((
                format!(
                    "`{name}` has {} records, but the master counts {indexed} objects: the first \
                     {config} are considered configuration; set `config_records` to change this",
                    index.records
                ),
                0,
            ));
        }
        Ok(config.min(index.records))
    }
}

/// The source of a subfile's channels: its name without the leading time and the extension.
fn source_of(name: &[u8]) -> Arc<str> {
    let stem = match memchr::memrchr(b'.', name) {
        Some(dot) if dot > 0 => name.get(..dot).unwrap_or(name),
        _ => name,
    };
    let is_time = |prefix: &[u8]| {
        let digits = prefix.iter().enumerate().all(|(at, b)| match at {
            6 | 13 => *b == b'_',
            _ => b.is_ascii_digit(),
        });
        digits && prefix.len() == 14
    };
    let rest = match stem.split_at_checked(14) {
        Some((prefix, rest)) if is_time(prefix) && !rest.is_empty() => rest,
        _ => stem,
    };
    escaped(rest).as_ref().into()
}

/// Opens a file beside a master, as the inputs of the run were noted. `Err` is the reason it is not
/// read.
pub(crate) fn open_subfile(inputs: &InputFiles, path: &Path) -> Result<LogFile, String> {
    let at = display_name(path.as_os_str().as_bytes());
    match fs::metadata(path) {
        Ok(meta) if meta.is_file() => inputs.open_plain(path).map_err(|error| {
            let error = error.to_string();
            format!("the subfile cannot be read: {}", printable(&error))
        }),
        Ok(_) => Err(format!("a subfile must be a regular file: {at}")),
        Err(_) => Err(beside::missing_reason(path)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_in_an_object_store_is_refused_before_its_subfiles_are_missed() {
        let master = Path::new("s3://fleet/060804_153321_master.log");
        let refused = OrcaLog::open(master, &LogOptions::default()).unwrap_err().to_string();
        assert!(refused.contains("copy them there first: s3://fleet/"), "{refused}");
    }

    #[test]
    fn sources_are_named_without_the_time_of_the_recording() {
        let source = |name: &str| source_of(name.as_bytes()).to_string();
        assert_eq!(source("060804_153321_laser0.log"), "laser0");
        assert_eq!(source("laser0.log"), "laser0");
        assert_eq!(source("060804_153321_"), "060804_153321_");
        assert_eq!(source(".log"), ".log");
    }
}
