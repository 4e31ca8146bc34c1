//! The files of a bag that nothing describes, by their names.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use sluice_io::files;
use sluice_model::Error;

use super::description::{METADATA, Metadata, Parts, unpacked};
use crate::db3;

/// The files of a bag whose recording was interrupted, so that nothing describes it: `NAME_0.db3`,
/// `NAME_1.db3` and so on, or in MCAP. `None` if a description lists them, if they are of
/// several bags, or if the first of them is none of a bag.
pub(super) fn interrupted_parts(folder: &Path) -> Option<Parts> {
    let entries = std::fs::read_dir(folder).ok()?;
    if is_listed(folder) {
        return None;
    }
    let (mut bag, mut paths) = (None, BTreeMap::new());
    for entry in entries {
        let path = entry.ok()?.path();
        // One that was completed may be compressed, and decompressed beside that.
        let packed = unpacked(&path);
        let plain = packed.as_ref().unwrap_or(&path);
        let source = match plain.extension().and_then(OsStr::to_str) {
            Some("db3") => "ros2-db3",
            Some("mcap") => "mcap",
            _ => continue,
        };
        if !files::is_file(&path) {
            continue;
        }
        let (name, number) = plain.file_stem()?.to_str()?.rsplit_once('_')?;
        let key: (u64, String) = (number.parse().ok()?, number.to_owned());
        if *bag.get_or_insert_with(|| (source, name.to_owned())) != (source, name.to_owned()) {
            return None;
        }
        if packed.is_none() || !paths.contains_key(&key) {
            paths.insert(key, path);
        }
    }
    let (source, _) = bag?;
    let ((number, _), first) = paths.first_key_value()?;
    let is_bag = *number == 0 && is_bag(source, first).unwrap_or_default();
    is_bag.then(|| Parts { source, paths: paths.into_values().collect() })
}

/// Whether a description lists files, in whatever form. After a loss of power, it may be empty or
/// have zeros only, and the list is at the end of what `ros2 bag` writes. One that cannot be read
/// is an error elsewhere.
fn is_listed(folder: &Path) -> bool {
    let file = folder.join(METADATA);
    files::exists(&file)
        && !(files::is_file(&file) && Metadata::read(&file).is_ok_and(|it| it.is_cut))
}

/// Whether the first part of what may be a bag is that of one.
fn is_bag(source: &str, first: &Path) -> Result<bool, Error> {
    if source == "ros2-db3" {
        return db3::is_bag(first);
    }
    // Behind the magic, a header of some length begins with the profile.
    let head = files::head(first, 25)?;
    Ok(head.starts_with(b"\x89MCAP0\r\n\x01") && head.ends_with(b"\x04\0\0\0ros2"))
}

/// What is wrong if some of the parts of a bag that nothing describes are missing.
pub(super) fn gap(parts: &[PathBuf]) -> Option<String> {
    let number = |part: &PathBuf| {
        let plain = unpacked(part).unwrap_or_else(|| part.clone());
        plain.file_stem()?.to_str()?.rsplit_once('_')?.1.parse().ok()
    };
    let numbers: BTreeSet<u64> = parts.iter().filter_map(number).collect();
    let missing = (0..).zip(&numbers).find(|(expected, number)| expected != *number)?.0;
    let (last, count) = (numbers.last()?, numbers.len());
    Some(format!("the bag has {count} files, up to number {last}: number {missing} is missing"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_metadata_the_parts_are_found_by_their_numbers() {
        let folder = tempfile::tempdir().unwrap();
        let head = b"\x89MCAP0\r\n\x01\x0c\0\0\0\0\0\0\0\x04\0\0\0ros2";
        let parts = |names: &[&str]| {
            for name in names {
                std::fs::write(folder.path().join(name), head).unwrap();
            }
            let found = interrupted_parts(folder.path())?;
            let names = found.paths.into_iter().map(|path| path.file_name().unwrap().to_owned());
            let names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
            Some((found.source, names.join(" ")))
        };
        let some = |source, names: &str| Some((source, names.to_owned()));
        assert_eq!(parts(&["notes.txt"]), None);
        // Files of several logs have numbers, too, but none is a part.
        assert_eq!(parts(&["a_b_10.mcap", "a_b_9.mcap"]), None);
        std::fs::write(folder.path().join("a_b_0.mcap"), &head[..24]).unwrap();
        assert_eq!(parts(&[]), None);
        let names = "a_b_0.mcap a_b_9.mcap a_b_10.mcap";
        assert_eq!(parts(&["a_b_0.mcap"]), some("mcap", names));
        let packed = ["a_b_11.mcap.zstd", "a_b_9.mcap.zstd", "a_b_11.mcap-wal"];
        let names = "a_b_0.mcap a_b_9.mcap a_b_10.mcap a_b_11.mcap.zstd";
        assert_eq!(parts(&packed), some("mcap", names));
        std::fs::write(folder.path().join(METADATA), "").unwrap();
        assert_eq!(parts(&[]), some("mcap", names));
        let listing = "relative_file_paths:\n  - a_b_0.mcap\n";
        std::fs::write(folder.path().join(METADATA), listing).unwrap();
        assert_eq!(parts(&[]), None);
        std::fs::remove_file(folder.path().join(METADATA)).unwrap();
        assert_eq!(parts(&["other_0.mcap"]), None);
    }

    #[test]
    fn a_gap_in_the_numbers_is_a_fault() {
        let gap = |names: &[&str]| gap(&names.iter().map(PathBuf::from).collect::<Vec<_>>());
        assert_eq!(gap(&["b_0.db3", "b_1.db3.zstd", "b_2.db3"]), None);
        let found = gap(&["b_0.db3", "b_1.db3", "b_18446744073709551615.db3"]).unwrap();
        assert!(found.ends_with("number 2 is missing"), "{found}");
    }
}
