//! Writes one LAS or LAZ file: chunks of points as they arrive, and the header at the end.

use std::path::Path;

use las::raw::vlr::RecordLength;
use las::raw::{self, header::LargeFile};
use laz::LazVlr;
use laz::laszip::{ChunkTable, ChunkTableEntry};
use sluice_model::{Error, OutputFile};

use crate::pack::{
    CHUNK, CoordinateTransform, LasCompression, LasVersion, PackedChunk, RecordFormat, StepBounds,
    TABLE_OFFSET_LEN,
};
use crate::points::PointColumns;

/// A LAS or LAZ file being written.
pub(crate) struct PointFile {
    file: OutputFile,
    form: RecordFormat,
    transform: CoordinateTransform,
    head_len: u64,
    /// Points that are not packed yet: less than a chunk.
    pending: PointColumns,
    count: u64,
    bounds: StepBounds,
    /// The chunk table of a compressed file.
    chunks: ChunkTable,
}

impl PointFile {
    /// Starts a file. `Err` if its header cannot be overwritten at the end.
    pub(crate) fn new(
        mut file: OutputFile,
        form: RecordFormat,
        transform: CoordinateTransform,
    ) -> Result<Self, Error> {
        if !file.can_replace_head() {
            return Err(Error::invalid(format!(
                "the header of a LAS file is written last, so the output cannot be compressed or \
                 streamed; write to another file: {}",
                file.target().display()
            )));
        }
        let head = vec![0; header_bytes(&HeaderFields::empty(form, transform))?.len()];
        file.write_binary(&head)?;
        Ok(Self {
            file,
            form,
            transform,
            head_len: head.len() as u64,
            pending: PointColumns::default(),
            count: 0,
            bounds: StepBounds::default(),
            chunks: ChunkTable::default(),
        })
    }

    /// The record format and the coordinate transform.
    pub(crate) fn form(&self) -> (RecordFormat, CoordinateTransform) {
        (self.form, self.transform)
    }

    /// Adds points from index `from` on until a chunk is full. Returns the number of points added,
    /// and the chunk.
    pub(crate) fn fill_chunk(
        &mut self,
        points: &PointColumns,
        from: usize,
    ) -> (usize, Option<PointColumns>) {
        let taken = (CHUNK - self.pending.len()).min(points.len() - from);
        self.pending.extend_from(points, from..from + taken);
        let is_full = self.pending.len() == CHUNK;
        (taken, is_full.then(|| std::mem::take(&mut self.pending)))
    }

    /// The last points, which do not fill a chunk.
    pub(crate) fn take_rest(&mut self) -> Option<PointColumns> {
        (self.pending.len() > 0).then(|| std::mem::take(&mut self.pending))
    }

    /// Writes a chunk. `Err` if the file cannot hold as many points.
    pub(crate) fn write(&mut self, packed: &PackedChunk) -> Result<(), Error> {
        let count = self.count + packed.count;
        if self.form.version == LasVersion::V12 && count > u64::from(u32::MAX) {
            return Err(Error::invalid(format!(
                "a LAS 1.2 file holds at most {} points; use `version = \"1.4\"` for more: {}",
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

    /// Completes the file, under the name `target` if given.
    pub(crate) fn finish(mut self, target: Option<&Path>) -> Result<(), Error> {
        let table_at = self.file.bytes();
        if self.form.compression == LasCompression::Laz {
            let mut table = Vec::new();
            let written = self.chunks.write_to(&mut table, &self.form.laz()?);
            written.map_err(|e| Error::io("write", self.file.target(), e))?;
            self.file.write(&table)?;
        }
        let Self { form, transform, count, bounds, .. } = self;
        let head = header_bytes(&HeaderFields { form, transform, count, bounds, table_at })?;
        self.file.replace_head(self.head_len, &head)?;
        match target {
            Some(target) => self.file.finish_as(target, count),
            None => self.file.finish(count),
        }
    }
}

/// The values of a file header.
struct HeaderFields {
    form: RecordFormat,
    transform: CoordinateTransform,
    count: u64,
    bounds: StepBounds,
    /// Offset of the chunk table of a compressed file.
    table_at: u64,
}

impl HeaderFields {
    fn empty(form: RecordFormat, transform: CoordinateTransform) -> Self {
        Self { form, transform, count: 0, bounds: StepBounds::default(), table_at: 0 }
    }

    /// The minimum and maximum coordinate along an axis; 0 without points.
    fn extent(&self, axis: usize) -> (f64, f64) {
        if self.count == 0 {
            return (0.0, 0.0);
        }
        let position = |steps: [i32; 3]| self.transform.position(axis, steps[axis]);
        (position(self.bounds.min), position(self.bounds.max))
    }
}

/// Global encoding bit: times are adjusted standard GPS time rather than seconds of the week.
const STANDARD_TIME: u16 = 1;
/// Global encoding bit: the point formats of 1.4 require WKT for any coordinate system.
const WKT: u16 = 1 << 4;
/// Bit in the point format number of compressed files.
const COMPRESSED: u8 = 1 << 7;

/// The bytes before the points.
fn header_bytes(head: &HeaderFields) -> Result<Vec<u8>, Error> {
    let form = head.form;
    let vlr = match form.compression {
        LasCompression::None => None,
        LasCompression::Laz => Some(laz_vlr(&form.laz()?)?),
    };
    let broken = |e: las::Error| Error::internal(format!("LAS header: {e}"));
    let mut bytes = Vec::new();
    raw_header(head, vlr.as_ref())?.write_to(&mut bytes).map_err(broken)?;
    if let Some(vlr) = vlr {
        vlr.write_to(&mut bytes).map_err(broken)?;
        bytes.extend_from_slice(&head.table_at.to_le_bytes());
        debug_assert_eq!(TABLE_OFFSET_LEN, size_of_val(&head.table_at));
    }
    Ok(bytes)
}

fn raw_header(head: &HeaderFields, vlr: Option<&raw::Vlr>) -> Result<raw::Header, Error> {
    let form = head.form;
    let [(min_x, max_x), (min_y, max_y), (min_z, max_z)] = [0, 1, 2].map(|axis| head.extent(axis));
    let [x_scale_factor, y_scale_factor, z_scale_factor] = head.transform.scale;
    let [x_offset, y_offset, z_offset] = head.transform.offset;
    let (version, encoding) = match form.version {
        LasVersion::V12 => (las::Version::new(1, 2), STANDARD_TIME),
        LasVersion::V14 => (las::Version::new(1, 4), STANDARD_TIME | WKT),
    };
    let number = form.number() | if vlr.is_some() { COMPRESSED } else { 0 };
    let vlr_len = vlr.map_or(0, |vlr| VLR_HEAD_LEN + vlr.data.len());
    // The legacy counts are for the legacy point formats only.
    let (old, large) = match form.version {
        LasVersion::V12 => (u32::try_from(head.count).unwrap_or(u32::MAX), None),
        LasVersion::V14 => (0, Some(large_file(head.count))),
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

fn laz_vlr(laz: &LazVlr) -> Result<raw::Vlr, Error> {
    let mut data = Vec::new();
    laz.write_to(&mut data).map_err(|e| Error::internal(format!("LAZ record: {e}")))?;
    Ok(raw::Vlr {
        reserved: 0,
        user_id: text(LazVlr::USER_ID),
        record_id: LazVlr::RECORD_ID,
        record_length_after_header: RecordLength::Vlr(data.len() as u16),
        description: text(LazVlr::DESCRIPTION),
        data,
    })
}

/// A string in a field of fixed length, padded with zeros.
fn text<const LEN: usize>(text: &str) -> [u8; LEN] {
    let mut field = [0; LEN];
    let len = text.len().min(LEN);
    field[..len].copy_from_slice(&text.as_bytes()[..len]);
    field
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_model::SinkContext;

    #[test]
    fn old_files_hold_no_more_points_than_they_can_count() {
        let folder = tempfile::tempdir().unwrap();
        let (form, transform) = (
            RecordFormat {
                version: LasVersion::V12,
                compression: LasCompression::None,
                has_colour: false,
            },
            CoordinateTransform { scale: [1.0; 3], offset: [0.0; 3] },
        );
        let file = SinkContext::standalone().outputs.create_as_is(&folder.path().join("a.las"));
        let mut file = PointFile::new(file.unwrap(), form, transform).unwrap();
        let packed =
            |count| PackedChunk { bytes: Vec::new(), count, bounds: StepBounds::default() };
        file.write(&packed(u64::from(u32::MAX))).unwrap();
        let error = file.write(&packed(1)).unwrap_err().to_string();
        assert!(error.contains("`version = \"1.4\"`"), "{error}");
    }
}
