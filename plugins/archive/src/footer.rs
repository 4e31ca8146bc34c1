//! The footer of an archive: the index and the seek table after its frames. Reads no frame, unless
//! frames are not where the seek table has them.

use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use memchr::memmem;
use sluice_io::files::{self, FileCache, InputFiles, LogFile};
use sluice_io::frames::{self, MAGIC};
use sluice_io::seek_table::{self, FrameSpan};
use sluice_io::store;
use sluice_model::{ByteFormat, Error, LogPayloads, Registry, SniffResult};

use crate::format;
use crate::frame::Unpacker;
use crate::index::{self, ArchiveIndex, FrameSummary};
use crate::scan;

/// The footer of an archive.
pub(crate) struct ArchiveFooter {
    /// The positions of its frames.
    pub(crate) spans: Vec<FrameSpan>,
    /// Where its seek table is.
    pub(crate) table: Range<u64>,
    /// The summaries of its frames.
    pub(crate) index: ArchiveIndex,
    /// The byte format of its content.
    pub(crate) format: &'static dyn ByteFormat,
    /// The number of frames before those with events: one with the format's head, or none.
    head_frames: usize,
    /// Where its frames are by their own headers, once a frame is not where the seek table has it;
    /// empty if that is unknown.
    actual_spans: Mutex<Option<Arc<[FrameSpan]>>>,
}

impl ArchiveFooter {
    /// The footer of a file, of which as much is read as these inputs have; `None` if it has none.
    pub(crate) fn cached(
        cache: &FooterCache,
        path: &Path,
        inputs: &InputFiles,
        registry: &Registry,
    ) -> Result<Option<Arc<Self>>, Error> {
        if !files::is_address_or_file(path) {
            return Ok(None);
        }
        let read = |mut log| Ok(Self::read(&mut log, registry)?.map(Arc::new));
        cache.get(inputs.open_plain(path)?, read)
    }

    /// Reads the footer of a file; `None` if there is no consistent one.
    ///
    /// `Err` also if this program does not have the archive's format.
    pub(crate) fn read(log: &mut LogFile, registry: &Registry) -> Result<Option<Self>, Error> {
        let Some((spans, table)) = seek_table::read(log)? else { return Ok(None) };
        let Some(mut index) =
            ArchiveIndex::between(log, spans.last().map_or(0, FrameSpan::end), table)?
        else {
            return Ok(None);
        };
        let format = format::find_format(&index.format, registry);
        let format = format.ok_or_else(|| {
            Error::invalid(format!(
                "{}: {}",
                log.path().display(),
                format::missing_format(&index.format, registry)
            ))
        })?;
        if format.may_rename_channels() {
            index.forget_channels();
        }
        let heads = usize::from(!format.head()?.is_empty());
        let tails = usize::from(!format.tail()?.is_empty());
        let adds_up = spans.len() == heads + index.frames.len() + tails
            && match index.content_len {
                Some(len) => len == spans.last().map_or(0, FrameSpan::content_end),
                // Each frame of an object would be a request.
                None => store::is_address(log.path()) || are_lengths_right(log, &spans)?,
            };
        let table = table..log.len().unwrap_or(table);
        let (head_frames, actual_spans) = (heads, Mutex::default());
        let footer = Self { spans, table, index, format, head_frames, actual_spans };
        Ok(adds_up.then_some(footer))
    }

    /// The summary of a frame; `None` for a frame without events.
    pub(crate) fn frame_summary(&self, frame: usize) -> Option<&FrameSummary> {
        self.index.frames.get(frame.checked_sub(self.head_frames)?)
    }

    /// Where a frame is by the headers of all frames; `None` if they do not tell, or the run was
    /// cancelled.
    ///
    /// The first call reads all frames, others wait for it.
    pub(crate) fn actual_span(
        &self,
        frame: usize,
        open: impl FnOnce() -> Result<LogFile, Error>,
        unpacker: &Unpacker<'_>,
    ) -> Result<Option<FrameSpan>, Error> {
        let mut spans = self.actual_spans.lock().unwrap_or_else(PoisonError::into_inner);
        let spans = match &*spans {
            Some(spans) => spans,
            None => {
                let end = self.spans.last().map_or(0, FrameSpan::end);
                let found = scan::actual_spans(open()?, unpacker, (self.spans.len(), end))?;
                if unpacker.context().run.is_cancelled() {
                    return Ok(None);
                }
                spans.insert(found.unwrap_or_default().into())
            }
        };
        Ok(spans.get(frame).copied())
    }
}

/// Whether frames declare the uncompressed lengths that a seek table has for them. Reads the start
/// of each.
fn are_lengths_right(log: &mut LogFile, spans: &[FrameSpan]) -> Result<bool, Error> {
    for span in spans {
        let mut header = [0; scan::MAX_FRAME_HEADER];
        let read = log.read_at(span.start, &mut header)?;
        let declared = frames::content_size(header.get(..read).unwrap_or_default());
        if declared != Some(span.content_len.into()) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The longest seek table that is recognized by the index before it.
const LONGEST_DAMAGED_TABLE: u64 = 1 << 20;
/// What is read of a file of which nothing suggests that it ends with a longer table.
const TAIL_LEN: u64 = 64 << 10;

/// Whether a file is an archive with a footer, or with an index before a damaged seek table.
pub(crate) fn sniff(path: &Path) -> Result<SniffResult, Error> {
    // Whoever reads the file reports errors.
    if !files::is_input_file(path) {
        return Ok(SniffResult::No);
    }
    let mut log = LogFile::open_plain(path)?;
    let (mut magic, mut mark) = ([0; MAGIC.len()], [0; index::MARK_LEN]);
    if log.read_at(0, &mut magic)? < magic.len() || magic != MAGIC {
        return Ok(SniffResult::No);
    }
    let is_ours = match seek_table::start(&mut log)? {
        Some(table) => {
            let at = table.saturating_sub(mark.len() as u64);
            let is_marked = log.read_at(at, &mut mark)? == mark.len() && index::is_marked(&mark);
            is_marked || has_unmarked_index(&mut log)?
        }
        None => ends_with_index(&mut log)?,
    };
    Ok(if is_ours { SniffResult::Yes } else { SniffResult::No })
}

/// Whether all that is between the frames of a file and its seek table starts like an index.
fn has_unmarked_index(log: &mut LogFile) -> Result<bool, Error> {
    let Some((spans, table)) = seek_table::read(log)? else { return Ok(false) };
    let start = spans.last().map_or(0, FrameSpan::end);
    let mut bytes = [0; frames::SKIPPABLE_HEADER as usize + MAGIC.len()];
    let is_read = log.read_at(start, &mut bytes)? == bytes.len();
    let (header, contents) = bytes.split_at(frames::SKIPPABLE_HEADER as usize);
    let is_all = is_read && frames::skippable_len(header) == table.checked_sub(start);
    Ok(is_all && index::starts_like_index(contents))
}

/// Whether no frame follows an index near the end of a file, but at most a damaged seek table.
fn ends_with_index(log: &mut LogFile) -> Result<bool, Error> {
    let (mut start, mut bytes) = read_tail(log, TAIL_LEN)?;
    if index::last_index(&bytes).is_none() && may_be_entries(&bytes) {
        (start, bytes) = read_tail(log, LONGEST_DAMAGED_TABLE)?;
    }
    let Some((end, frame_len)) = index::last_index(&bytes) else { return Ok(false) };
    let Some(at) = (start + end as u64).checked_sub(frame_len) else { return Ok(false) };
    let mut header = [0; frames::SKIPPABLE_HEADER as usize];
    let is_index = log.read_at(at, &mut header)? == header.len()
        && frames::skippable_len(&header) == Some(frame_len);
    let rest = bytes.get(end..).unwrap_or_default();
    Ok(is_index && memmem::find(rest, &MAGIC).is_none())
}

/// The last bytes of a file, at most `most`, and where they start.
fn read_tail(log: &mut LogFile, most: u64) -> Result<(u64, Vec<u8>), Error> {
    let len = log.len().unwrap_or_default();
    let start = len.saturating_sub(most);
    let mut bytes = vec![0; (len - start) as usize];
    let read = log.read_at(start, &mut bytes)?;
    bytes.truncate(read);
    Ok((start, bytes))
}

/// Whether these bytes may start with entries of a seek table: most lengths are below 16 MiB, so
/// that every fourth byte is zero.
fn may_be_entries(bytes: &[u8]) -> bool {
    let are_short = |start| {
        let bytes = bytes.iter().skip(start).step_by(4).take(1 << 10);
        bytes.clone().filter(|byte| **byte == 0).count() * 4 > bytes.count() * 3
    };
    (0..4).any(are_short)
}

/// What the index of an archive tells of its payloads.
pub(crate) fn payloads(path: &Path) -> Result<LogPayloads, Error> {
    if !files::is_address_or_file(path) {
        return Ok(LogPayloads::default());
    }
    let mut log = LogFile::open_plain(path)?;
    let Some((spans, table)) = seek_table::read(&mut log)? else {
        return Ok(LogPayloads::default());
    };
    let index = ArchiveIndex::between(&mut log, spans.last().map_or(0, FrameSpan::end), table)?;
    Ok(index.map(|index| index.payloads()).unwrap_or_default())
}

/// The footers of the last archives.
pub(crate) type FooterCache = FileCache<Option<Arc<ArchiveFooter>>>;
