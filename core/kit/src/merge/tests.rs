//! Tests of merging.

use super::*;
use sluice_model::{BatchBuilder, ChannelId};

fn batch(times: &[i64], channel: u32) -> Batch {
    let mut builder = BatchBuilder::default();
    for time in times {
        builder.push_copy(*time, 0, ChannelId(channel), b"");
    }
    builder.finish()
}

fn drain(merge: &mut Merge, later_by: Option<i64>) -> Vec<(i64, u32)> {
    let mut all = Vec::new();
    while let Some(batch) = merge.take(later_by) {
        all.extend(batch.iter().map(|event| (event.timestamp, event.channel.0)));
    }
    all
}

#[test]
fn the_earliest_goes_first_and_ties_keep_the_order_of_streams() {
    let mut merge = Merge::new(2, 1 << 20);
    merge.push(1, batch(&[1, 3, 5], 1));
    assert_eq!(merge.starved(), Some(0));
    assert!(drain(&mut merge, Some(0)).is_empty());
    merge.push(0, batch(&[3, 4], 0));
    assert_eq!(drain(&mut merge, None), [(1, 1), (3, 0), (3, 1), (4, 0)]);
    merge.end(0);
    assert_eq!(drain(&mut merge, None), [(5, 1)]);
    merge.end(1);
    assert!(merge.is_over());
}

#[test]
fn a_streams_own_order_is_kept_where_its_times_step_back() {
    let mut merge = Merge::new(2, 1 << 20);
    merge.push(0, batch(&[10, 2, 11], 0));
    merge.push(1, batch(&[5, 12], 1));
    merge.end(0);
    merge.end(1);
    assert_eq!(drain(&mut merge, None), [(5, 1), (10, 0), (2, 0), (11, 0), (12, 1)]);
}

/// What comes of events `(stream, time)` in several steps.
fn merged_in_steps(merge: &mut Merge, steps: &[&[(usize, i64)]]) -> Vec<(i64, u32)> {
    let mut merged = Vec::new();
    for step in steps {
        for (place, (stream, time)) in step.iter().enumerate() {
            let event = batch(&[*time], *stream as u32);
            merge.push(*stream, event.with_places_from(place as i64));
            merged.extend(drain(merge, None));
        }
        merged.extend(drain(merge, Some(0)));
    }
    (0..merge.inputs.len()).for_each(|stream| merge.end(stream));
    merged.extend(drain(merge, None));
    assert!(merge.is_over());
    merged
}

#[test]
fn where_a_step_ends_decides_no_order() {
    let events = [(0, 5), (1, 9), (0, 9), (1, 3), (1, 2), (0, 3), (0, 9), (1, 4)];
    let wanted: Vec<(i64, u32)> = events.map(|(stream, time)| (time, stream as u32)).into();
    for end in 0..=events.len() {
        let mut merge = Merge::of_split(2);
        let merged = merged_in_steps(&mut merge, &[&events[..end], &events[end..]]);
        assert_eq!(merged, wanted, "{end}");
    }
}

#[test]
fn where_a_step_ends_decides_no_order_of_shifted_streams() {
    // In order, with equal times, with jitter, with a new start, and with absurd times.
    let sources: [&[i64]; 5] = [
        &[0, 10, 20, 30, 40, 50, 60, 70, 80, 90],
        &[0, 0, 0, 10, 10, 10, 20, 20, 20, 20],
        &[10, 3, 25, 20, 21, 60, 40, 42, 90, 85],
        &[500, 510, 520, 530, 0, 10, 20, 30, 40, 50],
        &[0, i64::MAX, 10, i64::MIN, 20, 30, -5, 40, 50, 60],
    ];
    let shifts = [100, 15, -7];
    for source in sources {
        let events: Vec<(usize, i64)> = source
            .iter()
            .enumerate()
            .map(|(n, time)| (n * n % 7 % 3, time.saturating_add(shifts[n * n % 7 % 3])))
            .collect();
        let mut wanted = None;
        for end in 0..=events.len() {
            let mut merge = Merge::shifted(shifts.into(), 1 << 20);
            let merged = merged_in_steps(&mut merge, &[&events[..end], &events[end..]]);
            assert_eq!(&merged, wanted.get_or_insert_with(|| merged.clone()), "{source:?}, {end}");
        }
        let merged = wanted.unwrap();
        if source.is_sorted() {
            assert!(merged.is_sorted_by_key(|(time, _)| *time), "{merged:?}");
        }
    }
}

#[test]
fn no_number_of_recordings_is_too_many_for_shifted_streams() {
    let shift = i64::MAX / 8;
    // Each event is of another recording than the one before it.
    let time = |n: i64| if n % 2 == 0 { 0 } else { i64::MAX / 2 };
    let events: Vec<(usize, i64)> =
        (0..40).map(|n| (n as usize % 3 / 2, time(n) + [0, shift][n as usize % 3 / 2])).collect();
    let wanted: Vec<(i64, u32)> = events.iter().map(|(n, time)| (*time, *n as u32)).collect();
    let events: Vec<(usize, i64)> = events.into_iter().map(|(n, time)| (1 - n, time)).collect();
    let mut merge = Merge::shifted(vec![shift, 0], 1 << 20);
    let merged = merged_in_steps(&mut merge, &[&events[..25], &events[25..]]);
    let times = |events: &[(i64, u32)]| events.iter().map(|(time, _)| *time).collect::<Vec<_>>();
    assert_eq!(times(&merged), times(&wanted));
}

#[test]
fn of_shifted_events_at_one_time_the_earlier_one_is_first() {
    let mut merge = Merge::shifted(vec![100, 0], 1 << 20);
    let merged = merged_in_steps(&mut merge, &[&[(0, 100), (0, 100)], &[(1, 100), (1, 100)]]);
    assert_eq!(merged, [(100, 0), (100, 0), (100, 1), (100, 1)]);
}

#[test]
fn what_waits_does_not_wait_for_what_another_recording_brings() {
    let mut merge = Merge::shifted(vec![100, 0], 1 << 20);
    let events = [(1, 500), (0, 620), (1, 530), (1, 0), (0, 110), (1, 20)];
    let merged = merged_in_steps(&mut merge, &[&events[..3], &events[3..]]);
    let times: Vec<i64> = merged.into_iter().map(|(time, _)| time).collect();
    assert_eq!(times, [500, 530, 620, 0, 20, 110]);
}

#[test]
fn events_without_places_are_behind_those_that_came_before() {
    let mut merge = Merge::of_split(2);
    merge.push(0, batch(&[10, 20, 30], 0).with_places_from(0));
    merge.push(1, batch(&[1, 2], 1));
    merge.push(0, batch(&[40], 0).with_places_from(3));
    let wanted = [(10, 0), (20, 0), (30, 0), (1, 1), (2, 1), (40, 0)];
    assert_eq!(drain(&mut merge, Some(0)), wanted);
}

#[test]
fn shifted_streams_of_one_source_wait_for_what_the_next_steps_bring() {
    for shift in [5, 100, -4, -5, -100] {
        let (shifted, other) = if shift > 0 { (0, 1) } else { (1, 0) };
        let mut merge = Merge::shifted(vec![shift.max(0), shift.min(0)], 1 << 20);
        let mut merged = Vec::new();
        // In each step, an event of the shifted stream follows one of the other.
        for step in 0..20 {
            merge.push(other, batch(&[step * 10], 0).with_places_from(0));
            merge.push(shifted, batch(&[step * 10 + 5 + shift], 1).with_places_from(1));
            merged.extend(drain(&mut merge, Some(0)));
            let waiting = merge.inputs.iter().flat_map(|input| &input.batches).count() as i64;
            assert!(waiting <= shift.abs() / 10 + 2, "{shift}: {waiting}");
        }
        (0..2).for_each(|stream| merge.end(stream));
        merged.extend(drain(&mut merge, None));
        let times: Vec<i64> = merged.into_iter().map(|(time, _)| time).collect();
        assert!(times.len() == 40 && times.is_sorted(), "{shift}: {times:?}");
    }
}

#[test]
fn shifted_streams_wait_in_a_silence_until_what_they_wait_for_would_be_later() {
    let mut merge = Merge::shifted(vec![100, 0], 1 << 20);
    merge.push(0, batch(&[105], 1).with_places_from(0));
    merge.push(1, batch(&[7], 0).with_places_from(1));
    (0..2).for_each(|stream| merge.set_idle(stream, true));
    assert!(drain(&mut merge, None).is_empty(), "the step goes on");
    assert_eq!(drain(&mut merge, Some(0)), [(7, 0)]);
    assert!(drain(&mut merge, Some(97)).is_empty());
    assert_eq!(drain(&mut merge, Some(98)), [(105, 1)]);
}

#[test]
fn no_more_than_the_limit_waits_for_the_next_steps() {
    let mut merge = Merge::shifted(vec![100, 0], 100);
    merge.push(0, batch(&[101, 102, 103, 104, 105, 106], 0).with_places_from(0));
    merge.push(1, batch(&[7, 8], 1).with_places_from(6));
    assert!(drain(&mut merge, None).is_empty());
    let first = drain(&mut merge, Some(0));
    assert_eq!(first[..3], [(7, 1), (8, 1), (101, 0)]);
    assert_eq!((first.len(), merge.bytes(), merge.take_late()), (8, 0, 0));
    merge.push(1, batch(&[9, 105, 106, 107], 1).with_places_from(0));
    assert_eq!(drain(&mut merge, Some(0)).len(), 4);
    assert_eq!(merge.take_late(), 2, "the other 106 came first");
}

#[test]
fn a_live_stream_that_is_silent_keeps_nobody_waiting() {
    let mut merge = Merge::new(2, 1 << 20);
    merge.push(0, batch(&[1, 2], 0));
    merge.set_idle(1, true);
    assert_eq!(drain(&mut merge, None), [(1, 0), (2, 0)]);
    merge.set_idle(1, false);
    merge.push(0, batch(&[5], 0));
    assert!(drain(&mut merge, None).is_empty());
}

#[test]
fn a_silent_stream_is_waited_for_until_the_buffer_is_full() {
    let mut merge = Merge::new(2, 100);
    merge.push(0, batch(&[1, 2, 3, 4, 5, 6], 0));
    assert_eq!(merge.starved(), None);
    assert_eq!(drain(&mut merge, None).len(), 6);
}

#[test]
fn late_events_are_counted_after_the_buffer_was_full() {
    let mut merge = Merge::new(2, 100);
    merge.push(1, batch(&[1, 2, 3, 4, 5, 6], 1));
    assert_eq!(drain(&mut merge, None).len(), 6);
    assert_eq!(merge.take_late(), 0);
    merge.push(0, batch(&[5, 6, 7], 0));
    assert_eq!(merge.take_late(), 2, "at equal times the first stream is first");
    merge.push(1, batch(&[2], 1));
    assert_eq!(merge.take_late(), 0, "a stream's own order is its own");
}

#[test]
fn nothing_is_too_late_where_an_idle_or_ended_stream_was_not_waited_for() {
    let mut merge = Merge::new(3, 1 << 20);
    merge.set_idle(0, true);
    merge.end(1);
    merge.push(2, batch(&[5], 2));
    assert_eq!(drain(&mut merge, None), [(5, 2)]);
    merge.push(0, batch(&[1], 0));
    assert_eq!(merge.take_late(), 0);
}
