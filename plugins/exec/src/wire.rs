//! Arrow IPC streams as bytes: messages cut out of them, with every length judged before it is believed.
//!
//! Decodes no column. The Arrow library panics on some wrong lengths and takes others at their word, so what
//! is here comes before it.

#![warn(clippy::indexing_slicing)]

use std::io::{self, BufRead, BufReader, Read};

use arrow_ipc::{Message, RecordBatch, root_as_message};

/// What a message begins with; then comes the length of what describes it.
const CONTINUATION: [u8; 4] = [0xff; 4];
/// The end of a stream: a message of no length.
pub(crate) const END: [u8; 8] = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];
/// What an Arrow file begins with, which is no stream.
const FILE: &[u8] = b"ARRO";

/// How long the description of a message may be.
const MAX_METADATA: u32 = 16 << 20;
/// How long the body of a message may be.
pub(crate) const MAX_BODY: u64 = 256 << 20;
/// How much of what is no message is quoted.
const MAX_QUOTED: usize = 60;

/// A message: what describes it, and its body.
#[derive(Debug)]
pub(crate) struct IpcMessage {
    pub(crate) metadata: Vec<u8>,
    pub(crate) body: Vec<u8>,
}

/// What describes a message.
pub(crate) fn parse_metadata(metadata: &[u8]) -> Result<Message<'_>, String> {
    root_as_message(metadata).map_err(|e| format!("no Arrow message: {e}"))
}

/// The messages of a stream, one after another.
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

    /// The next message; nothing at the mark that ends the stream. `Err` says what is there instead.
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
                "the Arrow message at byte {begins} says it is described by {len} bytes, which is too much"
            ));
        }
        let metadata = self.exactly(u64::from(len))?;
        let message = root_as_message(&metadata)
            .map_err(|e| format!("there is no Arrow message at byte {begins}: {e}"))?;
        let body = u64::try_from(message.bodyLength()).unwrap_or(u64::MAX);
        if body > MAX_BODY {
            return Err(format!(
                "a record batch of {body} bytes, and {MAX_BODY} are the most; write smaller ones, such as \
                 with `write_table(table, max_chunksize=10000)`"
            ));
        }
        let body = self.exactly(body)?;
        Ok(Some(IpcMessage { metadata, body }))
    }

    /// Reads to the end; gives whether there was anything.
    pub(crate) fn rest(&mut self) -> Result<Option<String>, String> {
        let first = self.from.fill_buf().map_err(unreadable)?;
        if first.is_empty() {
            return Ok(None);
        }
        Ok(Some(quoted(first)))
    }

    /// Up to `len` bytes: fewer at the end only.
    fn take(&mut self, len: u64) -> Result<Vec<u8>, String> {
        // What is claimed to come is not believed before it has come: memory grows with what is read.
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
            return "this is an Arrow file, and a stream is needed: write it with `new_stream`, not \
                    `new_file`"
                .to_owned();
        }
        // Only what has come already: whoever waits for more may wait for ever.
        let found = quoted(&[head, self.from.buffer()].concat());
        let place = if at == 0 { "at its beginning" } else { "behind a message" };
        format!(
            "no Arrow stream on standard output: {place}, at byte {at}, it printed {found}; what is meant \
             for people belongs on standard error"
        )
    }
}

fn no_stream() -> String {
    "nothing was written to standard output: an Arrow stream is needed, even one without any batch"
        .into()
}

fn no_end_mark() -> String {
    "the Arrow stream on standard output has no end mark: it ended early, or its writer was not closed".into()
}

fn unreadable(error: io::Error) -> String {
    format!("standard output cannot be read: {error}")
}

/// Bytes for people: as text as far as they begin with some, or else as numbers.
fn quoted(bytes: &[u8]) -> String {
    /// Fewer may be text by chance.
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

/// Whether the arrays of a batch lie in a body of that length. `Err` says what does not.
pub(crate) fn fits(columns: &RecordBatch<'_>, body: usize) -> Result<(), String> {
    if columns.compression().is_some() {
        return Err("the Arrow stream is compressed, which is not read: write it without".into());
    }
    let rows = usize::try_from(columns.length()).map_err(|_| "a batch of fewer rows than none")?;
    // Every row has a time of eight bytes; no number of rows is believed that has no room.
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
    Err("the arrays of an Arrow batch do not lie in its body".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(bytes: &[u8]) -> String {
        IpcMessages::new(bytes).next().unwrap_err()
    }

    #[test]
    fn what_is_there_instead_of_a_stream_is_quoted() {
        assert!(wrong(b"").contains("nothing was written"));
        let said = wrong(b"hello world\n");
        assert!(
            said.contains("it printed the text \"hello world\\n\"") && said.contains("at byte 0"),
            "{said}"
        );
        let said = wrong(&[b"starting\n", &END[..]].concat());
        assert!(said.contains("it printed the text \"starting\\n\"…"), "{said}");
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
