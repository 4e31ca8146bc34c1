//! Follows the lines of a master and reads the objects they refer to. Decisions about files are
//! made in [`log`](crate::log).
//!
//! Lines are gathered until their objects fill a block. The objects are then read into it,
//! neighbours together, and emitted in the order of the lines.

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

use crate::log::{IndexOutcome, IndexedSubfile, OrcaLog, RecordKind, is_picture, open_subfile};
use crate::master::{DataLine, LONGEST_LINE, MasterLines, ParsedLine, is_file_name};
use crate::subfile::{ALIGNMENT, IndexCursor, LONGEST_RECORD, RecordFraming};

/// The maximum number of lines per batch.
const MAX_LINES: usize = 8 << 10;
/// Objects of a subfile no further apart than this are read together.
const MAX_GAP: u64 = 512;
/// The maximum number of open subfiles.
const MAX_OPEN: usize = 64;

/// A record that a line, or the start of a log, asks for.
#[derive(Clone, Copy, Debug)]
struct RecordRequest {
    time: i128,
    sequence: i64,
    subfile: usize,
    record: u64,
    kind: RecordKind,
    /// The offset and length of the line.
    line: (u64, u64),
}

/// The result of resolving a line.
enum LocatedEvent {
    Damage(Damage),
    Record { request: RecordRequest, place: Range<u64>, form: RecordFraming },
    Picture { request: RecordRequest, path: PathBuf },
}

/// How far a split has been read.
enum ReadPhase {
    /// The start of the log is still to be read: damage, notes and configuration.
    Front,
    /// Data lines are being read.
    Data,
    /// Everything has been read.
    Done,
}

/// Reads one split of a log.
pub struct OrcaReader {
    log: Arc<OrcaLog>,
    context: ReadContext,
    phase: ReadPhase,
    lines: Option<MasterLines>,
    end: u64,
    began: Option<u64>,
    /// The time of configuration events.
    config_time: i64,
    /// The configuration records still to be read, by subfile.
    config: VecDeque<(usize, Range<u64>)>,
    /// Events that did not fit into the last batch, or that the last line also refers to.
    pending: VecDeque<LocatedEvent>,
    files: OpenSubfiles,
    /// By subfile: whether its configuration and its objects are requested; `None` if everything
    /// is.
    pushdown: Option<Vec<[bool; 2]>>,
    /// By subfile, filled on demand.
    cache: Vec<SubfileCache>,
    /// Whether extra columns have been noted.
    noted_extra_columns: bool,
}

/// What a reader caches of a subfile, to avoid the lock of the shared log.
#[derive(Default)]
struct SubfileCache {
    indexed: Option<Arc<IndexOutcome>>,
    cursor: IndexCursor,
    /// The interned channels, by id and kind.
    channels: Vec<(u8, RecordKind, ChannelId)>,
}

impl OrcaReader {
    /// Opens a log at a split of its master.
    pub fn open(
        log: Arc<OrcaLog>,
        split: &Split,
        entry: SplitStart,
        context: &ReadContext,
    ) -> Result<Self, Error> {
        let end = split.end.unwrap_or(u64::MAX);
        let data = log.header.data_start;
        let file = LogFile::open(&log.path)?;
        let within =
            |lines: MasterLines| lines.expecting(end.saturating_sub(split.start.max(data)));
        // Nothing is searched before the first data line.
        let entry = match entry {
            SplitStart::Search if split.start <= data => SplitStart::At(split.start),
            other => other,
        };
        let lines = match entry {
            SplitStart::Search => MasterLines::search(file, split.start, end)?,
            SplitStart::At(at) if at > data && at >= end => None,
            SplitStart::At(at) if file.is_seekable() => {
                Some(within(MasterLines::new(file, at.max(data))))
            }
            SplitStart::At(_) => Some(skip_header(file, data)?),
        };
        let began = match entry {
            SplitStart::At(at) => Some(at),
            SplitStart::Search => lines.as_ref().map(MasterLines::position),
        };
        let is_front = split.start == 0;
        Ok(Self {
            phase: if is_front { ReadPhase::Front } else { ReadPhase::Data },
            lines,
            end,
            began,
            config_time: 0,
            config: VecDeque::new(),
            pending: VecDeque::new(),
            files: OpenSubfiles::default(),
            pushdown: channel_pushdown(&log, context),
            cache: Vec::new(),
            noted_extra_columns: false,
            log,
            context: context.clone(),
        })
    }

    /// Reports damage and notes of header and subfiles, and queues their configuration.
    fn start(&mut self) -> Result<(), Error> {
        for unusable in &self.log.header.damage {
            let reason = unusable.reason.clone();
            self.context.damage.report(self.damage((unusable.offset, unusable.len), reason));
        }
        for name in self.log.unknown_names() {
            let note = format!(
                "`config_records` names the subfile `{name}`, which the master does not \
                    have"
            );
            self.context.losses.note(note, 0);
        }
        self.config_time = self.log.summary()?.first_time.unwrap_or(0);
        for number in 0..self.log.subfiles.len() {
            if self.log.skips(number) || !self.wants_any(number) {
                continue;
            }
            let looked = self.log.indexed_subfile(number)?;
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
            let wants = self.pushdown.as_ref().and_then(|wanted| wanted.get(number));
            if wants.is_none_or(|[config, _]| *config) {
                self.config.push_back((number, 0..opened.config_records));
            }
        }
        Ok(())
    }

    /// The next configuration record.
    fn next_config(&mut self) -> Option<RecordRequest> {
        loop {
            let (subfile, records) = self.config.front_mut()?;
            let (subfile, record) = (*subfile, records.next());
            let Some(record) = record else {
                self.config.pop_front();
                continue;
            };
            return Some(RecordRequest {
                time: self.config_time.into(),
                sequence: i64::try_from(record).unwrap_or(i64::MAX),
                subfile,
                record,
                kind: RecordKind::Config,
                line: (0, 0),
            });
        }
    }

    /// Resolves as many lines as fill a batch. `None` at the end of the split.
    fn locate_batch(&mut self) -> Result<Option<Vec<LocatedEvent>>, Error> {
        // Spans of each subfile are aligned in the block, which takes space.
        let usual = self.context.blocks.block_len();
        let most = (usual - usual / 16) as u64;
        let (mut found, mut bytes, mut lines) = (Vec::new(), 0, 0);
        while lines < MAX_LINES {
            let Some(next) = self.next_event()? else { break };
            lines += 1;
            let Some(next) = next else { continue };
            let len = self.estimated_len(&next);
            if bytes + len > most && bytes > 0 {
                self.pending.push_front(next);
                break;
            }
            bytes += len;
            found.push(next);
        }
        Ok((lines > 0).then_some(found))
    }

    /// The estimated bytes of the event.
    fn estimated_len(&self, found: &LocatedEvent) -> u64 {
        match found {
            LocatedEvent::Damage(_) => 0,
            LocatedEvent::Record { place, .. } => place.end - place.start,
            LocatedEvent::Picture { path, .. } => fs::metadata(path).map_or(0, |meta| meta.len()),
        }
    }

    /// The event of the next line. The outer `None` is the end of the split, the inner one a line
    /// without an event.
    fn next_event(&mut self) -> Result<Option<Option<LocatedEvent>>, Error> {
        if let Some(found) = self.pending.pop_front() {
            return Ok(Some(Some(found)));
        }
        if let Some(request) = self.next_config() {
            return Ok(Some(Some(self.locate_or_damage(request)?)));
        }
        let Some(lines) = self.lines.as_mut().filter(|lines| lines.position() < self.end) else {
            return Ok(None);
        };
        let Some(line) = lines.next()? else {
            let (at, broken) = (lines.position(), lines.broken().map(str::to_owned));
            let is_first = !matches!(self.phase, ReadPhase::Done);
            self.phase = ReadPhase::Done;
            let broken = broken.filter(|_| is_first);
            return Ok(
                broken.map(|reason| Some(LocatedEvent::Damage(self.damage((at, 0), reason))))
            );
        };
        let at = (line.offset, line.len);
        self.context.count_read(line.len);
        let ParsedLine { data, swallowed, has_extra_columns: says_more } = match line.data() {
            Err(reason) => return Ok(Some(Some(LocatedEvent::Damage(self.damage(at, reason))))),
            Ok(None) => return Ok(Some(None)),
            Ok(Some(told)) => told,
        };
        if says_more && !std::mem::replace(&mut self.noted_extra_columns, true) {
            let what =
                "lines of the master have extra columns; columns after the fourth are ignored";
            self.context.losses.note(what, 0);
        }
        if let Some(place) = swallowed {
            let reason = "the line break before a data line is missing".to_owned();
            self.pending.push_back(LocatedEvent::Damage(self.damage(place, reason)));
        }
        let own = (at.0, swallowed.map_or(at.1, |(from, _)| from - at.0));
        if self.wants_line(&data) {
            self.locate_line(data, own).map(Some).map(Some)
        } else {
            Ok(Some(None))
        }
    }

    /// Whether the event of a line is requested.
    fn wants_line(&self, data: &DataLine) -> bool {
        let number = usize::try_from(data.subfile).unwrap_or(usize::MAX);
        let wants = self.pushdown.as_ref().and_then(|wanted| wanted.get(number));
        self.context.query.wants_times(data.timestamp(), data.timestamp())
            && wants.is_none_or(|[_, data]| *data)
            && !self.log.skips(number)
    }

    fn locate_line(&mut self, data: DataLine, line: (u64, u64)) -> Result<LocatedEvent, Error> {
        let DataLine { time, subfile, index } = data;
        let subfile = usize::try_from(subfile).unwrap_or(usize::MAX);
        let base = self.log.header.dialect.first_index();
        let record = u64::try_from(index).ok().and_then(|index| index.checked_sub(base));
        let Some(record) = record else {
            let reason = format!("index {index} is below {base}, the first index of this log");
            return Ok(LocatedEvent::Damage(self.damage(line, reason)));
        };
        let part = RecordKind::Object;
        self.locate_or_damage(RecordRequest {
            time,
            sequence: index,
            subfile,
            record,
            kind: part,
            line,
        })
    }

    fn locate_or_damage(&mut self, request: RecordRequest) -> Result<LocatedEvent, Error> {
        let found = self.locate(request)?;
        Ok(found.unwrap_or_else(|reason| LocatedEvent::Damage(self.damage(request.line, reason))))
    }

    /// Locates a record. The inner `Err` is the reason it does not exist.
    fn locate(
        &mut self,
        mut request: RecordRequest,
    ) -> Result<Result<LocatedEvent, String>, Error> {
        let looked = self.indexed_subfile(request.subfile)?;
        let opened = match &*looked {
            Ok(opened) => opened,
            Err(reason) => return Ok(Err(reason.clone())),
        };
        if request.kind != RecordKind::Config {
            request.record = request.record.saturating_add(opened.records_before_objects);
        }
        if request.record >= opened.index.records {
            return Ok(Err(beyond_end(request.sequence, opened)));
        }
        let Some(place) = self.record_range(request, opened)? else {
            return Ok(Err(subfile_changed()));
        };
        if request.kind == RecordKind::Object && self.has_pictures(request.subfile) {
            // The picture follows its info record.
            let picture = self.locate_picture(request, place.clone(), opened)?;
            let damage = |reason| LocatedEvent::Damage(self.damage(request.line, reason));
            self.pending.push_back(picture.unwrap_or_else(damage));
            request.kind = RecordKind::PictureInfo;
        }
        Ok(Ok(LocatedEvent::Record { request, place, form: opened.index.framing }))
    }

    /// The range of a record in its subfile; `None` if the subfile has changed.
    fn record_range(
        &mut self,
        request: RecordRequest,
        opened: &IndexedSubfile,
    ) -> Result<Option<Range<u64>>, Error> {
        let mut cursor = std::mem::take(&mut self.cache_mut(request.subfile).cursor);
        let path = self.log.subfiles.get(request.subfile).map_or(Path::new(""), |file| &file.path);
        let files = &mut self.files;
        let mut read = |at, buffer: &mut [u8]| files.read_at(request.subfile, path, at, buffer);
        let place = opened.index.locate(request.record, &mut cursor, &mut read);
        self.cache_mut(request.subfile).cursor = cursor;
        place
    }

    fn has_pictures(&self, number: usize) -> bool {
        self.log.subfiles.get(number).is_some_and(|file| is_picture(&file.content))
    }

    /// The picture that a record or line refers to. The inner `Err` is the reason there is none.
    fn locate_picture(
        &mut self,
        request: RecordRequest,
        place: Range<u64>,
        opened: &IndexedSubfile,
    ) -> Result<Result<LocatedEvent, String>, Error> {
        if let Some(folder) = &opened.picture_folder {
            let number =
                request.record.saturating_sub(opened.records_before_objects).saturating_add(1);
            let path = folder.join(format!("image{number:05}.jpg"));
            return Ok(Ok(LocatedEvent::Picture { request, path }));
        }
        let mut bytes = vec![0; (place.end - place.start).min(LONGEST_LINE as u64) as usize];
        let path = self.log.subfiles.get(request.subfile).map_or(Path::new(""), |file| &file.path);
        let read = self.files.read_at(request.subfile, path, place.start, &mut bytes)?;
        bytes.truncate(read);
        let payload = opened.index.framing.payload(request.record, &bytes);
        let payload = payload.and_then(|(_, payload)| bytes.get(payload));
        let Some(name) = payload.and_then(picture_name) else {
            return Ok(Err("a camera record does not name a file beside the master".to_owned()));
        };
        let path = self.log.path.with_file_name(OsStr::from_bytes(name));
        Ok(Ok(LocatedEvent::Picture { request, path }))
    }

    /// Reads the located events, in order. Those that cannot be read are damage.
    fn assemble(&mut self, found: Vec<LocatedEvent>) -> Result<Batch, Error> {
        let (block, places) = self.read_records(&found)?;
        let mut batch = BatchBuilder::with_capacity(found.len());
        batch.segment(block.clone());
        for (found, place) in found.into_iter().zip(places) {
            match found {
                LocatedEvent::Damage(damage) => self.context.damage.report(damage),
                LocatedEvent::Record { request, form, .. } => {
                    let place =
                        place.and_then(|place| payload_in_block(&block, place, request, form));
                    let Some((id, offset, payload)) = place else {
                        self.context.damage.report(self.damage(request.line, subfile_changed()));
                        continue;
                    };
                    let channel = self.channel(request.subfile, id, request.kind)?;
                    let place = PayloadOffset { segment: 0, offset };
                    batch.push_wide(request.time, request.sequence, channel, payload, place);
                }
                LocatedEvent::Picture { request, path } => match self.read_picture(&path)? {
                    Ok(picture) => {
                        let channel = self.channel(request.subfile, 0, RecordKind::Object)?;
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

    /// Reads all records into one block. Returns the range of each record in it, if it was read.
    fn read_records(&mut self, found: &[LocatedEvent]) -> Result<(Bytes, BlockRanges), Error> {
        let records = sorted_records(found);
        let spans = coalesce(&records);
        let room = |span: &Range<u64>| (span.end - span.start).next_multiple_of(ALIGNMENT as u64);
        let total = ALIGNMENT as u64 + spans.iter().map(|(_, span, _)| room(span)).sum::<u64>();
        let total = u32::try_from(total).map_err(|_| Error::internal("a batch of 4 GiB"))?;
        let mut places = vec![None; found.len()];
        if spans.is_empty() {
            return Ok((Bytes::new(), places));
        }
        let mut block = self.context.blocks.block_with_len(total as usize);
        let mut at = block.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        for (subfile, span, rows) in spans {
            let len = (span.end - span.start) as usize;
            let room = block.get_mut(at..at + len).unwrap_or_default();
            let path = self.log.subfiles.get(subfile).map_or(Path::new(""), |file| &file.path);
            let read = self.files.read_at(subfile, path, span.start, room)?;
            self.context.count_read(read as u64);
            // Beyond the end of the file, the block has bytes of an earlier use.
            let there = span.start + read as u64;
            let held = records.get(rows).unwrap_or_default().iter();
            for (_, start, end, row) in held.filter(|(_, _, end, _)| *end <= there) {
                let in_block = |place: &u64| (at as u64 + (place - span.start)) as u32;
                if let Some(place) = places.get_mut(*row) {
                    *place = Some(in_block(start)..in_block(end));
                }
            }
            at += len.next_multiple_of(ALIGNMENT);
        }
        Ok((block.freeze(), places))
    }

    /// Reads a picture. The inner `Err` is the reason it cannot be read.
    fn read_picture(&self, path: &Path) -> Result<Result<Bytes, String>, Error> {
        let mut file = match open_subfile(path) {
            Ok(file) => file,
            Err(reason) => return Ok(Err(reason)),
        };
        let len = file.len().unwrap_or(0);
        if len > LONGEST_RECORD {
            return Ok(Err(format!(
                "a picture has {len} bytes: the most that is read are {LONGEST_RECORD}"
            )));
        }
        // Not a pool block: most pictures are much smaller, and each would take one.
        let mut picture = vec![0; len as usize];
        let read = file.read_at(0, &mut picture)?;
        picture.truncate(read);
        self.context.count_read(read as u64);
        Ok(Ok(picture.into()))
    }

    fn channel(&mut self, subfile: usize, id: u8, part: RecordKind) -> Result<ChannelId, Error> {
        let met = &self.cache_mut(subfile).channels;
        let known = met.iter().find(|(i, of, _)| (*i, *of) == (id, part));
        if let Some((_, _, known)) = known {
            return Ok(*known);
        }
        let channel = self.log.channel(subfile, id, part);
        let channel = channel.ok_or_else(|| Error::internal("an event without a subfile"))?;
        let channel = self.context.channels.intern(channel)?;
        self.cache_mut(subfile).channels.push((id, part, channel));
        Ok(channel)
    }

    fn indexed_subfile(&mut self, subfile: usize) -> Result<Arc<IndexOutcome>, Error> {
        // Numbers without a header line are not cached: they could exhaust memory.
        if subfile >= self.log.subfiles.len() {
            return self.log.indexed_subfile(subfile);
        }
        if let Some(looked) = &self.cache_mut(subfile).indexed {
            return Ok(Arc::clone(looked));
        }
        let looked = self.log.indexed_subfile(subfile)?;
        self.cache_mut(subfile).indexed = Some(Arc::clone(&looked));
        Ok(looked)
    }

    /// The cache of a subfile in the header.
    fn cache_mut(&mut self, subfile: usize) -> &mut SubfileCache {
        if self.cache.len() <= subfile {
            self.cache.resize_with(subfile + 1, SubfileCache::default);
        }
        &mut self.cache[subfile]
    }

    fn wants_any(&self, number: usize) -> bool {
        let wants = self.pushdown.as_ref().and_then(|wanted| wanted.get(number));
        wants.is_none_or(|[config, data]| *config || *data)
    }

    fn damage(&self, (offset, len): (u64, u64), reason: String) -> Damage {
        Damage::new(&self.log.input, offset, len, reason)
    }
}

impl Reader for OrcaReader {
    fn next_batch(&mut self) -> Result<Option<Batch>, Error> {
        if matches!(self.phase, ReadPhase::Front) {
            self.start()?;
            self.phase = ReadPhase::Data;
        }
        while !self.context.is_cancelled() {
            let Some(found) = self.locate_batch()? else { return Ok(None) };
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

/// Skips the header of a compressed master, which cannot be seeked.
fn skip_header(file: LogFile, data: u64) -> Result<MasterLines, Error> {
    let mut lines = MasterLines::new(file, 0);
    while lines.position() < data && lines.next()?.is_some() {}
    Ok(lines)
}

/// Whether configuration and objects of each subfile are requested; `None` if everything is.
fn channel_pushdown(log: &OrcaLog, context: &ReadContext) -> Option<Vec<[bool; 2]>> {
    let query = &context.query.channels;
    // Disabled subfiles exist all the same, so their channels are not unknown.
    for number in (0..log.subfiles.len()).filter(|number| log.skips(*number)) {
        if let Some(channel) = log.channel(number, 0, RecordKind::Object) {
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
    let wants_line =
        |number| wants(number, RecordKind::Object) || wants(number, RecordKind::PictureInfo);
    let each = 0..log.subfiles.len();
    Some(each.map(|number| [wants(number, RecordKind::Config), wants_line(number)]).collect())
}

/// The id of a record in a block, and the offset and bytes of its payload. `None` if the bytes are
/// not those of the record.
fn payload_in_block(
    block: &[u8],
    place: Range<u32>,
    request: RecordRequest,
    form: RecordFraming,
) -> Option<(u8, u32, &[u8])> {
    let bytes = block.get(place.start as usize..place.end as usize)?;
    let (id, payload) = form.payload(request.record, bytes)?;
    let offset = place.start + u32::try_from(payload.start).ok()?;
    Some((id, offset, bytes.get(payload)?))
}

/// For each located event, the range of its record in the block.
type BlockRanges = Vec<Option<Range<u32>>>;

/// A record to be read: subfile, start, end, and row in the batch.
type RecordSpan = (usize, u64, u64, usize);

/// The records among located events, sorted by position.
fn sorted_records(found: &[LocatedEvent]) -> Vec<RecordSpan> {
    let mut records: Vec<RecordSpan> = Vec::with_capacity(found.len());
    for (row, found) in found.iter().enumerate() {
        if let LocatedEvent::Record { request, place, .. } = found {
            records.push((request.subfile, place.start, place.end, row));
        }
    }
    records.sort_unstable();
    records
}

/// A range of a subfile that is read at once, and the records in it.
type ReadSpan = (usize, Range<u64>, Range<usize>);

/// Merges sorted records that are close to each other.
fn coalesce(records: &[RecordSpan]) -> Vec<ReadSpan> {
    let mut spans: Vec<ReadSpan> = Vec::new();
    for (at, (subfile, start, end, _)) in records.iter().enumerate() {
        match spans.last_mut() {
            Some((same, span, rows)) if same == subfile && *start <= span.end + MAX_GAP => {
                span.end = span.end.max(*end);
                rows.end = at + 1;
            }
            _ => spans.push((*subfile, *start..*end, at..at + 1)),
        }
    }
    spans
}

/// The picture name in a camera record: length-prefixed, after four integers and a time.
fn picture_name(record: &[u8]) -> Option<&[u8]> {
    let text = record.get(4 * size_of::<i32>() + size_of::<f64>()..)?;
    let (len, text) = match text.split_first()? {
        (0xff, rest) => {
            let (len, rest) = rest.split_first_chunk()?;
            (usize::try_from(i32::from_le_bytes(*len)).ok()?, rest)
        }
        (len, rest) => (usize::from(*len), rest),
    };
    text.get(..len).filter(|name| is_file_name(name))
}

fn beyond_end(index: i64, opened: &IndexedSubfile) -> String {
    let there = opened.index.records.saturating_sub(opened.records_before_objects);
    let cut = if opened.index.damage.is_some() { ": the rest is damaged" } else { "" };
    format!("index {index} is beyond the end: the subfile has {there} objects{cut}")
}

fn subfile_changed() -> String {
    "the subfile changed while it was being read: the record is no longer at its \
     position"
        .to_owned()
}

/// Open subfiles: not all at once, as a log may have thousands.
#[derive(Default)]
struct OpenSubfiles(BTreeMap<usize, LogFile>);

impl OpenSubfiles {
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
        if self.0.len() >= MAX_OPEN {
            self.0.clear();
        }
        self.0.insert(number, file);
        Ok(read)
    }
}
