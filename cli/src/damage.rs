//! Groups the damaged ranges of a report for display: one line per input and reason. The report
//! itself lists each range.

use std::collections::BTreeMap;

use sluice_model::units;
use sluice_pipeline::Report;
use sluice_pipeline::report::DamageReport;

/// Damaged ranges of one input that have the same reason.
pub(crate) struct DamageGroup<'r> {
    /// The first range.
    pub(crate) first: &'r DamageReport,
    /// The number of ranges.
    pub(crate) count: u64,
    /// The total length of the ranges.
    pub(crate) bytes: u64,
}

impl DamageGroup<'_> {
    /// Formats size, position and reason, to follow the name of the input; `verb` says what
    /// happened to the bytes.
    pub(crate) fn text(&self, verb: &str) -> String {
        let DamageReport { offset, reason, .. } = self.first;
        let bytes = if self.bytes == 1 { "1 byte".into() } else { format!("{} bytes", self.bytes) };
        match self.count {
            1 => format!("{bytes} at byte {offset}{verb}: {reason}"),
            count => {
                let (count, comma) = (units::count(count), if verb.is_empty() { "" } else { "," });
                format!(
                    "{count} ranges ({bytes}), the first at byte {offset}{comma}{verb}: {reason}"
                )
            }
        }
    }
}

/// Groups damage by input and reason in the order of first occurrence. Returns at most `most`
/// groups, and the number of ranges in the groups left out.
pub(crate) fn groups(report: &Report, most: usize) -> (Vec<DamageGroup<'_>>, u64) {
    let (mut groups, mut places) = (Vec::<DamageGroup<'_>>::new(), BTreeMap::new());
    for damage in &report.damage {
        let place = *places.entry((&damage.input, &damage.reason)).or_insert(groups.len());
        match groups.get_mut(place) {
            Some(group) => {
                group.count += 1;
                group.bytes = group.bytes.saturating_add(damage.length);
            }
            None => groups.push(DamageGroup { first: damage, count: 1, bytes: damage.length }),
        }
    }
    groups.truncate(most);
    let listed: u64 = groups.iter().map(|group| group.count).sum();
    (groups, report.damaged_ranges.saturating_sub(listed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_with_the_same_reason_is_reported_once_with_its_first_offset() {
        let damage = |input: &str, offset: u64, reason: &str| DamageReport {
            source: "log".into(),
            input: input.into(),
            offset,
            length: 1 + offset % 10,
            reason: reason.into(),
        };
        let damage = vec![
            damage("a", 7, "short"),
            damage("a", 10, "torn"),
            damage("a", 21, "short"),
            damage("b", 3, "short"),
        ];
        let report = Report { damaged_ranges: 9, damage, ..Report::default() };
        let (listed, more) = groups(&report, 2);
        let texts: Vec<String> =
            listed.iter().map(|group| group.text(" could not be read")).collect();
        assert_eq!(
            texts,
            [
                "2 ranges (10 bytes), the first at byte 7, could not be read: short",
                "1 byte at byte 10 could not be read: torn",
            ]
        );
        assert_eq!(listed[0].text(""), "2 ranges (10 bytes), the first at byte 7: short");
        assert_eq!(more, 6);
    }
}
