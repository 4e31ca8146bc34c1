//! Notices that a sender uses one number for many messages in a row.

/// So many messages in a row with the number of another one are not those of several programs.
const MIN_REPEATS: u32 = 8;

/// Another message with a number that was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reuse {
    /// Whether it can be received; otherwise it is ignored.
    pub(super) accepted: bool,
    /// Ignored messages that are now known to be lost.
    pub(super) lost: u32,
}

/// The last number that was used again.
#[derive(Clone, Debug, Default)]
pub(super) struct Repetition {
    sequence: u32,
    /// Messages with this number, besides the first one.
    repeats: u32,
    /// Those that were ignored, and are not counted as lost yet.
    pub(super) ignored: u32,
}

impl Repetition {
    /// Records another message with this number.
    pub(super) fn record(&mut self, sequence: u32) {
        if self.sequence != sequence {
            *self = Self { sequence, ..Self::default() };
        }
        self.repeats = self.repeats.saturating_add(1);
    }

    /// Whether the sender is known to use this number again and again.
    pub(super) fn is_certain(&self) -> bool {
        self.repeats >= MIN_REPEATS
    }
}
