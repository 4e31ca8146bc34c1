//! Turns messages into batches: those of a chunk, or of a file without chunks.

#![warn(clippy::indexing_slicing)]

use std::ops::RangeInclusive;

use bytes::Bytes;
use sluice_io::frames;
use sluice_model::plugin::TimeWindow;
use sluice_model::{Batch, BatchBuilder, Error, PayloadOffset};

use crate::salvage::CutChunk;
use crate::table::{ChannelTable, Slot};
use crate::wire::{HEAD, Head, MESSAGE_HEAD, MessageHead, min_len, op, record_name};

mod no_crc;

pub(crate) use no_crc::NoCrc;

/// The most events of a batch.
const MAX_EVENTS: usize = 8192;
/// A day in nanoseconds.
const DAY: u64 = 86_400_000_000_000;
/// The bytes of payloads after which a batch is complete.
const MAX_BYTES: usize = 1 << 20;
/// The segments after which a batch is complete: each keeps a block, of which it may need little.
const MAX_SEGMENTS: u32 = 8;
/// The records up to this length whose payloads are copied: a block is much longer.
const MAX_COPIED: usize = 64 << 10;

/// What is wrong with a record, and where it is in its chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    /// The offset of the record.
    pub(crate) at: u64,
    /// Its length.
    pub(crate) len: u64,
    pub(crate) reason: String,
}

/// Collects events.
#[derive(Default)]
pub(crate) struct Batcher {
    builder: BatchBuilder,
    /// The segment in use: its bytes and its number in the builder.
    segment: Option<(Bytes, u32)>,
    bytes: usize,
    window: TimeWindow,
    /// The time of the last message.
    last_time: Option<i64>,
    /// The events in batches that were taken.
    taken: u64,
    /// Messages whose time of publishing is lost.
    pub(crate) published: u64,
    /// The topic of a message in CDR that is compressed for itself, as ROS 2 does on request.
    pub(crate) compressed: Option<String>,
}

impl Batcher {
    pub(crate) fn new(window: TimeWindow) -> Self {
        Self { window, ..Self::default() }
    }

    /// Whether the batch is long enough.
    pub(crate) fn is_full(&self) -> bool {
        self.builder.len() >= MAX_EVENTS || self.bytes >= MAX_BYTES
    }

    /// Whether the batch keeps as many blocks as it may. To be asked between chunks.
    pub(crate) fn keeps_enough(&self) -> bool {
        self.segment.as_ref().is_some_and(|(_, number)| *number + 1 >= MAX_SEGMENTS)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.builder.is_empty()
    }

    /// The events so far; `None` if there are none.
    pub(crate) fn take(&mut self) -> Option<Batch> {
        (self.segment, self.bytes) = (None, 0);
        let builder = std::mem::take(&mut self.builder);
        self.taken += builder.len() as u64;
        (!builder.is_empty()).then(|| builder.finish())
    }

    /// How many events there were, in all batches.
    pub(crate) fn count(&self) -> u64 {
        self.taken + self.builder.len() as u64
    }

    /// The number of `bytes` as a segment of the batch.
    fn segment(&mut self, bytes: &Bytes) -> u32 {
        if let Some((known, number)) = &self.segment
            && known.as_ptr() == bytes.as_ptr()
            && known.len() == bytes.len()
        {
            return *number;
        }
        let number = self.builder.segment(bytes.clone());
        self.segment = Some((bytes.clone(), number));
        number
    }

    /// A chunk with this first time comes, from which every split may start: what was read before
    /// it must not matter.
    pub(crate) fn start_chunk(&mut self, first: Option<u64>) {
        self.last_time = first.filter(|time| *time > 0).and_then(|time| i64::try_from(time).ok());
    }

    /// The times that a message whose content starts with these bytes may have: within a day of
    /// the last one. That of the first one is near its time of publishing.
    pub(crate) fn likely_times(&self, content: &[u8]) -> RangeInclusive<u64> {
        let published = || MessageHead::parse(content).map(|(head, _)| head.publish_time);
        let near = match self.last_time {
            Some(time) => time.unsigned_abs(),
            // Small numbers may be anything.
            None => match published().filter(|time| *time > 365 * DAY) {
                Some(time) => time,
                None => return RangeInclusive::new(1, 0),
            },
        };
        near.saturating_sub(DAY)..=near.saturating_add(DAY)
    }

    /// Adds the message whose content is `block[at..at + len]`. `Err` says why it is damage.
    #[inline]
    pub(crate) fn add(
        &mut self,
        table: &mut ChannelTable,
        block: &Bytes,
        at: usize,
        len: usize,
    ) -> Result<Result<(), String>, Error> {
        let content = at.checked_add(len).and_then(|end| block.get(at..end));
        let Some((head, payload)) = content.and_then(MessageHead::parse) else {
            return Ok(Err("a Message record is cut off".to_owned()));
        };
        let id = match table.slot(head.channel)? {
            Slot::Channel { is_needed: false, .. } => return Ok(Ok(())),
            Slot::Channel { id, .. } => id,
            Slot::Conflicting => {
                return Ok(Err(format!(
                    "a message of channel {}, which is declared twice, differently",
                    head.channel
                )));
            }
            Slot::Undeclared => {
                return Ok(Err(format!(
                    "a message of channel {}, which is not declared before it",
                    head.channel
                )));
            }
        };
        let Ok(time) = i64::try_from(head.log_time) else {
            return Ok(Err(format!(
                "the time of a message, {} ns, is after the year 2262",
                head.log_time
            )));
        };
        self.last_time = Some(time);
        if !self.window.wants_time(time) {
            return Ok(Ok(()));
        }
        // CDR begins with the number of its form, of which the first byte is 0.
        if payload.starts_with(&frames::MAGIC)
            && let Some(topic) = table.cdr_topic(head.channel)
        {
            self.compressed = Some(topic);
            return Ok(Ok(()));
        }
        self.published += u64::from(head.publish_time != head.log_time);
        let offset = u32::try_from(at + MESSAGE_HEAD).ok();
        match offset.filter(|_| block.len() > MAX_COPIED) {
            Some(offset) => {
                let place = PayloadOffset { segment: self.segment(block), offset };
                self.builder.push(time, head.sequence.into(), id, payload, place);
            }
            None => self.builder.push_copy(time, head.sequence.into(), id, payload),
        }
        self.bytes += payload.len() + MESSAGE_HEAD;
        Ok(Ok(()))
    }
}

/// Whether a record of this unknown kind may be a damaged message. Kinds from 0x80 on are private to
/// their writers, and may have fields like those of messages: of these, one wrong bit has to make
/// the kind of that of a message.
pub(crate) fn may_be_message(opcode: u8) -> bool {
    min_len(opcode).is_none() && (opcode < 0x80 || (opcode ^ op::MESSAGE).is_power_of_two())
}

/// Whether a record whose content starts with these bytes may be a message: one of a declared
/// channel, with one of these times, and not just zeros.
pub(crate) fn looks_like_message(
    table: &ChannelTable,
    content: &[u8],
    times: &RangeInclusive<u64>,
) -> bool {
    MessageHead::parse(content).is_some_and(|(head, _)| {
        let is_blank = content.iter().take(MESSAGE_HEAD).all(|byte| *byte == 0);
        times.contains(&head.log_time) && table.has_channel(head.channel) && !is_blank
    })
}

/// The records of a chunk, which are read until the batch is full.
pub(crate) struct Unit {
    plain: Bytes,
    at: usize,
    /// What was wrong so far: at most [`MAX_PROBLEMS`] are kept.
    problems: Vec<Problem>,
    more_problems: u64,
    /// What else is known of a chunk that is cut off.
    cut: Option<CutChunk>,
    /// Or of a whole one without a checksum.
    no_crc: Option<NoCrc>,
}

/// The most problems of a chunk that are told apart.
const MAX_PROBLEMS: usize = 16;

impl Unit {
    pub(crate) fn new(plain: Bytes, no_crc: Option<NoCrc>) -> Self {
        Self { plain, at: 0, problems: Vec::new(), more_problems: 0, cut: None, no_crc }
    }

    /// The records of a chunk that is cut off, and which its checksum cannot verify. They are read
    /// up to the first one that is incomplete or wrong.
    pub(crate) fn unverified(cut: CutChunk) -> Self {
        Self { cut: Some(cut.clone()), ..Self::new(cut.plain, None) }
    }

    /// Where the damage to a chunk that is cut off starts, and why; `None` for others.
    pub(crate) fn cut_off(&self) -> Option<(u64, String)> {
        self.cut.as_ref().map(|cut| cut.damage(self.at as u64))
    }

    /// What was wrong, and how many problems are not listed.
    pub(crate) fn problems(self) -> (Vec<Problem>, u64) {
        (self.problems, self.more_problems)
    }

    fn problem(&mut self, at: usize, len: u64, reason: String) {
        let (at, is_listed) = (at as u64, self.problems.len() < MAX_PROBLEMS);
        match self.problems.last_mut() {
            // Neighbours with the same reason are one range.
            Some(last) if last.reason == reason && last.at + last.len == at => last.len += len,
            _ if is_listed => self.problems.push(Problem { at, len, reason }),
            _ => self.more_problems += 1,
        }
    }

    /// Reads records until the batch is full or the chunk ends. Returns whether it ended.
    pub(crate) fn read(
        &mut self,
        batcher: &mut Batcher,
        table: &mut ChannelTable,
    ) -> Result<bool, Error> {
        let plain = self.plain.clone();
        while let Some(rest) = plain.get(self.at..).filter(|rest| !rest.is_empty()) {
            if batcher.is_full() {
                return Ok(false);
            }
            let (at, left) = (self.at, rest.len() as u64);
            let damage =
                self.no_crc.as_ref().and_then(|no_crc| no_crc.damage(&plain, at, (batcher, table)));
            if let Some((end, reason)) = damage {
                self.problem(at, (end - at) as u64, reason);
                self.at = end;
                continue;
            }
            let head = Head::parse(rest).filter(|head| head.record_len() <= left);
            let Some(head) = head.filter(|head| head.opcode != 0) else {
                if self.cut.is_some() {
                    return Ok(true);
                }
                let reason = format!(
                    "what is at byte {at} of a chunk's records is no record; the last {left} bytes \
                     of it were not read"
                );
                self.problem(at, left, reason);
                self.at = plain.len();
                return Ok(true);
            };
            let (content_at, len) = (at + HEAD as usize, head.len as usize);
            let content = plain.get(content_at..content_at + len).unwrap_or_default();
            if head.opcode == op::MESSAGE && !self.may_have_time(content) {
                return Ok(true);
            }
            let read = match head.opcode {
                op::MESSAGE => batcher.add(table, &plain, content_at, len)?,
                op::SCHEMA | op::CHANNEL => table.declare(head.opcode, content),
                op::HEADER..=op::DATA_END => {
                    Err(format!("a {} record is in a chunk", record_name(head.opcode)))
                }
                _ => Ok(()),
            };
            if let Err(reason) = read {
                if self.cut.is_some() {
                    return Ok(true);
                }
                self.problem(at, head.record_len(), reason);
            }
            self.at = content_at + len;
        }
        Ok(true)
    }

    /// Whether the time of a message is one that the chunk may have.
    fn may_have_time(&self, content: &[u8]) -> bool {
        let Some(cut) = &self.cut else { return true };
        MessageHead::parse(content).is_some_and(|(head, _)| cut.times.contains(&head.log_time))
    }
}
