//! Windows of time have every event of theirs, in whatever order the times of a log are.

use crate::kit::{BEGIN, Event, Folder, events, log, ran};

/// A log of more than 16 MiB with an event at each of these seconds.
fn log_at(seconds: impl Iterator<Item = i64>) -> Vec<Event> {
    let each = seconds.enumerate().map(|(n, second)| {
        let payload = vec![n as u8; if n % 4 == 0 { 100 } else { 60_000 }];
        Event::new(n as i64, BEGIN + second * 1_000_000, "POSE", &payload)
    });
    each.collect()
}

/// Logs whose times do not rise.
fn logs() -> [(&'static str, Vec<Event>); 3] {
    let jump = |n: i64| if (250..300).contains(&n) { n + 3600 } else { n };
    [
        ("two logs in one", log_at((5000..5300).chain(0..300))),
        ("appended after the clock was set back", log_at((0..400).chain(100..300))),
        ("a clock that jumps for a moment", log_at((0..600).map(jump))),
    ]
}

/// Cuts `from` by a window and gives the events.
fn cut(folder: &Folder, from: &str, window: &[&str], more: &[&str]) -> Vec<Event> {
    let line = [&["convert", from, "--to", "cut.lcm", "--overwrite"], window, more].concat();
    ran(folder, &line).expect(0);
    events(&folder.read("cut.lcm"))
}

#[test]
fn a_window_of_a_log_is_that_of_its_archive_and_of_its_table() {
    for (what, all) in logs() {
        let folder = Folder::new();
        folder.write("in.lcm", log(&all));
        ran(&folder, &["convert", "in.lcm", "--to", "in.lcm.zst"]).expect(0);
        ran(&folder, &["convert", "in.lcm", "--to", "in.parquet"]).expect(0);
        // From 100 s to 300 s, from 3850 s, up to 150 s; each as seconds after BEGIN.
        let at = |second: i64| (BEGIN / 1_000_000 + second).to_string();
        for (start, end) in [(Some(100), Some(300)), (Some(3850), None), (None, Some(150))] {
            let mut window = Vec::new();
            start.iter().for_each(|second| window.extend(["--start".to_owned(), at(*second)]));
            end.iter().for_each(|second| window.extend(["--end".to_owned(), at(*second)]));
            let window: Vec<&str> = window.iter().map(String::as_str).collect();
            let inside = |event: &&Event| {
                let second = (event.utime - BEGIN) / 1_000_000;
                start.is_none_or(|start| second >= start) && end.is_none_or(|end| second < end)
            };
            let expected: Vec<Event> = all.iter().filter(inside).cloned().collect();
            for (from, more) in [
                ("in.lcm", &[][..]),
                ("in.lcm", &["--source-option", "seek=false"]),
                ("in.lcm.zst", &[]),
                ("in.parquet", &[]),
            ] {
                let found = cut(&folder, from, &window, more);
                assert!(found == expected, "{what}, {from} {more:?}: {} events", found.len());
            }
        }
    }
}

#[test]
fn relative_times_count_from_the_first_event_in_the_file() {
    let folder = Folder::new();
    let all = log_at((5000..5300).chain(4990..5000));
    folder.write("in.lcm", log(&all));
    ran(&folder, &["convert", "in.lcm", "--to", "in.lcm.zst"]).expect(0);
    for from in ["in.lcm", "in.lcm.zst"] {
        let found = cut(&folder, from, &["--start", "+2s", "--end", "+4s"], &[]);
        assert!(found == all[2..4], "{from}");
        // What lies before the first event in time lies before the window.
        assert_eq!(cut(&folder, from, &["--end", "+1s"], &[]).len(), 11, "{from}");
    }
}
