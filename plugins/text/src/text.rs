//! `text`: a line an event, for people. What is in a line is decided in [`crate::line`].

use std::path::PathBuf;

use serde::Deserialize;
use sluice_core::options::OutPath;
use sluice_core::schemars::JsonSchema;
use sluice_core::{Batch, EncodeContext, Error, Sink, SinkContext};

use crate::file::{self, TextBlock, TextFile};
use crate::line::TextLines;

/// Options of `text`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "sluice_core::schemars")]
pub struct Text {
    /// The file to write; `-`, the default, is standard output.
    #[serde(default = "stdout")]
    path: OutPath,
    #[serde(skip)]
    lines: TextLines,
}

fn stdout() -> OutPath {
    OutPath(PathBuf::from("-"))
}

sluice_core::register! {
    sink "text": Text,
    about: "writes a line an event for people to read",
    sample: include_str!("../samples/text.toml"),
    extensions: &["txt"],
}

impl Sink for Text {
    type Block = TextBlock;
    type Output = TextFile;

    fn targets(&self) -> Vec<PathBuf> {
        file::targets(&self.path)
    }

    fn takes_rows(&self) -> bool {
        true
    }

    fn open(&self, context: &SinkContext) -> Result<TextFile, Error> {
        TextFile::open(&self.path, b"", context)
    }

    fn encode(&self, batch: Batch, context: &mut EncodeContext<'_>) -> Result<TextBlock, Error> {
        TextBlock::of(&batch, context, |out| self.lines.write(&batch, context.channels, out))
    }

    fn append(&self, output: &mut TextFile, block: TextBlock) -> Result<u64, Error> {
        output.append(block)
    }

    fn flush(&self, output: &mut TextFile) -> Result<(), Error> {
        output.flush()
    }

    fn is_readable_unfinished(&self) -> bool {
        true
    }

    fn finish(&self, output: TextFile) -> Result<u64, Error> {
        output.finish()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::testing::{Log, make};
    use serde_json::json;

    #[test]
    fn a_line_is_written_for_each_event() {
        let log = Log::of(&[(b"A", 0, b"ab"), (b"B", 1_500_000_000, b"")]);
        let text = log.written("text", json!({}), &[1]);
        let wanted = "1970-01-01T00:00:00.000000000Z  A  #0  2 B  6162\n\
            1970-01-01T00:00:01.500000000Z  B  #1  0 B\n";
        assert_eq!(text, wanted);
    }

    #[test]
    fn without_a_path_it_goes_to_standard_output() {
        assert_eq!(make("text", json!({})).unwrap().targets(), [Path::new("-")]);
    }
}
