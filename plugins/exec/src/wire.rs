//! Splits Arrow IPC streams into messages, and checks every length before it is used.
//!
//! The Arrow library panics on some wrong lengths and trusts others, so these checks come first.

#![warn(clippy::indexing_slicing)]

use std::io::{self, BufRead, BufReader, Read};

use arrow_ipc::{Message, RecordBatch, root_as_message};

/// The start of a message, followed by the length of its metadata.
const CONTINUATION: [u8; 4] = [0xff; 4];
/// The end mark of a stream: a message of length 0.
pub(crate) const END: [u8; 8] = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];
/// The start of an Arrow file, which is not a stream.
const FILE: &[u8] = b"ARRO";

/// The maximum length of a message's metadata.
const MAX_METADATA: u32 = 16 << 20;
/// The maximum length of a message's body.
pub(crate) const MAX_BODY: u64 = 256 << 20;
/// How much of invalid output to quote.
const MAX_QUOTED: usize = 60;

/// A message: its metadata and its body.
#[derive(Debug)]
pub(crate) struct IpcMessage {
    pub(crate) metadata: Vec<u8>,
    pub(crate) body: Vec<u8>,
}

/// Parses the metadata of a message.
pub(crate) fn parse_metadata(metadata: &[u8]) -> Result<Message<'_>, String> {
    root_as_message(metadata).map_err(|e| format!("not an Arrow message: {e}"))
}

/// The messages of a stream, in order.
#[derive(Debug)]
pub(crate) struct IpcMessages<R> {
    from: BufReader<R>,
    at: u64,
}

impl<R: Read> IpcMessages<R> {
    pub(crate) fn new(from: R) -> Self {
        Self { from: BufReader::with_capacity(64 << 10, from), at: 0 }
    }

    /// How many bytes have been read.
    pub(crate) fn position(&self) -> u64 {
        self.at
    }

    /// The next message; `None` at the end mark. `Err` says what is there instead.
    pub(crate) fn next(&mut self) -> Result<Option<IpcMessage>, String> {
        let begins = self.at;
        let head = self.take(4)?;
        if head.is_empty() {
            return Err(if begins == 0 { no_stream() } else { no_end_mark() });
        }
        if head != CONTINUATION {
            return Err(self.not_a_message(begins, &head));
        }
        let len = self.exactly(4)?;
        let len = len.first_chunk().map_or(0, |len| u32::from_le_bytes(*len));
        if len == 0 {
            return Ok(None);
        }
        if len > MAX_METADATA {
            return Err(format!(
                "the Arrow message at byte {begins} declares {len} bytes of metadata, which is too \
                 much"
            ));
        }
        let metadata = self.exactly(u64::from(len))?;
        let message = root_as_message(&metadata)
            .map_err(|e| format!("not an Arrow message at byte {begins}: {e}"))?;
        let body = u64::try_from(message.bodyLength()).unwrap_or(u64::MAX);
        if body > MAX_BODY {
            return Err(format!(
                "expected record batches of at most {MAX_BODY} bytes, found {body}; write smaller \
                 ones, such as with `write_table(table, max_chunksize=10000)`"
            ));
        }
        let body = self.exactly(body)?;
        Ok(Some(IpcMessage { metadata, body }))
    }

    /// Reads to the end; returns what was there, if anything.
    pub(crate) fn rest(&mut self) -> Result<Option<String>, String> {
        let first = self.from.fill_buf().map_err(unreadable)?;
        if first.is_empty() {
            return Ok(None);
        }
        Ok(Some(quoted(first)))
    }

    /// Reads up to `len` bytes; fewer only at the end.
    fn take(&mut self, len: u64) -> Result<Vec<u8>, String> {
        // Memory grows with what was read, not with what was declared.
        let mut bytes = Vec::new();
        (&mut self.from).take(len).read_to_end(&mut bytes).map_err(unreadable)?;
        self.at += bytes.len() as u64;
        Ok(bytes)
    }

    fn exactly(&mut self, len: u64) -> Result<Vec<u8>, String> {
        let bytes = self.take(len)?;
        if (bytes.len() as u64) < len {
            return Err(format!("the Arrow stream is cut off at byte {}", self.at));
        }
        Ok(bytes)
    }

    fn not_a_message(&mut self, at: u64, head: &[u8]) -> String {
        if at == 0 && head == FILE {
            return "expected an Arrow stream, found an Arrow file: write it with `new_stream`, not \
                    `new_file`"
                .to_owned();
        }
        // Only what has arrived: waiting for more may take forever.
        let found = quoted(&[head, self.from.buffer()].concat());
        let place = if at == 0 { "at its start" } else { "after a message" };
        format!(
            "standard output is not an Arrow stream: {place}, at byte {at}, it printed {found}; \
             print messages for people to standard error"
        )
    }
}

fn no_stream() -> String {
    "nothing was written to standard output: expected an Arrow stream, even if it has no batch"
        .into()
}

fn no_end_mark() -> String {
    "the Arrow stream on standard output has no end mark: it ended early, or its writer was not \
     closed"
        .into()
}

fn unreadable(error: io::Error) -> String {
    format!("standard output cannot be read: {error}")
}

/// Bytes for messages: as text if they start with some, or else as hexadecimal numbers.
fn quoted(bytes: &[u8]) -> String {
    /// Shorter texts may be there by chance.
    const LEAST: usize = 4;
    let shown = bytes.get(..MAX_QUOTED).unwrap_or(bytes);
    let is_text = |c: &char| {
        !c.is_control() && *c != char::REPLACEMENT_CHARACTER || matches!(c, '\n' | '\r' | '\t')
    };
    let text: String = String::from_utf8_lossy(shown).chars().take_while(is_text).collect();
    let more = if bytes.len() > text.len() { "…" } else { "" };
    if text.len() >= LEAST.min(shown.len()) {
        return format!("the text {text:?}{more}");
    }
    let numbers: Vec<String> = shown.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    format!("the bytes {}{more}", numbers.join(" "))
}

/// Checks that the arrays of a batch are inside a body of this length. `Err` says what is not.
pub(crate) fn fits(columns: &RecordBatch<'_>, body: usize) -> Result<(), String> {
    if columns.compression().is_some() {
        return Err("the Arrow stream is compressed, which is not supported: write \
                    it uncompressed"
            .into());
    }
    let rows =
        usize::try_from(columns.length()).map_err(|_| "a batch of a negative number of rows")?;
    // Every row has a time of eight bytes, so the body limits the number of rows.
    if rows > body {
        return Err(format!("a batch of {rows} rows in {body} bytes"));
    }
    let nulls = |node: &arrow_ipc::FieldNode| {
        let len = usize::try_from(node.length()).ok();
        let nulls = usize::try_from(node.null_count()).ok();
        len.zip(nulls).is_some_and(|(len, nulls)| nulls <= len && len <= body.saturating_mul(8))
    };
    let inside = |buffer: &arrow_ipc::Buffer| {
        let end = buffer.offset().checked_add(buffer.length());
        let end = end.and_then(|end| usize::try_from(end).ok());
        buffer.offset() >= 0 && buffer.length() >= 0 && end.is_some_and(|end| end <= body)
    };
    let nodes = columns.nodes().is_none_or(|nodes| nodes.iter().all(nulls));
    let buffers = columns.buffers().is_none_or(|buffers| buffers.iter().all(inside));
    let counts = columns.variadicBufferCounts();
    let counts = counts.is_none_or(|counts| counts.iter().all(|count| count >= 0));
    if nodes && buffers && counts {
        return Ok(());
    }
    Err("the arrays of an Arrow batch are not inside its body".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(bytes: &[u8]) -> String {
        IpcMessages::new(bytes).next().unwrap_err()
    }

    #[test]
    fn output_that_is_not_a_stream_is_quoted() {
        assert!(wrong(b"").contains("nothing was written"));
        let message = wrong(b"hello world\n");
        assert!(
            message.contains("it printed the text \"hello world\\n\"")
                && message.contains("at byte 0"),
            "{message}"
        );
        let message = wrong(&[b"starting\n", &END[..]].concat());
        assert!(message.contains("it printed the text \"starting\\n\"…"), "{message}");
        assert!(wrong(&[0, 1, 2, 3, 0xfe, 7]).contains("the bytes 00 01 02 03"));
        assert!(wrong(b"ARROW1\0\0").contains("new_stream"));
        assert!(wrong(&[0xff, 0xff, 0xff, 0xff, 9]).contains("cut off at byte 5"));
        assert!(wrong(&[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0x40]).contains("too much"));
    }

    #[test]
    fn the_end_mark_ends_a_stream_and_what_follows_is_seen() {
        let mut messages = IpcMessages::new(&END[..]);
        assert!(messages.next().unwrap().is_none());
        assert_eq!(messages.rest(), Ok(None));
        let more = [&END[..], b"done"].concat();
        let mut messages = IpcMessages::new(&more[..]);
        assert!(messages.next().unwrap().is_none());
        assert_eq!(messages.rest().unwrap().as_deref(), Some("the text \"done\""));
    }
}
