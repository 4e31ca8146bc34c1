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
use crate::object::{CLASS_NAME_END, class_name, is_localise2d, is_picture_info};
use crate::subfile::{IndexCursor, RecordFraming, RecordIndex};

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

/// The first bytes of an object without its prefix, up to the end of its class name.
fn object_start(index: &RecordIndex, record: u64, log: &mut LogFile) -> Result<Vec<u8>, Error> {
    let RecordFraming::Framed { prefix, .. } = index.framing else {
        return Ok(Vec::new());
    };
    let most = prefix.len(record) + CLASS_NAME_END;
    let mut bytes = read_record_start(index, record, most, log)?;
    bytes.drain(..prefix.len(record).min(bytes.len()));
    Ok(bytes)
}

/// Whether the first record has the layout of an object of Localise2d.
pub(super) fn starts_with_localise2d(
    index: &RecordIndex,
    log: &mut LogFile,
) -> Result<bool, Error> {
    let len = record_lengths(index, log)?.first().copied().unwrap_or_default();
    Ok(is_localise2d(&object_start(index, 0, log)?, len))
}

/// Whether the first record is about a picture.
pub(super) fn starts_with_picture_info(
    index: &RecordIndex,
    log: &mut LogFile,
) -> Result<bool, Error> {
    let bytes = read_record_start(index, 0, master::LONGEST_LINE, log)?;
    let payload = index.framing.payload(0, &bytes);
    Ok(payload.and_then(|(_, payload)| bytes.get(payload)).is_some_and(is_picture_info))
}

/// The class names of the first records.
pub(super) fn class_names(
    index: &RecordIndex,
    log: &mut LogFile,
) -> Result<Vec<Option<Vec<u8>>>, Error> {
    let name = |record| {
        let object = object_start(index, record, log)?;
        Ok(class_name(&object).map(<[u8]>::to_vec))
    };
    (0..config::MAX_NAMES.min(index.records)).map(name).collect()
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
