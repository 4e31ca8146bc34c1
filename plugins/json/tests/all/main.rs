//! The codec `json`, through the registry.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use proptest::prelude::*;
use serde_json::{Value, json};
use sluice_json as _;
use sluice_model::{
    BatchBuilder, Channel, ChannelId, Codec, EmbeddedSchema, Encoding, Name, PayloadType, Registry,
    Rows,
};

fn channel(schema: Option<&str>) -> Channel {
    let mut channel = Channel::new(Name::from_text("STATUS"), "log", Encoding::Json);
    channel.type_name = Some("Status".into());
    channel.schema = schema
        .map(|text| EmbeddedSchema { encoding: "jsonschema".into(), data: text.as_bytes().into() });
    channel
}

fn codec() -> Box<dyn Codec> {
    Registry::linked().codec("json", json!({})).unwrap()
}

fn embedded(schema: Option<&str>) -> Result<PayloadType, String> {
    codec().embedded(&channel(schema)).unwrap().payload_type
}

/// Decodes payloads; checks that they come back, also with a codec that knows only what the rows
/// say.
fn decode(of: &PayloadType, payloads: &[&[u8]]) -> (Vec<Rows>, Vec<(u32, &'static str)>) {
    let mut batch = BatchBuilder::default();
    payloads.iter().for_each(|payload| batch.push_copy(0, 0, ChannelId(0), payload));
    let events: Vec<u32> = (0..payloads.len() as u32).collect();
    let mut bad = Vec::new();
    let all = of.decode_all(&batch.finish(), &events, &mut bad).unwrap();
    for rows in &all {
        let adopted = codec().adopt(&rows.message, &rows.columns.schema()).unwrap();
        assert_eq!(*adopted.schema(), rows.columns.schema());
        let back = adopted.encode(&rows.columns, &mut Vec::new()).unwrap();
        for (row, event) in rows.events.iter().enumerate() {
            assert_eq!(back.value(row), payloads[*event as usize]);
        }
    }
    (all, bad)
}

fn fields(rows: &Rows, row: usize) -> Value {
    let mut text = Vec::new();
    sluice_kit::json::JsonRows::new(&rows.columns).unwrap().write(row, &mut text);
    serde_json::from_slice(&text).unwrap()
}

const POINTS: &str = r#"{ "type": "object", "properties": {
    "id": { "type": "integer" },
    "image": { "type": "string", "contentEncoding": "base64" },
    "points": { "type": "array", "items": { "type": "object", "properties": {
        "x": { "type": "number" }, "label": { "type": ["string", "null"] } } } },
    "more": {}
} }"#;

#[test]
fn payloads_become_columns_whether_they_are_compact_or_not() {
    let compact = br#"{"id":7,"image":"AAE=","points":[{"x":0.5,"label":"a"},{"x":1.0}]}"#;
    let spaced = br#"{"id": 7, "more": {"k": [1, null]}, "unknown": 1e3}"#;
    let (all, bad) = decode(&embedded(Some(POINTS)).unwrap(), &[compact, spaced]);
    assert_eq!((all.len(), bad), (2, vec![]));
    let points = json!([{ "x": 0.5, "label": "a" }, { "x": 1.0, "label": null }]);
    let wanted = json!({ "id": 7, "image": "AAE=", "points": points, "more": null });
    assert_eq!(fields(&all[0], 0), wanted);
    let wanted = json!({ "id": 7, "image": null, "points": null, "more": "{\"k\":[1,null]}" });
    assert_eq!(fields(&all[1], 0), wanted);
}

#[test]
fn payloads_in_other_spellings_keep_their_order() {
    let schema = r#"{ "properties": { "n": { "type": "number" } } }"#;
    let payloads: [&[u8]; 5] =
        [br#"{"n":1}"#, br#"{"n":1.5}"#, br#"{"n": 2}"#, br#"{"n":3}"#, br#"{"n": 4}"#];
    let (all, bad) = decode(&embedded(Some(schema)).unwrap(), &payloads);
    assert_eq!((all.len(), bad), (2, vec![]));
    assert_eq!((&all[0].events, &all[1].events), (&vec![1], &vec![0, 2, 3, 4]));
    let numbers = (0..4).map(|row| fields(&all[1], row)["n"].as_f64().unwrap());
    assert_eq!(numbers.collect::<Vec<_>>(), [1.0, 2.0, 3.0, 4.0]);
}

#[test]
fn integers_may_be_spelled_with_a_point_or_exponent() {
    let payloads: [&[u8]; 5] = [
        br#"{"id":7.0}"#,
        br#"{"id":-1e3}"#,
        br#"{"id":-0.0}"#,
        br#"{"id":7.5}"#,
        br#"{"id":9007199254740992.0}"#,
    ];
    let (all, bad) = decode(&embedded(Some(POINTS)).unwrap(), &payloads);
    let found: Vec<Value> = all
        .iter()
        .flat_map(|rows| (0..rows.events.len()).map(|row| fields(rows, row)["id"].clone()))
        .collect();
    assert_eq!(found, [json!(7), json!(-1000), json!(0)]);
    assert_eq!(bad.len(), 2, "{bad:?}");
}

#[test]
fn payloads_that_do_not_match_stay_payloads() {
    let payloads: [&[u8]; 6] = [
        br#"{"id":"seven"}"#,
        br#"{"id":18446744073709551615}"#,
        br#"{"image":"no base 64"}"#,
        br#"{"id":7"#,
        b"null",
        b"",
    ];
    let (all, bad) = decode(&embedded(Some(POINTS)).unwrap(), &payloads);
    assert!(all.is_empty());
    let reasons: Vec<&str> = bad.iter().map(|(_, why)| *why).collect();
    assert_eq!(
        reasons[..3],
        [
            "a value is not of the type that the schema says",
            "an integer does not fit into 64 bits",
            "a string is not base64",
        ]
    );
    assert_eq!(reasons.len(), 6);
}

#[test]
fn messages_without_a_schema_are_one_text() {
    let (all, bad) = decode(&embedded(None).unwrap(), &[br#"{"a":[1,2.5]}"#, b"3", b"{"]);
    assert_eq!((all.len(), bad.len()), (1, 1));
    assert_eq!(fields(&all[0], 0), json!({ "value": "{\"a\":[1,2.5]}" }));
}

#[test]
fn a_schema_that_cannot_be_used_says_why() {
    assert!(embedded(Some("{")).unwrap_err().contains("is not JSON"));
    assert!(codec().embedded(&Channel { encoding: Encoding::Cdr, ..channel(None) }).is_none());
    // As the SDK of Foxglove writes it.
    for empty in ["", " \n"] {
        assert_eq!(embedded(Some(empty)).unwrap().schema(), embedded(None).unwrap().schema());
    }
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::vec(("[a-c]", inner), 0..4)
                .prop_map(|all| Value::Object(all.into_iter().collect())),
        ]
    })
}

/// The schema of which a value is an example.
fn schema_of(value: &Value) -> Value {
    match value {
        Value::Null => json!({}),
        Value::Bool(_) => json!({ "type": "boolean" }),
        Value::Number(number) if number.is_i64() => json!({ "type": "integer" }),
        Value::Number(_) => json!({ "type": "number" }),
        Value::String(_) => json!({ "type": "string" }),
        Value::Array(items) => match items.first() {
            Some(first) => json!({ "type": "array", "items": schema_of(first) }),
            None => json!({ "type": "array" }),
        },
        Value::Object(all) => {
            let each = all.iter().map(|(name, value)| (name.clone(), schema_of(value)));
            json!({ "type": "object", "properties": Value::Object(each.collect()) })
        }
    }
}

proptest! {
    #[test]
    fn numbers_keep_their_last_digit(n in any::<f64>().prop_filter("finite", |n| n.is_finite())) {
        let of = embedded(Some(r#"{ "properties": { "n": { "type": "number" } } }"#)).unwrap();
        // The shortest digits that name it.
        let payload = format!(r#"{{"n":{}}}"#, Value::from(n));
        let (all, bad) = decode(&of, &[payload.as_bytes()]);
        prop_assert_eq!((all.len(), bad), (1, vec![]));
        let column = all[0].columns.column_by_name("n").unwrap().as_primitive::<Float64Type>();
        prop_assert_eq!(column.value(0).to_bits(), n.to_bits());
        prop_assert!(all[0].columns.column_by_name("raw_payload").is_none());
    }

    #[test]
    fn any_value_comes_back_in_any_spelling(example in value(), other in value()) {
        let of = embedded(Some(&schema_of(&example).to_string())).unwrap();
        let (compact, pretty) =
            (example.to_string(), serde_json::to_string_pretty(&example).unwrap());
        let other = other.to_string();
        decode(&of, &[compact.as_bytes(), pretty.as_bytes(), other.as_bytes()]);
    }

    #[test]
    fn any_bytes_are_decoded_or_refused(schema in ".{0,40}", payload in any::<Vec<u8>>()) {
        if let Ok(of) = embedded(Some(&schema)) {
            decode(&of, &[&payload]);
        }
    }
}
