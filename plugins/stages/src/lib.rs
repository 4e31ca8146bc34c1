//! The stages that pipelines of any format need, and the sink `null`.
//!
//! They choose events, shift and sort times, rename channels, thin and limit events, and report
//! channels that fall silent. None of them reads a payload; `decode` and `encode` leave that to
//! codecs.

mod align;
mod condition;
mod decode;
mod encode;
mod episodes;
mod filter;
mod gaps;
mod histogram;
mod limit;
mod null;
mod rename;
mod sample;
mod sort;
mod time;
mod window;

#[cfg(test)]
mod testing;

/// What fuzz targets need. Not part of the API.
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::condition::Condition;
}

use sluice_model::{Batch, StageContext};

/// The events for which `keep` is true. The others are counted as filtered.
fn keep(batch: &Batch, context: &mut StageContext<'_>, keep: impl FnMut(usize) -> bool) -> Batch {
    let kept = batch.retain(keep);
    context.report.filtered += (batch.len() - kept.len()) as u64;
    kept
}

/// `batch`, or nothing if it has no events.
fn unless_empty(batch: Batch) -> Vec<Batch> {
    if batch.is_empty() { Vec::new() } else { vec![batch] }
}
