//! Decodes image files for their statistics. Does not judge whether a file is complete.

use sluice_views::{ImageDecoding, compressed_format};

use crate::image::{ImageShape, image_shape};

/// The decoder of JPEG files is lenient, since it refuses some that are complete.
const JPEG: ImageDecoding =
    ImageDecoding { max_pixels: 64 << 20, keeps_grey: true, is_strict: false };
const PNG: ImageDecoding = ImageDecoding { is_strict: true, ..JPEG };

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
        let is_png = compressed_format(bytes) == Some("png");
        let image = if is_png { PNG } else { JPEG }.decode(bytes)?;
        let is_whole = image.samples.len() == shape.height * shape.width * shape.channels;
        is_whole.then_some(Self { shape, bytes: image.samples })
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
