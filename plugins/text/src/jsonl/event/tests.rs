//! Tests of [`super`].

#![expect(clippy::indexing_slicing, reason = "a test that cannot go on has failed")]

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn line() -> Value {
    json!({ "timestamp_ns": -5, "source": "log", "channel": "POSE", "sequence": 7, "size": 9,
        "crc32": 0xcbf4_3926u32, "payload": "MTIzNDU2Nzg5" })
}

fn with(key: &str, value: Value) -> String {
    let mut line = line();
    line[key] = value;
    line.to_string()
}

fn without(keys: &[&str]) -> String {
    let mut line = line();
    for key in keys {
        line.as_object_mut().unwrap().remove(*key);
    }
    line.to_string()
}

fn read(line: &str) -> (LineContent, Vec<u8>, Arc<Channels>) {
    let (channels, mut payloads) = (Arc::new(Channels::default()), b"before".to_vec());
    let mut lines = EventLines::new(Arc::clone(&channels));
    let found = lines.read(line.as_bytes(), &mut payloads).unwrap();
    (found, payloads, channels)
}

fn reason(line: &str) -> String {
    let (found, payloads, _) = read(line);
    assert_eq!(payloads, b"before", "damage leaves no payload behind");
    match found {
        LineContent::Damage(reason, _) => reason,
        found => panic!("{line}: {found:?}"),
    }
}

fn channel(line: &str) -> Channel {
    let (found, _, channels) = read(line);
    assert!(matches!(found, LineContent::Event(_)), "{line}: {found:?}");
    Channel::clone(&channels.since(0)[0])
}

#[test]
fn a_line_is_an_event() {
    let (found, payloads, channels) = read(&line().to_string());
    let LineContent::Event(head) = found else { panic!("{found:?}") };
    assert_eq!((head.timestamp, head.sequence), (-5, 7));
    assert_eq!(payloads[head.payload], *b"123456789");
    let wanted = Channel::new(Name::from_text("POSE"), "log", Encoding::Lcm);
    assert_eq!(*channels.get(head.channel), wanted);
}

#[test]
fn keys_come_in_any_order_and_others_do_not_matter() {
    let shuffled = r#" {"payload":"","fields":{"a":[1,{}]},"size":0,"channel":"\u0041","x":null,
        "sequence":1,"source":"\"s\"","timestamp_ns":9223372036854775807} "#;
    let wanted = Channel::new(Name::from_text("A"), "\"s\"", Encoding::Lcm);
    assert_eq!(channel(&shuffled.replace('\n', " ")), wanted);
}

#[test]
fn other_attributes_of_a_channel_are_read() {
    let mut line = line();
    line["encoding"] = "ice".into();
    line["type"] = "orca.Laser".into();
    line["clock"] = "relative".into();
    line["metadata"] = json!({ "b": "2", "a": "" });
    line["channel"] = "a\\xff\\x5cx41".into();
    let found = channel(&line.to_string());
    assert_eq!(found.encoding, Encoding::Ice);
    assert_eq!(found.type_name.as_deref(), Some("orca.Laser"));
    assert_eq!(found.clock, Clock::Relative);
    let metadata = [("a", ""), ("b", "2")].map(|(k, v)| (k.to_owned(), v.to_owned()));
    assert_eq!(found.metadata, metadata.into());
    assert_eq!(found.name.as_bytes(), b"a\xff\\x41");
    assert_eq!(channel(&with("encoding", "unknown".into())).encoding, Encoding::Unknown);
}

#[test]
fn channels_that_differ_in_anything_are_kept_apart() {
    let (channels, mut payloads) = (Arc::new(Channels::default()), Vec::new());
    let mut lines = EventLines::new(Arc::clone(&channels));
    let others = [
        line().to_string(),
        with("source", "logPOSE".into()),
        with("channel", "".into()),
        with("encoding", "text".into()),
        with("type", "".into()),
        with("type", "t".into()),
        with("clock", "relative".into()),
        with("metadata", json!({ "a": "b" })),
        with("metadata", json!({ "a": "b", "c": "d" })),
    ];
    for line in others.iter().chain(&others) {
        let found = lines.read(line.as_bytes(), &mut payloads).unwrap();
        assert!(matches!(found, LineContent::Event(_)), "{line}: {found:?}");
    }
    assert_eq!(channels.len(), others.len());
}

#[test]
fn lines_without_a_payload_are_events_only_if_they_had_none() {
    let (found, payloads, _) =
        read(r#"{"timestamp_ns":0,"source":"s","channel":"c","sequence":0,"size":0,"crc32":0}"#);
    assert!(matches!(found, LineContent::Event(_)) && payloads == b"before");
    for keys in [&["payload"][..], &["payload", "size", "crc32"]] {
        let reason = reason(&without(keys));
        assert!(reason.starts_with("no payload in this line; write with `payload = true`"));
        assert!(reason.contains("--sink-option payload=true") && reason.contains("--payload"));
    }
}

#[test]
fn a_payload_may_be_text_which_is_ignored_beside_base64() {
    let mut line = line();
    line.as_object_mut().unwrap().remove("payload");
    line["payload_text"] = "123456789".into();
    assert!(matches!(read(&line.to_string()).0, LineContent::Event(_)));
    assert_eq!(read(&line.to_string()).1, b"before123456789");
    line["payload"] = "MTIzNDU2Nzg5".into();
    line["payload_text"] = "more".into();
    assert!(matches!(read(&line.to_string()).0, LineContent::Event(_)));
    assert_eq!(read(&line.to_string()).1, b"before123456789");
}

#[test]
fn a_payload_that_does_not_match_size_or_crc_is_damage() {
    assert_eq!(reason(&with("size", 8.into())), "expected a payload of 8 bytes (`size`), found 9");
    let wanted = "expected the CRC-32 1 (`crc32`) of the payload, found 3421780262";
    assert_eq!(reason(&with("crc32", 1.into())), wanted);
    assert!(matches!(read(&without(&["crc32"])).0, LineContent::Event(_)));
    assert!(reason(&with("payload", "MTIzNDU2Nzg".into())).contains("not base64"));
    assert!(reason(&without(&["size"])).contains("`size`"));
}

#[test]
fn a_line_that_is_not_an_event_is_damage_with_a_reason() {
    assert!(reason("{\"timestamp_ns\":1").starts_with("not JSON: EOF while parsing an object"));
    for key in ["timestamp_ns", "source", "channel", "sequence"] {
        let reason = reason(&without(&[key]));
        assert!(reason.starts_with(&format!("not an event: missing field `{key}`")), "{reason}");
    }
    let wrong = reason(&with("timestamp_ns", "now".into()));
    let wanted =
        "not an event: invalid type: string \"now\", expected i64, at column 21 of the line";
    assert_eq!(wrong, wanted);
    for line in [
        "[]",
        "\u{fffd}",
        "{}{}",
        &with("clock", "local".into()),
        &with("metadata", json!({ "a": 1 })),
        &with("timestamp_ns", json!(9_223_372_036_854_775_808u64)),
        &with("sequence", json!(1.5)),
        &format!("{}{}", "[".repeat(100_000), "]".repeat(100_000)),
    ] {
        reason(line);
    }
}

#[test]
fn a_list_is_not_an_event_whatever_is_in_it() {
    for list in [
        r#"[1,"log","A",0,2,2659403885,"YWI=",null,null,null,{}]"#,
        r#" [1,"log","A",0,0,null,null,null,null,null]"#,
    ] {
        assert_eq!(reason(list), "not an event: expected an object, `{…}`, found `[`");
    }
    assert!(reason("\u{1b}[2J").ends_with("found `\\u{1b}`"), "{}", reason("\u{1b}[2J"));
    assert!(reason("ü").ends_with("found `ü`"));
}

#[test]
fn an_unknown_encoding_is_reported_once() {
    let (channels, mut payloads) = (Arc::new(Channels::default()), Vec::new());
    let mut lines = EventLines::new(Arc::clone(&channels));
    for word in ["vel", "unknown", "proto", "proto", "LCM"] {
        let line = with("encoding", word.into());
        let found = lines.read(line.as_bytes(), &mut payloads).unwrap();
        assert!(matches!(found, LineContent::Event(_)), "{line}: {found:?}");
    }
    assert_eq!(lines.take_unknown_encoding().as_deref(), Some("proto"));
    let long = with("encoding", "\u{1b}".repeat(10_000).into());
    lines.read(long.as_bytes(), &mut payloads).unwrap();
    assert_eq!(lines.take_unknown_encoding(), None);
    assert_eq!(channels.get(ChannelId(1)).encoding, Encoding::Unknown);
}

#[test]
fn channels_may_have_much_metadata() {
    let channels = Arc::new(Channels::default());
    let mut lines = EventLines::new(Arc::clone(&channels));
    let about = "x".repeat(1 << 20);
    let long = with("metadata", serde_json::json!({ "about": about }));
    for _ in 0..2 {
        let found = lines.read(long.as_bytes(), &mut Vec::new()).unwrap();
        assert!(matches!(found, LineContent::Event(_)), "{found:?}");
    }
    assert_eq!((channels.len(), &channels.get(ChannelId(0)).metadata["about"]), (1, &about));
}

#[test]
fn reasons_stay_short_whatever_a_line_holds() {
    let long = reason(&with("timestamp_ns", "ü\u{1b}".repeat(10_000).into()));
    assert!(long.len() < 1_000 && !long.contains('\u{1b}'), "{long}");
    assert!(reason(&with("channel", "x".repeat(MAX_CHANNEL_LEN).into())).contains("longer than"));
}

proptest! {
    #[test]
    fn any_bytes_are_an_event_or_damage(line in prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..60),
        (any::<prop::sample::Index>(), any::<u8>()).prop_map(|(at, byte)| {
            let mut line = line().to_string().into_bytes();
            let at = at.index(line.len());
            line[at] = byte;
            line
        })])
    {
        let mut payloads = Vec::new();
        let mut lines = EventLines::new(Arc::default());
        match lines.read(&line, &mut payloads).unwrap() {
            LineContent::Event(head) => prop_assert_eq!(head.payload, 0..payloads.len()),
            _ => prop_assert!(payloads.is_empty()),
        }
    }
}
