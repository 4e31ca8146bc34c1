//! The columns of pictures. Decodes none.

use arrow_array::RecordBatch;

use crate::columns::{Blobs, Numbers, count};
use crate::fields::ImageFields;
use crate::pixels::{DeclaredFormat, PixelEncodings, row_bytes};

/// How the pixels of a picture lie in memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PixelLayout<'l> {
    /// Pixels.
    pub width: u32,
    /// Pixels.
    pub height: u32,
    /// Bytes from one row to the next.
    pub step: u32,
    /// As Foxglove names it, such as `rgb8`.
    pub encoding: &'l str,
}

/// The columns of pictures.
#[derive(Debug)]
pub struct ImageColumns {
    data: Blobs,
    width: Option<Numbers>,
    height: Option<Numbers>,
    step: Option<Numbers>,
    encoding: Option<PixelEncodings>,
}

impl ImageColumns {
    /// `None` if there is no field of bytes.
    pub fn resolve(fields: &ImageFields, columns: &RecordBatch) -> Option<Self> {
        // Compressed pictures need nothing but their bytes, so a missing size is no reason against.
        let size =
            |scalar: &Option<_>| scalar.as_ref().and_then(|one| Numbers::resolve(one, columns));
        let fixed = fields.encoding.clone().map(PixelEncodings::Fixed);
        let field = fields.encoding_field.as_ref();
        let encoding = fixed.or_else(|| PixelEncodings::resolve(field?, columns));
        Some(Self {
            data: Blobs::resolve(&fields.data, columns)?,
            width: size(&fields.width),
            height: size(&fields.height),
            step: size(&fields.step),
            encoding,
        })
    }

    /// The bytes of a row's picture.
    pub fn data(&self, row: usize) -> &[u8] {
        self.data.at(row)
    }

    /// The width and height that a row has, in pixels.
    pub fn size(&self, row: usize) -> Option<(u32, u32)> {
        count(self.width.as_ref(), row).zip(count(self.height.as_ref(), row))
    }

    /// How a row's pixels are stored, as Foxglove names it; `None` if that is not known.
    pub fn encoding(&self, row: usize) -> Option<&str> {
        self.encoding.as_ref()?.at(row)
    }

    /// What a row says about how its picture is stored.
    pub fn declared(&self, row: usize) -> DeclaredFormat<'_> {
        let encoding = self.encoding.as_ref();
        encoding.map_or(DeclaredFormat::Missing, |encoding| encoding.declared(row))
    }

    /// How the pixels of a row's picture lie; `None` if its `len` bytes are fewer than that.
    pub fn layout(&self, row: usize, len: usize) -> Option<PixelLayout<'_>> {
        let encoding = self.encoding.as_ref()?.at(row)?;
        let (width, height) = (count(self.width.as_ref(), row)?, count(self.height.as_ref(), row)?);
        let least = row_bytes(encoding, width)?;
        // A stride below the width of the picture means nothing.
        let step = count(self.step.as_ref(), row).filter(|step| *step >= least).unwrap_or(least);
        let lines = match encoding {
            // Half as many lines of colours follow.
            "nv12" => u64::from(height) + u64::from(height.div_ceil(2)),
            _ => u64::from(height),
        };
        let is_whole = width > 0 && height > 0 && u64::from(step) * lines <= len as u64;
        is_whole.then_some(PixelLayout { width, height, step, encoding })
    }
}
