//! Source `records`: one log or many, cut into splits where readers can begin anywhere.

use std::borrow::Cow;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use serde_json::Value;
use sluice_core::files::{InputContent, LogFile};
use sluice_core::framed::{
    EventHeader, FramedReader, Framing, Peek, PositionContent, RecordContent,
};
use sluice_core::window::ReadAt;
use sluice_core::{
    Batch, Error, Input, LossLog, OptionsError, PluginFactory, Query, ReadContext, Reader, Seam,
    Source, Split, SplitStart, files, options as core_options,
};

use crate::channels::Ids;
use crate::columns;
use crate::compile::compile;
use crate::format::{Fate, Format, Kind};
use crate::look::{Look, Wrong};
use crate::options::Options;
use crate::scan::{self, Front, LONG_CLAIM, Scan};
use crate::time::Before;

/// Reads binary logs that are described in the pipeline file.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "Options")]
pub struct Records {
    options: Options,
    format: Arc<Format>,
}

impl TryFrom<Options> for Records {
    type Error = OptionsError;

    fn try_from(options: Options) -> Result<Self, OptionsError> {
        let format = Arc::new(compile(&options)?);
        Ok(Self { options, format })
    }
}

impl JsonSchema for Records {
    fn schema_name() -> Cow<'static, str> {
        "Records".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Options::json_schema(generator)
    }
}

/// Reads options and compiles them, so that mistakes of both are told with their keys.
fn make(options: Value) -> Result<Box<dyn Source>, OptionsError> {
    Records::new(options).map(|records| Box::new(records) as _)
}

sluice_core::register! {
    source "records": Records,
    about: "reads binary logs of your own format, which the pipeline file describes",
    sample: include_str!("../samples/records.toml"),
    make: PluginFactory::Source(make),
}

impl Records {
    /// The source with these options.
    pub fn new(options: Value) -> Result<Self, OptionsError> {
        core_options::read::<Options>(options)?.try_into()
    }

    /// The format that is described.
    pub fn format(&self) -> &Arc<Format> {
        &self.format
    }
}

impl Source for Records {
    fn inputs(&self) -> Result<Vec<Input>, Error> {
        files::expand(&self.options.path.0)
    }

    fn splits(&self, target: u64, _: &Query) -> Result<Vec<Split>, Error> {
        let inputs = self.inputs()?;
        files::refuse_foreign(&inputs, InputContent::Any, "a described log")?;
        if self.format.can_be_entered() {
            return Split::of_files(inputs, target, |_, len| Ok(0..len));
        }
        // What is known from the records before is not known in the middle. An empty log is no stream that ran dry.
        let whole = |input: Input| Split::whole(input.path, input.bytes.filter(|len| *len == 0));
        Ok(inputs.into_iter().map(whole).collect())
    }

    fn read<'s>(
        &'s self,
        split: &Split,
        entry: SplitStart,
        context: &ReadContext,
    ) -> Result<Box<dyn Reader + 's>, Error> {
        // Where the first record is, the log's front says.
        let entry = if entry == SplitStart::At(0) { SplitStart::Search } else { entry };
        let records = Described::new(Arc::clone(&self.format), context);
        let (left_out, losses) = (Arc::clone(&records.left_out), Arc::clone(&context.losses));
        let log = LogFile::open_holding(&split.input, InputContent::Any)?;
        let reader = FramedReader::over(log, split, entry, records, context)?;
        Ok(Box::new(RowReader { reader, format: Arc::clone(&self.format), left_out, losses }))
    }
}

/// Reads records, and makes rows of them.
struct RowReader {
    reader: FramedReader<Described>,
    format: Arc<Format>,
    /// How many records of other kinds were stepped over and not told of.
    left_out: Arc<AtomicU64>,
    losses: Arc<LossLog>,
}

impl Reader for RowReader {
    fn next_batch(&mut self) -> Result<Option<Batch>, Error> {
        let Some(batch) = self.reader.next_batch()? else {
            let count = self.left_out.swap(0, Ordering::Relaxed);
            if count > 0 {
                let what = "records of kinds that are not described were left out";
                self.losses.note(what, count);
            }
            return Ok(None);
        };
        columns::with_rows(&self.format, batch).map(Some)
    }

    fn seam(&self) -> Seam {
        self.reader.seam()
    }
}

/// Records of a described format, as a framed log.
#[derive(Debug)]
pub struct Described {
    format: Arc<Format>,
    ids: Ids,
    before: Before,
    /// Why the log does not begin as it should.
    wrong_front: Option<String>,
    record: Vec<u8>,
    /// How many records of other kinds have been stepped over.
    left_out: Arc<AtomicU64>,
    losses: Arc<LossLog>,
}

const NO_TIME: &str = "its time is beyond what can be held (1677 to 2262)";
const NOT_TIMED: &str = "no record before it says when it was";
const NO_NUMBER: &str = "its number is beyond what can be held (63 bits)";

impl Described {
    /// Records of this format, read in this context.
    pub fn new(format: Arc<Format>, context: &ReadContext) -> Self {
        let ids = Ids::new(&format, context);
        let (before, wrong_front, record) = (Before::default(), None, Vec::new());
        let losses = Arc::clone(&context.losses);
        Self { format, ids, before, wrong_front, record, left_out: Arc::default(), losses }
    }

    fn scan(&mut self) -> Scan<'_> {
        Scan::new(&self.format, &mut self.record)
    }

    /// The time and number of a record, and what is to be known for the next; or why it has none.
    #[inline]
    fn stamps(
        kind: &Kind,
        before: &Before,
        pos: u64,
        record: &[u8],
    ) -> Result<(i64, i64, Before), &'static str> {
        let (timestamp, after) = match &kind.timing {
            Some(timing) => timing.nanos(record, before).ok_or(NO_TIME)?,
            None => (before.nanos.ok_or(NOT_TIMED)?, *before),
        };
        let sequence = match kind.sequence {
            None => pos.cast_signed(),
            Some((spot, word)) => {
                let number = word.whole(spot.of(record)).ok_or(NO_NUMBER)?;
                i64::try_from(number).map_err(|_| NO_NUMBER)?
            }
        };
        Ok((timestamp, sequence, after))
    }
}

impl Framing for Described {
    #[inline]
    fn peek(&mut self, pos: u64, bytes: &[u8]) -> Result<Peek, Error> {
        if pos == 0 && self.wrong_front.is_some() {
            return Ok(Peek::Judge);
        }
        let format = &self.format;
        if let Some(len) = format.claim(bytes, LONG_CLAIM) {
            let behind = bytes.get(len..).and_then(|behind| behind.get(..format.glimpse));
            let Some(glimpse) = behind else { return Ok(Peek::More) };
            if !format.may_begin(glimpse) {
                return Ok(Peek::Judge);
            }
        }
        let (len, number) = match format.look(bytes, false) {
            Look::Record { len, kind } => (len, kind),
            Look::Needs(_) => return Ok(Peek::More),
            Look::Wrong(_) => return Ok(Peek::Judge),
        };
        let (Some(kind), Some((record, after))) =
            (format.kinds.get(number), bytes.split_at_checked(len))
        else {
            return Ok(Peek::Judge);
        };
        if format.needs_a_next(kind, len) {
            let Some(glimpse) = after.get(..format.glimpse) else { return Ok(Peek::More) };
            if !format.may_begin(glimpse) {
                return Ok(Peek::Judge);
            }
        }
        match kind.fate {
            Fate::Event => {}
            Fate::LeftOut => {
                self.left_out.fetch_add(1, Ordering::Relaxed);
                return Ok(Peek::Nothing { len });
            }
            Fate::Damage => return Ok(Peek::Judge),
        }
        let Ok((timestamp, sequence, after)) = Self::stamps(kind, &self.before, pos, record) else {
            return Ok(Peek::Judge);
        };
        let channel = self.ids.of(format, number, record)?;
        self.before = after;
        Ok(Peek::Event { len, head: EventHeader { timestamp, sequence, channel, payload: 0..len } })
    }

    fn judge(&mut self, log: &mut dyn ReadAt, pos: u64) -> io::Result<PositionContent> {
        if let (0, Some(reason)) = (pos, self.wrong_front.clone()) {
            return Ok(PositionContent::Damage { end: self.scan().next(log, 0)?, reason });
        }
        Ok(match self.scan().judge(log, pos)? {
            scan::Verdict::Record { end } => PositionContent::Record { end },
            scan::Verdict::Damage { end, wrong } => {
                PositionContent::Damage { end, reason: wrong.to_string() }
            }
            scan::Verdict::End => PositionContent::End { mark: 0 },
        })
    }

    /// Where the first record of the range begins. A range that begins in the log's header leads to the first
    /// record of all, even if that is of a later range; the front of the log to damage there, if it is wrong.
    fn find(&mut self, log: &mut dyn ReadAt, range: Range<u64>) -> io::Result<Option<u64>> {
        match self.scan().front(log)? {
            Front::Sound(begin) if range.start <= begin => Ok(Some(begin)),
            Front::Sound(begin) => self.scan().find(log, begin, range),
            Front::Wrong(reason) if range.start == 0 => {
                if self.format.is_marked && self.scan().find(log, 0, 0..1)? == Some(0) {
                    // Nothing is lost, and damage of no bytes would be none.
                    self.losses.note(format!("{reason}, and records begin at once"), 0);
                } else {
                    self.wrong_front = Some(reason);
                }
                Ok(Some(0))
            }
            // Without a front, records of one length are nowhere for sure.
            Front::Wrong(_) if !self.format.is_marked => Ok(None),
            Front::Wrong(_) => self.scan().find(log, 0, range),
        }
    }

    fn event(&mut self, pos: u64, record: &[u8]) -> Result<RecordContent, Error> {
        let broken = || Error::broken("a record was judged, and is none");
        let Look::Record { kind: number, .. } = self.format.look(record, true) else {
            return Err(broken());
        };
        let kind = self.format.kinds.get(number).ok_or_else(broken)?;
        match kind.fate {
            Fate::Event => {}
            Fate::LeftOut => {
                self.left_out.fetch_add(1, Ordering::Relaxed);
                return Ok(RecordContent::Nothing);
            }
            Fate::Damage => {
                let wrong = Wrong::Kind(self.format.key_of(record));
                return Ok(RecordContent::Damage(wrong.to_string(), None));
            }
        }
        let channel = self.ids.of(&self.format, number, record)?;
        match Self::stamps(kind, &self.before, pos, record) {
            Ok((timestamp, sequence, after)) => {
                self.before = after;
                let payload = 0..record.len();
                Ok(RecordContent::Event(EventHeader { timestamp, sequence, channel, payload }))
            }
            Err(reason) => Ok(RecordContent::Damage(reason.to_owned(), Some(channel))),
        }
    }
}

/// A piece of a log: an event, damage, or what stands in front of the first record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tile {
    /// Where it lies.
    pub range: Range<u64>,
    /// Why it is no event; nothing, if it is one.
    pub damage: Option<String>,
}

/// The pieces that these bytes are made of, by a description as JSON: what a reader gives, without a file. Pieces
/// lie end to end, from the first record (or the front, where that is damaged) to the end of the bytes.
///
/// For fuzz targets and tests.
pub fn tiles(options: Value, bytes: &[u8]) -> Result<Vec<Tile>, OptionsError> {
    let records = Records::new(options)?;
    let context = ReadContext::standalone("tiles");
    let mut framing = Described::new(Arc::clone(&records.format), &context);
    let broken =
        |e: &dyn std::fmt::Display| OptionsError { path: Vec::new(), message: e.to_string() };
    let mut log = bytes;
    let found = framing.find(&mut log, 0..u64::MAX).map_err(|e| broken(&e))?;
    let (mut at, mut tiles) = (found.unwrap_or(0), Vec::new());
    loop {
        let (end, damage) = match framing.judge(&mut log, at).map_err(|e| broken(&e))? {
            PositionContent::End { .. } => return Ok(tiles),
            PositionContent::Damage { end, reason } => (end, Some(reason)),
            PositionContent::Record { end } => {
                let record = bytes.get(at as usize..end as usize).unwrap_or_default();
                match framing.event(at, record).map_err(|e| broken(&e))? {
                    RecordContent::Damage(reason, _) => (end, Some(reason)),
                    _ => (end, None),
                }
            }
        };
        tiles.push(Tile { range: at..end, damage });
        at = end;
    }
}
