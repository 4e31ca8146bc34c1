//! What a reader accepts as a message, and how it treats damage and deleted messages.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::hash::MessageNames;
use crate::time::{to_nanos, to_wide_nanos};
use crate::wire::{END_MARK, MARKER, MIN_SIZE, MessageHeader};

/// How reading continues after damage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AfterDamage {
    /// At the next plausible message.
    #[default]
    Search,
    /// Not at all.
    Stop,
}

/// How messages with another marker are treated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DeletedMessages {
    /// As damage.
    #[default]
    Skip,
    /// As events.
    Keep,
}

/// What a reader accepts.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Largest size of a message.
    pub max_message: u64,
    /// How reading continues after damage.
    pub after_damage: AfterDamage,
    /// How deleted messages are treated.
    pub deleted: DeletedMessages,
    /// Known message names.
    pub names: Arc<MessageNames>,
    /// The time of 0 ms, in nanoseconds.
    pub epoch: i64,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            max_message: 256 << 20,
            after_damage: AfterDamage::default(),
            deleted: DeletedMessages::default(),
            names: Arc::default(),
            epoch: 0,
        }
    }
}

impl Rules {
    /// A message's time in nanoseconds; `None` if 64 bits cannot hold it.
    #[inline]
    pub fn nanos(&self, ms: f64) -> Option<i64> {
        to_nanos(ms)?.checked_add(self.epoch)
    }

    /// A message's time in nanoseconds, also beyond 64 bits; `None` if it is not a time.
    #[inline]
    pub fn time(&self, ms: f64) -> Option<i128> {
        to_wide_nanos(ms)?.checked_add(self.epoch.into())
    }

    /// Whether a message may have this size.
    #[inline]
    pub fn is_possible(&self, size: u32) -> bool {
        size >= MIN_SIZE && size != END_MARK && u64::from(size) <= self.max_message
    }

    /// Whether a header alone is valid for a message that was not deleted.
    #[inline]
    pub fn is_sound(&self, header: &MessageHeader) -> bool {
        header.marker == MARKER && self.is_possible(header.size) && self.time(header.ms).is_some()
    }
}
