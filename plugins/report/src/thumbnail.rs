//! Small pictures: decoded, scaled down, and encoded as JPEG.

use sluice_views::{
    DecodedImage, ImageColumns, ImageDecoding, PixelLayout, compressed_format, encode_jpeg,
};

use crate::Thumbnail;

/// The longer side of a thumbnail, in pixels.
const SIDE: u32 = 160;
const QUALITY: u8 = 60;
const DECODING: ImageDecoding =
    ImageDecoding { max_pixels: 16 << 20, keeps_grey: false, is_strict: false };
/// Longer files are decoded at once rather than kept.
const MAX_STORED: usize = 64 << 10;

/// A picture that may become a thumbnail, in little memory.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum StoredPicture {
    /// A short JPEG, PNG or WebP file.
    File(Vec<u8>),
    /// Pixels that are as small as a thumbnail.
    Pixels(SmallPicture),
}

/// A picture of at most 160 pixels a side.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SmallPicture {
    width: u16,
    height: u16,
    /// RGB bytes, row by row.
    rgb: Vec<u8>,
}

impl StoredPicture {
    /// The picture of a row; `None` if it is in a format that cannot be shown, or too large.
    pub(crate) fn from_row(columns: &ImageColumns, row: usize) -> Option<Self> {
        let data = columns.data(row);
        match compressed_format(data) {
            Some(_) if data.len() <= MAX_STORED => Some(Self::File(data.to_vec())),
            Some(_) => decoded(data).map(Self::Pixels),
            None => from_pixels(columns.layout(row, data.len())?, data).map(Self::Pixels),
        }
    }

    /// Its thumbnail; `None` if it cannot be decoded.
    pub(crate) fn thumbnail(self, time: i64) -> Option<Thumbnail> {
        let small = match self {
            Self::File(bytes) => decoded(&bytes)?,
            Self::Pixels(small) => small,
        };
        let (width, height) = (small.width.into(), small.height.into());
        let jpeg = encode_jpeg(&small.rgb, width, height, QUALITY)?;
        Some(Thumbnail { time, width, height, jpeg })
    }
}

fn decoded(bytes: &[u8]) -> Option<SmallPicture> {
    let image = DECODING.decode(bytes)?;
    let (width, height) = (image.width, image.height);
    match image.channels {
        1 => scaled(width, height, |x, y| pixel(&image, x, y).map(|[grey]| [grey; 3])),
        2 => scaled(width, height, |x, y| {
            pixel(&image, x, y).map(|[grey, alpha]| [on_white(grey, alpha); 3])
        }),
        3 => scaled(width, height, |x, y| pixel(&image, x, y)),
        4 => scaled(width, height, |x, y| {
            pixel(&image, x, y).map(|[r, g, b, alpha]| [r, g, b].map(|part| on_white(part, alpha)))
        }),
        _ => None,
    }
}

/// The samples of a pixel, of which there are `N`.
fn pixel<const N: usize>(image: &DecodedImage, x: u32, y: u32) -> Option<[u8; N]> {
    let at = N * (y as usize * image.width as usize + x as usize);
    image.samples.get(at..)?.first_chunk().copied()
}

/// A part of a colour that lets some of a white ground through.
fn on_white(part: u8, alpha: u8) -> u8 {
    let (part, alpha) = (u32::from(part), u32::from(alpha));
    ((part * alpha + 255 * (255 - alpha)) / 255) as u8
}

/// The pixels of a raw picture.
fn from_pixels(layout: PixelLayout<'_>, data: &[u8]) -> Option<SmallPicture> {
    let PixelLayout { width, height, step, encoding } = layout;
    let byte = |x: usize, y: u32| data.get(y as usize * step as usize + x).copied();
    let colour = |x: u32, y: u32| -> Option<[u8; 3]> {
        let x = x as usize;
        let three = |order: [usize; 3], len: usize| {
            let [r, g, b] = order.map(|part| byte(x * len + part, y));
            Some([r?, g?, b?])
        };
        match encoding {
            "rgb8" | "8UC3" => three([0, 1, 2], 3),
            "bgr8" => three([2, 1, 0], 3),
            "rgba8" => three([0, 1, 2], 4),
            "bgra8" => three([2, 1, 0], 4),
            // Little-endian: the high byte.
            "mono16" | "16UC1" => byte(2 * x + 1, y).map(|grey| [grey; 3]),
            "uyvy" | "yuv422" => byte(2 * x + 1, y).map(|grey| [grey; 3]),
            "yuyv" | "yuv422_yuy2" => byte(2 * x, y).map(|grey| [grey; 3]),
            "mono8" | "8UC1" | "nv12" => byte(x, y).map(|grey| [grey; 3]),
            other => {
                let pattern = other.strip_prefix("bayer_")?;
                bayer_colour(pattern, (x as u32, y), (width, height), byte)
            }
        }
    };
    scaled(width, height, colour)
}

/// The colour of the two by two pixels of a Bayer pattern, such as `rggb8`, that a pixel is one of.
fn bayer_colour(
    pattern: &str,
    (x, y): (u32, u32),
    (width, height): (u32, u32),
    byte: impl Fn(usize, u32) -> Option<u8>,
) -> Option<[u8; 3]> {
    // The last of an odd number of rows or columns has no partner.
    let start = |at: u32, len: u32| (at & !1).min(len.saturating_sub(2) & !1);
    let (left, top) = (start(x, width), start(y, height));
    let (mut sums, mut counts) = ([0u32; 3], [0u32; 3]);
    for (letter, (right, down)) in pattern.bytes().zip([(0, 0), (1, 0), (0, 1), (1, 1)]) {
        let colour = b"rgb".iter().position(|known| *known == letter)?;
        sums[colour] += u32::from(byte((left + right) as usize, top + down)?);
        counts[colour] += 1;
    }
    let [r, g, b] = [0, 1, 2].map(|at: usize| sums[at].checked_div(counts[at]));
    Some([r? as u8, g? as u8, b? as u8])
}

/// The picture with its longer side cut down to 160 pixels, each the mean of up to 16 of a grid in
/// the area it covers.
fn scaled(
    width: u32,
    height: u32,
    colour: impl Fn(u32, u32) -> Option<[u8; 3]>,
) -> Option<SmallPicture> {
    let longer = width.max(height);
    if longer == 0 {
        return None;
    }
    let side = |len: u32| match longer <= SIDE {
        true => len,
        false => (u64::from(len) * u64::from(SIDE) / u64::from(longer)).max(1) as u32,
    };
    let (small_width, small_height) = (side(width), side(height));
    let (columns, right) = samples(width, small_width);
    let (rows, down) = samples(height, small_height);
    let mut rgb = Vec::with_capacity(3 * small_width as usize * small_height as usize);
    for rows in rows.chunks_exact(down) {
        for columns in columns.chunks_exact(right) {
            // Plain loops: tests without optimisation make thousands of thumbnails.
            let [mut red, mut green, mut blue] = [0u32; 3];
            for &y in rows {
                for &x in columns {
                    let [r, g, b] = colour(x, y)?;
                    red += u32::from(r);
                    green += u32::from(g);
                    blue += u32::from(b);
                }
            }
            let count = (right * down) as u32;
            rgb.extend_from_slice(
                &[red / count, green / count, blue / count].map(|mean| mean as u8),
            );
        }
    }
    let (width, height) = (small_width.try_into().ok()?, small_height.try_into().ok()?);
    Some(SmallPicture { width, height, rgb })
}

/// The places of evenly spaced samples along a side, and how many make a pixel: up to 4.
fn samples(len: u32, small: u32) -> (Vec<u32>, usize) {
    let each = len.div_ceil(small.max(1)).clamp(1, 4);
    let all = u64::from(small) * u64::from(each);
    let places = (0..all).map(|at| (at * u64::from(len) / all) as u32);
    (places.collect(), each as usize)
}

#[cfg(test)]
mod tests {
    use jpeg_encoder::{ColorType, Encoder};

    use super::*;

    #[test]
    fn a_thumbnail_has_the_shape_and_colour_of_its_picture() {
        let mut bytes = Vec::new();
        let pixels: Vec<u8> = [200, 30, 30].repeat(640 * 480);
        Encoder::new(&mut bytes, 90).encode(&pixels, 640, 480, ColorType::Rgb).unwrap();
        let small = decoded(&bytes).unwrap();
        assert_eq!((small.width, small.height), (160, 120));
        assert!(small.rgb[0] > 180 && small.rgb[1] < 60, "{:?}", &small.rgb[..3]);
        let thumbnail = StoredPicture::File(bytes.clone()).thumbnail(7).unwrap();
        assert!(thumbnail.jpeg.starts_with(&[0xff, 0xd8]) && thumbnail.jpeg.len() < 8_000);
        assert_eq!(StoredPicture::File(bytes[..90].to_vec()).thumbnail(7), None);
    }

    #[test]
    fn png_and_webp_files_have_thumbnails() {
        let mut png = Vec::new();
        let mut encoder = png::Encoder::new(&mut png, 320, 200);
        encoder.set_color(png::ColorType::Rgba);
        let half = [200, 30, 30, 255].repeat(320 * 100);
        let pixels = [half, [0; 4].repeat(320 * 100)].concat();
        encoder.write_header().unwrap().write_image_data(&pixels).unwrap();
        let mut webp = Vec::new();
        let encoder = image_webp::WebPEncoder::new(&mut webp);
        encoder.encode(&pixels, 320, 200, image_webp::ColorType::Rgba8).unwrap();
        for bytes in [png, webp] {
            let small = decoded(&bytes).unwrap();
            assert_eq!((small.width, small.height), (160, 100));
            // What is transparent is white.
            assert_eq!(
                (&small.rgb[..3], &small.rgb[small.rgb.len() - 3..]),
                (&[200, 30, 30][..], &[255; 3][..])
            );
            let cut = &bytes[..bytes.len() / 2];
            assert_eq!(StoredPicture::File(cut.to_vec()).thumbnail(7), None);
        }
    }

    #[test]
    fn raw_pictures_are_shown_by_their_encoding() {
        let layout = |encoding| PixelLayout { width: 2, height: 1, step: 8, encoding };
        let data = [10, 20, 30, 40, 50, 60, 70, 80];
        let rgb = |encoding| from_pixels(layout(encoding), &data).map(|small| small.rgb);
        assert_eq!(rgb("rgb8"), Some(vec![10, 20, 30, 40, 50, 60]));
        assert_eq!(rgb("bgra8"), Some(vec![30, 20, 10, 70, 60, 50]));
        assert_eq!(rgb("mono16"), Some(vec![20, 20, 20, 40, 40, 40]));
        assert_eq!(rgb("h264"), None);
    }

    #[test]
    fn cells_of_bayer_patterns_have_their_colour() {
        let layout = |encoding, height| PixelLayout { width: 3, height, step: 3, encoding };
        let data = [200, 90, 200, 110, 30, 110, 200, 90, 200];
        let pixels = |encoding, height| from_pixels(layout(encoding, height), &data);
        let rgb = pixels("bayer_rggb8", 3).unwrap().rgb;
        assert_eq!(rgb, [200, 100, 30].repeat(9));
        assert_eq!(pixels("bayer_bggr8", 3).unwrap().rgb[..3], [30, 100, 200]);
        // Three bytes are no cell.
        assert_eq!(from_pixels(layout("bayer_rggb8", 1), &data[..3]), None);
    }
}
