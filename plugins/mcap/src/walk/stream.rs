//! Whether what comes next in a slow stream has arrived.

#![warn(clippy::indexing_slicing)]

use sluice_model::Error;

use super::{LOOK, MAX_UNKNOWN, Walk};
use crate::wire::{Head, min_len, op};

impl Walk {
    /// Whether reading the record at `at` would wait for more of a stream.
    pub(crate) fn would_wait(&mut self, mut at: u64) -> Result<bool, Error> {
        // Outside of chunks, a record is believed once the next one of a known kind is there, or
        // one more of unknown kinds than may precede it.
        for number in 0..=MAX_UNKNOWN + 1 {
            if self.awaits(at.saturating_add(LOOK as u64 - 1))? {
                return Ok(true);
            }
            let mut look = [0; LOOK];
            let head = Head::parse(self.peek(at, &mut look)?);
            // Longer records are damage, or are not waited for.
            let Some(head) = head.filter(|head| head.record_len() <= self.max_record) else {
                return Ok(false);
            };
            at = at.saturating_add(head.record_len());
            if self.awaits(at - 1)? {
                return Ok(true);
            }
            if head.opcode == op::CHUNK || number > 0 && min_len(head.opcode).is_some() {
                break;
            }
        }
        Ok(false)
    }

    /// Whether the byte at `position` of a stream has not arrived yet.
    fn awaits(&mut self, position: u64) -> Result<bool, Error> {
        if self.len.is_some() || self.buffered(position, 1).is_some() {
            return Ok(false);
        }
        let has_arrived = self.log.read_arrived(position, &mut [0], 0)? > 0;
        Ok(!has_arrived && self.log.awaits_more(position))
    }
}
