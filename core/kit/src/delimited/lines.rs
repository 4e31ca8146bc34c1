//! Text logs whose lines are independent events. Does not know what a line means.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use sluice_model::options::InPaths;
use sluice_model::{Channel, Encoding, Name};

use super::{DEFAULT_LONGEST, Delimited, EventMarker, ParseOutcome, ParsedEvent};

/// The content of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LineContent<'b> {
    /// An event: see [`LineContent::event`].
    Event(ParsedEvent<'b>),
    /// Neither event nor damage: a blank line or a comment.
    Skip,
    /// A damaged line, and the reason. The next line is not affected.
    Damaged(&'static str),
}

impl<'b> LineContent<'b> {
    /// The event of a line. `payload` is the range of its payload in the line.
    pub fn event(timestamp: i64, channel: impl Into<Cow<'b, [u8]>>, payload: Range<usize>) -> Self {
        let (timestamp, channel) = (Some(timestamp), channel.into());
        Self::Event(ParsedEvent { len: payload.end, timestamp, sequence: None, channel, payload })
    }

    /// The event of a line without a time: see [`ParseOutcome::untimed`].
    pub fn untimed(channel: impl Into<Cow<'b, [u8]>>, payload: Range<usize>) -> Self {
        let channel = channel.into();
        Self::Event(ParsedEvent {
            len: payload.end,
            timestamp: None,
            sequence: None,
            channel,
            payload,
        })
    }

    /// Sets the sequence number its origin assigned.
    #[must_use]
    pub fn numbered(mut self, number: i64) -> Self {
        if let Self::Event(event) = &mut self {
            event.sequence = Some(number);
        }
        self
    }
}

/// A source whose files are text, one event per line.
///
/// Register it as a [`DelimitedSource`](super::DelimitedSource). Files are read in pieces, so line
/// numbers are unknown: an event without a sequence number of its own gets the byte offset of its
/// line.
pub trait TextLines: Send + Sync {
    /// The files.
    fn paths(&self) -> &InPaths;

    /// The content of a line. It comes without its end (`\n` or `\r\n`), and may be any bytes.
    fn line<'b>(&self, line: &'b [u8]) -> LineContent<'b>;

    /// The longest line in bytes, including its terminator. A longer one is damage up to the next
    /// line.
    fn longest(&self) -> usize {
        DEFAULT_LONGEST
    }

    /// Describes the channel of that name. Called when a reader meets a channel, possibly more than
    /// once.
    fn channel(&self, name: Name, source: Arc<str>) -> Channel {
        Channel::new(name, source, Encoding::Text)
    }
}

const END: &[u8] = b"\n";

impl<T: TextLines> Delimited for T {
    fn paths(&self) -> &InPaths {
        TextLines::paths(self)
    }

    fn parse<'b>(&self, bytes: &'b [u8]) -> ParseOutcome<'b> {
        match memchr::memchr(b'\n', bytes) {
            None => ParseOutcome::More,
            Some(end) => parsed(self.line(plain(bytes.get(..end).unwrap_or_default())), end + 1),
        }
    }

    fn last<'b>(&self, bytes: &'b [u8]) -> ParseOutcome<'b> {
        parsed(self.line(plain(bytes)), bytes.len())
    }

    fn mark(&self) -> EventMarker<'_> {
        EventMarker::Ends(END)
    }

    fn longest(&self) -> usize {
        TextLines::longest(self)
    }

    fn channel(&self, name: Name, source: Arc<str>) -> Channel {
        TextLines::channel(self, name, source)
    }
}

fn plain(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

fn parsed(line: LineContent<'_>, len: usize) -> ParseOutcome<'_> {
    match line {
        LineContent::Event(event) => ParseOutcome::Event(ParsedEvent { len, ..event }),
        LineContent::Skip => ParseOutcome::Skip { len },
        LineContent::Damaged(reason) => ParseOutcome::Damaged { len, reason },
    }
}
