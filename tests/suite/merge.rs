//! Merging streams: by time, each stream in its own order.

use sluice_model::options::ByteSize;

use crate::kit::{BEGIN, Folder, LcmEvent, SeededRng, drive, events, log, numbers, run, run_with};

/// The definition of merging: the stream with the earliest next event goes first, ties by order of
/// naming; the order within a stream is kept, whatever its times.
fn expected_merge(streams: &[Vec<LcmEvent>]) -> Vec<LcmEvent> {
    let mut next = vec![0; streams.len()];
    let mut all = Vec::new();
    while let Some((_, stream)) = (0..streams.len())
        .filter_map(|stream| Some((streams[stream].get(next[stream])?.utime, stream)))
        .min()
    {
        all.push(streams[stream][next[stream]].clone());
        next[stream] += 1;
    }
    all
}

fn fan_in(folder: &Folder, streams: &[Vec<LcmEvent>]) -> String {
    let mut text = String::new();
    for (n, events) in streams.iter().enumerate() {
        folder.write(&format!("{n}.lcm"), log(events));
        text += &format!("[sources.s{n}]\nplugin = \"lcm-log\"\npath = \"${{DIR}}/{n}.lcm\"\n");
    }
    let from: Vec<String> = (0..streams.len()).map(|n| format!("s{n}")).collect();
    text + &format!(
        "[sinks.out]\nplugin = \"lcm-log\"\nfrom = {from:?}\npath = \"${{DIR}}/out.lcm\"\n"
    )
}

fn check(streams: &[Vec<LcmEvent>]) {
    let folder = Folder::new();
    let text = fan_in(&folder, streams);
    run(&text, folder.path(), 2).unwrap();
    let (found, expected) = (events(&folder.read("out.lcm")), expected_merge(streams));
    let differs = found.iter().zip(&expected).position(|(a, b)| a != b);
    assert_eq!((differs, found.len()), (None, expected.len()), "the first that differs");
}

fn named_stream(
    seed: u64,
    count: i64,
    change: impl Fn(&mut LcmEvent, &mut SeededRng),
) -> Vec<LcmEvent> {
    let (mut events, mut rng) = (drive(seed, count), SeededRng(seed));
    for event in &mut events {
        event.channel.extend(format!("_{seed}").into_bytes());
        change(event, &mut rng);
    }
    events
}

#[test]
fn streams_are_merged_by_time() {
    check(&[
        named_stream(1, 900, |_, _| {}),
        named_stream(2, 700, |_, _| {}),
        named_stream(3, 50, |_, _| {}),
    ]);
}

#[test]
fn at_equal_times_the_source_named_first_goes_first() {
    let same =
        |event: &mut LcmEvent, _: &mut SeededRng| event.utime = BEGIN + event.number / 10 * 1_000;
    check(&[named_stream(1, 500, same), named_stream(2, 500, same), named_stream(3, 500, same)]);
}

#[test]
fn a_stream_whose_times_step_back_keeps_its_order() {
    let jumpy =
        |event: &mut LcmEvent, rng: &mut SeededRng| event.utime -= rng.below(300_000) as i64;
    check(&[
        named_stream(1, 800, jumpy),
        named_stream(2, 800, |_, _| {}),
        named_stream(3, 800, jumpy),
    ]);
}

#[test]
fn streams_that_lie_far_apart_in_time_come_one_after_another() {
    let later = |event: &mut LcmEvent, _: &mut SeededRng| event.utime += 3_600_000_000;
    check(&[named_stream(1, 900, later), named_stream(2, 900, |_, _| {})]);
}

#[test]
fn an_empty_stream_blocks_no_other() {
    check(&[Vec::new(), named_stream(2, 300, |_, _| {}), Vec::new()]);
}

#[test]
fn a_stream_filtered_to_nothing_blocks_no_other() {
    let folder = Folder::new();
    let streams = [named_stream(1, 900, |_, _| {}), named_stream(2, 300, |_, _| {})];
    let none = "[stages.none]\nplugin = \"filter\"\nfrom = \"s0\"\nchannels = \"NOTHING\"\n";
    let text = fan_in(&folder, &streams).replace("\"s0\", ", "\"none\", ") + none;
    run(&text, folder.path(), 2).unwrap();
    assert!(folder.read("out.lcm") == log(&streams[1]));
}

/// Long events on two channels, those of the second first.
fn long_events() -> [Vec<LcmEvent>; 2] {
    let stream = |channel: &str, first: i64| -> Vec<LcmEvent> {
        let image = vec![first as u8; 400_000];
        (0..12).map(|n| LcmEvent::new(n, BEGIN + first + n * 10, channel, &image)).collect()
    };
    [stream("LEFT", 5), stream("RIGHT", 0)]
}

fn times(folder: &Folder) -> Vec<i64> {
    events(&folder.read("out.lcm")).iter().map(|event| event.utime - BEGIN).collect()
}

#[test]
fn long_events_are_merged_by_time_however_little_memory_there_is() {
    let folder = Folder::new();
    let text = fan_in(&folder, &long_events());
    run_with(&text, folder.path(), 2, ByteSize(1 << 20)).unwrap();
    assert_eq!(times(&folder), (0..24).map(|n| n * 5).collect::<Vec<_>>());
}

#[test]
fn long_events_taken_apart_are_put_together_by_time_however_little_memory_there_is() {
    let folder = Folder::new();
    folder.write("in.lcm", log(&expected_merge(&long_events())));
    let keep = |name: &str, channel: &str| {
        format!("[stages.{name}]\nplugin = \"filter\"\nfrom = \"s\"\nchannels = \"{channel}\"\n")
    };
    let text = "[sources.s]\nplugin = \"lcm-log\"\npath = \"${DIR}/in.lcm\"\n".to_owned()
        + &keep("l", "LEFT")
        + &keep("r", "RIGHT")
        + "[sinks.out]\nplugin = \"lcm-log\"\nfrom = [\"l\", \"r\"]\npath = \"${DIR}/out.lcm\"\n";
    run_with(&text, folder.path(), 2, ByteSize(1 << 20)).unwrap();
    assert_eq!(times(&folder), (0..24).map(|n| n * 5).collect::<Vec<_>>());
}

#[test]
fn a_source_split_and_merged_again_is_unchanged() {
    let folder = Folder::new();
    let whole = drive(7, 2_000);
    folder.write("in.lcm", log(&whole));
    let text = r#"
        [sources.log]
        plugin = "lcm-log"
        path = "${DIR}/in.lcm"
        [stages.left]
        plugin = "filter"
        from = "log"
        channels = ["A", "C"]
        [stages.right]
        plugin = "filter"
        from = "log"
        exclude = ["A", "C"]
        [sinks.out]
        plugin = "lcm-log"
        from = ["left", "right"]
        path = "${DIR}/out.lcm"
    "#;
    let report = run(text, folder.path(), 2).unwrap();
    assert!(folder.read("out.lcm") == log(&whole));
    let rows = report.channels.iter().map(|row| (row.entered, row.out, row.filtered));
    // Each event went to two nodes, one of which continues.
    rows.for_each(|(entered, out, filtered)| assert_eq!((entered, filtered), (2 * out, out)));
}

#[test]
fn files_of_one_source_are_read_one_after_another_not_merged() {
    let folder = Folder::new();
    let (a, b) = (drive(1, 20), drive(2, 20));
    folder.write("1.lcm", log(&a));
    folder.write("2.lcm", log(&b));
    let text = "[sources.log]\nplugin = \"lcm-log\"\npath = [\"${DIR}/2.lcm\", \"${DIR}/1.lcm\"]\n\
        [sinks.out]\nplugin = \"lcm-log\"\nfrom = \"log\"\npath = \"${DIR}/out.lcm\"\n";
    run(text, folder.path(), 2).unwrap();
    assert_eq!(numbers(&folder.read("out.lcm")), (0..20).chain(0..20).collect::<Vec<_>>());
    assert!(folder.read("out.lcm") == [log(&b), log(&a)].concat());
}

#[test]
fn branches_keep_the_order_of_their_source_wherever_a_log_is_cut() {
    let folder = Folder::new();
    // Groups of four at one time, and the branch that is named first comes last in each. The clock
    // is set back now and then.
    let event = |n: i64| {
        let channel = if n % 4 < 2 { "A" } else { "B" };
        LcmEvent::new(n, BEGIN + n / 4 % 300, channel, &[n as u8; 300])
    };
    let all: Vec<LcmEvent> = (0..4_000).map(event).collect();
    folder.write("in.lcm", log(&all));
    folder.write("in.lcm.zst", zstd::encode_all(&log(&all)[..], 1).unwrap());
    let wanted: Vec<i64> = all.iter().map(|event| event.number).collect();
    let text = |name: &str| {
        format!(
            "[sources.log]\nplugin = \"lcm-log\"\npath = \"${{DIR}}/{name}\"\n\
             [stages.a]\nplugin = \"filter\"\nfrom = \"log\"\nchannels = \"A\"\n\
             [stages.b]\nplugin = \"filter\"\nfrom = \"log\"\nchannels = \"B\"\n\
             [sinks.out]\nplugin = \"lcm-log\"\nfrom = [\"b\", \"a\"]\n\
             path = \"${{DIR}}/out.lcm\"\n"
        )
    };
    for (name, memory) in [("in.lcm", 1 << 20), ("in.lcm", 1 << 28), ("in.lcm.zst", 1 << 28)] {
        run_with(&text(name), folder.path(), 2, ByteSize(memory)).unwrap();
        assert!(numbers(&folder.read("out.lcm")) == wanted, "{name} {memory}");
    }
}
