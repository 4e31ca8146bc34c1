//! Parses a JSON line into an event, or says why it is not one. Decoded fields are ignored, because
//! the payload holds them.

#![warn(clippy::indexing_slicing)]

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use sluice_io::escape::printable;
use sluice_model::{Channel, ChannelId, Channels, Clock, Encoding, Error, Name};

use crate::line::USUAL_ENCODING;

/// The maximum length of names and metadata of a line's channel: no run has room for more.
const MAX_CHANNEL_LEN: usize = Channels::MAX_BYTES;
/// The maximum length of a character in bytes.
const MAX_CHAR_LEN: usize = 4;
/// The maximum length of a message, which may quote the line.
const MAX_QUOTED: usize = 160;
/// The maximum number of cached channels, and the maximum length of their keys.
const MAX_CACHED: usize = 1 << 14;
const MAX_CACHED_KEY: usize = 1 << 12;

/// The keys of a line, in any order; others are ignored.
#[derive(Debug, Deserialize)]
struct EventLine<'l> {
    timestamp_ns: i64,
    #[serde(borrow)]
    source: LineText<'l>,
    #[serde(borrow)]
    channel: LineText<'l>,
    sequence: i64,
    size: Option<u64>,
    crc32: Option<u32>,
    #[serde(borrow)]
    payload: Option<LineText<'l>>,
    #[serde(borrow)]
    encoding: Option<LineText<'l>>,
    #[serde(borrow, rename = "type")]
    type_name: Option<LineText<'l>>,
    clock: Option<Clock>,
    #[serde(borrow, default)]
    metadata: BTreeMap<LineText<'l>, LineText<'l>>,
}

/// A text that borrows from the line if it has no escapes.
#[derive(Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
struct LineText<'l>(#[serde(borrow)] Cow<'l, str>);

/// The content of a line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LineContent {
    /// Nothing.
    Blank,
    /// An event.
    Event(EventHead),
    /// Damage: the reason, and the channel if it is known.
    Damage(String, Option<ChannelId>),
}

/// An event whose payload has been decoded.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct EventHead {
    /// Nanoseconds.
    pub(crate) timestamp: i64,
    /// The sequence number.
    pub(crate) sequence: i64,
    /// Its channel.
    pub(crate) channel: ChannelId,
    /// The range of its payload in the buffer.
    pub(crate) payload: Range<usize>,
}

/// Parses lines into events.
#[derive(Debug)]
pub(crate) struct EventLines {
    channels: Arc<Channels>,
    /// Channel ids by everything that a line says of its channel.
    cache: HashMap<Vec<u8>, ChannelId>,
    key: Vec<u8>,
    unknown_encoding: UnknownEncoding,
}

/// The first unknown name of an encoding, to report once.
#[derive(Debug, Default)]
enum UnknownEncoding {
    #[default]
    None,
    Unreported(String),
    Reported,
}

impl EventLines {
    pub(crate) fn new(channels: Arc<Channels>) -> Self {
        let unknown_encoding = UnknownEncoding::default();
        Self { channels, cache: HashMap::new(), key: Vec::new(), unknown_encoding }
    }

    /// The first unknown encoding name, once, in printable form. Such lines are events whose
    /// encoding is unknown.
    pub(crate) fn take_unknown_encoding(&mut self) -> Option<String> {
        let UnknownEncoding::Unreported(word) = &mut self.unknown_encoding else { return None };
        let word = std::mem::take(word);
        self.unknown_encoding = UnknownEncoding::Reported;
        Some(word)
    }

    /// The event of a line. Appends its payload to `payloads`, or nothing if the line is damaged.
    ///
    /// `Err` means that the run has too many channels.
    pub(crate) fn read(
        &mut self,
        line: &[u8],
        payloads: &mut Vec<u8>,
    ) -> Result<LineContent, Error> {
        if line.trim_ascii().is_empty() {
            return Ok(LineContent::Blank);
        }
        if let Some(reason) = not_an_object(line) {
            return Ok(LineContent::Damage(reason, None));
        }
        let line: EventLine<'_> = match serde_json::from_slice(line) {
            Ok(line) => line,
            Err(error) => return Ok(LineContent::Damage(not_an_event(&error), None)),
        };
        let Some(channel) = self.channel(&line)? else {
            let reason = format!(
                "source, channel and metadata of the line are longer than {MAX_CHANNEL_LEN} bytes"
            );
            return Ok(LineContent::Damage(reason, None));
        };
        let start = payloads.len();
        match payload(&line, payloads) {
            Ok(()) => Ok(LineContent::Event(EventHead {
                timestamp: line.timestamp_ns,
                sequence: line.sequence,
                channel,
                payload: start..payloads.len(),
            })),
            Err(reason) => {
                payloads.truncate(start);
                Ok(LineContent::Damage(reason, Some(channel)))
            }
        }
    }

    /// The channel of a line; `None` if its description is too long.
    fn channel(&mut self, line: &EventLine<'_>) -> Result<Option<ChannelId>, Error> {
        line.write_key(&mut self.key);
        if let Some(id) = self.cache.get(&self.key) {
            return Ok(Some(*id));
        }
        if self.key.len() > MAX_CHANNEL_LEN {
            return Ok(None);
        }
        if let (Some(word), UnknownEncoding::None) =
            (line.unknown_encoding(), &self.unknown_encoding)
        {
            self.unknown_encoding = UnknownEncoding::Unreported(excerpt(word));
        }
        let id = self.channels.intern(line.channel())?;
        if self.key.len() <= MAX_CACHED_KEY {
            // A damaged file can name every event differently. What is evicted is interned again.
            if self.cache.len() >= MAX_CACHED {
                self.cache.clear();
            }
            self.cache.insert(self.key.clone(), id);
        }
        Ok(Some(id))
    }
}

impl EventLine<'_> {
    /// Writes everything that the line says of its channel to `key`, unambiguously.
    fn write_key(&self, key: &mut Vec<u8>) {
        key.clear();
        let mut push = |text: Option<&LineText<'_>>| {
            let text = text.map(|text| text.0.as_bytes());
            // Absent differs from empty.
            let len = text.map_or(0, |text| text.len() as u64 + 1);
            key.extend_from_slice(&len.to_le_bytes());
            key.extend_from_slice(text.unwrap_or_default());
        };
        push(Some(&self.source));
        push(Some(&self.channel));
        push(self.encoding.as_ref());
        push(self.type_name.as_ref());
        for (name, value) in &self.metadata {
            push(Some(name));
            push(Some(value));
        }
        key.push(u8::from(self.clock == Some(Clock::Relative)));
    }

    /// The line's encoding, if its name is unknown.
    fn unknown_encoding(&self) -> Option<&str> {
        let word = &*self.encoding.as_ref()?.0;
        (Encoding::from_word(word).as_str() != word).then_some(word)
    }

    fn channel(&self) -> Channel {
        let word = |word: &LineText<'_>| Encoding::from_word(&word.0);
        let encoding = self.encoding.as_ref().map_or(USUAL_ENCODING, word);
        let metadata = self.metadata.iter().map(|(k, v)| (k.0.to_string(), v.0.to_string()));
        Channel {
            type_name: self.type_name.as_ref().map(|name| (*name.0).into()),
            clock: self.clock.unwrap_or_default(),
            metadata: metadata.collect(),
            ..Channel::new(Name::from_text(&self.channel.0), &*self.source.0, encoding)
        }
    }
}

/// Why a line without a payload is no event.
pub(super) const NO_PAYLOAD: &str = "no payload in this line; write with `payload = true` \
                                     (convert: `--sink-option payload=true`, cat: `--payload`)";

/// Appends the payload of a line. `Err` says why it is not what was written.
fn payload(line: &EventLine<'_>, out: &mut Vec<u8>) -> Result<(), String> {
    let start = out.len();
    match (&line.payload, line.size) {
        (Some(text), _) => STANDARD
            .decode_vec(&*text.0, out)
            .map_err(|error| format!("the payload is not base64: {error}"))?,
        (None, Some(0)) => {}
        (None, _) => return Err(NO_PAYLOAD.to_owned()),
    }
    let payload = out.get(start..).unwrap_or_default();
    let size = line.size.ok_or("expected a number as `size`, found none")?;
    if payload.len() as u64 != size {
        let len = payload.len();
        return Err(format!("expected a payload of {size} bytes (`size`), found {len}"));
    }
    let Some(wanted) = line.crc32 else { return Ok(()) };
    let found = crc32fast::hash(payload);
    if found != wanted {
        return Err(format!(
            "expected the CRC-32 {wanted} (`crc32`) of the payload, found {found}"
        ));
    }
    Ok(())
}

/// Why a line that does not start like an object is not an event. Lists never are.
fn not_an_object(line: &[u8]) -> Option<String> {
    let begin = line.trim_ascii_start();
    if begin.first() == Some(&b'{') {
        return None;
    }
    let begin = begin.chunks(MAX_CHAR_LEN).next().unwrap_or_default();
    let found: String = String::from_utf8_lossy(begin).chars().take(1).collect();
    Some(format!("not an event: expected an object, `{{…}}`, found `{}`", printable(&found)))
}

/// The start of a text, without characters that control a terminal.
fn excerpt(text: &str) -> String {
    let text = printable(text);
    let excerpt: String = text.chars().take(MAX_QUOTED).collect();
    let more = if excerpt.len() < text.len() { "…" } else { "" };
    excerpt + more
}

/// Why a line is not an event.
fn not_an_event(error: &serde_json::Error) -> String {
    let text = error.to_string();
    // The position of the damage already names the line.
    let message = text.rsplit_once(" at line ").map_or(&*text, |(message, _)| message);
    let what = if error.is_data() { "not an event" } else { "not JSON" };
    format!("{what}: {}, at column {} of the line", excerpt(message), error.column())
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test that cannot go on has failed")]
mod tests {
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
        let (found, payloads, _) = read(
            r#"{"timestamp_ns":0,"source":"s","channel":"c","sequence":0,"size":0,"crc32":0}"#,
        );
        assert!(matches!(found, LineContent::Event(_)) && payloads == b"before");
        for keys in [&["payload"][..], &["payload", "size", "crc32"]] {
            let reason = reason(&without(keys));
            assert!(reason.starts_with("no payload in this line; write with `payload = true`"));
            assert!(reason.contains("--sink-option payload=true") && reason.contains("--payload"));
        }
    }

    #[test]
    fn a_payload_that_does_not_match_size_or_crc_is_damage() {
        assert_eq!(
            reason(&with("size", 8.into())),
            "expected a payload of 8 bytes (`size`), found 9"
        );
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
            assert!(
                reason.starts_with(&format!("not an event: missing field `{key}`")),
                "{reason}"
            );
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
        assert!(
            reason(&with("channel", "x".repeat(MAX_CHANNEL_LEN).into())).contains("longer than")
        );
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
}
