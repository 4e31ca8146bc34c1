//! A VEL file as a framed log: which channel a message is on, and when it happened. What a message is,
//! and how a file begins, is [`scan`]'s word.

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use sluice_core::files::{InputContent, LogFile};
use sluice_core::framed::{
    EventHeader, FramedReader, Framing, Peek, PositionContent, RecordContent, RecordOutline,
};
use sluice_core::window::ReadAt;
use sluice_core::{Clock, Damage, Error, ReadContext, Split, SplitStart, plugin};

use crate::channels::Ids;
use crate::scan::{self, Rules, spelled};
use crate::shape::{names_sensor, sensor};
use crate::wire::{HEAD_LEN, HEADER_LEN, Header, MAGIC, SIZE_LEN, VERSION};

/// Reads one split of a log.
pub type LogReader = FramedReader<Messages>;

/// Opens a log at a split, for the messages of a window of time. `clock` is what its times count from,
/// `rules.epoch` included.
pub fn open(
    window: plugin::TimeWindow,
    path: &Path,
    split: &Split,
    entry: SplitStart,
    (rules, clock): (Rules, Clock),
    context: &ReadContext,
) -> Result<LogReader, Error> {
    let (source, channels) = (source_of(path, context), Arc::clone(&context.channels));
    let ids = Ids::new(Arc::clone(&rules.names), source, clock, channels);
    let messages = Messages {
        rules,
        ids,
        head: None,
        input: path.to_string_lossy().into(),
        context: context.clone(),
    };
    // Where the first message is, the file's head says.
    let entry = if entry == SplitStart::At(0) { SplitStart::Search } else { entry };
    let log = LogFile::open_expecting(path, InputContent::Marked)?;
    LogReader::with_window(window, log, split, entry, messages, context)
}

/// The source of messages that name no sensor: the file's name without extensions.
fn source_of(path: &Path, context: &ReadContext) -> Arc<str> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    match name.split('.').find(|part| !part.is_empty()) {
        Some(stem) if stem != "-" => stem.into(),
        _ => Arc::clone(&context.source),
    }
}

/// The messages of a log.
#[derive(Debug)]
pub struct Messages {
    rules: Rules,
    ids: Ids,
    /// How the file begins, where that had to be known.
    head: Option<scan::Head>,
    input: Arc<str>,
    context: ReadContext,
}

impl Messages {
    /// Where reading the file from its front begins. What can be said of its head without reading on is
    /// said here.
    fn begin(&mut self, head: scan::Head) -> u64 {
        let begins = match &head {
            scan::Head::Sound { body, head } => {
                if head.minor > VERSION.1 {
                    self.note_version(head.major, head.minor);
                }
                *body
            }
            scan::Head::Empty => {
                let reason =
                    format!("the log is empty: at least its head of {HEAD_LEN} bytes is due");
                self.context.damage.report(Damage::new(&self.input, 0, 0, reason));
                0
            }
            scan::Head::Marred { body, found } => {
                let reason =
                    format!("{} was expected, {} is there", spelled(&MAGIC), spelled(found));
                let len = found.len() as u64;
                self.context.damage.report(Damage::new(&self.input, 0, len, reason));
                *body
            }
            scan::Head::Damaged { .. } | scan::Head::Refused { .. } => 0,
        };
        self.head = Some(head);
        begins
    }

    fn note_version(&self, major: u16, minor: u16) {
        let (known, input) = (VERSION.1, &self.input);
        let what = format!(
            "{input} is of version {major}.{minor}; it was read as version {major}.{known}, which is the \
             newest that is known here"
        );
        self.context.losses.note(what, 0);
    }

    fn head_of(
        &self,
        header: &Header,
        timestamp: i64,
        pos: u64,
        channel: sluice_core::ChannelId,
    ) -> EventHeader {
        let len = header.message_len() as usize;
        EventHeader { timestamp, sequence: pos.cast_signed(), channel, payload: HEADER_LEN..len }
    }
}

impl Framing for Messages {
    /// A message is beyond doubt if the header of another one follows it.
    #[inline]
    fn peek(&mut self, pos: u64, bytes: &[u8]) -> Result<Peek, Error> {
        if let (0, Some(scan::Head::Refused { at, what })) = (pos, &self.head) {
            return Err(Error::malformed(&*self.input, *at, what));
        }
        let Some(header) = bytes.first_chunk().and_then(Header::parse) else {
            return Ok(Peek::More);
        };
        if !self.rules.is_sound(&header) {
            return Ok(Peek::Ambiguous);
        }
        let Some((message, after)) = bytes.split_at_checked(header.message_len() as usize) else {
            return Ok(Peek::More);
        };
        match after.first_chunk().and_then(Header::parse) {
            Some(next) if self.rules.is_sound(&next) => {}
            Some(_) => return Ok(Peek::Ambiguous),
            None => return Ok(Peek::More),
        }
        let Some(timestamp) = self.rules.nanos(header.ms) else { return Ok(Peek::Ambiguous) };
        let channel = self.ids.of(&header, message.get(HEADER_LEN..).unwrap_or_default())?;
        let head = self.head_of(&header, timestamp, pos, channel);
        Ok(Peek::Event { len: message.len(), head })
    }

    fn classify(&mut self, log: &mut dyn ReadAt, pos: u64) -> io::Result<PositionContent> {
        if let (0, Some(scan::Head::Damaged { end, reason })) = (pos, &self.head) {
            return Ok(PositionContent::Damage { end: *end, reason: reason.clone() });
        }
        Ok(match scan::judge(log, pos, &self.rules)? {
            scan::Verdict::Message { end, .. } => PositionContent::Record { end },
            scan::Verdict::Damage { end, reason } => {
                PositionContent::Damage { end, reason: reason.to_string() }
            }
            scan::Verdict::End => PositionContent::End { mark: SIZE_LEN as u64 },
        })
    }

    /// Where the first message of the range begins. A range that begins in the file's head leads to the
    /// first message of all, even if that is of a later range; the front of the file to damage there.
    fn find(&mut self, log: &mut dyn ReadAt, range: Range<u64>) -> io::Result<Option<u64>> {
        if range.start == 0 {
            let head = scan::head(log, &self.rules)?;
            return Ok(Some(self.begin(head)));
        }
        let claimed = scan::file_head(log)?.map_or(HEAD_LEN as u64, |(_, head)| head.body());
        if range.start >= claimed {
            return scan::find(log, range, &self.rules);
        }
        match scan::body(log, &self.rules)? {
            Some(body) => Ok(Some(body)),
            None => scan::find(log, range.start.max(HEAD_LEN as u64)..range.end, &self.rules),
        }
    }

    fn event(&mut self, pos: u64, message: &[u8]) -> Result<RecordContent, Error> {
        let broken = || Error::internal("a message was judged without a header or a time");
        let header = message.first_chunk().and_then(Header::parse).ok_or_else(broken)?;
        let time = self.rules.time(header.ms).ok_or_else(broken)?;
        let channel = self.ids.of(&header, message.get(HEADER_LEN..).unwrap_or_default())?;
        let nearest = if time < 0 { i64::MIN } else { i64::MAX };
        let (timestamp, is_wide) =
            i64::try_from(time).map_or((nearest, true), |timestamp| (timestamp, false));
        let head = self.head_of(&header, timestamp, pos, channel);
        Ok(if is_wide { RecordContent::Wide(head, time) } else { RecordContent::Event(head) })
    }

    fn outline(&mut self, bytes: &[u8]) -> Result<Option<RecordOutline>, Error> {
        let header = bytes.first_chunk().and_then(Header::parse);
        let Some(header) = header.filter(|header| self.rules.is_sound(header)) else {
            return Ok(None);
        };
        let Some(timestamp) = self.rules.nanos(header.ms) else { return Ok(None) };
        let front = bytes.get(HEADER_LEN..).unwrap_or_default();
        let (type_id, version) = (header.type_id, header.version);
        if names_sensor(type_id, version) && sensor(type_id, version, front).is_none() {
            return Ok(None);
        }
        // Its channel is one of the log's, whether or not the message is wanted.
        self.ids.of(&header, front)?;
        Ok(Some(RecordOutline { len: header.message_len(), timestamp }))
    }

    fn confirms(&self, bytes: &[u8]) -> bool {
        let next = bytes.first_chunk().and_then(Header::parse);
        next.is_some_and(|next| self.rules.is_sound(&next))
    }
}
