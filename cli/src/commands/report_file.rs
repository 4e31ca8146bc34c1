//! The file of `--report`, which replaces nothing that a run reads or writes.

use std::fs::{File, OpenOptions};
use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use sluice_io::escape::json_escaped;
use sluice_io::files::{self, FileIdentity, is_standard_output, is_stream};
use sluice_io::output::{OutputFile, Outputs, canonical_path};
use sluice_io::store::StorePath;
use sluice_model::{Error, Overwrite};
use sluice_pipeline::batch::is_batch_record;
use sluice_pipeline::{OnDamage, Pipeline, PipelineNode, Report};

use crate::args::RunningArgs;
use crate::commands::verify;
use crate::exit::Failure;

/// The report file. Opened before the run, so that a bad path fails early; an earlier report stays
/// until the new one is complete.
pub(crate) struct ReportFile {
    path: PathBuf,
    to: ReportTarget,
}

enum ReportTarget {
    /// A file of its own, or a stream.
    Output(Arc<Outputs>, Box<OutputFile>),
    /// A file that this program has open, such as standard error: it may hold more than the report.
    OpenFile(File),
    /// An earlier report, in a folder that takes no other file.
    InPlace(File),
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
        let is_stdout = path == Path::new("-");
        if is_standard_output(path) && outputs.iter().any(|output| is_standard_output(output)) {
            return Err(Failure::Usage(
                "--report: an output is written to standard output, so the report needs a file"
                    .into(),
            ));
        }
        if !is_stdout {
            refuse_overwriting(path, pipeline, outputs)?;
        }
        Self::create(path)
    }

    fn create(path: &Path) -> Result<Self, Failure> {
        let to = if is_open_file(path) && !is_stream(path) {
            let file = OpenOptions::new().append(true).open(path);
            ReportTarget::OpenFile(file.map_err(|e| Error::io("open", path, e))?)
        } else {
            let files = Arc::new(Outputs::new(Overwrite::Replace, false, &[]));
            match files.create_as_is(path) {
                Ok(file) => ReportTarget::Output(files, Box::new(file)),
                Err(error) => ReportTarget::InPlace(open_existing(path).ok_or(error)?),
            }
        };
        Ok(Self { path: path.to_owned(), to })
    }

    /// Writes the report, or the failure.
    pub(super) fn write(self, result: Result<Value, Value>) -> Result<(), Failure> {
        let is_done = result.is_ok();
        let (Ok(value) | Err(value)) = result;
        // The names of some outputs are known only when they are written.
        if is_published(&self.path, &value) {
            return Err(Failure::Failed(format!(
                "there is no report: an output of its name has replaced it; give the report \
                 another name: {}",
                self.path.display()
            )));
        }
        let text = format!("{value:#}\n");
        let written = self.to.write(&self.path, json_escaped(&text).as_bytes());
        written.map_err(|error| match error.into() {
            Failure::Error(error) if is_done => Failure::Failed(format!(
                "{error}; the outputs are complete, only the report is missing"
            )),
            failure => failure,
        })
    }
}

/// Prepares a run that has no report file yet. If that fails, the failure replaces an earlier
/// report in the file `report`, which could be considered that of this run. Nothing else is
/// replaced, as inputs and outputs may be unknown.
pub(crate) fn prepare<T>(
    report: Option<&Path>,
    step: impl FnOnce() -> Result<T, Failure>,
) -> Result<T, Failure> {
    step().inspect_err(|failure| {
        if let Some(path) = report.filter(|path| is_report(path)) {
            let file = ReportFile::create(path);
            // The failure itself matters more than that of its report.
            drop(file.and_then(|file| file.write(Err(failure_json(failure, None)))));
        }
    })
}

/// The fields of a report that are known of a failed run: what became of its events is not.
const KNOWN_OF_FAILURE: [&str; 7] =
    ["sources", "damage", "damaged_ranges", "notes", "files", "bytes_read", "seconds"];

/// A failure, with what is known of the run: nothing was read if it has not begun.
pub(super) fn failure_json(failure: &Failure, known: Option<Value>) -> Value {
    let mut report = known.unwrap_or_else(|| Report::default().to_json());
    if let Some(fields) = report.as_object_mut() {
        fields.retain(|key, _| KNOWN_OF_FAILURE.contains(&&**key));
    }
    report["error"] = failure.message().into();
    report["interrupted"] = matches!(failure, Failure::Interrupted { .. }).into();
    report["exit"] = failure.code().into();
    report
}

/// Whether a file is a report.
fn is_report(path: &Path) -> bool {
    #[derive(Deserialize)]
    struct WrittenReport {
        #[serde(rename = "exit")]
        _exit: u8,
        #[serde(rename = "sources")]
        _sources: IgnoredAny,
        #[serde(rename = "seconds")]
        _seconds: f64,
    }
    let file = path.is_file().then(|| File::open(path).ok()).flatten();
    file.is_some_and(|file| {
        serde_json::from_reader::<_, WrittenReport>(BufReader::new(file)).is_ok()
    })
}

impl ReportTarget {
    fn write(self, path: &Path, text: &[u8]) -> Result<(), Error> {
        match self {
            Self::OpenFile(mut file) => {
                file.write_all(text).map_err(|e| Error::io("write", path, e))
            }
            Self::InPlace(file) => replace_text(file, path, text),
            Self::Output(files, mut file) => {
                file.write(text)?;
                file.finish(0)?;
                let Err(error) = files.publish(|_, _| Ok(String::new())) else { return Ok(()) };
                // A mount point cannot be replaced, nor in some folders the file of another user.
                match open_existing(path) {
                    Some(file) => replace_text(file, path, text),
                    None => Err(error),
                }
            }
        }
    }
}

/// The file of an earlier report, if it can be written to.
fn open_existing(path: &Path) -> Option<File> {
    let is_file = path.is_file();
    is_file.then(|| OpenOptions::new().write(true).open(path).ok()).flatten()
}

fn replace_text(mut file: File, path: &Path, text: &[u8]) -> Result<(), Error> {
    let written = file.set_len(0).and_then(|()| file.write_all(text));
    written.map_err(|e| Error::io("write", path, e))
}

/// Refuses to overwrite an input or an output with the report, and names that only outputs have.
fn refuse_overwriting(
    path: &Path,
    pipeline: &Pipeline,
    outputs: &[PathBuf],
) -> Result<(), Failure> {
    let refused = |what: &str| Err(Failure::Usage(format!("{what}: {}", path.display())));
    if StorePath::parse(path)?.is_some() {
        return Err(Failure::Usage("--report: the report needs a file on this machine".into()));
    }
    if path.as_os_str().as_encoded_bytes().ends_with(b"/") || path.is_dir() {
        return refused("--report: the report needs the name of a file, not of a folder");
    }
    if is_batch_record(path) {
        return refused(
            "the report would have the name of the record of a run or batch; choose another name",
        );
    }
    // Different paths may name the same file.
    let place = canonical_path(path);
    let quarantines = pipeline.nodes.iter().filter_map(|node| match &node.damage {
        OnDamage::Quarantine(path) => Some(path),
        _ => None,
    });
    let around =
        outputs.iter().chain(quarantines).find(|output| place.starts_with(canonical_path(output)));
    match around {
        Some(output) if canonical_path(output) == place => {
            refused("the report would replace an output")
        }
        Some(output) => refused(&format!(
            "the report would be a file in the output folder {} that its manifest does not list; \
             write it elsewhere",
            output.display()
        )),
        None if is_input(path, pipeline) => refused("the report would replace an input"),
        None => refuse_in_output_folder(path, "the report"),
    }
}

/// Refuses to write `what` into an output folder whose manifest lists every file.
pub(crate) fn refuse_in_output_folder(path: &Path, what: &str) -> Result<(), Failure> {
    match verify::output_folder_around(path)? {
        Some(folder) => Err(Failure::Usage(format!(
            "{what} would be a file in the output folder {} that its manifest does not list; \
             write it elsewhere: {}",
            folder.display(),
            path.display()
        ))),
        None => Ok(()),
    }
}

/// Whether a path is that of a file that a process has open, such as `/dev/stderr`.
fn is_open_file(path: &Path) -> bool {
    let is_listed = |path: &Path| {
        let folder = path.parent().and_then(|folder| folder.canonicalize().ok());
        folder.is_some_and(|folder| folder.starts_with("/proc") && folder.ends_with("fd"))
    };
    is_listed(path) || path.read_link().is_ok_and(|target| is_listed(&target))
}

/// Whether the files in this report include the one at `path`.
fn is_published(path: &Path, report: &Value) -> bool {
    let files = report["files"].as_array().into_iter().flatten();
    // Of the files written, `-` is standard output.
    let names = files.filter_map(|file| file["path"].as_str()).filter(|name| *name != "-");
    FileIdentity::is_one_of(path, names)
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
