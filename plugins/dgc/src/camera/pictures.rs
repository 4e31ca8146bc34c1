//! Decoded images that are still wanted, for all batches that see them. Decides nothing by what it knows: an
//! image that it has forgotten is decoded again.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_buffer::Buffer;

use super::picture::Picture;

/// How many are remembered: as many as cameras have while a few batches are worked on.
const MOST: usize = 64;
/// How many bytes of pixels are remembered, but for those of the last image.
const MOST_BYTES: usize = 64 << 20;

/// What became of some images.
#[derive(Debug, Default)]
pub(super) struct Pictures(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// The oldest first. That the files are kept is why no other one can be where they are.
    pictures: VecDeque<(Buffer, Option<Arc<Picture>>)>,
    bytes: usize,
}

impl Pictures {
    /// The picture of a file; nothing if it is none. Others wait for no more than a look.
    pub(super) fn of(&self, file: &Buffer) -> Option<Arc<Picture>> {
        if let Some(known) = self.known(|known| known.find(file)) {
            return known;
        }
        let picture = Picture::of_jpeg(file).map(Arc::new);
        self.known(|known| known.add(file.clone(), picture.clone()));
        picture
    }

    fn known<R>(&self, look: impl FnOnce(&mut Known) -> R) -> R {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Known {
    fn find(&self, file: &Buffer) -> Option<Option<Arc<Picture>>> {
        let mut newest_first = self.pictures.iter().rev();
        let found = newest_first.find(|(known, _)| known.ptr_eq(file));
        found.map(|(_, picture)| picture.clone())
    }

    fn add(&mut self, file: Buffer, picture: Option<Arc<Picture>>) {
        self.bytes += memory(picture.as_deref());
        self.pictures.push_back((file, picture));
        while self.pictures.len() > 1 && (self.bytes > MOST_BYTES || self.pictures.len() > MOST) {
            let oldest = self.pictures.pop_front();
            self.bytes -= oldest.map_or(0, |(_, picture)| memory(picture.as_deref()));
        }
    }
}

fn memory(picture: Option<&Picture>) -> usize {
    picture.map_or(0, Picture::memory)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> Buffer {
        Buffer::from_vec(Picture::black(8, 8).to_jpeg(90).unwrap())
    }

    #[test]
    fn an_image_is_decoded_once_while_it_is_remembered() {
        let (pictures, file) = (Pictures::default(), file());
        let [first, again] = [0, 1].map(|_| pictures.of(&file).unwrap());
        assert!(Arc::ptr_eq(&first, &again));
        assert!(pictures.of(&Buffer::from_slice_ref(b"no image")).is_none());
    }

    #[test]
    fn only_so_many_are_remembered() {
        let pictures = Pictures::default();
        let first = file();
        let before = pictures.of(&first).unwrap();
        for _ in 0..MOST {
            pictures.of(&file());
        }
        assert!(!Arc::ptr_eq(&before, &pictures.of(&first).unwrap()));
        let (len, bytes) = pictures.known(|known| (known.pictures.len(), known.bytes));
        assert_eq!((len, bytes), (MOST, MOST * before.memory()));
    }
}
