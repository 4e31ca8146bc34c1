//! Where the events of a report come from: inputs, their damage, and the pipeline. Folders are left
//! out, so that the same log gives the same report on any machine.

use std::path::{MAIN_SEPARATOR, Path};
use std::sync::Arc;

use sluice_io::escape::{escaped_path, printable};
use sluice_io::store::is_address;
use sluice_model::{Damage, Error, RunOrigin};

use crate::{DamagedRange, InputFigures, Provenance};

/// The inputs of a run. Waits for their hashes.
pub(crate) fn inputs(origin: &RunOrigin) -> Result<Vec<InputFigures>, Error> {
    let each = origin.inputs.iter().map(|input| {
        let path = escaped_path(&input.path);
        let (mut ranges, totals) = origin.damage.of_input(&path);
        ranges.sort_by_key(|damage| (damage.offset, damage.length));
        let listed = ranges.iter().take(MAX_RANGES).map(|damage| DamagedRange {
            offset: damage.offset,
            length: damage.length,
            reason: damage.reason.clone(),
        });
        Ok(InputFigures {
            name: file_name(&path).to_owned(),
            bytes: input.bytes,
            blake3: input.blake3()?.map(str::to_owned),
            damaged_ranges: totals.ranges,
            damaged_bytes: totals.bytes,
            damage: listed.collect(),
            damage_by_part: input.bytes.and_then(|len| by_part(&ranges, len)).unwrap_or_default(),
        })
    });
    each.collect()
}

/// The most damaged ranges listed of an input.
const MAX_RANGES: usize = 1_000;
/// The number of parts of an input.
const PARTS: usize = 1_000;

/// Damaged bytes in equal parts of an input of this length; `None` without damage, or if it lies
/// beyond the end: offsets in compressed logs are those of what they hold.
fn by_part(ranges: &[Arc<Damage>], len: u64) -> Option<Vec<u64>> {
    let is_inside =
        |damage: &Damage| damage.offset.checked_add(damage.length).is_some_and(|end| end <= len);
    if ranges.is_empty() || len == 0 || !ranges.iter().all(|damage| is_inside(damage)) {
        return None;
    }
    let start = |part: usize| (u128::from(len) * part as u128 / PARTS as u128) as u64;
    let part_of = |at: u64| (u128::from(at) * PARTS as u128 / u128::from(len)) as usize;
    let mut parts = vec![0; PARTS];
    for damage in ranges {
        let end = damage.offset + damage.length;
        // Starts are rounded down, so that an offset may lie in the part after.
        let first = part_of(damage.offset).min(PARTS - 1);
        for (part, lost) in parts.iter_mut().enumerate().skip(first) {
            let (from, to) = (start(part).max(damage.offset), start(part + 1).min(end));
            if start(part) >= end {
                break;
            }
            *lost += to.saturating_sub(from);
        }
    }
    Some(parts)
}

/// How a run made its report.
pub(crate) fn provenance(origin: &RunOrigin, title: Option<String>) -> Provenance {
    Provenance {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        name: origin.name.clone(),
        title,
        pipeline: without_folders(&origin.pipeline),
    }
}

fn file_name(path: &str) -> &str {
    path.rsplit([MAIN_SEPARATOR, '/']).find(|part| !part.is_empty()).unwrap_or(path)
}

/// A pipeline file whose paths are only file names.
fn without_folders(pipeline: &str) -> String {
    // A pipeline is written by the program itself.
    let Ok(mut table) = pipeline.parse::<toml::Table>() else { return String::new() };
    shorten(&mut table);
    printable_lines(&table.to_string())
}

fn printable_lines(text: &str) -> String {
    text.lines().map(|line| printable(line).into_owned() + "\n").collect()
}

/// Options whose values are paths.
const PATHS: [&str; 11] = [
    "path",
    "types",
    "files",
    "folder",
    "calibration",
    "expect",
    "file",
    "table",
    "lasers",
    "spill",
    "quarantine",
];

fn shorten(table: &mut toml::Table) {
    for (key, value) in table.iter_mut() {
        shorten_value(value, PATHS.contains(&key.as_str()));
    }
}

fn shorten_value(value: &mut toml::Value, is_path: bool) {
    match value {
        toml::Value::String(text) if is_path && !is_live(text) => {
            *text = file_name(text).to_owned();
        }
        toml::Value::Array(values) => {
            values.iter_mut().for_each(|value| shorten_value(value, is_path));
        }
        toml::Value::Table(table) => shorten(table),
        _ => {}
    }
}

/// Whether this is the URL of a live input, which names no folder.
fn is_live(path: &str) -> bool {
    path.contains("://") && !path.starts_with("file://") && !is_address(Path::new(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_shared_out_among_equal_parts() {
        let range =
            |offset, length| Arc::new(Damage::new(&Arc::from("log"), offset, length, "unreadable"));
        for len in [1u64, 999, 1_000, 1_001, 5_000_001, u64::MAX] {
            let all = by_part(&[range(0, len)], len).unwrap();
            assert_eq!(all.iter().map(|lost| u128::from(*lost)).sum::<u128>(), len.into());
            let last = by_part(&[range(len - 1, 1)], len).unwrap();
            assert_eq!(last.iter().sum::<u64>(), 1, "{len}");
        }
        assert_eq!(by_part(&[range(5, 10)], 10), None);
        assert_eq!(by_part(&[], 10), None);
    }

    #[test]
    fn pipelines_have_file_names_only() {
        let pipeline = "[sources.live]\npath = \"udpm://239.255.76.67:7667\"\n\n\
                        [sources.log]\npath = [\"/data/drive/a.lcm\", \"b/c.lcm\"]\n\
                        quarantine = \"../bad.bin\"\n\n\
                        [stages.s]\nchannels = [\"/odom\"]\nfile = \"./expect.toml\"\n\n\
                        [stages.t]\ntypes = [\"mit-dgc\", \"my/types/\"]\n";
        let expected = pipeline.replace("/data/drive/", "").replace("b/c", "c");
        let expected = expected.replace("../", "").replace("./", "").replace("my/types/", "types");
        assert_eq!(without_folders(pipeline), expected);
    }
}
