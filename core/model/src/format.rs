//! Byte formats: formats whose files are a sequence of events, so that pieces of a file can be
//! written and read independently. Source and sink plugins offer them, and archives can contain any
//! of them.

use std::path::Path;

use bytes::Bytes;

use crate::{Batch, Channels, Encoding, Error, PrepareContext, ReadContext};

/// A format whose files consist of a head, any number of pieces with whole events, and a tail.
///
/// Concatenated pieces must equal what the format's own sink writes.
pub trait ByteFormat: Send + Sync {
    /// The bytes of a file before its first event.
    fn head(&self) -> Result<Vec<u8>, Error> {
        Ok(Vec::new())
    }

    /// The bytes of a file after its last event.
    fn tail(&self) -> Result<Vec<u8>, Error> {
        Ok(Vec::new())
    }

    /// The time in nanoseconds that a reader gets for an event written with this time.
    fn stored_time(&self, time: i64) -> i64 {
        time
    }

    /// Whether the source of a channel is stored, rather than set by the reader.
    fn keeps_sources(&self) -> bool {
        false
    }

    /// The encoding of all payloads if they are always of the same types; `None` if it stores that
    /// of each channel, or readers do not need it.
    fn encoding(&self) -> Option<Encoding> {
        None
    }

    /// Whether readers may give a channel another name or source than it was written with, such as
    /// a number or the name of the file.
    fn may_rename_channels(&self) -> bool {
        false
    }

    /// Whether it can store [`Batch::wide_times`], or reports in [`lengths`](Self::lengths) those
    /// it cannot.
    fn accepts_wide_times(&self) -> bool {
        false
    }

    /// The estimated encoded length of each event. Events that the format cannot store are added to
    /// `context.report.refused`, and what it loses of others to `context.report.losses`.
    fn lengths(&self, batch: &Batch, context: &mut PrepareContext<'_>) -> Result<Vec<u32>, Error>;

    /// Encodes these events, none of them refused, as one piece appended to `out`.
    fn encode(&self, events: &[Batch], channels: &Channels, out: &mut Vec<u8>)
    -> Result<(), Error>;

    /// Decodes the events of one piece, in order, which starts at byte `position` of the whole log.
    /// `input` is the file that it comes from, for messages.
    ///
    /// The inner `Err` says why the piece is not what [`encode`](Self::encode) makes: none of it is
    /// used.
    fn decode(
        &self,
        piece: Bytes,
        position: u64,
        input: &Path,
        context: &ReadContext,
    ) -> Result<Result<Vec<Batch>, String>, Error>;
}
