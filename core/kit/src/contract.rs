//! The contract of plugins, as functions for their tests. They panic if the contract is broken, and
//! say how.

use std::path::PathBuf;
use std::sync::Arc;

use crate::reading::{ReadAhead, ReadStep};
use sluice_model::{Batch, Damage, Error, ReadContext, Source, Split};

mod trials;

pub use trials::{frames, overwrite, sample_positions, trials};

/// An event that tests can compare, independent of its run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlainEvent {
    /// Nanoseconds.
    pub timestamp: i64,
    /// The sequence number its origin assigned.
    pub sequence: i64,
    /// The channel's source.
    pub source: String,
    /// The channel's name, in its text form.
    pub channel: String,
    /// The payload.
    pub payload: Vec<u8>,
}

/// Everything that reading a source returned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceContents {
    /// The events, in order.
    pub events: Vec<PlainEvent>,
    /// The damage, in order: offset, length, reason.
    pub damage: Vec<(u64, u64, String)>,
}

impl SourceContents {
    /// How often it is said that compressed data is damaged.
    ///
    /// # Panics
    ///
    /// If damaged ranges overlap, or do not rise.
    pub fn gaps(&self) -> usize {
        let mut reached = 0;
        for (at, len, _) in &self.damage {
            assert!(*at >= reached, "damaged ranges do not rise: {:?}", self.damage);
            reached = at + len;
        }
        self.damage.iter().filter(|(.., why)| why.contains(BROKEN_FRAME)).count()
    }
}

/// Part of what is said of compressed data that is damaged.
const BROKEN_FRAME: &str = "the compressed data is damaged or cut off";

/// Reads a source as the engine does, one split after another: searches for the first event of each
/// split, and reads the split again if the previous one ended elsewhere.
pub fn gather(source: &dyn Source, target: u64) -> Result<SourceContents, Error> {
    gather_with(source, target, &ReadContext::standalone("test"))
}

/// [`gather`] with a custom context.
pub fn gather_with(
    source: &dyn Source,
    target: u64,
    context: &ReadContext,
) -> Result<SourceContents, Error> {
    gather_splits(source, source.splits(target, &sluice_model::Query::default())?, context)
}

/// Reads these splits of a source, one after another.
pub fn gather_splits(
    source: &dyn Source,
    splits: Vec<Split>,
    context: &ReadContext,
) -> Result<SourceContents, Error> {
    let channels = Arc::clone(&context.channels);
    let add = |batch: Batch, step: &mut ReadStep<Vec<PlainEvent>>| {
        step.output.extend(batch.iter().map(|event| {
            let channel = channels.get(event.channel);
            PlainEvent {
                timestamp: event.timestamp,
                sequence: event.sequence,
                source: channel.source.to_string(),
                channel: channel.name.text().to_owned(),
                payload: event.payload.to_vec(),
            }
        }));
        Ok(())
    };
    let mut gathered = SourceContents::default();
    for step in ReadAhead::in_turn(source, splits, context.clone(), add) {
        let step = step?;
        gathered.events.extend(step.output);
        let plain = |d: Damage| (d.offset, d.length, d.reason);
        gathered.damage.extend(step.damage.into_iter().map(plain));
        step.notes.into_iter().for_each(|(what, count)| context.losses.note(what, count));
    }
    Ok(gathered)
}

/// Checks that any splitting of a source gives the same events, damage and order.
///
/// # Panics
///
/// If it does not.
pub fn any_splitting_is_the_same(source: &dyn Source, targets: &[u64]) -> SourceContents {
    let whole = gather(source, u64::MAX).expect("the source can be read");
    for target in targets {
        let pieces = gather(source, *target).expect("the source can be read in pieces");
        let first = whole.events.iter().zip(&pieces.events).position(|(a, b)| a != b);
        let (many, few) = (whole.events.len(), pieces.events.len());
        assert!(
            first.is_none() && many == few,
            "pieces of {target} bytes: event {first:?} differs; {few} events instead of {many}"
        );
        assert_eq!(whole.damage, pieces.damage, "pieces of {target} bytes: other damage");
    }
    whole
}

/// Checks that the splits of every input start at its beginning, are consecutive, and leave nothing
/// out.
///
/// # Panics
///
/// If they do not.
pub fn splits_cover_the_inputs(source: &dyn Source, target: u64) {
    let splits =
        source.splits(target, &sluice_model::Query::default()).expect("the source can be split");
    let mut inputs: Vec<PathBuf> = Vec::new();
    for (n, split) in splits.iter().enumerate() {
        let begins = n == 0 || splits[n - 1].input != split.input;
        if begins {
            assert_eq!(split.start, 0, "the first split begins where the input does: {split:?}");
            assert!(!inputs.contains(&split.input), "an input's splits lie together: {split:?}");
            inputs.push(split.input.clone());
        } else {
            assert!(splits[n - 1].is_followed_by(split), "splits lie end to end: {split:?}");
        }
    }
}
