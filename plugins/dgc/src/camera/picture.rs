//! Decodes and encodes JPEG files. Knows nothing of cameras.

use sluice_views::{ImageDecoding, compressed_format, encode_jpeg, jpeg_dimensions};

/// Larger images are not decoded.
const DECODING: ImageDecoding =
    ImageDecoding { max_pixels: 32 << 20, keeps_grey: false, is_strict: true };

/// A decoded image.
#[derive(Debug)]
pub(super) struct Picture {
    pub(super) width: u32,
    pub(super) height: u32,
    /// RGB bytes, row by row.
    rgb: Vec<u8>,
}

impl Picture {
    /// The width and height in the header of a JPEG file. `None` without a valid header.
    ///
    /// Cheap for any size: only the header is read.
    pub(super) fn jpeg_size(bytes: &[u8]) -> Option<[u32; 2]> {
        jpeg_dimensions(bytes)
    }

    /// Decodes a JPEG file. `None` if it is not one, damaged, truncated, or has too many pixels.
    pub(super) fn from_jpeg(bytes: &[u8]) -> Option<Self> {
        let is_jpeg = compressed_format(bytes) == Some("jpeg");
        let image = is_jpeg.then(|| DECODING.decode(bytes))??;
        Some(Self { width: image.width, height: image.height, rgb: image.samples })
    }

    /// A black picture.
    pub(super) fn black(width: u32, height: u32) -> Self {
        Self { width, height, rgb: vec![0; 3 * width as usize * height as usize] }
    }

    /// Mutable pixels, row by row.
    pub(super) fn pixels(&mut self) -> impl Iterator<Item = &mut [u8; 3]> {
        self.rgb.as_chunks_mut::<3>().0.iter_mut()
    }

    /// Encodes the picture as a JPEG file with a quality from 1 to 100. `None` if it exceeds the
    /// size limit of the format.
    pub(super) fn to_jpeg(&self, quality: u8) -> Option<Vec<u8>> {
        encode_jpeg(&self.rgb, self.width, self.height, quality)
    }

    /// Bilinear interpolation of the colour at a position, clamped at the edges. `None` outside the
    /// picture.
    pub(super) fn bilinear(&self, u: f64, v: f64) -> Option<[u8; 3]> {
        let (width, height) = (f64::from(self.width), f64::from(self.height));
        if !((0.0..width).contains(&u) && (0.0..height).contains(&v)) {
            return None;
        }
        let (u, v) = ((u - 0.5).clamp(0.0, width - 1.0), (v - 0.5).clamp(0.0, height - 1.0));
        let (right, below) = ((u + 1.0).min(width - 1.0), (v + 1.0).min(height - 1.0));
        let [upper, lower] = [v, below].map(|v| Some((self.colour(u, v)?, self.colour(right, v)?)));
        let ((a, b), (c, d)) = upper.zip(lower)?;
        let mix = |at: usize| {
            let along = |a: u8, b: u8| f64::from(a) + u.fract() * (f64::from(b) - f64::from(a));
            let (upper, lower) = (along(a[at], b[at]), along(c[at], d[at]));
            (upper + v.fract() * (lower - upper)).round() as u8
        };
        Some([0, 1, 2].map(mix))
    }

    /// Size of the pixels in bytes.
    pub(super) fn byte_len(&self) -> usize {
        self.rgb.len()
    }

    /// The colour of the pixel that contains a position.
    pub(super) fn colour(&self, u: f64, v: f64) -> Option<[u8; 3]> {
        let (column, row) = (u as usize, v as usize);
        if u < 0.0 || v < 0.0 || column >= self.width as usize {
            return None;
        }
        let at = 3 * (row.checked_mul(self.width as usize)?.checked_add(column)?);
        self.rgb.get(at..at.checked_add(3)?)?.try_into().ok()
    }
}

#[cfg(test)]
mod tests {
    use jpeg_encoder::{ColorType, Encoder};

    use super::*;

    fn jpeg(width: u16, height: u16, pixels: &[u8], kind: ColorType) -> Vec<u8> {
        let mut bytes = Vec::new();
        Encoder::new(&mut bytes, 100).encode(pixels, width, height, kind).unwrap();
        bytes
    }

    #[test]
    fn a_position_has_the_colour_of_its_pixel() {
        let red_and_blue = [[250, 0, 0].repeat(8), [0, 0, 250].repeat(8)].concat().repeat(16);
        let picture = Picture::from_jpeg(&jpeg(16, 16, &red_and_blue, ColorType::Rgb)).unwrap();
        let [red, _, blue] = picture.colour(2.0, 15.9).unwrap();
        assert!(red > 230 && blue < 20);
        let [red, _, blue] = picture.colour(13.0, 0.0).unwrap();
        assert!(red < 20 && blue > 230);
        assert_eq!((picture.colour(16.0, 0.0), picture.colour(0.0, 16.0)), (None, None));
        assert_eq!(picture.colour(-0.5, 0.0), None);
    }

    #[test]
    fn colours_between_pixel_centres_are_interpolated() {
        let mut picture = Picture::black(2, 2);
        for (pixel, red) in picture.pixels().zip([0, 100, 40, 200]) {
            *pixel = [red, 0, 7];
        }
        let red = |u, v| picture.bilinear(u, v).map(|colour| colour[0]);
        assert_eq!((red(0.5, 0.5), red(1.5, 0.5), red(1.5, 1.5)), (Some(0), Some(100), Some(200)));
        assert_eq!((red(1.0, 0.5), red(0.5, 1.0), red(1.0, 1.0)), (Some(50), Some(20), Some(85)));
        assert_eq!((red(0.0, 0.0), red(1.9, 0.1), red(1.9, 1.9)), (Some(0), Some(100), Some(200)));
        assert_eq!((red(2.0, 0.0), red(0.0, -0.1), red(f64::NAN, 0.0)), (None, None, None));
        assert_eq!(picture.bilinear(1.0, 1.0).map(|colour| colour[2]), Some(7));
    }

    #[test]
    fn grey_images_have_colours_too() {
        let picture = Picture::from_jpeg(&jpeg(8, 8, &[90; 64], ColorType::Luma)).unwrap();
        assert_eq!(picture.colour(4.0, 4.0), Some([90; 3]));
    }

    #[test]
    fn incomplete_images_are_not_decoded() {
        let noise: Vec<u8> = (0..64 * 64 * 3_u32).map(|n| ((n * n) >> 3) as u8).collect();
        let whole = jpeg(64, 64, &noise, ColorType::Rgb);
        assert!(Picture::from_jpeg(&whole).is_some());
        assert!(Picture::from_jpeg(&whole[..whole.len() / 2]).is_none());
        assert!(Picture::from_jpeg(b"no image").is_none());
        assert!(Picture::from_jpeg(b"").is_none());
    }
}
