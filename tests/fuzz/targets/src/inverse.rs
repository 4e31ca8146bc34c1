//! Checks that decoded payloads encode to the same bytes, for any format.

use arrow_array::RecordBatch;
use sluice_model::{BatchBuilder, ChannelId, PayloadType};

/// Decodes the payloads and encodes the rows again; returns the columns.
///
/// # Panics
///
/// If a payload is neither decoded nor refused, or encodes to other bytes.
pub(crate) fn check_round_trip(form: &PayloadType, payloads: &[Vec<u8>]) -> RecordBatch {
    let mut batch = BatchBuilder::default();
    for (n, payload) in (0i64..).zip(payloads) {
        batch.push_copy(n, n, ChannelId(0), payload);
    }
    let events: Vec<u32> = (0..payloads.len() as u32).collect();
    let mut bad = Vec::new();
    let rows = form.decode(&batch.finish(), &events, &mut bad).expect("payloads are no errors");
    assert_eq!(rows.events.len() + bad.len(), payloads.len());
    assert!(bad.iter().all(|(_, why)| !why.is_empty()));
    bad.clear();
    let encoded = form.encode(&rows.columns, &mut bad).expect("the columns are its own");
    assert!(bad.is_empty(), "{bad:?}");
    for (event, payload) in rows.events.iter().zip(encoded.iter()) {
        assert_eq!(payload, Some(&payloads[*event as usize][..]));
    }
    rows.columns
}
