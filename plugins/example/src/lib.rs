//! Source `lines`: each line of a text file is an event. Copy it to begin a source of your own.

use schemars::JsonSchema;
use serde::Deserialize;
use sluice_core::files::{self, LogFile};
use sluice_core::options::InPaths;
use sluice_core::*;

/// Reads text files. Line `n` of a file, counted from 0, happens `n` milliseconds after its start.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Lines {
    /// The files: one, a glob, a list of them, or `-` for standard input.
    path: InPaths,
}

register! {
    source "lines": Lines,
    about: "reads text files, a line an event",
    sample: include_str!("../samples/lines.toml"),
    extensions: &["txt"],
}

/// How much is read at a time. A line that is longer becomes several events.
const BLOCK: usize = 1 << 20;

impl Source for Lines {
    fn inputs(&self) -> Result<Vec<Input>, Error> {
        files::expand(&self.path.0)
    }

    fn read<'s>(
        &'s self,
        split: &Split,
        _: Entry,
        run: &ReadContext,
    ) -> Result<Box<dyn Reader + 's>, Error> {
        let mut channel = Channel::new(Name::from_text("LINE"), run.source.clone(), Encoding::Text);
        channel.clock = Clock::Relative;
        let (channel, mut log) = (run.channels.intern(channel)?, LogFile::open(&split.input)?);
        let (mut at, mut number, mut block) = (0, 0, vec![0; BLOCK]);
        let mut next = move || {
            let read = log.read_at(at, &mut block)?;
            // The beginning of a line at the end of the block is read again with what follows it.
            let last = block[..read].iter().rposition(|byte| *byte == b'\n');
            let lines = &block[..last.map_or(read, |last| last + 1)];
            let mut batch = BatchBuilder::default();
            for line in lines.split_inclusive(|byte| *byte == b'\n') {
                let line = line.strip_suffix(b"\n").unwrap_or(line);
                batch.push_copy(number * 1_000_000, number, channel, line);
                number += 1;
            }
            at += lines.len() as u64;
            log.forget(at);
            Ok((!lines.is_empty()).then(|| batch.finish()))
        };
        Ok(Box::new(std::iter::from_fn(move || next().transpose())))
    }
}
