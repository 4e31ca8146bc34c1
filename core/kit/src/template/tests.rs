//! The text of templates, and the errors of invalid ones.

use sluice_model::{
    Channel, ChannelId, Clock, Encoding, Event, MessageType, Name, Payloads, TypeKey,
};

use super::*;
use arrow_array::types::{Float32Type, Float64Type, Int16Type, Int32Type};
use arrow_array::*;
use arrow_schema::{DataType, Field};
use proptest::prelude::*;
use std::sync::Arc;

fn rows(columns: Vec<(&str, ArrayRef)>) -> Rows {
    let columns: Vec<_> = columns.into_iter().map(|(n, a)| (n, a, true)).collect();
    let columns = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
    let events = (0..columns.num_rows() as u32).collect();
    let message = MessageType::named("t", TypeKey(1)).into();
    Rows { message, payloads: Payloads::Kept, events, columns }
}

fn channel() -> Channel {
    Channel::new(Name::from_text("POSE\n"), "log", Encoding::Lcm)
}

const EVENT: Event<'static> = Event {
    timestamp: 1_194_098_400_123_456_000,
    sequence: -7,
    channel: ChannelId(0),
    payload: b"",
};

/// The text of a template for a row; `None` if a field is missing.
fn written(template: &str, rows: &Rows, row: usize) -> Option<String> {
    let template = Template::parse(template).unwrap();
    let (bound, mut out) = (template.bind(Some(rows)), b"before".to_vec());
    let is_whole = bound.write(&channel(), &EVENT, Some(row), &mut out);
    assert_eq!(is_whole, bound.missing(Some(row)).is_none());
    let text = String::from_utf8(out).unwrap().strip_prefix("before").unwrap().to_owned();
    assert!(is_whole || text.is_empty());
    is_whole.then_some(text)
}

fn whole(template: &str, rows: &Rows) -> String {
    written(template, rows, 0).unwrap()
}

fn pose() -> Rows {
    let pos = [Some([Some(1.5), Some(-0.0), Some(1e-7)]), Some([Some(1.0), None, None])];
    let pos = FixedSizeListArray::from_iter_primitive::<Float64Type, _, _>(pos, 3);
    let ranges = [Some(vec![Some(1.25f32), Some(0.1)]), Some(vec![])];
    rows(vec![
        ("utime", Arc::new(Int64Array::from(vec![Some(1234), None]))),
        ("pos", Arc::new(pos)),
        ("ranges", Arc::new(ListArray::from_iter_primitive::<Float32Type, _, _>(ranges))),
        ("name", Arc::new(StringArray::from(vec!["a\u{1b}[2J\nb", ""]))),
        ("bytes", Arc::new(BinaryArray::from(vec![&[0u8, 255, 16][..], b""]))),
        ("channel", Arc::new(UInt64Array::from(vec![u64::MAX, 0]))),
        ("odd name", Arc::new(BooleanArray::from(vec![true, false]))),
    ])
}

#[test]
fn fields_are_put_in_by_their_paths() {
    let line = "{utime} {pos[0]:.6} {pos[1]:.6} {pos[-1]:.6} {`odd name`}";
    assert_eq!(whole(line, &pose()), "1234 1.500000 -0.000000 0.000000 true");
    assert_eq!(whole("{{{utime}}} }}{{", &pose()), "{1234} }{");
    assert_eq!(whole("", &pose()), "");
}

#[test]
fn lists_are_written_element_by_element() {
    assert_eq!(whole("{ranges[*]:.2}", &pose()), "1.25 0.10");
    assert_eq!(whole("{ranges[*];,}|{ranges[*]:.1; - }", &pose()), "1.25,0.1|1.2 - 0.1");
    assert_eq!(whole("{ranges[*]:.1;,} and {{more}}", &pose()), "1.2,0.1 and {more}");
    assert_eq!(whole("{pos[*]}", &pose()), "1.5 -0.0 1e-7");
    assert_eq!(written("<{ranges[*]}>", &pose(), 1), Some("<>".to_owned()));
    assert_eq!(written("{pos[*]}", &pose(), 1), None, "an element is null");
}

#[test]
fn lists_in_lists_are_written_and_slices_have_their_own_elements() {
    let inner = |n: i32| vec![Some(n), Some(n + 1)];
    let flat = ListArray::from_iter_primitive::<Int32Type, _, _>(
        [inner(0), inner(10), inner(20), inner(30)].map(Some),
    );
    let element = Arc::new(Field::new("e", flat.data_type().clone(), true));
    let offsets = arrow_buffer::OffsetBuffer::from_lengths([1, 2, 1]);
    let list = ListArray::new(element, offsets, Arc::new(flat), None).slice(1, 2);
    let rows = rows(vec![("m", Arc::new(list))]);
    assert_eq!(whole("{m[*][*]}", &rows), "10 11 20 21");
    assert_eq!(whole("{m[*]}", &rows), "[10,11] [20,21]");
    assert_eq!(whole("{m}", &rows), "[[10,11],[20,21]]");
    assert_eq!(written("{m[*][*]:03;/}", &rows, 1).unwrap(), "030/031");
    assert_eq!(written("{m[*][*][*]}", &rows, 0), None);
}

#[test]
fn what_every_event_has_is_there_without_fields() {
    let template =
        Template::parse("{channel} {source} {sequence:04} {timestamp_ns} {timestamp}").unwrap();
    let mut out = Vec::new();
    assert!(template.bind(None).write(&channel(), &EVENT, None, &mut out));
    let wanted = "POSE\\n log -007 1194098400123456000 2007-11-03T14:00:00.123456000Z".to_owned();
    assert_eq!(String::from_utf8(out).unwrap(), wanted);
    assert_eq!(whole("{`channel`}", &pose()), u64::MAX.to_string());
    assert!(template.fields().next().is_none());
}

#[test]
fn times_from_the_start_of_a_log_are_seconds() {
    let mut channel = channel();
    channel.clock = Clock::Relative;
    let (template, mut out) = (Template::parse("{timestamp}").unwrap(), Vec::new());
    let event = Event { timestamp: -10_027_000_001, ..EVENT };
    assert!(template.bind(None).write(&channel, &event, None, &mut out));
    assert_eq!(out, b"-10.027000001");
}

#[test]
fn a_missing_field_leaves_nothing_and_is_named() {
    for (line, row) in [("x{nowhere}", 0), ("{pos[0]} {pos[1]}", 1), ("{utime}", 1)] {
        assert_eq!(written(line, &pose(), row), None, "{line}");
    }
    let template = Template::parse("{utime}{pos[1]}").unwrap();
    let rows = pose();
    assert_eq!(template.bind(Some(&rows)).missing(Some(1)).unwrap().to_string(), "utime");
    assert_eq!(template.bind(None).missing(None).unwrap().to_string(), "utime");
    let named: Vec<_> = template.fields().map(FieldPath::to_string).collect();
    assert_eq!(named, ["utime", "pos[1]"]);
}

#[test]
fn texts_cannot_break_lines_and_bytes_are_base64() {
    assert_eq!(whole("{name} {bytes}", &pose()), "a\\u{1b}[2J\\nb AP8Q");
    assert_eq!(written("<{name}>", &pose(), 1).unwrap(), "<>");
}

#[test]
fn what_is_no_number_is_as_wide_in_characters_as_wanted() {
    let rows = rows(vec![
        ("s", Arc::new(StringArray::from(vec!["é→"]))),
        ("b", Arc::new(BooleanArray::from(vec![true]))),
    ]);
    assert_eq!(whole("{s:4}|{s:1}|{b:06}|{b:3}|", &rows), "  é→|é→|  true|true|");
}

#[test]
fn texts_behind_dictionaries_are_texts() {
    let words: DictionaryArray<Int32Type> = ["say \"so\"", "a\nb"].into_iter().collect();
    let element = Arc::new(Field::new("e", words.data_type().clone(), true));
    let offsets = arrow_buffer::OffsetBuffer::from_lengths([2]);
    let list = ListArray::new(element, offsets, Arc::new(words), None);
    assert_eq!(whole("{l[*];|}", &rows(vec![("l", Arc::new(list))])), "say \"so\"|a\\nb");
}

#[test]
fn a_text_that_is_too_long_is_none_and_no_field_is_missing() {
    let count = MAX_TEXT / 64 + 2;
    let element = Arc::new(Field::new("e", DataType::Int8, true));
    let offsets = arrow_buffer::OffsetBuffer::from_lengths([count]);
    let bytes = Arc::new(Int8Array::from(vec![1; count]));
    let rows = rows(vec![("v", Arc::new(ListArray::new(element, offsets, bytes, None)))]);
    assert!(written("{v[*]}", &rows, 0).is_some());
    let template = Template::parse("{v[*]:64}").unwrap();
    let (bound, mut out) = (template.bind(Some(&rows)), Vec::new());
    assert!(!bound.write(&channel(), &EVENT, Some(0), &mut out));
    assert!(out.is_empty() && bound.missing(Some(0)).is_none());
}

fn float(value: f64, template: &str) -> String {
    whole(template, &rows(vec![("x", Arc::new(Float64Array::from(vec![value])))]))
}

#[test]
fn numbers_are_written_as_c_does_it() {
    for (value, format, wanted) in [
        (0.5, ".0", "0"),
        (1.5, ".0", "2"),
        (2.5, ".0", "2"),
        (0.125, ".2", "0.12"),
        (0.375, ".2", "0.38"),
        (2.675, ".2", "2.67"),
        (0.999_999_5, ".6", "1.000000"),
        (-0.000_000_4, ".6", "-0.000000"),
        (1e300, ".0", &format!("{:.0}", 1e300)),
        (5e-324, ".3", "0.000"),
        (0.1, ".25", "0.1000000000000000055511151"),
        (-2.5, "08.2", "-0002.50"),
        (-2.5, "8.2", "   -2.50"),
        (2.5, "2", "2.5"),
        (f64::NAN, ".6", "nan"),
        (f64::NEG_INFINITY, "06.1", "  -inf"),
        (f64::INFINITY, ".1", "inf"),
    ] {
        assert_eq!(float(value, &format!("{{x:{format}}}")), wanted, "{value} {format}");
    }
    assert_eq!((float(f64::NAN, "{x}"), float(0.1, "{x}")), ("nan".into(), "0.1".into()));
}

#[test]
fn every_kind_of_number_and_time_is_one() {
    let rows = rows(vec![
        ("i", Arc::new(PrimitiveArray::<Int16Type>::from(vec![-5]))),
        ("f", Arc::new(Float32Array::from(vec![0.1]))),
        ("t", Arc::new(TimestampNanosecondArray::from(vec![12]).with_timezone("UTC"))),
        ("d", Arc::new(Date32Array::from(vec![3]))),
        ("b", Arc::new(BooleanArray::from(vec![false]))),
    ]);
    let line = "{i:04} {i:.2} {f} {f:.9} {t:5} {d} {b}";
    assert_eq!(whole(line, &rows), "-005 -5.00 0.1 0.100000001    12 3 false");
}

#[test]
fn texts_of_the_event_are_padded_to_a_width() {
    assert_eq!(whole("{channel:8}|{source:5}|{source:2}", &pose()), "  POSE\\n|  log|log");
    assert_eq!(whole("{timestamp:32}", &pose()), "  2007-11-03T14:00:00.123456000Z");
}

#[test]
fn mistakes_are_told_with_their_places() {
    for (text, part) in [
        ("a}", "at character 2: `}` without `{`"),
        ("ä{x", "at character 2: this brace is not closed"),
        ("{}", "at character 2: expected a name"),
        ("{a b}", "at character 3: expected `.`, `[`, `:` or `}`, found ` `"),
        ("{a[*].x}", "at character 4: `[*]` is only allowed at the end"),
        ("{a[}", "at character 4: expected a whole number"),
        ("{a:}", "at character 3: expected a width"),
        ("{a:6f}", "found `6f`"),
        ("{a:.9999}", "at most 64"),
        ("{a[*]:65}", "at most 64"),
        ("{channel:05}", "takes only a width"),
        ("{timestamp:.3}", "takes only a width"),
        ("{a;,}", "at character 3: separators are for lists"),
        ("{`a}", "this brace is not closed"),
    ] {
        let message = Template::parse(text).unwrap_err();
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn options_read_templates_from_strings() {
    let template: Template = serde_json::from_str("\"{a:.2} {{\"").unwrap();
    assert_eq!(serde_json::to_string(&template).unwrap(), "\"{a:.2} {{\"");
    assert!(serde_json::from_str::<Template>("\"{\"").is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]
        #[test]
    fn any_text_is_a_template_or_a_mistake(text in "[a{}:;*.0-9`é\\[\\]]{0,16}|\\PC{0,12}") {
        if let Ok(template) = Template::parse(&text) {
            prop_assert_eq!(template.to_string(), text);
            let mut out = Vec::new();
            template.bind(None).write(&channel(), &EVENT, None, &mut out);
        }
    }

    #[test]
    fn any_text_is_written_by_a_template_that_escapes_its_braces(
        text in "[{}a`]{0,12}|\\PC{0,12}")
    {
        let shielded = text.replace('{', "{{").replace('}', "}}");
        let (template, mut out) = (Template::parse(&shielded).unwrap(), Vec::new());
        prop_assert!(template.bind(None).write(&channel(), &EVENT, None, &mut out));
        prop_assert_eq!(String::from_utf8(out).unwrap(), text);
    }
}
