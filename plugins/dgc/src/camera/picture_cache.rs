//! A cache of decoded images, shared by all batches that see them. It never changes the output: an
//! evicted image is decoded again.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_buffer::Buffer;

use super::picture::Picture;

/// Maximum number of pictures: those of all cameras during a few batches.
const MAX_PICTURES: usize = 64;
/// Maximum size of all pictures but the newest, in bytes.
const MAX_BYTES: usize = 64 << 20;

/// A cache of decoded images.
#[derive(Debug, Default)]
pub(super) struct PictureCache(Mutex<CachedPictures>);

#[derive(Debug, Default)]
struct CachedPictures {
    /// Oldest first. Holding the files keeps their addresses, which are the keys, from being
    /// reused.
    pictures: VecDeque<(Buffer, Option<Arc<Picture>>)>,
    bytes: usize,
}

impl PictureCache {
    /// The picture of a file, or `None` if it cannot be decoded. Other threads only wait for the
    /// lookup.
    pub(super) fn get_or_decode(&self, file: &Buffer) -> Option<Arc<Picture>> {
        if let Some(cached) = self.with_cache(|cache| cache.find(file)) {
            return cached;
        }
        let picture = Picture::from_jpeg(file).map(Arc::new);
        self.with_cache(|cache| cache.add(file.clone(), picture.clone()));
        picture
    }

    fn with_cache<R>(&self, look: impl FnOnce(&mut CachedPictures) -> R) -> R {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl CachedPictures {
    fn find(&self, file: &Buffer) -> Option<Option<Arc<Picture>>> {
        let mut newest_first = self.pictures.iter().rev();
        let found = newest_first.find(|(cached, _)| cached.ptr_eq(file));
        found.map(|(_, picture)| picture.clone())
    }

    fn add(&mut self, file: Buffer, picture: Option<Arc<Picture>>) {
        self.bytes += byte_len(picture.as_deref());
        self.pictures.push_back((file, picture));
        while self.pictures.len() > 1
            && (self.bytes > MAX_BYTES || self.pictures.len() > MAX_PICTURES)
        {
            let oldest = self.pictures.pop_front();
            self.bytes -= oldest.map_or(0, |(_, picture)| byte_len(picture.as_deref()));
        }
    }
}

fn byte_len(picture: Option<&Picture>) -> usize {
    picture.map_or(0, Picture::byte_len)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> Buffer {
        Buffer::from_vec(Picture::black(8, 8).to_jpeg(90).unwrap())
    }

    #[test]
    fn a_cached_image_is_decoded_once() {
        let (pictures, file) = (PictureCache::default(), file());
        let [first, again] = [0, 1].map(|_| pictures.get_or_decode(&file).unwrap());
        assert!(Arc::ptr_eq(&first, &again));
        assert!(pictures.get_or_decode(&Buffer::from_slice_ref(b"no image")).is_none());
    }

    #[test]
    fn the_number_of_cached_pictures_is_limited() {
        let pictures = PictureCache::default();
        let first = file();
        let before = pictures.get_or_decode(&first).unwrap();
        for _ in 0..MAX_PICTURES {
            pictures.get_or_decode(&file());
        }
        assert!(!Arc::ptr_eq(&before, &pictures.get_or_decode(&first).unwrap()));
        let (len, bytes) = pictures.with_cache(|cache| (cache.pictures.len(), cache.bytes));
        assert_eq!((len, bytes), (MAX_PICTURES, MAX_PICTURES * before.byte_len()));
    }
}
