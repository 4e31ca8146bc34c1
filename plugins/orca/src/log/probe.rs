//! Reads the first records of a subfile: to decide which are configuration, and to find the folder
//! of pictures.

use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use sluice_io::files::LogFile;
use sluice_model::Error;

use crate::config;
use crate::display::display_name;
use crate::master;
use crate::subfile::{IndexCursor, RecordFraming, RecordIndex};

/// The bytes of a record that are read to find the name of its type.
pub(super) const TYPE_NAME_PREFIX: usize = 272;

/// The first bytes of a record, at most `most`.
pub(super) fn read_record_start(
    index: &RecordIndex,
    record: u64,
    most: usize,
    log: &mut LogFile,
) -> Result<Vec<u8>, Error> {
    let mut read = |at, buffer: &mut [u8]| log.read_at(at, buffer);
    let Some(place) = index.locate(record, &mut IndexCursor::default(), &mut read)? else {
        return Ok(Vec::new());
    };
    let len = usize::try_from(place.end - place.start).unwrap_or(most).min(most);
    let mut bytes = vec![0; len];
    let found = log.read_at(place.start, &mut bytes)?;
    bytes.truncate(found);
    Ok(bytes)
}

/// The lengths of the first records; none for lines, whose lengths are not significant.
pub(super) fn record_lengths(index: &RecordIndex, log: &mut LogFile) -> Result<Vec<u64>, Error> {
    let RecordFraming::Framed { prefix, .. } = index.framing else {
        return Ok(Vec::new());
    };
    let (mut cursor, mut lengths) = (IndexCursor::default(), Vec::new());
    for record in 0..config::MAX_LENGTHS.min(index.records) {
        let mut read = |at, buffer: &mut [u8]| log.read_at(at, buffer);
        let place = index.locate(record, &mut cursor, &mut read)?;
        let len = |place: Range<u64>| place.end - place.start - prefix.len(record) as u64;
        lengths.extend(place.map(len));
    }
    Ok(lengths)
}

/// The number of leading records whose class name says configuration; `None` if the first has no
/// class name.
pub(super) fn config_by_name(index: &RecordIndex, log: &mut LogFile) -> Result<Option<u64>, Error> {
    let RecordFraming::Framed { prefix, .. } = index.framing else {
        return Ok(None);
    };
    for record in 0..=config::MAX_CONFIG_RECORDS.min(index.records) {
        let bytes = read_record_start(index, record, TYPE_NAME_PREFIX, log)?;
        let object = bytes.get(prefix.len(record)..).unwrap_or_default();
        match config::is_config_by_name(object) {
            Some(true) => {}
            None if record == 0 => return Ok(None),
            _ => return Ok(Some(record)),
        }
    }
    Ok(None)
}

/// The folder of a camera's pictures, named by the line after its description.
pub(super) fn picture_folder(
    index: &RecordIndex,
    config: u64,
    log: &mut LogFile,
    master: &Path,
) -> Result<Result<PathBuf, String>, Error> {
    let bytes = read_record_start(index, config, master::LONGEST_LINE, log)?;
    let name = bytes.trim_ascii();
    if !master::is_file_name(name) {
        return Ok(Err(format!(
            "the folder of pictures must be beside the master: `{}` is not a plain name",
            display_name(name)
        )));
    }
    Ok(Ok(master.with_file_name(OsStr::from_bytes(name))))
}
