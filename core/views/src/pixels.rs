//! How pictures are stored: compressed formats by their first bytes, and pixels by the names and
//! codes that logs use. Decodes no picture.

use std::collections::BTreeMap;

use arrow_array::RecordBatch;
use serde_json::Value;
use sluice_kit::columns::ENUM;
use sluice_model::FieldPath;

use crate::columns::{Numbers, Texts};
use crate::fields::Scalar;

/// The format of a compressed picture, as Foxglove names it.
pub fn compressed_format(data: &[u8]) -> Option<&'static str> {
    match data {
        [0xFF, 0xD8, 0xFF, ..] => Some("jpeg"),
        [0x89, b'P', b'N', b'G', ..] => Some("png"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("webp"),
        _ => None,
    }
}

/// Bytes of a row of this many pixels; `None` if the encoding is not known here.
pub fn row_bytes(encoding: &str, width: u32) -> Option<u32> {
    let per_pixel = match encoding {
        "rgb8" | "bgr8" | "8UC3" => 3,
        "rgba8" | "bgra8" | "32FC1" => 4,
        "mono16" | "16UC1" | "uyvy" | "yuv422" | "yuyv" | "yuv422_yuy2" => 2,
        "mono8" | "8UC1" | "nv12" => 1,
        bayer if bayer.starts_with("bayer_") && bayer.ends_with('8') => 1,
        _ => return None,
    };
    width.checked_mul(per_pixel)
}

/// What a row says about how its picture is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeclaredFormat<'d> {
    /// As pixels, whose encoding Foxglove calls this.
    Pixels(&'d str),
    /// As one of the files that [`compressed_format`] recognises.
    Compressed,
    /// In a way that is not known here, such as a frame of a video.
    Unknown,
    /// Nothing.
    Missing,
}

impl DeclaredFormat<'static> {
    fn named(name: &str) -> Self {
        let trimmed = name.trim_matches(|c: char| c.is_whitespace() || c == '\0');
        match encoding_named(trimmed) {
            Some(encoding) => Self::Pixels(encoding),
            None if trimmed.is_empty() => Self::Missing,
            None if names_file(trimmed) => Self::Compressed,
            None => Self::Unknown,
        }
    }
}

/// Whether a format is that of JPEG, PNG or WebP files: `MJPG`, or `rgb8; jpeg compressed bgr8`.
fn names_file(format: &str) -> bool {
    let format = format.to_ascii_lowercase();
    let words: Vec<&str> = format.split(|c: char| !c.is_ascii_alphanumeric()).collect();
    let is_file = |word: &&str| ["mjpg", "mjpeg", "jpeg", "jpg", "png", "webp"].contains(word);
    // JPEG XL, JPEG-LS and others share with JPEG no more than the name.
    let is_other = |pair: &[&str]| matches!(pair, ["jpeg", "xl" | "ls" | "xr" | "xs" | "2000"]);
    // Depth images of ROS have a header before the file.
    !format.contains("compresseddepth")
        && words.iter().any(is_file)
        && !words.windows(2).any(is_other)
}

/// Foxglove's name of an encoding that a log names in its own way.
fn encoding_named(name: &str) -> Option<&'static str> {
    let name = name.to_ascii_lowercase();
    let name = name.strip_prefix("imageformat").unwrap_or(&name);
    let name = name.strip_prefix("mode").unwrap_or(name);
    Some(match name.trim() {
        "rgb8" | "rgb" | "rgb888" | "rgb3" => "rgb8",
        "bgr8" | "bgr" | "bgr888" | "bgr3" => "bgr8",
        "rgba8" | "rgba" => "rgba8",
        "bgra8" | "bgra" => "bgra8",
        "mono8" | "gray" | "grey" | "graygray8" | "8uc1" | "y800" => "mono8",
        "mono16" | "16uc1" | "y16" => "mono16",
        "32fc1" => "32FC1",
        "uyvy" | "yuv422" => "uyvy",
        "yuyv" | "yuy2" | "yuv422_yuy2" => "yuyv",
        "nv12" => "nv12",
        "bayerbg" | "bayer_bggr8" | "ba81" => "bayer_bggr8",
        "bayergb" | "bayer_gbrg8" | "gbrg" => "bayer_gbrg8",
        "bayerrg" | "bayer_rggb8" | "rggb" => "bayer_rggb8",
        "bayergr" | "bayer_grbg8" | "grbg" => "bayer_grbg8",
        _ => return None,
    })
}

/// The encoding of each row's pixels.
#[derive(Debug)]
pub enum PixelEncodings {
    /// The same for all rows.
    Fixed(String),
    /// Names.
    Texts(Texts),
    /// FourCCs, or values of an enum with these names.
    Codes(Numbers, BTreeMap<i64, String>),
}

impl PixelEncodings {
    /// `None` if the field is neither text nor number.
    pub fn resolve(path: &FieldPath, columns: &RecordBatch) -> Option<Self> {
        if let Some(texts) = Texts::resolve(path, columns) {
            return Some(Self::Texts(texts));
        }
        let numbers = Numbers::resolve(&Scalar::Field(path.clone()), columns)?;
        let schema = columns.schema();
        let names = schema.field_with_name(path.first()).ok()?.metadata().get(ENUM);
        Some(Self::Codes(numbers, names.map(|json| enum_names(json)).unwrap_or_default()))
    }

    /// `None` if Foxglove has no name for it.
    pub fn at(&self, row: usize) -> Option<&str> {
        match self.declared(row) {
            DeclaredFormat::Pixels(encoding) => Some(encoding),
            _ => None,
        }
    }

    /// What a row says.
    pub fn declared(&self, row: usize) -> DeclaredFormat<'_> {
        match self {
            Self::Fixed(encoding) => DeclaredFormat::Pixels(encoding),
            Self::Texts(texts) => DeclaredFormat::named(texts.at(row)),
            Self::Codes(codes, names) => {
                let Some(code) = codes.at(row) else { return DeclaredFormat::Missing };
                let four = u32::try_from(code as i64).unwrap_or(u32::MAX).to_le_bytes();
                let name = names.get(&(code as i64)).map(String::as_str);
                let name = name.or_else(|| std::str::from_utf8(&four).ok());
                name.map_or(DeclaredFormat::Unknown, DeclaredFormat::named)
            }
        }
    }
}

/// The names of an enum's values, from the metadata of its field.
fn enum_names(json: &str) -> BTreeMap<i64, String> {
    let names = serde_json::from_str::<BTreeMap<String, Value>>(json).unwrap_or_default();
    let entry = |(name, value): (String, Value)| match value {
        Value::String(text) => Some((name.parse().ok()?, text)),
        value => Some((value.as_i64()?, name)),
    };
    names.into_iter().filter_map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_recognised_by_their_first_bytes() {
        assert_eq!(compressed_format(b"\xff\xd8\xff\xe0rest"), Some("jpeg"));
        assert_eq!(compressed_format(b"\x89PNG\r\n"), Some("png"));
        assert_eq!(compressed_format(b"RIFF1234WEBPVP8 "), Some("webp"));
        assert_eq!(compressed_format(b"\xff\xd8"), None);
    }

    #[test]
    fn what_a_log_declares_is_pixels_a_file_or_unknown() {
        use DeclaredFormat::{Compressed, Missing, Pixels, Unknown};
        let cases = [
            ("GREY", Pixels("mono8")),
            ("MJPG", Compressed),
            ("rgb8; jpeg compressed bgr8", Compressed),
            ("16UC1; compressedDepth png", Unknown),
            ("H264", Unknown),
            ("jpeg xl", Unknown),
            ("JPEG-LS", Unknown),
            ("jpeg", Compressed),
            ("ImageFormatDigiclopsStereo", Unknown),
            ("\0\0\0\0", Missing),
            ("", Missing),
        ];
        for (name, declared) in cases {
            assert_eq!(DeclaredFormat::named(name), declared, "{name}");
        }
    }

    #[test]
    fn codes_are_letters_unless_they_have_names() {
        use arrow_array::{ArrayRef, Float64Array, Int32Array};
        use std::sync::Arc;
        let path = FieldPath::parse("format").unwrap();
        let column = |array: ArrayRef| RecordBatch::try_from_iter([("format", array)]).unwrap();
        let codes = ["GREY", "MJPG", "H264"]
            .map(|name| i32::from_le_bytes(*name.as_bytes().first_chunk().unwrap()));
        let codes = Int32Array::from([&codes[..], &[0, 7, -2]].concat());
        let encodings = PixelEncodings::resolve(&path, &column(Arc::new(codes))).unwrap();
        let declared: Vec<_> = (0..6).map(|row| encodings.declared(row)).collect();
        use DeclaredFormat::{Compressed, Missing, Pixels, Unknown};
        assert_eq!(declared, [Pixels("mono8"), Compressed, Unknown, Missing, Unknown, Unknown]);
        let none = Float64Array::from(vec![None]);
        let encodings = PixelEncodings::resolve(&path, &column(Arc::new(none))).unwrap();
        assert_eq!((encodings.declared(0), encodings.at(0)), (Missing, None));
    }

    #[test]
    fn encodings_have_the_names_of_the_viewer() {
        assert_eq!(encoding_named("ImageFormatBayerBg"), Some("bayer_bggr8"));
        assert_eq!(encoding_named("GREY"), Some("mono8"));
        assert_eq!(encoding_named("MJPG"), None);
        assert_eq!(row_bytes("rgb8", 10), Some(30));
        assert_eq!(row_bytes("h264", 10), None);
    }
}
