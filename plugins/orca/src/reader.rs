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
    Batch, BatchBuilder, ChannelId, Damage, Error, PayloadOffset, ReadContext, Reader, Seam, Split,
    SplitStart,
};

use crate::log::{Log, Looked, Opened, Part, is_picture, open_subfile};
use crate::master::{DataLine, LONGEST_LINE, Lines, ParsedLine, is_plain};
use crate::subfile::{ALIGNED, Cursor, Form, LONGEST_RECORD};

/// The most lines of a batch.
const MOST_LINES: usize = 8 << 10;
/// Objects of a subfile that lie this close are read together.
const NEAR: u64 = 512;
/// The most subfiles that are held open.
const MOST_OPEN: usize = 64;

/// Something that a line, or the beginning of a log, asks for.
#[derive(Clone, Copy, Debug)]
struct Request {
    time: i128,
    sequence: i64,
    subfile: usize,
    record: u64,
    part: Part,
    /// Where the line is, and how long.
    line: (u64, u64),
}

/// What came of a line.
enum Found {
    Damage(Damage),
    Record { request: Request, place: Range<u64>, form: Form },
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
    /// When configuration is said to have been given.
    first: i64,
    /// The subfiles whose configuration is still to be read, and which of it.
    config: VecDeque<(usize, Range<u64>)>,
    /// What did not fit into the batch before, and what else the last line said.
    left_over: VecDeque<Found>,
    files: Files,
    /// By subfile: whether its configuration and its objects are wanted; nothing if everything is.
    wanted: Option<Vec<[bool; 2]>>,
    /// By subfile, as far as any was asked for.
    known: Vec<Known>,
    /// Whether it was said that lines say more than is read.
    told_more: bool,
}

/// What a reader remembers of a subfile, so that it need not ask the log, which all readers share.
#[derive(Default)]
struct Known {
    looked: Option<Arc<Looked>>,
    cursor: Cursor,
    /// The channels met: of this id, of this part.
    channels: Vec<(u8, Part, ChannelId)>,
}

impl OrcaReader {
    /// Opens a log at a split of its master.
    pub fn open(
        log: Arc<Log>,
        split: &Split,
        entry: SplitStart,
        context: &ReadContext,
    ) -> Result<Self, Error> {
        let end = split.end.unwrap_or(u64::MAX);
        let data = log.header.data;
        let file = LogFile::open(&log.path)?;
        let within = |lines: Lines| lines.of_about(end.saturating_sub(split.start.max(data)));
        // What lies before the first line of data is not searched for lines.
        let entry = match entry {
            SplitStart::Search if split.start <= data => SplitStart::At(split.start),
            other => other,
        };
        let lines = match entry {
            SplitStart::Search => Lines::search(file, split.start, end)?,
            SplitStart::At(at) if at > data && at >= end => None,
            SplitStart::At(at) if file.is_seekable() => {
                Some(within(Lines::new(file, at.max(data))))
            }
            SplitStart::At(_) => Some(behind_header(file, data)?),
        };
        let began = match entry {
            SplitStart::At(at) => Some(at),
            SplitStart::Search => lines.as_ref().map(Lines::position),
        };
        let is_front = split.start == 0;
        Ok(Self {
            progress: if is_front { Progress::Front } else { Progress::Data },
            lines,
            end,
            began,
            first: 0,
            config: VecDeque::new(),
            left_over: VecDeque::new(),
            files: Files::default(),
            wanted: wanted(&log, context),
            known: Vec::new(),
            told_more: false,
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
        for name in self.log.unknown_names() {
            let note =
                format!("`config_records` has `{name}`, and the master names no such subfile");
            self.context.losses.note(note, 0);
        }
        self.first = self.log.survey()?.first.unwrap_or(0);
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
                self.config.push_back((number, 0..opened.config));
            }
        }
        Ok(())
    }

    /// The next record of configuration.
    fn next_config(&mut self) -> Option<Request> {
        loop {
            let (subfile, records) = self.config.front_mut()?;
            let (subfile, record) = (*subfile, records.next());
            let Some(record) = record else {
                self.config.pop_front();
                continue;
            };
            return Some(Request {
                time: self.first.into(),
                sequence: i64::try_from(record).unwrap_or(i64::MAX),
                subfile,
                record,
                part: Part::Config,
                line: (0, 0),
            });
        }
    }

    /// What the lines from here on lead to: as much as goes into a batch. Nothing at the end of the split.
    fn gather(&mut self) -> Result<Option<Vec<Found>>, Error> {
        // What is read of each subfile begins at an aligned place of the block.
        let usual = self.context.blocks.block_len();
        let most = (usual - usual / 16) as u64;
        let (mut found, mut bytes, mut lines) = (Vec::new(), 0, 0);
        while lines < MOST_LINES {
            let Some(next) = self.next_found()? else { break };
            lines += 1;
            let Some(next) = next else { continue };
            let len = self.length(&next);
            if bytes + len > most && bytes > 0 {
                self.left_over.push_front(next);
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
        if let Some(found) = self.left_over.pop_front() {
            return Ok(Some(Some(found)));
        }
        if let Some(request) = self.next_config() {
            return Ok(Some(Some(self.find(request)?)));
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
        let ParsedLine { data, swallowed, says_more } = match line.data() {
            Err(reason) => return Ok(Some(Some(Found::Damage(self.damage(at, reason))))),
            Ok(None) => return Ok(Some(None)),
            Ok(Some(told)) => told,
        };
        if says_more && !std::mem::replace(&mut self.told_more, true) {
            let what =
                "lines of the master say more than four numbers; what follows these is not read";
            self.context.losses.note(what, 0);
        }
        if let Some(place) = swallowed {
            let reason = "the line break before a line of data is gone".to_owned();
            self.left_over.push_back(Found::Damage(self.damage(place, reason)));
        }
        let own = (at.0, swallowed.map_or(at.1, |(from, _)| from - at.0));
        if self.wants_line(&data) {
            self.find_line(data, own).map(Some).map(Some)
        } else {
            Ok(Some(None))
        }
    }

    /// Whether what a line leads to is asked for.
    fn wants_line(&self, data: &DataLine) -> bool {
        let number = usize::try_from(data.subfile).unwrap_or(usize::MAX);
        let wants = self.wanted.as_ref().and_then(|wanted| wanted.get(number));
        self.context.query.wants_times(data.timestamp(), data.timestamp())
            && wants.is_none_or(|[_, data]| *data)
            && !self.log.leaves_out(number)
    }

    fn find_line(&mut self, data: DataLine, line: (u64, u64)) -> Result<Found, Error> {
        let DataLine { time, subfile, index } = data;
        let subfile = usize::try_from(subfile).unwrap_or(usize::MAX);
        let base = self.log.header.dialect.base();
        let record = u64::try_from(index).ok().and_then(|index| index.checked_sub(base));
        let Some(record) = record else {
            let reason = format!("index {index} is below {base}, where this log begins to count");
            return Ok(Found::Damage(self.damage(line, reason)));
        };
        let part = Part::Object;
        self.find(Request { time, sequence: index, subfile, record, part, line })
    }

    fn find(&mut self, request: Request) -> Result<Found, Error> {
        let found = self.locate(request)?;
        Ok(found.unwrap_or_else(|reason| Found::Damage(self.damage(request.line, reason))))
    }

    /// Where what is asked for lies. The inner `Err` says why it is nowhere.
    fn locate(&mut self, mut request: Request) -> Result<Result<Found, String>, Error> {
        let looked = self.looked(request.subfile)?;
        let opened = match &*looked {
            Ok(opened) => opened,
            Err(reason) => return Ok(Err(reason.clone())),
        };
        if request.part != Part::Config {
            request.record = request.record.saturating_add(opened.before);
        }
        if request.record >= opened.index.records {
            return Ok(Err(beyond(request.sequence, opened)));
        }
        let Some(place) = self.place(request, opened)? else { return Ok(Err(changed())) };
        if request.part == Part::Object && self.has_pictures(request.subfile) {
            // The picture comes right behind what is said of it.
            let picture = self.find_picture(request, place.clone(), opened)?;
            let damage = |reason| Found::Damage(self.damage(request.line, reason));
            self.left_over.push_back(picture.unwrap_or_else(damage));
            request.part = Part::PictureInfo;
        }
        Ok(Ok(Found::Record { request, place, form: opened.index.form }))
    }

    /// Where a record lies in its subfile; nothing if the subfile is no longer what it was.
    fn place(&mut self, request: Request, opened: &Opened) -> Result<Option<Range<u64>>, Error> {
        let mut cursor = std::mem::take(&mut self.known_of(request.subfile).cursor);
        let path = self.log.subfiles.get(request.subfile).map_or(Path::new(""), |file| &file.path);
        let files = &mut self.files;
        let mut read = |at, buffer: &mut [u8]| files.read_at(request.subfile, path, at, buffer);
        let place = opened.index.locate(request.record, &mut cursor, &mut read);
        self.known_of(request.subfile).cursor = cursor;
        place
    }

    fn has_pictures(&self, number: usize) -> bool {
        self.log.subfiles.get(number).is_some_and(|file| is_picture(&file.content))
    }

    /// The picture that a record names, or that a line is about. The inner `Err` says why there is none.
    fn find_picture(
        &mut self,
        request: Request,
        place: Range<u64>,
        opened: &Opened,
    ) -> Result<Result<Found, String>, Error> {
        if let Some(folder) = &opened.pictures {
            let number = request.record.saturating_sub(opened.before).saturating_add(1);
            let path = folder.join(format!("image{number:05}.jpg"));
            return Ok(Ok(Found::Picture { request, path }));
        }
        let mut bytes = vec![0; (place.end - place.start).min(LONGEST_LINE as u64) as usize];
        let path = self.log.subfiles.get(request.subfile).map_or(Path::new(""), |file| &file.path);
        let read = self.files.read_at(request.subfile, path, place.start, &mut bytes)?;
        bytes.truncate(read);
        let payload = opened.index.form.payload(request.record, &bytes);
        let payload = payload.and_then(|(_, payload)| bytes.get(payload));
        let Some(name) = payload.and_then(picture_name) else {
            return Ok(Err("a record of a camera names no file beside the master".to_owned()));
        };
        let path = self.log.path.with_file_name(OsStr::from_bytes(name));
        Ok(Ok(Found::Picture { request, path }))
    }

    /// The events of what was found, in order; what could not be read is damage.
    fn assemble(&mut self, found: Vec<Found>) -> Result<Batch, Error> {
        let (block, places) = self.fetch(&found)?;
        let mut batch = BatchBuilder::with_capacity(found.len());
        batch.segment(block.clone());
        for (found, place) in found.into_iter().zip(places) {
            match found {
                Found::Damage(damage) => self.context.damage.report(damage),
                Found::Record { request, form, .. } => {
                    let place = place.and_then(|place| payload_in(&block, place, request, form));
                    let Some((id, offset, payload)) = place else {
                        self.context.damage.report(self.damage(request.line, changed()));
                        continue;
                    };
                    let channel = self.channel(request.subfile, id, request.part)?;
                    let place = PayloadOffset { segment: 0, offset };
                    batch.push_wide(request.time, request.sequence, channel, payload, place);
                }
                Found::Picture { request, path } => match self.picture(&path)? {
                    Ok(picture) => {
                        let channel = self.channel(request.subfile, 0, Part::Object)?;
                        let segment = batch.segment(picture.clone());
                        let place = PayloadOffset { segment, offset: 0 };
                        batch.push_wide(request.time, request.sequence, channel, &picture, place);
                    }
                    Err(reason) => self.context.damage.report(self.damage(request.line, reason)),
                },
            }
        }
        Ok(batch.finish())
    }

    /// Reads all records into one block; gives for each of `found` where in it they lie, if they do.
    fn fetch(&mut self, found: &[Found]) -> Result<(Bytes, Places), Error> {
        let records = records(found);
        let spans = spans(&records);
        let room = |span: &Range<u64>| (span.end - span.start).next_multiple_of(ALIGNED as u64);
        let total = ALIGNED as u64 + spans.iter().map(|(_, span, _)| room(span)).sum::<u64>();
        let total = u32::try_from(total).map_err(|_| Error::internal("a batch of 4 GiB"))?;
        let mut places = vec![None; found.len()];
        if spans.is_empty() {
            return Ok((Bytes::new(), places));
        }
        let mut block = self.context.blocks.block_with_len(total as usize);
        let mut at = block.as_ptr().align_offset(ALIGNED).min(ALIGNED);
        for (subfile, span, rows) in spans {
            let len = (span.end - span.start) as usize;
            let room = block.get_mut(at..at + len).unwrap_or_default();
            let path = self.log.subfiles.get(subfile).map_or(Path::new(""), |file| &file.path);
            let read = self.files.read_at(subfile, path, span.start, room)?;
            self.context.count_read(read as u64);
            // What the file no longer has would be what the block was used for before.
            let there = span.start + read as u64;
            let held = records.get(rows).unwrap_or_default().iter();
            for (_, start, end, row) in held.filter(|(_, _, end, _)| *end <= there) {
                let in_block = |place: &u64| (at as u64 + (place - span.start)) as u32;
                if let Some(place) = places.get_mut(*row) {
                    *place = Some(in_block(start)..in_block(end));
                }
            }
            at += len.next_multiple_of(ALIGNED);
        }
        Ok((block.freeze(), places))
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
        // Not a block: pictures are mostly much smaller, and each would take one.
        let mut picture = vec![0; len as usize];
        let read = file.read_at(0, &mut picture)?;
        picture.truncate(read);
        self.context.count_read(read as u64);
        Ok(Ok(picture.into()))
    }

    fn channel(&mut self, subfile: usize, id: u8, part: Part) -> Result<ChannelId, Error> {
        let met = &self.known_of(subfile).channels;
        let known = met.iter().find(|(i, of, _)| (*i, *of) == (id, part));
        if let Some((_, _, known)) = known {
            return Ok(*known);
        }
        let channel = self.log.channel(subfile, id, part);
        let channel = channel.ok_or_else(|| Error::internal("an event of no subfile"))?;
        let channel = self.context.channels.intern(channel)?;
        self.known_of(subfile).channels.push((id, part, channel));
        Ok(channel)
    }

    fn looked(&mut self, subfile: usize) -> Result<Arc<Looked>, Error> {
        // Numbers that no header line has are not remembered: they would fill the memory.
        if subfile >= self.log.subfiles.len() {
            return self.log.opened(subfile);
        }
        if let Some(looked) = &self.known_of(subfile).looked {
            return Ok(Arc::clone(looked));
        }
        let looked = self.log.opened(subfile)?;
        self.known_of(subfile).looked = Some(Arc::clone(&looked));
        Ok(looked)
    }

    /// What is remembered of a subfile that the header has.
    fn known_of(&mut self, subfile: usize) -> &mut Known {
        if self.known.len() <= subfile {
            self.known.resize_with(subfile + 1, Known::default);
        }
        &mut self.known[subfile]
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
    // What is not to be played is there all the same.
    for number in (0..log.subfiles.len()).filter(|number| log.leaves_out(*number)) {
        if let Some(channel) = log.channel(number, 0, Part::Object) {
            query.may_want(channel.name.text());
        }
    }
    if query.is_all() {
        return None;
    }
    let wants = |number, part| {
        let channel = log.channel(number, 0, part);
        channel.is_none_or(|channel| query.wants(channel.name.text(), &channel.source))
    };
    let wants_line = |number| wants(number, Part::Object) || wants(number, Part::PictureInfo);
    let each = 0..log.subfiles.len();
    Some(each.map(|number| [wants(number, Part::Config), wants_line(number)]).collect())
}

/// The id and the payload of a record that lies in a block, and where; nothing if these are not its bytes.
fn payload_in(
    block: &[u8],
    place: Range<u32>,
    request: Request,
    form: Form,
) -> Option<(u8, u32, &[u8])> {
    let bytes = block.get(place.start as usize..place.end as usize)?;
    let (id, payload) = form.payload(request.record, bytes)?;
    let offset = place.start + u32::try_from(payload.start).ok()?;
    Some((id, offset, bytes.get(payload)?))
}

/// For each of what was found, where in a block its record lies, if it does.
type Places = Vec<Option<Range<u32>>>;

/// A record that is to be read: its subfile, where it begins and ends there, and its row in the batch.
type Wanted = (usize, u64, u64, usize);

/// The records among what was found, sorted by where they lie.
fn records(found: &[Found]) -> Vec<Wanted> {
    let mut records: Vec<Wanted> = Vec::with_capacity(found.len());
    for (row, found) in found.iter().enumerate() {
        if let Found::Record { request, place, .. } = found {
            records.push((request.subfile, place.start, place.end, row));
        }
    }
    records.sort_unstable();
    records
}

/// What of a subfile is read in one go, and which of the records lie in it.
type Span = (usize, Range<u64>, Range<usize>);

/// Records, sorted by subfile and place, as runs of neighbours.
fn spans(records: &[Wanted]) -> Vec<Span> {
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

fn beyond(index: i64, opened: &Opened) -> String {
    let there = opened.index.records.saturating_sub(opened.before);
    let cut = if opened.index.damage.is_some() { ": the rest is damaged" } else { "" };
    format!("index {index} is beyond the end: the subfile has {there} objects{cut}")
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
