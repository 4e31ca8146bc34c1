//! A stream read as a log: a window of it is buffered, and earlier bytes are discarded.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::unpack::{MAX_WAITING, Unpacker};
use super::upstream_error::UpstreamError;
use crate::ReadBuffer;

/// How long a reader waits that has something already.
const MOMENT: Duration = Duration::from_millis(50);

/// A stream with a buffered window.
pub(super) struct Stream {
    from: Origin,
    /// The position of the first buffered byte.
    base: u64,
    kept: ReadBuffer,
    ended: bool,
    pub(super) broken: Option<String>,
    /// Where the compressed bytes start that were passed to resume behind damage.
    passed_from: Option<u64>,
    /// Whether the stream is to end behind what has arrived.
    pub(super) stop: Arc<StopCheck>,
    /// The bytes read since it was.
    read_since: usize,
    pub(super) was_stopped: bool,
}

/// Where the bytes of a stream come from.
enum Origin {
    Plain(Box<dyn Read + Send>),
    Packed(Box<Unpacker<Box<dyn Read + Send>>>),
}

impl Read for Origin {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(from) => from.read(buffer),
            Self::Packed(from) => from.read(buffer),
        }
    }
}

impl Stream {
    /// The bytes read at a time.
    const STEP: usize = 256 << 10;
    /// The most bytes that have arrived and are not read yet: pipes hold no more.
    const MAX_ARRIVED: usize = 1 << 20;

    pub(super) fn new(from: Box<dyn Read + Send>, stop: &Arc<StopCheck>) -> Self {
        Self::with_origin(Origin::Plain(from), stop)
    }

    /// The decompressed contents of `from`.
    pub(super) fn packed(from: Box<dyn Read + Send>, stop: &Arc<StopCheck>) -> io::Result<Self> {
        Ok(Self::with_origin(Origin::Packed(Box::new(Unpacker::new(from)?)), stop))
    }

    fn with_origin(from: Origin, stop: &Arc<StopCheck>) -> Self {
        Self {
            from,
            base: 0,
            kept: ReadBuffer::default(),
            ended: false,
            broken: None,
            passed_from: None,
            stop: Arc::clone(stop),
            read_since: 0,
            was_stopped: false,
        }
    }

    /// Fills `buffer` from `position`. If the stream does not end and that takes longer than a
    /// moment, `least` bytes suffice; with 0, `position` need not be reached.
    pub(super) fn read_at(
        &mut self,
        position: u64,
        buffer: &mut [u8],
        least: usize,
    ) -> io::Result<usize> {
        let missing = || {
            io::Error::other("this part of the stream was discarded; a stream cannot be read twice")
        };
        let start = position.checked_sub(self.base).ok_or_else(missing)?;
        let start = usize::try_from(start).map_err(io::Error::other)?;
        let (began, enough) = (Instant::now(), if least == 0 { 0 } else { start + least });
        while !self.ended && self.kept.len() < start + buffer.len() {
            let is_in_time = self.await_more()? && began.elapsed() < MOMENT;
            if !is_in_time && self.kept.len() >= enough {
                break;
            }
        }
        let there = self.kept.get(start..).unwrap_or_default();
        let len = there.len().min(buffer.len());
        buffer[..len].copy_from_slice(&there[..len]);
        Ok(len)
    }

    /// The end of the stream, once it is known.
    pub(super) fn end(&self) -> Option<u64> {
        self.ended.then(|| self.base + self.kept.len() as u64)
    }

    /// Reads what comes next, or finds the end. False if nothing comes for a moment.
    fn await_more(&mut self) -> io::Result<bool> {
        let is_stopping = self.stop.is_true();
        let has_come = match self.read_more() {
            Err(error) if is_idle(&error) => false,
            read => {
                self.read_since += read? * usize::from(is_stopping);
                true
            }
        };
        let is_all = !has_come || self.read_since > Self::MAX_ARRIVED;
        if is_stopping && is_all && !self.ended {
            (self.ended, self.was_stopped) = (true, true);
        }
        Ok(has_come)
    }

    /// Reads what comes next, and returns how much. Fails with `WouldBlock` if nothing comes for a
    /// moment.
    fn read_more(&mut self) -> io::Result<usize> {
        let read = |space: &mut [u8]| loop {
            match self.from.read(space) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        let read = match self.kept.append(Self::STEP, read) {
            Err(error) if is_idle(&error) => return Err(error),
            // The error comes from the decompressor, not from the system or a store: the rest of
            // the log is lost.
            Err(error)
                if matches!(self.from, Origin::Packed(_))
                    && error.raw_os_error().is_none()
                    && error.kind() != io::ErrorKind::Unsupported
                    && !UpstreamError::is(&error) =>
            {
                self.broken = Some(format!("the compressed data is damaged or cut off: {error}"));
                0
            }
            read => read?,
        };
        self.ended = read == 0;
        Ok(read)
    }

    /// Whether decompression fails in the first frame, if that is one that waits for its checksum.
    pub(super) fn has_damaged_start(&mut self) -> io::Result<bool> {
        if matches!(self.from, Origin::Packed(_)) {
            self.head(MAX_WAITING + 1, |_| false)?;
        }
        Ok(self.broken.is_some())
    }

    /// The first bytes: as many as are `enough`, at most `most` or a few more, or all.
    pub(super) fn head(
        &mut self,
        most: usize,
        enough: impl Fn(&[u8]) -> bool,
    ) -> io::Result<&[u8]> {
        while !self.ended && self.kept.len() < most && !enough(&self.kept) {
            self.await_more()?;
        }
        Ok(&self.kept)
    }

    pub(super) fn skip_checksums(&mut self) {
        if let Origin::Packed(from) = &mut self.from {
            from.skip_checksums();
        }
    }

    /// Goes on behind the damage that ended a compressed stream; see
    /// [`LogFile::resume`](super::LogFile::resume).
    pub(super) fn resume(&mut self) -> io::Result<Option<u64>> {
        let Origin::Packed(from) = &mut self.from else { return Ok(None) };
        if self.broken.take().is_none() {
            return Ok(None);
        }
        self.passed_from.get_or_insert(from.failed_at());
        from.resume();
        self.kept.append(1, |gap| io::repeat(0).read(gap))?;
        self.ended = false;
        Ok(Some(self.base + self.kept.len() as u64))
    }

    /// See [`LogFile::take_passed`](super::LogFile::take_passed).
    pub(super) fn take_passed(&mut self) -> Option<Range<u64>> {
        let Origin::Packed(from) = &self.from else { return None };
        self.passed_from.take().map(|start| start..from.resumed_at())
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

/// Sequential reading, to decompress what was peeked at. Fails with `WouldBlock` if nothing comes
/// for a moment.
impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.kept.is_empty() && !self.ended {
            self.read_more()?;
        }
        let len = self.kept.len().min(buffer.len());
        buffer[..len].copy_from_slice(&self.kept[..len]);
        self.kept.discard(len);
        self.base += len as u64;
        Ok(len)
    }
}

/// A pipe, a socket, a terminal, or what else standard input is. Reading it fails with `WouldBlock`
/// if nothing comes for a moment, or nothing is there and it is to stop.
pub(super) struct PolledFile {
    pub(super) file: File,
    pub(super) stop: Arc<StopCheck>,
}

impl PolledFile {
    fn is_ready(&self, patience: Duration) -> io::Result<bool> {
        let patience = Timespec { tv_sec: 0, tv_nsec: patience.subsec_nanos().into() };
        Ok(poll(&mut [PollFd::new(&self.file, PollFlags::IN)], Some(&patience))? > 0)
    }
}

impl Read for PolledFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // At first without a timer, which takes longer than the rest.
        let is_ready =
            self.is_ready(Duration::ZERO)? || !self.stop.is_true() && self.is_ready(MOMENT)?;
        if !is_ready {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.file.read(buffer)
    }
}

/// Whether reading is to stop. Never, before that is [set](Self::set).
#[derive(Default)]
pub(super) struct StopCheck(OnceLock<Box<dyn Fn() -> bool + Send + Sync>>);

impl StopCheck {
    /// Takes the first of several.
    pub(super) fn set(&self, stop: impl Fn() -> bool + Send + Sync + 'static) {
        self.0.get_or_init(|| Box::new(stop));
    }

    pub(super) fn is_true(&self) -> bool {
        self.0.get().is_some_and(|stop| stop())
    }
}

fn is_idle(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}
