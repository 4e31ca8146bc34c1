//! Sink `{{name}}`: writes a line of text for each event: nanoseconds, source, channel, payload.
//!
//! The format is made up. Put yours in its place: `write_event` is all that knows it.

use std::fmt::Write;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;
use sluice_core::name::path_escaped;
use sluice_core::options::OutPath;
use sluice_core::{
    Batch, Channel, EncodeContext, Error, Event, OutputFile, Sink, SinkContext, register,
};

/// Writes {{name}} files.
// The options: what a pipeline file may say. Their comments are the help of `plugins {{name}}`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Lines {
    /// The file to write; `-` is standard output.
    path: OutPath,
    /// What is written of payloads: their bytes in hexadecimal, or how many there are.
    #[serde(default)]
    payload: Payload,
}

/// What is written of payloads.
#[derive(Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Payload {
    /// Their bytes in hexadecimal.
    #[default]
    Hex,
    /// How many bytes they have.
    Size,
}

register! {
    sink "{{name}}": Lines,
    about: "writes {{name}} files, a line an event",
    sample: include_str!("../samples/{{name}}.toml"),
    extensions: &["{{name}}"],
}

/// Lines of some events, not yet written.
pub struct Block {
    text: String,
    events: u64,
}

/// The file in the making.
pub struct Output {
    file: OutputFile,
    events: u64,
}

impl Sink for Lines {
    type Block = Block;
    type Output = Output;

    fn targets(&self) -> Vec<PathBuf> {
        vec![self.path.0.clone()]
    }

    // The file appears when the whole run has succeeded, and never in part: `outputs` sees to that. A path that
    // ends in `.zst` is compressed.
    fn open(&self, context: &SinkContext) -> Result<Output, Error> {
        let file = context.outputs.create(&self.path.0)?;
        Ok(Output { file, events: 0 })
    }

    // The work: on all cores, in any order.
    fn encode(&self, batch: Batch, context: &mut EncodeContext<'_>) -> Result<Block, Error> {
        let mut text = String::new();
        let channels = context.channels.since(0);
        let names: Vec<String> = channels.iter().map(|channel| named(channel)).collect();
        for event in batch.iter() {
            let name = &names[event.channel.index()];
            write_event(&mut text, &event, name, self.payload)
                .expect("writing to memory does not fail");
        }
        // What a line does not hold is told in the report.
        context
            .losses
            .insert("the numbers of events and the encodings of payloads are not written");
        let events = batch.len() as u64;
        Ok(Block { text, events })
    }

    // In the order of the events, one after another.
    fn append(&self, output: &mut Output, block: Block) -> Result<u64, Error> {
        output.file.write(block.text.as_bytes())?;
        output.events += block.events;
        Ok(block.events)
    }

    // Lines that were written can be read, whatever becomes of the rest: recordings may show them early.
    fn flush(&self, output: &mut Output) -> Result<(), Error> {
        output.file.flush()
    }

    fn is_readable_unfinished(&self) -> bool {
        true
    }

    fn finish(&self, output: Output) -> Result<u64, Error> {
        output.file.finish(output.events)?;
        // No event was held back until now.
        Ok(0)
    }
}

/// What stands in a line for a channel: it holds no blanks, whatever names do.
fn named(channel: &Channel) -> String {
    let name = channel.name.text();
    format!("{} {}", path_escaped(&channel.source), path_escaped(name))
}

fn write_event(
    text: &mut String,
    event: &Event<'_>,
    name: &str,
    payload: Payload,
) -> std::fmt::Result {
    write!(text, "{} {name} ", event.timestamp)?;
    match payload {
        Payload::Hex => {
            for byte in event.payload {
                write!(text, "{byte:02x}")?;
            }
        }
        Payload::Size => write!(text, "{}", event.payload.len())?,
    }
    text.write_char('\n')
}
