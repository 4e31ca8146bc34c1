//! The stages that pipelines of any format need: choosing events, moving and sorting times, renaming
//! channels, thinning and cutting off, and telling who fell silent. And the sink that writes nothing.
//!
//! None of them looks into a payload: what a payload means is for the crates of its format.

pub mod condition;
pub mod decode;
pub mod encode;
pub mod filter;
pub mod gaps;
pub mod limit;
pub mod null;
pub mod rename;
pub mod sample;
pub mod time;

mod histogram;
mod sort;
mod window;

#[cfg(test)]
mod testing;

use sluice_core::{Batch, StageContext};

/// The events for which `keep` is true; the others are counted as filtered.
fn keep(batch: &Batch, context: &mut StageContext<'_>, keep: impl FnMut(usize) -> bool) -> Batch {
    let kept = batch.retain(keep);
    context.filtered += (batch.len() - kept.len()) as u64;
    kept
}

/// What a stage gives on: nothing rather than a batch without events.
fn unless_empty(batch: Batch) -> Vec<Batch> {
    if batch.is_empty() { Vec::new() } else { vec![batch] }
}
