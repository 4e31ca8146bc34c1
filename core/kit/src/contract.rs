//! The contract of plugins, as functions for their tests. They panic if the contract is broken, and
//! say how.

use std::path::PathBuf;

use sluice_model::{Damage, Error, ReadContext, Seam, Source, Split, SplitStart};

mod trials;

pub use trials::{overwrite, sample_positions, trials};

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
    let mut gathered = SourceContents::default();
    let mut last: Option<(Split, Seam)> = None;
    for split in splits {
        let follows = last.as_ref().filter(|(before, _)| before.is_followed_by(&split));
        let due = follows.and_then(|(_, seam)| seam.ended);
        let entry =
            if follows.is_some() { SplitStart::Search } else { SplitStart::At(split.start) };
        let (mut part, mut seam) = read(source, &split, entry, context)?;
        if due.is_some() && seam.began != due {
            let entry = SplitStart::At(due.unwrap_or_default());
            (part, seam) = read(source, &split, entry, context)?;
        }
        gathered.events.append(&mut part.events);
        gathered.damage.append(&mut part.damage);
        last = Some((split, seam));
    }
    Ok(gathered)
}

fn read(
    source: &dyn Source,
    split: &Split,
    entry: SplitStart,
    context: &ReadContext,
) -> Result<(SourceContents, Seam), Error> {
    let context = context.with_own_damage();
    let mut reader = source.read(split, entry, &context)?;
    let mut gathered = SourceContents::default();
    while let Some(batch) = reader.next_batch()? {
        gathered.events.extend(batch.iter().map(|event| {
            let channel = context.channels.get(event.channel);
            PlainEvent {
                timestamp: event.timestamp,
                sequence: event.sequence,
                source: channel.source.to_string(),
                channel: channel.name.text().to_owned(),
                payload: event.payload.to_vec(),
            }
        }));
    }
    let plain = |d: Damage| (d.offset, d.length, d.reason);
    gathered.damage = context.damage.take().into_iter().map(plain).collect();
    Ok((gathered, reader.seam()))
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
