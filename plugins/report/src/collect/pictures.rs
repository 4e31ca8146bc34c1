//! Pictures: how many, which are bad, and evenly spaced ones for thumbnails.

use std::collections::{BTreeMap, BTreeSet};

use sluice_views::{DeclaredFormat, ImageColumns, check_jpeg, compressed_format};

use super::grid::{BucketValue, BucketWidth, Buckets};
use super::hints::CollectedHints;
use crate::PictureFigures;
use crate::thumbnail::StoredPicture;

/// The most sizes of pictures of a channel.
const MAX_SIZES: usize = 32;

/// The pictures of a channel.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Pictures {
    count: u64,
    /// Those of a format that is not known here.
    unchecked: u64,
    bad: u64,
    first_bad: Option<i64>,
    sizes: BTreeMap<(u32, u32), u64>,
    /// The first whole picture of each bucket.
    spaced: Buckets<SpacedPicture>,
}

#[derive(Clone, Debug, PartialEq)]
struct SpacedPicture {
    time: i64,
    picture: StoredPicture,
}

impl BucketValue for SpacedPicture {
    fn append(&mut self, next: Self) {
        if next.time < self.time {
            *self = next;
        }
    }
}

/// What a picture is.
enum PictureCheck {
    Whole(Option<(u32, u32)>),
    Unchecked(Option<(u32, u32)>),
    Bad,
}

impl Pictures {
    /// Adds the picture of a row.
    pub(super) fn add(
        &mut self,
        columns: &ImageColumns,
        row: usize,
        time: i64,
        (channel, width, hints): (u32, BucketWidth, &CollectedHints),
    ) {
        self.count += 1;
        let size = match check(columns, row) {
            PictureCheck::Whole(size) => size,
            PictureCheck::Unchecked(size) => {
                self.unchecked += 1;
                size
            }
            PictureCheck::Bad => {
                self.bad += 1;
                self.first_bad = Some(self.first_bad.map_or(time, |first| first.min(time)));
                return;
            }
        };
        if let Some(size) = size {
            self.add_size(size, 1);
        }
        let bucket = width.bucket(time);
        let is_needed = self.spaced.get(bucket).is_none_or(|spaced| time < spaced.time);
        if is_needed
            && !hints.has_picture(channel, time)
            && let Some(picture) = StoredPicture::from_row(columns, row)
        {
            self.spaced.add(bucket, SpacedPicture { time, picture });
        }
    }

    /// Keeps the smallest sizes, which are the same in any order.
    fn add_size(&mut self, size: (u32, u32), count: u64) {
        *self.sizes.entry(size).or_default() += count;
        if self.sizes.len() > MAX_SIZES {
            self.sizes.pop_last();
        }
    }

    pub(super) fn append(&mut self, next: &Self) {
        self.count += next.count;
        self.unchecked += next.unchecked;
        self.bad += next.bad;
        self.first_bad = match (self.first_bad, next.first_bad) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        next.sizes.iter().for_each(|(size, count)| self.add_size(*size, *count));
        self.spaced.append(&next.spaced);
    }

    pub(super) fn widen(&mut self, from: BucketWidth, to: BucketWidth) {
        self.spaced.widen(from, to);
    }

    /// The buckets that have a picture, with its time.
    pub(super) fn buckets(&self) -> impl Iterator<Item = (i64, i64)> {
        self.spaced.entries().map(|(bucket, spaced)| (bucket, spaced.time))
    }

    /// Keeps no pictures.
    pub(super) fn drop_pictures(&mut self) {
        self.spaced = Buckets::default();
    }

    /// At most `most` evenly spaced pictures, with their times.
    pub(super) fn spaced(&self, most: usize) -> Vec<(i64, StoredPicture)> {
        let all: Vec<&SpacedPicture> = self.spaced.iter().collect();
        let shown = all.len().min(most);
        let places: BTreeSet<usize> = (0..shown).map(|n| n * all.len() / shown.max(1)).collect();
        let picked = places.into_iter().filter_map(|place| all.get(place));
        picked.map(|spaced| (spaced.time, spaced.picture.clone())).collect()
    }

    pub(super) fn figures(&self, channel: String) -> Option<PictureFigures> {
        let size =
            |(&(width, height), count): (&(u32, u32), &u64)| (format!("{width}x{height}"), *count);
        (self.count > 0).then(|| PictureFigures {
            channel,
            count: self.count,
            unchecked: self.unchecked,
            bad: self.bad,
            first_bad: self.first_bad,
            sizes: self.sizes.iter().map(size).collect(),
            thumbnails: Vec::new(),
        })
    }
}

/// The last chunk of every PNG file, which is empty, with its checksum.
const PNG_END: [u8; 12] = *b"\0\0\0\0IEND\xae\x42\x60\x82";

fn check(columns: &ImageColumns, row: usize) -> PictureCheck {
    let (data, size) = (columns.data(row), columns.size(row));
    let is_whole = match compressed_format(data) {
        Some("jpeg") => {
            let size = check_jpeg(data).map(|size| (size.width.into(), size.height.into()));
            return size.map_or(PictureCheck::Bad, |size| PictureCheck::Whole(Some(size)));
        }
        Some("png") => data.windows(PNG_END.len()).rev().take(64).any(|end| end == PNG_END),
        Some("webp") => {
            let len = data.get(4..8).and_then(|len| len.first_chunk().copied());
            len.is_some_and(|len| data.len() >= 8 + u32::from_le_bytes(len) as usize)
        }
        _ => match columns.declared(row) {
            DeclaredFormat::Pixels(_) => columns.layout(row, data.len()).is_some(),
            DeclaredFormat::Unknown if !data.is_empty() => return PictureCheck::Unchecked(size),
            // Pixels, or a frame of a video, which may have any length.
            DeclaredFormat::Missing if !data.is_empty() && size.is_some_and(has_pixels) => {
                return PictureCheck::Unchecked(size);
            }
            _ => false,
        },
    };
    if is_whole { PictureCheck::Whole(size) } else { PictureCheck::Bad }
}

fn has_pixels((width, height): (u32, u32)) -> bool {
    width > 0 && height > 0
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, BinaryArray, RecordBatch, StringArray, UInt32Array};
    use serde_json::json;

    use super::*;

    /// Whether a picture of 4 × 2 pixels is whole or bad, or neither.
    fn checked(format: Option<&str>, data: &[u8]) -> &'static str {
        let columns: [(&str, ArrayRef); 4] = [
            ("data", Arc::new(BinaryArray::from(vec![data]))),
            ("width", Arc::new(UInt32Array::from(vec![4]))),
            ("height", Arc::new(UInt32Array::from(vec![2]))),
            ("format", Arc::new(StringArray::from(vec![format]))),
        ];
        let fields = json!({ "data": "data", "width": "width", "height": "height",
            "encoding_field": "format" });
        let columns = RecordBatch::try_from_iter(columns).unwrap();
        let columns =
            ImageColumns::resolve(&serde_json::from_value(fields).unwrap(), &columns).unwrap();
        match check(&columns, 0) {
            PictureCheck::Whole(Some((4, 2))) => "whole",
            PictureCheck::Unchecked(Some((4, 2))) => "unchecked",
            PictureCheck::Bad => "bad",
            _ => "another size",
        }
    }

    #[test]
    fn a_png_that_is_cut_anywhere_is_bad() {
        let end = b"\0\0\0\0IEND\xae\x42\x60\x82";
        let png = [&b"\x89PNG\r\n\x1a\n\0\0\0\x01IDAT0\0\0\0\0"[..], end].concat();
        assert_eq!(checked(None, &png), "whole");
        assert_eq!(checked(None, &[&png[..], &[0; 20]].concat()), "whole");
        for len in 8..png.len() {
            assert_eq!(checked(None, &png[..len]), "bad", "{len} bytes");
        }
    }

    #[test]
    fn pictures_are_what_they_are_declared_to_be() {
        let cases = [
            (Some("mono8"), 8, "whole"),
            (Some("mono8"), 7, "bad"),
            (Some("rgb8"), 23, "bad"),
            (Some("nv12"), 11, "bad"),
            (Some("nv12"), 12, "whole"),
            (Some("MJPG"), 100, "bad"),
            (Some("H264"), 3, "unchecked"),
            (Some("H264"), 0, "bad"),
            (Some("jpeg xl"), 3, "unchecked"),
            (None, 0, "bad"),
            (None, 1, "unchecked"),
        ];
        for (format, len, expected) in cases {
            assert_eq!(checked(format, &vec![0; len]), expected, "{format:?} of {len} bytes");
        }
    }
}
