//! Expectations made from figures, and figures compared with expectations.

use proptest::prelude::*;
use sluice_model::UnmetExpectation;

use super::{Expectations, compare, from_figures, unmet};
use crate::figures::{
    ChannelFigures, DamagedRange, FieldFigures, Figures, GapFigures, Histogram, HistogramBin,
    InputFigures, LatencyFigures, NamedType, RateFigures, Thinned,
};

const SECOND: i64 = 1_000_000_000;

fn parse(text: &str) -> Expectations {
    Expectations::parse("expect.toml", text)
        .unwrap_or_else(|mistakes| panic!("{mistakes:?}\n{text}"))
}

/// The rules that are not met, with the channels.
fn failing(text: &str, figures: &Figures) -> Vec<(String, String)> {
    let each = unmet(&parse(text), figures).into_iter();
    each.map(|unmet| (unmet.rule, unmet.channels.join(","))).collect()
}

/// A channel of 10 Hz from 0 to 60 s.
fn channel(name: &str) -> ChannelFigures {
    ChannelFigures {
        name: name.to_owned(),
        source: "log".to_owned(),
        types: vec![NamedType { name: "p.pose_t".to_owned(), events: 601 }],
        events: 601,
        bytes: Some(6010),
        first: 0,
        last: 60 * SECOND,
        rate: Some(RateFigures { median: 10.0, p1: 9.0, p99: 11.0, mean: 10.0 }),
        longest_gap: Some(GapFigures { start: 20 * SECOND, length: 120_000_000 }),
        intervals: Histogram { bins: vec![HistogramBin { from: 99e6, to: 101e6, count: 600 }] },
        latency: Some(LatencyFigures {
            field: "utime".to_owned(),
            least: 1_000_000,
            median: 2_000_000,
            greatest: 9_000_000,
            ..LatencyFigures::default()
        }),
        fields: vec![FieldFigures {
            path: "vel[0]".to_owned(),
            count: 601,
            min: Some(-1.0),
            min_at: 5 * SECOND,
            max: Some(4.0),
            max_at: 6 * SECOND,
            ..FieldFigures::default()
        }],
        ..ChannelFigures::default()
    }
}

fn figures(names: &[&str]) -> Figures {
    Figures {
        inputs: vec![InputFigures {
            name: "a.lcm".into(),
            bytes: Some(1000),
            ..Default::default()
        }],
        events: 601 * names.len() as u64,
        start: Some(0),
        end: Some(60 * SECOND),
        channels: names.iter().map(|name| channel(name)).collect(),
        ..Figures::default()
    }
}

#[test]
fn intervals_in_the_bin_of_the_limit_are_dropped_ones_if_most_of_it_is_above() {
    let mut log = figures(&["POSE"]);
    let text = "[channels.POSE]\ndropped = { over = 1.5, share = 0.1 }";
    for (from, to, is_dropped) in [(149.5e6, 151e6, true), (149e6, 150.5e6, false)] {
        let usual = HistogramBin { from: 99e6, to: 101e6, count: 510 };
        log.channels[0].intervals.bins = vec![usual, HistogramBin { from, to, count: 90 }];
        assert_eq!(!failing(text, &log).is_empty(), is_dropped, "{from}");
    }
}

#[test]
fn each_rule_says_what_was_expected_and_found() {
    let mut log = figures(&["POSE"]);
    log.inputs[0].damaged_bytes = 24;
    log.inputs[0].damaged_ranges = 1;
    let reason = "no sync word".to_owned();
    log.inputs[0].damage = vec![DamagedRange { offset: 7, length: 24, reason }];
    let cases = [
        (
            "[log]\ndamage = 0",
            "damage: expected none, found 24 bytes in 1 range, \
             the first at byte 7 of a.lcm: no sync word (expect.toml:2)",
        ),
        (
            "[log]\nduration = { min = \"2m\" }",
            "duration: expected at least 120 s, found 60 s (expect.toml:2)",
        ),
        ("[log]\ncount = 7", "count: expected 7 events, found 601 (expect.toml:2)"),
        (
            "[log]\nno_other_channels = true",
            "no_other_channels: expected only channels of this file, found POSE (expect.toml:2)",
        ),
        (
            "[channels.POSES]",
            "must_exist: expected a channel that matches `POSES`, \
             found none; near it: POSE (expect.toml:1)",
        ),
        (
            "[channels.POSE]\ntype = \"p.image_t\"",
            "POSE: type: expected type p.image_t, found p.pose_t (expect.toml:2)",
        ),
        (
            "[channels.POSE]\nrate = 20",
            "POSE: rate: expected 18 Hz to 22 Hz, found 10 Hz (expect.toml:2)",
        ),
        (
            "[channels.POSE]\nmax_gap = \"100ms\"",
            "POSE: max_gap: expected at most 100 ms, found 120 ms at +20.000 s (expect.toml:2)",
        ),
        (
            "[channels.POSE]\nlatency = { median = \"1ms\" }",
            "POSE: latency: expected a median of at most 1 ms, found 2 ms (expect.toml:2)",
        ),
        (
            "[channels.POSE]\nfields.\"vel[0]\" = { max = 3 }",
            "POSE: fields: expected field vel[0] at most 3, found 4 at +6.000 s (expect.toml:2)",
        ),
        (
            "[channels.POSE]\nfields.\"vel[1]\" = {}",
            "POSE: fields: expected field vel[1] to exist, \
             found no such number; near it: vel[0] (expect.toml:2)",
        ),
    ];
    for (text, expected) in cases {
        let found: Vec<String> =
            unmet(&parse(text), &log).iter().map(UnmetExpectation::to_string).collect();
        assert_eq!(found, [expected], "{text}");
    }
}

#[test]
fn a_silence_of_several_channels_is_told_once() {
    let mut log = figures(&["CAM_L", "CAM_R", "POSE"]);
    for (at, name) in ["CAM_L", "CAM_R"].into_iter().enumerate() {
        let channel = log.channels.iter_mut().find(|channel| channel.name == name).unwrap();
        let start = 30 * SECOND + at as i64 * 50_000_000;
        channel.longest_gap = Some(GapFigures { start, length: 3_000_000_000 });
    }
    let found = unmet(&parse("[channels.\"*\"]\nmax_gap = \"1s\""), &log);
    let [joined] = &found[..] else { panic!("{found:?}") };
    assert_eq!(joined.channels, ["CAM_L", "CAM_R"]);
    let when = joined.when.unwrap();
    assert_eq!((when.start, when.end, when.after), (30 * SECOND, 33_050_000_000, 30 * SECOND));
    let apart = "[channels.CAM_L]\nmax_gap = \"1s\"\n[channels.CAM_R]\nmax_gap = \"2s\"";
    let found = unmet(&parse(apart), &log);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].expected, "at most 1 s or at most 2 s");
}

#[test]
fn silence_at_the_ends_of_the_log_is_a_gap_unless_it_has_rules_of_its_own() {
    let mut log = figures(&["CAM", "POSE"]);
    log.channels[0].last = 40 * SECOND;
    let fails = |rules: &str| failing(&format!("[channels.CAM]\n{rules}"), &log);
    let camera = |rule: &str| vec![(rule.to_owned(), "CAM".to_owned())];
    assert_eq!(fails("max_gap = \"1s\""), camera("max_gap"));
    assert_eq!(fails("max_gap = \"1s\"\nends_within = \"30s\""), []);
    assert_eq!(fails("ends_within = \"1s\""), camera("ends_within"));
    assert_eq!(fails("starts_within = \"0s\""), []);
}

#[test]
fn rates_of_few_events_are_only_compared_if_there_should_be_more() {
    let mut log = figures(&["RARE", "POSE"]);
    log.channels[0].events = 2;
    log.channels[0].rate = Some(RateFigures { median: 0.02, ..RateFigures::default() });
    assert_eq!(failing("[channels.RARE]\nrate = 0.05", &log), []);
    let silent = failing("[channels.RARE]\nrate = 10", &log);
    assert_eq!(silent, [("rate".to_owned(), "RARE".to_owned())]);
}

#[test]
fn nothing_decoded_is_not_everything_decoded() {
    let mut log = figures(&["POSE"]);
    (log.channels[0].types, log.channels[0].fields) = (Vec::new(), Vec::new());
    log.channels[0].latency = None;
    log.channels[0].undecoded = log.channels[0].events;
    for rule in ["undecoded = 0", "type = \"*\"", "latency = 1", "fields.x = {}"] {
        assert_eq!(failing(&format!("[channels.POSE]\n{rule}"), &log).len(), 1, "{rule}");
    }
}

#[test]
fn values_that_are_no_numbers_are_in_no_range() {
    let mut log = figures(&["POSE"]);
    log.channels[0].fields[0].not_finite = 3;
    log.channels[0].fields[0].nulls = 5;
    let fails =
        |range: &str| failing(&format!("[channels.POSE]\nfields.\"vel[0]\" = {range}"), &log).len();
    assert_eq!(fails("{ min = -1, max = 4 }"), 1);
    assert_eq!(fails("{ min = -1, max = 4, nan = 3 }"), 0);
    assert_eq!(fails("{ nan = \"1%\", nulls = \"0.1%\" }"), 1);
    log.channels[0].fields[0].min = None;
    log.channels[0].fields[0].max = None;
    let empty = "[channels.POSE]\nfields.\"vel[0]\" = { min = 1, nan = 3 }";
    assert_eq!(failing(empty, &log).len(), 1);
}

#[test]
fn a_missing_channel_fails_or_warns_as_the_rule_says() {
    let log = figures(&["POSE"]);
    assert_eq!(failing("[channels.CAM]\nmust_exist = false\n[channels.POSE]", &log), []);
    let warned = compare(&parse("[channels.CAM]\nmust_exist = \"warn\""), &log);
    assert_eq!((warned.unmet.len(), warned.notes.len()), (0, 1));
    assert!(warned.notes[0].contains("no channel matches `CAM`"), "{:?}", warned.notes);
    assert!(warned.notes[0].ends_with("expect.toml:2)"), "{:?}", warned.notes);
    // Rules in a pipeline file have no place.
    let own = Expectations::parse("", "[channels.CAM]\nmust_exist = \"warn\"").unwrap();
    assert_eq!(compare(&own, &log).notes, ["no channel matches `CAM`"]);
}

#[test]
fn any_number_of_channels_gives_a_bounded_list() {
    let names: Vec<String> = (0..500).map(|n| format!("C{n:03}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let found = unmet(&parse("[channels.\"*\"]\nrate = 99"), &figures(&names));
    assert!(found.len() < 60, "{}", found.len());
    assert!(found.last().unwrap().found.contains("450 more"), "{:?}", found.last());
}

#[test]
fn channels_that_cannot_be_compared_do_not_pass() {
    let mut log = figures(&["POSE"]);
    log.thinned = vec![Thinned { what: Thinned::CHANNELS.into(), of: 1500, shown: 1000 }];
    assert_eq!(failing("[channels.POSE]", &log), [("channels".to_owned(), String::new())]);
    assert_eq!(failing("[log]\ndamage = 0", &log), []);
    // A file that is made of such a log is met by it, and says what it leaves out.
    let text = from_figures(&log);
    assert_eq!(failing(&text, &log), [], "{text}");
    assert!(text.contains("1500 channels, more than the 1000 that can be compared"), "{text}");
}

#[test]
fn numbers_that_are_no_sequence_are_not_compared_silently() {
    let mut log = figures(&["POSE"]);
    log.sequence_jumps = None;
    let compared = compare(&parse("[log]\nmissing_numbers = 0"), &log);
    assert_eq!(compared.unmet, []);
    let [note] = &compared.notes[..] else { panic!("{:?}", compared.notes) };
    assert!(note.contains("`missing_numbers` cannot be compared"), "{note}");
    assert!(!from_figures(&log).contains("missing_numbers"));
}

fn any_channel() -> impl Strategy<Value = ChannelFigures> {
    let times = (0..20 * SECOND, 0..20 * SECOND, 1u64..1 << 40);
    let counts = (1u64..5000, 0u64..50, 0u64..50, 0.001f64..5000.0, 0u64..300);
    let more = (any::<bool>(), any::<bool>(), -SECOND..SECOND, 0..SECOND);
    ("\\PC{1,12}", times, counts, more).prop_map(|(name, times, counts, more)| {
        let (first, from_end, gap) = times;
        let (events, undecoded, steps_back, hz, long) = counts;
        let (is_decoded, has_latency, least, spread) = more;
        let interval = 1e9 / hz;
        let mut channel = ChannelFigures { name, events, undecoded, steps_back, ..channel("") };
        (channel.first, channel.last) = (first, 60 * SECOND - from_end);
        channel.longest_gap = Some(GapFigures { start: first, length: gap });
        channel.rate = Some(RateFigures { median: hz, ..RateFigures::default() });
        let bin = |from: f64, count| HistogramBin { from, to: from * 1.01, count };
        channel.intervals.bins = vec![bin(interval, 1000), bin(interval * 2.0, long)];
        if !is_decoded {
            (channel.types, channel.fields) = (Vec::new(), Vec::new());
        }
        let latency = LatencyFigures {
            least,
            median: least,
            greatest: least + spread,
            ..LatencyFigures::default()
        };
        channel.latency = has_latency.then_some(latency);
        channel
    })
}

fn any_figures() -> impl Strategy<Value = Figures> {
    let channels = prop::collection::vec(any_channel(), 1..5);
    (channels, 0u64..9000, 0u64..90, 0u64..90).prop_map(|(channels, damaged, back, jumps)| {
        let mut log = figures(&[]);
        log.events = channels.iter().map(|channel| channel.events).sum();
        (log.steps_back, log.sequence_jumps) = (back, Some(jumps));
        log.inputs[0].damaged_bytes = damaged;
        log.inputs[0].damaged_ranges = damaged.min(3);
        log.channels = channels;
        log
    })
}

/// Changes figures such that a rule that was made of them is not met.
type Break = fn(&mut Figures);

/// What breaks each rule of the first channel, or of the log.
const BREAKS: [(&str, Break); 11] = [
    ("damage", |log| {
        log.inputs[0].damaged_bytes = log.inputs[0].damaged_bytes * 10 + 10;
        log.inputs[0].damaged_ranges += 1;
    }),
    ("duration", |log| log.end = log.start),
    ("time_back", |log| log.steps_back = log.steps_back * 10 + 1),
    ("missing_numbers", |log| log.sequence_jumps = log.sequence_jumps.map(|jumps| jumps * 10 + 1)),
    ("max_gap", |log| {
        let gap = log.channels[0].longest_gap.as_mut().unwrap();
        gap.length *= 20;
    }),
    ("starts_within", |log| log.channels[0].first += 300 * SECOND),
    ("ends_within", |log| log.channels[0].last -= 300 * SECOND),
    ("time_back", |log| {
        log.channels[0].steps_back = log.channels[0].steps_back * 10 + 1;
    }),
    ("must_exist", |log| drop(log.channels.remove(0))),
    ("rate", |log| {
        let channel = &mut log.channels[0];
        channel.events = channel.events.max(10);
        channel.rate.as_mut().unwrap().median /= 2.0;
    }),
    ("dropped", |log| {
        let channel = &mut log.channels[0];
        let from = 5e9 / channel.rate.unwrap().median;
        channel.intervals.bins.push(HistogramBin { from, to: from, count: 1_000_000 });
    }),
];

proptest! {
    #[test]
    fn a_log_meets_the_expectations_made_from_it(log in any_figures()) {
        let text = from_figures(&log);
        prop_assert_eq!(failing(&text, &log), [], "{}", text);
    }

    #[test]
    fn breaking_one_expectation_breaks_exactly_that_one(
        mut log in any_figures(),
        which in 0..BREAKS.len(),
    ) {
        // Names that differ, and a channel that has all rules.
        for (at, channel) in log.channels.iter_mut().enumerate() {
            channel.name = format!("C{at}");
        }
        log.channels[0].events = log.channels[0].events.max(10);
        let text = from_figures(&log);
        let (rule, breaks) = BREAKS[which];
        breaks(&mut log);
        let found = failing(&text, &log);
        prop_assert_eq!(found.len(), 1, "{:?}\n{}", &found, text);
        prop_assert_eq!(&found[0].0, rule, "{}", text);
    }

    #[test]
    fn any_text_is_expectations_or_a_mistake_in_it(text in "\\PC{0,80}") {
        for mistake in Expectations::parse("x", &text).err().unwrap_or_default() {
            prop_assert!(mistake.span.start <= text.len());
            mistake.render("x", &text, false);
        }
    }
}
