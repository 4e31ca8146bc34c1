//! A stream read as a log: a window of it is buffered, and earlier bytes are discarded.

use std::fmt;
use std::io::{self, Read};

use crate::ReadBuffer;

/// A stream with a buffered window.
pub(super) struct Stream {
    from: Box<dyn Read + Send>,
    /// The position of the first buffered byte.
    base: u64,
    kept: ReadBuffer,
    ended: bool,
    /// Whether the bytes come out of a decompressor.
    packed: bool,
    pub(super) broken: Option<String>,
}

impl Stream {
    /// The bytes read at a time.
    const STEP: usize = 256 << 10;

    pub(super) fn new(from: Box<dyn Read + Send>) -> Self {
        Self {
            from,
            base: 0,
            kept: ReadBuffer::default(),
            ended: false,
            packed: false,
            broken: None,
        }
    }

    pub(super) fn packed(from: Box<dyn Read + Send>) -> Self {
        Self { packed: true, ..Self::new(from) }
    }

    pub(super) fn read_at(&mut self, position: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let missing = || {
            io::Error::other("this part of the stream was discarded; a stream cannot be read twice")
        };
        let start = position.checked_sub(self.base).ok_or_else(missing)?;
        let start = usize::try_from(start).map_err(io::Error::other)?;
        while !self.ended && self.kept.len() < start + buffer.len() {
            self.read_more()?;
        }
        let there = self.kept.get(start..).unwrap_or_default();
        let len = there.len().min(buffer.len());
        buffer[..len].copy_from_slice(&there[..len]);
        Ok(len)
    }

    fn read_more(&mut self) -> io::Result<()> {
        let read = |space: &mut [u8]| loop {
            match self.from.read(space) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        match self.kept.append(Self::STEP, read) {
            // The error comes from the decompressor, not from the system or a store: the rest of
            // the log is lost.
            Err(error)
                if self.packed && error.raw_os_error().is_none() && !UpstreamError::is(&error) =>
            {
                self.broken = Some(format!("the compressed data is damaged or cut off: {error}"));
                self.ended = true;
            }
            read => self.ended = read? == 0,
        }
        Ok(())
    }

    /// The buffered bytes. If there are none, waits for what comes next.
    pub(super) fn buffered(&mut self) -> io::Result<&[u8]> {
        if self.kept.is_empty() && !self.ended {
            self.read_more()?;
        }
        Ok(&self.kept)
    }

    pub(super) fn forget(&mut self, position: u64) {
        let stale = position.saturating_sub(self.base).min(self.kept.len() as u64) as usize;
        // Moving bytes costs what was read since: only do it when at least half is stale.
        if stale > 0 && stale >= self.kept.len() / 2 {
            self.kept.discard(stale);
            self.base += stale as u64;
        }
    }
}

/// Sequential reading, to decompress what was peeked at.
impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let position = self.base;
        let ready = if self.kept.is_empty() {
            1.min(buffer.len())
        } else {
            self.kept.len().min(buffer.len())
        };
        let read = self.read_at(position, &mut buffer[..ready])?;
        self.kept.discard(read);
        self.base += read as u64;
        Ok(read)
    }
}

/// A failure to read compressed bytes, as opposed to a failure to decompress them.
#[derive(Debug)]
pub(super) struct UpstreamError(io::Error);

impl UpstreamError {
    pub(super) fn error(error: io::Error) -> io::Error {
        io::Error::new(error.kind(), Self(error))
    }

    fn is(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|inner| inner.is::<Self>())
    }
}

impl fmt::Display for UpstreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for UpstreamError {}
