//! Source `jsonl`: reads what the sink writes with payloads, as the original events.

use std::collections::BTreeMap;
use std::path::Path;

use memchr::{memchr, memmem};
use serde::de::{Error as _, IgnoredAny};
use serde::{Deserialize, Deserializer};
use sluice_io::files::{self, InputContent};
use sluice_model::options::{ByteSize, InPaths};
use sluice_model::schemars::JsonSchema;
use sluice_model::{
    Error, Input, Query, ReadContext, Reader, SniffResult, Source, Split, SplitStart,
};

use super::EXTENSIONS;
use super::event::NO_PAYLOAD;
use super::reader::JsonLineReader;
use crate::without_mark;

/// Reads JSON lines with payloads.
///
/// Every payload is checked against `size` and `crc32`. A line that is not an event is damage;
/// reading continues with the next one.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "sluice_model::schemars")]
pub struct JsonlSource {
    /// The files: one, a glob, a list of them, or `-` for standard input. Files are read in order;
    /// zstd is decompressed.
    path: InPaths,
    /// The maximum length of a line, up to 2GiB; a longer one is damage.
    #[serde(default = "longest_line", deserialize_with = "line_len")]
    max_line: ByteSize,
}

/// The maximum length of an event in a batch.
const MAX_LINE: u64 = 2 << 30;

/// Enough for a payload of 256 MiB in base64: no other log has longer ones by default.
fn longest_line() -> ByteSize {
    ByteSize(384 << 20)
}

fn line_len<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ByteSize, D::Error> {
    let size = ByteSize::deserialize(deserializer)?;
    if size.0 <= MAX_LINE {
        return Ok(size);
    }
    Err(D::Error::custom(format!("expected at most {}, found {size}", ByteSize(MAX_LINE))))
}

sluice_model::register! {
    source "jsonl": JsonlSource,
    about: "reads JSON lines with payloads back as events",
    sample: include_str!("../../samples/jsonl-source.toml"),
    sniff: sniff,
    sniff_path: sniff_path,
    refusal: refusal,
}

const KEYS: [&str; 2] = ["timestamp_ns", "channel"];

/// Whether the first line is an object with a time, a channel and a payload. Lines without payloads
/// are not damaged events, but another format. The line may be longer than `head`.
fn sniff(head: &[u8]) -> SniffResult {
    let (line, is_whole) = first_line(head);
    let has = |part: &str| memmem::find(line, part.as_bytes()).is_some();
    let payloads = ["\"payload\"", "\"payload_text\"", "\"size\":0,", "\"size\": 0,"];
    if !payloads.into_iter().any(has) {
        return SniffResult::No;
    }
    match has_keys(line).filter(|_| is_whole) {
        Some(true) => SniffResult::Yes,
        Some(false) => SniffResult::No,
        None => sniff_part(line, !is_whole),
    }
}

/// The first line, and whether it has an end.
fn first_line(head: &[u8]) -> (&[u8], bool) {
    let text = without_mark(head).trim_ascii_start();
    let end = memchr(b'\n', text);
    (end.and_then(|end| text.get(..end)).unwrap_or(text), end.is_some())
}

/// Whether a line is an object with a time and a channel; `None` if it is no object.
fn has_keys(line: &[u8]) -> Option<bool> {
    let object = serde_json::from_slice::<BTreeMap<String, IgnoredAny>>(line).ok()?;
    Some(KEYS.iter().all(|key| object.contains_key(*key)))
}

/// Refuses lines of events without payloads.
fn refusal(head: &[u8]) -> Option<&'static str> {
    let is_bare = sniff(head) == SniffResult::No && has_keys(first_line(head).0) == Some(true);
    is_bare.then_some(NO_PAYLOAD)
}

/// How far to read a first line to find its payload, which follows the fields.
const MAX_SNIFF: usize = 64 << 20;

/// Sniffs a file whose first line is longer than the usual head, or that has none.
fn sniff_path(path: &Path) -> Result<SniffResult, Error> {
    let mut len = 1 << 10;
    if !files::is_input_file(path) {
        return Ok(SniffResult::No);
    }
    loop {
        let head = files::head(path, len)?;
        let text = without_mark(&head).trim_ascii_start();
        if !text.is_empty() && !text.starts_with(b"{") {
            return Ok(SniffResult::No);
        }
        if memchr(b'\n', text).is_some() || head.len() < len || len >= MAX_SNIFF {
            // `sniff` has already seen a short head.
            return Ok(match len > HEAD_LEN {
                true => sniff(&head),
                // Without a line, or with a damaged start, only the name says what it is.
                false if text.is_empty() && has_extension(path) => SniffResult::Yes,
                false => SniffResult::No,
            });
        }
        len = if len < HEAD_LEN { HEAD_LEN + 1 } else { len * 4 };
    }
}

fn has_extension(path: &Path) -> bool {
    let is_packed = path.extension().is_some_and(|extension| extension == "zst");
    let path = if is_packed { &path.with_extension("") } else { path };
    let extension = path.extension().and_then(|extension| extension.to_str());
    extension.is_some_and(|found| EXTENSIONS.iter().any(|own| own.eq_ignore_ascii_case(found)))
}

/// The minimum length of the head that `sniff` gets, if the file is long enough.
const HEAD_LEN: usize = 64 << 10;

/// What a first line may be that is damaged or longer than `head`.
fn sniff_part(line: &[u8], is_cut_off: bool) -> SniffResult {
    let is_there = |key: &str| memmem::find(line, format!("\"{key}\"").as_bytes()).is_some();
    let found = KEYS.iter().filter(|key| is_there(key)).count();
    match (line.first(), found) {
        (Some(b'{'), 2) if is_cut_off => SniffResult::Yes,
        (Some(b'{'), 1..) => SniffResult::Maybe,
        _ => SniffResult::No,
    }
}

impl Source for JsonlSource {
    fn inputs(&self) -> Result<Vec<Input>, Error> {
        files::expand(&self.path.0)
    }

    fn splits(&self, target: u64, _: &Query) -> Result<Vec<Split>, Error> {
        let inputs = self.inputs()?;
        files::refuse_foreign(&inputs, InputContent::Marked, "a file of JSON lines")?;
        Split::from_files(inputs, target, |_, len| Ok(0..len))
    }

    fn read<'s>(
        &'s self,
        split: &Split,
        entry: SplitStart,
        context: &ReadContext,
    ) -> Result<Box<dyn Reader + 's>, Error> {
        let longest = usize::try_from(self.max_line.0).unwrap_or(usize::MAX);
        Ok(Box::new(JsonLineReader::open(&split.input, split, entry, longest, context)?))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::Arc;

    use proptest::collection::{btree_map, vec};
    use proptest::prelude::*;
    use serde_json::json;
    use sluice_io::frames;
    use sluice_kit::contract::{
        SourceContents, any_splitting_is_the_same, gather, gather_with, splits_cover_the_inputs,
    };
    use sluice_model::{
        BatchBuilder, Channel, Channels, Clock, DamageLog, Encoding, Name, Registry, SniffResult,
        options,
    };

    use super::*;
    use crate::line::{JsonLines, JsonParts};
    use crate::payload::JsonPayload;

    const LINE: &str = r#"{"timestamp_ns":1,"source":"log","channel":"A","sequence":0,"size":2,"crc32":2659403885,"payload":"YWI="}"#;

    fn file(text: &[u8]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text).unwrap();
        file
    }

    fn source(file: &tempfile::NamedTempFile) -> JsonlSource {
        options::read(json!({ "path": file.path() })).unwrap()
    }

    fn whole(text: &[u8]) -> SourceContents {
        gather(&source(&file(text)), u64::MAX).unwrap()
    }

    #[test]
    fn every_damaged_line_is_one_damage_and_the_next_event_is_read() {
        let wrong = LINE.replace("\"size\":2", "\"size\":3");
        let text = format!("{LINE}\n{wrong}\n{LINE}\nno JSON\n{LINE}\n{{\"cut");
        let file = file(text.as_bytes());
        let found = any_splitting_is_the_same(&source(&file), &[1, 2, 7, 100, 119, 250]);
        assert_eq!(found.events.len(), 3);
        let len = LINE.len() as u64 + 1;
        let places: Vec<_> = found.damage.iter().map(|damage| (damage.0, damage.1)).collect();
        assert_eq!(places, [(len, len), (3 * len, 8), (4 * len + 8, 5)]);
    }

    #[test]
    fn unknown_encodings_are_noted_and_their_events_are_kept() {
        let odd = LINE.replace("\"sequence\"", "\"encoding\":\"proto\",\"sequence\"");
        let file = file(format!("{LINE}\n{odd}\n{odd}\n").as_bytes());
        let context = ReadContext::standalone("test");
        let found = gather_with(&source(&file), u64::MAX, &context).unwrap();
        assert_eq!((found.events.len(), found.damage.len()), (3, 0));
        let notes = context.losses.take_notes();
        assert!(
            notes.len() == 1 && notes[0].0.starts_with("unknown `encoding` `proto`"),
            "{notes:?}"
        );
    }

    #[test]
    fn blank_lines_and_carriage_returns_are_no_damage() {
        let text = format!("\r\n{LINE}\r\n\n  \n{LINE}");
        let file = file(text.as_bytes());
        let found = any_splitting_is_the_same(&source(&file), &[1, 3, 50]);
        assert_eq!((found.events.len(), found.damage.len()), (2, 0));
        assert_eq!(found.events[0].payload, b"ab");
        assert_eq!(whole(b""), SourceContents::default());
    }

    #[test]
    fn a_byte_order_mark_at_the_start_is_no_damage() {
        let text = format!("\u{feff}{LINE}\n{LINE}\n");
        let found = any_splitting_is_the_same(&source(&file(text.as_bytes())), &[1, 3, 50, 200]);
        assert_eq!((found.events.len(), found.damage.len()), (2, 0));
        let (events, at) = (whole(format!("{LINE}\n\u{feff}{LINE}\n").as_bytes()), LINE.len() + 1);
        assert_eq!((events.events.len(), events.damage[0].0), (1, at as u64));
    }

    #[test]
    fn lines_above_the_maximum_length_are_damage() {
        let long = LINE.replace("log", &"l".repeat(400));
        let text = format!("{LINE}\n{long}\n{LINE}\n");
        let file = file(text.as_bytes());
        let source: JsonlSource =
            options::read(json!({ "path": file.path(), "max_line": LINE.len() })).unwrap();
        let found = any_splitting_is_the_same(&source, &[1, 10, 64, 400]);
        assert_eq!(found.events.len(), 2);
        let (at, len) = (LINE.len() as u64 + 1, long.len() as u64 + 1);
        let reason = format!("the line is longer than {} bytes", LINE.len());
        assert_eq!(found.damage, [(at, len, reason)]);
        let error = options::read::<JsonlSource>(json!({ "path": "x", "max_line": "3GiB" }));
        assert_eq!(error.unwrap_err().path, ["max_line"]);
    }

    #[test]
    fn splits_lie_end_to_end() {
        let file = file(LINE.as_bytes());
        for target in [1, 50, 1_000] {
            splits_cover_the_inputs(&source(&file), target);
        }
    }

    #[test]
    fn files_that_became_shorter_say_what_is_missing() {
        let text = format!("{LINE}\n{LINE}\n");
        let file = file(text.as_bytes());
        let (source, context) = (source(&file), ReadContext::standalone("test"));
        let splits = source.splits(u64::MAX, &Query::default()).unwrap();
        file.as_file().set_len(LINE.len() as u64 + 1).unwrap();
        let found = sluice_kit::contract::gather_splits(&source, splits, &context).unwrap();
        let len = LINE.len() as u64 + 1;
        let reason = "the file became shorter while it was read".to_owned();
        assert_eq!((found.events.len(), found.damage), (1, vec![(len, len, reason)]));
    }

    #[test]
    fn damaged_lines_of_compressed_files_are_kept_if_asked_for() {
        let text = format!("{LINE}\nno JSON\n{LINE}\n");
        let packed = file(&frames::compress(text.as_bytes(), 3).unwrap());
        let (source, context) = (source(&packed), ReadContext::standalone("test"));
        let damage = Arc::new(DamageLog::keeping_bytes());
        let context = ReadContext { damage, ..context };
        let splits = source.splits(10, &Query::default()).unwrap();
        assert_eq!(splits, [Split::whole(packed.path(), None)]);
        let mut reader = source.read(&splits[0], SplitStart::At(0), &context).unwrap();
        assert_eq!(reader.next_batch().unwrap().unwrap().len(), 2);
        assert!(reader.next_batch().unwrap().is_none());
        let damage = context.damage.take();
        assert_eq!((damage.len(), damage[0].bytes[0].as_ref()), (1, b"no JSON\n".as_slice()));
    }

    #[test]
    fn compressed_files_that_are_cut_off_give_what_is_left_and_say_so() {
        let text: String = (0..20_000)
            .map(|n| LINE.replace("\"sequence\":0", &format!("\"sequence\":{}", n * 7919)) + "\n")
            .collect();
        let mut packed = frames::compress(text.as_bytes(), 1).unwrap();
        packed.truncate(packed.len() / 2);
        let found = whole(&packed);
        assert!(!found.events.is_empty() && found.events.len() < 20_000);
        let (_, length, reason) = found.damage.last().unwrap();
        assert!(*length == 0 && reason.contains("cut off"), "{reason}");
    }

    #[test]
    fn batches_are_no_longer_than_blocks_ask_for() {
        let text = format!("{LINE}\n").repeat(100);
        let file = file(text.as_bytes());
        let (blocks, many) = (sluice_model::BlockPool::new(1 << 10, 4), source(&file));
        let context = ReadContext { blocks, ..ReadContext::standalone("test") };
        let split = many.splits(u64::MAX, &Query::default()).unwrap().remove(0);
        let mut reader = many.read(&split, SplitStart::At(0), &context).unwrap();
        let first = reader.next_batch().unwrap().unwrap();
        assert!(first.len() < 20, "{}", first.len());
        assert_eq!(gather_with(&many, u64::MAX, &context).unwrap().events.len(), 100);
    }

    #[test]
    fn files_are_recognised_by_their_first_line() {
        let longer = format!("{LINE}\n{LINE}");
        for yes in [
            LINE,
            &longer,
            &format!("\n{longer}"),
            &format!("\u{feff}{longer}"),
            "{\"channel\":\"\",\"timestamp_ns\":1,\"payload\":",
            "{\"channel\":\"\",\"timestamp_ns\":1,\"payload_text\":",
        ] {
            assert_eq!(sniff(yes.as_bytes()), SniffResult::Yes, "{yes}");
        }
        let damaged = LINE.replacen('}', "\n", 1);
        for maybe in
            [&damaged, "{\"payload\":\"\",\"channel\":\"x\"", "{\"timestamp_ns\":1,\"payload\":"]
        {
            assert_eq!(sniff(maybe.as_bytes()), SniffResult::Maybe, "{maybe}");
        }
        let bare = "{\"timestamp_ns\":1,\"channel\":\"A\",\"size\":3}\n";
        for no in
            [bare, "", "\n", "{", "[1]", "{\"timestamp_ns\":1}\n", "timestamp_ns,channel\n", "\x28"]
        {
            assert_eq!(sniff(no.as_bytes()), SniffResult::No, "{no}");
        }
        assert!(refusal(bare.as_bytes()).unwrap().contains("`payload = true`"));
        for other in [LINE, "", "{", "[1]", "{\"timestamp_ns\":1}\n", "timestamp_ns,channel\n"] {
            assert_eq!(refusal(other.as_bytes()), None, "{other}");
        }
        let registry = Registry::linked();
        assert_eq!(registry.sniff(LINE.as_bytes())[0].name, "jsonl");
    }

    #[test]
    fn files_without_a_line_are_recognised_by_their_name() {
        let folder = tempfile::tempdir().unwrap();
        let sniffed = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            sniff_path(&path).unwrap()
        };
        for name in ["empty.jsonl", "empty.NDJSON"] {
            assert_eq!(sniffed(name, b""), SniffResult::Yes, "{name}");
        }
        assert_eq!(sniffed("other.jsonl", b"{}\n"), SniffResult::No);
        assert_eq!(sniffed("empty.json", b""), SniffResult::No);
        // A zstd frame without content, and one whose checksum is cut off before another one.
        let empty = b"\x28\xb5\x2f\xfd\x24\0\x01\0\0\x99\xe9\xd8\x51";
        let line = b"\x28\xb5\x2f\xfd\x04\x58\x19\0\0{}\n\xba\xd3\x11\x9c";
        assert_eq!(sniffed("empty.jsonl.zst", empty), SniffResult::Yes);
        assert_eq!(sniffed("empty.json.zst", empty), SniffResult::No);
        assert_eq!(sniffed("other.jsonl.zst", line), SniffResult::No);
        let damaged = [&empty[..12], line].concat();
        assert_eq!(sniffed("damaged.jsonl.zst", &damaged), SniffResult::Yes);
    }

    /// An event with all that is known of its channel.
    type Plain = (Channel, i64, i64, Vec<u8>);

    fn read(source: &JsonlSource, target: u64) -> Vec<Plain> {
        let context = ReadContext::standalone("other");
        let mut events = Vec::new();
        for split in source.splits(target, &Query::default()).unwrap() {
            let mut reader = source.read(&split, SplitStart::Search, &context).unwrap();
            while let Some(batch) = reader.next_batch().unwrap() {
                events.extend(batch.iter().map(|event| {
                    let channel = Channel::clone(&context.channels.get(event.channel));
                    (channel, event.timestamp, event.sequence, event.payload.to_vec())
                }));
            }
        }
        assert_eq!(context.damage.take(), []);
        events
    }

    fn written(events: &[Plain], crc32: bool, payload: JsonPayload) -> Vec<u8> {
        let (channels, mut batch) = (Arc::new(Channels::default()), BatchBuilder::default());
        for (channel, timestamp, sequence, payload) in events {
            let id = channels.intern(channel.clone()).unwrap();
            batch.push_copy(*timestamp, *sequence, id, payload);
        }
        let (mut out, parts) = (Vec::new(), JsonParts { crc32, payload });
        JsonLines::default().write(&batch.finish(), &channels, parts, &mut out).unwrap();
        out
    }

    fn channel() -> impl Strategy<Value = Channel> {
        use Encoding::{Ice, Lcm, Text, Unknown, Vel};
        let names =
            (vec(prop_oneof![Just(b'\\'), Just(b'x'), Just(b'"'), any::<u8>()], 0..8), ".{0,8}");
        let encoding = prop::sample::select(vec![Lcm, Vel, Ice, Text, Unknown]);
        let clock = prop::sample::select(vec![Clock::Utc, Clock::Relative]);
        let metadata = btree_map(".{0,4}", ".{0,4}", 0..3);
        let all = (names, encoding, prop::option::of(".{0,4}"), clock, metadata);
        all.prop_map(|((name, source), encoding, type_name, clock, metadata)| Channel {
            type_name: type_name.map(Into::into),
            clock,
            metadata,
            ..Channel::new(Name::from_bytes(&name), source, encoding)
        })
    }

    /// Bytes or text.
    fn payload() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![vec(any::<u8>(), 0..40), ".{0,20}".prop_map(String::into_bytes)]
    }

    proptest! {
        #[test]
        fn written_events_are_read_back_unchanged(
            channels in vec(channel(), 1..5),
            events in vec(
                (any::<usize>(), any::<i64>(), any::<i64>(), payload()), 0..20),
            crc32: bool,
            form in prop::sample::select(vec![JsonPayload::Base64, JsonPayload::Text]),
            target in 1u64..2_000)
        {
            let named = |(n, time, number, payload): (usize, i64, i64, Vec<u8>)| {
                (channels[n % channels.len()].clone(), time, number, payload)
            };
            let events: Vec<Plain> = events.into_iter().map(named).collect();
            let file = file(&written(&events, crc32, form));
            let source = source(&file);
            prop_assert_eq!(&read(&source, target), &events);
            prop_assert_eq!(&read(&source, u64::MAX), &events);
        }

        #[test]
        fn any_splitting_of_anything_is_the_same(
            lines in vec(prop_oneof![Just(LINE.to_owned()), Just(String::new()), ".{0,20}"], 0..12),
            cut_off in 0usize..40,
            target in 1u64..300)
        {
            let mut text = lines.join("\n").into_bytes();
            text.truncate(text.len().saturating_sub(cut_off));
            let file = file(&text);
            let found = any_splitting_is_the_same(&source(&file), &[target]);
            let damaged: u64 = found.damage.iter().map(|damage| damage.1).sum();
            prop_assert!(damaged <= text.len() as u64);
        }
    }
}
