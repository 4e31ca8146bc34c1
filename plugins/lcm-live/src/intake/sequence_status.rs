//! What a sequence number may mean. [`SequenceWindow`](super::sequence::SequenceWindow) decides it.

/// What a sequence number means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SequenceStatus {
    /// Newer than all others; the `skipped` numbers before it are missing.
    New {
        /// Numbers in between.
        skipped: u32,
    },
    /// Was missing until now.
    Late,
    /// Older than the first number seen; the `skipped` numbers after it are missing.
    Earlier {
        /// Numbers between.
        skipped: u32,
    },
    /// The sender restarted. A new window starts with its first number, and `skipped` numbers after
    /// that are missing.
    Restart {
        /// Numbers between the first and this one.
        skipped: u32,
        /// The first number, if it arrived before this one.
        after: Option<u32>,
    },
    /// Far from all others: not recorded until a neighbour arrives.
    Stray,
    /// Seen before.
    Seen,
    /// New, and shows that the sender has several numberings: from now on no number is missing or
    /// late.
    Mixed {
        /// Numbers that were considered missing because of that.
        retracted: u64,
    },
}

impl SequenceStatus {
    /// The numbers that are missing because of it.
    pub(super) fn skipped(self) -> u32 {
        match self {
            Self::New { skipped } | Self::Earlier { skipped } | Self::Restart { skipped, .. } => {
                skipped
            }
            _ => 0,
        }
    }
}
