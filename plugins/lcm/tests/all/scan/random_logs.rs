//! Random bytes, and random damage.

use proptest::prelude::*;

use super::*;

/// Logs made of what the rules look at, so that random ones meet all of them.
fn odd_log() -> impl Strategy<Value = Vec<u8>> {
    // Small, so that some continue others.
    let header = (0..4i64, 0..4i64, -3..40i32, -3..200i32).prop_map(
        |(number, utime, channel_len, data_len)| {
            LcmHeader { number, utime, channel_len, data_len }.write().to_vec()
        },
    );
    let stretch = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..60),
        prop::collection::vec(b'a'..=b'z', 0..60),
        (1..5usize).prop_map(|len| SYNC[..len.min(4)].to_vec()),
        (0..90usize).prop_map(|len| vec![0; len]),
        (0..60u8).prop_map(event),
        header,
    ];
    prop::collection::vec(stretch, 0..40).prop_map(|stretches| stretches.concat())
}

/// One damage done to a log: what is there instead of which bytes.
type LogEdit = (prop::sample::Index, usize, Vec<u8>);

fn edit() -> impl Strategy<Value = LogEdit> {
    let new = prop_oneof![
        Just(vec![]),
        prop::collection::vec(any::<u8>(), 1..28),
        (1..28usize).prop_map(|len| vec![0; len]),
    ];
    (any::<prop::sample::Index>(), 0..28usize, new)
}

/// Where the edit begins, and by how much it ends earlier in the old log than in the new one.
fn apply(log: &mut Vec<u8>, (index, len, new): &LogEdit) -> (Range<usize>, usize) {
    let start = index.index(log.len() + 1);
    let old = start..(start + len).min(log.len());
    log.splice(old.clone(), new.iter().copied());
    (old, new.len())
}

proptest! {
    #[test]
    fn any_bytes_are_tiled(log in prop::collection::vec(any::<u8>(), 0..300)) {
        walk(&log);
    }

    #[test]
    fn odd_logs_are_tiled_and_damage_ends_at_an_event(log in odd_log()) {
        let found = walk(&log);
        for damage in &found.damage {
            let range = damage.start..u64::MAX;
            let next = next_event(&mut &log[..], range, &ScanLimits::default()).unwrap();
            prop_assert_eq!(next.unwrap_or(log.len() as u64), damage.end);
        }
    }

    #[test]
    fn an_edit_costs_no_event_that_it_does_not_touch(edit in edit()) {
        let mut log = concat(0..12);
        let (old, new_len) = apply(&mut log, &edit);
        let found = walk(&log);
        for event in ranges(0..12) {
            let moved = if event.end <= old.start as u64 {
                event
            } else if old.end as u64 <= event.start {
                let shift = |at: u64| at + new_len as u64 - (old.end - old.start) as u64;
                shift(event.start)..shift(event.end)
            } else {
                continue;
            };
            // A false length that ends exactly before an event cannot be told from a true one.
            let confirmed = |outer: &Range<u64>| {
                outer.start < moved.start
                    && moved.end <= outer.end
                    && log[outer.end as usize..].iter().zip(SYNC).all(|(a, b)| *a == b)
            };
            prop_assert!(
                found.events.contains(&moved) || found.events.iter().any(confirmed),
                "{:?} in {:?}", moved, found
            );
        }
    }

    #[test]
    fn many_edits_are_tiled(
        edits in prop::collection::vec(edit(), 1..12), cut: prop::sample::Index,
    ) {
        let mut log = concat(0..12);
        for edit in &edits {
            apply(&mut log, edit);
        }
        log.truncate(cut.index(log.len() + 1));
        walk(&log);
    }
}
