//! A sign of life of a program.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Counts reads, writes and messages of a program.
pub(crate) type Activity = Arc<AtomicU64>;
