//! `jsonl`: a JSON object a line, for programs. What is in a line is decided in [`crate::line`].

use std::path::PathBuf;

use serde::Deserialize;
use sluice_core::options::OutPath;
use sluice_core::schemars::JsonSchema;
use sluice_core::{Batch, EncodeContext, Error, Sink, SinkContext};

use crate::file::{self, TextBlock, TextFile};
use crate::line::{JsonLines, JsonParts};

/// Options of `jsonl`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "sluice_core::schemars")]
pub struct Jsonl {
    /// The file to write; `-` is standard output.
    path: OutPath,
    /// Whether lines have the payload, in base64.
    #[serde(default)]
    payload: bool,
    /// Whether lines have the CRC-32 of the payload.
    #[serde(default = "yes")]
    crc32: bool,
    #[serde(skip)]
    lines: JsonLines,
}

fn yes() -> bool {
    true
}

sluice_core::register! {
    sink "jsonl": Jsonl,
    about: "writes a JSON object a line, with the fields of decoded events",
    sample: include_str!("../samples/jsonl.toml"),
    extensions: &["jsonl", "ndjson"],
}

impl Sink for Jsonl {
    type Block = TextBlock;
    type Output = TextFile;

    fn targets(&self) -> Vec<PathBuf> {
        file::targets(&self.path)
    }

    fn open(&self, context: &SinkContext) -> Result<TextFile, Error> {
        TextFile::open(&self.path, b"", context)
    }

    fn encode(&self, batch: Batch, context: &mut EncodeContext<'_>) -> Result<TextBlock, Error> {
        let parts = JsonParts { crc32: self.crc32, payload: self.payload };
        TextBlock::of(&batch, context, |out| self.lines.write(&batch, context.channels, parts, out))
    }

    fn append(&self, output: &mut TextFile, block: TextBlock) -> Result<u64, Error> {
        output.append(block)
    }

    fn finish(&self, output: TextFile) -> Result<u64, Error> {
        output.finish()
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::Log;
    use serde_json::{Value, json};

    #[test]
    fn options_choose_the_parts_of_a_line() {
        let log = Log::of(&[(b"A", 1, b"ab"), (b"B", 2, b"")]);
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
    }

    #[test]
    fn no_event_is_no_line() {
        assert_eq!(Log::of(&[]).written("jsonl", json!({}), &[]), "");
    }
}
