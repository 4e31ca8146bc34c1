//! Conditions on events, as the stage `filter` reads them.

use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, Float64Array, Int64Array, ListArray, NullArray,
    RecordBatch, StringArray, UInt64Array,
};
use sluice_model::{
    Batch, BatchBuilder, Channel, Channels, Encoding, MessageType, Name, Payloads, Rows,
    StageContext, TypeKey,
};
use sluice_stages::fuzzing::Condition;

use crate::inputs;

/// No text makes parsing a condition panic; a parsed one decides the same about an event in any
/// batch.
pub fn condition(bytes: &[u8]) {
    let condition = match Condition::parse(inputs::text(bytes)) {
        Ok(condition) => condition,
        Err(what) => return assert!(!what.is_empty()),
    };
    let channels = Channels::default();
    let batch = batch(&channels);
    let decide = |batch: &Batch| {
        let mut context = StageContext::new(&channels, None);
        let decided =
            condition.decide(batch, |_| true, &mut context).expect("no event is an error");
        assert_eq!(decided.len(), batch.len());
        assert!(context.report.notes.iter().all(|(what, count)| !what.is_empty() && *count > 0));
        decided
    };
    let whole = decide(&batch);
    for odd in [0, 1] {
        let half = decide(&batch.retain(|row| row % 2 == odd));
        assert!(whole.iter().skip(odd).step_by(2).eq(&half), "{whole:?} and {half:?}");
    }
}

/// Three events with a field of every kind, and one that is not decoded.
fn batch(channels: &Channels) -> Batch {
    let mut builder = BatchBuilder::default();
    for (n, name) in (0..).zip(["POSE", "POSE", "GPS", "odd \"name\""]) {
        let channel = Channel::new(Name::from_text(name), "log", Encoding::Lcm);
        let id = channels.intern(channel).expect("few channels");
        builder.push_copy(n * 1_000_000_007, -n, id, &[7; 3]);
    }
    let lists = [Some(vec![Some(1), Some(2)]), None, Some(vec![])];
    let columns: [(&str, ArrayRef); 9] = [
        ("n", Arc::new(Int64Array::from(vec![Some(i64::MIN), None, Some(-3)]))),
        ("x", Arc::new(Float64Array::from(vec![1.5, f64::NAN, -3.0]))),
        ("u", Arc::new(UInt64Array::from(vec![u64::MAX, 0, 7]))),
        ("s", Arc::new(StringArray::from(vec![Some("abc"), Some(""), None]))),
        ("b", Arc::new(BooleanArray::from(vec![true, false, true]))),
        ("l", Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(lists))),
        ("raw", Arc::new(BinaryArray::from(vec![&[1u8, 255][..], b"", b"a"]))),
        ("odd name", Arc::new(Int64Array::from(vec![i64::MAX, 1, 0]))),
        ("nothing", Arc::new(NullArray::new(3))),
    ];
    let columns = columns.into_iter().map(|(name, column)| (name, column, true));
    let columns = RecordBatch::try_from_iter_with_nullable(columns).expect("as long as each other");
    let message = MessageType::named("t", TypeKey(1)).into();
    let rows = Rows { message, payloads: Payloads::Kept, events: vec![0, 1, 2], columns };
    builder.finish().with_rows(vec![rows])
}
