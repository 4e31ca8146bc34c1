//! Follows the lines of a master and reads the objects they refer to. Decisions about files are
//! made in [`log`](crate::log).
//!
//! Lines are gathered until their objects fill a block. The objects are then read into it,
//! neighbours together, and emitted in the order of the lines.

use std::collections::VecDeque;
use std::fs;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use sluice_io::escape::escaped_path;
use sluice_io::files::InputFiles;
use sluice_model::{Batch, ChannelId, Damage, Error, ReadContext, Reader, Seam, Split, SplitStart};

use crate::log::{IndexOutcome, IndexedSubfile, OrcaLog, RecordKind, is_picture};
use crate::master::{DataLine, LineDamage, MasterLines, ParsedLine};
use crate::subfile::{IndexCursor, RecordFraming};

mod assemble;
mod open_subfiles;
mod pictures;

use open_subfiles::OpenSubfiles;

/// The maximum number of lines per batch.
const MAX_LINES: usize = 8 << 10;

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
    Record { request: RecordRequest, range: Range<u64>, framing: RecordFraming },
    Picture { request: RecordRequest, path: PathBuf },
}

/// How far a split has been read.
enum ReadPhase {
    /// The start of the log is still to be read: damage, notes and configuration.
    Start,
    /// Data lines are being read.
    Data,
}

/// Reads one split of a log.
pub(crate) struct OrcaReader {
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
    pub(crate) fn open(
        log: Arc<OrcaLog>,
        split: &Split,
        entry: SplitStart,
        context: &ReadContext,
    ) -> Result<Self, Error> {
        let end = split.end.unwrap_or(u64::MAX);
        let data = log.header.data_start;
        let file = context.run.shared::<InputFiles>().open(&log.path)?;
        // Nothing is searched before the first data line.
        let entry = match entry {
            SplitStart::Search if split.start <= data => SplitStart::At(split.start),
            other => other,
        };
        let lines = match entry {
            SplitStart::Search => MasterLines::search(file, split.start, end)?,
            SplitStart::At(at) if at > data && at >= end => None,
            SplitStart::At(at) if file.is_seekable() => {
                Some(MasterLines::new(file, at.max(data)).until(end))
            }
            SplitStart::At(_) => Some(MasterLines::behind_header(file, data)?),
        };
        let began = match entry {
            SplitStart::At(at) => Some(at),
            SplitStart::Search => lines.as_ref().map(MasterLines::position),
        };
        let is_front = split.start == 0;
        Ok(Self {
            phase: if is_front { ReadPhase::Start } else { ReadPhase::Data },
            lines,
            end,
            began,
            config_time: 0,
            config: VecDeque::new(),
            pending: VecDeque::new(),
            files: OpenSubfiles::new(&context.run),
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
                "`config_records` names the subfile `{name}`, which the master does not have"
            );
            self.context.losses.note(note, 0);
        }
        self.config_time = self.log.summary(self.files.inputs())?.first_time.unwrap_or(0);
        for number in 0..self.log.subfiles.len() {
            let [wants_config, wants_data] = self.wants(number);
            if self.log.skips(number) || !(wants_config || wants_data) {
                continue;
            }
            let outcome = self.log.indexed_subfile(number, self.files.inputs())?;
            let (Ok(indexed), Some(file)) = (&*outcome, self.log.subfiles.get(number)) else {
                continue;
            };
            if let Some((len, reason)) = &indexed.index.damage {
                let input: Arc<str> = escaped_path(&file.path).into();
                let damage = Damage::new(&input, indexed.index.end, *len, reason.clone());
                self.context.damage.report(damage);
            }
            for (note, count) in &indexed.notes {
                self.context.losses.note(note.clone(), *count);
            }
            if wants_config {
                self.config.push_back((number, 0..indexed.config_records));
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
        let begin = self.lines.as_ref().map_or(0, MasterLines::position);
        let (mut located, mut bytes, mut lines) = (Vec::new(), 0, 0);
        while lines < MAX_LINES {
            let before = located.len();
            if !self.next_event(&mut located)? {
                break;
            }
            lines += 1;
            let Some(next) = located.get(before) else { continue };
            let len = self.estimated_len(next);
            if bytes + len > most && bytes > 0 {
                located.pop().into_iter().for_each(|next| self.pending.push_front(next));
                break;
            }
            bytes += len;
        }
        let end = self.lines.as_ref().map_or(0, MasterLines::position);
        self.context.run.count_read(end - begin);
        Ok((lines > 0).then_some(located))
    }

    /// The estimated bytes of the event.
    fn estimated_len(&self, located: &LocatedEvent) -> u64 {
        match located {
            LocatedEvent::Damage(_) => 0,
            LocatedEvent::Record { range, .. } => range.end - range.start,
            LocatedEvent::Picture { path, .. } => fs::metadata(path).map_or(0, |meta| meta.len()),
        }
    }

    /// Appends the event of the next line, if it has one. Returns false at the end of the split.
    fn next_event(&mut self, out: &mut Vec<LocatedEvent>) -> Result<bool, Error> {
        if let Some(located) = self.pending.pop_front() {
            out.push(located);
            return Ok(true);
        }
        if let Some(request) = self.next_config() {
            return self.locate_or_damage(&request, out).map(|()| true);
        }
        let Some(lines) = self.lines.as_mut().filter(|lines| lines.position() < self.end) else {
            return Ok(false);
        };
        if let Some((data, line)) = lines.next_plain() {
            return self.locate_line(data, line, out).map(|()| true);
        }
        let Some(line) = lines.next()? else {
            let at = lines.position();
            let Some((len, reason)) = lines.pass_gap()? else { return Ok(false) };
            if self.log.header.is_cut {
                self.end = at;
            }
            out.push(LocatedEvent::Damage(self.damage((at, len), reason)));
            return Ok(true);
        };
        let at = (line.offset, line.len);
        let ParsedLine { data, damage, has_extra_columns } =
            match line.data(self.log.subfiles.len()) {
                Err(reason) => {
                    out.push(LocatedEvent::Damage(self.damage(at, reason)));
                    return Ok(true);
                }
                Ok(None) => return Ok(true),
                Ok(Some(parsed)) => parsed,
            };
        if has_extra_columns && !std::mem::replace(&mut self.noted_extra_columns, true) {
            let what =
                "lines of the master have extra columns; columns after the fourth are ignored";
            self.context.losses.note(what, 0);
        }
        if let Some(LineDamage { range, reason }) = damage {
            let damage = self.damage(range, reason.to_owned());
            self.pending.push_back(LocatedEvent::Damage(damage));
        }
        let own = (at.0, damage.map_or(at.1, |damage| damage.range.0 - at.0));
        self.locate_line(data, own, out).map(|()| true)
    }

    /// Whether the event of a line is requested.
    fn wants_line(&self, data: &DataLine) -> bool {
        let number = usize::try_from(data.subfile).unwrap_or(usize::MAX);
        let [_, wants_data] = self.wants(number);
        self.context.query.wants_times(data.timestamp(), data.timestamp())
            && wants_data
            && !self.log.skips(number)
    }

    /// Appends the event that a data line asks for, unless it is not requested.
    fn locate_line(
        &mut self,
        data: DataLine,
        line: (u64, u64),
        out: &mut Vec<LocatedEvent>,
    ) -> Result<(), Error> {
        if !self.wants_line(&data) {
            return Ok(());
        }
        let DataLine { time, subfile, index } = data;
        let subfile = usize::try_from(subfile).unwrap_or(usize::MAX);
        let base = self.log.header.dialect.first_index();
        let record = u64::try_from(index).ok().and_then(|index| index.checked_sub(base));
        let Some(record) = record else {
            let reason = format!("index {index} is below {base}, the first index of this log");
            out.push(LocatedEvent::Damage(self.damage(line, reason)));
            return Ok(());
        };
        let kind = RecordKind::Object;
        let request = RecordRequest { time, sequence: index, subfile, record, kind, line };
        self.locate_or_damage(&request, out)
    }

    fn locate_or_damage(
        &mut self,
        request: &RecordRequest,
        out: &mut Vec<LocatedEvent>,
    ) -> Result<(), Error> {
        if let Err(reason) = self.locate(request, out)? {
            out.push(LocatedEvent::Damage(self.damage(request.line, reason)));
        }
        Ok(())
    }

    /// Locates a record, and appends it. The inner `Err` is the reason it does not exist.
    ///
    /// Called for nearly every event, which is why it copies no event and counts no shares.
    fn locate(
        &mut self,
        request: &RecordRequest,
        out: &mut Vec<LocatedEvent>,
    ) -> Result<Result<(), String>, Error> {
        let Some(file) = self.log.subfiles.get(request.subfile) else {
            let outcome = self.log.indexed_subfile(request.subfile, self.files.inputs())?;
            return Ok(outcome.as_ref().as_ref().map(|_| ()).map_err(String::clone));
        };
        let SubfileCache { indexed, cursor, .. } = cache_of(&mut self.cache, request.subfile);
        let indexed = match indexed {
            Some(indexed) => indexed,
            None => indexed.insert(self.log.indexed_subfile(request.subfile, self.files.inputs())?),
        };
        let known = match &**indexed {
            Ok(known) => known,
            Err(reason) => return Ok(Err(reason.clone())),
        };
        let (mut record, mut kind) = (request.record, request.kind);
        if kind != RecordKind::Config {
            record = record.saturating_add(known.records_before_objects);
        }
        if record >= known.index.records {
            return Ok(Err(beyond_end(request.sequence, known)));
        }
        let files = &mut self.files;
        let mut read =
            |at, buffer: &mut [u8]| files.read_at(request.subfile, &file.path, at, buffer);
        let Some(range) = known.index.locate(record, cursor, &mut read)? else {
            return Ok(Err(subfile_changed()));
        };
        let framing = known.index.framing;
        if kind == RecordKind::Object && is_picture(&file.content) {
            // The picture follows its info record.
            let outcome = Arc::clone(indexed);
            self.queue_picture(RecordRequest { record, ..*request }, range.clone(), &outcome)?;
            kind = RecordKind::PictureInfo;
        }
        let request = RecordRequest { record, kind, ..*request };
        out.push(LocatedEvent::Record { request, range, framing });
        Ok(Ok(()))
    }

    /// Queues the picture that an info record names.
    fn queue_picture(
        &mut self,
        request: RecordRequest,
        range: Range<u64>,
        outcome: &IndexOutcome,
    ) -> Result<(), Error> {
        let Ok(indexed) = outcome else { return Ok(()) };
        let picture = self.locate_picture(request, range, indexed)?;
        let damage = |reason| LocatedEvent::Damage(self.damage(request.line, reason));
        self.pending.push_back(picture.unwrap_or_else(damage));
        Ok(())
    }

    fn channel(&mut self, subfile: usize, id: u8, kind: RecordKind) -> Result<ChannelId, Error> {
        let channels = &cache_of(&mut self.cache, subfile).channels;
        let interned = channels.iter().find(|(i, of, _)| (*i, *of) == (id, kind));
        if let Some((_, _, interned)) = interned {
            return Ok(*interned);
        }
        let channel = self.log.channel(subfile, id, kind);
        let channel = channel.ok_or_else(|| Error::internal("an event without a subfile"))?;
        let channel = self.context.channels.intern(channel)?;
        cache_of(&mut self.cache, subfile).channels.push((id, kind, channel));
        Ok(channel)
    }

    /// Whether the configuration and the objects of a subfile are requested.
    fn wants(&self, number: usize) -> [bool; 2] {
        let wants = self.pushdown.as_ref().and_then(|pushdown| pushdown.get(number));
        wants.copied().unwrap_or([true; 2])
    }

    fn damage(&self, (offset, len): (u64, u64), reason: String) -> Damage {
        Damage::new(&self.log.input, offset, len, reason)
    }
}

impl Reader for OrcaReader {
    fn next_batch(&mut self) -> Result<Option<Batch>, Error> {
        if matches!(self.phase, ReadPhase::Start) {
            self.start()?;
            self.phase = ReadPhase::Data;
        }
        while !self.context.run.is_cancelled() {
            let Some(located) = self.locate_batch()? else { return Ok(None) };
            let batch = self.assemble(&located)?;
            // Without events between it, damage may be any number of ranges.
            if !batch.is_empty() || self.context.damage.is_full() {
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

/// The cache of a subfile in the header.
fn cache_of(caches: &mut Vec<SubfileCache>, subfile: usize) -> &mut SubfileCache {
    if caches.len() <= subfile {
        caches.resize_with(subfile + 1, SubfileCache::default);
    }
    &mut caches[subfile]
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
    let wants = |number, kind| {
        let channel = log.channel(number, 0, kind);
        channel.is_none_or(|channel| query.wants(channel.name.text(), &channel.source))
    };
    let wants_line =
        |number| wants(number, RecordKind::Object) || wants(number, RecordKind::PictureInfo);
    let each = 0..log.subfiles.len();
    Some(each.map(|number| [wants(number, RecordKind::Config), wants_line(number)]).collect())
}

fn beyond_end(index: i64, indexed: &IndexedSubfile) -> String {
    let there = indexed.index.records.saturating_sub(indexed.records_before_objects);
    let cut = if indexed.index.damage.is_some() { ": the rest is damaged" } else { "" };
    format!("index {index} is beyond the end: the subfile has {there} objects{cut}")
}

fn subfile_changed() -> String {
    "the subfile changed while it was being read: the record is no longer at its \
     position"
        .to_owned()
}
