//! Decodes JPEG, PNG and WebP files, and encodes JPEG files.
//!
//! The codecs are generic over what they read and write, and large; only here are they compiled.

use std::io::Cursor;

use image_webp::WebPDecoder;
use jpeg_encoder::{ColorType, Encoder};
use sluice_model::panics::catch_panics;
use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

use crate::pixels::compressed_format;

/// A decoded image: samples of eight bits, pixel by pixel and row by row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodedImage {
    /// Pixels of a row.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// Samples of a pixel: grey (1), grey and alpha (2), RGB (3), or RGB and alpha (4).
    pub channels: usize,
    /// All samples.
    pub samples: Vec<u8>,
}

/// How image files are decoded.
#[derive(Clone, Copy, Debug)]
pub struct ImageDecoding {
    /// Larger images are not decoded.
    pub max_pixels: usize,
    /// Whether grey JPEG files stay grey, rather than become RGB.
    pub keeps_grey: bool,
    /// Whether truncated JPEG files, and PNG files with a wrong checksum, are not decoded.
    pub is_strict: bool,
}

impl ImageDecoding {
    /// Decodes a file. `None` if it is damaged, too large, or in another format.
    pub fn decode(&self, bytes: &[u8]) -> Option<DecodedImage> {
        let decode = || match compressed_format(bytes)? {
            "jpeg" => self.decode_jpeg(bytes),
            "png" => self.decode_png(bytes),
            "webp" => self.decode_webp(bytes),
            _ => None,
        };
        // If a decoder panics on some input, only this image is lost.
        catch_panics("a decoder", || decode().ok_or("")).ok()
    }

    fn decode_jpeg(&self, bytes: &[u8]) -> Option<DecodedImage> {
        let mut decoder = open_jpeg(bytes, self.is_strict)?;
        let is_grey = decoder.info()?.components == 1;
        let space = if self.keeps_grey && is_grey { ColorSpace::Luma } else { ColorSpace::RGB };
        decoder.set_options(decoder.options().jpeg_set_out_colorspace(space));
        let (width, height) = decoder.dimensions()?;
        self.samples_of(width, height, space.num_components(), |_| decoder.decode().ok())
    }

    fn decode_png(&self, bytes: &[u8]) -> Option<DecodedImage> {
        let limits = png::Limits { bytes: 4 * self.max_pixels };
        let mut decoder = png::Decoder::new_with_limits(Cursor::new(bytes), limits);
        decoder.set_transformations(png::Transformations::normalize_to_color8());
        decoder.ignore_checksums(!self.is_strict);
        let mut reader = decoder.read_info().ok()?;
        let (width, height) = reader.info().size();
        let channels = reader.output_color_type().0.samples();
        self.samples_of(width as usize, height as usize, channels, |len| {
            let mut samples = vec![0; len];
            reader.next_frame(&mut samples).ok()?;
            Some(samples)
        })
    }

    fn decode_webp(&self, bytes: &[u8]) -> Option<DecodedImage> {
        let mut decoder = WebPDecoder::new(Cursor::new(bytes)).ok()?;
        decoder.set_memory_limit(4 * self.max_pixels);
        let (width, height) = decoder.dimensions();
        let channels = if decoder.has_alpha() { 4 } else { 3 };
        self.samples_of(width as usize, height as usize, channels, |len| {
            let mut samples = vec![0; len];
            decoder.read_image(&mut samples).ok()?;
            Some(samples)
        })
    }

    /// An image of samples that `read` decodes; it is told how many there must be.
    fn samples_of(
        &self,
        width: usize,
        height: usize,
        channels: usize,
        read: impl FnOnce(usize) -> Option<Vec<u8>>,
    ) -> Option<DecodedImage> {
        let pixels = width.checked_mul(height).filter(|pixels| *pixels <= self.max_pixels)?;
        let len = pixels.checked_mul(channels)?;
        let samples = read(len).filter(|samples| samples.len() == len)?;
        let (width, height) = (width.try_into().ok()?, height.try_into().ok()?);
        Some(DecodedImage { width, height, channels, samples })
    }
}

/// The width and height in the header of a JPEG file. `None` without a valid header.
///
/// Cheap for any size: only the header is read.
pub fn jpeg_dimensions(bytes: &[u8]) -> Option<[u32; 2]> {
    let read = || {
        let (width, height) = open_jpeg(bytes, true)?.dimensions()?;
        Some([width.try_into().ok()?, height.try_into().ok()?])
    };
    catch_panics("a decoder", || read().ok_or("")).ok()
}

/// Encodes RGB samples as a JPEG file with a quality from 1 to 100. `None` if the image exceeds
/// the size limit of the format.
pub fn encode_jpeg(rgb: &[u8], width: u32, height: u32, quality: u8) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let (width, height) = (width.try_into().ok()?, height.try_into().ok()?);
    Encoder::new(&mut bytes, quality).encode(rgb, width, height, ColorType::Rgb).ok()?;
    Some(bytes)
}

/// A decoder that has read the header.
fn open_jpeg(bytes: &[u8], is_strict: bool) -> Option<JpegDecoder<ZCursor<&[u8]>>> {
    // Without strict mode, the missing part of a truncated file would be grey.
    let options = DecoderOptions::default()
        .set_strict_mode(is_strict)
        .set_max_width(u16::MAX.into())
        .set_max_height(u16::MAX.into())
        .jpeg_set_out_colorspace(ColorSpace::RGB);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options);
    decoder.decode_headers().ok()?;
    Some(decoder)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENIENT: ImageDecoding =
        ImageDecoding { max_pixels: 1 << 20, keeps_grey: false, is_strict: false };
    const STRICT: ImageDecoding = ImageDecoding { is_strict: true, keeps_grey: true, ..LENIENT };

    fn jpeg(width: u16, height: u16, pixels: &[u8], kind: ColorType) -> Vec<u8> {
        let mut bytes = Vec::new();
        Encoder::new(&mut bytes, 100).encode(pixels, width, height, kind).unwrap();
        bytes
    }

    fn png(width: u32, height: u32, pixels: &[u8], kind: png::ColorType) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, width, height);
        encoder.set_color(kind);
        encoder.write_header().unwrap().write_image_data(pixels).unwrap();
        bytes
    }

    fn webp(width: u32, height: u32, pixels: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let encoder = image_webp::WebPEncoder::new(&mut bytes);
        encoder.encode(pixels, width, height, image_webp::ColorType::Rgba8).unwrap();
        bytes
    }

    #[test]
    fn a_grey_jpeg_stays_grey_if_asked() {
        let grey = jpeg(16, 8, &[200; 16 * 8], ColorType::Luma);
        for (decoding, channels) in [(STRICT, 1), (LENIENT, 3)] {
            let image = decoding.decode(&grey).unwrap();
            assert_eq!((image.width, image.height, image.channels), (16, 8, channels));
            assert!(image.samples.iter().all(|sample| (195..=205).contains(sample)));
        }
        let coloured = jpeg(16, 8, &[200; 16 * 8 * 3], ColorType::Rgb);
        assert_eq!(STRICT.decode(&coloured).unwrap().channels, 3);
    }

    #[test]
    fn lossless_images_have_their_samples() {
        let samples: Vec<u8> = (0..7 * 5 * 4).map(|n| n as u8).collect();
        for bytes in [png(7, 5, &samples, png::ColorType::Rgba), webp(7, 5, &samples)] {
            let image = STRICT.decode(&bytes).unwrap();
            assert_eq!((image.width, image.height, image.channels), (7, 5, 4));
            assert_eq!(image.samples, samples);
        }
        let two = png(7, 10, &samples, png::ColorType::GrayscaleAlpha);
        assert_eq!(STRICT.decode(&two).unwrap().channels, 2);
    }

    #[test]
    fn truncated_images_are_not_decoded() {
        let noise: Vec<u8> = (0..64 * 64 * 4_u32).map(|n| ((n * n) >> 3) as u8).collect();
        let rgba = png::ColorType::Rgba;
        let files = [
            jpeg(64, 64, &noise[..64 * 64 * 3], ColorType::Rgb),
            png(64, 64, &noise, rgba),
            webp(64, 64, &noise),
        ];
        for bytes in files {
            assert!(STRICT.decode(&bytes).is_some());
            assert_eq!(STRICT.decode(&bytes[..bytes.len() / 2]), None);
        }
    }

    #[test]
    fn a_wrong_checksum_is_refused_in_strict_mode() {
        let mut bytes = png(8, 8, &[9; 64], png::ColorType::Grayscale);
        let end = bytes.len() - 13; // of the checksum of the last chunk of pixels
        bytes[end] ^= 1;
        assert_eq!((STRICT.decode(&bytes), LENIENT.decode(&bytes).is_some()), (None, true));
    }

    #[test]
    fn large_images_are_not_decoded() {
        let small = ImageDecoding { max_pixels: 63, ..STRICT };
        let files = [
            jpeg(8, 8, &[90; 64], ColorType::Luma),
            png(8, 8, &[90; 64], png::ColorType::Grayscale),
            webp(8, 8, &[90; 256]),
        ];
        for bytes in &files {
            assert_eq!(small.decode(bytes), None);
            assert!(ImageDecoding { max_pixels: 64, ..STRICT }.decode(bytes).is_some());
        }
        // A header that claims a huge size.
        let mut huge = files[0].clone();
        let frame = huge.windows(2).position(|bytes| bytes == [0xff, 0xc0]).unwrap();
        huge[frame + 5..frame + 9].copy_from_slice(&[0x3f, 0xff, 0x3f, 0xff]);
        assert_eq!(LENIENT.decode(&huge), None);
        assert_eq!(jpeg_dimensions(&huge), Some([0x3fff; 2]));
    }

    #[test]
    fn the_dimensions_of_an_image_are_in_its_header() {
        let whole = jpeg(24, 8, &[90; 24 * 8], ColorType::Luma);
        let pixels = whole.windows(2).position(|bytes| bytes == [0xff, 0xda]).unwrap();
        assert_eq!(jpeg_dimensions(&whole), Some([24, 8]));
        assert_eq!(jpeg_dimensions(&whole[..pixels + 16]), Some([24, 8]));
        assert_eq!(jpeg_dimensions(b"no image"), None);
        let wide = jpeg(40_000, 1, &[90; 40_000], ColorType::Luma);
        assert_eq!(jpeg_dimensions(&wide), Some([40_000, 1]));
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_an_image_or_none(
            format in 0usize..3,
            bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..300),
        ) {
            let start: &[u8] = [
                &[0xFF, 0xD8, 0xFF][..],
                b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
                b"RIFF\x50\0\0\0WEBPVP8",
            ][format];
            LENIENT.decode(&[start, &bytes].concat());
        }

        #[test]
        fn a_mutated_image_keeps_the_dimensions_of_its_header(
            at in 0..600_usize, to: u8, len in 0..700_usize,
        ) {
            let mut bytes = jpeg(8, 8, &[90; 64], ColorType::Luma);
            if let Some(byte) = bytes.get_mut(at) {
                *byte = to;
            }
            bytes.truncate(len);
            if let Some(image) = STRICT.decode(&bytes) {
                let size = [image.width, image.height];
                proptest::prop_assert_eq!(jpeg_dimensions(&bytes), Some(size));
            }
        }
    }
}
