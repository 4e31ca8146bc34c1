//! Properties of the log as a whole.

use super::*;

fn drive(seconds: f64) -> Drive {
    Drive::new(DriveOptions { seconds, seed: 1 })
}

/// Channel name, time from the start in microseconds, and payload of every event.
fn log(drive: &Drive) -> Vec<(&'static str, i64, Vec<u8>)> {
    let names: Vec<_> = drive.channels().collect();
    let mut slice = DriveSlice::default();
    let mut log = Vec::new();
    for i in 0..drive.slices() {
        drive.slice(i, &mut slice);
        log.extend(slice.events.iter().map(|event| {
            let payload = slice.payloads[event.payload.clone()].to_vec();
            (names[event.channel], (event.timestamp_ns - START_NS) / 1_000, payload)
        }));
    }
    log
}

fn payloads(prefix: &str, seconds: f64) -> Vec<Vec<u8>> {
    let log = log(&drive(seconds)).into_iter();
    log.filter(|event| event.0.starts_with(prefix)).map(|event| event.2).collect()
}

/// Channel name and receive time of every event; much cheaper than [`log`].
fn receipts(seconds: f64) -> Vec<(&'static str, i64)> {
    let drive = drive(seconds);
    let names: Vec<_> = drive.channels().collect();
    let receipts = (0..drive.slices()).flat_map(|i| drive.receipts(i));
    receipts.map(|receipt| (names[receipt.channel], receipt.received_us as i64)).collect()
}

fn receive_times(channel: &str, seconds: f64) -> Vec<i64> {
    receipts(seconds).into_iter().filter(|event| event.0 == channel).map(|event| event.1).collect()
}

fn fingerprint(payload: &[u8]) -> u64 {
    u64::from_be_bytes(*payload.first_chunk().unwrap())
}

fn utime(payload: &[u8]) -> i64 {
    i64::from_be_bytes(payload[8..16].try_into().unwrap())
}

fn float(payload: &[u8], at: usize) -> f32 {
    f32::from_be_bytes(payload[at..at + 4].try_into().unwrap())
}

fn double(payload: &[u8], at: usize) -> f64 {
    f64::from_be_bytes(payload[at..at + 8].try_into().unwrap())
}

#[test]
fn every_channel_has_its_type_and_size() {
    for (channel, _, payload) in log(&drive(0.5)) {
        let sizes: &[usize] = match channel {
            "LOGGER_STRING" => continue,
            "LCM_SELF_TEST" => {
                assert_eq!(payload, b"lcm self test");
                continue;
            }
            "VELODYNE" => &[1226],
            "POSE" => &[144],
            "GPS_TO_LOCAL" => &[136],
            _ if channel.starts_with("CAM_THUMB_") => &[],
            _ => &[756, 1480],
        };
        assert!(sizes.is_empty() || sizes.contains(&payload.len()), "{channel}: {}", payload.len());
        let expected = match channel {
            "VELODYNE" => 0x6d7d_fc11_eda8_2da7,
            "POSE" => 0x2e16_efb0_52b0_105e,
            "GPS_TO_LOCAL" => 0x4d0c_279a_87b8_ec9d,
            _ if channel.starts_with("CAM_THUMB_") => 0xcc27_dfe2_9341_1b79,
            _ => 0xe3d1_7423_180b_5e8d,
        };
        assert_eq!(fingerprint(&payload), expected, "{channel}");
    }
}

#[test]
fn every_channel_keeps_its_rate() {
    let log = receipts(10.0);
    let expected = |channel: &str| match channel {
        "VELODYNE" => 2600 * 10 - 3900,
        "CAM_THUMB_RRC" => 60,
        "POSE" => 1000,
        "GPS_TO_LOCAL" => 100,
        "LOGGER_STRING" => 10,
        "LCM_SELF_TEST" => 1,
        _ if channel.starts_with("CAM_THUMB_") => 100,
        _ => 750,
    };
    for channel in drive(10.0).channels() {
        let count = log.iter().filter(|event| event.0 == channel).count();
        assert_eq!(count, expected(channel), "{channel}");
    }
}

#[test]
fn the_whole_bus_carries_about_five_megabytes_a_second() {
    // Ends before the drop-out starts in a drive of this length.
    let drive = drive(100.0);
    let mut slice = DriveSlice::default();
    let (mut events, mut bytes) = (0, 0);
    for i in 0..10 {
        drive.slice(i, &mut slice);
        events += slice.events.len();
        bytes += slice.payloads.len() + slice.events.len() * (28 + "VELODYNE".len());
    }
    assert!((3_640..3_680).contains(&events), "{events} events in 1 s");
    assert!((4_800_000..5_050_000).contains(&bytes), "{bytes} bytes in 1 s");
}

#[test]
fn slices_do_not_depend_on_the_order_they_are_computed_in() {
    let forward = drive(0.6);
    let backward = drive(0.6);
    let fill = |drive: &Drive, i: usize| {
        let mut slice = DriveSlice::default();
        drive.slice(i, &mut slice);
        slice
    };
    let expected: Vec<_> = (0..forward.slices()).map(|i| fill(&forward, i)).collect();
    for i in (0..backward.slices()).rev() {
        assert!(fill(&backward, i) == expected[i], "slice {i}");
    }
}

#[test]
fn slices_are_computed_alike_on_other_threads() {
    let drive = drive(0.4);
    let sum_of = |i: usize| {
        let mut slice = DriveSlice::default();
        drive.slice(i, &mut slice);
        sum(&slice.payloads)
    };
    let expected: Vec<_> = (0..4).map(sum_of).collect();
    let sum_of = &sum_of;
    let found: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|i| scope.spawn(move || sum_of(i))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(found, expected);
}

/// FNV-1a.
fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum: u64, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[test]
fn the_bytes_are_the_same_on_every_machine() {
    let bytes: Vec<_> = log(&drive(0.5)).into_iter().flat_map(|event| event.2).collect();
    // Changes with every change to the drive. A difference between two machines is a bug.
    assert_eq!(format!("{:016x}", sum(&bytes)), "53286d72526c2f66");
}

#[test]
fn another_seed_gives_another_log_on_the_same_course() {
    let other = log(&Drive::new(DriveOptions { seconds: 0.5, seed: 2 }));
    let log = log(&drive(0.5));
    let of = |log: &[(&str, i64, Vec<u8>)], channel: &str| -> Vec<_> {
        log.iter().filter(|event| event.0 == channel).map(|event| event.2.clone()).collect()
    };
    assert_ne!(of(&log, "VELODYNE"), of(&other, "VELODYNE"));
    assert_eq!(of(&log, "POSE"), of(&other, "POSE"));
}

#[test]
fn event_numbers_are_counted_without_computing_payloads() {
    for seconds in [0.0, 0.05, 0.31, 1.1] {
        let drive = drive(seconds);
        let mut slice = DriveSlice::default();
        let mut events = 0;
        for i in 0..drive.slices() {
            assert_eq!(drive.sequence_at(i), events, "slice {i} of {seconds} s");
            drive.slice(i, &mut slice);
            events += slice.events.len() as u64;
        }
        assert_eq!(drive.sequence_at(drive.slices()), events, "end of {seconds} s");
        drive.slice(drive.slices(), &mut slice);
        assert!(slice.events.is_empty(), "a slice after the last one");
    }
}

#[test]
fn impossible_lengths_are_brought_into_bounds() {
    assert_eq!(drive(f64::NAN).slices(), 0);
    assert_eq!(drive(-1.0).slices(), 0);
    assert_eq!(drive(f64::INFINITY).slices(), drive(LONGEST_S).slices());
    let endless = drive(f64::INFINITY);
    let mut slice = DriveSlice::default();
    endless.slice(endless.slices() - 1, &mut slice);
    assert!(!slice.events.is_empty());
}

#[test]
fn an_event_stays_in_the_time_of_its_slice() {
    let drive = drive(0.7);
    let mut slice = DriveSlice::default();
    for i in 0..drive.slices() - 1 {
        drive.slice(i, &mut slice);
        for event in &slice.events {
            assert_eq!((event.timestamp_ns - START_NS) / SLICE_NS, i as i64);
        }
    }
}

#[test]
fn an_event_is_received_within_six_milliseconds_of_being_measured() {
    for (channel, received, payload) in log(&drive(0.7)) {
        if !["LOGGER_STRING", "LCM_SELF_TEST"].contains(&channel) {
            let lag = received - (utime(&payload) - START_US);
            assert!((100..=6_000).contains(&lag), "{channel} lags {lag} µs");
        }
    }
}

#[test]
fn time_steps_back_about_once_a_second_by_a_few_milliseconds() {
    let times: Vec<_> = receipts(10.0).into_iter().map(|event| event.1).collect();
    let steps = times.windows(2).map(|pair| pair[0] - pair[1]).filter(|step| *step > 0);
    let steps: Vec<_> = steps.collect();
    assert!((8..=10).contains(&steps.len()), "{steps:?}");
    assert!(steps.iter().all(|step| *step < 4_000), "{steps:?}");
}

#[test]
fn the_log_begins_with_the_self_test() {
    assert_eq!(log(&drive(0.1))[0].0, "LCM_SELF_TEST");
}

#[test]
fn the_velodyne_drops_out_for_a_second_and_a_half() {
    let times = receive_times("VELODYNE", 10.0);
    let gap = times.windows(2).find(|pair| pair[1] - pair[0] > 100_000).unwrap();
    assert!((3_990_000..4_010_000).contains(&gap[0]), "begins at {} µs", gap[0]);
    assert!((1_490_000..1_510_000).contains(&(gap[1] - gap[0])), "ends at {} µs", gap[1]);
}

#[test]
fn a_short_drive_has_a_shorter_drop_out() {
    let times = receive_times("VELODYNE", 1.0);
    let longest = times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
    assert!((290_000..310_000).contains(&longest), "{longest} µs");
}

#[test]
fn the_rear_camera_dies_after_three_fifths() {
    let last = *receive_times("CAM_THUMB_RRC", 10.0).last().unwrap();
    assert!((5_900_000..6_000_000).contains(&last), "last heard at {last} µs");
    let last = *receive_times("CAM_THUMB_RFC", 10.0).last().unwrap();
    assert!(last > 9_900_000, "the front camera was last heard at {last} µs");
}

#[test]
fn pictures_decode_and_have_the_size_of_thumbnails() {
    let mut sizes = Vec::new();
    for payload in payloads("CAM_THUMB_", 1.0) {
        let picture = &payload[30..];
        let mut decoder = jpeg_decoder::Decoder::new(picture);
        let pixels = decoder.decode().unwrap();
        assert_eq!(pixels.len(), 376 * 240 * 3);
        assert_eq!(u32::from_be_bytes(payload[26..30].try_into().unwrap()), picture.len() as u32);
        sizes.push(picture.len());
    }
    sizes.sort_unstable();
    assert!(sizes[0] >= 6_000 && sizes[sizes.len() - 1] <= 25_000, "{sizes:?}");
    let median = sizes[sizes.len() / 2];
    assert!((10_500..13_500).contains(&median), "median {median}");
}

#[test]
fn no_picture_is_sent_twice() {
    let mut pictures: Vec<_> = payloads("CAM_THUMB_RFC", 1.2);
    pictures.iter_mut().for_each(|payload| drop(payload.drain(..30)));
    let count = pictures.len();
    pictures.sort();
    pictures.dedup();
    assert_eq!(pictures.len(), count);
}

#[test]
fn orientations_on_the_wire_are_unit_quaternions() {
    for payload in payloads("POSE", 0.3) {
        let norm: f64 = (0..4).map(|i| double(&payload, 64 + i * 8).powi(2)).sum();
        assert!((norm - 1.0).abs() < 1e-12);
    }
}

#[test]
fn fixes_lie_on_the_course() {
    for payload in payloads("GPS_TO_LOCAL", 0.3) {
        assert!((34.579..34.590).contains(&double(&payload, 40)));
        assert!((-117.370..-117.348).contains(&double(&payload, 48)));
    }
}

#[test]
fn scans_are_whole_centimetres_and_interlaced() {
    let scans = payloads("BROOM_CL", 0.2);
    for (index, payload) in scans.iter().enumerate() {
        for sample in 0..181 {
            let range = float(payload, 20 + sample * 4);
            assert_eq!(range, (range * 100.0).round() / 100.0);
            assert!((0.0..=79.0).contains(&range) || range == 81.91, "{range} m");
        }
        let first = float(payload, payload.len() - 8).to_degrees();
        assert!((first - (-90.0 + (index % 4) as f32 * 0.25)).abs() < 1e-4, "begins at {first}°");
        assert!((float(payload, payload.len() - 4).to_degrees() - 1.0).abs() < 1e-6);
    }
}

#[test]
fn every_other_scanner_reports_intensities() {
    let sizes = |channel| payloads(channel, 0.1).iter().map(Vec::len).max();
    assert_eq!(sizes("BROOM_CR"), Some(756));
    assert_eq!(sizes("BROOM_CL"), Some(1480));
}

#[test]
fn velodyne_packets_have_twelve_blocks_of_alternating_halves() {
    let mut before: Option<u16> = None;
    for payload in payloads("VELODYNE", 0.3).iter().take(300) {
        let (blocks, status) = payload[20..].split_at(1200);
        for pair in blocks.chunks(200) {
            assert_eq!((&pair[..2], &pair[100..102]), (&[0xff, 0xee][..], &[0xff, 0xdd][..]));
            assert_eq!(pair[2..4], pair[102..104], "both halves of a pair share an azimuth");
            let azimuth = u16::from_le_bytes([pair[2], pair[3]]);
            assert!(before.is_none_or(|before| (before + 35) % 36_000 == azimuth));
            before = Some(azimuth);
        }
        assert_eq!(status[2], b'v');
    }
}

#[test]
fn some_velodyne_returns_are_missing_and_the_rest_is_smooth() {
    let (mut samples, mut missing, mut jumps) = (0, 0, 0);
    for payload in payloads("VELODYNE", 0.3).iter().take(240) {
        let ranges = |pair: usize, laser: usize| {
            let at = 20 + pair * 200 + 100 + 4 + laser * 3;
            i32::from(u16::from_le_bytes([payload[at], payload[at + 1]]))
        };
        for (pair, laser) in (1..6).flat_map(|pair| (0..32).map(move |laser| (pair, laser))) {
            let (here, before) = (ranges(pair, laser), ranges(pair - 1, laser));
            samples += 1;
            missing += usize::from(here == 0);
            jumps += usize::from(here != 0 && before != 0 && (here - before).abs() > 250);
        }
    }
    assert!(jumps * 50 < samples, "{jumps} jumps of half a metre in {samples}");
    assert!(missing > 0 && missing * 20 < samples, "{missing} of {samples} lower returns missing");
}

#[test]
fn a_tenth_or_so_of_all_velodyne_returns_are_missing() {
    let (mut samples, mut missing) = (0, 0);
    for payload in payloads("VELODYNE", 0.3) {
        for block in payload[20..1220].chunks(100) {
            samples += 32;
            missing += block[4..].chunks(3).filter(|sample| sample[..2] == [0, 0]).count();
        }
    }
    let share = missing as f64 / f64::from(samples);
    assert!((0.05..0.16).contains(&share), "{share}");
}
