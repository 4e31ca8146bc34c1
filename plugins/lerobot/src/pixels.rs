//! Decodes image files for their statistics. Does not judge whether a file is complete.

use std::io::Cursor;
use std::panic::{AssertUnwindSafe, catch_unwind};

use png::{Decoder, Limits, Transformations};
use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

use crate::image::{ImageShape, image_shape};

/// Larger images are not decoded.
const MAX_PIXELS: usize = 64 << 20;

/// A decoded image: its samples, pixel by pixel and row by row.
#[derive(Debug)]
pub(crate) struct DecodedImage {
    pub(crate) shape: ImageShape,
    pub(crate) bytes: Vec<u8>,
}

impl DecodedImage {
    /// `None` if it cannot be decoded, or is too large.
    pub(crate) fn from_file(bytes: &[u8]) -> Option<Self> {
        let shape = image_shape(bytes).ok()?;
        if shape.height.checked_mul(shape.width)? > MAX_PIXELS {
            return None;
        }
        // If a decoder panics on some input, only this image is lost.
        let decoded = catch_unwind(AssertUnwindSafe(|| match bytes.first() {
            Some(0xff) => decode_jpeg(bytes, shape.channels),
            _ => decode_png(bytes),
        }));
        let samples = decoded.ok().flatten()?;
        let is_whole = samples.len() == shape.height * shape.width * shape.channels;
        is_whole.then_some(Self { shape, bytes: samples })
    }

    /// Counts the values of each channel in every `step`-th pixel of every `step`-th row.
    pub(crate) fn count(&self, step: usize, counts: &mut [[u64; 256]]) {
        let ImageShape { width, channels, .. } = self.shape;
        let rows = self.bytes.chunks_exact((width * channels).max(1)).step_by(step.max(1));
        for pixel in rows.flat_map(|row| row.chunks_exact(channels.max(1)).step_by(step.max(1))) {
            for (value, counts) in pixel.iter().zip(&mut *counts) {
                counts[usize::from(*value)] += 1;
            }
        }
    }
}

fn decode_jpeg(bytes: &[u8], channels: usize) -> Option<Vec<u8>> {
    let space = if channels == 1 { ColorSpace::Luma } else { ColorSpace::RGB };
    let options = DecoderOptions::default()
        .set_max_width(u16::MAX.into())
        .set_max_height(u16::MAX.into())
        .jpeg_set_out_colorspace(space);
    JpegDecoder::new_with_options(ZCursor::new(bytes), options).decode().ok()
}

fn decode_png(bytes: &[u8]) -> Option<Vec<u8>> {
    let limits = Limits { bytes: 4 * MAX_PIXELS };
    let mut decoder = Decoder::new_with_limits(Cursor::new(bytes), limits);
    decoder.set_transformations(Transformations::IDENTITY);
    let mut reader = decoder.read_info().ok()?;
    let mut samples = vec![0; reader.output_buffer_size()?];
    let frame = reader.next_frame(&mut samples).ok()?;
    samples.truncate(frame.buffer_size());
    Some(samples)
}

#[cfg(test)]
mod tests {
    use super::*;
    use jpeg_encoder::{ColorType, Encoder};

    #[test]
    fn a_grey_jpeg_has_one_channel_and_a_coloured_one_three() {
        for (color, channels) in [(ColorType::Luma, 1), (ColorType::Rgb, 3)] {
            let mut bytes = Vec::new();
            let pixels = vec![200; 16 * 8 * channels];
            Encoder::new(&mut bytes, 95).encode(&pixels, 16, 8, color).unwrap();
            let decoded = DecodedImage::from_file(&bytes).unwrap();
            assert_eq!(decoded.shape, ImageShape { height: 8, width: 16, channels });
            let mut counts = vec![[0; 256]; channels];
            decoded.count(3, &mut counts);
            for channel in counts {
                assert_eq!(channel.iter().sum::<u64>(), 6 * 3);
                assert!(channel[195..=205].iter().sum::<u64>() == 6 * 3);
            }
        }
    }
}
