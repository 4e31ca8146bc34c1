//! What batches need not contribute, because it has been collected already. Makes their parts
//! smaller, and changes no figure.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};

use sluice_model::TypeKey;

use super::grid::BucketWidth;

/// What has been collected of a log, possibly less than there is. Shared by all threads.
#[derive(Debug, Default)]
pub(crate) struct CollectedHints(RwLock<CollectedTimes>);

/// What has been collected, by its times.
#[derive(Debug, Default)]
pub(super) struct CollectedTimes {
    /// Whether nothing may be left out.
    pub(super) is_off: bool,
    pub(super) width: BucketWidth,
    pub(super) picture_width: BucketWidth,
    /// The times of pictures by channel and bucket. Later ones of the same bucket are not needed.
    pub(super) pictures: BTreeMap<(u32, i64), i64>,
    /// When the packets end of which there are enough, by channel.
    pub(super) packets: BTreeMap<u32, i64>,
    /// The types and times of scans, by channel.
    pub(super) scans: BTreeMap<u32, (TypeKey, i64)>,
}

impl CollectedHints {
    /// Forgets everything, for a new log. If batches that were prepared for one output may become
    /// part of another, as in recordings, nothing is ever left out.
    pub(crate) fn begin(&self, is_piece: bool) {
        let collected = CollectedTimes { is_off: is_piece, ..CollectedTimes::default() };
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = collected;
    }

    fn read<T>(&self, look: impl FnOnce(&CollectedTimes) -> T) -> T {
        look(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The least width that buckets of time will have.
    pub(super) fn width(&self) -> BucketWidth {
        self.read(|collected| collected.width)
    }

    /// The least width of the buckets from which a picture is kept.
    pub(super) fn picture_width(&self) -> BucketWidth {
        self.read(|collected| collected.picture_width)
    }

    /// Whether a picture of this time is not needed.
    pub(super) fn has_picture(&self, channel: u32, time: i64) -> bool {
        self.read(|collected| {
            let bucket = collected.picture_width.bucket(time);
            collected.pictures.get(&(channel, bucket)).is_some_and(|first| *first <= time)
        })
    }

    /// The time from which on a channel's packets are not needed.
    pub(super) fn packets_until(&self, channel: u32) -> i64 {
        self.read(|collected| collected.packets.get(&channel).copied().unwrap_or(i64::MAX))
    }

    /// The time from which on a channel's scans of this type are not needed.
    pub(super) fn scan_until(&self, channel: u32, of: TypeKey) -> i64 {
        self.read(|collected| {
            let scan = collected.scans.get(&channel).filter(|(kept, _)| *kept == of);
            scan.map_or(i64::MAX, |(_, time)| *time)
        })
    }

    /// Replaces what is known by what has been collected.
    pub(super) fn replace(&self, collected: CollectedTimes) {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if !known.is_off {
            *known = collected;
        }
    }
}
