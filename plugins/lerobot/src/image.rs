//! Files of images: their size by their headers, whether they are complete, and PNG files of raw
//! pixels. Decodes no image.

#![warn(clippy::indexing_slicing)]

use png::{BitDepth, ColorType, Compression, Encoder};
use sluice_views::{PixelLayout, check_jpeg, compressed_format};

/// Height, width and channels of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ImageShape {
    pub(crate) height: usize,
    pub(crate) width: usize,
    pub(crate) channels: usize,
}

impl ImageShape {
    /// As the shape of a feature.
    pub(crate) fn to_vec(self) -> Vec<usize> {
        vec![self.height, self.width, self.channels]
    }
}

/// Why bytes are no image that a reader can load.
const NO_IMAGE: &str = "is neither a JPEG nor a PNG file";
const NOT_LOADABLE_JPEG: &str = "is a JPEG file of neither one nor three components";
const DEEP_PNG: &str = "is a PNG file of other than 8 bits per sample";
const PALETTE_PNG: &str = "is a PNG file with a palette";
const CUT_PNG: &str = "is a truncated PNG file";
const BAD_PNG: &str = "is a damaged PNG file";

/// The shape of a complete image file, by its header. `Err` completes a sentence about it.
pub(crate) fn image_shape(bytes: &[u8]) -> Result<ImageShape, &'static str> {
    match compressed_format(bytes) {
        Some("jpeg") => {
            let size = check_jpeg(bytes).map_err(|_| "is a truncated or damaged JPEG file")?;
            if !matches!(size.components, 1 | 3) {
                return Err(NOT_LOADABLE_JPEG);
            }
            let (height, width) = (size.height.into(), size.width.into());
            Ok(ImageShape { height, width, channels: size.components.into() })
        }
        Some("png") => png_shape(bytes),
        _ if bytes.is_empty() => Err("is empty"),
        _ => Err(NO_IMAGE),
    }
}

/// The eight bytes that every PNG file starts with.
const PNG_MAGIC: &[u8] = b"\x89PNG\r\n\x1a\n";
/// The most pixels of a side that the format allows.
const MAX_SIDE: u32 = i32::MAX as u32;

/// Walks over the chunks of a PNG file: a length, a name, the content, and a checksum.
fn png_shape(bytes: &[u8]) -> Result<ImageShape, &'static str> {
    let mut rest = bytes.strip_prefix(PNG_MAGIC).ok_or(BAD_PNG)?;
    let (mut shape, mut has_pixels) = (None, false);
    loop {
        let PngChunk { name, content, crc32, after } = png_chunk(rest).ok_or(CUT_PNG)?;
        match name {
            b"IHDR" if shape.is_none() => shape = Some(png_header(content)?),
            _ if shape.is_none() => return Err(BAD_PNG),
            b"IDAT" => has_pixels = true,
            b"IEND" => return shape.filter(|_| has_pixels).ok_or(BAD_PNG),
            _ => {}
        }
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(name);
        hasher.update(content);
        if hasher.finalize() != crc32 {
            return Err(BAD_PNG);
        }
        rest = after;
    }
}

struct PngChunk<'b> {
    name: &'b [u8; 4],
    content: &'b [u8],
    crc32: u32,
    /// What follows it.
    after: &'b [u8],
}

fn png_chunk(bytes: &[u8]) -> Option<PngChunk<'_>> {
    let (len, rest) = bytes.split_first_chunk::<4>()?;
    let (name, rest) = rest.split_first_chunk::<4>()?;
    let (content, rest) = rest.split_at_checked(u32::from_be_bytes(*len) as usize)?;
    let (crc32, after) = rest.split_first_chunk::<4>()?;
    Some(PngChunk { name, content, crc32: u32::from_be_bytes(*crc32), after })
}

fn png_header(content: &[u8]) -> Result<ImageShape, &'static str> {
    let (width, rest) = content.split_first_chunk::<4>().ok_or(BAD_PNG)?;
    let (height, rest) = rest.split_first_chunk::<4>().ok_or(BAD_PNG)?;
    let [depth, color, ..] = *rest else { return Err(BAD_PNG) };
    let sides = [height, width].map(|side| u32::from_be_bytes(*side));
    if sides.iter().any(|side| !(1..=MAX_SIDE).contains(side)) {
        return Err(BAD_PNG);
    }
    let channels = match color {
        0 => 1,
        2 => 3,
        3 => return Err(PALETTE_PNG),
        4 => 2,
        6 => 4,
        _ => return Err(BAD_PNG),
    };
    if depth != 8 {
        return Err(DEEP_PNG);
    }
    let [height, width] = sides.map(|side| side as usize);
    Ok(ImageShape { height, width, channels })
}

/// Larger raw images are refused: their file would not fit into a value.
const MAX_PIXELS: u64 = 1 << 28;

/// Raw pixels as a PNG file. `Err` completes a sentence about the image.
pub(crate) fn png_from_pixels(layout: PixelLayout<'_>, data: &[u8]) -> Result<Vec<u8>, String> {
    let PixelLayout { width, height, step, encoding } = layout;
    if u64::from(width) * u64::from(height) > MAX_PIXELS {
        return Err(format!("has {width} × {height} pixels, more than a dataset takes"));
    }
    let (color, from, order): (_, usize, &[usize]) = match encoding {
        "rgb8" | "8UC3" => (ColorType::Rgb, 3, &[0, 1, 2]),
        "bgr8" => (ColorType::Rgb, 3, &[2, 1, 0]),
        "rgba8" => (ColorType::Rgb, 4, &[0, 1, 2]),
        "bgra8" => (ColorType::Rgb, 4, &[2, 1, 0]),
        "mono8" | "8UC1" => (ColorType::Grayscale, 1, &[0]),
        other => {
            return Err(format!(
                "has pixels stored as `{other}`; this sink takes rgb8, bgr8, rgba8, bgra8 and mono8"
            ));
        }
    };
    let used = width as usize * from;
    let mut pixels = Vec::with_capacity(width as usize * height as usize * order.len());
    for row in data.chunks(step.max(1) as usize).take(height as usize) {
        let row = row.get(..used).ok_or("has fewer bytes than its size says")?;
        if order.len() == from && order.is_sorted() {
            pixels.extend_from_slice(row);
            continue;
        }
        let each = row.chunks_exact(from);
        pixels.extend(each.flat_map(|pixel| order.iter().filter_map(|at| pixel.get(*at).copied())));
    }
    encode(width, height, color, &pixels).map_err(|_| "cannot be encoded as PNG".to_owned())
}

fn encode(
    width: u32,
    height: u32,
    color: ColorType,
    pixels: &[u8],
) -> Result<Vec<u8>, png::EncodingError> {
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes, width, height);
    encoder.set_color(color);
    encoder.set_depth(BitDepth::Eight);
    encoder.set_compression(Compression::Fast);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(pixels)?;
    writer.finish()?;
    Ok(bytes)
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;
    use crate::pixels::DecodedImage;
    use proptest::prelude::*;

    fn layout(encoding: &str, step: u32) -> PixelLayout<'_> {
        PixelLayout { width: 2, height: 2, step, encoding }
    }

    #[test]
    fn raw_pixels_come_back_from_their_png_file() {
        let data: Vec<u8> = (10..34).collect();
        let pixels = |encoding, step| {
            let png = png_from_pixels(layout(encoding, step), &data).unwrap();
            let decoded = DecodedImage::from_file(&png).unwrap();
            assert_eq!(image_shape(&png).unwrap(), decoded.shape);
            decoded.bytes
        };
        assert_eq!(pixels("mono8", 2), [10, 11, 12, 13]);
        assert_eq!(pixels("mono8", 5), [10, 11, 15, 16]);
        assert_eq!(pixels("rgb8", 6), data[..12]);
        assert_eq!(pixels("bgr8", 8), [12, 11, 10, 15, 14, 13, 20, 19, 18, 23, 22, 21]);
        assert_eq!(pixels("bgra8", 8), [12, 11, 10, 16, 15, 14, 20, 19, 18, 24, 23, 22]);
    }

    #[test]
    fn pixels_that_cannot_be_written_say_why() {
        let refusal = |layout, len| png_from_pixels(layout, &vec![0; len]).unwrap_err();
        assert!(refusal(layout("bayer_rggb8", 2), 4).contains("bayer_rggb8"));
        assert!(refusal(layout("rgb8", 6), 7).contains("fewer bytes"));
        let huge = PixelLayout { width: 1 << 20, height: 1 << 20, step: 1, encoding: "mono8" };
        assert!(refusal(huge, 1).contains("more than"));
    }

    #[test]
    fn files_that_no_reader_loads_are_refused() {
        let whole = png_from_pixels(layout("rgb8", 6), &[7; 12]).unwrap();
        assert_eq!(image_shape(b""), Err("is empty"));
        assert_eq!(image_shape(b"GIF89a"), Err(NO_IMAGE));
        for len in 8..whole.len() {
            assert_eq!(image_shape(&whole[..len]), Err(CUT_PNG), "{len} bytes");
        }
        let changed = |at: usize, to: u8| {
            let mut bytes = whole.clone();
            bytes[at] = to;
            image_shape(&bytes)
        };
        assert_eq!(changed(24, 16), Err(DEEP_PNG));
        assert_eq!(changed(25, 3), Err(PALETTE_PNG));
        assert_eq!(changed(19, 0), Err(BAD_PNG));
        // Anything else is found by the checksums of its chunks, but for the last one, which is
        // empty.
        for (at, byte) in whole.iter().enumerate().take(whole.len() - 12).skip(8) {
            assert!(changed(at, byte ^ 1).is_err(), "byte {at}");
        }
        let rgba = encode(2, 2, ColorType::Rgba, &[7; 16]).unwrap();
        assert_eq!(image_shape(&rgba), Ok(ImageShape { height: 2, width: 2, channels: 4 }));
    }

    proptest! {
        #[test]
        fn any_bytes_after_the_magic_have_a_result(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let file = [PNG_MAGIC, &bytes[..]].concat();
            prop_assert!(image_shape(&file).is_err());
            prop_assert!(DecodedImage::from_file(&file).is_none());
        }
    }
}
