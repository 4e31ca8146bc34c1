//! Sink `jsonl`: one JSON object per line, for programs. [`source`] reads it; [`crate::line`]
//! writes the lines.

pub(crate) mod source;

mod event;
mod reader;

use serde::{Deserialize, Deserializer};
use sluice_kit::selection::{self, FieldList, FieldPresence};
use sluice_kit::unnest::list_path;
use sluice_model::options::OutPath;
use sluice_model::schemars::JsonSchema;
use sluice_model::{
    Batch, Error, FieldPath, PrepareContext, Sink, SinkContext, SinkTraits, Written,
};

use crate::file::{Blocks, LinePiece, TextBlock, TextFile};
use crate::line::{JsonLines, JsonParts};
use crate::payload::JsonPayload;

/// Options of `jsonl`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
#[schemars(crate = "sluice_model::schemars")]
pub(crate) struct Jsonl {
    /// The file to write; `-` is standard output.
    #[serde(deserialize_with = "OutPath::without_folder")]
    path: OutPath,
    /// Whether to write payloads, and everything else that is needed to read the events back:
    /// `true` or `base64` in base64, `text` as text where they are UTF-8 without zero bytes, and
    /// otherwise in base64.
    #[serde(default)]
    payload: JsonPayload,
    /// Whether to write the CRC-32 of payloads.
    #[serde(default = "yes")]
    crc32: bool,
    /// The fields to write of decoded events, flat and in this order. Default: all.
    #[serde(default)]
    fields: Option<FieldList>,
    /// Whether to write members of structs and elements of short fixed lists as fields of their
    /// own, named by their paths. `fields` always does.
    #[serde(default)]
    flatten: bool,
    /// A list in decoded events to unnest: each element is a line of its own.
    #[serde(default, deserialize_with = "list_path")]
    unnest: Option<FieldPath>,
    #[serde(skip)]
    lines: JsonLines,
}

/// Lines of a piece of a batch, and which selected fields its events had.
#[derive(Debug)]
pub(crate) struct JsonlBlock {
    text: TextBlock,
    found: Option<FieldPresence>,
}

/// A file of lines being written, and which selected fields its events had.
#[derive(Debug)]
pub(crate) struct JsonlFile {
    file: TextFile,
    found: Option<FieldPresence>,
    is_empty: bool,
}

/// The extensions of files of JSON lines.
const EXTENSIONS: &[&str] = &["jsonl", "ndjson"];

fn yes() -> bool {
    true
}

sluice_model::register! {
    sink "jsonl": Jsonl,
    about: "writes one JSON object per line, with the fields of decoded events",
    sample: include_str!("../samples/jsonl.toml"),
    default_for: &[sluice_model::DefaultRole::PrintJson],
    extensions: EXTENSIONS,
    when_recorded: &[("payload", "true")],
}

impl<'de> Deserialize<'de> for Jsonl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let sink = Self::deserialize(deserializer)?;
        if sink.payload != JsonPayload::None && sink.unnest.is_some() {
            return Err(serde::de::Error::custom(
                "`unnest` writes elements, which have no payload; leave out `payload` or `unnest`",
            ));
        }
        Ok(sink)
    }
}

impl Jsonl {
    /// `batch` with the selected fields only.
    fn selected(&self, batch: Batch, found: Option<&mut FieldPresence>) -> Result<Batch, Error> {
        match (&self.fields, found) {
            (Some(fields), Some(found)) => fields.select(batch, found),
            _ if self.flatten => selection::flat(batch),
            _ => Ok(batch),
        }
    }
}

impl Jsonl {
    fn encode_piece(
        &self,
        mut piece: LinePiece,
        context: &PrepareContext<'_>,
    ) -> Result<(JsonlBlock, usize), Error> {
        let parts = JsonParts { crc32: self.crc32, payload: self.payload };
        let mut found = self.fields.as_ref().map(FieldList::none_found);
        piece.batch = self.selected(piece.batch, found.as_mut())?;
        let write = |out: &mut _| self.lines.write(&piece.batch, context.channels, parts, out);
        let text = TextBlock::new(&piece, context, write)?;
        let bytes = text.bytes();
        Ok((JsonlBlock { text, found }, bytes))
    }
}

impl JsonlFile {
    fn append(&mut self, block: JsonlBlock) -> Result<u64, Error> {
        if let (Some(ours), Some(found)) = (&mut self.found, &block.found) {
            ours.add(found);
        }
        self.is_empty &= block.text.events() == 0;
        self.file.append(block.text)
    }
}

impl Sink for Jsonl {
    type Block = Blocks<JsonlBlock>;
    type Unit = Blocks<JsonlBlock>;
    type Output = JsonlFile;

    fn traits(&self) -> SinkTraits {
        TextFile::traits(&self.path, self.payload == JsonPayload::None)
    }

    fn open(&self, context: &SinkContext) -> Result<JsonlFile, Error> {
        let file = TextFile::open(&self.path, b"", context)?;
        let found = self.fields.as_ref().map(FieldList::none_found);
        Ok(JsonlFile { file, found, is_empty: true })
    }

    fn prepare(
        &self,
        batch: Batch,
        context: &mut PrepareContext<'_>,
    ) -> Result<Blocks<JsonlBlock>, Error> {
        // What is printed is mostly for people.
        if self.payload != JsonPayload::None && !self.path.is_stdout() {
            context.note_schemas_lost(&batch);
        }
        let encode = |piece, context: &PrepareContext<'_>| self.encode_piece(piece, context);
        Blocks::encode(batch, self.unnest.as_ref(), context, encode)
    }

    fn write(&self, output: &mut JsonlFile, blocks: Blocks<JsonlBlock>) -> Result<Written, Error> {
        let (channels, path) = (output.file.channels(), self.unnest.as_ref());
        let encode = |piece, context: &PrepareContext<'_>| self.encode_piece(piece, context);
        blocks.write(path, &channels, encode, |block| output.append(block))
    }

    fn flush(&self, output: &mut JsonlFile) -> Result<(), Error> {
        output.file.flush()
    }

    fn finish(&self, output: JsonlFile) -> Result<Written, Error> {
        let notes = match (&self.fields, &output.found) {
            (Some(fields), Some(found)) if !output.is_empty => fields.notes(found),
            _ => Vec::new(),
        };
        output.file.finish(notes, self.unnest.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{SampleLog, make};
    use serde_json::{Value, json};

    #[test]
    fn options_choose_the_parts_of_a_line() {
        let log = SampleLog::new(&[(b"A", 1, b"ab"), (b"B", 2, b"")]);
        let keys = |options: Value| {
            let text = log.written("jsonl", options, &[]);
            let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
            let keys = |line: Value| line.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
            let all: Vec<_> = lines.map(keys).collect();
            assert_eq!((all.len(), &all[0]), (2, &all[1]));
            all[0].join(" ")
        };
        let common = "timestamp_ns source channel sequence size";
        assert_eq!(keys(json!({})), format!("{common} crc32"));
        assert_eq!(keys(json!({ "crc32": false })), common);
        assert_eq!(keys(json!({ "payload": true })), format!("{common} crc32 payload"));
        assert_eq!(keys(json!({ "payload": "text" })), format!("{common} crc32 payload_text"));
    }

    fn fields(log: &SampleLog, options: Value) -> Vec<String> {
        let text = log.written("jsonl", options, &[]);
        let fields = |line: &str| line.split_once(",\"fields\":").map_or("", |(_, f)| f).to_owned();
        text.lines().map(fields).collect()
    }

    #[test]
    fn fields_are_chosen_and_named_by_their_paths() {
        let log = SampleLog::new(&[(b"A", 1, b"ab"), (b"B", 2, b""), (b"C", 3, b"")]);
        let log = log.decoded_pose(&[0]).decoded(&[2], &[7]);
        let options = json!({ "fields": ["v", "pos[1]", "names", "s.x"] });
        let chosen = "{\"pos[1]\":2.5,\"names\":[\"a;\",\"\"],\"s.x\":1}}";
        assert_eq!(fields(&log, options), [chosen, "", "{\"v\":7}}"]);
        let flat = "{\"utime\":5,\"pos[0]\":\"NaN\",\"pos[1]\":2.5,\"names\":[\"a;\",\"\"],\"s.x\":1,\"text\":\"\",\"hash\":\"/wA=\"}}";
        assert_eq!(fields(&log, json!({ "flatten": true })), [flat, "", "{\"v\":7}}"]);
    }

    #[test]
    fn a_field_that_no_event_has_is_noted() {
        let log = SampleLog::new(&[(b"A", 1, b""), (b"B", 2, b"")]).decoded_pose(&[0]);
        let options = json!({ "fields": ["poss", "utime"] });
        let notes = log.written_with_notes("jsonl", options, &[1]).1;
        assert_eq!(notes, [("no event has a field `poss`".to_owned(), 0)]);
        let error = make("jsonl", json!({ "path": "x", "fields": ["a", "a"] })).err().unwrap();
        assert_eq!(error.path, ["fields"]);
    }

    #[test]
    fn events_without_payload_are_accepted_unless_payloads_are_written() {
        let takes = |payload: bool| {
            make("jsonl", json!({ "path": "x", "payload": payload })).unwrap().traits().accepts_rows
        };
        assert_eq!((takes(false), takes(true)), (true, false));
    }

    #[test]
    fn no_event_is_no_line() {
        assert_eq!(SampleLog::new(&[]).written("jsonl", json!({}), &[]), "");
    }

    #[test]
    fn each_element_of_a_list_is_a_line() {
        let log = SampleLog::new(&[(b"A", 1, b""), (b"B", 2, b"xy"), (b"A", 4, b"")])
            .scans(&[0, 2], &[0, 2]);
        let options = json!({ "unnest": "points", "crc32": false });
        let (text, notes) = log.lines_with_notes("jsonl", options, &[1]);
        let of = |line: &str| line.split_once("\"sequence\":").unwrap().1.to_owned();
        let expected = [
            "1,\"size\":2}",
            r#"2,"size":null,"fields":{"utime":1,"x":0.0,"points_sequence":0,"sequence":1}}"#,
            r#"2,"size":null,"fields":{"utime":1,"x":0.5,"points_sequence":1,"sequence":1}}"#,
        ];
        assert_eq!(
            (text.lines().map(of).collect::<Vec<_>>(), notes),
            (expected.map(str::to_owned).to_vec(), vec![])
        );
        let options = json!({ "unnest": "points", "fields": "x" });
        let (text, _) = log.lines_with_notes("jsonl", options, &[]);
        assert!(text.ends_with("\"fields\":{\"x\":0.5}}\n"), "{text}");
        let options = json!({ "path": "x", "payload": true, "unnest": "points" });
        assert!(make("jsonl", options).err().unwrap().message.contains("leave out `payload`"));
    }
}
