//! Layouts of known payload types: their length, and the sensor name in them.
//!
//! It does not read values; [`codec`](crate::codec) does.

#![warn(clippy::indexing_slicing)]

use sluice_kit::window::ReadAt;
use sluice_model::Error;

use crate::hash::{IMAGE, IMU_STATE, LASER_CONFIG, LASER_DATA};
use crate::wire::read_string;

/// How the length of a payload agrees with the layout of its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PayloadFit {
    /// The type or version is unknown.
    Unknown,
    /// The layout ends exactly where the payload does.
    Exact,
    /// The layout of a known version ends before the payload does, after `layout_len` bytes.
    TooLong { layout_len: u64 },
    /// The layout ends within the payload or with it, and the version is newer than the known ones.
    Newer,
    /// The layout extends beyond the payload.
    TooShort,
}

impl PayloadFit {
    /// Whether the payload contains the whole layout.
    pub(crate) fn fits(self) -> bool {
        matches!(self, Self::Exact | Self::TooLong { .. } | Self::Newer)
    }
}

/// A part of a payload.
#[derive(Clone, Copy)]
enum LayoutPart {
    /// A fixed number of bytes.
    Fixed(u64),
    /// A 32-bit count, and as many values of this width.
    Counted(u64),
}

use LayoutPart::{Counted, Fixed};

/// A sensor's brand and model, and its name.
const TEXT: LayoutPart = Counted(1);
const IMAGE_102: &[LayoutPart] = &[TEXT, TEXT, Fixed(12), Counted(1)];
const IMU_102: &[LayoutPart] = &[TEXT, TEXT, Fixed(28)];
const LASER_100: &[LayoutPart] = &[Counted(4)];
const LASER_101: &[LayoutPart] = &[TEXT, TEXT, Counted(4)];
const LASER_102: &[LayoutPart] = &[TEXT, TEXT, Counted(4), Counted(4), Fixed(4)];
const CONFIG_100: &[LayoutPart] = &[TEXT, TEXT, Fixed(40)];

/// The parts of a payload, and whether the version is newer than the known ones.
fn parts(type_id: u32, version: i32) -> Option<(&'static [LayoutPart], bool)> {
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

/// Whether a payload ends where its layout does, or may end anywhere because that is unknown or
/// newer. As [`payload_fit`], but fast: for every message that is read.
#[inline]
pub(crate) fn may_end(payload: &[u8], (type_id, version): (u32, i32)) -> bool {
    let Some((parts, false)) = parts(type_id, version) else { return true };
    let mut rest = payload;
    for part in parts {
        let after = match part {
            Fixed(len) => usize::try_from(*len).ok().and_then(|len| rest.get(len..)),
            Counted(width) => rest.split_first_chunk().and_then(|(count, values)| {
                let len = width * u64::from(u32::from_le_bytes(*count));
                values.get(usize::try_from(len).ok()?..)
            }),
        };
        let Some(after) = after else { return false };
        rest = after;
    }
    rest.is_empty()
}

/// Bytes of a payload that are read at once, because most counts are in them.
const FRONT_LEN: usize = 64;

/// Compares the payload of `len` bytes at `start` with its layout. Reads only the front and counts.
pub(crate) fn payload_fit(
    log: &mut (impl ReadAt + ?Sized),
    start: u64,
    len: u64,
    (type_id, version): (u32, i32),
) -> Result<PayloadFit, Error> {
    let Some((parts, is_newer)) = parts(type_id, version) else { return Ok(PayloadFit::Unknown) };
    let (mut front, mut at) = ([0; FRONT_LEN], 0u64);
    let in_payload = usize::try_from(len).unwrap_or(FRONT_LEN).min(FRONT_LEN);
    let there = log.read_at(start, front.get_mut(..in_payload).unwrap_or_default())?;
    let front = front.get(..there).unwrap_or_default();
    for part in parts {
        let more = match part {
            Fixed(more) => *more,
            Counted(width) => {
                if at.saturating_add(4) > len {
                    return Ok(PayloadFit::TooShort);
                }
                let mut count = [0; 4];
                let in_front =
                    usize::try_from(at).ok().and_then(|at| front.get(at..)?.first_chunk());
                match in_front {
                    Some(found) => count = *found,
                    None if log.read_at(start.saturating_add(at), &mut count)? < count.len() => {
                        return Ok(PayloadFit::TooShort);
                    }
                    None => {}
                }
                4 + width * u64::from(u32::from_le_bytes(count))
            }
        };
        at = at.saturating_add(more);
    }
    Ok(match at.cmp(&len) {
        std::cmp::Ordering::Greater => PayloadFit::TooShort,
        _ if is_newer => PayloadFit::Newer,
        std::cmp::Ordering::Equal => PayloadFit::Exact,
        std::cmp::Ordering::Less => PayloadFit::TooLong { layout_len: at },
    })
}

/// The sensor name in a payload; `None` if its type has none, or if it does not fit.
#[inline]
pub(crate) fn sensor(type_id: u32, version: i32, payload: &[u8]) -> Option<&[u8]> {
    if !has_sensor_name(type_id, version) {
        return None;
    }
    let (_, rest) = read_string(payload)?;
    read_string(rest).map(|(name, _)| name)
}

/// Whether the layout of this type starts with a sensor name.
pub(crate) fn has_sensor_name(type_id: u32, version: i32) -> bool {
    parts(type_id, version).is_some_and(|(parts, _)| matches!(parts, [Counted(1), Counted(1), ..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fit_of(payload: &[u8], type_id: u32, version: i32) -> PayloadFit {
        payload_fit(&mut &*payload, 0, payload.len() as u64, (type_id, version)).unwrap()
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
            assert_eq!(fit_of(&payload, type_id, version), PayloadFit::Exact, "{type_id:x}");
            let too_long = PayloadFit::TooLong { layout_len: payload.len() as u64 };
            assert_eq!(fit_of(&longer, type_id, version), too_long, "{type_id:x}");
            assert_eq!(fit_of(shorter, type_id, version), PayloadFit::TooShort, "{type_id:x}");
        }
    }

    #[test]
    fn a_version_above_those_described_may_have_more_behind_what_is_described() {
        let payload = [&sensor_strings()[..], &[0; 28]].concat();
        let longer = [&payload[..], b"x"].concat();
        assert_eq!(
            (fit_of(&payload, IMU_STATE, 103), fit_of(&longer, IMU_STATE, 103)),
            (PayloadFit::Newer, PayloadFit::Newer)
        );
        assert_eq!(fit_of(payload.split_last().unwrap().1, IMU_STATE, 103), PayloadFit::TooShort);
    }

    #[test]
    fn versions_below_those_described_and_other_types_are_unknown() {
        for (type_id, version) in [(IMAGE, 101), (LASER_DATA, 99), (LASER_CONFIG, -1), (7, 102)] {
            assert_eq!(fit_of(&sensor_strings(), type_id, version), PayloadFit::Unknown);
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
            payload in proptest::collection::vec(
                prop_oneof![Just(0u8), 0u8..9, any::<u8>()], 0..80),
            type_id in prop_oneof![
                Just(IMAGE), Just(IMU_STATE), Just(LASER_DATA), Just(LASER_CONFIG)],
            version in 99i32..104,
        ) {
            let shape = fit_of(&payload, type_id, version);
            let may_end = matches!(
                shape, PayloadFit::Exact | PayloadFit::Unknown | PayloadFit::Newer);
            let is_newer = parts(type_id, version).is_some_and(|(_, is_newer)| is_newer);
            prop_assert_eq!(
                super::may_end(&payload, (type_id, version)), may_end || is_newer);
            if shape == PayloadFit::Exact {
                let shorter = payload.split_last().unwrap().1;
                prop_assert_eq!(fit_of(shorter, type_id, version), PayloadFit::TooShort);
            }
            sensor(type_id, version, &payload);
        }
    }
}
