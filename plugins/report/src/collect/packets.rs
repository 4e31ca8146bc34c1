//! Packets of spinning lasers: the first of each channel, enough for a revolution. Computes no
//! points.

use sluice_model::{Batch, BatchBuilder, ChannelId};

/// Twice as many as a revolution has.
const MAX_PACKETS: usize = 600;
/// Longer payloads are no packets.
const MAX_BYTES: usize = 2_000;

/// The earliest packets of a channel, in order of time.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct FirstPackets(Vec<(i64, Vec<u8>)>);

impl FirstPackets {
    /// Adds the next in the order of the log.
    pub(super) fn add(&mut self, time: i64, payload: &[u8]) {
        if payload.len() <= MAX_BYTES && self.needs(time) {
            self.insert(time, payload.to_vec());
        }
    }

    fn needs(&self, time: i64) -> bool {
        self.until().is_none_or(|until| time < until)
    }

    fn insert(&mut self, time: i64, payload: Vec<u8>) {
        let at = self.0.partition_point(|(earlier, _)| *earlier <= time);
        self.0.insert(at, (time, payload));
        self.0.truncate(MAX_PACKETS);
    }

    pub(super) fn append(&mut self, next: Self) {
        for (time, payload) in next.0 {
            if self.needs(time) {
                self.insert(time, payload);
            }
        }
    }

    /// The time from which on packets are not needed; `None` if some are missing.
    pub(super) fn until(&self) -> Option<i64> {
        let last = self.0.get(MAX_PACKETS - 1)?;
        Some(last.0)
    }

    /// The packets as events; `None` if there are none.
    pub(super) fn events(&self, channel: u32) -> Option<Batch> {
        let mut batch = BatchBuilder::default();
        for ((time, payload), number) in self.0.iter().zip(0..) {
            batch.push_copy(*time, number, ChannelId(channel), payload);
        }
        (!self.0.is_empty()).then(|| batch.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_packets_are_kept_whatever_their_order() {
        let mut packets = FirstPackets::default();
        (0..1_000).rev().for_each(|time| packets.add(time, &[1]));
        assert_eq!(packets.until(), Some(MAX_PACKETS as i64 - 1));
        let mut more = FirstPackets::default();
        more.add(-5, &[2]);
        more.add(5_000, &[2]);
        packets.append(more);
        let events = packets.events(3).unwrap();
        assert_eq!((events.len(), events.timestamps()[0]), (MAX_PACKETS, -5));
    }
}
