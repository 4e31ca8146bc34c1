//! Source `exec`: events from programs, one program per input.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crossbeam_channel::{Receiver, RecvTimeoutError};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use sluice_io::files;
use sluice_model::options::InPaths;
use sluice_model::time::TimeSpan;
use sluice_model::units::pluralize;
use sluice_model::{
    Batch, Error, Input, OptionsError, PluginFactory, Query, ReadContext, Reader, Registry, Source,
    Split, SplitStart,
};

use crate::events::{Defaults, to_batch};
use crate::launch::{self, INPUT, LaunchOptions, here, program, timeout};
use crate::process::{POLL_INTERVAL, Process, StdinMode};
use crate::stdout::{StreamItem, listen};

/// Reads events from a program's Arrow stream.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(try_from = "Options")]
#[schemars(with = "Options")]
pub(crate) struct ExecSource {
    launch: LaunchOptions,
    path: Option<InPaths>,
}

/// The options as written.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Options {
    /// The program and its arguments, as a list; no shell is involved. It writes an Arrow stream to
    /// standard output. `{input}` in arguments stands for the path of the input.
    #[serde(deserialize_with = "launch::words")]
    command: Vec<String>,
    /// The inputs: a file, a glob or a list of them. The program runs once per input, for several
    /// inputs at a time. Without it, the program runs once.
    path: Option<InPaths>,
    /// The folder in which the program runs. Default: the folder of the pipeline file.
    #[serde(default = "here", deserialize_with = "launch::folder")]
    #[schemars(extend("format" = "sluice-path"))]
    folder: PathBuf,
    /// Additional environment variables.
    #[serde(default, deserialize_with = "launch::variables")]
    env: BTreeMap<String, String>,
    /// How long the program may write nothing before it is killed: seconds, or 200ms, 1m30s; 0 for
    /// no limit.
    #[serde(default = "timeout")]
    #[schemars(extend("default" = "60s"))]
    timeout: TimeSpan,
}

impl TryFrom<Options> for ExecSource {
    type Error = OptionsError;

    fn try_from(options: Options) -> Result<Self, OptionsError> {
        let Options { command, path, folder, env, timeout } = options;
        let named = command.iter().any(|word| word.contains(INPUT));
        let launch = LaunchOptions { command, folder, env, timeout };
        let wrong = match (&path, named) {
            (Some(_), false) => (
                "command",
                format!(
                    "no argument of `command` is {INPUT}: the program would not know what to read \
                     of `path`"
                ),
            ),
            (None, true) => ("command", format!("`command` uses {INPUT}, but there is no `path`")),
            (Some(paths), _) if paths.0.iter().any(|path| path == Path::new("-")) => {
                let what = "the program of a source cannot get standard input; name a file";
                ("path", what.to_owned())
            }
            _ => return Ok(Self { launch, path }),
        };
        Err(OptionsError::at(wrong.0, wrong.1))
    }
}

/// Parses and checks options, so that errors of both name their key.
fn make(options: Value, _: &Registry) -> Result<Box<dyn Source>, OptionsError> {
    let source: ExecSource = sluice_model::options::read::<Options>(options)?.try_into()?;
    Ok(Box::new(source))
}

sluice_model::register! {
    source "exec": ExecSource,
    make: PluginFactory::Source(make),
    about: "runs a program in any language that writes events as an Arrow stream",
    sample: include_str!("../samples/exec-source.toml"),
    program: Some(program),
}

impl Source for ExecSource {
    fn inputs(&self) -> Result<Vec<Input>, Error> {
        self.path.as_ref().map_or_else(|| Ok(Vec::new()), |paths| files::expand(&paths.0))
    }

    fn splits(&self, _: u64, _: &Query) -> Result<Vec<Split>, Error> {
        // The length of an input does not tell how much its program writes.
        let Some(_) = self.path else { return Ok(vec![Split::whole(PathBuf::new(), None)]) };
        Ok(self.inputs()?.into_iter().map(|input| Split::whole(input.path, None)).collect())
    }

    fn read<'s>(
        &'s self,
        split: &Split,
        _: SplitStart,
        context: &ReadContext,
    ) -> Result<Box<dyn Reader + 's>, Error> {
        let input = self.path.as_ref().map(|_| split.input.as_path());
        let (mut process, pipes) = self.launch.start(input, StdinMode::Null, &context.run)?;
        let heard = listen(pipes.output, process.activity())?;
        process.restart_timer();
        Ok(Box::new(ProgramReader {
            process,
            heard,
            context: context.clone(),
            events: 0,
            has_ended: false,
            is_done: false,
        }))
    }
}

/// Reads the output of a program.
struct ProgramReader {
    process: Process,
    heard: Receiver<StreamItem>,
    context: ReadContext,
    events: i64,
    /// Whether the stream of events has its end mark.
    has_ended: bool,
    is_done: bool,
}

impl Reader for ProgramReader {
    fn next_batch(&mut self) -> Result<Option<Batch>, Error> {
        // Handling the previous batch does not count as the program's inactivity.
        self.process.restart_timer();
        while !self.is_done {
            if self.context.run.is_cancelled() {
                self.process.end();
                return Ok(None);
            }
            match self.heard.recv_timeout(POLL_INTERVAL) {
                Ok(StreamItem::Events(given, bytes)) => {
                    self.context.run.count_read(bytes);
                    let defaults = Defaults::new(&self.context.source, &given);
                    let batch = to_batch(&given, self.events, &defaults, &self.context.channels);
                    let batch = batch.map_err(|error| {
                        self.process.failed(&format!("wrote invalid events: {error}"))
                    })?;
                    self.events = self.events.saturating_add(batch.len() as i64);
                    return Ok(Some(batch));
                }
                Ok(StreamItem::End) => self.has_ended = true,
                Ok(StreamItem::Invalid(what, _output)) => {
                    let wrote = match self.events {
                        0 => "wrote no events".to_owned(),
                        read => format!(
                            "wrote something invalid after {}",
                            pluralize(read.unsigned_abs(), "event")
                        ),
                    };
                    return Err(self.process.failed(&format!("{wrote}: {what}")));
                }
                Err(RecvTimeoutError::Timeout) => self.process.check_alive()?,
                // The thread that reads the output always says how that ended.
                Err(RecvTimeoutError::Disconnected) if !self.has_ended => {
                    return Err(Error::panicked());
                }
                Err(RecvTimeoutError::Disconnected) => {
                    self.is_done = true;
                    if self.process.wait_unless(|| self.context.run.is_cancelled())? {
                        self.process.check_exit()?;
                    }
                }
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use arrow_array::{ArrayRef, BinaryArray, Int64Array, RecordBatch, StringArray};
    use arrow_ipc::writer::StreamWriter;

    use crate::wire::END;

    /// The stream of one event with these attributes.
    fn stream(attributes: Option<&str>) -> Vec<u8> {
        let columns: [(&str, ArrayRef, bool); 4] = [
            ("timestamp", Arc::new(Int64Array::from(vec![5])), false),
            ("channel", Arc::new(StringArray::from(vec!["A"])), false),
            ("payload", Arc::new(BinaryArray::from(vec![&b"x"[..]])), false),
            ("attributes", Arc::new(StringArray::from(vec![attributes])), true),
        ];
        let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
        let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema()).unwrap();
        writer.write(&batch).unwrap();
        writer.into_inner().unwrap()
    }

    /// What the source says of a program that writes these bytes.
    fn error_of(bytes: &[u8]) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("in.arrows");
        std::fs::write(&path, bytes).unwrap();
        let options = serde_json::json!({ "command": ["cat", "{input}"], "path": path });
        let source = make(options, &Registry::default()).unwrap();
        let split = source.splits(u64::MAX, &Query::default()).unwrap().remove(0);
        let context = ReadContext::standalone("prog");
        let mut reader = source.read(&split, SplitStart::Search, &context).unwrap();
        loop {
            match reader.next_batch() {
                Ok(batch) => assert!(batch.is_some(), "it ends without an error"),
                Err(error) => return error.to_string(),
            }
        }
    }

    #[test]
    fn the_program_whose_events_are_wrong_is_named() {
        let message = error_of(&stream(Some("no JSON")));
        assert!(
            message.contains("the program `cat ") && message.contains("`attributes`"),
            "{message}"
        );
    }

    #[test]
    fn a_stream_that_goes_wrong_after_events_is_not_said_to_have_none() {
        let whole = stream(None);
        let cut = whole.get(..whole.len() - END.len()).unwrap();
        let message = error_of(cut);
        assert!(message.contains("wrote something invalid after 1 event: "), "{message}");
        assert!(message.contains("no end mark"), "{message}");
        let message = error_of(b"done\n");
        assert!(message.contains("wrote no events: "), "{message}");
    }
}
