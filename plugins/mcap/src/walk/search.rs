//! Searches for the next record that can be believed, behind damage.

#![warn(clippy::indexing_slicing)]

use std::ops::Range;

use sluice_model::Error;

use super::shape::may_start;
use super::{CHAIN, FoundAt, MAX_KEPT, Walk};
use crate::wire::{HEAD, Head, MAGIC, op};

/// The bytes searched at a time.
const SEARCH_STEP: u64 = 64 << 10;

impl Walk {
    /// The next position from `from` on where a record can be believed; the end of the file if
    /// there is none. `is_channel` knows the channels of messages outside of chunks; without it,
    /// messages and declarations are taken for the contents of a broken chunk, and not believed.
    pub(crate) fn search(
        &mut self,
        from: u64,
        is_channel: Option<&dyn Fn(u16) -> bool>,
    ) -> Result<u64, Error> {
        // Nothing leads past a chunk that is known to be there.
        let stop = if self.is_anchor(from) { Some(from) } else { self.next_anchor(from) };
        let to = stop.unwrap_or(u64::MAX);
        let found = self.find(from..to, is_channel, true)?;
        Ok(found.unwrap_or_else(|| to.min(self.end())))
    }

    /// Where the record at `at`, whose length is wrong, ends at the latest: at the next one between
    /// chunks that can be believed, from `from` on, or a chunk that is known; `None` beyond so many
    /// bytes. Forgets nothing of a stream.
    pub(crate) fn next_behind(
        &mut self,
        at: u64,
        from: u64,
        most: u64,
    ) -> Result<Option<u64>, Error> {
        let to = at.saturating_add(most);
        let stop = self.next_anchor(at).filter(|anchor| *anchor <= to);
        let next = self.find(from..stop.unwrap_or(to), None, false)?.or(stop);
        Ok(next.filter(|next| *next >= from))
    }

    /// The first position in a range where a record can be believed. `forgets` what it has passed
    /// of a stream.
    pub(crate) fn find(
        &mut self,
        range: Range<u64>,
        is_channel: Option<&dyn Fn(u16) -> bool>,
        forgets: bool,
    ) -> Result<Option<u64>, Error> {
        let mut at = range.start;
        loop {
            let want = range.end.saturating_sub(at).saturating_add(HEAD).min(SEARCH_STEP);
            let view = self.view(at, want)?;
            if view.is_empty() || self.is_cancelled() {
                return Ok(None);
            }
            for (offset, window) in view.windows(HEAD as usize).enumerate() {
                let here = at + offset as u64;
                if here >= range.end {
                    return Ok(None);
                }
                if may_start(window) && self.is_believable(here, is_channel)? {
                    return Ok(Some(here));
                }
            }
            if forgets && (!self.keeps_bytes || at.saturating_sub(range.start) > MAX_KEPT) {
                self.forget(at);
            }
            let done = (view.len() as u64 + 1).saturating_sub(HEAD);
            at += if done == 0 { view.len() as u64 } else { done };
        }
    }

    /// Whether the record at `at` is what it seems to be, if what it holds is not needed: a byte
    /// that is added before a record makes its length 256 times longer, and what that leads past
    /// would be missed.
    pub(crate) fn is_whole(&mut self, at: u64, head: Head) -> Result<bool, Error> {
        let is_read = matches!(head.opcode, op::CHUNK | op::MESSAGE | op::SCHEMA | op::CHANNEL);
        Ok(is_read || !self.hides_record(at)?)
    }

    /// Whether a record as they are between chunks can be believed in the head of the one at `at`,
    /// behind its first byte. Behind the head, it would be a part of what that holds.
    pub(crate) fn hides_record(&mut self, at: u64) -> Result<bool, Error> {
        let head_end = at.saturating_add(HEAD);
        Ok(self.find(at.saturating_add(1)..head_end, None, false)?.is_some())
    }

    /// Whether the file ends soon, and has no record that can be believed behind the first byte at
    /// `at`.
    pub(super) fn is_rest(&mut self, at: u64) -> Result<bool, Error> {
        if self.end().saturating_sub(at) > SEARCH_STEP {
            return Ok(false);
        }
        let view = self.view(at, SEARCH_STEP)?;
        for (place, window) in view.windows(HEAD as usize).enumerate().skip(1) {
            let here = at.saturating_add(place as u64);
            if may_start(window) && self.is_believable(here, Some(&|_| true))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn is_believable(
        &mut self,
        at: u64,
        is_channel: Option<&dyn Fn(u16) -> bool>,
    ) -> Result<bool, Error> {
        let head = match self.examine(at)? {
            FoundAt::Magic => return self.leads_on(at + MAGIC.len() as u64, CHAIN),
            FoundAt::Record(head) if !self.is_too_long(head) => head,
            _ => return Ok(false),
        };
        match (head.opcode, is_channel) {
            (op::MESSAGE | op::SCHEMA | op::CHANNEL, None) => return Ok(false),
            (op::MESSAGE, Some(is_channel)) => {
                let mut id = [0; 2];
                self.peek(at + HEAD, &mut id)?;
                if !is_channel(u16::from_le_bytes(id)) {
                    return Ok(false);
                }
            }
            _ => {}
        }
        let end = at.saturating_add(head.record_len());
        Ok(self.before_anchor(at, end) == end && self.leads_on(end, CHAIN)?)
    }
}
