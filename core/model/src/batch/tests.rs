//! Batches keep their events, whatever is done with them.

use super::*;
use bytes::Bytes;
use proptest::prelude::*;

fn batch(payloads: &[&[u8]]) -> Batch {
    let mut builder = BatchBuilder::default();
    let segment = builder.segment(Bytes::from(payloads.concat()));
    let mut offset = 0;
    for (n, payload) in payloads.iter().enumerate() {
        let place = PayloadOffset { segment, offset };
        builder.push(n as i64 * 10, n as i64, ChannelId(n as u32 % 3), payload, place);
        offset += payload.len() as u32;
    }
    builder.finish()
}

fn payloads(batch: &Batch) -> Vec<Vec<u8>> {
    batch.iter().map(|event| event.payload.to_vec()).collect()
}

const LONG: &[u8] = b"a payload that is longer than a view";

#[test]
fn payloads_come_back_whether_short_or_long() {
    let all: [&[u8]; 4] = [b"", b"short", LONG, b"exactly12byt"];
    assert_eq!(payloads(&batch(&all)), all);
}

#[test]
fn renaming_keeps_the_channels_that_were_read() {
    let renamed = batch(&[b"a", LONG]).with_channels(vec![7, 7]).with_channels(vec![8, 9]);
    assert_eq!((renamed.channels(), renamed.origins()), (&[8, 9][..], &[0, 1][..]));
    assert_eq!(renamed.take(vec![1]).origins(), [1]);
}

/// A batch in which every other time does not fit into 64 bits.
fn wide() -> (Batch, Vec<i128>) {
    let times: Vec<i128> = vec![5, i128::MAX, 7, i128::from(i64::MIN) - 1, 9];
    let mut builder = BatchBuilder::default();
    for time in &times {
        let place = PayloadOffset { segment: 0, offset: 0 };
        builder.push_wide(*time, 0, ChannelId(0), b"x", place);
    }
    (builder.finish(), times)
}

#[test]
fn times_beyond_64_bits_stay_with_their_events() {
    let (batch, times) = wide();
    assert_eq!(batch.timestamps(), [5, i64::MAX, 7, i64::MIN, 9]);
    assert_eq!(batch.wide_times(), Some(&times[..]));
    assert_eq!((batch.wide_time(0), batch.wide_time(1)), (None, Some(i128::MAX)));
    assert_eq!(batch.take(vec![3, 0]).wide_times(), Some(&[times[3], 5][..]));
    assert_eq!(batch.slice(2, 2).wide_times(), Some(&times[2..4]));
    let plain = self::batch(&[b"a", b"b"]);
    let mixed = Batch::interleave(&[plain, batch.clone().owned()], &[(0, 1), (1, 1), (1, 2)]);
    assert_eq!(mixed.wide_times(), Some(&[10, i128::MAX, 7][..]));
    assert_eq!(batch.clone().with_timestamps(vec![0; 5]).wide_times(), None);
    let moved = batch.with_wide_times(vec![1, 2, 3, 4, i128::from(i64::MAX)]);
    assert_eq!((moved.timestamps()[4], moved.wide_times()), (i64::MAX, None));
}

#[test]
fn compacting_lets_go_of_segments_that_are_mostly_unused() {
    let big = vec![b'x'; 10_000];
    let few = batch(&[LONG, &big, b"tiny"]).take(vec![0, 2]);
    assert!(few.memory() > 10_000);
    let compact = few.clone().compact();
    assert!(compact.memory() < 1_000);
    assert_eq!(payloads(&compact), payloads(&few));
}

#[test]
#[should_panic(expected = "payloads lie in the segments")]
fn a_view_outside_its_segment_is_refused() {
    let mut builder = BatchBuilder::default();
    builder.push(0, 0, ChannelId(0), LONG, PayloadOffset { segment: 0, offset: 0 });
    builder.finish();
}

proptest! {
    #[test]
    fn interleaving_and_taking_pick_the_events_named(
        a in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..30), 1..20),
        b in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..30), 1..20),
        picks in proptest::collection::vec((0u32..2, any::<u32>()), 0..40))
    {
        let slices = |v: &Vec<Vec<u8>>| batch(&v.iter().map(|p| &p[..]).collect::<Vec<_>>());
        let both = [slices(&a), slices(&b)];
        let picks: Vec<_> =
            picks.iter().map(|(n, r)| (*n, r % both[*n as usize].len() as u32)).collect();
        let mixed = Batch::interleave(&both, &picks);
        for (row, (n, r)) in picks.iter().enumerate() {
            prop_assert_eq!(mixed.event(row), both[*n as usize].event(*r as usize));
        }
        let all: Vec<u32> = (0..mixed.len() as u32).rev().collect();
        let reversed: Vec<_> = payloads(&mixed).into_iter().rev().collect();
        prop_assert_eq!(payloads(&mixed.take(all)), reversed);
    }
}
