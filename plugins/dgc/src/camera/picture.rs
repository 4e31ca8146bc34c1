//! Decodes and encodes JPEG files. Knows nothing of cameras.

use std::panic::{AssertUnwindSafe, catch_unwind};

use jpeg_encoder::{ColorType, Encoder};
use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

/// Larger images are not decoded.
const MAX_PIXELS: usize = 32 << 20;

type PictureDecoder<'b> = JpegDecoder<ZCursor<&'b [u8]>>;

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
        let open = || Some(read_header(bytes)?.1);
        catch_unwind(AssertUnwindSafe(open)).ok().flatten()
    }

    /// Decodes a JPEG file. `None` if it is not one, damaged, truncated, or has too many pixels.
    pub(super) fn from_jpeg(bytes: &[u8]) -> Option<Self> {
        // If the decoder panics on some input, only this image is lost.
        catch_unwind(AssertUnwindSafe(|| decode(bytes))).ok().flatten()
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
        let (width, height) = (self.width.try_into().ok()?, self.height.try_into().ok()?);
        let mut bytes = Vec::new();
        let encoder = Encoder::new(&mut bytes, quality);
        encoder.encode(&self.rgb, width, height, ColorType::Rgb).ok()?;
        Some(bytes)
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

/// Reads the header of a file. Returns the decoder with width and height.
fn read_header(bytes: &[u8]) -> Option<(PictureDecoder<'_>, [u32; 2])> {
    // Without strict mode, the missing part of a truncated file would be grey.
    let options = DecoderOptions::default()
        .set_strict_mode(true)
        .set_max_width(u16::MAX.into())
        .set_max_height(u16::MAX.into())
        .jpeg_set_out_colorspace(ColorSpace::RGB);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options);
    decoder.decode_headers().ok()?;
    let (width, height) = decoder.dimensions()?;
    Some((decoder, [width.try_into().ok()?, height.try_into().ok()?]))
}

fn decode(bytes: &[u8]) -> Option<Picture> {
    let (mut decoder, [width, height]) = read_header(bytes)?;
    let pixels = (width as usize).checked_mul(height as usize)?;
    if pixels > MAX_PIXELS {
        return None;
    }
    let rgb = decoder.decode().ok().filter(|rgb| rgb.len() == 3 * pixels)?;
    Some(Picture { width, height, rgb })
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn an_image_whose_header_claims_a_huge_size_is_not_decoded() {
        let mut huge = jpeg(8, 8, &[90; 64], ColorType::Luma);
        let frame = huge.windows(2).position(|bytes| bytes == [0xff, 0xc0]).unwrap();
        huge[frame + 5..frame + 9].copy_from_slice(&[0x3f, 0xff, 0x3f, 0xff]);
        assert!(Picture::from_jpeg(&huge).is_none());
        assert_eq!(Picture::jpeg_size(&huge), Some([0x3fff; 2]));
    }

    #[test]
    fn the_size_of_an_image_is_in_its_header() {
        let whole = jpeg(24, 8, &[90; 24 * 8], ColorType::Luma);
        let pixels = whole.windows(2).position(|bytes| bytes == [0xff, 0xda]).unwrap();
        assert_eq!(Picture::jpeg_size(&whole), Some([24, 8]));
        assert_eq!(Picture::jpeg_size(&whole[..pixels + 16]), Some([24, 8]));
        assert_eq!(Picture::jpeg_size(b"no image"), None);
        let wide = jpeg(40_000, 1, &[90; 40_000], ColorType::Luma);
        assert_eq!(Picture::jpeg_size(&wide), Some([40_000, 1]));
    }

    proptest::proptest! {
        #[test]
        fn a_mutated_image_keeps_its_header_size(
            at in 0..600_usize, to: u8, len in 0..700_usize,
        ) {
            let mut bytes = jpeg(8, 8, &[90; 64], ColorType::Luma);
            if let Some(byte) = bytes.get_mut(at) {
                *byte = to;
            }
            bytes.truncate(len);
            let size = Picture::jpeg_size(&bytes);
            if let Some(picture) = Picture::from_jpeg(&bytes) {
                proptest::prop_assert_eq!(size, Some([picture.width, picture.height]));
                proptest::prop_assert!(picture.colour(0.0, 0.0).is_some());
            }
        }
    }
}
