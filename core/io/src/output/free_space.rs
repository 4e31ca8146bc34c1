//! How much is free on the disk of an output.

use std::path::Path;

use rustix::fs::statvfs;

use crate::Error;
use crate::store::is_address;

/// The bytes that are free on the disk of an output, which need not exist yet. `None` if nobody
/// knows: in object stores, and on file systems without a size.
pub fn free_space(target: &Path) -> Result<Option<u64>, Error> {
    if is_address(target) {
        return Ok(None);
    }
    // A folder that exists may be a disk of its own.
    let folder = target.ancestors().find(|at| at.is_dir()).unwrap_or(Path::new("."));
    let disk = statvfs(folder)
        .map_err(|e| Error::io("query the free space on the disk of", folder, e.into()))?;
    Ok((disk.f_blocks > 0).then(|| disk.f_bavail.saturating_mul(disk.f_frsize)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_yet_to_be_made_is_on_the_disk_of_the_one_above() {
        let folder = tempfile::tempdir().unwrap();
        for target in [&*folder.path().join("a/b/drive.lcm"), Path::new("drive.lcm")] {
            assert!(free_space(target).unwrap().is_some_and(|free| free > 0), "{target:?}");
        }
        assert_eq!(free_space(Path::new("s3://bucket/a/drive.lcm")).unwrap(), None);
    }
}
