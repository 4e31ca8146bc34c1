//! Trials of byte formats: events survive in pieces, however they are batched, without copies, and
//! what is not a run of whole events is refused as a whole. Damaged logs are trials of sources.

use std::path::Path;

use bytes::Bytes;
use sluice_model::{Batch, BlockPool, ByteFormat, PrepareContext, ReadContext, Registry};

use crate::events::Events;

/// Payloads up to this length lie in the view itself.
const LONGEST_INLINE: usize = 12;

/// Tests the byte format of the source registered under this name, with the kit's mix of events.
///
/// # Panics
///
/// If there is none, or if it breaks a promise.
#[track_caller]
pub fn byte_format(source: &str) {
    let format = Registry::linked().byte_format(source).expect("a linked source has the format");
    let events = Events::mix();
    let (whole, lengths) = (encoded(format, &events, events.len()), lengths(format, &events));
    let total: usize = lengths.iter().sum();
    assert_eq!(total, whole.len(), "`lengths` states what `encode` writes");
    for size in [1, 7, 64] {
        assert!(encoded(format, &events, size) == whole, "batches of {size}: other bytes");
    }
    let batches = decoded(format, &whole).expect("a piece that was encoded is decoded");
    let found: Vec<_> = batches.iter().flat_map(Batch::iter).collect();
    assert_eq!(found.len(), events.len(), "events that were encoded are decoded");
    for (event, due) in found.iter().zip(events.batch.iter()) {
        assert_eq!(event.timestamp, format.stored_time(due.timestamp), "the time that is stored");
        assert!(event.payload == due.payload, "event {}: another payload", due.sequence);
        let (piece, payload) = (whole.as_ptr_range(), event.payload.as_ptr_range());
        let is_view = piece.start <= payload.start && payload.end <= piece.end;
        assert!(
            is_view || event.payload.len() <= LONGEST_INLINE,
            "event {}: payload is copied",
            due.sequence
        );
    }
    assert!(decoded(format, &Bytes::new()).is_ok_and(|batches| batches.is_empty()));
    let (first, both) = (lengths[0], lengths[0] + lengths[1]);
    for cut in (1..both).filter(|cut| *cut != first) {
        assert!(decoded(format, &whole.slice(..cut)).is_err(), "cut at byte {cut}: is decoded");
    }
}

fn lengths(format: &dyn ByteFormat, events: &Events) -> Vec<usize> {
    let buffers = BlockPool::new(16, 1);
    let mut context = PrepareContext::new(&events.channels, &buffers);
    let lengths =
        format.lengths(&events.batch, &mut context).expect("the kit's events are measured");
    assert!(
        context.report.refused.is_empty(),
        "the kit's events fit the format: {:?}",
        context.report.refused
    );
    lengths.into_iter().map(|length| length as usize).collect()
}

fn encoded(format: &dyn ByteFormat, events: &Events, size: usize) -> Bytes {
    let mut bytes = Vec::new();
    let encoded = format.encode(&events.in_batches(size), &events.channels, &mut bytes);
    encoded.expect("the kit's events are encoded");
    bytes.into()
}

fn decoded(format: &dyn ByteFormat, piece: &Bytes) -> Result<Vec<Batch>, String> {
    let context = ReadContext::standalone("conformance");
    let decoded = format.decode(piece.clone(), 0, Path::new("piece"), &context);
    decoded.expect("damage is not an error")
}
