//! The queue of rows that wait for a value. Resolves nothing.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The unresolved requests.
#[derive(Default)]
pub(super) struct RequestQueue {
    /// For each source, by time and number.
    pub(super) by_source: Vec<BTreeSet<(i64, u64)>>,
    /// For each channel, in log order. Resolved requests stay until they reach the front.
    by_channel: BTreeMap<u32, VecDeque<QueuedRequest>>,
}

/// A queued request.
#[derive(Clone, Copy)]
pub(super) struct QueuedRequest {
    pub(super) time: i64,
    pub(super) number: u64,
    pub(super) source: usize,
    pub(super) timestamp: i64,
    /// Weight of all events before it.
    pub(super) weight: u64,
}

impl RequestQueue {
    pub(super) fn push(&mut self, channel: u32, request: QueuedRequest) {
        if self.by_source.len() <= request.source {
            self.by_source.resize_with(request.source + 1, BTreeSet::new);
        }
        self.by_source[request.source].insert((request.time, request.number));
        self.by_channel.entry(channel).or_default().push_back(request);
    }

    /// Removes a request of a source for `time` or earlier.
    pub(super) fn pop_until(&mut self, source: usize, time: i64) -> Option<(i64, u64)> {
        let unresolved = self.by_source.get_mut(source)?;
        let first = *unresolved.first()?;
        if first.0 > time { None } else { unresolved.pop_first() }
    }

    /// Removes the first request of a channel if it is due.
    pub(super) fn pop_if(
        &mut self,
        channel: u32,
        is_due: impl Fn(&QueuedRequest) -> bool,
    ) -> Option<(i64, u64)> {
        let queued = self.by_channel.get_mut(&channel)?;
        while let Some(request) = queued.front().copied() {
            let key = (request.time, request.number);
            let unresolved = &mut self.by_source[request.source];
            let is_open = unresolved.contains(&key);
            if is_open && !is_due(&request) {
                return None;
            }
            queued.pop_front();
            if is_open {
                unresolved.remove(&key);
                return Some(key);
            }
        }
        self.by_channel.remove(&channel);
        None
    }

    /// The channels that may have pending requests.
    pub(super) fn channels(&self) -> Vec<u32> {
        self.by_channel.keys().copied().collect()
    }
}
