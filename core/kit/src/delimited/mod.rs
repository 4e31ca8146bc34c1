//! Self-delimited logs: a source only implements `parse`, which says whether bytes start with an
//! event and where it ends. This module does the rest: splitting, parallel reading, seams, damage,
//! events longer than a block, compressed inputs and pipes.
//!
//! Reading blocks is the task of [`crate::framed`]. Formats that need more than an event's own
//! bytes to parse it, such as a line number or a table at the end of the file, cannot use this
//! module.
//!
//! A source is its options and one function:
//!
//! ```
//! use sluice_model::options::InPaths;
//! use sluice_kit::{Delimited, DelimitedSource, EventMarker, ParseOutcome};
//!
//! /// Reads ticks: the byte `!`, the payload length, eight bytes of nanoseconds, the payload.
//! #[derive(serde::Deserialize, sluice_model::schemars::JsonSchema)]
//! #[serde(deny_unknown_fields)]
//! # #[schemars(crate = "sluice_model::schemars")]
//! struct Ticks {
//!     /// The files.
//!     path: InPaths,
//! }
//!
//! sluice_model::register! {
//!     source "ticks": DelimitedSource<Ticks>, about: "reads ticks", sample: "",
//! }
//!
//! impl Delimited for Ticks {
//!     fn paths(&self) -> &InPaths {
//!         &self.path
//!     }
//!
//!     fn mark(&self) -> EventMarker<'_> {
//!         EventMarker::Begins(b"!")
//!     }
//!
//!     fn parse<'b>(&self, bytes: &'b [u8]) -> ParseOutcome<'b> {
//!         let Some([_, len, time @ ..]) = bytes.first_chunk::<10>() else {
//!             return ParseOutcome::More;
//!         };
//!         let end = 10 + usize::from(*len);
//!         ParseOutcome::event(end, i64::from_le_bytes(*time), b"TICK", 10..end)
//!     }
//! }
//! # fn main() {}
//! ```
//!
//! # Contract of `parse`
//!
//! Its result depends on the bytes of the event only: not on their position, on earlier calls, or
//! on how many bytes follow the event. More bytes may only change [`ParseOutcome::More`] into
//! something else. This makes the result independent of splitting. `parse` may ask for more until
//! it has [`Delimited::longest`] bytes; a longer event is rejected.
//!
//! # Validation
//!
//! | result of `parse` | classified as |
//! |---|---|
//! | event, followed by the end of the log or a valid successor | **event** |
//! | event without a valid successor; an event inside it extends beyond it | damage: wrong length |
//! | other event without a valid successor | **event**, then damage |
//! | damaged event, followed by a valid successor | damage of this event only |
//! | anything else | damage up to the next event that is accepted, or the end |
//!
//! A valid successor is the marker ([`EventMarker::Begins`]) or anything that `parse` accepts.
//! Events that end with a marker ([`EventMarker::Ends`]) need no successor.
//!
//! After damage, an event is only accepted with a valid successor; without a marker, only if two
//! more follow it or the log ends. If the format is [unmistakable](Delimited::is_unmistakable), an
//! event between two damaged ones is accepted too, unless an event inside it extends beyond it.
//!
//! # Cost
//!
//! `parse` is called once per event, twice without a marker. After damage it is called at every
//! marker, or at every byte: it should reject by the first bytes, and compute a checksum last. At
//! most `longest` bytes are buffered for it.
//!
//! A search after damage passes it at most 256 bytes per byte of progress, plus three of the
//! longest events, plus 1 KiB per position. Where bytes look like long events everywhere, only
//! short events are found. So the time for any damage is proportional to its length.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;

use sluice_io::files::{self, InputContent};
use sluice_model::options::InPaths;
use sluice_model::{
    Channel, Encoding, Error, Input, Name, Query, ReadContext, Reader, Source, Split, SplitStart,
};

use crate::framed::FramedReader;

mod candidates;
mod events;
mod lines;
#[cfg(test)]
mod tests;

pub use lines::{LineContent, TextLines};

use events::Events;

/// The default of [`Delimited::longest`].
pub const DEFAULT_LONGEST: usize = 1 << 20;

/// What bytes start with, as parsed by a format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParseOutcome<'b> {
    /// An event: see [`ParseOutcome::event`].
    Event(ParsedEvent<'b>),
    /// Bytes that are neither event nor damage: a file header, padding, a blank line.
    Skip {
        /// Their number.
        len: usize,
    },
    /// An event of known length that is damaged, such as one with a wrong checksum.
    Damaged {
        /// Its length in bytes.
        len: usize,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// More bytes are needed. At the end of the log: the event is cut off.
    More,
    /// No event, and the reason.
    NotAnEvent(&'static str),
}

/// An event as parsed from its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParsedEvent<'b> {
    /// Its length in bytes.
    pub len: usize,
    /// Its time in nanoseconds; `None` stands for its byte offset.
    pub timestamp: Option<i64>,
    /// Its sequence number; `None` stands for its byte offset.
    pub sequence: Option<i64>,
    /// The name of its channel.
    pub channel: Cow<'b, [u8]>,
    /// The range of its payload.
    pub payload: Range<usize>,
}

impl<'b> ParseOutcome<'b> {
    /// An event of `len` bytes. If that is more than were passed, `parse` is called again with all
    /// of them. `payload` is the range of its payload in these `len` bytes.
    pub fn event(
        len: usize,
        timestamp: i64,
        channel: impl Into<Cow<'b, [u8]>>,
        payload: Range<usize>,
    ) -> Self {
        let (timestamp, channel) = (Some(timestamp), channel.into());
        Self::Event(ParsedEvent { len, timestamp, sequence: None, channel, payload })
    }

    /// An event of a log without times. Its time is its byte offset in nanoseconds, so that sorting
    /// keeps the order; its channel's clock should be [`sluice_model::Clock::Relative`].
    pub fn untimed(len: usize, channel: impl Into<Cow<'b, [u8]>>, payload: Range<usize>) -> Self {
        let channel = channel.into();
        Self::Event(ParsedEvent { len, timestamp: None, sequence: None, channel, payload })
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

/// How the start of an event is recognized.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EventMarker<'m> {
    /// There is no marker: an event may start at any byte.
    #[default]
    None,
    /// Every event starts with these bytes; any other event is rejected, whatever `parse` and
    /// `last` return. What they skip need not start so.
    Begins(&'m [u8]),
    /// Every event ends with these bytes, which occur nowhere else in it.
    Ends(&'m [u8]),
}

/// A source whose files are consecutive events, each of which determines its own end.
///
/// Its source is [`DelimitedSource`].
pub trait Delimited: Send + Sync {
    /// The files.
    fn paths(&self) -> &InPaths;

    /// Parses the start of `bytes`. See the [module](self) for its contract.
    fn parse<'b>(&self, bytes: &'b [u8]) -> ParseOutcome<'b>;

    /// Parses the last bytes of a log, for which `parse` returned [`ParseOutcome::More`].
    fn last<'b>(&self, bytes: &'b [u8]) -> ParseOutcome<'b> {
        let _ = bytes;
        ParseOutcome::More
    }

    /// How events are found again after damage. A marker costs nothing and finds more events.
    fn mark(&self) -> EventMarker<'_> {
        EventMarker::None
    }

    /// Whether `parse` never returns an event by chance: many bytes have to be right, such as a
    /// long marker or a checksum. Then events between two damaged ones are found.
    fn is_unmistakable(&self) -> bool {
        false
    }

    /// The longest event in bytes. Damage can claim any length; up to this many bytes are buffered
    /// to reject it.
    fn longest(&self) -> usize {
        DEFAULT_LONGEST
    }

    /// The kind of content, to refuse pipes that start like a file of another format; `None`
    /// accepts any.
    fn content(&self) -> Option<InputContent> {
        None
    }

    /// Whether length, time and channel that `parse` returns for an incomplete event are final, and
    /// none of the missing bytes can make it damaged. Payloads outside a time window are then not
    /// read.
    fn has_complete_header(&self) -> bool {
        false
    }

    /// Describes the channel of that name. Called when a reader meets a channel, possibly more than
    /// once.
    fn channel(&self, name: Name, source: Arc<str>) -> Channel {
        Channel::new(name, source, Encoding::Unknown)
    }
}

/// The source of a [`Delimited`] format. Its options are those of the format.
#[derive(Clone, Debug, Deserialize)]
#[serde(transparent)]
pub struct DelimitedSource<D>(pub D);

// Derived, it would refer to the schema of the format.
impl<D: JsonSchema> JsonSchema for DelimitedSource<D> {
    fn schema_name() -> Cow<'static, str> {
        D::schema_name()
    }

    fn schema_id() -> Cow<'static, str> {
        D::schema_id()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        D::json_schema(generator)
    }
}

impl<D: Delimited> Source for DelimitedSource<D> {
    fn inputs(&self) -> Result<Vec<Input>, Error> {
        files::expand(&self.0.paths().0)
    }

    fn splits(&self, target: u64, _: &Query) -> Result<Vec<Split>, Error> {
        Split::from_files(self.inputs()?, target, |_, len| Ok(0..len))
    }

    fn read<'s>(
        &'s self,
        split: &Split,
        entry: SplitStart,
        context: &ReadContext,
    ) -> Result<Box<dyn Reader + 's>, Error> {
        let (events, window) = (Events::new(&self.0, context), context.query.window());
        let log = context.open_log(&split.input, self.0.content())?;
        Ok(Box::new(FramedReader::with_window(window, log, split, entry, events, context)?))
    }
}
