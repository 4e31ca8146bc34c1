//! Decides which records of a chunk without a checksum are believed: as outside of chunks, those
//! that other records follow. Searches for the next one behind damage.

use std::ops::RangeInclusive;

use super::{Batcher, looks_like_message, may_be_message};
use crate::table::ChannelTable;
use crate::walk::implausible;
use crate::wire::{
    ChannelRecord, ChunkHead, HEAD, Head, MessageHead, SchemaRecord, looks_like_channel, min_len,
    op, record_name,
};

/// What is known of the messages of a chunk without a checksum.
#[derive(Clone, Debug)]
pub(crate) struct NoCrc {
    /// Their times; `None` if the chunk does not say.
    times: Option<RangeInclusive<u64>>,
}

impl NoCrc {
    /// `None` for a chunk with a checksum.
    pub(crate) fn of_chunk(head: &ChunkHead) -> Option<Self> {
        let times = head.start_time..=head.end_time;
        let times = Some(times).filter(|times| *times.end() > 0 && !times.is_empty());
        (head.crc == 0).then_some(Self { times })
    }

    /// Where the next record that is believed begins, and what is wrong before it, if the one at
    /// `at` is not.
    pub(super) fn damage(
        &self,
        plain: &[u8],
        at: usize,
        (batcher, table): (&Batcher, &ChannelTable),
    ) -> Option<(usize, String)> {
        let unknown = || batcher.likely_times(&[]);
        let times = self.times.clone().unwrap_or_else(unknown);
        let records = Records { plain, table, times };
        let reason = records.suspicion(at)?;
        let end = records.end_of(at).filter(|end| records.goes_on(*end));
        Some((end.unwrap_or_else(|| records.search(at + 1)), reason))
    }
}

/// The bytes of a declaration that show what it is. Of hostile chunks, many places are looked at.
const MAX_DECLARATION: usize = 1 << 10;

/// Whether the content of a schema or channel starts here. Long ones are not recognized.
fn declares(opcode: u8, content: &[u8]) -> bool {
    let content = content.get(..MAX_DECLARATION).unwrap_or(content);
    match opcode {
        op::SCHEMA => SchemaRecord::parse(content).is_some(),
        _ => ChannelRecord::parse(content).is_some(),
    }
}

/// The records of a chunk.
struct Records<'p> {
    plain: &'p [u8],
    table: &'p ChannelTable,
    times: RangeInclusive<u64>,
}

impl<'p> Records<'p> {
    /// What looks like the head of a record at `at`, and what follows it.
    fn head(&self, at: usize) -> Option<(Head, &'p [u8])> {
        let (head, content) = self.plain.get(at..)?.split_at_checked(HEAD as usize)?;
        Head::parse(head).filter(|head| head.opcode != 0).map(|head| (head, content))
    }

    /// The end of the record at `at`, if it is one that fits.
    fn end_of(&self, at: usize) -> Option<usize> {
        let (head, content) = self.head(at)?;
        let len = usize::try_from(head.len).ok().filter(|len| *len <= content.len())?;
        Some(at + HEAD as usize + len)
    }

    /// Why the record at `at` is not one, or not what it says; `None` if it is believed.
    fn suspicion(&self, at: usize) -> Option<String> {
        let (Some((head, content)), Some(end)) = (self.head(at), self.end_of(at)) else {
            return Some(format!("what is at byte {at} of a chunk's records is no record"));
        };
        let content = content.get(..head.len as usize).unwrap_or_default();
        let (opcode, name) = (head.opcode, record_name(head.opcode));
        if opcode == op::MESSAGE && looks_like_channel(content) {
            return Some(format!("a {name} record looks like a Channel record"));
        }
        if may_be_message(opcode) && looks_like_message(self.table, content, &self.times) {
            return Some(format!("a record of the unknown kind {opcode:02x} looks like a message"));
        }
        let reason = || format!("no record follows a {name} record of {} bytes", head.len);
        (!self.goes_on(end)).then(reason)
    }

    /// Whether a record or the end of the chunk is at `at`. A record may have a wrong kind or a
    /// wrong length.
    fn goes_on(&self, at: usize) -> bool {
        let Some((head, content)) = self.head(at) else { return at == self.plain.len() };
        let end = self.end_of(at);
        let is_likely = match head.opcode {
            op::MESSAGE if end.is_some() => MessageHead::parse(content)
                .is_some_and(|(message, _)| self.times.contains(&message.log_time)),
            op::SCHEMA | op::CHANNEL => declares(head.opcode, content),
            _ => false,
        };
        is_likely
            || looks_like_message(self.table, content, &self.times)
            || end.is_some_and(|end| end == self.plain.len() || self.may_start(end))
    }

    /// Whether what is at `at` looks like a record of a chunk.
    fn may_start(&self, at: usize) -> bool {
        self.head(at).zip(self.end_of(at)).is_some_and(|((head, content), _)| {
            let is_kind = matches!(head.opcode, op::SCHEMA | op::CHANNEL | op::MESSAGE);
            (is_kind || min_len(head.opcode).is_none()) && implausible(head, content).is_none()
        })
    }

    /// The next place from `from` on where a record is believed; the end if there is none.
    fn search(&self, from: usize) -> usize {
        let is_believed = |at: &usize| {
            let head = self.head(*at).filter(|(head, _)| min_len(head.opcode).is_some());
            let is_message = |(head, content): (Head, &[u8])| {
                head.opcode != op::MESSAGE || looks_like_message(self.table, content, &self.times)
            };
            let end = head.filter(|_| self.may_start(*at)).filter(|head| is_message(*head));
            end.and_then(|_| self.end_of(*at)).is_some_and(|end| self.goes_on(end))
        };
        (from..self.plain.len()).find(is_believed).unwrap_or(self.plain.len())
    }
}
