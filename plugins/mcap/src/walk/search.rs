//! Searches for the next record that can be believed, behind damage.

#![warn(clippy::indexing_slicing)]

use sluice_model::Error;

use super::shape::may_start;
use super::{CHAIN, FoundAt, MAX_KEPT, Walk};
use crate::wire::{HEAD, MAGIC, op};

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
        let mut at = from;
        // Nothing leads past a chunk that is known to be there.
        let stop = if self.is_anchor(from) { Some(from) } else { self.next_anchor(from) };
        loop {
            let view = self.view(at, SEARCH_STEP)?;
            if view.is_empty() || self.is_cancelled() {
                return Ok(stop.unwrap_or(u64::MAX).min(self.end()));
            }
            for (offset, window) in view.windows(HEAD as usize).enumerate() {
                let here = at + offset as u64;
                if stop.is_some_and(|stop| here >= stop) {
                    return Ok(stop.unwrap_or(here));
                }
                if may_start(window) && self.is_believable(here, is_channel)? {
                    return Ok(here);
                }
            }
            if !self.keeps_bytes || at.saturating_sub(from) > MAX_KEPT {
                self.forget(at);
            }
            let done = (view.len() as u64 + 1).saturating_sub(HEAD);
            at += if done == 0 { view.len() as u64 } else { done };
        }
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
