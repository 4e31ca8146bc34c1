//! A log of two seconds, and the output of the dataset's own program for its Velodyne.

use std::fmt::Write;

use serde_json::json;
use sluice_dgc as _;

use crate::points::kit::{PointRun, RawEvent, points};

const LOG: &[u8] = include_bytes!("../../../testdata/golden/mitdgc-synth-small.lcm");
const PRINTED: &str = include_str!("../../../testdata/golden/velodyne_0.5_0.6.txt");

/// Where the sensor is on the vehicle: metres, and degrees of roll, pitch and yaw.
const MOUNT: ([f64; 3], [f64; 3]) = ([1.56, -0.00408, 2.55], [2.683627, -0.076601, 91.026067]);

struct LoggedEvent<'l> {
    /// Microseconds.
    time: u64,
    channel: &'l [u8],
    payload: &'l [u8],
}

fn events() -> Vec<LoggedEvent<'static>> {
    let (mut rest, mut events) = (LOG, Vec::new());
    let word = |at: &[u8]| u32::from_be_bytes(at[..4].try_into().unwrap()) as usize;
    while !rest.is_empty() {
        assert_eq!(word(rest), 0xEDA1_DA01);
        let time = u64::from_be_bytes(rest[12..20].try_into().unwrap());
        let (channel, payload) = (word(&rest[20..]), word(&rest[24..]));
        let (event, after) = rest.split_at(28 + channel + payload);
        let (channel, payload) = event[28..].split_at(channel);
        events.push(LoggedEvent { time, channel, payload });
        rest = after;
    }
    events
}

/// A rotation as a quaternion w, x, y, z, and a shift.
#[derive(Clone, Copy)]
struct Motion {
    turn: [f64; 4],
    shift: [f64; 3],
}

impl Motion {
    fn mount() -> Self {
        let (shift, angles) = MOUNT;
        let [roll, pitch, yaw] = angles.map(|angle| angle.to_radians() / 2.0);
        let ([sr, sp, sy], [cr, cp, cy]) =
            ([roll.sin(), pitch.sin(), yaw.sin()], [roll.cos(), pitch.cos(), yaw.cos()]);
        let turn = [
            cr * cp * cy + sr * sp * sy,
            sr * cp * cy - cr * sp * sy,
            cr * sp * cy + sr * cp * sy,
            cr * cp * sy - sr * sp * cy,
        ];
        Self { turn, shift }
    }

    /// The vehicle in the local frame, as a `pose_t` says.
    fn from_pose(payload: &[u8]) -> Self {
        let double = |at: usize| {
            let start = 16 + at * 8;
            f64::from_be_bytes(payload[start..start + 8].try_into().unwrap())
        };
        Self { shift: std::array::from_fn(double), turn: std::array::from_fn(|k| double(6 + k)) }
    }

    fn apply(&self, [x, y, z]: [f64; 3]) -> [f64; 3] {
        let [w, i, j, k] = self.turn;
        let [tx, ty, tz] = [2.0 * (j * z - k * y), 2.0 * (k * x - i * z), 2.0 * (i * y - j * x)];
        let turned = [
            x + w * tx + j * tz - k * ty,
            y + w * ty + k * tx - i * tz,
            z + w * tz + i * ty - j * tx,
        ];
        std::array::from_fn(|axis| turned[axis] + self.shift[axis])
    }
}

/// Points are those that the dataset's own program prints, to the last of six decimals, for the
/// packets that were received from half a second after the first event on, before 0.6 s after it,
/// and with the last pose before each.
#[test]
fn points_match_the_datasets_own_program() {
    let (events, mount) = (events(), Motion::mount());
    let window = [500_000, 600_000].map(|after| events[0].time + after);
    let (mut pose, mut packets, mut poses) = (None, Vec::<RawEvent>::new(), Vec::new());
    for event in &events {
        match event.channel {
            b"POSE" => pose = Some(Motion::from_pose(event.payload)),
            b"VELODYNE" if (window[0]..window[1]).contains(&event.time) => {
                packets.push(("VELODYNE", event.time as i64 * 1000, event.payload.to_vec()));
                poses.push(pose.unwrap());
            }
            _ => {}
        }
    }
    let mut run = PointRun::new("velodyne", json!({}));
    let event_points = points(&run.all(&packets));
    assert!(run.notes.is_empty(), "{:?}", run.notes);
    let mut printed = String::new();
    for event_points in event_points {
        for point in event_points.points {
            let [x, y, z] = poses[event_points.event as usize].apply(mount.apply(point.xyz));
            writeln!(printed, "{x:.6} {y:.6} {z:.6}").unwrap();
        }
    }
    let differ = printed.lines().zip(PRINTED.lines()).position(|(ours, theirs)| ours != theirs);
    assert_eq!(differ, None, "the first line that differs");
    assert_eq!(printed.lines().count(), PRINTED.lines().count());
}
