//! Templates, and their number formatting.

use std::sync::{Arc, LazyLock};

use arrow_array::types::{Float32Type, Float64Type};
use arrow_array::{
    ArrayRef, BinaryArray, FixedSizeListArray, Float32Array, Float64Array, Int64Array, ListArray,
    RecordBatch, StringArray, UInt64Array,
};
use sluice_kit::Template;
use sluice_model::{
    Channel, ChannelId, Clock, Encoding, Event, MessageType, Name, Payloads, Rows, TypeKey,
};

use crate::inputs;

/// Fields of every kind, two rows of each.
static ROWS: LazyLock<Rows> = LazyLock::new(|| {
    let pos = [Some([Some(1.5), Some(-0.0), Some(1e-7)]), Some([Some(1.0), None, None])];
    let ranges = [Some(vec![Some(1.25f32), Some(0.1)]), Some(vec![])];
    let columns: [(&str, ArrayRef); 8] = [
        ("x", Arc::new(Float64Array::from(vec![f64::NAN, 1e300]))),
        ("f", Arc::new(Float32Array::from(vec![0.1, f32::NEG_INFINITY]))),
        ("n", Arc::new(Int64Array::from(vec![Some(i64::MIN), None]))),
        ("u", Arc::new(UInt64Array::from(vec![u64::MAX, 0]))),
        ("p", Arc::new(FixedSizeListArray::from_iter_primitive::<Float64Type, _, _>(pos, 3))),
        ("l", Arc::new(ListArray::from_iter_primitive::<Float32Type, _, _>(ranges))),
        ("s", Arc::new(StringArray::from(vec!["a\u{1b}[2J\nb", "é→"]))),
        ("raw", Arc::new(BinaryArray::from(vec![&[0u8, 255, 16][..], b""]))),
    ];
    rows(columns.to_vec())
});

fn rows(columns: Vec<(&str, ArrayRef)>) -> Rows {
    let columns = columns.into_iter().map(|(name, column)| (name, column, true));
    let columns = RecordBatch::try_from_iter_with_nullable(columns).expect("as long as each other");
    let events = (0..columns.num_rows() as u32).collect();
    let message = MessageType::named("t", TypeKey(1)).into();
    Rows { message, payloads: Payloads::Kept, events, columns }
}

/// Any text is a template or refused; it writes text or names the missing field; it adds no control
/// characters; and decimals are those of the exact value.
pub fn template(bytes: &[u8]) {
    let (number, text) =
        bytes.split_first_chunk::<9>().map_or((None, bytes), |(number, text)| (Some(number), text));
    if let Some([decimals, number @ ..]) = number {
        is_exact(f64::from_le_bytes(*number), usize::from(decimals % 65));
    }
    let text = inputs::text(text);
    let template = match Template::parse(text) {
        Ok(template) => template,
        Err(what) => return assert!(what.contains("at character")),
    };
    assert_eq!(template.to_string(), text);
    let written = serde_json::to_string(&template).expect("it is a text");
    assert_eq!(serde_json::from_str::<Template>(&written).expect("it was written"), template);
    is_written(&template, &ROWS, Some(0));
    is_written(&template, &ROWS, Some(1));
    let bound = template.bind(None);
    let is_written = bound.write(&channel(), &EVENT, None, &mut Vec::new());
    assert_eq!(is_written, template.fields().next().is_none());
}

const EVENT: Event<'static> =
    Event { timestamp: i64::MIN, sequence: -7, channel: ChannelId(0), payload: b"" };

fn channel() -> Channel {
    let mut channel = Channel::new(Name::from_bytes(b"POSE\n\xff"), "log", Encoding::Lcm);
    channel.clock = Clock::Relative;
    channel
}

fn is_written(template: &Template, rows: &Rows, row: Option<usize>) {
    let (bound, mut out) = (template.bind(Some(rows)), b"before".to_vec());
    let is_whole = bound.write(&channel(), &EVENT, row, &mut out);
    assert_eq!(is_whole, bound.missing(row).is_none());
    let text = out.strip_prefix(b"before").expect("nothing is taken back");
    assert!(is_whole || text.is_empty());
    let text = str::from_utf8(text).expect("text is UTF-8");
    let count = |text: &str| text.chars().filter(|c| c.is_control()).count();
    // Separators are between elements, of which there are at most three.
    assert!(count(text) <= 3 * count(&template.to_string()));
}

fn is_exact(number: f64, decimals: usize) {
    if !number.is_finite() {
        return;
    }
    let rows = rows(vec![("x", Arc::new(Float64Array::from(vec![number])))]);
    let template = Template::parse(&format!("{{x:.{decimals}}}|{{x}}")).expect("it is a template");
    let mut out = Vec::new();
    assert!(template.bind(Some(&rows)).write(&channel(), &EVENT, Some(0), &mut out));
    let text = String::from_utf8(out).expect("text is UTF-8");
    let (with_decimals, shortest) = text.split_once('|').expect("there is one");
    assert_eq!(with_decimals, format!("{number:.decimals$}"));
    assert_eq!(shortest.parse::<f64>().map(f64::to_bits), Ok(number.to_bits()));
}
