//! Images as messages tell of them. Decodes nothing but their headers.

use arrow_array::cast::AsArray;
use arrow_array::types::{Int16Type, Int64Type};
use arrow_array::{Array, ArrayRef};
use arrow_buffer::Buffer;
use sluice_core::Rows;

use super::picture::Picture;
use crate::points::UTIME;
use crate::poses::{Known, Timed};

/// The type of rows of images without distortion.
pub(super) const UNDISTORTED: &str = "sluice.undistorted_image";

/// Longer images are not looked at.
const LONGEST: usize = 8 << 20;

/// An image as it was sent.
#[derive(Clone, Debug)]
pub(super) struct Image {
    /// In nanoseconds since 1970.
    pub(super) time: i64,
    /// The same in microseconds, just as the message says it.
    pub(super) utime: i64,
    /// What the message says of its size, in pixels.
    pub(super) told: [u32; 2],
    /// What its file says of its size; nothing if that is no JPEG file.
    pub(super) found: Option<[u32; 2]>,
    /// A file in some format.
    pub(super) bytes: Buffer,
}

impl Image {
    /// Its size, in pixels: that of the file, as far as there is one.
    pub(super) fn size(&self) -> [u32; 2] {
        self.found.unwrap_or(self.told)
    }

    /// Whether message and file do not agree in how large it is.
    pub(super) fn has_another_size(&self) -> bool {
        self.found.is_some_and(|found| found != self.told)
    }
}

impl Timed for Image {
    fn time(&self) -> i64 {
        self.time
    }
}

impl Known for Image {
    const NEEDS: &str = "`width`, `height` and `image` as they were sent";
    const WRONG: &str = "an image without a single byte, or with more than 8 MiB";

    fn of(rows: &Rows, timestamps: &[i64]) -> Option<Vec<Option<Self>>> {
        // What a lens distorts has been put right there: nobody may do it again.
        if &*rows.message.name == UNDISTORTED {
            return None;
        }
        let (widths, heights) = (sizes(rows, "width")?, sizes(rows, "height")?);
        let bytes = rows.columns.column_by_name("image")?;
        let utimes = rows.columns.column_by_name(UTIME);
        let utimes = utimes.and_then(|utimes| utimes.as_primitive_opt::<Int64Type>());
        let rows = rows.events.iter().enumerate().map(|(row, event)| {
            let fits = |bytes: &&[u8]| (1..=LONGEST).contains(&bytes.len());
            let bytes = bytes_of(bytes, row).filter(fits)?;
            let said = utimes.filter(|utimes| utimes.is_valid(row)).map(|utimes| utimes.value(row));
            let timestamp = timestamps[*event as usize];
            Some(Self {
                time: said.map_or(timestamp, |micros| micros.saturating_mul(1_000)),
                utime: said.unwrap_or(timestamp.div_euclid(1_000)),
                told: [widths[row], heights[row]],
                found: Picture::size_of_jpeg(bytes),
                bytes: Buffer::from_slice_ref(bytes),
            })
        });
        bytes.as_binary_opt::<i32>()?;
        Some(rows.collect())
    }
}

fn bytes_of(column: &ArrayRef, row: usize) -> Option<&[u8]> {
    column.as_binary_opt::<i32>().filter(|bytes| bytes.is_valid(row)).map(|bytes| bytes.value(row))
}

/// A column of sizes; those that are missing or below 0 are 0.
fn sizes(rows: &Rows, name: &str) -> Option<Vec<u32>> {
    let sizes = rows.columns.column_by_name(name)?.as_primitive_opt::<Int16Type>()?;
    let size = |size: Option<i16>| size.and_then(|size| u32::try_from(size).ok()).unwrap_or(0);
    Some(sizes.iter().map(size).collect())
}
