//! Images as messages tell of them. Decodes none.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int16Type, Int64Type};
use arrow_array::{Array, ArrayRef};
use sluice_core::Rows;

use crate::points::UTIME;
use crate::poses::{Known, Timed};

/// The type of rows of images without distortion.
pub(super) const UNDISTORTED: &str = "sluice.undistorted_image";

/// Longer images are not looked at.
const LONGEST: usize = 64 << 20;

/// An image as it was sent.
#[derive(Clone, Debug)]
pub(super) struct Image {
    /// In nanoseconds since 1970.
    pub(super) time: i64,
    /// What the message says of its size, in pixels.
    pub(super) width: u32,
    pub(super) height: u32,
    /// A file in some format.
    pub(super) bytes: Arc<[u8]>,
}

impl Timed for Image {
    fn time(&self) -> i64 {
        self.time
    }
}

impl Known for Image {
    const NEEDS: &str = "`width`, `height` and `image` as they were sent";
    const WRONG: &str = "an image without a single byte, or with more than 64 MiB";

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
            let time =
                said.map_or(timestamps[*event as usize], |micros| micros.saturating_mul(1_000));
            Some(Self { time, width: widths[row], height: heights[row], bytes: bytes.into() })
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
