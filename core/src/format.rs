//! Byte formats: formats whose files are a run of events, so that pieces of a file can be made and read
//! without the rest of it. A source or sink plugin offers one, and archives hold any of them.

use std::path::Path;

use bytes::Bytes;

use crate::{Batch, Channels, EncodeContext, Error, ReadContext};

/// A format whose files are a head, any number of pieces with whole events, and a tail.
///
/// Pieces, put one behind another, must be what the format's own sink would have written.
pub trait ByteFormat: Send + Sync {
    /// What a file begins with, before its first event.
    fn head(&self) -> Result<Vec<u8>, Error> {
        Ok(Vec::new())
    }

    /// What a file ends with, behind its last event.
    fn tail(&self) -> Result<Vec<u8>, Error> {
        Ok(Vec::new())
    }

    /// The time that a reader will find for an event of this time, in nanoseconds.
    fn stored_time(&self, time: i64) -> i64 {
        time
    }

    /// Whether an event keeps the source of its channel, instead of taking that of whoever reads it.
    fn keeps_sources(&self) -> bool {
        false
    }

    /// Whether it holds [`Batch::wide_times`], and says in [`lengths`](Self::lengths) which it cannot.
    fn accepts_wide_times(&self) -> bool {
        false
    }

    /// About how many bytes each event of the batch will take, one number an event. Events that the
    /// format cannot hold at all are told to `context.refused`; what it cannot hold of others, to
    /// `context.losses`.
    fn lengths(&self, batch: &Batch, context: &mut EncodeContext<'_>) -> Result<Vec<u32>, Error>;

    /// Appends these events, none of them refused, to `out`: one piece.
    fn encode(&self, events: &[Batch], channels: &Channels, out: &mut Vec<u8>)
    -> Result<(), Error>;

    /// The events of one piece, in order. `input` is the file it comes from, for messages.
    ///
    /// `Err` with words if the piece is not what [`encode`](Self::encode) makes: nothing of it is used.
    fn decode(
        &self,
        piece: Bytes,
        input: &Path,
        context: &ReadContext,
    ) -> Result<Result<Vec<Batch>, String>, Error>;
}
