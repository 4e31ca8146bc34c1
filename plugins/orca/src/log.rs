//! An opened log: the header of its master, its subfiles, and what is known of each. Gives no events.
//!
//! Subfiles are looked at when they are first asked for, once for all who read the log. What is wrong with one
//! is no error: its events are damage, and those of others are read.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use sluice_core::files::LogFile;
use sluice_core::name::{escaped, printable};
use sluice_core::store::is_address;
use sluice_core::{Channel, Encoding, Error, Name};

use crate::config::{self, Facts};
use crate::master::{self, Dialect, FileLine, Header, Lines, ParsedLine};
use crate::sink::KEPT;
use crate::subfile::{ByteOrder, Cursor, Index, Known, Prefix};

/// The most places of records that are kept of a log's subfiles, together: 16 MiB.
const MOST_PLACES: usize = 2 << 20;
/// The most places of records that are kept of one subfile.
const MOST_PLACES_OF_ONE: usize = 1 << 20;
/// How much of a record is looked at for the name of its type.
const NAME_LEN: usize = 272;

/// What of reading a log is the user's choice.
#[derive(Clone, Debug, Default)]
pub struct Choices {
    /// How many leading records of a subfile are configuration, by the subfile's name.
    pub config_records: BTreeMap<String, u64>,
    /// What stands before each record, instead of what the files look like.
    pub prefix: Option<Prefix>,
    /// How lengths are written.
    pub order: ByteOrder,
    /// Whether subfiles that are not to be played are left out.
    pub skip_disabled: bool,
}

/// What a subfile holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Records behind their lengths.
    Records,
    /// An object a line.
    Lines,
    /// A line about each picture; the pictures lie in a folder that the second line names.
    PictureLines,
    /// A record about each picture, which names its file.
    PictureRecords,
    /// What is not read, and why.
    Unread(String),
}

impl Content {
    fn of(dialect: Dialect, file: &FileLine) -> Self {
        let unread = |why: &str| {
            Self::Unread(format!(
                "the encoding `{}` of `{}` {why}",
                shown(&file.encoding),
                shown(&file.interface)
            ))
        };
        match (file.encoding.as_slice(), dialect) {
            (b"ice" | b"lcm" | b"vel" | b"text" | b"unknown", _) => Self::Records,
            (b"asciigenerated", _) => Self::Lines,
            (b"ascii", Dialect::C) if has_a_line_each(&file.interface) => Self::Lines,
            (b"ascii", _) => unread("has several lines an object, and is not read"),
            (b"jpeg", Dialect::C) => Self::PictureLines,
            (b"jpeg", Dialect::B) => Self::PictureRecords,
            (b"jpeg", Dialect::A) => unread("is not known of logs this old"),
            _ => unread(
                "is not known: those of objects are `ice`, `ascii`, `asciigenerated`, `jpeg`",
            ),
        }
    }
}

/// Whether the later loggers wrote objects of this interface as one line of text each.
fn has_a_line_each(interface: &[u8]) -> bool {
    matches!(
        interface,
        b"LaserScanner2d" | b"RangeScanner2d" | b"Power" | b"Gps" | b"Imu" | b"Localise2d"
    )
}

/// What an event is of a subfile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Configuration, which no line of the master counts.
    Config,
    /// An object, or a picture.
    Object,
    /// What the subfile says of a picture, which lies in a file of its own.
    PictureInfo,
}

impl Part {
    /// What a channel of these is called behind the name of the objects' channel.
    fn suffix(self) -> &'static str {
        match self {
            Self::Config => ".config",
            Self::Object => "",
            Self::PictureInfo => ".info",
        }
    }
}

/// A subfile as its header line has it.
#[derive(Debug)]
pub struct Subfile {
    /// What the header says.
    pub line: FileLine,
    /// Where it is.
    pub path: PathBuf,
    /// What it holds.
    pub content: Content,
    /// The source of its channels.
    pub source: Arc<str>,
    opened: Mutex<Option<Arc<Looked>>>,
}

/// What was found when a subfile was looked at: why it cannot be read, if so.
pub type Looked = Result<Opened, String>;

/// A subfile that was looked at.
#[derive(Debug)]
pub struct Opened {
    /// Where its records are.
    pub index: Index,
    /// How many of them are configuration.
    pub config: u64,
    /// How many records come before the first object: configuration, and what a text says beside.
    pub before: u64,
    /// The folder its pictures lie in.
    pub pictures: Option<PathBuf>,
    /// What is to be said of it, with a count.
    pub notes: Vec<(String, u64)>,
}

/// What the lines of a master say together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// When the first line whose time 64 bits can hold says that something happened.
    pub first: Option<i64>,
    /// By number of subfile: how many lines there are, and the highest index.
    pub files: Vec<(u64, i64)>,
}

/// A log of which the header has been read.
#[derive(Debug)]
pub struct Log {
    /// The master.
    pub path: PathBuf,
    /// The master, as damage names it.
    pub input: Arc<str>,
    /// What stands at its front.
    pub header: Header,
    /// The subfiles, in the order of their numbers.
    pub subfiles: Vec<Subfile>,
    choices: Choices,
    survey: Mutex<Option<Arc<Survey>>>,
}

impl Log {
    /// Reads the header of the master at `path`.
    ///
    /// `Err` for one in an object store, too: its subfiles would be taken for missing.
    pub fn open(path: &Path, choices: &Choices) -> Result<Self, Error> {
        if is_address(path) {
            return Err(Error::refused(format!(
                "an Orca log is a master and its subfiles, which are read from a folder of this machine; copy \
                 them there first: {}",
                printable(&path.to_string_lossy())
            )));
        }
        let header = Header::read(&mut master::open(path)?)?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let subfile = |line: &FileLine| Subfile {
            path: folder.join(OsStr::from_bytes(&line.name)),
            content: Content::of(header.dialect, line),
            source: line
                .own
                .as_ref()
                .map_or_else(|| source_of(&line.name), |own| own.source.as_str().into()),
            line: line.clone(),
            opened: Mutex::default(),
        };
        let subfiles = header.files.iter().map(subfile).collect();
        let (path, input) = (path.to_owned(), path.to_string_lossy().into());
        let (choices, survey) = (choices.clone(), Mutex::default());
        Ok(Self { path, input, header, subfiles, choices, survey })
    }

    /// The subfiles that are there, and may be read.
    pub fn present(&self) -> impl Iterator<Item = (&Subfile, u64)> {
        self.subfiles.iter().filter_map(|file| {
            let meta = fs::metadata(&file.path).ok().filter(fs::Metadata::is_file)?;
            file.line.refused.is_none().then_some((file, meta.len()))
        })
    }

    /// Whether the lines of subfile `number` are left out because it is not to be played.
    pub fn leaves_out(&self, number: usize) -> bool {
        let is_off = |file: &Subfile| self.choices.skip_disabled && !file.line.enabled;
        self.subfiles.get(number).is_some_and(is_off)
    }

    /// The names that numbers of configuration records were given for and that the header lacks.
    pub fn unknown_names(&self) -> impl Iterator<Item = &str> {
        let is_named =
            |name: &str| self.subfiles.iter().any(|file| escaped(&file.line.name) == name);
        let names = self.choices.config_records.keys().map(String::as_str);
        names.filter(move |name| !is_named(name))
    }

    /// A channel of subfile `number`: of this part of it, of objects with this id.
    pub fn channel(&self, number: usize, id: u8, part: Part) -> Option<Channel> {
        let Subfile { line, source, content, .. } = self.subfiles.get(number)?;
        let own = line.own.as_ref();
        let usual = || [b"orca.", line.interface.as_slice()].concat();
        let mut name = own.map_or_else(usual, |own| own.channel.clone());
        name.extend(part.suffix().as_bytes());
        let encoding = self.encoding(line, content, part);
        let mut channel = Channel::new(Name::from_bytes(&name), Arc::clone(source), encoding);
        let said = own.and_then(|own| own.interface.as_deref());
        let mut interface = said.map_or_else(|| escaped(&line.interface), Cow::Borrowed);
        if part == Part::PictureInfo {
            interface.to_mut().push_str("Info");
        }
        channel.type_name = match own {
            Some(own) => own.type_name.as_deref().map(Arc::from),
            None if is_picture(content) && part == Part::Object => Some("jpeg".into()),
            None => Some(interface.as_ref().into()),
        };
        channel.clock = own.map(|own| own.clock).unwrap_or_default();
        let kept = own.into_iter().flat_map(|own| &own.metadata);
        // What the header says itself, a comment cannot say otherwise.
        let kept = kept.filter(|(key, _)| !KEPT.contains(&key.as_str()));
        channel.metadata.extend(kept.map(|(key, value)| (key.clone(), value.clone())));
        let mut say = |key: &str, value: &str| {
            channel.metadata.insert(key.to_owned(), value.to_owned());
        };
        if own.is_none() || said.is_some() || line.encoding == b"ice" {
            say("ice.interface", &interface);
        }
        say("orca.dialect", self.header.dialect.word());
        say("orca.encoding", &escaped(&line.encoding));
        // A log of what is read has the pictures under this name, and what is said of them under another.
        if part != Part::PictureInfo {
            say("orca.file", &escaped(&line.name));
        }
        if part == Part::Config {
            say("ice.config", "true");
        }
        if id != 0 {
            say("orca.id", &id.to_string());
        }
        if let Some(proxy) = &line.proxy {
            say("orca.proxy", proxy);
        }
        if !line.enabled {
            say("orca.enabled", "0");
        }
        Some(channel)
    }

    fn encoding(&self, line: &FileLine, content: &Content, part: Part) -> Encoding {
        match content {
            Content::Lines => Encoding::Text,
            Content::PictureLines if part != Part::Object => Encoding::Text,
            Content::PictureRecords if part != Part::Object => Encoding::Ice,
            Content::PictureLines | Content::PictureRecords => Encoding::Unknown,
            _ => Encoding::from_word(&escaped(&line.encoding)),
        }
    }

    /// What the lines of data say together. Reads the master once, however often it is asked.
    pub fn survey(&self) -> Result<Arc<Survey>, Error> {
        let mut known = self.survey.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(survey) = known.as_ref() {
            return Ok(Arc::clone(survey));
        }
        let survey = Arc::new(self.read_survey()?);
        *known = Some(Arc::clone(&survey));
        Ok(survey)
    }

    fn read_survey(&self) -> Result<Survey, Error> {
        let mut lines = self.lines()?;
        let mut survey = Survey { first: None, files: vec![(0, -1); self.subfiles.len()] };
        while let Some(line) = lines.next()? {
            let Ok(Some(ParsedLine { data, .. })) = line.data() else { continue };
            survey.first = survey.first.or(i64::try_from(data.time).ok());
            let number = usize::try_from(data.subfile).ok();
            if let Some((lines, highest)) = number.and_then(|n| survey.files.get_mut(n)) {
                *lines += 1;
                *highest = data.index.max(*highest);
            }
        }
        Ok(survey)
    }

    /// The lines of data, from the first on.
    fn lines(&self) -> Result<Lines, Error> {
        let log = LogFile::open(&self.path)?;
        if log.is_seekable() {
            return Ok(Lines::new(log, self.header.data));
        }
        let mut lines = Lines::new(log, 0);
        while lines.position() < self.header.data && lines.next()?.is_some() {}
        Ok(lines)
    }

    /// Looks at subfile `number`. Walks over it once, however often it is asked.
    pub fn opened(&self, number: usize) -> Result<Arc<Looked>, Error> {
        let Some(file) = self.subfiles.get(number) else {
            return Ok(Arc::new(Err(self.none_of(number))));
        };
        let mut opened = file.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(opened) = opened.as_ref() {
            return Ok(Arc::clone(opened));
        }
        let looked = Arc::new(self.look(number, file)?);
        *opened = Some(Arc::clone(&looked));
        Ok(looked)
    }

    /// Why there is no subfile `number`.
    fn none_of(&self, number: usize) -> String {
        let known = self.subfiles.len();
        if self.header.is_cut {
            return format!(
                "only the first {known} lines of the header are read, and none of them is of subfile number \
                 {number}"
            );
        }
        format!("the header has {known} subfiles, and none of number {number}")
    }

    fn look(&self, number: usize, file: &Subfile) -> Result<Looked, Error> {
        if let Some(reason) = &file.line.refused {
            return Ok(Err(reason.clone()));
        }
        if let Content::Unread(reason) = &file.content {
            return Ok(Err(reason.clone()));
        }
        let mut log = match open_subfile(&file.path) {
            Ok(log) => log,
            Err(reason) => return Ok(Err(reason)),
        };
        let len = log.len().unwrap_or(0);
        let index = self.index(file, len, &mut log)?;
        let (lines, indexed) = self.counted(number)?;
        let mut notes = Vec::new();
        let config = self.config(file, &index, indexed, &mut log, &mut notes)?;
        let has_folder = file.content == Content::PictureLines;
        let before = config + u64::from(has_folder);
        let objects = index.records.saturating_sub(before);
        if objects > lines {
            let name = shown(&file.line.name);
            let what = format!("objects of `{name}` that no line of the master names");
            notes.push((what, objects - lines));
        }
        let mut pictures = None;
        if has_folder {
            match picture_folder(&index, config, &mut log, &self.path)? {
                Ok(folder) => pictures = Some(folder),
                Err(reason) => return Ok(Err(reason)),
            }
        }
        Ok(Ok(Opened { index, config, before, pictures, notes }))
    }

    /// How many lines a subfile has in the master, and how many objects these count.
    fn counted(&self, number: usize) -> Result<(u64, u64), Error> {
        let (lines, highest) = self.survey()?.files.get(number).copied().unwrap_or((0, -1));
        let base = self.header.dialect.base();
        let indexed = highest.saturating_add(1).saturating_sub_unsigned(base);
        Ok((lines, u64::try_from(indexed).unwrap_or(0)))
    }

    fn index(&self, file: &Subfile, len: u64, log: &mut LogFile) -> Result<Index, Error> {
        let most = (MOST_PLACES / self.subfiles.len().max(1)).min(MOST_PLACES_OF_ONE);
        let mut read = |at, buffer: &mut [u8]| log.read_at(at, buffer);
        if matches!(file.content, Content::Lines | Content::PictureLines) {
            return Index::of_lines(len, &mut read, most);
        }
        let own = file.line.own.as_ref();
        let known = Known {
            prefix: self.choices.prefix.or(own.map(|own| own.prefix)),
            order: self.choices.order,
            may_be_empty: own.is_some(),
            may_begin_bare: self.header.dialect == Dialect::B && file.line.interface == b"Gps",
        };
        Index::of_records(known, len, &mut read, most)
    }

    /// How many records are configuration: what the user says, what our writer said, or what fits best.
    fn config(
        &self,
        file: &Subfile,
        index: &Index,
        indexed: u64,
        log: &mut LogFile,
        notes: &mut Vec<(String, u64)>,
    ) -> Result<u64, Error> {
        let name = escaped(&file.line.name);
        let said = self.choices.config_records.get(name.as_ref()).copied();
        let said = said.or(file.line.own.as_ref().map(|own| own.config_records));
        let said = said.or((file.content == Content::PictureLines).then_some(1));
        if let Some(said) = said {
            return Ok(said.min(index.records));
        }
        let facts = Facts {
            dialect: self.header.dialect,
            interface: &file.line.interface,
            records: index.records,
            indexed,
            by_name: config_by_name(index, log)?,
            lengths: &lengths(index, log)?,
        };
        let (config, is_sure) = config::decide(facts);
        if !is_sure && (index.records > 0 || indexed > 0) {
            let name = printable(&name);
            notes.push((
                format!(
                    "`{name}` has {} records, and the master counts {indexed} objects: {config} at its \
                     front are taken for configuration; `config_records` can say otherwise",
                    index.records
                ),
                0,
            ));
        }
        Ok(config.min(index.records))
    }
}

/// Whether it is of pictures that lie in files of their own.
pub fn is_picture(content: &Content) -> bool {
    matches!(content, Content::PictureLines | Content::PictureRecords)
}

/// The source of a subfile's channels: its name, without the time before it and what is behind the dot.
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

/// A name that a file gave, as it can be printed.
pub(crate) fn shown(name: &[u8]) -> String {
    printable(&escaped(name)).into_owned()
}

/// Opens a file beside a master. `Err` says why it is not read.
pub(crate) fn open_subfile(path: &Path) -> Result<LogFile, String> {
    let at = shown(path.as_os_str().as_bytes());
    match fs::metadata(path) {
        Ok(meta) if meta.is_file() => LogFile::open_plain(path).map_err(|error| {
            let error = error.to_string();
            format!("the subfile is not read: {}", printable(&error))
        }),
        Ok(_) => Err(format!("a subfile has to be a plain file, and this is none: {at}")),
        Err(_) if with_zst(path).is_file() => Err(format!(
            "subfiles are read as they are, and this is compressed; decompress it beside the master: {}",
            shown(with_zst(path).as_os_str().as_bytes())
        )),
        Err(_) => Err(format!("the subfile is not there: {at}")),
    }
}

fn with_zst(path: &Path) -> PathBuf {
    let mut name = path.to_owned().into_os_string();
    name.push(".zst");
    name.into()
}

/// The bytes of a record, of which at most `most`.
fn front(index: &Index, record: u64, most: usize, log: &mut LogFile) -> Result<Vec<u8>, Error> {
    let mut read = |at, buffer: &mut [u8]| log.read_at(at, buffer);
    let Some(place) = index.locate(record, &mut Cursor::default(), &mut read)? else {
        return Ok(Vec::new());
    };
    let len = usize::try_from(place.end - place.start).unwrap_or(most).min(most);
    let mut bytes = vec![0; len];
    let found = log.read_at(place.start, &mut bytes)?;
    bytes.truncate(found);
    Ok(bytes)
}

/// How long the first records are; of lines none, as their lengths say nothing.
fn lengths(index: &Index, log: &mut LogFile) -> Result<Vec<u64>, Error> {
    let crate::subfile::Form::Framed { prefix, .. } = index.form else { return Ok(Vec::new()) };
    let (mut cursor, mut lengths) = (Cursor::default(), Vec::new());
    for record in 0..config::MEASURED.min(index.records) {
        let mut read = |at, buffer: &mut [u8]| log.read_at(at, buffer);
        let place = index.locate(record, &mut cursor, &mut read)?;
        let len = |place: Range<u64>| place.end - place.start - prefix.len(record) as u64;
        lengths.extend(place.map(len));
    }
    Ok(lengths)
}

/// How many of the first records say that they are configuration; nothing if the first says no type.
fn config_by_name(index: &Index, log: &mut LogFile) -> Result<Option<u64>, Error> {
    let crate::subfile::Form::Framed { prefix, .. } = index.form else { return Ok(None) };
    for record in 0..=config::MOST.min(index.records) {
        let bytes = front(index, record, NAME_LEN, log)?;
        let object = bytes.get(prefix.len(record)..).unwrap_or_default();
        match config::is_config_by_name(object) {
            Some(true) => {}
            None if record == 0 => return Ok(None),
            _ => return Ok(Some(record)),
        }
    }
    Ok(None)
}

/// The folder of a camera's pictures, which the line behind its description names.
fn picture_folder(
    index: &Index,
    config: u64,
    log: &mut LogFile,
    master: &Path,
) -> Result<Result<PathBuf, String>, Error> {
    let bytes = front(index, config, master::LONGEST_LINE, log)?;
    let name = bytes.trim_ascii();
    if !master::is_plain(name) {
        return Ok(Err(format!(
            "the folder of pictures has to lie beside the master; `{}` is no plain name",
            shown(name)
        )));
    }
    Ok(Ok(master.with_file_name(OsStr::from_bytes(name))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_in_an_object_store_is_refused_before_its_subfiles_are_missed() {
        let master = Path::new("s3://fleet/060804_153321_master.log");
        let refused = Log::open(master, &Choices::default()).unwrap_err().to_string();
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
