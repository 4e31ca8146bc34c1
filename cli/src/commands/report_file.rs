//! The file of `--report`, which replaces nothing that a run reads or writes.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use serde_json::Value;
use sluice_io::escape::json_escaped;
use sluice_io::files::{self, FileIdentity};
use sluice_io::output::canonical_path;
use sluice_io::store::StorePath;
use sluice_model::Error;
use sluice_pipeline::{Pipeline, PipelineNode};

use crate::args::RunningArgs;
use crate::exit::Failure;

/// The report file. Opened before the run, so that a bad path fails early.
pub(crate) struct ReportFile {
    path: PathBuf,
    to: Box<dyn Write>,
    /// The file that was opened; `None` for a stream.
    identity: Option<FileIdentity>,
}

impl ReportFile {
    /// Opens the report file if `--report` is given. `outputs` are those of the pipeline.
    pub(crate) fn open_if_requested(
        args: &RunningArgs,
        pipeline: &Pipeline,
        outputs: &[PathBuf],
    ) -> Result<Option<Self>, Failure> {
        args.report.as_deref().map(|path| Self::open(path, pipeline, outputs)).transpose()
    }

    fn open(path: &Path, pipeline: &Pipeline, outputs: &[PathBuf]) -> Result<Self, Failure> {
        let to: Box<dyn Write> = if path == Path::new("-") {
            if outputs.iter().any(|output| output == path) {
                return Err(Failure::Usage(
                    "--report: an output is written to standard output, so the report needs a file"
                        .into(),
                ));
            }
            Box::new(io::stdout())
        } else {
            refuse_overwriting(path, pipeline, outputs)?;
            let file = File::create(path).map_err(|e| Error::io("create", path, e))?;
            // A report may have thousands of lines.
            Box::new(BufWriter::new(file))
        };
        Ok(Self { path: path.to_owned(), to, identity: FileIdentity::read(path) })
    }

    /// Writes the report, or the failure.
    pub(super) fn write(mut self, result: Result<Value, Value>) -> Result<(), Failure> {
        let is_done = result.is_ok();
        // The names of some outputs are known only when they are written.
        if self.identity.is_some() && FileIdentity::read(&self.path) != self.identity {
            return Err(Failure::Failed(format!(
                "there is no report: an output of its name has replaced it; give the report \
                 another name: {}",
                self.path.display()
            )));
        }
        let (Ok(value) | Err(value)) = result;
        let text = format!("{value:#}");
        let written = writeln!(self.to, "{}", json_escaped(&text)).and_then(|()| self.to.flush());
        written.map_err(|e| match Error::io("write", &self.path, e).into() {
            Failure::Error(error) if is_done => Failure::Failed(format!(
                "{error}; the outputs are complete, only the report is missing"
            )),
            failure => failure,
        })
    }
}

/// Refuses to overwrite an input or an output with the report.
fn refuse_overwriting(
    path: &Path,
    pipeline: &Pipeline,
    outputs: &[PathBuf],
) -> Result<(), Failure> {
    if StorePath::parse(path)?.is_some() {
        return Err(Failure::Usage("--report: the report needs a file on this machine".into()));
    }
    // Different paths may name the same file.
    let replaced = match outputs.iter().any(|out| canonical_path(out) == canonical_path(path)) {
        true => "an output",
        false if is_input(path, pipeline) => "an input",
        false => return Ok(()),
    };
    Err(Failure::Usage(format!("the report would replace {replaced}: {}", path.display())))
}

/// Whether a pipeline reads this file, under whatever name.
pub(crate) fn is_input(path: &Path, pipeline: &Pipeline) -> bool {
    if FileIdentity::read(path).is_none() {
        return false;
    }
    let is_read = |node: &PipelineNode| {
        let Some(source) = node.source() else { return false };
        // One that cannot be listed hides the others.
        let listed = |name| files::expand_with_folders(Path::new(name)).unwrap_or_default();
        let each = || node.source_paths().into_iter().flat_map(listed).collect();
        let files = source.files().or_else(|_| source.inputs()).unwrap_or_else(|_| each());
        FileIdentity::is_one_of(path, files.iter().map(|input| &input.path))
    };
    FileIdentity::is_one_of(path, &pipeline.files) || pipeline.nodes.iter().any(is_read)
}
