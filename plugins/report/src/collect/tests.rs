//! How a log is cut does not matter.

use std::sync::{Arc, LazyLock};

use arrow_array::builder::{FixedSizeListBuilder, Float64Builder};
use arrow_array::{
    Array, ArrayRef, FixedSizeListArray, Float64Array, Int32Array, RecordBatch, StructArray,
};
use arrow_schema::Field;
use proptest::prelude::*;
use sluice_model::{
    Batch, BatchBuilder, Channel, ChannelId, Channels, Encoding, MessageType, Name, Payloads,
    Registry, Rows, TypeKey,
};

use super::*;
use crate::Figures;

/// An event: its channel, time and value; without one, it has no rows.
type TestEvent = (u32, i64, Option<f64>);

const CHANNELS: u32 = 4;

fn channels() -> Channels {
    channels_up_to(CHANNELS)
}

fn channels_up_to(count: u32) -> Channels {
    let channels = Channels::default();
    for n in 0..count {
        let name = Name::from_text(&format!("C{n}"));
        channels.intern(Channel::new(name, "log", Encoding::Lcm)).unwrap();
    }
    channels
}

/// Events of even channels have a type of positions, others `b`; both have a field `x`.
fn batch(events: &[TestEvent]) -> Batch {
    let mut builder = BatchBuilder::default();
    for (n, (channel, time, _)) in events.iter().enumerate() {
        builder.push_copy(*time, n as i64, ChannelId(*channel), &[0; 3]);
    }
    let rows = [0, 1].into_iter().filter_map(|kind| {
        let of_kind = |(_, event): &(u32, &TestEvent)| event.0 % 2 == kind && event.2.is_some();
        let (of, values): (Vec<u32>, Vec<f64>) = (0..)
            .zip(events)
            .filter(of_kind)
            .map(|(at, event)| (at, event.2.unwrap_or_default()))
            .unzip();
        let mut pairs = FixedSizeListBuilder::new(Float64Builder::new(), 2);
        for value in &values {
            pairs.values().append_value(*value);
            pairs.values().append_option((*value > 0.0).then_some(-*value));
            pairs.append(true);
        }
        let columns: [(&str, ArrayRef); 3] = [
            ("x", Arc::new(Float64Array::from(values.clone()))),
            ("n", Arc::new(values.iter().map(|value| *value as i32).collect::<Int32Array>())),
            ("lat_lon_el_theta", Arc::new(pairs.finish())),
        ];
        let message =
            MessageType::named(["a.gps_to_local_t", "b"][kind as usize], TypeKey(kind.into()))
                .into();
        let columns = RecordBatch::try_from_iter(columns).unwrap();
        (!of.is_empty()).then_some(Rows { message, payloads: Payloads::Kept, events: of, columns })
    });
    builder.finish().with_rows(rows.collect())
}

static CHANNELS_OF_PARTS: LazyLock<Channels> = LazyLock::new(|| channels_up_to(2_000));
static VIEWS: LazyLock<ReportViews> =
    LazyLock::new(|| ReportViews::new(&Registry::linked()).unwrap());

fn part(events: &[TestEvent]) -> Part {
    let shown = ShownContext { channels: &CHANNELS_OF_PARTS, views: &VIEWS };
    Collector::default().part(&batch(events), RowFigures::Values, Some(shown))
}

fn figures(parts: impl IntoIterator<Item = Part>, channels: &Channels) -> Figures {
    let mut collection = Collection::default();
    let collector = Collector::default();
    parts.into_iter().for_each(|part| collection.append(part, &collector));
    collection.figures(channels, None)
}

/// Events with their own numbers, so that cuts do not change them.
fn renumbered(mut figures: Figures) -> Figures {
    figures.sequence_jumps = None;
    figures
}

fn events() -> impl Strategy<Value = Vec<TestEvent>> {
    let time = prop_oneof![
        8 => 0..5_000_000_000i64,
        1 => Just(i64::MAX),
        1 => Just(i64::MIN),
        1 => -5..5i64,
    ];
    let value = prop_oneof![
        Just(None),
        any::<f64>().prop_map(Some),
        (-3..3).prop_map(|n| Some(f64::from(n))),
        Just(Some(-0.0)),
    ];
    proptest::collection::vec((0..CHANNELS, time, value), 1..80)
}

proptest! {
    #[test]
    fn cuts_do_not_change_figures(
        events in events(),
        cuts in proptest::collection::vec(0usize..80, 0..6),
    ) {
        let channels = channels();
        let whole = renumbered(figures([part(&events)], &channels));
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(events.len())).collect();
        cuts.extend([0, events.len()]);
        cuts.sort_unstable();
        let parts = cuts.windows(2).map(|cut| part(&events[cut[0]..cut[1]]));
        prop_assert_eq!(&renumbered(figures(parts, &channels)), &whole);
    }
}

#[test]
fn a_channel_has_its_rate_gap_and_timeline() {
    let channels = channels();
    let mut events: Vec<TestEvent> =
        (0..100).map(|n| (0, n * 10_000_000, Some(n as f64))).collect();
    events.extend((200..300).map(|n| (0, n * 10_000_000, None)));
    let figures = figures([part(&events)], &channels);
    let [channel] = figures.channels.as_slice() else { panic!("{:?}", figures.channels) };
    let rate = channel.rate.unwrap();
    assert_eq!((rate.median, rate.p1, rate.p99), (100.0, 100.0, 100.0));
    assert_eq!((channel.gap_count, channel.longest_gap), (1, channel.gaps.first().copied()));
    assert_eq!(channel.gaps, [crate::GapFigures { start: 990_000_000, length: 1_010_000_000 }]);
    assert_eq!((channel.undecoded, channel.first_undecoded), (100, Some(2_000_000_000)));
    assert_eq!(
        (channel.timeline.iter().sum::<u64>(), channel.timeline.len()),
        (200, figures.grid.buckets)
    );
    let paths: Vec<&str> = channel.fields.iter().map(|field| &*field.path).collect();
    assert_eq!(paths, ["x", "n", "lat_lon_el_theta[0]", "lat_lon_el_theta[1]"]);
    let x = &channel.fields[0];
    assert_eq!((x.count, x.min, x.max, x.mean), (100, Some(0.0), Some(99.0), Some(49.5)));
    assert_eq!(x.max_at, 990_000_000);
    let nulls = channel.fields[3].nulls;
    assert_eq!(nulls, 1);
    let [fixes] = figures.fixes.as_slice() else { panic!("{:?}", figures.fixes) };
    assert!(fixes.positions.len() > 50 && fixes.positions.contains(&[-1.0, 1.0]));
    assert!(x.series.iter().flatten().count() > 50);
}

#[test]
fn a_silence_of_a_channel_with_few_events_is_a_gap_unless_they_are_irregular() {
    let of_intervals = |intervals: &[i64]| {
        let mut time = 0;
        let mut events: Vec<TestEvent> = vec![(0, 0, None)];
        events.extend(intervals.iter().map(|tenths| {
            time += tenths * 100_000_000;
            (0, time, None)
        }));
        figures([part(&events)], &channels()).channels[0].gap_count
    };
    for (count, gaps) in [(9, 0), (10, 1), (19, 1), (20, 1), (40, 1)] {
        let mut intervals = vec![1; count];
        intervals[count / 2] = 600;
        assert_eq!(of_intervals(&intervals), gaps, "{count} intervals");
    }
    assert_eq!(of_intervals(&[1, 2, 9, 1, 5, 3, 14, 2, 4, 1, 30, 2]), 0);
}

#[test]
fn a_log_of_which_nothing_is_decoded_has_only_undecoded_events() {
    let figures = figures([part(&[(0, 1, None), (0, 2, None), (1, 3, None)])], &channels());
    let counts = figures.channels.iter().map(|channel| (channel.events, channel.undecoded));
    assert_eq!(counts.collect::<Vec<_>>(), [(2, 2), (1, 1)]);
    assert_eq!(figures.channels[0].first_undecoded, Some(1));
}

#[test]
fn an_absurd_time_leaves_the_time_line_as_it_is() {
    let channels = channels();
    let drive = 1_600_000_000_000_000_000;
    let mut events: Vec<TestEvent> =
        (0..5_000).map(|n| (0, drive + n * 10_000_000, Some(n as f64))).collect();
    let usual = figures([part(&events)], &channels);
    events[2_500].1 = 4_000_000_000_000_000_000;
    let odd = figures(events.chunks(300).map(part), &channels);
    assert_eq!((usual.off_axis, odd.off_axis), (0, 1));
    assert_eq!((odd.start, odd.end), (usual.start, Some(events[2_500].1)));
    assert_eq!((odd.axis_start, odd.grid.width), (usual.axis_start, usual.grid.width));
    let buckets = |figures: &Figures| figures.channels[0].timeline.iter().sum::<u64>();
    assert_eq!((buckets(&usual), buckets(&odd)), (5_000, 4_999));
    assert!(
        crate::findings::findings(&odd).iter().any(|finding| finding.text.contains("far from"))
    );
}

#[test]
fn more_channels_than_the_limit_are_counted_together() {
    let channels = channels_up_to(2_000);
    let events: Vec<TestEvent> = (0..2_000).map(|n| (n, 7, None)).collect();
    let figures = figures(events.chunks(300).map(part), &channels);
    assert_eq!((figures.events, figures.channels.len()), (2_000, MAX_CHANNELS));
    let [thinned] = figures.thinned.as_slice() else { panic!("{:?}", figures.thinned) };
    assert_eq!((thinned.what.as_str(), thinned.of, thinned.shown), ("channels", 2_000, 1_000));
}

#[test]
fn nothing_has_no_figures() {
    let channels = channels();
    let nothing = Figures { bytes: Some(0), sequence_jumps: Some(0), ..Figures::default() };
    assert_eq!(figures([part(&[])], &channels), nothing);
}

/// One event at this time on the first channel, with rows of a type with these fields.
fn event(time: i64, name: &str, fields: &[(&str, f64)]) -> Part {
    let mut builder = BatchBuilder::default();
    builder.push_copy(time, 0, ChannelId(0), &[0; 3]);
    let column = |value: f64| Arc::new(Float64Array::from(vec![value])) as ArrayRef;
    let columns = fields.iter().map(|(name, value)| (*name, column(*value)));
    let columns = RecordBatch::try_from_iter(columns).unwrap();
    let message = MessageType::named(name, TypeKey(0)).into();
    let rows = Rows { message, payloads: Payloads::Kept, events: vec![0], columns };
    let batch = builder.finish().with_rows(vec![rows]);
    Collector::default().part(&batch, RowFigures::Values, None)
}

#[test]
fn types_of_a_channel_share_the_fields_of_the_same_path() {
    let parts = [
        event(1, "a", &[("x", 1.0), ("y", 5.0)]),
        event(2, "b", &[("z", 0.0), ("y", 7.0), ("x", f64::NAN)]),
        event(3, "a", &[("x", -2.0), ("y", 7.0)]),
    ];
    let figures = figures(parts, &channels());
    let fields = figures.channels[0].fields.iter();
    let fields: Vec<_> =
        fields.map(|f| (&*f.path, f.count, f.not_finite, f.min, f.max, f.max_at)).collect();
    assert_eq!(
        fields,
        [
            ("x", 2, 1, Some(-2.0), Some(1.0), 1),
            ("y", 3, 0, Some(5.0), Some(7.0), 2),
            ("z", 1, 0, Some(0.0), Some(0.0), 2),
        ]
    );
}

#[test]
fn fields_beyond_the_limit_are_left_out_unless_they_are_kept() {
    let names: Vec<String> = (0..MAX_FIELDS_OF_CHANNEL + 3).map(|n| format!("f{n}")).collect();
    let fields: Vec<(&str, f64)> = names.iter().map(|name| (name.as_str(), 1.0)).collect();
    let last = fields.last().unwrap().0;
    let mut collection = Collection::keeping([last]);
    for time in 0..2 {
        collection.append(event(time, "a", &fields), &Collector::default());
    }
    let figures = collection.figures(&channels(), None);
    let shown = &figures.channels[0].fields;
    assert_eq!((shown.len(), shown.last().unwrap().count), (MAX_FIELDS_OF_CHANNEL + 1, 2));
    assert_eq!(&*shown.last().unwrap().path, last);
    let thinned = figures.thinned.iter().find(|thinned| thinned.what == "numeric fields").unwrap();
    assert_eq!((thinned.of, thinned.shown), (names.len() as u64, shown.len() as u64));
}

#[test]
fn points_without_a_position_are_no_points_of_a_cloud() {
    // The third is null, and has numbers as well, which must not be used.
    let axis = |values: [Option<f64>; 4]| Arc::new(Float64Array::from(values.to_vec())) as ArrayRef;
    let is_point = axis([Some(0.0), Some(0.0), None, Some(0.0)]);
    let members = vec![
        ("x", axis([Some(1.0), None, Some(7.0), Some(4.0)])),
        ("y", axis([Some(2.0), Some(8.0), Some(7.0), Some(5.0)])),
        ("z", axis([Some(3.0), Some(9.0), Some(7.0), Some(6.0)])),
    ];
    let fields: Vec<Field> = members
        .iter()
        .map(|(name, axis)| Field::new(*name, axis.data_type().clone(), true))
        .collect();
    let arrays = members.into_iter().map(|(_, axis)| axis).collect();
    let points = StructArray::new(fields.into(), arrays, is_point.nulls().cloned());
    let element = Arc::new(Field::new_list_field(points.data_type().clone(), true));
    let lists = |are_lists: [bool; 2]| {
        let nulls = Some(are_lists.into_iter().collect());
        FixedSizeListArray::new(Arc::clone(&element), 2, Arc::new(points.clone()), nulls)
    };
    // The points of a null list are stored like those of others.
    for (lists, expected) in [
        (lists([true, true]), vec![[1.0, 2.0, 3.0]]),
        (lists([false, true]), vec![[4.0, 5.0, 6.0]]),
        (lists([false, false]), vec![]),
    ] {
        let mut builder = BatchBuilder::default();
        for time in 0..lists.len() as i64 {
            builder.push_copy(time, time, ChannelId(0), &[0; 3]);
        }
        let events = (0..lists.len() as u32).collect();
        let columns: [(&str, ArrayRef); 1] = [("points", Arc::new(lists))];
        let columns = RecordBatch::try_from_iter(columns).unwrap();
        let message = MessageType::named("sluice.points.sensor", TypeKey(0)).into();
        let rows = Rows { message, payloads: Payloads::Kept, events, columns };
        let batch = builder.finish().with_rows(vec![rows]);
        let shown = ShownContext { channels: &CHANNELS_OF_PARTS, views: &VIEWS };
        let part = Collector::default().part(&batch, RowFigures::Values, Some(shown));
        let clouds = figures([part], &channels()).clouds;
        let points: Vec<[f32; 3]> = clouds.into_iter().flat_map(|cloud| cloud.points).collect();
        assert_eq!(points, expected);
    }
}
