//! The run's only input, if that is a VEL log: a sink reads the exact times from it that
//! nanoseconds cannot hold. Reads no events.

use sluice_io::LogWindow;
use sluice_io::files::{self, InputFiles, LogFile};
use sluice_model::{Error, SinkContext};

use crate::sink_options::MAX_SECONDS;
use crate::wire::{
    END_MARK, FileHead, HEAD_LEN, HEADER_LEN, MAGIC, MessageHeader, SIZE_LEN, VERSION,
};

/// Bytes of the original read at a time.
const ORIGINAL_WINDOW: usize = 16 << 10;

/// The run's only input. Messages read from it keep the bits of their times, which nanoseconds
/// cannot hold exactly.
#[derive(Debug)]
pub(crate) struct OriginalLog {
    log: LogFile,
    head: FileHead,
    window: LogWindow,
    /// The end of the furthest message found.
    end: u64,
}

impl OriginalLog {
    /// Opens the run's input if it is a single VEL log with random access.
    pub(crate) fn open(context: &SinkContext) -> Result<Option<Self>, Error> {
        let [input] = &context.origin.inputs[..] else { return Ok(None) };
        if !files::is_address_or_file(&input.path) {
            return Ok(None);
        }
        let mut log = context.run.shared::<InputFiles>().open_plain(&input.path)?;
        let mut bytes = [0; HEAD_LEN];
        let there = log.read_at(0, &mut bytes)?;
        let found = if there == HEAD_LEN { FileHead::parse(&bytes) } else { None };
        let is_vel =
            |(magic, head): &([u8; 4], FileHead)| *magic == MAGIC && head.major == VERSION.0;
        let Some((_, head)) = found.filter(is_vel) else { return Ok(None) };
        Ok(Some(Self { log, head, window: LogWindow::default(), end: head.body() }))
    }

    /// The minor version of its format.
    pub(crate) fn minor(&self) -> u16 {
        self.head.minor
    }

    /// The number of index entries, if the file is long enough for them.
    pub(crate) fn entries(&self) -> u32 {
        let len = self.log.len().unwrap_or(0);
        if self.head.body() <= len { self.head.entries.min(MAX_SECONDS) } else { 0 }
    }

    /// The time of the message at `at`, if its header otherwise equals `like`.
    pub(crate) fn millis(&mut self, at: i64, like: &MessageHeader) -> Result<Option<f64>, Error> {
        let Ok(at) = u64::try_from(at) else { return Ok(None) };
        // Enough for several short messages, without reading far into long ones.
        let read = |space: &mut [u8]| self.log.read_at(at, space);
        let bytes = self.window.view(at, HEADER_LEN, ORIGINAL_WINDOW, read)?;
        let header = bytes.first_chunk().and_then(MessageHeader::parse);
        let found = header.filter(|header| *header == MessageHeader { ms: header.ms, ..*like });
        if let Some(header) = found {
            self.end = self.end.max(at.saturating_add(header.message_len()));
        }
        Ok(found.map(|header| header.ms))
    }

    /// Whether the end mark follows the furthest message.
    pub(crate) fn ends_with_a_mark(&mut self) -> Result<bool, Error> {
        let mut bytes = [0; SIZE_LEN];
        let there = self.log.read_at(self.end, &mut bytes)?;
        Ok(there == bytes.len() && u32::from_le_bytes(bytes) == END_MARK)
    }
}
