//! How many records at the front of a subfile are configuration: they are not counted by the index of the
//! master. Reads no file.

#![warn(clippy::indexing_slicing)]

use crate::master::Dialect;

/// The most records that are looked at for a name that says configuration, and the most that are believed to
/// be some where the interface is not known.
pub const MOST: u64 = 4;

/// How many leading records the loggers of an interface wrote, the usual first; nothing for interfaces that
/// are not known.
fn known(dialect: Dialect, interface: &[u8]) -> Option<&'static [u64]> {
    Some(match (dialect, interface) {
        (Dialect::A, b"Laser" | b"Camera") => &[2],
        (Dialect::A, b"Position2d" | b"Position3d" | b"Gps") => &[1],
        (Dialect::A, b"Power" | b"PolarFeature2d" | b"Localise2d") => &[0],
        (Dialect::A, _) => return None,
        (_, b"LaserScanner2d" | b"RangeScanner2d" | b"Camera" | b"Image" | b"MultiCamera") => &[1],
        (_, b"Gps" | b"Odometry2d" | b"Odometry3d" | b"DriveBicycle") => &[1],
        (_, b"Power" | b"Cpu" | b"Wifi" | b"PolarFeature2d" | b"PathFollower2d") => &[0],
        // Written by the later loggers only.
        (Dialect::C, b"Localise2d" | b"Localise3d") => &[1, 0],
        (Dialect::B, b"Localise2d" | b"Localise3d") => &[0],
        // Written by the earlier loggers only.
        (_, b"Imu") => &[1, 0],
        _ => return None,
    })
}

/// What is known of a subfile and its lines in the master.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'f> {
    /// The log's dialect.
    pub dialect: Dialect,
    /// The interface.
    pub interface: &'f [u8],
    /// How many records the subfile has.
    pub records: u64,
    /// How many objects the master counts: up to its highest index.
    pub indexed: u64,
    /// How many of the first records say by their own type that they are configuration; nothing if the
    /// first does not say its type.
    pub by_name: Option<u64>,
    /// Whether the first record is as long as the second; nothing if there are not two.
    pub is_first_like_second: Option<bool>,
}

/// How many records are configuration, and whether nothing contradicts that.
pub fn decide(facts: Facts<'_>) -> (u64, bool) {
    let left = facts.records.checked_sub(facts.indexed);
    let known = known(facts.dialect, facts.interface);
    let fitting = known.and_then(|counts| counts.iter().find(|count| Some(**count) == left));
    if let Some(count) = fitting {
        return (*count, true);
    }
    if let Some(count) = facts.by_name {
        return (count, left == Some(count));
    }
    // Some loggers wrote a description and some did not; descriptions are of another length than data.
    if let (Some([1, 0]), Some(is_alike)) = (known, facts.is_first_like_second) {
        return (u64::from(!is_alike), false);
    }
    match (known.and_then(<[u64]>::first), left) {
        // A log that was cut off has too few records or too few lines, by any number: what the loggers are
        // known to have written is surer than what is left over.
        (Some(count), _) => (*count, false),
        (None, Some(left)) if left <= MOST => (left, true),
        (None, _) => (0, false),
    }
}

/// Whether an object says that it is configuration: the name of its class ends like that. Nothing if it does
/// not begin as a class does.
pub fn is_config_by_name(object: &[u8]) -> Option<bool> {
    let (reference, rest) = object.split_first_chunk()?;
    let (batch, rest) = rest.split_first()?;
    let (_instance, rest) = rest.split_first_chunk::<4>()?;
    let (kind, rest) = rest.split_first()?;
    let (len, rest) = rest.split_first()?;
    let name = rest.get(..usize::from(*len))?;
    let is_class = i32::from_le_bytes(*reference) < 0 && *batch > 0 && *kind == 0;
    if !is_class || !name.starts_with(b"::") {
        return None;
    }
    let ends: [&[u8]; 4] = [b"Config", b"ConfigData", b"Geometry", b"Description"];
    Some(ends.iter().any(|end| name.ends_with(end)))
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;

    fn facts(dialect: Dialect, interface: &str, records: u64, indexed: u64) -> Facts<'_> {
        Facts {
            dialect,
            interface: interface.as_bytes(),
            records,
            indexed,
            by_name: None,
            is_first_like_second: None,
        }
    }

    #[test]
    fn what_the_loggers_wrote_comes_first() {
        assert_eq!(decide(facts(Dialect::A, "Laser", 12, 10)), (2, true));
        assert_eq!(decide(facts(Dialect::C, "LaserScanner2d", 11, 10)), (1, true));
        assert_eq!(decide(facts(Dialect::C, "Imu", 10, 10)), (0, true));
        assert_eq!(decide(facts(Dialect::C, "Imu", 11, 10)), (1, true));
    }

    #[test]
    fn a_log_that_was_cut_off_does_not_move_its_records() {
        for records in [9, 10, 14] {
            assert_eq!(decide(facts(Dialect::C, "LaserScanner2d", records, 10)), (1, false));
        }
        assert_eq!(decide(facts(Dialect::B, "Power", 12, 10)), (0, false));
    }

    #[test]
    fn a_description_that_may_be_there_is_of_another_length_than_data() {
        let facts = |is_alike| Facts {
            is_first_like_second: Some(is_alike),
            ..facts(Dialect::C, "Imu", 9, 12)
        };
        assert_eq!((decide(facts(true)), decide(facts(false))), ((0, false), (1, false)));
    }

    #[test]
    fn records_that_name_their_type_are_believed_before_a_table_that_does_not_fit() {
        let by_name = Some(1);
        assert_eq!(decide(Facts { by_name, ..facts(Dialect::A, "Laser", 11, 10) }), (1, true));
    }

    #[test]
    fn of_unknown_interfaces_what_is_left_over_is_configuration() {
        assert_eq!(decide(facts(Dialect::C, "Sonar", 12, 10)), (2, true));
        assert_eq!(decide(facts(Dialect::C, "Sonar", 90, 10)), (0, false));
        assert_eq!(decide(facts(Dialect::C, "Sonar", 9, 10)), (0, false));
    }

    #[test]
    fn a_class_says_what_it_is() {
        let object = |name: &str| {
            let mut bytes = b"\xff\xff\xff\xff\x01\x01\0\0\0\0".to_vec();
            bytes.push(name.len() as u8);
            bytes.extend(name.as_bytes());
            bytes
        };
        assert_eq!(is_config_by_name(&object("::orca::RangeScannerConfig")), Some(true));
        assert_eq!(is_config_by_name(&object("::orca::LaserData")), Some(false));
        assert_eq!(is_config_by_name(&object("LaserData")), None);
        for cut in 0..20 {
            assert_eq!(is_config_by_name(&object("::orca::LaserData")[..cut]), None);
        }
    }
}
