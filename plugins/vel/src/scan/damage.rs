//! Why bytes of a log are no message. It does not decide which are; [`scan`](super) does.

use crate::wire::MIN_SIZE;

/// Why the bytes at a position are not passed on.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum MessageDamage {
    /// The size is smaller than the header.
    #[error("size {0} is below the minimum of {MIN_SIZE} bytes")]
    Small(u32),
    /// The message is longer than the reader accepts.
    #[error("size {size} is above the limit max_message = {max_message}")]
    AboveLimit {
        /// The size.
        size: u32,
        /// The limit.
        max_message: u64,
    },
    /// The message or its size extends beyond the end of the log.
    #[error("cut off by the end of the log (needs {needs} bytes, {has} are there)")]
    CutOff {
        /// Bytes of the message by its size, or of the size if that is cut off.
        needs: u64,
        /// Bytes up to the end of the log.
        has: u64,
    },
    /// An end mark in an erased block that a plausible message follows.
    #[error(
        "an erased block before further messages; if the log ends there, `after_damage = \"stop\"` \
         reads up to it"
    )]
    Erased,
    /// A complete message with another marker.
    #[error("marked as deleted ({0:#04x}); `deleted = \"keep\"` passes it on")]
    Deleted(u8),
    /// Another marker, and nothing confirms the message.
    #[error("not a message (marker {0:#04x} instead of 0x31)")]
    Marker(u8),
    /// The time is not a number, or too large.
    #[error("time {0} ms is out of range")]
    Time(f64),
    /// By its layout, the payload ends elsewhere.
    #[error("size {0} contradicts the lengths in the payload")]
    Payload(u32),
    /// A message inside proves the size wrong.
    #[error("size {size} contradicts the message that begins at byte {at} of the log")]
    Contradicted {
        /// The size.
        size: u32,
        /// Start of the message inside.
        at: u64,
    },
}
