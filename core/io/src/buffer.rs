//! Bytes between a log and what reads it.

#![warn(clippy::indexing_slicing)]

use std::ops::Deref;

/// Bytes that are read at the end and discarded at the start, in memory that is zeroed only once.
#[derive(Debug, Default)]
pub struct ReadBuffer {
    /// The bytes held come first.
    memory: Vec<u8>,
    len: usize,
}

impl ReadBuffer {
    /// Appends up to `most` bytes by `read`, which returns how many there are.
    pub fn append<E>(
        &mut self,
        most: usize,
        read: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        let (len, wanted) = (self.len, self.len.saturating_add(most));
        if wanted > self.memory.len() {
            let doubled = if len == 0 { 0 } else { 2 * self.memory.len() };
            let mut larger = vec![0; wanted.max(doubled)];
            if let Some((to, from)) = larger.get_mut(..len).zip(self.memory.get(..len)) {
                to.copy_from_slice(from);
            }
            self.memory = larger;
        }
        let read = read(self.memory.get_mut(len..wanted).unwrap_or_default())?;
        self.len = wanted.min(len + read);
        Ok(read)
    }

    /// Replaces the bytes by up to `most` others. Holds none if `read` fails.
    pub fn replace<E>(
        &mut self,
        most: usize,
        read: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<&[u8], E> {
        self.len = 0;
        self.append(most, read)?;
        Ok(self)
    }

    /// Discards the first `len` bytes, or all.
    pub fn discard(&mut self, len: usize) {
        let len = len.min(self.len);
        self.memory.copy_within(len..self.len, 0);
        self.len -= len;
    }
}

impl Deref for ReadBuffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.memory.get(..self.len).unwrap_or_default()
    }
}

/// The part of a log that was read last.
#[derive(Debug, Default)]
pub struct LogWindow {
    start: u64,
    bytes: ReadBuffer,
}

impl LogWindow {
    /// Its position in the log.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// The bytes from `at` on: at least `least`, unless the log ends. If they are not there, `read`
    /// reads up to `most` from that position, in their place.
    pub fn view<E>(
        &mut self,
        at: u64,
        least: usize,
        most: usize,
        read: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<&[u8], E> {
        let skip = at.checked_sub(self.start).and_then(|skip| usize::try_from(skip).ok());
        if let Some(skip) = skip.filter(|skip| skip.saturating_add(least) <= self.bytes.len()) {
            return Ok(self.bytes.get(skip..).unwrap_or_default());
        }
        self.start = at;
        self.bytes.replace(most, read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads `len` times this byte.
    fn reads(byte: u8, len: usize) -> impl FnOnce(&mut [u8]) -> Result<usize, ()> {
        move |space| {
            space.iter_mut().take(len).for_each(|to| *to = byte);
            Ok(len)
        }
    }

    #[test]
    fn bytes_are_appended_and_discarded_in_order() {
        let mut buffer = ReadBuffer::default();
        assert_eq!(buffer.append(4, reads(1, 3)), Ok(3));
        assert_eq!(buffer.append(9, reads(2, 9)), Ok(9));
        assert_eq!(*buffer, [1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2]);
        buffer.discard(2);
        assert_eq!(buffer.append(1, reads(3, 1)), Ok(1));
        assert_eq!(*buffer, [1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3]);
        buffer.discard(100);
        assert!(buffer.is_empty());
        assert_eq!(buffer.replace(2, reads(4, 1)), Ok(&[4][..]));
    }

    #[test]
    fn a_window_is_read_only_where_it_is_too_short() {
        let mut window = LogWindow::default();
        assert_eq!(window.view(10, 2, 4, reads(1, 4)), Ok(&[1; 4][..]));
        assert_eq!(window.view(12, 2, 4, |_| Err(())), Ok(&[1; 2][..]));
        assert_eq!(window.view(13, 2, 4, reads(2, 1)), Ok(&[2][..]));
        assert_eq!((window.start(), window.view(9, 1, 4, |_| Err(()))), (13, Err(())));
        assert_eq!(window.view(9, 1, 4, reads(3, 2)), Ok(&[3; 2][..]));
    }

    #[test]
    fn a_failed_read_appends_nothing() {
        let mut buffer = ReadBuffer::default();
        buffer.append(2, reads(1, 2)).unwrap();
        assert_eq!(buffer.append(5, |_| Err("no")), Err("no"));
        assert_eq!(*buffer, [1, 1]);
        assert_eq!(buffer.replace(5, |_| Err("no")), Err("no"));
        assert!(buffer.is_empty());
    }
}
