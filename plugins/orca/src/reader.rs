//! Goes along the lines of a master and fetches the objects they name. Decides nothing about files: that is
//! [`log`](crate::log)'s business.
//!
//! Lines are gathered until their objects fill a block. These are then read into it, neighbours together, and
//! given in the order of the lines.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsStr;
use std::fs;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use sluice_core::files::LogFile;
use sluice_core::{
    Batch, BatchBuilder, ChannelId, Damage, Entry, Error, Place, ReadContext, Reader, Seam, Split,
};

use crate::log::{Content, Log, Looked, open_subfile};
use crate::master::{DataLine, LONGEST_LINE, Lines, is_plain};
use crate::subfile::{Cursor, LONGEST_RECORD};

/// The most lines of a batch.
const MOST_LINES: usize = 8 << 10;
/// Objects of a subfile that lie this close are read together.
const NEAR: u64 = 512;
/// The most subfiles that are held open.
const MOST_OPEN: usize = 64;

/// Something that a line, or the beginning of a log, asks for.
#[derive(Clone, Copy, Debug)]
struct Request {
    timestamp: i64,
    sequence: i64,
    subfile: usize,
    record: u64,
    is_config: bool,
    /// Where the line is, and how long.
    line: (u64, u64),
}

/// What came of a line.
enum Found {
    Damage(Damage),
    Record { request: Request, place: Range<u64>, looked: Arc<Looked> },
    Picture { request: Request, path: PathBuf },
}

/// Where the lines of a split come from.
enum Progress {
    /// Nothing has been read of a master's beginning.
    Front,
    /// Its lines are.
    Data,
    /// All has been read.
    Done,
}

/// Reads one split of a log.
pub struct OrcaReader {
    log: Arc<Log>,
    context: ReadContext,
    progress: Progress,
    lines: Option<Lines>,
    end: u64,
    began: Option<u64>,
    config: VecDeque<Request>,
    /// What did not fit into the batch before.
    left_over: Option<Found>,
    files: Files,
    channels: BTreeMap<(usize, u8, bool), ChannelId>,
    /// By subfile: whether its configuration and its objects are wanted; nothing if everything is.
    wanted: Option<Vec<[bool; 2]>>,
    /// The subfiles that were asked for, so that the log, which all readers share, need not be.
    looked: BTreeMap<usize, Arc<Looked>>,
    cursors: BTreeMap<usize, Cursor>,
}

impl OrcaReader {
    /// Opens a log at a split of its master.
    pub fn open(
        log: Arc<Log>,
        split: &Split,
        entry: Entry,
        context: &ReadContext,
    ) -> Result<Self, Error> {
        let end = split.end.unwrap_or(u64::MAX);
        let data = log.header.data;
        let file = LogFile::open(&log.path)?;
        let lines = match entry {
            Entry::Search => Lines::search(file, split.start, end)?,
            Entry::At(at) if at > data && at >= end => None,
            Entry::At(at) if file.is_seekable() => Some(Lines::new(file, at.max(data))),
            Entry::At(_) => Some(behind_header(file, data)?),
        };
        let began = match entry {
            Entry::At(at) => Some(at),
            Entry::Search => lines.as_ref().map(Lines::position),
        };
        let is_front = split.start == 0;
        Ok(Self {
            progress: if is_front { Progress::Front } else { Progress::Data },
            lines,
            end,
            began,
            config: VecDeque::new(),
            left_over: None,
            files: Files::default(),
            channels: BTreeMap::new(),
            wanted: wanted(&log, context),
            looked: BTreeMap::new(),
            cursors: BTreeMap::new(),
            log,
            context: context.clone(),
        })
    }

    /// Says what is wrong with the header and with subfiles, and asks for their configuration.
    fn begin(&mut self) -> Result<(), Error> {
        for unusable in &self.log.header.damage {
            let reason = unusable.reason.clone();
            self.context.damage.report(self.damage((unusable.offset, unusable.len), reason));
        }
        let survey = self.log.survey()?;
        for number in 0..self.log.subfiles.len() {
            if self.log.leaves_out(number) || !self.wants_any(number) {
                continue;
            }
            let looked = self.log.opened(number)?;
            let (Ok(opened), Some(file)) = (&*looked, self.log.subfiles.get(number)) else {
                continue;
            };
            if let Some((len, reason)) = &opened.index.damage {
                let input: Arc<str> = file.path.to_string_lossy().into();
                let damage = Damage::new(&input, opened.index.end, *len, reason.clone());
                self.context.damage.report(damage);
            }
            for (note, count) in &opened.notes {
                self.context.losses.note(note.clone(), *count);
            }
            let wants = self.wanted.as_ref().and_then(|wanted| wanted.get(number));
            if wants.is_none_or(|[config, _]| *config) {
                let timestamp = survey.first.unwrap_or(0);
                self.config.extend((0..opened.config).map(|record| Request {
                    timestamp,
                    sequence: i64::try_from(record).unwrap_or(i64::MAX),
                    subfile: number,
                    record,
                    is_config: true,
                    line: (0, 0),
                }));
            }
        }
        Ok(())
    }

    /// What the lines from here on lead to: as much as goes into a batch. Nothing at the end of the split.
    fn gather(&mut self) -> Result<Option<Vec<Found>>, Error> {
        let most = self.context.blocks.usual() as u64;
        let (mut found, mut bytes, mut lines) = (Vec::new(), 0, 0);
        while lines < MOST_LINES {
            let Some(next) = self.next_found()? else { break };
            lines += 1;
            let Some(next) = next else { continue };
            let len = self.length(&next);
            if bytes + len > most && bytes > 0 {
                self.left_over = Some(next);
                break;
            }
            bytes += len;
            found.push(next);
        }
        Ok((lines > 0).then_some(found))
    }

    /// How many bytes of events it is likely to be.
    fn length(&self, found: &Found) -> u64 {
        match found {
            Found::Damage(_) => 0,
            Found::Record { place, .. } => place.end - place.start,
            Found::Picture { path, .. } => fs::metadata(path).map_or(0, |meta| meta.len()),
        }
    }

    /// What the next line leads to: outer nothing at the end of the split, inner for lines that say nothing.
    fn next_found(&mut self) -> Result<Option<Option<Found>>, Error> {
        if let Some(found) = self.left_over.take() {
            return Ok(Some(Some(found)));
        }
        if let Some(request) = self.config.pop_front() {
            return Ok(Some(self.find(request)?));
        }
        let Some(lines) = self.lines.as_mut().filter(|lines| lines.position() < self.end) else {
            return Ok(None);
        };
        let Some(line) = lines.next()? else {
            let (at, broken) = (lines.position(), lines.broken().map(str::to_owned));
            let is_first = !matches!(self.progress, Progress::Done);
            self.progress = Progress::Done;
            let broken = broken.filter(|_| is_first);
            return Ok(broken.map(|reason| Some(Found::Damage(self.damage((at, 0), reason)))));
        };
        let at = (line.offset, line.len);
        self.context.count_read(line.len);
        let data = match line.text.map(DataLine::parse) {
            None => return Ok(Some(Some(Found::Damage(self.damage(at, too_long()))))),
            Some(Err(reason)) => {
                return Ok(Some(Some(Found::Damage(self.damage(at, reason.to_owned())))));
            }
            Some(Ok(None)) => return Ok(Some(None)),
            Some(Ok(Some(data))) => data,
        };
        self.find_line(data, at).map(Some)
    }

    fn find_line(&mut self, data: DataLine, at: (u64, u64)) -> Result<Option<Found>, Error> {
        let DataLine { timestamp, subfile, index } = data;
        let number = usize::try_from(subfile).unwrap_or(usize::MAX);
        let is_wanted = self.context.query.wants_times(timestamp, timestamp)
            && self
                .wanted
                .as_ref()
                .and_then(|wanted| wanted.get(number))
                .is_none_or(|[_, data]| *data);
        if !is_wanted || self.log.leaves_out(number) {
            return Ok(None);
        }
        let base = self.log.header.dialect.base();
        let Some(record) = u64::try_from(index).ok().and_then(|index| index.checked_sub(base))
        else {
            let reason = format!("index {index} is below {base}, where this log begins to count");
            return Ok(Some(Found::Damage(self.damage(at, reason))));
        };
        self.find(Request {
            timestamp,
            sequence: index,
            subfile: number,
            record,
            is_config: false,
            line: at,
        })
    }

    /// Where the object that is asked for lies.
    fn find(&mut self, mut request: Request) -> Result<Option<Found>, Error> {
        let looked = self.looked(request.subfile)?;
        let opened = match &*looked {
            Ok(opened) => opened,
            Err(reason) => {
                return Ok(Some(Found::Damage(self.damage(request.line, reason.clone()))));
            }
        };
        let asked = request.record;
        if !request.is_config {
            request.record = asked.saturating_add(opened.before);
        }
        if request.record >= opened.index.records {
            let there = opened.index.records.saturating_sub(opened.before);
            let cut = if opened.index.damage.is_some() { ": the rest is damaged" } else { "" };
            let reason = format!(
                "index {} is beyond the end: the subfile has {there} objects{cut}",
                request.sequence
            );
            return Ok(Some(Found::Damage(self.damage(request.line, reason))));
        }
        if let Some(folder) = opened.pictures.as_ref().filter(|_| !request.is_config) {
            let path = folder.join(format!("image{:05}.jpg", asked + 1));
            return Ok(Some(Found::Picture { request, path }));
        }
        let cursor = self.cursors.entry(request.subfile).or_default();
        let path = self.log.subfiles.get(request.subfile).map_or(Path::new(""), |file| &file.path);
        let (files, number) = (&mut self.files, request.subfile);
        // A subfile that went away since gives nothing, and its objects are damage when they are read.
        let mut read = |at, buffer: &mut [u8]| files.read_at(number, path, at, buffer);
        let place = opened.index.locate(request.record, cursor, &mut read)?;
        let Some(place) = place else {
            return Ok(Some(Found::Damage(self.damage(request.line, changed()))));
        };
        if !request.is_config && self.has_picture_records(number) {
            return self.find_picture(request, place, &looked).map(Some);
        }
        Ok(Some(Found::Record { request, place, looked }))
    }

    fn has_picture_records(&self, number: usize) -> bool {
        self.log.subfiles.get(number).is_some_and(|file| file.content == Content::PictureRecords)
    }

    /// The picture that a record names.
    fn find_picture(
        &mut self,
        request: Request,
        place: Range<u64>,
        looked: &Arc<Looked>,
    ) -> Result<Found, Error> {
        let mut bytes = vec![0; (place.end - place.start).min(LONGEST_LINE as u64) as usize];
        let Some(file) = self.log.subfiles.get(request.subfile) else {
            return Err(Error::broken("a record of no subfile was found"));
        };
        let read = self.files.read_at(request.subfile, &file.path, place.start, &mut bytes)?;
        bytes.truncate(read);
        let payload = looked.as_ref().as_ref().ok().and_then(|opened| {
            let (_, payload) = opened.index.form.payload(request.record, &bytes)?;
            bytes.get(payload)
        });
        let Some(name) = payload.and_then(picture_name) else {
            let reason = "a record of a camera names no file beside the master";
            return Ok(Found::Damage(self.damage(request.line, reason.to_owned())));
        };
        let path = self.log.path.with_file_name(OsStr::from_bytes(name));
        Ok(Found::Picture { request, path })
    }

    /// The events of what was found, in order; what could not be read is damage.
    fn assemble(&mut self, found: Vec<Found>) -> Result<Batch, Error> {
        let (block, offsets) = self.fetch(&found)?;
        let mut batch = BatchBuilder::with_capacity(found.len());
        batch.segment(block.clone());
        for (found, offset) in found.into_iter().zip(offsets) {
            match found {
                Found::Damage(damage) => self.context.damage.report(damage),
                Found::Record { request, place, looked } => {
                    let from = offset as usize;
                    let bytes = block.get(from..from + (place.end - place.start) as usize);
                    let bytes = bytes.unwrap_or_default();
                    let form = looked.as_ref().as_ref().ok().map(|opened| opened.index.form);
                    let payload = form.and_then(|form| form.payload(request.record, bytes));
                    let Some((id, payload)) = payload else {
                        self.context.damage.report(self.damage(request.line, changed()));
                        continue;
                    };
                    let channel = self.channel(request.subfile, id, request.is_config)?;
                    let offset = offset + payload.start as u32;
                    let payload = bytes.get(payload).unwrap_or_default();
                    let place = Place { segment: 0, offset };
                    batch.push(request.timestamp, request.sequence, channel, payload, place);
                }
                Found::Picture { request, path } => match self.picture(&path)? {
                    Ok(picture) => {
                        let channel = self.channel(request.subfile, 0, false)?;
                        let segment = batch.segment(picture.clone());
                        let place = Place { segment, offset: 0 };
                        batch.push(request.timestamp, request.sequence, channel, &picture, place);
                    }
                    Err(reason) => self.context.damage.report(self.damage(request.line, reason)),
                },
            }
        }
        Ok(batch.finish())
    }

    /// Reads all records into one block; gives for each of `found` where in it they lie.
    fn fetch(&mut self, found: &[Found]) -> Result<(Bytes, Vec<u32>), Error> {
        let mut records: Vec<(usize, u64, u64, usize)> = Vec::with_capacity(found.len());
        for (row, found) in found.iter().enumerate() {
            if let Found::Record { request, place, .. } = found {
                records.push((request.subfile, place.start, place.end, row));
            }
        }
        records.sort_unstable();
        let spans = spans(&records);
        let total: u64 = spans.iter().map(|(_, span, _)| span.end - span.start).sum();
        let total = u32::try_from(total).map_err(|_| Error::broken("a batch of 4 GiB"))?;
        let mut offsets = vec![0; found.len()];
        if total == 0 {
            return Ok((Bytes::new(), offsets));
        }
        let mut block = self.context.blocks.block_of(total as usize);
        let mut at: usize = 0;
        for (subfile, span, rows) in spans {
            let len = (span.end - span.start) as usize;
            let room = block.get_mut(at..at + len).unwrap_or_default();
            let path = self.log.subfiles.get(subfile).map_or(Path::new(""), |file| &file.path);
            let read = self.files.read_at(subfile, path, span.start, room)?;
            // A block has been used before: what the file no longer has must not look like data.
            room.get_mut(read..).unwrap_or_default().fill(0xff);
            self.context.count_read(read as u64);
            for (_, start, _, row) in records.get(rows).unwrap_or_default() {
                if let Some(offset) = offsets.get_mut(*row) {
                    *offset = (at as u64 + (start - span.start)) as u32;
                }
            }
            at += len;
        }
        Ok((block.freeze(), offsets))
    }

    /// A picture's bytes. The inner `Err` says why there are none.
    fn picture(&self, path: &Path) -> Result<Result<Bytes, String>, Error> {
        let mut file = match open_subfile(path) {
            Ok(file) => file,
            Err(reason) => return Ok(Err(reason)),
        };
        let len = file.len().unwrap_or(0);
        if len > LONGEST_RECORD {
            return Ok(Err(format!(
                "a picture has {len} bytes: more than any is believed to have"
            )));
        }
        let mut block = self.context.blocks.block_of(len as usize);
        block.truncate(len as usize);
        let read = file.read_at(0, &mut block)?;
        block.truncate(read);
        self.context.count_read(read as u64);
        Ok(Ok(block.freeze()))
    }

    fn channel(&mut self, subfile: usize, id: u8, is_config: bool) -> Result<ChannelId, Error> {
        if let Some(known) = self.channels.get(&(subfile, id, is_config)) {
            return Ok(*known);
        }
        let channel = self.log.channel(subfile, id, is_config);
        let channel = channel.ok_or_else(|| Error::broken("an event of no subfile"))?;
        let channel = self.context.channels.intern(channel)?;
        self.channels.insert((subfile, id, is_config), channel);
        Ok(channel)
    }

    fn looked(&mut self, subfile: usize) -> Result<Arc<Looked>, Error> {
        if let Some(looked) = self.looked.get(&subfile) {
            return Ok(Arc::clone(looked));
        }
        let looked = self.log.opened(subfile)?;
        // Numbers that no header line has would fill the memory.
        if subfile < self.log.subfiles.len() {
            self.looked.insert(subfile, Arc::clone(&looked));
        }
        Ok(looked)
    }

    fn wants_any(&self, number: usize) -> bool {
        let wants = self.wanted.as_ref().and_then(|wanted| wanted.get(number));
        wants.is_none_or(|[config, data]| *config || *data)
    }

    fn damage(&self, (offset, len): (u64, u64), reason: String) -> Damage {
        Damage::new(&self.log.input, offset, len, reason)
    }
}

impl Reader for OrcaReader {
    fn next_batch(&mut self) -> Result<Option<Batch>, Error> {
        if matches!(self.progress, Progress::Front) {
            self.begin()?;
            self.progress = Progress::Data;
        }
        while !self.context.is_cancelled() {
            let Some(found) = self.gather()? else { return Ok(None) };
            let batch = self.assemble(found)?;
            if !batch.is_empty() {
                return Ok(Some(batch));
            }
        }
        Ok(None)
    }

    fn seam(&self) -> Seam {
        let ended = match (&self.lines, self.began) {
            (Some(lines), Some(_)) => Some(lines.position()),
            (None, began) => began,
            (Some(_), None) => None,
        };
        Seam { began: self.began, ended }
    }
}

/// The lines of a compressed master: what stands before them has to be read.
fn behind_header(file: LogFile, data: u64) -> Result<Lines, Error> {
    let mut lines = Lines::new(file, 0);
    while lines.position() < data && lines.next()?.is_some() {}
    Ok(lines)
}

/// Whether configuration and objects of each subfile are wanted; nothing if everything is.
fn wanted(log: &Log, context: &ReadContext) -> Option<Vec<[bool; 2]>> {
    let query = &context.query.channels;
    if query.is_all() {
        return None;
    }
    let wants = |number, is_config| {
        let channel = log.channel(number, 0, is_config);
        channel.is_none_or(|channel| query.wants(channel.name.text(), &channel.source))
    };
    Some(
        (0..log.subfiles.len()).map(|number| [wants(number, true), wants(number, false)]).collect(),
    )
}

/// What of a subfile is read in one go, and which of the records lie in it.
type Span = (usize, Range<u64>, Range<usize>);

/// Records, sorted by subfile and place, as runs of neighbours.
fn spans(records: &[(usize, u64, u64, usize)]) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    for (at, (subfile, start, end, _)) in records.iter().enumerate() {
        match spans.last_mut() {
            Some((same, span, rows)) if same == subfile && *start <= span.end + NEAR => {
                span.end = span.end.max(*end);
                rows.end = at + 1;
            }
            _ => spans.push((*subfile, *start..*end, at..at + 1)),
        }
    }
    spans
}

/// The name in a record of a camera: behind four whole numbers and a time, with its length before it.
fn picture_name(record: &[u8]) -> Option<&[u8]> {
    let text = record.get(4 * size_of::<i32>() + size_of::<f64>()..)?;
    let (len, text) = match text.split_first()? {
        (0xff, rest) => {
            let (len, rest) = rest.split_first_chunk()?;
            (usize::try_from(i32::from_le_bytes(*len)).ok()?, rest)
        }
        (len, rest) => (usize::from(*len), rest),
    };
    text.get(..len).filter(|name| is_plain(name))
}

fn too_long() -> String {
    format!("a line is longer than {LONGEST_LINE} bytes")
}

fn changed() -> String {
    "the subfile changed while it was read: this record is no longer where it was".to_owned()
}

/// Subfiles that are held open: not all at once, as a log may have thousands.
#[derive(Default)]
struct Files(BTreeMap<usize, LogFile>);

impl Files {
    /// Fills as much of the buffer as the subfile has; nothing if it cannot be opened any more.
    fn read_at(
        &mut self,
        number: usize,
        path: &Path,
        at: u64,
        buffer: &mut [u8],
    ) -> Result<usize, Error> {
        if let Some(file) = self.0.get_mut(&number) {
            return file.read_at(at, buffer);
        }
        let Ok(mut file) = open_subfile(path) else { return Ok(0) };
        let read = file.read_at(at, buffer)?;
        if self.0.len() >= MOST_OPEN {
            self.0.clear();
        }
        self.0.insert(number, file);
        Ok(read)
    }
}
