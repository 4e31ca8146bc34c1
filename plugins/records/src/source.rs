//! The source plugin: logs, cut into splits if reading can start anywhere.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use sluice_io::ReadBuffer;
use sluice_io::files::{self, InputContent};
use sluice_kit::framed::{
    EventHeader, FramedReader, Framing, Peek, PositionContent, RecordContent,
};
use sluice_kit::window::ReadAt;
use sluice_model::{
    Batch, Error, Input, LossLog, OptionsError, PluginFactory, Query, ReadContext, Reader,
    Registry, Seam, Source, Split, SplitStart, options as core_options,
};

use crate::channels::ChannelIds;
use crate::classify::{Classification, LONG_RECORD, Rejection};
use crate::columns;
use crate::compile::compile;
use crate::format::{Disposition, RecordFormat, RecordKind};
use crate::options::Options;
use crate::scan::{self, LogStart, RecordScanner};
use crate::time::TimeState;

/// Reads binary logs that are described in the pipeline file.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(try_from = "Options")]
#[schemars(with = "Options", rename = "Records")]
pub struct RecordsSource {
    options: Options,
    format: Arc<RecordFormat>,
}

impl TryFrom<Options> for RecordsSource {
    type Error = OptionsError;

    fn try_from(options: Options) -> Result<Self, OptionsError> {
        let format = Arc::new(compile(&options)?);
        Ok(Self { options, format })
    }
}

/// Parses and compiles options, so that errors of both name their key.
fn make(options: Value, _: &Registry) -> Result<Box<dyn Source>, OptionsError> {
    RecordsSource::new(options).map(|records| Box::new(records) as _)
}

sluice_model::register! {
    source "records": RecordsSource,
    make: PluginFactory::Source(make),
    about: "reads binary logs of your own format, which the pipeline file describes",
    sample: include_str!("../samples/records.toml"),
}

impl RecordsSource {
    /// A source with these options.
    pub fn new(options: Value) -> Result<Self, OptionsError> {
        core_options::read::<Options>(options)?.try_into()
    }
}

impl Source for RecordsSource {
    fn inputs(&self) -> Result<Vec<Input>, Error> {
        files::expand(&self.options.path.0)
    }

    fn has_own_rows(&self) -> bool {
        true
    }

    fn splits(&self, target: u64, _: &Query) -> Result<Vec<Split>, Error> {
        let inputs = self.inputs()?;
        files::refuse_foreign(&inputs, InputContent::Any, "a described log")?;
        if self.format.can_be_entered() {
            return Split::from_files(inputs, target, |_, len| Ok(0..len));
        }
        // Sequential formats are read whole. An empty log is not a stream, so its length is known.
        let whole = |input: Input| Split::whole(input.path, input.bytes.filter(|len| *len == 0));
        Ok(inputs.into_iter().map(whole).collect())
    }

    fn read<'s>(
        &'s self,
        split: &Split,
        entry: SplitStart,
        context: &ReadContext,
    ) -> Result<Box<dyn Reader + 's>, Error> {
        // The start of the log determines where its first record is.
        let entry = if entry == SplitStart::At(0) { SplitStart::Search } else { entry };
        let records = RecordFraming::new(Arc::clone(&self.format), context);
        let (skipped, losses) = (Arc::clone(&records.skipped), Arc::clone(&context.losses));
        let log = context.open_log(&split.input, InputContent::Any)?;
        let reader = FramedReader::new(log, split, entry, records, context)?;
        Ok(Box::new(RowReader { reader, format: Arc::clone(&self.format), skipped, losses }))
    }
}

/// Reads records and adds their rows.
struct RowReader {
    reader: FramedReader<RecordFraming>,
    format: Arc<RecordFormat>,
    /// Skipped records of other kinds that were not reported yet.
    skipped: Arc<AtomicU64>,
    losses: Arc<LossLog>,
}

impl Reader for RowReader {
    fn next_batch(&mut self) -> Result<Option<Batch>, Error> {
        let Some(batch) = self.reader.next_batch()? else {
            let count = self.skipped.swap(0, Ordering::Relaxed);
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

/// Frames the records of a log.
#[derive(Debug)]
pub(crate) struct RecordFraming {
    format: Arc<RecordFormat>,
    ids: ChannelIds,
    time_state: TimeState,
    /// Why the start of the log is not as described.
    invalid_start: Option<String>,
    record: ReadBuffer,
    /// How many records of other kinds were skipped.
    skipped: Arc<AtomicU64>,
    losses: Arc<LossLog>,
}

const NOT_TIMED: &str = "its kind has no time, and no earlier record has one";
const UNMARKED: &str = "nothing marks the records of this format, so none is found behind \
                        compressed data that is damaged: the rest of the log is not read";
const UNCOUNTED: &str = "compressed data is damaged: if counters that wrap (`wraps`) did so in \
                         what is missing, times behind it are wrong by whole periods";
const NO_NUMBER: &str = "its number is out of range (63 bits)";

impl RecordFraming {
    /// Framing for records of this format.
    pub(crate) fn new(format: Arc<RecordFormat>, context: &ReadContext) -> Self {
        let ids = ChannelIds::new(&format, context);
        let (time_state, invalid_start, record) =
            (TimeState::default(), None, ReadBuffer::default());
        let losses = Arc::clone(&context.losses);
        Self { format, ids, time_state, invalid_start, record, skipped: Arc::default(), losses }
    }

    fn scan(&mut self) -> RecordScanner<'_> {
        RecordScanner::new(&self.format, &mut self.record)
    }

    /// The time and number of a record, and the time state for the next one; or why it has none.
    #[inline]
    fn time_and_sequence(
        kind: &RecordKind,
        time_state: &TimeState,
        pos: u64,
        record: &[u8],
    ) -> Result<(i64, i64, TimeState), &'static str> {
        let (timestamp, after) = match &kind.timing {
            Some(timing) => timing.nanos(record, time_state).ok_or_else(|| timing.fault(record))?,
            None => (time_state.nanos.ok_or(NOT_TIMED)?, *time_state),
        };
        let sequence = match kind.sequence {
            None => pos.cast_signed(),
            Some((spot, word)) => {
                let number = word.whole(spot.bytes_in(record)).ok_or(NO_NUMBER)?;
                i64::try_from(number).map_err(|_| NO_NUMBER)?
            }
        };
        Ok((timestamp, sequence, after))
    }
}

impl Framing for RecordFraming {
    #[inline]
    fn peek(&mut self, pos: u64, bytes: &[u8]) -> Result<Peek, Error> {
        if pos == 0 && self.invalid_start.is_some() {
            return Ok(Peek::Ambiguous);
        }
        let format = &self.format;
        if let Some(len) = format.claimed_len(bytes, LONG_RECORD) {
            let behind = bytes.get(len..).and_then(|behind| behind.get(..format.lookahead));
            let Some(lookahead) = behind else { return Ok(Peek::More) };
            if !format.may_start(lookahead) {
                return Ok(Peek::Ambiguous);
            }
        }
        let (len, number) = match format.classify(bytes, false) {
            Classification::Record { len, kind } => (len, kind),
            Classification::Incomplete(_) => return Ok(Peek::More),
            Classification::Rejected(_) => return Ok(Peek::Ambiguous),
        };
        let (Some(kind), Some((record, after))) =
            (format.kinds.get(number), bytes.split_at_checked(len))
        else {
            return Ok(Peek::Ambiguous);
        };
        if format.needs_successor(kind, len) {
            let Some(lookahead) = after.get(..format.lookahead) else { return Ok(Peek::More) };
            if !format.may_start(lookahead) {
                return Ok(Peek::Ambiguous);
            }
        }
        match kind.disposition {
            Disposition::Event => {}
            Disposition::Skip => {
                self.skipped.fetch_add(1, Ordering::Relaxed);
                return Ok(Peek::Skip { len });
            }
            Disposition::Damage => return Ok(Peek::Ambiguous),
        }
        let Ok((timestamp, sequence, after)) =
            Self::time_and_sequence(kind, &self.time_state, pos, record)
        else {
            return Ok(Peek::Ambiguous);
        };
        let channel = self.ids.resolve(format, number, record)?;
        self.time_state = after;
        Ok(Peek::Event { len, head: EventHeader { timestamp, sequence, channel, payload: 0..len } })
    }

    fn classify(&mut self, log: &mut dyn ReadAt, pos: u64) -> Result<PositionContent, Error> {
        if let (0, Some(reason)) = (pos, self.invalid_start.clone()) {
            return Ok(PositionContent::Damage { end: self.scan().next(log, 0)?, reason });
        }
        Ok(match self.scan().classify_at(log, pos)? {
            scan::ScanOutcome::Record { end } => PositionContent::Record { end },
            scan::ScanOutcome::Damage { end, rejection } => {
                PositionContent::Damage { end, reason: rejection.to_string() }
            }
            scan::ScanOutcome::End => PositionContent::End { mark: 0 },
        })
    }

    /// The position of the first record of `range`.
    ///
    /// A range that starts in the log's header leads to the first record of the log, even if that
    /// is in a later range. If the start of the log is wrong, the range at 0 leads to the damage
    /// there.
    fn find(&mut self, log: &mut dyn ReadAt, range: Range<u64>) -> Result<Option<u64>, Error> {
        match self.scan().start_of_log(log)? {
            LogStart::Valid(begin) if range.start <= begin => Ok(Some(begin)),
            LogStart::Valid(begin) => self.scan().find(log, begin, range),
            LogStart::Invalid(reason) if range.start == 0 => {
                if self.format.is_marked && self.scan().find(log, 0, 0..1)? == Some(0) {
                    // Nothing is lost, and damage must not be empty.
                    self.losses.note(format!("{reason}; records start at the first byte"), 0);
                } else {
                    self.invalid_start = Some(reason);
                }
                Ok(Some(0))
            }
            // Without a valid start, unmarked records have no known position.
            LogStart::Invalid(_) if !self.format.is_marked => Ok(None),
            LogStart::Invalid(_) => self.scan().find(log, 0, range),
        }
    }

    fn find_after_gap(
        &mut self,
        log: &mut dyn ReadAt,
        range: Range<u64>,
    ) -> Result<Option<u64>, Error> {
        // A record without a time has that of the one before, which may be missing.
        self.time_state.nanos = None;
        if !self.format.is_marked {
            self.losses.note(UNMARKED, 0);
        } else if self.format.has_counters() {
            self.losses.note(UNCOUNTED, 0);
        }
        self.scan().find_after_gap(log, range.start)
    }

    fn is_open_ended(&self, record: &[u8]) -> bool {
        let kind = self.format.kind_of(record).and_then(|number| self.format.kinds.get(number));
        let shows_end =
            |kind: &RecordKind| kind.fixed_len.is_some() || kind.is_checked(record.len());
        kind.is_some_and(|kind| self.format.ends_at_sync(kind) && !shows_end(kind))
    }

    fn event(&mut self, pos: u64, record: &[u8]) -> Result<RecordContent, Error> {
        let broken = || Error::internal("a classified record is not a record");
        let Classification::Record { kind: number, .. } = self.format.classify(record, true) else {
            return Err(broken());
        };
        let kind = self.format.kinds.get(number).ok_or_else(broken)?;
        match kind.disposition {
            Disposition::Event => {}
            Disposition::Skip => {
                self.skipped.fetch_add(1, Ordering::Relaxed);
                return Ok(RecordContent::Skip);
            }
            Disposition::Damage => {
                let rejection = Rejection::UnknownKind(self.format.key_of(record));
                return Ok(RecordContent::Damage(rejection.to_string(), None));
            }
        }
        let channel = self.ids.resolve(&self.format, number, record)?;
        match Self::time_and_sequence(kind, &self.time_state, pos, record) {
            Ok((timestamp, sequence, after)) => {
                self.time_state = after;
                let payload = 0..record.len();
                Ok(RecordContent::Event(EventHeader { timestamp, sequence, channel, payload }))
            }
            Err(reason) => Ok(RecordContent::Damage(reason.to_owned(), Some(channel))),
        }
    }
}

/// A piece of a log: an event, damage, or what precedes the first record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tile {
    /// Its position.
    pub range: Range<u64>,
    /// Why it is not an event; `None` if it is one.
    pub damage: Option<String>,
}

/// What is at position `at` of `log`, or `None` at its end.
///
/// Looks at no event, so that a wrong time or kind is not damage here. For tests.
pub fn tile_at(
    source: &RecordsSource,
    log: &mut dyn ReadAt,
    at: u64,
) -> Result<Option<Tile>, Error> {
    let mut record = ReadBuffer::default();
    Ok(match RecordScanner::new(&source.format, &mut record).classify_at(log, at)? {
        scan::ScanOutcome::Record { end } => Some(Tile { range: at..end, damage: None }),
        scan::ScanOutcome::Damage { end, rejection } => {
            Some(Tile { range: at..end, damage: Some(rejection.to_string()) })
        }
        scan::ScanOutcome::End => None,
    })
}

/// The pieces of `bytes` under a description as JSON: what a reader would return, without a file.
///
/// Consecutive, from the first record (or from 0, if the start is damaged) to the end. For tests
/// and fuzz targets.
pub fn tiles(options: Value, bytes: &[u8]) -> Result<Vec<Tile>, OptionsError> {
    let records = RecordsSource::new(options)?;
    let context = ReadContext::standalone("tiles");
    let mut framing = RecordFraming::new(Arc::clone(&records.format), &context);
    let broken =
        |e: &dyn std::fmt::Display| OptionsError { path: Vec::new(), message: e.to_string() };
    let mut log = bytes;
    let found = framing.find(&mut log, 0..u64::MAX).map_err(|e| broken(&e))?;
    let (mut at, mut tiles) = (found.unwrap_or(0), Vec::new());
    loop {
        let (end, damage) = match framing.classify(&mut log, at).map_err(|e| broken(&e))? {
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
