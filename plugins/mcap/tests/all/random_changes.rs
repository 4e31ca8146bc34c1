//! One byte that is inserted, deleted or changed anywhere in a small file: no event is wrong, and
//! none is missing in silence.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use serde_json::json;
use sluice_kit::contract::{PlainEvent, SourceContents, gather_with};
use sluice_model::{Error, ReadContext};

use crate::kit::{Folder, MAGIC, event, source, write};

/// A change of one byte.
#[derive(Clone, Copy, Debug)]
enum Change {
    Insert(u8),
    Delete,
    Flip(u8),
}

impl Change {
    fn apply(self, file: &[u8], at: usize) -> Vec<u8> {
        let mut changed = file.to_vec();
        match self {
            Self::Insert(byte) => changed.insert(at, byte),
            Self::Delete => drop(changed.remove(at)),
            Self::Flip(bit) => changed[at] ^= 1 << bit,
        }
        changed
    }

    /// By how many bytes this moves what follows.
    fn shift(self) -> i64 {
        match self {
            Self::Insert(_) => 1,
            Self::Delete => -1,
            Self::Flip(_) => 0,
        }
    }
}

fn changes() -> impl Strategy<Value = Change> {
    // The bytes of known kinds are the ones that mislead.
    let byte = prop_oneof![0..=16u8, any::<u8>()];
    prop_oneof![
        byte.prop_map(Change::Insert),
        Just(Change::Delete),
        (0..8u8).prop_map(Change::Flip)
    ]
}

/// A file of small chunks with checksums, of which each has an index for each channel.
fn file(compression: &str) -> Vec<u8> {
    let start = 1_700_000_000_000_000_000;
    let topics = ["/a", "/b", "/c"];
    let events: Vec<_> = (0..60u8)
        .map(|n| {
            let payload: Vec<u8> = (0..40u8).map(|k| k.wrapping_mul(n ^ 0x5b) ^ n).collect();
            event(start + i64::from(n) * 1000, topics[usize::from(n) % 3], &payload)
        })
        .collect();
    write(&events, json!({ "compression": compression, "chunk": 400 }))
}

/// Where the records of a file begin, and the last one ends.
fn heads(file: &[u8]) -> Vec<usize> {
    let mut heads = vec![MAGIC.len()];
    while let Some(at) = heads.last().filter(|at| **at < file.len() - MAGIC.len()) {
        let len = u64::from_le_bytes(file[at + 1..at + 9].try_into().unwrap()) as usize;
        heads.push(at + 9 + len);
    }
    heads
}

/// The ranges of the chunks of a file.
fn chunks(file: &[u8]) -> Vec<(usize, usize)> {
    let heads = heads(file);
    let records = heads.iter().zip(&heads[1..]).map(|(at, end)| (*at, *end));
    records.filter(|(at, _)| file[*at] == 6).collect()
}

/// What is read of a file, and the number of notes. `Err` if it is refused.
fn read(file: &[u8]) -> Result<(SourceContents, usize), Error> {
    let folder = Folder::new();
    let context = ReadContext::standalone("test");
    let found = gather_with(&*source(&folder.write(file)), 1, &context)?;
    Ok((found, context.losses.take_notes().len()))
}

/// Whether these events are among the others, in the same order.
fn are_among(some: &[PlainEvent], all: &[PlainEvent]) -> bool {
    let mut all = all.iter();
    some.iter().all(|event| all.any(|other| other == event))
}

/// What is wrong with the way in which a changed file is read.
fn check(file: &[u8], whole: &[PlainEvent], change: Change, at: usize) -> Result<(), String> {
    let (found, notes) = match read(&change.apply(file, at)) {
        Ok(read) => read,
        // The first bytes tell of another version, or changed line endings.
        Err(_) if at < MAGIC.len() => return Ok(()),
        Err(error) => return Err(error.to_string()),
    };
    if !are_among(&found.events, whole) {
        return Err("an event is not one of the file".to_owned());
    }
    let lost = whole.len() - found.events.len();
    if lost > 0 && found.damage.is_empty() && notes == 0 {
        return Err(format!("{lost} events are missing in silence"));
    }
    let moved = |end: usize| if end > at { end as i64 + change.shift() } else { end as i64 };
    let in_damage = |(start, end): &(usize, usize)| {
        let (start, end) = (moved(*start), moved(*end));
        let mut ranges = found.damage.iter().map(|(at, len, _)| (*at as i64, (*at + *len) as i64));
        ranges.any(|(from, to)| from < end && start < to)
    };
    // Those of damaged chunks are missing as a whole; all chunks have as many.
    let hit = chunks(file).iter().filter(|chunk| in_damage(chunk)).count();
    let most = hit * whole.len().div_ceil(chunks(file).len() - 1);
    match lost > most {
        true => Err(format!("{lost} events are missing, {hit} chunks are in {:?}", found.damage)),
        false => Ok(()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 100,
        rng_seed: RngSeed::Fixed(1),
        ..ProptestConfig::default()
    })]

    #[test]
    fn no_event_is_wrong_or_missing_in_silence(
        change in changes(),
        place in any::<prop::sample::Index>(),
        behind_head in prop::option::of(0..40usize),
    ) {
        for compression in ["zstd", "none"] {
            let file = file(compression);
            let (whole, notes) = read(&file).unwrap();
            prop_assert_eq!((whole.events.len(), whole.damage, notes), (60, vec![], 0));
            let whole = whole.events;
            let heads = heads(&file);
            let at = match behind_head {
                Some(behind) => heads[place.index(heads.len())] + behind,
                None => place.index(file.len()),
            };
            let at = at.min(file.len() - 1);
            let wrong = check(&file, &whole, change, at);
            prop_assert_eq!(wrong, Ok(()), "{:?} at {} of {}", change, at, compression);
        }
    }
}
