//! What payloads of the described types say of their own length, and whether they name their sensor.
//!
//! It does not read values; that is for whoever makes columns of payloads.

#![warn(clippy::indexing_slicing)]

use std::io;

use sluice_core::window::ReadAt;

use crate::hash::{IMAGE, IMU_STATE, LASER_CONFIG, LASER_DATA};
use crate::wire::string;

/// How the length of a payload agrees with what is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// The type, or this version of it, is not described.
    Unknown,
    /// What is described ends exactly where the payload does.
    Exact,
    /// What is described ends before the payload does, and the version is a described one.
    TooLong,
    /// What is described ends before the payload does, or with it; the version is above those described.
    Newer,
    /// What is described goes on after the end of the payload.
    TooShort,
}

impl Shape {
    /// Whether all that is described lies in the payload.
    pub fn fits(self) -> bool {
        matches!(self, Self::Exact | Self::TooLong | Self::Newer)
    }
}

/// A piece of a payload.
#[derive(Clone, Copy)]
enum Part {
    /// So many bytes.
    Fixed(u64),
    /// A 32-bit count, and so many values of this width.
    Counted(u64),
}

use Part::{Counted, Fixed};

/// A sensor's brand and model, and its name.
const TEXT: Part = Counted(1);
const IMAGE_102: &[Part] = &[TEXT, TEXT, Fixed(12), Counted(1)];
const IMU_102: &[Part] = &[TEXT, TEXT, Fixed(28)];
const LASER_100: &[Part] = &[Counted(4)];
const LASER_101: &[Part] = &[TEXT, TEXT, Counted(4)];
const LASER_102: &[Part] = &[TEXT, TEXT, Counted(4), Counted(4), Fixed(4)];
const CONFIG_100: &[Part] = &[TEXT, TEXT, Fixed(40)];

/// The parts of a payload, and whether its version is above those described.
fn parts(type_id: u32, version: i32) -> Option<(&'static [Part], bool)> {
    let known = |parts| Some((parts, false));
    match (type_id, version) {
        (LASER_DATA, 100) => known(LASER_100),
        (LASER_DATA, 101) => known(LASER_101),
        (LASER_DATA, 102..) => Some((LASER_102, version > 102)),
        (IMAGE, 102..) => Some((IMAGE_102, version > 102)),
        (IMU_STATE, 102..) => Some((IMU_102, version > 102)),
        (LASER_CONFIG, 100..) => Some((CONFIG_100, version > 100)),
        _ => None,
    }
}

/// How the payload of `len` bytes at `start` agrees with its type. Reads counts only.
pub fn shape(
    log: &mut dyn ReadAt,
    start: u64,
    len: u64,
    (type_id, version): (u32, i32),
) -> io::Result<Shape> {
    let Some((parts, is_newer)) = parts(type_id, version) else { return Ok(Shape::Unknown) };
    let mut at = 0u64;
    for part in parts {
        let more = match part {
            Fixed(more) => *more,
            Counted(width) => {
                let mut count = [0; 4];
                let there = log.read_at(start.saturating_add(at), &mut count)?;
                if there < count.len() || at.saturating_add(4) > len {
                    return Ok(Shape::TooShort);
                }
                4 + width * u64::from(u32::from_le_bytes(count))
            }
        };
        at = at.saturating_add(more);
    }
    Ok(match at.cmp(&len) {
        std::cmp::Ordering::Greater => Shape::TooShort,
        _ if is_newer => Shape::Newer,
        std::cmp::Ordering::Equal => Shape::Exact,
        std::cmp::Ordering::Less => Shape::TooLong,
    })
}

/// The name of the sensor that a payload of this type and version comes from; nothing if it carries none,
/// or if it does not fit.
#[inline]
pub fn sensor(type_id: u32, version: i32, payload: &[u8]) -> Option<&[u8]> {
    if !names_sensor(type_id, version) {
        return None;
    }
    let (_, rest) = string(payload)?;
    string(rest).map(|(name, _)| name)
}

/// Whether the layout of such messages begins with the name of a sensor.
pub fn names_sensor(type_id: u32, version: i32) -> bool {
    parts(type_id, version).is_some_and(|(parts, _)| matches!(parts, [Counted(1), Counted(1), ..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(payload: &[u8], type_id: u32, version: i32) -> Shape {
        shape(&mut &*payload, 0, payload.len() as u64, (type_id, version)).unwrap()
    }

    fn sensor_strings() -> Vec<u8> {
        [&b"\x03\0\0\0abc"[..], b"\x02\0\0\0de"].concat()
    }

    #[test]
    fn each_described_layout_is_known_to_the_byte() {
        let named = |rest: &[u8]| [&sensor_strings()[..], rest].concat();
        let ranges = [&3u32.to_le_bytes()[..], &[0; 12]].concat();
        let image = [&[0; 12][..], &2u32.to_le_bytes(), b"xx"].concat();
        for (payload, type_id, version) in [
            (named(&image), IMAGE, 102),
            (named(&[0; 28]), IMU_STATE, 102),
            (ranges.clone(), LASER_DATA, 100),
            (named(&ranges), LASER_DATA, 101),
            (named(&[&ranges[..], &ranges, &[0; 4]].concat()), LASER_DATA, 102),
            (named(&[0; 40]), LASER_CONFIG, 100),
        ] {
            let longer = [&payload[..], b"x"].concat();
            let shorter = payload.split_last().unwrap().1;
            assert_eq!(of(&payload, type_id, version), Shape::Exact, "{type_id:x}");
            assert_eq!(of(&longer, type_id, version), Shape::TooLong, "{type_id:x}");
            assert_eq!(of(shorter, type_id, version), Shape::TooShort, "{type_id:x}");
        }
    }

    #[test]
    fn a_version_above_those_described_may_have_more_behind_what_is_described() {
        let payload = [&sensor_strings()[..], &[0; 28]].concat();
        let longer = [&payload[..], b"x"].concat();
        assert_eq!(
            (of(&payload, IMU_STATE, 103), of(&longer, IMU_STATE, 103)),
            (Shape::Newer, Shape::Newer)
        );
        assert_eq!(of(payload.split_last().unwrap().1, IMU_STATE, 103), Shape::TooShort);
    }

    #[test]
    fn versions_below_those_described_and_other_types_are_unknown() {
        for (type_id, version) in [(IMAGE, 101), (LASER_DATA, 99), (LASER_CONFIG, -1), (7, 102)] {
            assert_eq!(of(&sensor_strings(), type_id, version), Shape::Unknown);
            assert_eq!(sensor(type_id, version, &sensor_strings()), None);
        }
    }

    #[test]
    fn sensors_are_named_where_the_layout_has_a_name() {
        for (type_id, version) in [(IMAGE, 103), (LASER_DATA, 101), (LASER_CONFIG, 100)] {
            assert_eq!(sensor(type_id, version, &sensor_strings()), Some(&b"de"[..]));
        }
        assert_eq!(sensor(LASER_DATA, 100, &sensor_strings()), None);
        assert_eq!(sensor(IMAGE, 102, sensor_strings().split_last().unwrap().1), None);
    }

    proptest! {
        #[test]
        fn any_bytes_have_a_shape(
            payload in proptest::collection::vec(prop_oneof![Just(0u8), 0u8..9, any::<u8>()], 0..80),
            type_id in prop_oneof![Just(IMAGE), Just(IMU_STATE), Just(LASER_DATA), Just(LASER_CONFIG)],
            version in 99i32..104,
        ) {
            let shape = of(&payload, type_id, version);
            if shape == Shape::Exact {
                prop_assert_eq!(of(payload.split_last().unwrap().1, type_id, version), Shape::TooShort);
            }
            sensor(type_id, version, &payload);
        }
    }
}
