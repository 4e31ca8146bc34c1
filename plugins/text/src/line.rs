//! Writes events as lines: JSON for programs, text for people.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_io::escape::{json_escaped, printable};
use sluice_model::{Batch, Channel, Channels, Clock, Encoding, Error, Event, PerChannel};

use crate::abbreviation::{MAX_CHARACTERS, abbreviated};
use crate::fields::{DecodedRows, GonePayloads};
use crate::payload::{JsonPayload, is_readable};
use crate::write::{self, TimestampWriter};

/// Optional parts of a JSON line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JsonParts {
    /// `crc32`: the CRC-32 of the payload as a number, as in zip and PNG.
    pub crc32: bool,
    /// The payload, preceded by what is needed to read the event back: `encoding`, `type`, `clock`
    /// and `metadata` of its channel, if they differ from the default.
    pub payload: JsonPayload,
}

/// The encoding of channels whose lines name none.
pub(crate) const USUAL_ENCODING: Encoding = Encoding::Lcm;

/// Writes events as JSON lines:
/// `{"timestamp_ns":…,"source":"…","channel":"…","sequence":…,"size":…,"crc32":…,"fields":{…},"payload":"…"}`.
///
/// `fields` is there if an event is decoded. `size` and `crc32` are null if its payload was
/// dropped. Can be used from any thread.
#[derive(Debug, Default)]
pub struct JsonLines {
    channel_parts: PerChannel<Arc<ChannelParts>>,
}

/// What the lines of a channel share.
#[derive(Debug)]
struct ChannelParts {
    /// Source and name: what is between the values of time and sequence number.
    names: Vec<u8>,
    /// Whether times are relative to the start of the log.
    is_relative: bool,
    /// Other attributes of the channel, for lines with a payload.
    facts: Vec<u8>,
}

impl JsonLines {
    /// Appends a line for each event of `batch`.
    ///
    /// `Err` if a decoded column cannot be written as JSON.
    pub fn write(
        &self,
        batch: &Batch,
        channels: &Channels,
        parts: JsonParts,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let channel_parts =
            self.channel_parts.table(channels, |channel| Ok(ChannelParts::new(channel).into()))?;
        let (mut decoded, gone_payloads) =
            (DecodedRows::from_batch(batch)?, GonePayloads::from_batch(batch));
        for (row, event) in batch.iter().enumerate() {
            let shared = &channel_parts[event.channel.index()];
            write_json_head(&event, &shared.names, out);
            write_json_payload_facts(
                (!gone_payloads.has(row)).then_some(event.payload),
                parts,
                out,
            );
            decoded.write(row, ",\"fields\":", out);
            if shared.is_relative {
                out.extend_from_slice(b",\"clock\":\"relative\"");
            }
            if parts.payload != JsonPayload::None {
                out.extend_from_slice(&shared.facts);
                parts.payload.write(event.payload, out);
            }
            out.extend_from_slice(b"}\n");
        }
        Ok(())
    }
}

fn write_json_head(event: &Event<'_>, names: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"timestamp_ns\":");
    write::integer(out, event.timestamp);
    out.extend_from_slice(names);
    write::integer(out, event.sequence);
}

/// Size and CRC of a payload, which may have been dropped.
fn write_json_payload_facts(payload: Option<&[u8]>, parts: JsonParts, out: &mut Vec<u8>) {
    let write = |out: &mut Vec<u8>, key: &str, fact: &dyn Fn(&[u8]) -> u64| {
        out.extend_from_slice(key.as_bytes());
        match payload {
            Some(payload) => write::integer(out, fact(payload)),
            None => out.extend_from_slice(b"null"),
        }
    };
    write(out, ",\"size\":", &|payload| payload.len() as u64);
    if parts.crc32 {
        write(out, ",\"crc32\":", &|payload| crc32fast::hash(payload).into());
    }
}

impl ChannelParts {
    fn new(channel: &Channel) -> Self {
        let is_relative = channel.clock == Clock::Relative;
        Self { names: json_names(channel), is_relative, facts: json_facts(channel) }
    }
}

fn json_names(channel: &Channel) -> Vec<u8> {
    let mut names = b",\"source\":".to_vec();
    write::json_string(&mut names, &channel.source);
    names.extend_from_slice(b",\"channel\":");
    write::json_string(&mut names, channel.name.text());
    names.extend_from_slice(b",\"sequence\":");
    names
}

fn json_facts(channel: &Channel) -> Vec<u8> {
    let mut facts = Vec::new();
    if channel.encoding != USUAL_ENCODING {
        facts.extend_from_slice(b",\"encoding\":");
        write::json_string(&mut facts, channel.encoding.as_str());
    }
    if let Some(type_name) = &channel.type_name {
        facts.extend_from_slice(b",\"type\":");
        write::json_string(&mut facts, type_name);
    }
    if !channel.metadata.is_empty() {
        facts.extend_from_slice(b",\"metadata\":");
        write_json_metadata(&channel.metadata, &mut facts);
    }
    facts
}

fn write_json_metadata(metadata: &BTreeMap<String, String>, out: &mut Vec<u8>) {
    for (n, (key, value)) in metadata.iter().enumerate() {
        out.push(if n == 0 { b'{' } else { b',' });
        write::json_string(out, key);
        out.push(b':');
        write::json_string(out, value);
    }
    out.push(b'}');
}

/// How many payload bytes a text line shows.
const SHOWN_BYTES: usize = 16;

/// How much of decoded events to show in lines for people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Detail {
    /// Everything.
    #[default]
    Whole,
    /// The start of long lists and texts, and how much was left out.
    Abbreviated,
}

/// Writes events as lines for people, with decoded fields, payloads that are text, or the first
/// bytes of others. Can be used from any thread.
#[derive(Debug, Default)]
pub(crate) struct TextLines {
    channels: PerChannel<ShownChannel>,
}

/// What the lines of a channel share.
#[derive(Clone, Debug)]
struct ShownChannel {
    name: Arc<str>,
    clock: Clock,
    is_readable: bool,
}

impl TextLines {
    /// Appends a line for each event of `batch`.
    ///
    /// `Err` if a decoded column cannot be written as JSON.
    pub(crate) fn write(
        &self,
        batch: &Batch,
        channels: &Channels,
        detail: Detail,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let shown = self.channels.table(channels, |channel| Ok(ShownChannel::new(channel)))?;
        let (mut decoded, mut timestamps) =
            (DecodedRows::from_batch(batch)?, TimestampWriter::default());
        let (gone_payloads, mut fields) = (GonePayloads::from_batch(batch), Vec::new());
        for (row, event) in batch.iter().enumerate() {
            let channel = &shown[event.channel.index()];
            write_text_head(&mut timestamps, channel, &event, out);
            if !gone_payloads.has(row) {
                write_size(event.payload, out);
            }
            fields.clear();
            match decoded.write(row, "  ", &mut fields) {
                true => write_printable(&fields, detail, out),
                false => channel.write_payload(event.payload, detail, out),
            }
            out.push(b'\n');
        }
        Ok(())
    }
}

impl ShownChannel {
    fn new(channel: &Channel) -> Self {
        let name = printable(channel.name.text()).into();
        Self { name, clock: channel.clock, is_readable: is_readable(channel) }
    }

    fn write_payload(&self, payload: &[u8], detail: Detail, out: &mut Vec<u8>) {
        match self.is_readable.then(|| std::str::from_utf8(payload)) {
            Some(Ok(text)) => write_shown_text(text, detail, out),
            _ => write_shown_bytes(payload, out),
        }
    }
}

fn write_text_head(
    timestamps: &mut TimestampWriter,
    channel: &ShownChannel,
    event: &Event<'_>,
    out: &mut Vec<u8>,
) {
    match channel.clock {
        Clock::Utc => timestamps.write(out, event.timestamp),
        Clock::Relative => write_seconds(event.timestamp, out),
    }
    out.extend_from_slice(b"  ");
    out.extend_from_slice(channel.name.as_bytes());
    out.extend_from_slice(b"  #");
    write::integer(out, event.sequence);
}

/// Seconds from the start of a log: `+10.027000000 s`.
fn write_seconds(nanos: i64, out: &mut Vec<u8>) {
    const NANOS: u64 = 1_000_000_000;
    let (sign, nanos) = (if nanos < 0 { '-' } else { '+' }, nanos.unsigned_abs());
    let text = format!("{sign}{}.{:09} s", nanos / NANOS, nanos % NANOS);
    out.extend_from_slice(text.as_bytes());
}

fn write_size(payload: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"  ");
    write::integer(out, payload.len());
    out.extend_from_slice(b" B");
}

fn write_shown_bytes(payload: &[u8], out: &mut Vec<u8>) {
    let shown = payload.get(..SHOWN_BYTES).unwrap_or(payload);
    if !shown.is_empty() {
        out.extend_from_slice(b"  ");
        write::hex(out, shown);
    }
    if shown.len() < payload.len() {
        out.extend_from_slice("…".as_bytes());
    }
}

fn write_shown_text(text: &str, detail: Detail, out: &mut Vec<u8>) {
    let cut = match detail {
        Detail::Whole => None,
        Detail::Abbreviated => text.char_indices().nth(MAX_CHARACTERS),
    };
    let shown = cut.and_then(|(end, _)| text.get(..end)).unwrap_or(text);
    if !shown.is_empty() {
        out.extend_from_slice(b"  ");
        out.extend_from_slice(printable(shown).as_bytes());
    }
    if cut.is_some() {
        out.extend_from_slice("…".as_bytes());
    }
}

/// JSON may contain control characters in names of fields, which a terminal would obey.
fn write_printable(json: &[u8], detail: Detail, out: &mut Vec<u8>) {
    let mut text = String::from_utf8_lossy(json);
    if detail == Detail::Abbreviated {
        text = abbreviated(&text).into();
    }
    out.extend_from_slice(json_escaped(&text).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::SampleLog;
    use serde_json::{Value, json};

    fn json_lines(log: &SampleLog, parts: JsonParts) -> Vec<Value> {
        let mut out = Vec::new();
        JsonLines::default().write(&log.batch(), &log.channels, parts, &mut out).unwrap();
        assert!(out.is_empty() || out.ends_with(b"\n"));
        let lines = out.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        lines.map(|line| serde_json::from_slice(line).unwrap()).collect()
    }

    /// The line of one event, written without [`TextLines`].
    fn text_line(channel: &Channel, event: &Event<'_>, out: &mut Vec<u8>) {
        let channel = ShownChannel::new(channel);
        write_text_head(&mut TimestampWriter::default(), &channel, event, out);
        write_size(event.payload, out);
        channel.write_payload(event.payload, Detail::Whole, out);
        out.push(b'\n');
    }

    fn text_lines(log: &SampleLog) -> Vec<String> {
        let mut out = Vec::new();
        TextLines::default().write(&log.batch(), &log.channels, Detail::Whole, &mut out).unwrap();
        String::from_utf8(out).unwrap().lines().map(str::to_owned).collect()
    }

    #[test]
    fn relative_times_are_not_dates() {
        let mut channel = Channel::new(sluice_model::Name::from_text("IMU"), "log", Encoding::Vel);
        channel.clock = Clock::Relative;
        for (time, expected) in
            [(10_027_000_001, "+10.027000001 s  IMU"), (-5, "-0.000000005 s  IMU")]
        {
            let id = sluice_model::ChannelId(0);
            let event = Event { timestamp: time, sequence: 0, channel: id, payload: b"" };
            let mut out = Vec::new();
            text_line(&channel, &event, &mut out);
            assert!(String::from_utf8(out).unwrap().starts_with(expected), "{expected}");
        }
        let shared = ChannelParts::new(&channel);
        assert!(shared.is_relative && !String::from_utf8_lossy(&shared.facts).contains("clock"));
    }

    #[test]
    fn a_json_line_says_what_every_event_has() {
        let log = SampleLog::new(&[(b"POSE", -5, b"123456789")]);
        let plain = json!({ "timestamp_ns": -5, "source": "log \"1\"", "channel": "POSE",
            "sequence": 0, "size": 9 });
        assert_eq!(json_lines(&log, JsonParts::default()), [plain]);
        let parts = JsonParts { crc32: true, payload: JsonPayload::Base64 };
        let full = &json_lines(&log, parts)[0];
        // The check value of CRC-32.
        assert_eq!(full["crc32"], 0xcbf4_3926u32);
        assert_eq!(full["payload"], "MTIzNDU2Nzg5");
    }

    #[test]
    fn a_line_with_a_payload_has_the_other_attributes_of_its_channel() {
        let (channels, mut batch) = (Channels::default(), sluice_model::BatchBuilder::default());
        let name = sluice_model::Name::from_text("A");
        let plain = Channel::new(name, "log", Encoding::Unknown);
        let full = Channel {
            encoding: Encoding::Ice,
            type_name: Some("t".into()),
            clock: Clock::Relative,
            metadata: BTreeMap::from([("k\"".to_owned(), "v".to_owned())]),
            ..plain.clone()
        };
        for channel in [plain, full] {
            batch.push_copy(0, 0, channels.intern(channel).unwrap(), b"");
        }
        let parts = JsonParts { crc32: false, payload: JsonPayload::Base64 };
        let mut out = Vec::new();
        JsonLines::default().write(&batch.finish(), &channels, parts, &mut out).unwrap();
        let ends = String::from_utf8(out).unwrap();
        let ends: Vec<&str> =
            ends.lines().map(|line| line.split_once("\"size\":0").unwrap().1).collect();
        let all = r#","clock":"relative","encoding":"ice","type":"t","metadata":{"k\"":"v"},"payload":""}"#;
        assert_eq!(ends, [r#","encoding":"unknown","payload":""}"#, all]);
    }

    #[test]
    fn odd_channel_names_are_valid_json_and_read_back() {
        let names: [&[u8]; 5] = [b"a\"b\\", b"\x01\n", b"\xff\xfe", "ü\u{2028}".as_bytes(), b""];
        for name in names {
            let log = SampleLog::new(&[(name, 0, b"")]);
            let line = &json_lines(&log, JsonParts::default())[0];
            let text = line["channel"].as_str().unwrap();
            assert_eq!(sluice_model::Name::from_text(text).as_bytes(), name);
        }
    }

    #[test]
    fn decoded_events_have_fields_and_others_have_none() {
        let log = SampleLog::new(&[(b"A", 0, b"x"), (b"B", 1, b"y"), (b"A", 2, b"z")]);
        let log = log.decoded(&[0, 2], &[10, 12]).decoded(&[1], &[21]);
        let fields =
            json_lines(&log, JsonParts::default()).into_iter().map(|l| l["fields"].clone());
        let expected = [10, 21, 12].map(|v| json!({ "v": v }));
        assert_eq!(fields.collect::<Vec<_>>(), expected);
        let some = SampleLog::new(&[(b"A", 0, b"x"), (b"A", 1, b"y")]).decoded(&[1], &[5]);
        let lines = json_lines(&some, JsonParts::default());
        assert!(lines[0].get("fields").is_none());
        assert_eq!(lines[1]["fields"], json!({ "v": 5 }));
    }

    #[test]
    fn a_text_line_shows_the_first_bytes() {
        let time = 1_194_098_400_123_456_000;
        let log =
            SampleLog::new(&[(b"POSE", time, &[0x2e; 17]), (b"POSE", time, b"ab"), (b"P", 0, b"")]);
        let shown = "2e".repeat(16);
        assert_eq!(
            text_lines(&log),
            [
                format!("2007-11-03T14:00:00.123456000Z  POSE  #0  17 B  {shown}…"),
                "2007-11-03T14:00:00.123456000Z  POSE  #1  2 B  6162".to_owned(),
                "1970-01-01T00:00:00.000000000Z  P  #2  0 B".to_owned(),
            ]
        );
    }

    #[test]
    fn payloads_that_are_text_are_shown_as_text_on_one_line() {
        let lines = |encoding: Encoding, payload: &[u8], detail: Detail| {
            let (channels, mut batch) =
                (Channels::default(), sluice_model::BatchBuilder::default());
            let channel = Channel::new(sluice_model::Name::from_text("A"), "log", encoding);
            batch.push_copy(0, 0, channels.intern(channel).unwrap(), payload);
            let mut out = Vec::new();
            TextLines::default().write(&batch.finish(), &channels, detail, &mut out).unwrap();
            let text = String::from_utf8(out).unwrap();
            text.split_once(" B").unwrap().1.to_owned()
        };
        for encoding in [Encoding::Text, Encoding::Json] {
            let shown = lines(encoding, "a=0 \"é\"\n\x1b[2J".as_bytes(), Detail::Whole);
            assert_eq!(shown, "  a=0 \"é\"\\n\\u{1b}[2J\n");
        }
        assert_eq!(lines(Encoding::Text, b"a\xff", Detail::Whole), "  61ff\n");
        assert_eq!(lines(Encoding::Text, b"", Detail::Whole), "\n");
        assert_eq!(lines(Encoding::Unknown, b"ab", Detail::Whole), "  6162\n");
        let long = "é".repeat(65);
        assert_eq!(lines(Encoding::Text, long.as_bytes(), Detail::Whole), format!("  {long}\n"));
        let cut = format!("  {}…\n", "é".repeat(64));
        assert_eq!(lines(Encoding::Text, long.as_bytes(), Detail::Abbreviated), cut);
    }

    #[test]
    fn a_text_line_alone_is_the_same_as_among_others() {
        let log = SampleLog::new(&[(b"A\x1b[2J", 5, b"payload"), (b"B", 6, &[0; 40])]);
        let batch = log.batch();
        let alone = batch.iter().map(|event| {
            let mut out = Vec::new();
            text_line(&log.channels.get(event.channel), &event, &mut out);
            String::from_utf8(out).unwrap().trim_end_matches('\n').to_owned()
        });
        assert_eq!(alone.collect::<Vec<_>>(), text_lines(&log));
    }

    #[test]
    fn nothing_on_a_text_line_controls_a_terminal() {
        let log = SampleLog::new(&[(b"\x1b[2J\n\x7f", 0, b"\x1b")]);
        let lines = text_lines(&log);
        assert!(lines.len() == 1 && !lines[0].chars().any(char::is_control), "{lines:?}");
    }

    #[test]
    fn payloads_that_are_gone_have_no_size() {
        let log = SampleLog::new(&[(b"A", 0, b"x"), (b"B", 1, b"yz")]).decoded(&[0], &[7]);
        let batch = log.batch().without_payloads();
        let (mut json_out, mut text_out) = (Vec::new(), Vec::new());
        let parts = JsonParts { crc32: true, payload: JsonPayload::None };
        JsonLines::default().write(&batch, &log.channels, parts, &mut json_out).unwrap();
        let lines = String::from_utf8(json_out).unwrap();
        let line: Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
        assert_eq!((&line["size"], &line["crc32"]), (&Value::Null, &Value::Null));
        TextLines::default().write(&batch, &log.channels, Detail::Whole, &mut text_out).unwrap();
        let text = String::from_utf8(text_out).unwrap();
        assert!(text.starts_with("1970-01-01T00:00:00.000000000Z  A  #0  {\"v\":7}\n"), "{text}");
    }

    #[test]
    fn decoded_events_show_fields_instead_of_bytes() {
        let log = SampleLog::new(&[(b"A", 0, b"x")]).decoded(&[0], &[7]);
        assert_eq!(text_lines(&log), ["1970-01-01T00:00:00.000000000Z  A  #0  1 B  {\"v\":7}"]);
    }
}
