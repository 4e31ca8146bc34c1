//! Camera images as received in messages. Decodes only their headers.

use arrow_array::cast::AsArray;
use arrow_array::types::{Int16Type, Int64Type};
use arrow_array::{Array, ArrayRef};
use arrow_buffer::Buffer;
use sluice_model::Rows;

use super::picture::Picture;
use crate::points::{CloudTime, UTIME};
use crate::poses::{ReadFromRows, Timestamped};

/// The type of rows of undistorted images.
pub(super) const UNDISTORTED: &str = "sluice.undistorted_image";

/// Longer images are refused.
const MAX_IMAGE_LEN: usize = 8 << 20;

/// A camera image as it was sent.
#[derive(Clone, Debug)]
pub(super) struct CameraImage {
    /// In nanoseconds since 1970.
    pub(super) time: i64,
    /// The same in microseconds, exactly as in the message.
    pub(super) utime: i64,
    /// Size according to the message, in pixels.
    pub(super) declared_size: [u32; 2],
    /// Size according to the JPEG header; `None` if it is not a JPEG file.
    pub(super) jpeg_size: Option<[u32; 2]>,
    /// The file.
    pub(super) bytes: Buffer,
}

impl CameraImage {
    /// Size in pixels: that of the file if known, else that of the message.
    pub(super) fn size(&self) -> [u32; 2] {
        self.jpeg_size.unwrap_or(self.declared_size)
    }

    /// Whether message and file disagree about the size.
    pub(super) fn has_size_mismatch(&self) -> bool {
        self.jpeg_size.is_some_and(|jpeg_size| jpeg_size != self.declared_size)
    }
}

impl Timestamped for CameraImage {
    fn time(&self) -> i64 {
        self.time
    }
}

impl ReadFromRows for CameraImage {
    const REQUIRED_FIELDS: &str = "`width`, `height` and `image` as sent";
    const INVALID: &str = "images that are empty or larger than 8 MiB";

    fn read_rows(rows: &Rows, timestamps: &[i64]) -> Option<Vec<Option<Self>>> {
        // Undistorted images must not be undistorted again.
        if &*rows.message.name == UNDISTORTED {
            return None;
        }
        let (widths, heights) = (sizes(rows, "width")?, sizes(rows, "height")?);
        let bytes = rows.columns.column_by_name("image")?;
        let utimes = rows.columns.column_by_name(UTIME);
        let utimes = utimes.and_then(|utimes| utimes.as_primitive_opt::<Int64Type>());
        let rows = rows.events.iter().enumerate().map(|(row, event)| {
            let fits = |bytes: &&[u8]| (1..=MAX_IMAGE_LEN).contains(&bytes.len());
            let bytes = value_bytes(bytes, row).filter(fits)?;
            let utime =
                utimes.filter(|utimes| utimes.is_valid(row)).map(|utimes| utimes.value(row));
            let timestamp = timestamps[*event as usize];
            Some(Self {
                time: CloudTime::resolve(utime, timestamp).0.nanos,
                utime: utime.unwrap_or(timestamp.div_euclid(1_000)),
                declared_size: [widths[row], heights[row]],
                jpeg_size: Picture::jpeg_size(bytes),
                bytes: Buffer::from_slice_ref(bytes),
            })
        });
        bytes.as_binary_opt::<i32>()?;
        Some(rows.collect())
    }
}

fn value_bytes(column: &ArrayRef, row: usize) -> Option<&[u8]> {
    column.as_binary_opt::<i32>().filter(|bytes| bytes.is_valid(row)).map(|bytes| bytes.value(row))
}

/// A column of sizes. Missing and negative values become 0.
fn sizes(rows: &Rows, name: &str) -> Option<Vec<u32>> {
    let sizes = rows.columns.column_by_name(name)?.as_primitive_opt::<Int16Type>()?;
    let size = |size: Option<i16>| size.and_then(|size| u32::try_from(size).ok()).unwrap_or(0);
    Some(sizes.iter().map(size).collect())
}
