//! Damage: what of an input could not be read, and why. Collected while reading goes on.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use crate::ChannelId;

/// A range of an input that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The input, as the user named it.
    pub input: Arc<str>,
    /// Where it begins, in bytes.
    pub offset: u64,
    /// How many bytes it takes.
    pub length: u64,
    /// What was found.
    pub reason: String,
    /// The channel, where the range is one event whose header could be read.
    pub channel: Option<ChannelId>,
    /// The bytes, where the input cannot be read again and the run wants to keep them.
    pub bytes: Vec<Bytes>,
}

impl Damage {
    /// A damaged range of no known channel.
    pub fn new(input: &Arc<str>, offset: u64, length: u64, reason: impl Into<String>) -> Self {
        let (input, reason) = (Arc::clone(input), reason.into());
        Self { input, offset, length, reason, channel: None, bytes: Vec::new() }
    }
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { input, offset, length, reason, .. } = self;
        write!(f, "{input}: {length} bytes at byte {offset} could not be read: {reason}")
    }
}

/// Where a reader leaves the damage it steps over. Shared by the threads that read one split.
#[derive(Debug, Default)]
pub struct DamageLog(Mutex<Vec<Damage>>);

impl DamageLog {
    /// Adds one damaged range.
    pub fn report(&self, damage: Damage) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(damage);
    }

    /// What has been reported since the last call, in order of report.
    pub fn take(&self) -> Vec<Damage> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
