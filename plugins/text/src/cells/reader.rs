//! Reads one split of a CSV file: events from rows, and columns of their fields.

use std::collections::HashMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sluice_io::escape::escaped_path;
use sluice_io::files::InputContent;
use sluice_kit::framed::{
    EventHeader, FramedReader, Framing, Peek, PositionContent, RecordContent,
};
use sluice_kit::window::{ReadAt, Search};
use sluice_model::{
    Batch, Channel, ChannelId, Channels, Clock, Damage, Encoding, Error, Name, Payloads,
    ReadContext, Reader, Rows, Seam, Split, SplitStart,
};

use super::columns::CsvColumns;
use super::options::CsvSource;
use super::scan::{Cell, RowScan, checked_scan, scan};
use crate::seek_table;

/// How much of a file to read to learn its columns, unless rows may be longer.
const HEAD_LEN: usize = 64 << 10;
/// How much of a row to read first, off the fast path.
const FIRST_READ: usize = 4 << 10;

/// Reads one split of a CSV file.
pub(super) struct CellReader<'s> {
    /// `None` if the file has no row.
    rows: Option<FramedReader<RowFraming<'s>>>,
    options: &'s CsvSource,
    columns: Option<Arc<CsvColumns>>,
    /// A compressed file whose seek table is not compared yet.
    packed: Option<PathBuf>,
    /// Whether compressed data was damaged; the framing sets it.
    has_gap: Arc<AtomicBool>,
    context: ReadContext,
}

impl<'s> CellReader<'s> {
    pub(super) fn open(
        options: &'s CsvSource,
        split: &Split,
        entry: SplitStart,
        context: &ReadContext,
    ) -> Result<Self, Error> {
        let mut log = context.open_log(&split.input, InputContent::Marked)?;
        let packed = (!log.is_seekable()).then(|| split.input.clone());
        let (context, has_gap) = (context.clone(), Arc::<AtomicBool>::default());
        let longest = usize::try_from(options.max_row.0).unwrap_or(usize::MAX);
        let mut head = vec![0; HEAD_LEN.max(longest)];
        let read = log.read_at(0, &mut head)?;
        let is_whole = read < head.len();
        head.truncate(read);
        let columns = CsvColumns::from_head(options, &head, is_whole)
            .map_err(|(at, what)| Error::malformed(split.input.to_string_lossy(), at, what))?;
        let Some(columns) = columns.map(Arc::new) else {
            if let Some(reason) = log.decompression_error() {
                let input: Arc<str> = escaped_path(&split.input).into();
                context.damage.report(Damage::new(&input, read as u64, 0, reason));
                has_gap.store(true, Ordering::Relaxed);
            }
            return Ok(Self { rows: None, options, columns: None, packed, has_gap, context });
        };
        let entry = match entry {
            SplitStart::At(at) => SplitStart::At(at.max(columns.first_row)),
            SplitStart::Search => SplitStart::Search,
        };
        let framing = RowFraming {
            options,
            columns: Arc::clone(&columns),
            longest,
            cells: Vec::new(),
            source: Arc::clone(&context.source),
            channels: Arc::clone(&context.channels),
            cache: HashMap::new(),
            has_gap: Arc::clone(&has_gap),
        };
        let rows = FramedReader::new(log, split, entry, framing, &context)?;
        Ok(Self { rows: Some(rows), options, columns: Some(columns), packed, has_gap, context })
    }

    /// `batch` with the fields of its events.
    fn with_fields(&self, batch: Batch, columns: &CsvColumns) -> Result<Batch, Error> {
        let delimiter = self.options.delimiter_byte();
        let cells_of = |row: &[u8]| {
            let mut cells = Vec::new();
            scan(row, delimiter, true, &mut cells);
            cells
        };
        let rows = (0..batch.len()).map(|event| batch.payload(event));
        let fields = columns.columns(rows.map(|row| (row, cells_of(row))))?;
        let events = (0..batch.len()).map(|event| event as u32).collect();
        let message = Arc::clone(&columns.message);
        Ok(batch.with_rows(vec![Rows {
            message,
            payloads: Payloads::Kept,
            events,
            columns: fields,
        }]))
    }
}

impl Reader for CellReader<'_> {
    fn next_batch(&mut self) -> Result<Option<Batch>, Error> {
        let batch = self.rows.as_mut().map(FramedReader::next_batch).transpose()?.flatten();
        if batch.is_none()
            && let Some(path) = self.packed.take()
            && !self.has_gap.load(Ordering::Relaxed)
        {
            let end = self.seam().ended.unwrap_or_default();
            seek_table::report_fault(&path, end, &self.context)?;
        }
        match (batch, &self.columns) {
            (Some(batch), Some(columns)) if columns.has_fields() => {
                self.with_fields(batch, columns).map(Some)
            }
            (batch, _) => Ok(batch),
        }
    }

    fn seam(&self) -> Seam {
        self.rows.as_ref().map(FramedReader::seam).unwrap_or_default()
    }
}

/// Frames rows.
struct RowFraming<'s> {
    options: &'s CsvSource,
    columns: Arc<CsvColumns>,
    longest: usize,
    cells: Vec<Cell>,
    source: Arc<str>,
    channels: Arc<Channels>,
    /// Channel ids by name in the file; empty if an option names the channel.
    cache: HashMap<Vec<u8>, ChannelId>,
    /// Set once compressed data was damaged.
    has_gap: Arc<AtomicBool>,
}

impl RowFraming<'_> {
    /// The event of a scanned row. The inner `Err` says why it is not an event.
    fn head(&mut self, pos: u64, row: &[u8]) -> Result<Result<EventHeader, String>, Error> {
        let head = match self.columns.head(row, &self.cells) {
            Ok(head) => head,
            Err(why) => return Ok(Err(why)),
        };
        let cell = head.channel.and_then(|at| self.cells.get(at)).cloned();
        let name = cell.map(|cell| cell.text(row).into_owned());
        let channel = self.channel(name.unwrap_or_default())?;
        let end = row.strip_suffix(b"\n").unwrap_or(row);
        let payload = 0..end.strip_suffix(b"\r").unwrap_or(end).len();
        let sequence = head.sequence.unwrap_or(i64::try_from(pos).unwrap_or(i64::MAX));
        Ok(Ok(EventHeader { timestamp: head.timestamp, sequence, channel, payload }))
    }

    fn channel(&mut self, cell: Vec<u8>) -> Result<ChannelId, Error> {
        /// Hostile files name every row differently.
        const MAX_CACHED: usize = 1 << 14;
        if let Some(id) = self.cache.get(&cell) {
            return Ok(*id);
        }
        let name = match &self.options.channel {
            Some(name) => Name::from_text(name),
            None if cell.is_empty() => Name::from_text(&self.source),
            None => Name::from_bytes(&cell),
        };
        let mut channel = Channel::new(name, Arc::clone(&self.source), Encoding::Text);
        channel.clock = self.options.clock.unwrap_or(Clock::Utc);
        let id = self.channels.intern(channel)?;
        if self.cache.len() >= MAX_CACHED {
            self.cache.clear();
        }
        self.cache.insert(cell, id);
        Ok(id)
    }
}

impl Framing for RowFraming<'_> {
    fn peek(&mut self, pos: u64, bytes: &[u8]) -> Result<Peek, Error> {
        if self.options.is_blank(bytes) {
            let end = memchr::memchr(b'\n', bytes);
            return Ok(end.map_or(Peek::Ambiguous, |end| Peek::Skip { len: end + 1 }));
        }
        let len = match checked_scan(bytes, self.options.delimiter_byte(), false, &mut self.cells) {
            RowScan::Row(len) if len <= self.longest => len,
            RowScan::Incomplete if bytes.len() <= self.longest => return Ok(Peek::More),
            _ => return Ok(Peek::Ambiguous),
        };
        let row = bytes.get(..len).unwrap_or_default();
        Ok(match self.head(pos, row)? {
            Ok(head) => Peek::Event { len, head },
            Err(_) => Peek::Ambiguous,
        })
    }

    fn classify(&mut self, log: &mut dyn ReadAt, pos: u64) -> Result<PositionContent, Error> {
        let mut look = FIRST_READ.min(self.longest.saturating_add(1));
        loop {
            let mut bytes = vec![0; look];
            let read = log.read_at(pos, &mut bytes)?;
            let is_end = read < look;
            bytes.truncate(read);
            if bytes.is_empty() {
                return Ok(PositionContent::End { mark: 0 });
            }
            if self.options.is_blank(&bytes) {
                let longest = self.longest as u64;
                let end = next_line(log, pos, pos.saturating_add(longest).saturating_add(1))?;
                if end - pos <= longest {
                    return Ok(PositionContent::Record { end });
                }
                let reason = format!("a comment of more than {longest} bytes");
                return Ok(PositionContent::Damage { end: skip_line(log, pos)?, reason });
            }
            let delimiter = self.options.delimiter_byte();
            let reason = match checked_scan(&bytes, delimiter, is_end, &mut self.cells) {
                RowScan::Row(len) if len <= self.longest => {
                    return Ok(PositionContent::Record { end: pos + len as u64 });
                }
                RowScan::Incomplete if look <= self.longest => {
                    look = look.saturating_mul(8).min(self.longest + 1);
                    continue;
                }
                RowScan::Invalid(why) => why.to_owned(),
                RowScan::Row(_) | RowScan::Incomplete => {
                    format!(
                        "a row of more than {} bytes, or quotes that are not closed",
                        self.longest
                    )
                }
            };
            return Ok(PositionContent::Damage { end: skip_line(log, pos)?, reason });
        }
    }

    fn find(&mut self, log: &mut dyn ReadAt, range: Range<u64>) -> Result<Option<u64>, Error> {
        if range.start <= self.columns.first_row {
            return Ok(Some(self.columns.first_row).filter(|at| *at < range.end));
        }
        // Starting one byte earlier finds a line that starts exactly at the range. Whether that
        // line starts a row or is inside a cell, the previous split decides.
        let next = next_line(log, range.start - 1, range.end)?;
        Ok(Some(next).filter(|at| *at < range.end))
    }

    fn find_after_gap(
        &mut self,
        log: &mut dyn ReadAt,
        range: Range<u64>,
    ) -> Result<Option<u64>, Error> {
        self.has_gap.store(true, Ordering::Relaxed);
        // Whatever comes first may be the rest of a row.
        let (start, end) = (range.start, range.end);
        Ok(Some(next_line(log, start, end)?).filter(|at| *at < end))
    }

    fn event(&mut self, pos: u64, record: &[u8]) -> Result<RecordContent, Error> {
        if self.options.is_blank(record) {
            return Ok(RecordContent::Skip);
        }
        scan(record, self.options.delimiter_byte(), true, &mut self.cells);
        Ok(match self.head(pos, record)? {
            Ok(head) => RecordContent::Event(head),
            Err(why) => RecordContent::Damage(why, None),
        })
    }
}

/// The start of the line after the one at `pos`, or the end of the file or of the range.
fn next_line(log: &mut dyn ReadAt, pos: u64, until: u64) -> Result<u64, Error> {
    line_end(log, &mut Search::new(pos..until, 0), pos)
}

/// Like [`next_line`], for a line that is not read again.
fn skip_line(log: &mut dyn ReadAt, pos: u64) -> Result<u64, Error> {
    let mut search = Search::new(pos..u64::MAX, 0);
    search.forget();
    line_end(log, &mut search, pos)
}

fn line_end(log: &mut dyn ReadAt, search: &mut Search, pos: u64) -> Result<u64, Error> {
    let found = search.next(log, |bytes| memchr::memchr(b'\n', bytes).map(|at| (at, at + 1)))?;
    Ok(found.map_or_else(|| search.reached().max(pos), |at| at + 1))
}
