//! Indexes that are built, checked and followed.

use super::*;
use crate::wire::{FileHead, MARKER, UNUSED, append_message};
use proptest::prelude::*;

/// A file with these entries and message times.
fn file(entries: &[i64], times: &[f64]) -> Vec<u8> {
    let mut file = FileHead::new(entries.len() as u32).write().to_vec();
    entries.iter().for_each(|entry| file.extend(entry.to_le_bytes()));
    for ms in times {
        append_message(&mut file, MARKER, (7, 1), *ms, b"x").unwrap();
    }
    file
}

fn report_of(entries: &[i64], times: &[f64]) -> IndexReport {
    let file = file(entries, times);
    check_index(&mut &file[..], &Rules::default()).unwrap().unwrap()
}

#[test]
fn a_second_without_messages_has_the_position_of_the_next_message() {
    let mut seconds = IndexBuilder::new(100);
    for (position, ms) in [(100, 50.0), (200, 1049.9), (300, 1050.0), (400, 900.0), (500, 4050.0)] {
        seconds.add_message(position, ms);
    }
    assert_eq!(seconds.positions(), [100, 300, 500, 500, 500]);
}

#[test]
fn a_jump_in_time_fills_no_more_than_there_may_be() {
    let mut seconds = IndexBuilder::new(10);
    for ms in [0.0, f64::NAN, 1e15, f64::INFINITY] {
        seconds.add_message(5, ms);
    }
    assert_eq!((seconds.positions().len(), seconds.is_full()), (10, true));
}

#[test]
fn entries_are_judged_one_by_one() {
    let at = |n: i64| 12 + 4 * 8 + n * 22;
    let times = [0.0, 500.0, 1000.0, 2500.0];
    let right = report_of(&[at(0), at(2), at(3), -1], &times);
    assert_eq!(right.to_string(), "index: 4 entries, 3 right, 1 unused, 0 wrong");
    let wrong = report_of(&[at(0), -1, at(2), at(3)], &times);
    let expected = WrongEntry { entry: 2, found: at(2), expected: Some(at(3) as u64) };
    assert_eq!((wrong.right, wrong.unused, wrong.wrong), (1, 1, 2));
    assert_eq!(wrong.first_wrong[0], expected);
    let findings = report_of(&[at(0), at(2), at(3), 7], &times).findings();
    assert_eq!(findings[1..], ["entry 3 points to byte 7, expected unused"]);
}

#[test]
fn only_the_first_of_many_wrong_entries_are_reported_one_by_one() {
    let findings = report_of(&[7; 50], &[0.0, 49_000.0]).findings();
    assert_eq!((findings.len(), &findings[21][..]), (22, "30 more entries are wrong"));
}

#[test]
fn seconds_that_are_not_indexed_are_reported() {
    for (entries, reach) in [(&[][..], 0), (&[-1; 4], 0), (&[12 + 3 * 8, -1, -1], 1)] {
        let findings = report_of(entries, &[0.0, 3_600_000.0]).findings();
        let left = 3601 - reach;
        let expected = format!(
            "{left} of the log's 3601 seconds are not indexed, from second {reach} to the end"
        );
        assert_eq!(findings.last(), Some(&expected));
    }
}

#[test]
fn a_message_that_was_deleted_later_is_still_in_the_index() {
    let mut bytes = file(&[20, 42], &[0.0, 1000.0, 1000.0]);
    bytes[28 + 4] = 0x30;
    bytes[12..20].copy_from_slice(&28i64.to_le_bytes());
    bytes[20..28].copy_from_slice(&50i64.to_le_bytes());
    bytes[50 + 4] = 0x30;
    let verdict = check_index(&mut &bytes[..], &Rules::default()).unwrap().unwrap();
    assert_eq!((verdict.right, verdict.wrong), (2, 0));
}

#[test]
fn an_index_ends_where_a_jump_would_make_it_longer_than_the_messages() {
    let mut seconds = IndexBuilder::proportional(3, 10_000_000);
    [(0, 0.0), (69, 1e11), (138, 1e11 + 1.0), (207, 2e3)]
        .iter()
        .for_each(|(at, ms)| seconds.add_message(*at, *ms));
    assert_eq!((seconds.positions(), seconds.is_full()), (&[0, 69, 69][..], true));
    let mut seconds = IndexBuilder::proportional(0, 10_000_000);
    [(0, 0.0), (69, 1e7)].iter().for_each(|(at, ms)| seconds.add_message(*at, *ms));
    assert_eq!((seconds.positions().len(), seconds.is_full()), (10_001, false));
}

/// A file with a correct index.
fn indexed(times: &[f64]) -> Vec<u8> {
    let mut seconds = IndexBuilder::new(100_000);
    times.iter().enumerate().for_each(|(n, ms)| seconds.add_message(n as u64 * 22, *ms));
    let body = 12 + seconds.positions().len() as u64 * 8;
    let entries: Vec<_> = seconds.positions().iter().map(|at| (body + at) as i64).collect();
    file(&entries, times)
}

/// The times left of a file with a correct index, for a window that includes its margins.
fn left(times: &[f64], window: (Option<f64>, Option<f64>)) -> Vec<f64> {
    left_of(&indexed(times), times, window)
}

fn left_of(file: &[u8], times: &[f64], window: (Option<f64>, Option<f64>)) -> Vec<f64> {
    let len = file.len() as u64;
    let found = narrow(&mut &file[..], window, len, &Rules::default()).unwrap();
    let (from, to) = found.unwrap_or((0, None));
    let body = len - times.len() as u64 * 22;
    let place = |n: usize| body + n as u64 * 22;
    let is_left = |n: &usize| place(*n) >= from && to.is_none_or(|to| place(*n) < to);
    (0..times.len()).filter(is_left).map(|n| times[n]).collect()
}

fn rising_times() -> Vec<f64> {
    (0..1000).map(|n| f64::from(n) * 100.0).collect()
}

#[test]
fn a_part_of_a_file_with_rising_times_is_left() {
    let times = rising_times();
    assert_eq!(left(&times, (Some(30_000.0), Some(50_000.0))), times[300..500]);
}

#[test]
fn one_message_far_ahead_hides_nothing_behind_it() {
    let mut times = rising_times();
    times.insert(250, 1_000_000.0);
    for window in [(Some(30_000.0), Some(50_000.0)), (None, Some(50_000.0))] {
        let left = left(&times, window);
        let within: Vec<_> = times.iter().filter(|ms| (30_000.0..50_000.0).contains(*ms)).collect();
        assert!(within.iter().all(|ms| left.contains(ms)), "{window:?}");
    }
}

#[test]
fn a_clock_that_began_anew_hides_nothing() {
    let times = [rising_times(), rising_times()].concat();
    for window in [(None, Some(60_000.0)), (Some(40_000.0), None), (Some(40_000.0), Some(60_000.0))]
    {
        assert_eq!(left(&times, window), times, "{window:?}");
    }
}

#[test]
fn an_entry_that_shares_its_place_with_others_is_proven_from_before_them() {
    let times = rising_times();
    let right = indexed(&times);
    let window = (Some(98_000.0), None);
    // All entries but the first point to the last message.
    let last = right[12 + 99 * 8..].first_chunk::<8>().unwrap();
    let mut wrong = right.clone();
    (1..100).for_each(|n| wrong[12 + n * 8..][..8].copy_from_slice(last));
    assert_eq!(left_of(&wrong, &times, window), times);
    // Seconds without messages.
    let gaps: Vec<_> = times.iter().copied().filter(|ms| ms % 10_000.0 < 6_000.0).collect();
    let late = left(&gaps, (Some(40_000.0), None));
    assert_eq!(late, gaps[gaps.len() - 360..]);
}

proptest! {
    #[test]
    fn an_index_that_was_made_is_right(
        times in proptest::collection::vec(0.0f64..20_000.0, 1..40),
    ) {
        let body = 12 + 30 * 8;
        let mut seconds = IndexBuilder::new(30);
        for (n, ms) in times.iter().enumerate() {
            seconds.add_message(body + n as u64 * 22, *ms);
        }
        let mut entries: Vec<i64> = seconds.positions().iter().map(|at| *at as i64).collect();
        entries.resize(30, UNUSED);
        let verdict = report_of(&entries, &times);
        prop_assert_eq!((verdict.wrong, verdict.right), (0, seconds.positions().len() as u64));
    }

    #[test]
    fn a_narrowed_file_has_every_message_of_the_window(
        times in proptest::collection::vec(0.0f64..20_000.0, 1..60),
        start in 0.0f64..20_000.0, len in 0.0f64..10_000.0,
    ) {
        let mut times = times;
        times.sort_by(f64::total_cmp);
        let body = 12 + 20 * 8;
        let mut seconds = IndexBuilder::new(20);
        for (n, ms) in times.iter().enumerate() {
            seconds.add_message(body + n as u64 * 22, *ms);
        }
        let mut entries: Vec<i64> = seconds.positions().iter().map(|at| *at as i64).collect();
        entries.resize(20, UNUSED);
        let file = file(&entries, &times);
        let window = (Some(start), Some(start + len));
        let size = file.len() as u64;
        let found = narrow(&mut &file[..], window, size, &Rules::default()).unwrap();
        let (from, to) = found.unwrap_or((0, None));
        for (n, ms) in times.iter().enumerate() {
            let at = body + n as u64 * 22;
            if (start..start + len).contains(ms) {
                prop_assert!(at >= from && to.is_none_or(|to| at < to), "{} at {}", ms, at);
            }
        }
    }

    #[test]
    fn messages_that_are_out_of_place_by_less_than_the_margin_are_left(
        late in proptest::collection::vec(0.0f64..9_000.0, 200..600),
        start in 0.0f64..60_000.0, len in 0.0f64..30_000.0,
    ) {
        let times: Vec<f64> =
            late.iter().enumerate().map(|(n, late)| n as f64 * 100.0 - late * 0.9).collect();
        let left = left(&times, (Some(start), Some(start + len)));
        for ms in &times {
            if (start..start + len - 10_000.0).contains(ms) {
                prop_assert!(left.contains(ms), "{}", ms);
            }
        }
    }
}
