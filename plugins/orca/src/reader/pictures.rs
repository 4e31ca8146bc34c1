//! Finds and reads the pictures that records and lines refer to.

use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use bytes::Bytes;
use sluice_model::Error;

use super::{LocatedEvent, OrcaReader, RecordRequest};
use crate::log::{IndexedSubfile, open_subfile};
use crate::master::LONGEST_LINE;
use crate::object::picture_name;
use crate::subfile::LONGEST_RECORD;

impl OrcaReader {
    /// The picture that a record or line refers to. The inner `Err` is the reason there is none.
    pub(super) fn locate_picture(
        &mut self,
        request: RecordRequest,
        range: Range<u64>,
        indexed: &IndexedSubfile,
    ) -> Result<Result<LocatedEvent, String>, Error> {
        if let Some(folder) = &indexed.picture_folder {
            let number =
                request.record.saturating_sub(indexed.records_before_objects).saturating_add(1);
            let path = folder.join(format!("image{number:05}.jpg"));
            return Ok(Ok(LocatedEvent::Picture { request, path }));
        }
        let mut bytes = vec![0; (range.end - range.start).min(LONGEST_LINE as u64) as usize];
        let path = self.log.subfiles.get(request.subfile).map_or(Path::new(""), |file| &file.path);
        let read = self.files.read_at(request.subfile, path, range.start, &mut bytes)?;
        bytes.truncate(read);
        let payload = indexed.index.framing.payload(request.record, &bytes);
        let payload = payload.and_then(|(_, payload)| bytes.get(payload));
        let Some(name) = payload.and_then(picture_name) else {
            return Ok(Err("a camera record does not name a file beside the master".to_owned()));
        };
        let path = self.log.path.with_file_name(OsStr::from_bytes(name));
        Ok(Ok(LocatedEvent::Picture { request, path }))
    }

    /// Reads a picture. The inner `Err` is the reason it cannot be read.
    pub(super) fn read_picture(&self, path: &Path) -> Result<Result<Bytes, String>, Error> {
        let mut file = match open_subfile(self.files.inputs(), path) {
            Ok(file) => file,
            Err(reason) => return Ok(Err(reason)),
        };
        let len = file.len().unwrap_or(0);
        if len > LONGEST_RECORD {
            return Ok(Err(format!(
                "a picture has {len} bytes, and at most {LONGEST_RECORD} are read"
            )));
        }
        // Not a pool block: most pictures are much smaller, and each would take one.
        let mut picture = vec![0; len as usize];
        let read = file.read_at(0, &mut picture)?;
        picture.truncate(read);
        self.context.run.count_read(read as u64);
        Ok(Ok(picture.into()))
    }
}
