//! One file of points in the making: its points as they come, and its head when it is complete.

use std::path::Path;

use las::raw::vlr::RecordLength;
use las::raw::{self, header::LargeFile};
use laz::LazVlr;
use laz::laszip::{ChunkTable, ChunkTableEntry};
use sluice_core::{Error, OutputFile};

use crate::pack::{Bounds, CHUNK, Compression, Form, Packed, TABLE_PLACE_LEN, Transform, Version};
use crate::points::Points;

/// A file of points in the making.
pub(crate) struct PointFile {
    file: OutputFile,
    form: Form,
    transform: Transform,
    head_len: u64,
    /// Points that are not packed yet; less than a chunk.
    waiting: Points,
    count: u64,
    bounds: Bounds,
    /// The chunks of a compressed file.
    chunks: ChunkTable,
}

impl PointFile {
    /// Begins a file. `Err` if its head cannot be put right at the end.
    pub(crate) fn new(
        mut file: OutputFile,
        form: Form,
        transform: Transform,
    ) -> Result<Self, Error> {
        if !file.can_replace_head() {
            return Err(Error::invalid(format!(
                "the head of a LAS file is written last, which needs a file that is not compressed or \
                 sent on; write elsewhere: {}",
                file.target().display()
            )));
        }
        let head = vec![0; head(&Head::empty(form, transform))?.len()];
        file.write_binary(&head)?;
        Ok(Self {
            file,
            form,
            transform,
            head_len: head.len() as u64,
            waiting: Points::default(),
            count: 0,
            bounds: Bounds::default(),
            chunks: ChunkTable::default(),
        })
    }

    /// What its points are like, and how they are placed.
    pub(crate) fn form(&self) -> (Form, Transform) {
        (self.form, self.transform)
    }

    /// Takes points from number `from` on until a chunk is full; gives how many it took, and the chunk.
    pub(crate) fn take(&mut self, points: &Points, from: usize) -> (usize, Option<Points>) {
        let taken = (CHUNK - self.waiting.len()).min(points.len() - from);
        self.waiting.extend_from(points, from..from + taken);
        let is_full = self.waiting.len() == CHUNK;
        (taken, is_full.then(|| std::mem::take(&mut self.waiting)))
    }

    /// The points that do not fill a chunk.
    pub(crate) fn rest(&mut self) -> Option<Points> {
        (self.waiting.len() > 0).then(|| std::mem::take(&mut self.waiting))
    }

    /// Writes points. `Err` if the file cannot hold so many.
    pub(crate) fn write(&mut self, packed: &Packed) -> Result<(), Error> {
        let count = self.count + packed.count;
        if self.form.version == Version::V12 && count > u64::from(u32::MAX) {
            return Err(Error::invalid(format!(
                "a LAS 1.2 file holds {} points, and there are more; `version = \"1.4\"` holds them: {}",
                u32::MAX,
                self.file.target().display()
            )));
        }
        self.file.write(&packed.bytes)?;
        self.count = count;
        self.bounds.join(&packed.bounds);
        let (point_count, byte_count) = (packed.count, packed.bytes.len() as u64);
        self.chunks.push(ChunkTableEntry { point_count, byte_count });
        Ok(())
    }

    /// Completes the file, as `target` where that is only known now.
    pub(crate) fn finish(mut self, target: Option<&Path>) -> Result<(), Error> {
        let table_at = self.file.bytes();
        if self.form.compression == Compression::Laz {
            let mut table = Vec::new();
            let written = self.chunks.write_to(&mut table, &self.form.laz()?);
            written.map_err(|e| Error::io("write", self.file.target(), e))?;
            self.file.write(&table)?;
        }
        let Self { form, transform, count, bounds, .. } = self;
        let head = head(&Head { form, transform, count, bounds, table_at })?;
        self.file.replace_head(self.head_len, &head)?;
        match target {
            Some(target) => self.file.finish_as(target, count),
            None => self.file.finish(count),
        }
    }
}

/// What the head of a file says.
struct Head {
    form: Form,
    transform: Transform,
    count: u64,
    bounds: Bounds,
    /// Where a compressed file's table of chunks begins.
    table_at: u64,
}

impl Head {
    fn empty(form: Form, transform: Transform) -> Self {
        Self { form, transform, count: 0, bounds: Bounds::default(), table_at: 0 }
    }

    /// The least and greatest coordinate along an axis; 0 where there is no point.
    fn extent(&self, axis: usize) -> (f64, f64) {
        if self.count == 0 {
            return (0.0, 0.0);
        }
        let place = |steps: [i32; 3]| self.transform.place(axis, steps[axis]);
        (place(self.bounds.least), place(self.bounds.most))
    }
}

/// Times are adjusted standard GPS time, and not seconds of a week.
const STANDARD_TIME: u16 = 1;
/// The new point formats must say that a coordinate system, if there is one, would be WKT.
const WKT: u16 = 1 << 4;
/// Set in the number of the point format of compressed files.
const COMPRESSED: u8 = 1 << 7;

/// All that stands in front of the points.
fn head(head: &Head) -> Result<Vec<u8>, Error> {
    let form = head.form;
    let vlr = match form.compression {
        Compression::None => None,
        Compression::Laz => Some(laz_record(&form.laz()?)?),
    };
    let broken = |e: las::Error| Error::internal(format!("the head of a LAS file: {e}"));
    let mut bytes = Vec::new();
    raw_header(head, vlr.as_ref())?.write_to(&mut bytes).map_err(broken)?;
    if let Some(vlr) = vlr {
        vlr.write_to(&mut bytes).map_err(broken)?;
        bytes.extend_from_slice(&head.table_at.to_le_bytes());
        debug_assert_eq!(TABLE_PLACE_LEN, size_of_val(&head.table_at));
    }
    Ok(bytes)
}

fn raw_header(head: &Head, vlr: Option<&raw::Vlr>) -> Result<raw::Header, Error> {
    let form = head.form;
    let [(min_x, max_x), (min_y, max_y), (min_z, max_z)] = [0, 1, 2].map(|axis| head.extent(axis));
    let [x_scale_factor, y_scale_factor, z_scale_factor] = head.transform.scale;
    let [x_offset, y_offset, z_offset] = head.transform.offset;
    let (version, encoding) = match form.version {
        Version::V12 => (las::Version::new(1, 2), STANDARD_TIME),
        Version::V14 => (las::Version::new(1, 4), STANDARD_TIME | WKT),
    };
    let number = form.number() | if vlr.is_some() { COMPRESSED } else { 0 };
    let vlr_len = vlr.map_or(0, |vlr| VLR_HEAD_LEN + vlr.data.len());
    // The counts of before are for the point formats of before.
    let (old, large) = match form.version {
        Version::V12 => (u32::try_from(head.count).unwrap_or(u32::MAX), None),
        Version::V14 => (0, Some(large_file(head.count))),
    };
    Ok(raw::Header {
        global_encoding: encoding,
        version,
        system_identifier: text("OTHER"),
        generating_software: text(concat!("Sluice ", env!("CARGO_PKG_VERSION"))),
        header_size: version.header_size(),
        offset_to_point_data: u32::from(version.header_size()) + vlr_len as u32,
        number_of_variable_length_records: u32::from(vlr.is_some()),
        point_data_record_format: number,
        point_data_record_length: form.record_len(),
        number_of_point_records: old,
        number_of_points_by_return: [old, 0, 0, 0, 0],
        x_scale_factor,
        y_scale_factor,
        z_scale_factor,
        x_offset,
        y_offset,
        z_offset,
        max_x,
        min_x,
        max_y,
        min_y,
        max_z,
        min_z,
        large_file: large,
        ..raw::Header::default()
    })
}

fn large_file(count: u64) -> LargeFile {
    let mut by_return = [0; 15];
    by_return[0] = count;
    LargeFile { number_of_point_records: count, number_of_points_by_return: by_return }
}

const VLR_HEAD_LEN: usize = 54;

fn laz_record(laz: &LazVlr) -> Result<raw::Vlr, Error> {
    let mut data = Vec::new();
    laz.write_to(&mut data).map_err(|e| Error::internal(format!("what a LAZ file says: {e}")))?;
    Ok(raw::Vlr {
        reserved: 0,
        user_id: text(LazVlr::USER_ID),
        record_id: LazVlr::RECORD_ID,
        record_length_after_header: RecordLength::Vlr(data.len() as u16),
        description: text(LazVlr::DESCRIPTION),
        data,
    })
}

/// A text in a field of fixed length, with zeros behind it.
fn text<const LEN: usize>(text: &str) -> [u8; LEN] {
    let mut field = [0; LEN];
    let len = text.len().min(LEN);
    field[..len].copy_from_slice(&text.as_bytes()[..len]);
    field
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_core::SinkContext;

    #[test]
    fn old_files_hold_no_more_points_than_they_can_count() {
        let folder = tempfile::tempdir().unwrap();
        let (form, transform) = (
            Form { version: Version::V12, compression: Compression::None, has_colour: false },
            Transform { scale: [1.0; 3], offset: [0.0; 3] },
        );
        let file = SinkContext::standalone().outputs.create_as_is(&folder.path().join("a.las"));
        let mut file = PointFile::new(file.unwrap(), form, transform).unwrap();
        let packed = |count| Packed { bytes: Vec::new(), count, bounds: Bounds::default() };
        file.write(&packed(u64::from(u32::MAX))).unwrap();
        let error = file.write(&packed(1)).unwrap_err().to_string();
        assert!(error.contains("`version = \"1.4\"`"), "{error}");
    }
}
