//! Decides how many records at the start of a subfile are configuration, which the master does not
//! count. Does no I/O.

#![warn(clippy::indexing_slicing)]

use crate::master::Dialect;

/// The maximum number of records that are considered configuration if the interface is unknown.
const MAX_CONFIG_RECORDS: u64 = 4;
/// The number of leading records whose class names are compared.
pub(crate) const MAX_NAMES: u64 = 2 * MAX_CONFIG_RECORDS;
/// The number of leading records whose lengths are compared.
pub(crate) const MAX_LENGTHS: u64 = 16;
/// The minimum number of records of equal length after outliers.
const MIN_EQUAL_LENGTHS: usize = 3;

/// The numbers of configuration records that the loggers of an interface wrote, the usual first;
/// `None` for unknown interfaces.
fn usual_counts(dialect: Dialect, interface: &[u8]) -> Option<&'static [u64]> {
    Some(match (dialect, interface) {
        (Dialect::A, b"Laser" | b"Camera") => &[2],
        (Dialect::A, b"Position2d" | b"Position3d" | b"Gps") => &[1],
        (Dialect::A, b"Power" | b"PolarFeature2d" | b"Localise2d") => &[0],
        (Dialect::A, _) => return None,
        (_, b"LaserScanner2d" | b"RangeScanner2d" | b"Camera" | b"Image" | b"MultiCamera") => &[1],
        (_, b"Gps" | b"Odometry2d" | b"Odometry3d" | b"DriveBicycle") => &[1],
        (_, b"Power" | b"Cpu" | b"Wifi" | b"PolarFeature2d" | b"PathFollower2d") => &[0],
        // Only the later loggers wrote one.
        (Dialect::C, b"Localise2d" | b"Localise3d") => &[1, 0],
        (Dialect::B, b"Localise2d" | b"Localise3d") => &[0],
        // Only the earlier loggers wrote one.
        (_, b"Imu") => &[1, 0],
        _ => return None,
    })
}

/// What a subfile and its lines in the master show.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConfigEvidence<'f> {
    /// The log's dialect.
    pub(crate) dialect: Dialect,
    /// The interface.
    pub(crate) interface: &'f [u8],
    /// The number of records in the subfile.
    pub(crate) records: u64,
    /// The number of objects that the master counts, up to its highest index.
    pub(crate) indexed: u64,
    /// The number of leading records whose own class name says configuration, if that is known.
    pub(crate) by_name: Option<u64>,
    /// Whether the first record has the layout of an object.
    pub(crate) starts_with_object: bool,
    /// The lengths of the first records, up to [`MAX_LENGTHS`]; empty if lengths are not
    /// significant.
    pub(crate) lengths: &'f [u64],
}

/// The number of configuration records, and whether all evidence agrees.
///
/// A logger that was killed leaves the subfile or the master short by any number of records, so the
/// difference between records and objects may fit by chance. Unless the loggers of an interface are
/// known to have written exactly one number, it is accepted only if the records look like it.
pub(crate) fn decide_config_count(facts: ConfigEvidence<'_>) -> (u64, bool) {
    let left = facts.records.checked_sub(facts.indexed);
    let known = usual_counts(facts.dialect, facts.interface);
    let is_decisive = |count: &u64| *count > 0 || known.is_none_or(|counts| counts.len() > 1);
    if let Some(count) = facts.by_name.filter(is_decisive) {
        return (count, left == Some(count));
    }
    match known {
        Some(_) if facts.starts_with_object => (0, left == Some(0)),
        Some([count]) => match facts.by_name {
            Some(named) if left != Some(*count) => (named, left == Some(named)),
            _ => (*count, left == Some(*count)),
        },
        Some(counts) => decide_optional(counts, facts.lengths, left),
        None => decide_unknown(facts.lengths, left),
    }
}

/// For interfaces with an optional description, which differs in length from data.
fn decide_optional(counts: &[u64], lengths: &[u64], left: Option<u64>) -> (u64, bool) {
    let fitting = left.filter(|left| counts.contains(left));
    let fitting_or_usual = fitting.or(counts.first().copied()).unwrap_or(0);
    let Some((first, rest @ [second, ..])) = lengths.split_first() else {
        return (fitting_or_usual, fitting.is_some());
    };
    if rest.contains(first) {
        return (0, left == Some(0));
    }
    if rest.iter().all(|len| len == second) {
        return (1, left == Some(1));
    }
    // Data varies in length, and the first record may be data.
    (fitting_or_usual, fitting == Some(1))
}

/// For unknown interfaces: the leading records of unusual length, or else the surplus over the
/// objects counted.
fn decide_unknown(lengths: &[u64], left: Option<u64>) -> (u64, bool) {
    if let Some(count) = leading_outliers(lengths) {
        return (count, left == Some(count));
    }
    let Some(left) = left.filter(|left| *left <= MAX_CONFIG_RECORDS) else { return (0, false) };
    let split = usize::try_from(left).ok().and_then(|left| lengths.split_at_checked(left));
    let (front, rest) = split.unwrap_or_default();
    let is_like_data = front.iter().any(|len| rest.contains(len));
    if is_like_data { (0, false) } else { (left, left == 0) }
}

/// The number of leading records in front of records of equal length. `None` if there are too many
/// of the former or too few of the latter to be significant.
fn leading_outliers(lengths: &[u64]) -> Option<u64> {
    let last = lengths.last()?;
    let alike = lengths.iter().rev().take_while(|len| *len == last).count();
    let before = u64::try_from(lengths.len() - alike).ok()?;
    (alike >= MIN_EQUAL_LENGTHS && before <= MAX_CONFIG_RECORDS).then_some(before)
}

/// The number of leading records whose class is one of configuration, by the class names of the
/// first records. `None` if that is not known: the first has no class, or the record after
/// configuration has none or another one than all later records, as if its name were damaged.
pub(crate) fn count_by_class(names: &[Option<Vec<u8>>]) -> Option<u64> {
    names.first()?.as_ref()?;
    let count =
        names.iter().take_while(|name| name.as_deref().is_some_and(is_config_class)).count();
    let is_alone = match names.get(count..) {
        // Some loggers write configuration with a class, and objects without.
        Some([None, others @ ..]) => others.iter().any(Option::is_some),
        Some([object, others @ ..]) => !others.is_empty() && !others.contains(object),
        _ => false,
    };
    u64::try_from(count).ok().filter(|count| *count <= MAX_CONFIG_RECORDS && !is_alone)
}

fn is_config_class(name: &[u8]) -> bool {
    let ends: [&[u8]; 4] = [b"Config", b"ConfigData", b"Geometry", b"Description"];
    ends.iter().any(|end| name.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn facts(dialect: Dialect, interface: &str, records: u64, indexed: u64) -> ConfigEvidence<'_> {
        ConfigEvidence {
            dialect,
            interface: interface.as_bytes(),
            records,
            indexed,
            by_name: None,
            starts_with_object: false,
            lengths: &[],
        }
    }

    #[test]
    fn the_number_that_loggers_wrote_takes_precedence() {
        assert_eq!(decide_config_count(facts(Dialect::A, "Laser", 12, 10)), (2, true));
        assert_eq!(decide_config_count(facts(Dialect::C, "LaserScanner2d", 11, 10)), (1, true));
        assert_eq!(decide_config_count(facts(Dialect::C, "Imu", 10, 10)), (0, true));
        assert_eq!(decide_config_count(facts(Dialect::C, "Imu", 11, 10)), (1, true));
    }

    #[test]
    fn a_log_that_was_cut_off_does_not_move_its_records() {
        for records in [9, 10, 14] {
            assert_eq!(
                decide_config_count(facts(Dialect::C, "LaserScanner2d", records, 10)),
                (1, false)
            );
        }
        assert_eq!(decide_config_count(facts(Dialect::B, "Power", 12, 10)), (0, false));
    }

    fn measured<'f>(facts: ConfigEvidence<'f>, lengths: &'f [u64]) -> (u64, bool) {
        decide_config_count(ConfigEvidence { lengths, ..facts })
    }

    #[test]
    fn a_description_that_may_be_there_is_of_another_length_than_data() {
        let imu = |records, lengths| measured(facts(Dialect::C, "Imu", records, 10), lengths);
        let (bare, described) = (&[57, 57, 57, 57], &[25, 57, 57, 57]);
        assert_eq!((imu(10, bare), imu(11, described)), ((0, true), (1, true)));
        for records in [8, 9, 11, 12] {
            assert_eq!(imu(records, bare), (0, false), "{records}");
        }
        for records in [8, 9, 10, 12] {
            assert_eq!(imu(records, described), (1, false), "{records}");
        }
    }

    #[test]
    fn a_first_record_with_the_layout_of_an_object_is_no_description() {
        let lengths = &[238, 162, 162, 162, 162];
        let localise = |indexed| {
            let evidence = facts(Dialect::C, "Localise2d", 5, indexed);
            measured(ConfigEvidence { starts_with_object: true, ..evidence }, lengths)
        };
        assert_eq!([localise(5), localise(4)], [(0, true), (0, false)]);
        let camera = |indexed| {
            let evidence = facts(Dialect::B, "Camera", 5, indexed);
            decide_config_count(ConfigEvidence { starts_with_object: true, ..evidence })
        };
        assert_eq!([camera(5), camera(4)], [(0, true), (0, false)]);
    }

    #[test]
    fn among_data_of_varying_lengths_a_surplus_that_fits_is_used_and_reported() {
        let localise =
            |records, lengths| measured(facts(Dialect::C, "Localise2d", records, 10), lengths);
        assert_eq!(localise(10, &[86, 162, 86]), (0, true));
        assert_eq!(localise(11, &[86, 162, 86]), (0, false));
        let varied = &[25, 86, 162, 86];
        assert_eq!((localise(11, varied), localise(10, varied)), ((1, true), (0, false)));
        assert_eq!(localise(9, varied), (1, false));
    }

    #[test]
    fn records_that_name_their_type_are_believed_before_a_table() {
        let by_name = Some(1);
        assert_eq!(
            decide_config_count(ConfigEvidence { by_name, ..facts(Dialect::A, "Laser", 11, 10) }),
            (1, true)
        );
        assert_eq!(
            decide_config_count(ConfigEvidence { by_name, ..facts(Dialect::A, "Laser", 12, 10) }),
            (1, false)
        );
        let by_name = Some(0);
        assert_eq!(
            decide_config_count(ConfigEvidence { by_name, ..facts(Dialect::A, "Laser", 12, 10) }),
            (2, true)
        );
        assert_eq!(
            decide_config_count(ConfigEvidence { by_name, ..facts(Dialect::A, "Laser", 10, 10) }),
            (0, true)
        );
        assert_eq!(
            decide_config_count(ConfigEvidence { by_name, ..facts(Dialect::C, "Sonar", 11, 10) }),
            (0, false)
        );
    }

    #[test]
    fn for_unknown_interfaces_the_surplus_is_configuration() {
        assert_eq!(decide_config_count(facts(Dialect::C, "Sonar", 12, 10)), (2, false));
        assert_eq!(decide_config_count(facts(Dialect::C, "Sonar", 10, 10)), (0, true));
        assert_eq!(decide_config_count(facts(Dialect::C, "Sonar", 90, 10)), (0, false));
        assert_eq!(decide_config_count(facts(Dialect::C, "Sonar", 9, 10)), (0, false));
    }

    #[test]
    fn for_unknown_interfaces_records_that_look_like_data_are_not_configuration() {
        let sonar = |records, lengths| measured(facts(Dialect::C, "Sonar", records, 10), lengths);
        let (bare, two) = (&[57, 57, 57, 57], &[21, 21, 57, 57, 57]);
        assert_eq!((sonar(10, bare), sonar(11, bare)), ((0, true), (0, false)));
        assert_eq!(
            (sonar(12, two), sonar(11, two), sonar(9, two)),
            ((2, true), (2, false), (2, false))
        );
        let varied = &[30, 40, 30, 50];
        assert_eq!((sonar(10, varied), sonar(11, varied)), ((0, true), (0, false)));
        assert_eq!(sonar(11, &[20, 40, 30, 50]), (1, false));
    }

    proptest! {
        #[test]
        fn no_more_than_may_be_are_configuration(
            records in any::<u64>(),
            indexed in any::<u64>(),
            by_name in proptest::option::of(0..=MAX_CONFIG_RECORDS),
            lengths in proptest::collection::vec(1u64..4, 0..16),
            interface in "Sonar|Imu|Laser|Power")
        {
            let facts = facts(Dialect::C, &interface, records, indexed);
            let facts = ConfigEvidence { by_name, lengths: &lengths, ..facts };
            prop_assert!(decide_config_count(facts).0 <= MAX_CONFIG_RECORDS);
        }
    }

    #[test]
    fn a_class_that_no_other_record_has_is_no_evidence() {
        let count = |names: &[&str]| {
            let name = |name: &&str| (!name.is_empty()).then(|| name.as_bytes().to_vec());
            count_by_class(&names.iter().map(name).collect::<Vec<_>>())
        };
        assert_eq!(count(&["::Config", "::Geometry", "::Data", "::Data"]), Some(2));
        assert_eq!(count(&["::Config", "::Data", "::Other", "::Data"]), Some(1));
        assert_eq!(count(&["::Config", "::Data"]), Some(1));
        assert_eq!(count(&["::Config", "::Geometry"]), Some(2));
        assert_eq!(count(&["::Data", "::Data"]), Some(0));
        for damaged in ["::Feometry", ""] {
            assert_eq!(count(&["::Config", damaged, "::Data", "::Data"]), None);
            assert_eq!(count(&[damaged, "::Geometry", "::Data", "::Data"]), None);
        }
        assert_eq!(count(&["::Config", ""]), Some(1));
        assert_eq!(count(&["::Config", "", "", ""]), Some(1));
        assert_eq!(count(&["::Config"; 8]), None);
        assert_eq!(count(&[]), None);
    }
}
