//! Pictures: how many, which are bad, and evenly spaced ones for thumbnails.

use std::collections::{BTreeMap, BTreeSet};

use sluice_views::{ImageColumns, check_jpeg, compressed_format};

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
            bad: self.bad,
            first_bad: self.first_bad,
            sizes: self.sizes.iter().map(size).collect(),
            thumbnails: Vec::new(),
        })
    }
}

fn check(columns: &ImageColumns, row: usize) -> PictureCheck {
    let data = columns.data(row);
    let is_whole = match compressed_format(data) {
        Some("jpeg") => {
            let size = check_jpeg(data).map(|size| (size.width.into(), size.height.into()));
            return size.map_or(PictureCheck::Bad, |size| PictureCheck::Whole(Some(size)));
        }
        Some("png") => data.windows(4).rev().take(64).any(|name| name == b"IEND"),
        Some("webp") => {
            let len = data.get(4..8).and_then(|len| len.first_chunk().copied());
            len.is_some_and(|len| data.len() >= 8 + u32::from_le_bytes(len) as usize)
        }
        // Pixels of an encoding that is not known may be of any length.
        _ => match columns.encoding(row) {
            Some(_) => columns.layout(row, data.len()).is_some(),
            None => !data.is_empty() && columns.size(row).is_some(),
        },
    };
    if is_whole { PictureCheck::Whole(columns.size(row)) } else { PictureCheck::Bad }
}
