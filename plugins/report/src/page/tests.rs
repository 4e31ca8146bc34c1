//! The page of figures made by hand.

use super::*;
use crate::findings::findings;
use crate::*;

/// A name with everything that could leave its place.
const HOSTILE: &str = "</script><script>alert(1)</script>\"'&<!--\u{202e}\0]]>";
const SECOND: i64 = 1_000_000_000;
const START: i64 = 1_150_122_683 * SECOND;

/// Figures of a drive of 64 seconds with so many channels, each with so many plotted fields.
pub(crate) fn drive(channels: usize, fields: usize) -> Figures {
    let buckets = 1000;
    let grid = TimeGrid { start: START - START % (1 << 26), width: 1 << 26, buckets };
    let channel = |number: usize| {
        let name = match number {
            0 => HOSTILE.to_owned(),
            1 => "x".repeat(256),
            number => format!("SENSOR_{number}"),
        };
        channel_figures(name, number, grid, fields)
    };
    let mut figures = Figures {
        inputs: vec![InputFigures {
            name: "drive.lcm".to_owned(),
            bytes: Some(30_000_000),
            blake3: Some("ab".repeat(32)),
            ..InputFigures::default()
        }],
        events: 1_000 * channels as u64,
        bytes: Some(100_000 * channels as u64),
        start: Some(START),
        end: Some(START + 66 * SECOND),
        axis_start: Some(START),
        axis_end: Some(START + 66 * SECOND),
        grid,
        channels: (0..channels).map(channel).collect(),
        provenance: Provenance {
            version: "0.1.0".to_owned(),
            name: Some(HOSTILE.to_owned()),
            title: None,
            pipeline: "[source]\nuse = \"lcm\"\n".to_owned(),
        },
        ..Figures::default()
    };
    figures.tracks = vec![track()];
    figures.fixes = vec![fix()];
    figures.clouds = vec![cloud()];
    figures
}

fn channel_figures(name: String, number: usize, grid: TimeGrid, fields: usize) -> ChannelFigures {
    let wave = |bucket: usize| ((bucket * (number + 3)) as f64 / 40.0).sin();
    let has_gap = number.is_multiple_of(3);
    let is_silent = |bucket: usize| has_gap && (300..420).contains(&bucket);
    let count = |bucket: usize| match is_silent(bucket) {
        true => 0,
        false => (wave(bucket) + 2.0) as u64 + (bucket * 7 % 3) as u64,
    };
    let gap = GapFigures { start: START + 20 * SECOND, length: 8 * SECOND as u64 };
    let series = |field: usize| -> Vec<Option<[f64; 2]>> {
        let extent = |bucket: usize| {
            let value = wave(bucket) * (field + 1) as f64 + (bucket * 31 % 17) as f64 / 50.0;
            (!is_silent(bucket)).then_some([value - 0.123_456_7, value + 0.1])
        };
        (0..grid.buckets).map(extent).collect()
    };
    let field = |field: usize| FieldFigures {
        path: format!("pos[{field}]"),
        count: 1000,
        not_finite: (field == 3).into(),
        min: Some(-1.2 * (field + 1) as f64),
        min_at: START,
        max: Some(1.2 * (field + 1) as f64),
        max_at: START + SECOND,
        mean: Some(0.01),
        series: series(field),
        ..FieldFigures::default()
    };
    let bin = |n: i32, count| HistogramBin {
        from: 2f64.powf(f64::from(n) / 64.0),
        to: 2f64.powf(f64::from(n + 1) / 64.0),
        count,
    };
    ChannelFigures {
        name,
        source: "lcm".to_owned(),
        encoding: "lcm".to_owned(),
        types: vec![NamedType { name: "<b>type</b>".to_owned(), events: 1000 }],
        events: 1000,
        bytes: Some(100_000 / (number as u64 + 1)),
        undecoded: if number == 2 { 10 } else { 0 },
        first: START,
        last: START + 66 * SECOND,
        rate: Some(RateFigures { median: 10.0, p1: 9.0, p99: 11.0, mean: 10.0 }),
        longest_gap: Some(gap),
        gaps: if has_gap { vec![gap] } else { Vec::new() },
        gap_count: has_gap.into(),
        intervals: Histogram {
            bins: (1650..1700).map(|n| bin(n, (n % 7) as u64 + 1)).chain([bin(2000, 1)]).collect(),
        },
        latency: (number == 2).then(|| LatencyFigures {
            field: "utime".to_owned(),
            histogram: Histogram { bins: (1300..1400).map(|n| bin(n, 3)).collect() },
            negative: 2,
            least: -5_000,
            median: 1_500_000,
            greatest: 9_000_000,
        }),
        timeline: (0..grid.buckets).map(count).collect(),
        fields: (0..fields).map(field).collect(),
        ..ChannelFigures::default()
    }
}

fn points() -> Vec<Point> {
    let point = |n: i32| {
        let turn = f64::from(n) / 150.0;
        let time = START + i64::from(n) * 66_000_000;
        Point { time, x: turn.sin() * 60.0 + turn * 5.0, y: (turn * 2.0).sin() * 30.0 }
    };
    (0..1000).map(point).collect()
}

fn track() -> TrackFigures {
    TrackFigures {
        channel: "POSE".to_owned(),
        points: points(),
        length: 812.3,
        greatest_speed: 14.2,
    }
}

fn fix() -> FixFigures {
    let position = |p: &Point| [-71.09 + p.x / 82_000.0, 42.36 + p.y / 111_000.0];
    FixFigures {
        channel: HOSTILE.to_owned(),
        positions: points().iter().map(position).collect(),
        points: points(),
    }
}

fn cloud() -> CloudFigures {
    let point = |n: usize| {
        let turn = n as f32 / 3000.0 * std::f32::consts::TAU;
        let radius = 8.0 + (turn * 9.0).sin() * 4.0 + (n % 13) as f32;
        [turn.cos() * radius, turn.sin() * radius, (n % 64) as f32 / 16.0 - 2.0]
    };
    let points = (0..3000).map(point).collect();
    CloudFigures { channel: "VELODYNE".to_owned(), time: START + SECOND, count: 90_000, points }
}

/// The same with damage and pictures.
fn damaged_drive() -> Figures {
    let mut figures = drive(12, 3);
    let range = |n: u64| DamagedRange {
        offset: 1_000_000 * n,
        length: 4096 * (n + 1),
        reason: format!("no event begins here {HOSTILE}"),
    };
    let input = &mut figures.inputs[0];
    input.damage = (3..30).map(range).collect();
    input.damaged_ranges = 40;
    input.damaged_bytes = 900_000;
    input.damage_by_part =
        (0..1000u64).map(|n| if n.is_multiple_of(33) { 25_000 } else { 0 }).collect();
    let thumbnail = |n: i64| Thumbnail {
        time: START + n * 5 * SECOND,
        width: 160,
        height: 120,
        jpeg: vec![0xff; 6000],
    };
    figures.pictures = vec![PictureFigures {
        channel: "CAM".to_owned(),
        count: 700,
        unchecked: 5,
        bad: 3,
        first_bad: Some(START + 7 * SECOND),
        sizes: [("640 × 480".to_owned(), 700)].into(),
        thumbnails: (0..12).map(thumbnail).collect(),
    }];
    figures.findings = findings(&figures);
    figures
}

fn page(figures: &Figures) -> String {
    super::page(figures).unwrap()
}

/// The text between the first `from` and the next `to`.
fn between<'t>(text: &'t str, from: &str, to: &str) -> &'t str {
    let (_, rest) = text.split_once(from).unwrap();
    rest.split_once(to).unwrap().0
}

#[test]
fn names_from_a_log_cannot_leave_their_place() {
    let html = {
        let mut figures = damaged_drive();
        figures.provenance.title = Some(HOSTILE.to_owned());
        page(&figures)
    };
    assert!(!html.contains("<script>alert") && !html.contains("<b>type"));
    assert!(!html.contains(['\u{202e}', '\0']));
    assert_eq!(html.matches("</script>").count(), 3, "JSON, uPlot and the page's own");
    assert_eq!(html.matches("<script").count(), 3);
    let json = between(&html, "type=\"application/json\">", "</script>");
    let read: serde_json::Value = serde_json::from_str(json).unwrap();
    assert_eq!(read["channels"][0]["name"], HOSTILE);
}

#[test]
fn the_policy_allows_exactly_the_scripts_of_the_page() {
    let html = page(&drive(2, 1));
    let policy = between(&html, "Content-Security-Policy\" content=\"", "\"");
    assert_eq!(policy.matches("'sha256-").count(), 2);
    assert!(policy.starts_with("default-src 'none';"));
    let without_plots = page(&drive(2, 0));
    assert!(!without_plots.contains("uPlot=function"), "nothing is carried without use");
}

#[test]
fn nothing_is_fetched() {
    let html = page(&damaged_drive());
    for part in
        ["src=\"http", "href=\"http", "href=\"//", "url(", "@import", "<link", "<base", "<iframe"]
    {
        assert!(!html.contains(part), "{part}");
    }
}

#[test]
fn the_same_figures_give_the_same_bytes() {
    assert_eq!(page(&damaged_drive()), page(&damaged_drive()));
}

#[test]
fn every_channel_has_a_row_and_a_lane() {
    for count in [0, 1, 3, 150] {
        let html = page(&drive(count, 2));
        for number in 0..count {
            assert_eq!(html.matches(&format!("id=\"channel-{number}\"")).count(), 1);
            assert_eq!(html.matches(&format!("id=\"lane-{number}\"")).count(), 1);
        }
    }
}

#[test]
fn a_log_without_events_has_a_page() {
    let html = page(&Figures::default());
    assert!(html.contains("data-verdict=\"whole\"") && html.contains("no events"));
}

#[test]
fn every_link_within_the_page_has_its_place() {
    let html = page(&damaged_drive());
    for link in html.split("href=\"#").skip(1) {
        let id = link.split_once('"').unwrap().0;
        assert_eq!(html.matches(&format!("id=\"{id}\"")).count(), 1, "{id}");
    }
}

#[test]
fn a_large_log_has_a_page_of_two_megabytes_that_says_what_is_left_out() {
    for (channels, fields) in [(300, 5), (1000, 1), (20, 60)] {
        let html = page(&drive(channels, fields));
        assert!(html.len() <= MOST_BYTES, "{} for {channels} channels", html.len());
        assert!(html.contains("plots of fields"));
    }
}

#[test]
fn many_tracks_have_a_page_of_two_megabytes_that_keeps_their_ends() {
    for (channels, fixes) in [(60, 0), (1000, 1000)] {
        let mut figures = drive(channels, 1);
        figures.tracks = vec![track(); channels];
        figures.fixes = vec![fix(); fixes];
        let html = page(&figures);
        assert!(html.len() <= MOST_BYTES, "{} for {channels} tracks", html.len());
        assert!(html.contains("points of tracks"));
        let json = between(&html, "type=\"application/json\">", "</script>");
        let read: serde_json::Value = serde_json::from_str(json).unwrap();
        let points = read["tracks"][0]["points"].as_array().unwrap();
        let times = [points[0]["time"].as_i64(), points.last().unwrap()["time"].as_i64()];
        let all = track().points;
        assert_eq!(times, [Some(all[0].time), Some(all.last().unwrap().time)]);
    }
}

#[test]
fn many_channels_with_long_names_have_a_page_of_two_megabytes() {
    let mut figures = drive(1000, 1);
    for (number, channel) in figures.channels.iter_mut().enumerate() {
        channel.name = format!("{number:0256}");
    }
    let html = page(&figures);
    assert!(html.len() <= MOST_BYTES, "{}", html.len());
    let json = between(&html, "type=\"application/json\">", "</script>");
    let read: serde_json::Value = serde_json::from_str(json).unwrap();
    let told = serde_json::json!({ "what": "channels", "of": 1000, "shown": 400 });
    assert!(read["thinned"].as_array().unwrap().contains(&told), "{}", read["thinned"]);
    assert_eq!(read["channels"].as_array().unwrap().len(), 400);
}

#[test]
fn pictures_are_fewer_if_they_are_too_large() {
    let mut figures = damaged_drive();
    for thumbnail in &mut figures.pictures[0].thumbnails {
        thumbnail.jpeg = vec![0xff; 400_000];
    }
    let html = page(&figures);
    assert!(html.len() <= MOST_BYTES + MOST_PICTURE_BYTES);
    assert_eq!(html.matches("data:image/jpeg").count(), 5);
    assert!(html.contains("thumbnails of pictures"));
}

#[test]
fn pictures_of_unknown_formats_are_not_called_whole() {
    let mut figures = damaged_drive();
    assert!(page(&figures).contains("; 5 of a format that is not checked"));
    figures.pictures[0].bad = 0;
    assert!(!page(&figures).contains("all whole"));
    figures.pictures[0].unchecked = 0;
    let html = page(&figures);
    assert!(html.contains("all whole") && !html.contains("not checked"));
}

#[test]
fn numbers_at_the_ends_of_their_range_have_a_page() {
    let mut figures = damaged_drive();
    (figures.start, figures.end) = (Some(i64::MIN), Some(i64::MAX));
    figures.grid = TimeGrid { start: i64::MIN, width: 1 << 54, buckets: 1000 };
    let field = &mut figures.channels[0].fields[0];
    (field.min, field.max, field.mean) = (Some(f64::MIN), Some(f64::MAX), Some(f64::NAN));
    field.series[5] = Some([f64::MIN, f64::MAX]);
    figures.channels[1].longest_gap = Some(GapFigures { start: i64::MAX, length: u64::MAX });
    figures.tracks[0].points[3].x = f64::INFINITY;
    figures.clouds[0].points[0] = [f32::NAN, f32::INFINITY, 1e38];
    let html = page(&figures);
    for text in ["mean NaN", ">NaN", "=\"NaN", "LNaN", "MNaN"] {
        assert!(!html.contains(text), "{text}");
    }
}
