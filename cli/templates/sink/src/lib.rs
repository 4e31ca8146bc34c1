//! Sink `{{name}}`: writes one line of text per event: nanoseconds, source, channel, payload.
//!
//! The format is a sample. Replace it with yours: only `write_event` depends on it.

use std::fmt::Write;

use schemars::JsonSchema;
use serde::Deserialize;
use sluice_io::escape::path_escaped;
use sluice_model::options::OutPath;
use sluice_model::{
    Batch, Channel, Error, Event, OutputFile, PrepareContext, Sink, SinkContext, SinkTraits,
    Written, register,
};

/// Writes {{name}} files.
// The options in pipeline files. Their doc comments are the help of `plugins {{name}}`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LineSink {
    /// The file to write; `-` is standard output.
    path: OutPath,
    /// How payloads are written: their bytes in hexadecimal, or their size.
    #[serde(default)]
    payload: PayloadText,
}

/// How payloads are written.
#[derive(Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PayloadText {
    /// Bytes in hexadecimal.
    #[default]
    Hex,
    /// The number of bytes.
    Size,
}

register! {
    sink "{{name}}": LineSink,
    about: "writes {{name}} files, one line per event",
    sample: include_str!("../samples/{{name}}.toml"),
    extensions: &["{{name}}"],
}

/// The lines of a batch, not yet written.
pub struct EncodedLines {
    text: String,
    events: u64,
}

/// The file being written.
pub struct LineFile {
    file: OutputFile,
    events: u64,
}

impl Sink for LineSink {
    type Block = EncodedLines;
    type Unit = EncodedLines;
    type Output = LineFile;

    fn traits(&self) -> SinkTraits {
        SinkTraits {
            is_readable_unfinished: true,
            ..SinkTraits::writing(&self.path.0)
        }
    }

    // `outputs` publishes the file when the whole run has succeeded, never in part. If the path
    // ends in `.zst`, it compresses the file.
    fn open(&self, context: &SinkContext) -> Result<LineFile, Error> {
        let file = context.outputs.create(&self.path.0)?;
        Ok(LineFile { file, events: 0 })
    }

    // Called on all cores, in any order. Do the work here. (A format whose units hold several
    // batches, such as row groups, also implements `gather`.)
    fn prepare(
        &self,
        batch: Batch,
        context: &mut PrepareContext<'_>,
    ) -> Result<EncodedLines, Error> {
        let mut text = String::new();
        let channels = context.channels.since(0);
        let names: Vec<String> = channels.iter().map(|c| channel_text(c)).collect();
        for event in batch.iter() {
            let name = &names[event.channel.index()];
            write_event(&mut text, &event, name, self.payload)
                .expect("writing to memory does not fail");
        }
        // Listed in the report as not written.
        context
            .report
            .losses
            .insert("the numbers of events and the encodings of payloads are not written");
        let events = batch.len() as u64;
        Ok(EncodedLines { text, events })
    }

    // Called in the order of the events, with what `prepare` made of each batch.
    fn write(&self, output: &mut LineFile, block: EncodedLines) -> Result<Written, Error> {
        output.file.write(block.text.as_bytes())?;
        output.events += block.events;
        Ok(Written::events(block.events))
    }

    // An unfinished file is readable, so that recordings can flush it early.
    fn flush(&self, output: &mut LineFile) -> Result<(), Error> {
        output.file.flush()
    }

    fn finish(&self, output: LineFile) -> Result<Written, Error> {
        output.file.finish(output.events)?;
        // No events were held back until now.
        Ok(Written::default())
    }
}

/// Source and channel of a line, escaped so that they have no blanks.
fn channel_text(channel: &Channel) -> String {
    let name = channel.name.text();
    format!("{} {}", path_escaped(&channel.source), path_escaped(name))
}

fn write_event(
    text: &mut String,
    event: &Event<'_>,
    name: &str,
    payload: PayloadText,
) -> std::fmt::Result {
    write!(text, "{} {name} ", event.timestamp)?;
    match payload {
        PayloadText::Hex => {
            for byte in event.payload {
                write!(text, "{byte:02x}")?;
            }
        }
        PayloadText::Size => write!(text, "{}", event.payload.len())?,
    }
    text.write_char('\n')
}
