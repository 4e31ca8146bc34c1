//! Packets in all supported forms, valid and damaged.

use std::sync::Arc;

use arrow_array::{ArrayRef, BinaryArray, FixedSizeBinaryArray, Int64Array};
use proptest::prelude::*;
use serde_json::{Value, json};
use sluice_model::Payloads;

use crate::points::kit::{EventPoints, PointRun, RawEvent, make, points, rows};

const UTIME: i64 = 1_194_098_400_000_000;
const UPPER: [u8; 2] = [0xFF, 0xEE];
const LOWER: [u8; 2] = [0xFF, 0xDD];

/// A packet whose blocks have these ids and azimuths, and whose returns all have this range and
/// intensity.
fn packet(blocks: impl Fn(usize) -> ([u8; 2], u16), count: u16, status: [u8; 6]) -> Vec<u8> {
    let mut packet = Vec::new();
    for number in 0..12 {
        let (id, azimuth) = blocks(number);
        packet.extend_from_slice(&id);
        packet.extend_from_slice(&azimuth.to_le_bytes());
        for lane in 0..32 {
            packet.extend_from_slice(&count.to_le_bytes());
            packet.push(lane * 8);
        }
    }
    packet.extend_from_slice(&status);
    packet
}

/// A packet of an HDL-64E.
fn valid_packet() -> Vec<u8> {
    let block =
        |n: usize| (if n.is_multiple_of(2) { UPPER } else { LOWER }, 9000 + n as u16 / 2 * 35);
    packet(block, 5000, *b"\x07\0v2.1")
}

/// A packet of a VLP-16 or HDL-32E with these azimuths.
fn single(azimuth: impl Fn(usize) -> u16, mode: u8, product: u8) -> Vec<u8> {
    packet(|n| (UPPER, azimuth(n)), 5000, [0, 0, 0, 0, mode, product])
}

fn velodyne_t(packet: &[u8]) -> Vec<u8> {
    velodyne_t_at(UTIME, packet)
}

fn velodyne_t_at(utime: i64, packet: &[u8]) -> Vec<u8> {
    let mut message = 0x6d7d_fc11_eda8_2da7_u64.to_be_bytes().to_vec();
    message.extend_from_slice(&utime.to_be_bytes());
    message.extend_from_slice(&(packet.len() as i32).to_be_bytes());
    message.extend_from_slice(packet);
    message
}

fn blob(packet: &[u8]) -> Vec<u8> {
    [&[1, 2, 3, 4, 5, 6, 7, 8], &(packet.len() as i32).to_be_bytes()[..], packet].concat()
}

fn event(payload: Vec<u8>) -> RawEvent {
    ("VELODYNE", UTIME * 1000 + 5, payload)
}

fn one(options: Value, packet: Vec<u8>) -> EventPoints {
    let mut run = PointRun::new("velodyne", options);
    let event_points = points(&run.all(&[event(velodyne_t(&packet))]));
    assert!(run.notes.is_empty(), "{:?}", run.notes);
    event_points.into_iter().next().unwrap()
}

#[test]
fn a_packet_yields_the_same_points_in_every_form() {
    let mut run = PointRun::new("velodyne", json!({}));
    let raw = points(&run.all(&[
        event(valid_packet()),
        event(blob(&valid_packet())),
        event(velodyne_t(&valid_packet())),
    ]));
    assert_eq!(raw.len(), 3);
    assert!(
        raw.iter()
            .all(|event_points| event_points.points.len() == 384 && event_points.utime == UTIME)
    );
    assert_eq!(raw[0].points, raw[1].points);
    // The event came five nanoseconds after the time that the message says.
    let earlier = |event_points: &EventPoints| {
        let mut event_points = event_points.clone();
        event_points.points.iter_mut().for_each(|point| point.time -= 5);
        event_points.points
    };
    assert_eq!(earlier(&raw[0]), raw[2].points);
}

#[test]
fn messages_with_impossible_times_have_that_of_their_event() {
    let mut run = PointRun::new("velodyne", json!({}));
    let packet = valid_packet();
    let times = [i64::MAX, i64::MIN, 10_000_000_000_000_000];
    let mut events = vec![event(packet.clone())];
    events.extend(times.map(|utime| event(velodyne_t_at(utime, &packet))));
    let found = points(&run.all(&events));
    assert_eq!(found.len(), 4);
    for of_event in &found {
        assert_eq!((of_event.utime, &of_event.points), (UTIME, &found[0].points));
    }
    assert_eq!(
        run.counted_notes(),
        ["3 channel `VELODYNE`: `utime` beyond the years 1677 to 2262; the event's time is used"]
    );
}

#[test]
fn decoded_packets_yield_the_same_points() {
    let valid_packet = valid_packet();
    let forms: [ArrayRef; 2] = [
        Arc::new(BinaryArray::from_vec(vec![&valid_packet])),
        Arc::new(FixedSizeBinaryArray::try_from_iter([&valid_packet].into_iter()).unwrap()),
    ];
    let raw = one(json!({}), valid_packet.clone());
    for data in forms {
        let mut run = PointRun::new("velodyne", json!({}));
        let batch = run.batch(&[event(Vec::new())]);
        let utime: ArrayRef = Arc::new(Int64Array::from(vec![UTIME]));
        let decoded = rows(&[0], Payloads::Gone, vec![("utime", utime), ("data", data)]);
        let out = run.apply(batch.with_rows(vec![decoded])).unwrap();
        assert_eq!((points(&out), out.rows().len()), (vec![raw.clone()], 1));
    }
}

#[test]
fn points_replace_payloads_and_rows_of_their_events_only() {
    let mut run = PointRun::new("velodyne", json!({}));
    let other = ("POSE", 0, b"a pose that is longer than a view".to_vec());
    let batch = run.batch(&[other, event(velodyne_t(&valid_packet()))]);
    let column: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
    let decoded = rows(&[0, 1], Payloads::Kept, vec![("v", column)]);
    let out = run.apply(batch.with_rows(vec![decoded])).unwrap();
    assert_eq!(out.payload(0), b"a pose that is longer than a view");
    assert_eq!(out.payload(1), b"");
    let kinds: Vec<_> =
        out.rows().iter().map(|rows| (rows.events.clone(), rows.payloads)).collect();
    assert_eq!(kinds, [(vec![0], Payloads::Kept), (vec![1], Payloads::Gone)]);
}

#[test]
fn other_channels_pass_unchanged() {
    let mut run = PointRun::new("velodyne", json!({ "channels": "scanner" }));
    let out = run.all(&[event(valid_packet())]);
    assert_eq!((out.payload(0), out.rows().len()), (&valid_packet()[..], 0));
}

#[test]
fn lasers_of_an_hdl_64e_follow_from_block_and_lane() {
    let event_points = one(json!({}), valid_packet());
    let lasers: Vec<u16> = event_points.points.iter().map(|point| point.laser).collect();
    let expected: Vec<u16> = (32..64).chain(0..32).collect();
    assert!(lasers.chunks(64).all(|firing| firing == expected));
    assert_eq!((event_points.points[0].azimuth, event_points.points[383].azimuth), (90.0, 91.75));
    assert_eq!(event_points.points[3].intensity, Some(24.0 / 255.0));
}

/// The last firing ends when the packet is sent, and a pair of blocks is fired at once.
#[test]
fn firings_of_an_hdl_64e_end_at_the_packets_time() {
    let times: Vec<i64> = one(json!({}), valid_packet())
        .points
        .iter()
        .map(|point| point.time - UTIME * 1000)
        .collect();
    assert_eq!(times[0..2], [-384_000, -382_000]);
    assert_eq!((times[32], times[64], times[383]), (-384_000, -320_000, -2_000));
}

#[test]
fn a_vlp_16_fires_twice_per_block_while_it_turns() {
    let event_points =
        one(json!({ "model": "vlp-16" }), single(|n| 1000 + n as u16 * 40, 0x37, 0x22));
    let point = &event_points.points[32 + 16 + 3];
    assert_eq!((point.laser, point.time - UTIME * 1000), (3, 55_296 + 3 * 2_304 - 11 * 110_592));
    // Of the 0.4 degrees until the next block, the part that has gone by.
    let azimuth = 10.4 + 0.4 * (55_296.0 + 3.0 * 2_304.0) / 110_592.0;
    assert!((f64::from(point.azimuth) - azimuth).abs() < 1e-5, "{}", point.azimuth);
    let (range, rise) = (10.0, 3_f64.to_radians());
    let expected = [
        range * rise.cos() * azimuth.to_radians().cos(),
        -range * rise.cos() * azimuth.to_radians().sin(),
        range * rise.sin(),
    ];
    let near = |(a, b): (f64, f64)| (a - b).abs() < 1e-6;
    assert!(point.xyz.into_iter().zip(expected).all(near), "{:?} is not {expected:?}", point.xyz);
}

#[test]
fn azimuths_are_interpolated_over_north_and_held_over_jumps() {
    let turning = |n: usize| ((35_960 + n * 40) % 36_000) as u16;
    let event_points = one(json!({ "model": "vlp-16" }), single(turning, 0x38, 0x22));
    assert!((event_points.points[16].azimuth - 359.8).abs() < 1e-4);
    assert!((event_points.points[32 + 16].azimuth - 0.2).abs() < 1e-4);
    assert!(
        (event_points.points[11 * 32 + 16].azimuth - 4.2).abs() < 1e-4,
        "the last goes on as before"
    );
    let jumping = |n: usize| if n < 6 { 1000 + n as u16 * 40 } else { 20_000 + n as u16 * 40 };
    let event_points = one(json!({ "model": "vlp-16" }), single(jumping, 0x37, 0x22));
    assert!((event_points.points[5 * 32 + 16].azimuth - 12.2).abs() < 1e-4);
}

#[test]
fn dual_returns_have_the_same_time_and_direction() {
    for (model, product) in [("vlp-16", 0x22), ("hdl-32e", 0x21)] {
        let event_points =
            one(json!({ "model": model }), single(|n| n as u16 / 2 * 40, 0x39, product));
        for pair in event_points.points.chunks(64) {
            let same = |k: usize| {
                (pair[k].time, pair[k].azimuth) == (pair[k + 32].time, pair[k + 32].azimuth)
            };
            assert!((0..32).all(same), "{model}");
        }
        let length = event_points.points[383].time - event_points.points[0].time;
        let expected =
            if model == "vlp-16" { 11 * 55_296 + 15 * 2_304 } else { 5 * 46_080 + 31 * 1_152 };
        assert_eq!(length, expected, "{model}");
    }
}

#[test]
fn an_hdl_32e_looks_up_and_down_in_turn() {
    let event_points = one(json!({ "model": "hdl-32e" }), single(|n| n as u16 * 17, 0x37, 0x21));
    let rise = |lane: usize| (event_points.points[lane].xyz[2] / 10.0).asin().to_degrees();
    assert!((rise(0) + 30.67).abs() < 0.01 && (rise(31) - 10.67).abs() < 0.01);
    assert_eq!(event_points.points[383].time - UTIME * 1000, 31 * 1_152 - 46_080);
}

#[test]
fn empty_returns_can_be_dropped() {
    let empty = packet(|_| (UPPER, 0), 0, [0; 6]);
    let count = |options: Value| one(options, empty.clone()).points.len();
    assert_eq!(count(json!({})), 384, "offsets put them beside the sensor");
    assert_eq!(count(json!({ "drop_zero_returns": true })), 0);
    assert_eq!(count(json!({ "min_range": 0.7 })), 0);
    // Without offsets they would lie in the sensor itself.
    let empty = packet(|_| (UPPER, 0), 0, [0, 0, 0, 0, 0x37, 0x22]);
    assert_eq!(one(json!({ "model": "vlp-16" }), empty).points.len(), 0);
}

#[test]
fn limits_apply_to_the_corrected_range() {
    let mut packet = valid_packet();
    // 10 m for all; 120 m for the third return of the first block.
    packet[4 + 2 * 3..][..2].copy_from_slice(&60_000_u16.to_le_bytes());
    let mut run = PointRun::new("velodyne", json!({ "min_range": 10.3, "max_range": 100.0 }));
    let out = run.all(&[event(velodyne_t(&packet))]);
    let event_points = points(&out).remove(0);
    let distance = |xyz: [f64; 3]| xyz.iter().map(|axis| axis * axis).sum::<f64>().sqrt();
    assert!(event_points.points.iter().all(|point| distance(point.xyz) > 10.2));
    assert!((1..384).contains(&event_points.points.len()));
    assert!(event_points.points.is_sorted_by_key(|point| point.time / 64_000));
    assert!(event_points.points[..32].iter().all(|point| point.laser != 34));
}

#[test]
fn limits_change_no_point_that_they_keep() {
    let mut packet = valid_packet();
    // Corrections are smaller than what lies between these ranges and the limits.
    let counts: Vec<u16> =
        (0..384).map(|n| [0, 200, 9_000, 30_000, 65_535][(n * n + n / 7) % 5]).collect();
    for (n, count) in counts.iter().enumerate() {
        packet[n / 32 * 100 + 4 + n % 32 * 3..][..2].copy_from_slice(&count.to_le_bytes());
    }
    let made = |options: Value| {
        let out = PointRun::new("velodyne", options).all(&[event(velodyne_t(&packet))]);
        points(&out).remove(0).points
    };
    let all = made(json!({}));
    for (min, max) in [(1.2, 50.0), (0.0, 50.0), (1.2, 200.0)] {
        let is_kept = |at: usize| (min..=max).contains(&(f64::from(counts[at]) * 0.002));
        let kept: Vec<_> = (0..384).filter(|at| is_kept(*at)).map(|at| all[at].clone()).collect();
        assert!(!kept.is_empty() && kept.len() < 384);
        assert_eq!(made(json!({ "min_range": min, "max_range": max })), kept, "{min} to {max}");
    }
}

#[test]
fn returns_out_of_range_are_counted_and_empty_ones_are_not() {
    let mut run = PointRun::new("velodyne", json!({ "model": "vlp-16", "max_range": 100.0 }));
    let mut packet = packet(|_| (UPPER, 0), 0, [0, 0, 0, 0, 0x37, 0x22]);
    for lane in [3, 7] {
        packet[4 + lane * 3..][..2].copy_from_slice(&60_000_u16.to_le_bytes());
    }
    packet[4..6].copy_from_slice(&5_000_u16.to_le_bytes());
    let out = run.all(&[("VELODYNE", 0, packet.to_vec()), ("VELODYNE", 0, packet.to_vec())]);
    assert_eq!(
        points(&out).iter().map(|event_points| event_points.points.len()).collect::<Vec<_>>(),
        [1, 1]
    );
    assert_eq!(run.counted_notes(), ["4 channel `VELODYNE`: returns out of range; dropped"]);
}

#[test]
fn payloads_without_a_packet_are_noted_by_reason() {
    let cut = velodyne_t(&valid_packet())[..1000].to_vec();
    let mut run = PointRun::new("velodyne", json!({}));
    let mut events: Vec<RawEvent> = [
        vec![],
        b"no packet".to_vec(),
        valid_packet()[..1205].to_vec(),
        velodyne_t(&valid_packet()[..1200]),
        velodyne_t(&valid_packet()[..1200]),
        velodyne_t(&[0; 5000]),
        cut,
        packet(|_| ([0, 0], 0), 1, [0; 6]),
    ]
    .map(event)
    .into();
    events.push(("VELODYNE_2", 0, blob(&valid_packet()[..7])));
    let out = run.all(&events);
    assert_eq!((run.undecoded, out.len(), out.rows().len()), (9, 9, 0));
    assert_eq!(out.payload(1), b"no packet");
    let unknown = "neither a packet nor a message with only a packet; if its type has a field \
                   `data`, decode it with a stage `decode` before";
    assert_eq!(
        run.counted_notes(),
        [
            "1 channel `VELODYNE_2`: packet of 7 bytes, expected 1206".to_owned(),
            "1 channel `VELODYNE`: `velodyne_t` with a wrong length".to_owned(),
            format!("3 channel `VELODYNE`: {unknown}"),
            "2 channel `VELODYNE`: packet of 1200 bytes, expected 1206".to_owned(),
            "1 channel `VELODYNE`: packet of more than 2000 bytes, expected 1206".to_owned(),
            "1 channel `VELODYNE`: packet without a valid block".to_owned(),
        ]
    );
}

#[test]
fn events_with_only_other_columns_are_noted() {
    let mut run = PointRun::new("velodyne", json!({}));
    let batch = run.batch(&[event(Vec::new())]);
    let column: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let batch = batch.with_rows(vec![rows(&[0], Payloads::Gone, vec![("data", column)])]);
    run.apply(batch).unwrap();
    let expected = "1 channel `VELODYNE`: decoded without a binary column `data`";
    assert_eq!(run.counted_notes(), [expected]);
}

#[test]
fn undecoded_events_can_be_dropped_or_end_the_run() {
    let events = [event(valid_packet()), event(b"none".to_vec())];
    let mut run = PointRun::new("velodyne", json!({ "undecoded": "drop" }));
    assert_eq!((run.all(&events).len(), run.filtered, run.undecoded), (1, 1, 0));
    let mut run = PointRun::new("velodyne", json!({ "undecoded": "stop" }));
    let batch = run.batch(&events);
    let error = run.apply(batch).unwrap_err().to_string();
    assert!(
        error.starts_with("event 1 on channel `VELODYNE` cannot be decoded: neither a packet"),
        "{error}"
    );
}

#[test]
fn a_packet_ends_at_a_block_of_unknown_kind() {
    let cut = packet(|n| (if n == 5 { [1, 2] } else { UPPER }, 0), 5000, [0; 6]);
    let mut run = PointRun::new("velodyne", json!({}));
    let event_points = points(&run.all(&[event(velodyne_t(&cut))]));
    assert_eq!(event_points[0].points.len(), 5 * 32);
    assert_eq!(
        event_points[0].points[0].time - UTIME * 1000,
        -384_000,
        "times are those of a whole packet"
    );
    let expected =
        "1 channel `VELODYNE`: packets with a block of unknown kind; the blocks before it are used";
    assert_eq!(run.counted_notes(), [expected]);
    // Others than the HDL-64E have no lower half.
    let mut run = PointRun::new("velodyne", json!({ "model": "vlp-16" }));
    assert!(points(&run.all(&[event(packet(|_| (LOWER, 0), 5000, [0; 6]))])).is_empty());
}

#[test]
fn a_block_with_an_invalid_azimuth_is_dropped() {
    let astray = packet(|n| (UPPER, if n == 3 { 36_000 } else { 40 * n as u16 }), 5000, [0; 6]);
    for model in ["hdl-64e", "vlp-16"] {
        let mut run = PointRun::new("velodyne", json!({ "model": model }));
        let event_points = points(&run.all(&[event(astray.clone())]));
        assert_eq!(event_points[0].points.len(), 11 * 32);
        let expected = "1 channel `VELODYNE`: blocks whose azimuth is 360 degrees or more; dropped";
        assert_eq!(run.counted_notes(), [expected]);
    }
}

#[test]
fn packets_of_another_sensor_are_noted() {
    let notes_for = |model: &str, product: u8| {
        let mut run = PointRun::new("velodyne", json!({ "model": model }));
        run.all(&[event(single(|n| n as u16, 0x37, product))]);
        run.counted_notes()
    };
    let expected = "1 channel `VELODYNE`: \
                  packets of an HDL-32E, according to their last byte, decoded as `vlp-16`";
    assert_eq!(notes_for("vlp-16", 0x21), [expected]);
    assert_eq!(notes_for("hdl-64e", 0x22).len(), 1);
    assert!(notes_for("hdl-32e", 0x21).is_empty() && notes_for("hdl-64e", 0x77).is_empty());
}

#[test]
fn a_laser_table_can_be_given() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lasers.csv");
    let head = "physical_laser,rcf_rad,vcf_rad,hcf_m,range_offset_m,range_scale_offset\n";
    let table: String = (0..16).map(|n| format!("{n},0,0,0,1,0.5\n")).collect();
    std::fs::write(&path, format!("{head}{table}")).unwrap();
    let options = json!({ "model": "vlp-16", "lasers": path });
    let event_points = one(options.clone(), single(|_| 9000, 0x37, 0x22));
    let [x, y, z] = event_points.points[0].xyz;
    assert!(x.abs() < 1e-6 && (y + 16.5).abs() < 1e-9 && z == 0.0, "{x} {y} {z}");
    std::fs::write(&path, format!("{head}0,0,flat,0,0,0\n")).unwrap();
    let error = make("velodyne", options).unwrap_err();
    assert_eq!(error.path, ["lasers"]);
    assert!(
        error.message.starts_with("line 2, column 3 (`vcf_rad`): expected a number"),
        "{error}"
    );
}

#[test]
fn limits_that_leave_nothing_are_refused() {
    let refused = |options: Value| make("velodyne", options).unwrap_err().path;
    assert_eq!(refused(json!({ "min_range": -1.0 })), ["min_range"]);
    assert_eq!(refused(json!({ "min_range": 5.0, "max_range": 4.0 })), ["max_range"]);
    assert_eq!(refused(json!({ "min_range": 5.0, "max_range": 5.0 })), ["max_range"]);
    assert_eq!(refused(json!({ "max_range": 0.005 })), ["max_range"]);
    assert_eq!(refused(json!({ "model": "hdl-128" })), ["model"]);
    assert!(!refused(json!({ "lasers": "/no/such/table.csv" })).is_empty());
}

/// A payload that may be a packet.
fn payload() -> impl Strategy<Value = Vec<u8>> {
    let ids = prop_oneof![Just(UPPER), Just(UPPER), Just(LOWER), any::<[u8; 2]>()];
    let blocks = proptest::collection::vec((ids, 0u16..37_000), 12);
    let valid_packet = (blocks, any::<u16>(), any::<[u8; 6]>())
        .prop_map(|(blocks, count, status)| packet(|n| blocks[n], count, status));
    let bytes = proptest::collection::vec(any::<u8>(), 0..40);
    prop_oneof![
        valid_packet.clone(),
        valid_packet.clone().prop_map(|packet| velodyne_t(&packet)),
        (valid_packet, 0..1206usize).prop_map(|(packet, at)| velodyne_t(&packet[..at])),
        bytes.clone().prop_map(|bytes| velodyne_t(&bytes)),
        bytes,
    ]
}

fn options() -> impl Strategy<Value = Value> {
    let models = prop_oneof![Just("hdl-64e"), Just("hdl-32e"), Just("vlp-16")];
    (models, any::<bool>(), proptest::option::of(0.0..30.0), any::<bool>()).prop_map(
        |(model, zero, min, drop)| {
            json!({ "model": model, "drop_zero_returns": zero, "min_range": min, "max_range": 90.0,
                "undecoded": if drop { "drop" } else { "keep" } })
        },
    )
}

proptest! {
    #[test]
    fn batch_boundaries_do_not_matter(
        options in options(),
        payloads in proptest::collection::vec((any::<bool>(), payload(), any::<bool>()), 0..12),
    ) {
        let events: Vec<(RawEvent, bool)> = payloads
            .into_iter()
            .enumerate()
            .map(|(n, (ours, payload, cut))| {
                ((if ours { "VELODYNE" } else { "VELODYNE_2" }, n as i64, payload), cut)
            })
            .collect();
        let of = |pieces: Vec<Vec<RawEvent>>| {
            let mut run = PointRun::new("velodyne", options.clone());
            let mut event_points = Vec::new();
            for piece in pieces {
                let out = run.all(&piece);
                event_points.extend(points(&out).into_iter().map(|event_points| {
                    let timestamp = out.timestamps()[event_points.event as usize];
                    (timestamp, event_points.utime, event_points.points)
                }));
            }
            (event_points, run.notes, run.filtered, run.undecoded)
        };
        let plain =
            |events: &[(RawEvent, bool)]| events.iter().map(|(event, _)| event.clone()).collect();
        let whole = of(vec![plain(&events)]);
        let cut = of(events.chunk_by(|_, next| !next.1).map(plain).collect());
        prop_assert_eq!(&whole, &cut);
        for (_, _, points) in &whole.0 {
            prop_assert!(points.iter().all(|point| point.xyz.iter().all(|axis| axis.is_finite())));
            prop_assert!(points.iter().all(|point| (0.0..360.0).contains(&point.azimuth)));
        }
    }
}
