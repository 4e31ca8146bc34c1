//! Self-delimited logs: a source that only has to say, of some bytes, whether an event begins with them and
//! where it ends. Everything else comes from here: splitting, parallel reading, seams, damage, events longer
//! than a block, compressed inputs and pipes.
//!
//! It does not know how blocks are read, which is [`crate::framed`]'s. What needs more than an event's own
//! bytes to be understood, such as the number of its line or a table at the end of the file, is not for it.
//!
//! A source is its options and one function:
//!
//! ```
//! use sluice_core::options::InPaths;
//! use sluice_core::{Delimited, EventMarker, ParseOutcome};
//!
//! /// Reads ticks: the byte `!`, how many bytes follow the time, eight bytes of nanoseconds, and those bytes.
//! #[derive(serde::Deserialize, sluice_core::schemars::JsonSchema)]
//! #[serde(deny_unknown_fields)]
//! # #[schemars(crate = "sluice_core::schemars")]
//! struct Ticks {
//!     /// The files.
//!     path: InPaths,
//! }
//!
//! sluice_core::register! { source "ticks": Ticks, about: "reads ticks", sample: "" }
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
//!         let Some([_, len, time @ ..]) = bytes.first_chunk::<10>() else { return ParseOutcome::More };
//!         let end = 10 + usize::from(*len);
//!         ParseOutcome::event(end, i64::from_le_bytes(*time), b"TICK", 10..end)
//!     }
//! }
//! # fn main() {}
//! ```
//!
//! # What `parse` promises
//!
//! Its word follows from the bytes of the event alone: not from where they lie, not from what was parsed
//! before, and not from how many bytes behind the event it is shown. More bytes may turn [`ParseOutcome::More`] into
//! something else, and nothing else into anything. So any splitting gives the same. It may ask for more until
//! it has [`Delimited::longest`] bytes; an event that is still not over then is none.
//!
//! # What is believed
//!
//! | what `parse` says | verdict |
//! |---|---|
//! | an event, and behind it is the end of the log or what may follow | **event** |
//! | an event, and something else behind it; one inside of it ends outside of it and may be followed by what follows that | damage: its length is wrong |
//! | an event, and something else behind it, without such a proof | **event**, with damage after it |
//! | a damaged event, and behind it is what may follow | damage of this event only |
//! | anything else | damage up to the next event behind which is what may follow, or the end of the log |
//!
//! What may follow is the mark ([`EventMarker::Begins`]) or anything that `parse` knows. Events that end with a mark
//! ([`EventMarker::Ends`]) need nothing behind it. Without a mark, an event is only found again after damage if two more
//! follow it or the log ends.
//!
//! # Cost
//!
//! `parse` is called once an event, twice without a mark. After damage it is called at every mark, or at every
//! byte: it should refuse by the first bytes, and work out a checksum last. At most `longest` bytes are held for
//! it.
//!
//! A search behind damage shows it at most 256 bytes for each that it goes on by, three of the longest events more,
//! and a KiB of every place: where a log pretends to have long events everywhere, only short ones are found, until
//! there are fewer pretenders. So damage of any kind takes time in proportion to its length.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use crate::files::{InputContent, LogFile};
use crate::framed::FramedReader;
use crate::options::InPaths;
use crate::{
    Channel, Encoding, Error, Input, Name, Query, ReadContext, Reader, Source, Split, SplitStart,
    files,
};

mod events;
mod lines;
#[cfg(test)]
mod tests;

pub use lines::{LineContent, TextLines};

use events::Events;

/// How long an event is if the format says nothing else.
pub const DEFAULT_LONGEST: usize = 1 << 20;

/// What some bytes begin with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParseOutcome<'b> {
    /// An event: see [`ParseOutcome::event`].
    Event(ParsedEvent<'b>),
    /// So many bytes that are neither event nor damage: the head of a file, padding, a blank line.
    Skip {
        /// How many.
        len: usize,
    },
    /// An event of so many bytes that cannot be passed on, such as one with a wrong checksum.
    Damaged {
        /// How many.
        len: usize,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// More bytes are needed to tell. At the end of the log: it is cut off.
    More,
    /// No event, and why.
    NotAnEvent(&'static str),
}

/// What the bytes of an event tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParsedEvent<'b> {
    /// How many bytes it has.
    pub len: usize,
    /// When it happened, in nanoseconds; its place in the log, if it has no time.
    pub timestamp: Option<i64>,
    /// The number its origin gave it; its place in the log, if it has none.
    pub sequence: Option<i64>,
    /// The name of its channel.
    pub channel: Cow<'b, [u8]>,
    /// Where in it its payload lies.
    pub payload: Range<usize>,
}

impl<'b> ParseOutcome<'b> {
    /// An event of `len` bytes, which may be more than there are: these are asked for. `payload` is where in
    /// these `len` bytes its payload lies.
    pub fn event(
        len: usize,
        timestamp: i64,
        channel: impl Into<Cow<'b, [u8]>>,
        payload: Range<usize>,
    ) -> Self {
        let (timestamp, channel) = (Some(timestamp), channel.into());
        Self::Event(ParsedEvent { len, timestamp, sequence: None, channel, payload })
    }

    /// An event of a log without times. It happens as many nanoseconds after the beginning as it has bytes
    /// before it, so that its place is kept wherever events are put in order; its channel's clock should be
    /// [`crate::Clock::Relative`].
    pub fn untimed(len: usize, channel: impl Into<Cow<'b, [u8]>>, payload: Range<usize>) -> Self {
        let channel = channel.into();
        Self::Event(ParsedEvent { len, timestamp: None, sequence: None, channel, payload })
    }

    /// The same event with the number its origin gave it.
    #[must_use]
    pub fn numbered(mut self, number: i64) -> Self {
        if let Self::Event(told) = &mut self {
            told.sequence = Some(number);
        }
        self
    }
}

/// What tells where events begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EventMarker<'m> {
    /// Nothing does: each byte may be the first one of an event.
    #[default]
    None,
    /// Every event begins with these bytes; what does not is none, whatever `parse` says.
    Begins(&'m [u8]),
    /// Every event ends with these bytes, and has them nowhere else.
    Ends(&'m [u8]),
}

/// A source whose files are events one behind another, each of which says where it ends.
///
/// Whoever implements it is a [`Source`].
pub trait Delimited: Send + Sync {
    /// The files.
    fn paths(&self) -> &InPaths;

    /// What `bytes` begin with. See the [module](self) for what it promises.
    fn parse<'b>(&self, bytes: &'b [u8]) -> ParseOutcome<'b>;

    /// What the last bytes of a log begin with, of which `parse` wants more and there are no more.
    fn last<'b>(&self, bytes: &'b [u8]) -> ParseOutcome<'b> {
        let _ = bytes;
        ParseOutcome::More
    }

    /// What tells where events begin: how they are found again after damage. A mark costs nothing and finds
    /// more.
    fn mark(&self) -> EventMarker<'_> {
        EventMarker::None
    }

    /// The most bytes of an event. Damage can claim any length; so much is held in memory to find that out.
    fn longest(&self) -> usize {
        DEFAULT_LONGEST
    }

    /// What its files hold, if a pipe that begins as a file of another format is to be refused.
    fn content(&self) -> Option<InputContent> {
        None
    }

    /// Whether an event that `parse` has not been shown all of is told in full: its length, time
    /// and channel are final, and no byte of the rest can make it damage. Then a window of time
    /// does not read the payloads outside of it.
    fn has_complete_header(&self) -> bool {
        false
    }

    /// The channel of that name. Asked once a channel.
    fn channel(&self, name: Name, source: Arc<str>) -> Channel {
        Channel::new(name, source, Encoding::Unknown)
    }
}

impl<D: Delimited> Source for D {
    fn inputs(&self) -> Result<Vec<Input>, Error> {
        files::expand(&self.paths().0)
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
        let (events, window) = (Events::new(self, context), context.query.window());
        let log = match self.content() {
            Some(content) => LogFile::open_expecting(&split.input, content)?,
            None => LogFile::open(&split.input)?,
        };
        Ok(Box::new(FramedReader::with_window(window, log, split, entry, events, context)?))
    }
}
