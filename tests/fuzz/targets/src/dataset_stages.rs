//! Options of the stages that make rows for datasets: rates, fields of channels, tables of
//! episodes.

use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use serde_json::{Value, json};
use sluice_model::{
    Batch, BatchBuilder, Channel, Channels, Encoding, MessageType, Name, Payloads, Rows, Stage,
    StageContext, TypeKey,
};

use crate::inputs;

/// The time of the first row.
const ORIGIN: i64 = 1_000_000_000;
const ROWS: usize = 24;

/// Options of `align` and `episodes` and tables of episodes are refused with a reason, or make a
/// stage; `episodes` accounts for every row, and cuts the same in batches of any size.
pub fn dataset_stages(bytes: &[u8]) {
    let Some((which, rest)) = bytes.split_first() else { return };
    let options = match which % 4 {
        0 => {
            let Ok(options) = serde_json::from_slice::<Value>(rest) else { return };
            return drop(made("align", options));
        }
        1 => match serde_json::from_slice::<Value>(rest) {
            // Files that an input names are not read.
            Ok(options) if options.get("table").is_none() => options,
            _ => return,
        },
        2 => json!({ "table": inputs::file("episodes.csv", rest) }),
        _ => json!({ "table": inputs::file("episodes.toml", rest) }),
    };
    let Some(stage) = made("episodes", options.clone()) else { return };
    let whole = output(stage, ROWS);
    let again = made("episodes", options).expect("it was made before");
    assert_eq!(whole, output(again, 5));
}

/// The stage; `None` if its options are refused.
fn made(name: &str, options: Value) -> Option<Stage> {
    match inputs::stage(name, options) {
        Ok(stage) => Some(stage),
        Err(refusal) => {
            assert!(!refusal.message.is_empty());
            None
        }
    }
}

/// The numbers of the rows that pass in batches of at most this many; `None` if the stage fails.
fn output(stage: Stage, most: usize) -> Option<Vec<i64>> {
    let Stage::Fold(mut fold) = stage else { panic!("`episodes` is a fold") };
    let channels = Channels::default();
    let mut context = StageContext::new(&channels, Some(ORIGIN));
    let mut out = Vec::new();
    let numbers: Vec<usize> = (0..ROWS).collect();
    for some in numbers.chunks(most) {
        out.extend(fold.push(batch(some, &channels), &mut context).ok()?);
    }
    out.extend(fold.finish(&mut context).ok()?);
    let passed: Vec<i64> = out.iter().flat_map(|batch| batch.sequences().to_vec()).collect();
    assert_eq!(passed.len() as u64 + context.report.filtered, ROWS as u64);
    Some(passed)
}

/// Rows with a hole, whose fields change.
fn batch(numbers: &[usize], channels: &Channels) -> Batch {
    let channel = Channel::new(Name::from_text("aligned"), "log", Encoding::Unknown);
    let id = channels.intern(channel).expect("few channels");
    let mut builder = BatchBuilder::default();
    for n in numbers {
        let hole = if *n > 14 { 3_000_000_000 } else { 0 };
        builder.push_copy(ORIGIN + *n as i64 * 100_000_000 + hole, *n as i64, id, b"");
    }
    let x = numbers.iter().map(|n| (*n as f64 * 0.7).sin());
    let trial = numbers.iter().map(|n| (*n % 9 != 3).then_some(*n as i64 / 6));
    let mode = numbers.iter().map(|n| ["auto", "manual"][*n / 10 % 2]);
    let columns: [(&str, ArrayRef); 3] = [
        ("x", Arc::new(Float64Array::from_iter_values(x))),
        ("trial", Arc::new(trial.collect::<Int64Array>())),
        ("mode", Arc::new(StringArray::from_iter_values(mode))),
    ];
    let columns = RecordBatch::try_from_iter(columns).expect("columns of one length");
    let message = Arc::new(MessageType::named("row", TypeKey(1)));
    let events = (0..numbers.len() as u32).collect();
    let rows = Rows { message, payloads: Payloads::Gone, events, columns };
    builder.finish().with_rows(vec![rows])
}
