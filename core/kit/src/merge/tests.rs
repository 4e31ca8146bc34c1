//! Tests of merges.

use super::*;
use sluice_model::{BatchBuilder, ChannelId};

fn batch(times: &[i64], channel: u32) -> Batch {
    let mut builder = BatchBuilder::default();
    for time in times {
        builder.push_copy(*time, 0, ChannelId(channel), b"");
    }
    builder.finish()
}

fn drain(merge: &mut Merge, pause: MergePause) -> Vec<(i64, u32)> {
    let mut all = Vec::new();
    while let Some(batch) = merge.take(pause) {
        all.extend(batch.iter().map(|event| (event.timestamp, event.channel.0)));
    }
    all
}

#[test]
fn the_earliest_goes_first_and_ties_keep_the_order_of_streams() {
    let mut merge = Merge::new(2, MergeWait::Source, 1 << 20);
    merge.push(1, batch(&[1, 3, 5], 1));
    assert_eq!(merge.starved(), Some(0));
    assert!(drain(&mut merge, MergePause::StepOver(0)).is_empty());
    merge.push(0, batch(&[3, 4], 0));
    assert_eq!(drain(&mut merge, MergePause::None), [(1, 1), (3, 0), (3, 1), (4, 0)]);
    merge.end(0);
    assert_eq!(drain(&mut merge, MergePause::None), [(5, 1)]);
    merge.end(1);
    assert!(merge.is_over());
}

#[test]
fn a_streams_own_order_is_kept_where_its_times_step_back() {
    let mut merge = Merge::new(2, MergeWait::Source, 1 << 20);
    merge.push(0, batch(&[10, 2, 11], 0));
    merge.push(1, batch(&[5, 12], 1));
    merge.end(0);
    merge.end(1);
    assert_eq!(drain(&mut merge, MergePause::None), [(5, 1), (10, 0), (2, 0), (11, 0), (12, 1)]);
}

#[test]
fn streams_of_one_source_wait_no_longer_than_a_step() {
    let mut merge = Merge::new(2, MergeWait::Step, 1 << 20);
    merge.push(0, batch(&[1, 2], 0));
    assert!(drain(&mut merge, MergePause::None).is_empty());
    assert_eq!(drain(&mut merge, MergePause::StepOver(0)), [(1, 0)]);
    assert_eq!(drain(&mut merge, MergePause::Silence(0)), [(2, 0)]);
}

#[test]
fn where_a_step_ends_decides_no_order() {
    let (events, mut wanted) = ([1, 2, 2, 2, 2, 3], None);
    for end in 0..=events.len() {
        let mut merge = Merge::new(2, MergeWait::Step, 1 << 20);
        let mut merged = Vec::new();
        for step in [0..end, end..events.len()] {
            // Events belong to the streams in turn.
            for (at, time) in events.iter().enumerate().filter(|(at, _)| step.contains(at)) {
                merge.push(at % 2, batch(&[*time], (at % 2) as u32));
                merged.extend(drain(&mut merge, MergePause::None));
            }
            merged.extend(drain(&mut merge, MergePause::StepOver(0)));
        }
        (0..2).for_each(|stream| merge.end(stream));
        merged.extend(drain(&mut merge, MergePause::None));
        assert_eq!(&merged, wanted.get_or_insert_with(|| merged.clone()), "{end}");
    }
    assert_eq!(wanted.unwrap(), [(1, 0), (2, 0), (2, 0), (2, 1), (2, 1), (3, 1)]);
}

#[test]
fn where_a_step_ends_decides_no_order_of_times_that_step_back() {
    let (events, mut wanted) = ([5, 3, 9, 7, 8, 6, 12, 10, 11, 14, 13, 15], None);
    for end in 0..=events.len() {
        let mut merge = Merge::new(2, MergeWait::Step, 1 << 20);
        let (mut merged, mut late) = (Vec::new(), 0);
        for step in [0..end, end..events.len()] {
            // Every third event belongs to the second stream.
            for stream in 0..2 {
                let is_its_own = |at: &usize| usize::from(at % 3 == 1) == stream;
                let times: Vec<i64> =
                    step.clone().filter(is_its_own).map(|at| events[at]).collect();
                late += merge.push(stream, batch(&times, stream as u32));
            }
            merged.extend(drain(&mut merge, MergePause::StepOver(3)));
        }
        (0..2).for_each(|stream| merge.end(stream));
        merged.extend(drain(&mut merge, MergePause::None));
        assert_eq!((merged.len(), late), (events.len(), 0));
        assert_eq!(&merged, wanted.get_or_insert_with(|| merged.clone()), "{end}");
    }
}

#[test]
fn times_that_step_back_further_than_expected_are_late() {
    let mut merge = Merge::new(2, MergeWait::Step, 1 << 20);
    merge.push(0, batch(&[1, 20], 0));
    assert_eq!(drain(&mut merge, MergePause::StepOver(3)), [(1, 0)]);
    merge.push(0, batch(&[30], 0));
    assert_eq!(drain(&mut merge, MergePause::StepOver(3)), [(20, 0)]);
    assert_eq!(merge.push(1, batch(&[19, 21], 1)), 1);
}

#[test]
fn what_nobody_wants_changes_no_order() {
    let merged = |times: &[i64], window: TimeWindow, channels: &[bool]| {
        let mut merge = Merge::new(2, MergeWait::Source, 1 << 20);
        let mut builder = BatchBuilder::default();
        // The channels 0 and 2 in turn.
        let events = (0..).map(|at| at % 2 * 2).zip(times);
        events.for_each(|(id, time)| builder.push_copy(*time, 0, ChannelId(id), b""));
        let wanted = WantedEvents { window, channels };
        merge.push_wanted(0, builder.finish(), Some(wanted));
        merge.push_wanted(1, batch(&[2, 5, 6], 1), Some(wanted));
        (0..2).for_each(|stream| merge.end(stream));
        let merged = drain(&mut merge, MergePause::None);
        merged.into_iter().map(|(time, _)| time).filter(|time| *time < 50).collect::<Vec<_>>()
    };
    let all = TimeWindow::default();
    let early = TimeWindow { end: Some(50), ..all };
    let wanted = [1, 2, 3, 4, 5, 6];
    assert_eq!(merged(&[1, 3, 4], all, &[true; 3]), wanted);
    assert_eq!(merged(&[1, 100, 3, 100, 4], early, &[true; 3]), wanted);
    assert_eq!(merged(&[1, 100, 3, 100, 4], all, &[true, true, false]), wanted);
    assert_eq!(merged(&[1, 100, 3, 100, 4], all, &[true; 3]), [1, 2, 5, 6, 3, 4]);
}

#[test]
fn shifted_streams_of_one_source_wait_for_what_the_next_steps_bring() {
    let merged = |shift: i64, pause| {
        let mut merge = Merge::new(2, MergeWait::Step, 1 << 20).with_shifts(&[0, shift]);
        let mut merged = Vec::new();
        // In each step, an event of the second stream follows one of the first.
        for step in 0..20 {
            merge.push(0, batch(&[step * 10], 0));
            merge.push(1, batch(&[step * 10 + 5 + shift], 1));
            merged.extend(drain(&mut merge, pause));
            let waiting = merge.inputs.iter().flat_map(|input| &input.batches).count() as i64;
            assert!(waiting <= shift.abs() / 10 + 2, "{shift}: {waiting}");
        }
        (0..2).for_each(|stream| merge.end(stream));
        merged.extend(drain(&mut merge, MergePause::None));
        merged.into_iter().map(|(time, _)| time).collect::<Vec<_>>()
    };
    for shift in [0, 5, 100, -4, -5, -100] {
        for pause in [MergePause::StepOver(0), MergePause::Silence(0)] {
            let times = merged(shift, pause);
            assert!(times.len() == 40 && times.is_sorted(), "{shift}, {pause:?}: {times:?}");
        }
    }
}

#[test]
fn shifted_streams_wait_in_a_silence_until_what_they_wait_for_would_be_later() {
    let mut merge = Merge::new(2, MergeWait::Step, 1 << 20).with_shifts(&[0, 100]);
    merge.push(0, batch(&[7], 0));
    merge.push(1, batch(&[105], 1));
    (0..2).for_each(|stream| merge.set_idle(stream, true));
    assert_eq!(drain(&mut merge, MergePause::None), [(7, 0)]);
    assert!(drain(&mut merge, MergePause::Silence(97)).is_empty());
    assert_eq!(drain(&mut merge, MergePause::Silence(98)), [(105, 1)]);
}

#[test]
fn a_step_is_merged_whole_and_no_more_than_the_limit_waits_for_the_next() {
    let mut merge = Merge::new(2, MergeWait::Step, 100);
    // An absurd time, behind which all later events of its stream wait.
    merge.push(0, batch(&[1, i64::MAX, 2, 3, 4, 5, 6], 0));
    assert!(drain(&mut merge, MergePause::None).is_empty());
    assert_eq!(merge.push(1, batch(&[2, 3], 1)), 0);
    let first = drain(&mut merge, MergePause::StepOver(0));
    assert_eq!(first[..3], [(1, 0), (2, 1), (3, 1)]);
    assert_eq!((first.len(), merge.bytes()), (9, 0));
    assert_eq!(merge.push(1, batch(&[4, 5], 1)), 2, "later than the absurd time");
}

#[test]
fn a_live_stream_that_is_silent_keeps_nobody_waiting() {
    let mut merge = Merge::new(2, MergeWait::Source, 1 << 20);
    merge.push(0, batch(&[1, 2], 0));
    merge.set_idle(1, true);
    assert_eq!(drain(&mut merge, MergePause::None), [(1, 0), (2, 0)]);
    merge.set_idle(1, false);
    merge.push(0, batch(&[5], 0));
    assert!(drain(&mut merge, MergePause::None).is_empty());
}

#[test]
fn a_silent_stream_is_waited_for_until_the_buffer_is_full() {
    let mut merge = Merge::new(2, MergeWait::Source, 100);
    merge.push(0, batch(&[1, 2, 3, 4, 5, 6], 0));
    assert_eq!(merge.starved(), None);
    assert_eq!(drain(&mut merge, MergePause::None).len(), 6);
}

#[test]
fn late_events_are_counted_after_the_buffer_was_full() {
    let mut merge = Merge::new(2, MergeWait::Source, 100);
    assert_eq!(merge.push(1, batch(&[1, 2, 3, 4, 5, 6], 1)), 0);
    assert_eq!(drain(&mut merge, MergePause::None).len(), 6);
    assert_eq!(merge.push(0, batch(&[5, 6, 7], 0)), 2, "at equal times the first stream is first");
    assert_eq!(merge.push(1, batch(&[2], 1)), 0, "a stream's own order is its own");
}

#[test]
fn nothing_is_too_late_where_an_idle_or_ended_stream_was_not_waited_for() {
    let mut merge = Merge::new(3, MergeWait::Source, 1 << 20);
    merge.set_idle(0, true);
    merge.end(1);
    merge.push(2, batch(&[5], 2));
    assert_eq!(drain(&mut merge, MergePause::None), [(5, 2)]);
    assert_eq!(merge.push(0, batch(&[1], 0)), 0);
}
