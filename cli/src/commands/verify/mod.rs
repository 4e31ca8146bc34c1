//! `verify`: compares outputs with their manifest, and checks logs for damage. Changes nothing.

mod listing;
mod record;
mod result;
mod unrecorded;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sluice_io::files;
use sluice_io::output::MANIFEST;
use sluice_kit::InputFaults;
use sluice_model::{DynSink, Input, Plugin, PluginKind};
use sluice_pipeline::run::Options;
use sluice_pipeline::{PipelineNode, batch};

use crate::args::{FormatArgs, VerifyArgs};
use crate::commands::generated;
use crate::commands::info::{CensusSink, TypeNames};
use crate::exit::{CommandResult, ExitStatus, Failure};
use crate::input_format::InputFormat;
use crate::inputs;
use crate::inspection;
use crate::shell::Shell;
use crate::stdout;
use record::{STOPPED_EARLY, verify_folder, verify_report};
use result::{RecordedFile, VerifyResult};
pub(crate) use unrecorded::output_folder_around;

/// Verifies every path, continuing after failures.
pub(crate) fn run(args: &VerifyArgs, shell: &Shell) -> CommandResult {
    let mut worst = ExitStatus::Done;
    let format = InputFormat::from_args(&args.format)?;
    let logs = expand(args, shell)?;
    files::refuse_repeated_streams(logs.iter().flat_map(|(_, found)| found))?;
    refuse_wrong_format(args, &logs, &format, shell)?;
    let reader = LogReader { format, allow_exec: args.allow_exec, shell };
    reader.refuse_wrong_options(&logs)?;
    for (path, found) in logs {
        let result = match found.and_then(|found| reader.verify(&found)) {
            Ok(result) => result,
            // All logs are of this format.
            Err(failure @ Failure::Options(_)) if reader.format.from.is_some() => {
                return Err(failure);
            }
            Err(failure @ (Failure::Description(_) | Failure::StdoutClosed)) => {
                return Err(failure);
            }
            Err(failure) => VerifyResult::different(failure.message()),
        };
        let printed = match args.json {
            true => stdout::json(&result.to_json(&path).to_string(), shell),
            false => stdout::text(&result.text(&path), shell),
        };
        stdout::unless_closed(printed)?;
        worst = worst.max(result.status());
    }
    Ok(worst)
}

/// A path, and what is there, or why nothing is.
type FoundPath = (PathBuf, Result<Input, Failure>);

/// What is to be verified: URLs of files are resolved, and globs expanded, also to folders that no
/// source reads. A failure is reported in its place.
fn expand(args: &VerifyArgs, shell: &Shell) -> Result<Vec<FoundPath>, Failure> {
    let mut all = Vec::new();
    for word in &args.paths {
        let path: PathBuf = match word.to_str() {
            Some(text) => inputs::path_of_url(text, "all events are verified", shell)?.into(),
            None => word.clone(),
        };
        inputs::refuse_live(shell, &path)?;
        inputs::warn_of_other_matches(&path, shell);
        match files::expand_with_folders(&path) {
            Ok(found) => all.extend(found.into_iter().map(|found| (found.path.clone(), Ok(found)))),
            Err(error) => all.push((path, Err(error.into()))),
        }
    }
    Ok(all)
}

/// How the files in an output folder differ from their record.
pub(crate) fn folder_differences(folder: &Path, shell: &Shell) -> Result<Vec<String>, Failure> {
    Ok(verify_folder(folder, shell)?.differences)
}

/// Refuses a format that this program does not have, and a format if there is no log to read.
fn refuse_wrong_format(
    args: &VerifyArgs,
    found: &[FoundPath],
    format: &InputFormat,
    shell: &Shell,
) -> Result<(), Failure> {
    let FormatArgs { from, describe, source_option } = &args.format;
    if from.is_none() && describe.is_none() && source_option.is_empty() {
        return Ok(());
    }
    format.named_source(shell)?;
    // Names that mean nothing may be those of logs, and are reported in their place.
    let may_be_log =
        |found: &Result<Input, _>| found.as_ref().map_or(true, |found| is_log(&found.path, shell));
    match found.iter().any(|(_, found)| may_be_log(found)) {
        true => Ok(()),
        false => Err(Failure::Usage(
            "--from, --describe and --source-option say how to read a log, and no path is one: \
             folders and reports are compared with their records"
                .to_owned(),
        )),
    }
}

/// Whether a path is verified by reading it.
fn is_log(path: &Path, shell: &Shell) -> bool {
    let is_report = || record::report(path).is_ok_and(|report| report.is_some());
    match files::is_folder(path) {
        true => is_folder_log(path, shell),
        false => !batch::is_batch_record(path) && !is_report(),
    }
}

/// Whether a folder is a log, such as a bag, and not the output of a run: of a format that runs
/// write, the manifest is missing.
fn is_folder_log(folder: &Path, shell: &Shell) -> bool {
    let is_written = |name: &str| shell.registry.get(PluginKind::Sink, name).is_some();
    let sources = shell.registry.sniff_path(folder).unwrap_or_default();
    let is_read = sources.first().is_some_and(|source| !is_written(source.name));
    is_read && !record::has_record(folder)
}

/// How logs are read.
struct LogReader<'s> {
    format: InputFormat,
    allow_exec: bool,
    shell: &'s Shell,
}

impl LogReader<'_> {
    /// Refuses options that the source of no log takes.
    fn refuse_wrong_options(&self, found: &[FoundPath]) -> Result<(), Failure> {
        let mut taken = Ok(());
        if self.format.options.is_empty() {
            return taken;
        }
        let found = found.iter().filter_map(|(_, found)| found.as_ref().ok());
        for Input { path, .. } in found.filter(|found| is_log(&found.path, self.shell)) {
            let source = self.format.source_for(path, self.shell);
            match source.and_then(|source| self.source_node(source, path)) {
                Ok(_) => return Ok(()),
                Err(failure @ (Failure::Options(_) | Failure::Description(_))) => {
                    taken = taken.and(Err(failure));
                }
                // A failure of the log, which is reported in its place.
                Err(_) => {}
            }
        }
        taken
    }

    fn source_node(&self, source: &Plugin, log: &Path) -> Result<PipelineNode, Failure> {
        generated::source_node("sluice verify", &self.format, (source, log), self.shell)
    }

    fn verify(&self, found: &Input) -> Result<VerifyResult, Failure> {
        let path = &found.path;
        if files::is_folder(path) {
            return match is_folder_log(path, self.shell) {
                true => self.verify_log(found),
                false => verify_folder(path, self.shell),
            };
        }
        if batch::is_batch_record(path) {
            return verify_folder(path.parent().unwrap_or(Path::new(".")), self.shell);
        }
        if let Some(report) = record::report(path)? {
            return Ok(verify_report(&report, self.shell));
        }
        self.verify_log(found)
    }

    /// Compares a log with its records in the folders above it, then reads it in full.
    fn verify_log(&self, log: &Input) -> Result<VerifyResult, Failure> {
        let recorded = record::recorded(&log.path)?;
        let mut result = compare_recorded(&log.path, &recorded, self.shell).unwrap_or_else(|| {
            let bytes = log.bytes.unwrap_or_default();
            VerifyResult { files: 1, bytes, ..VerifyResult::default() }
        });
        if recorded.is_empty()
            && let Some(folder) = output_folder_around(&log.path)?
        {
            let manifest = folder.join(MANIFEST);
            result.differences.push(format!("it is not in {}", manifest.display()));
        }
        match self.format.source_for(&log.path, self.shell) {
            Ok(source) => self.read_through(log, source, &mut result)?,
            Err(failure) if self.format.from.is_some() => return Err(failure),
            // Some formats can only be written; the record is all there is then.
            Err(Failure::Usage(_) | Failure::NotALog(_)) => {
                let differs = recorded.is_empty().then(|| NOTHING_TO_COMPARE.to_owned());
                result.differences.extend(differs);
            }
            Err(failure) => return Err(failure),
        }
        Ok(result)
    }

    fn read_through(
        &self,
        log: &Input,
        source: &Plugin,
        result: &mut VerifyResult,
    ) -> Result<(), Failure> {
        let node = || self.source_node(source, &log.path);
        let counting = DynSink::new(CensusSink::new(Arc::default(), TypeNames::default()));
        let found = Arc::new(InputFaults::collecting());
        let (allow_exec, input_faults) = (self.allow_exec, Arc::clone(&found));
        let options = Options { allow_exec, input_faults, ..Options::default() };
        let report = inspection::read(node()?, counting, options, self.shell)?;
        if log.bytes.is_none() {
            result.bytes += report.bytes_read;
        }
        result.damage.extend(inspection::faults(&node()?, &log.path)?);
        result.damage.extend(found.take());
        for damage in &report.damage {
            let (length, offset, reason) = (damage.length, damage.offset, &damage.reason);
            let lost = format!("{length} bytes at byte {offset} could not be read: {reason}");
            result.damage.push(lost);
        }
        Ok(())
    }
}

/// Compares a file with its records; it must match one of them.
fn compare_recorded(path: &Path, recorded: &[RecordedFile], shell: &Shell) -> Option<VerifyResult> {
    let results = recorded.iter().map(|expected| {
        let mut result = VerifyResult::default();
        result.compare(path, expected, shell);
        result
    });
    let mut results: Vec<VerifyResult> = results.collect();
    let fits = results.iter().position(|result| result.status() == ExitStatus::Done).unwrap_or(0);
    let partial = recorded.get(fits)?.partial;
    let mut result = results.swap_remove(fits);
    result.differences.extend(partial.then(|| STOPPED_EARLY.to_owned()));
    Some(result)
}

const NOTHING_TO_COMPARE: &str =
    "it cannot be verified: no manifest names it, and no source of this program reads it";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::Color;
    use sluice_model::Registry;
    use std::fs;

    fn shell() -> Shell {
        Shell::new(Registry::from_plugins([]), true, Color::Never)
    }

    fn folder(files: &[(&str, &str)], manifest: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        fs::write(folder.path().join(MANIFEST), manifest).unwrap();
        folder
    }

    fn differences(files: &[(&str, &str)], manifest: &str) -> Vec<String> {
        verify_folder(folder(files, manifest).path(), &shell()).unwrap().differences
    }

    /// The BLAKE3 hash of `abc`.
    const ABC: &str = "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85";

    #[test]
    fn a_folder_that_is_as_it_was_written_is_fine() {
        let manifest =
            format!(r#"{{"files": [{{"path": "x/a", "bytes": 3, "blake3": "{ABC}"}}]}}"#);
        assert_eq!(differences(&[("x/a", "abc")], &manifest), [""; 0]);
        for litter in [".b.1-0.sluice-tmp", ".many.1-0.sluice-tmp/x/b"] {
            assert_eq!(differences(&[("x/a", "abc"), (litter, "")], &manifest), [""; 0]);
        }
        let ours = "channel=.b.1-0.sluice-tmp/part-00000.parquet";
        assert_eq!(differences(&[("x/a", "abc"), (ours, "")], &manifest).len(), 1);
    }

    #[test]
    fn every_difference_is_reported() {
        let manifest = format!(
            r#"{{"files": [{{"path": "a", "bytes": 3, "blake3": "{ABC}"}},
                {{"path": "b", "bytes": 3, "blake3": null}},
                {{"path": "c", "bytes": 0, "blake3": null}},
                {{"path": "../d", "bytes": 0, "blake3": null}}]}}"#
        );
        let found = differences(&[("a", "abd"), ("b", "abcd"), ("y/e", "")], &manifest);
        let words = [
            "a has the hash",
            "b has 4 bytes instead of 3",
            "c is missing",
            "../d",
            "y/e is not in",
        ];
        assert_eq!(found.len(), words.len(), "{found:?}");
        for (sentence, word) in found.iter().zip(words) {
            assert!(sentence.contains(word), "{sentence}");
        }
    }

    #[test]
    fn a_folder_of_pieces_is_as_good_as_they_are() {
        let recording = folder(&[("piece=00001/a", "abc"), (".x.1-0.sluice-tmp/a", "")], "");
        let (root, piece) = (recording.path(), recording.path().join("piece=00001"));
        fs::remove_file(root.join(MANIFEST)).unwrap();
        let verified = || verify_folder(root, &shell()).unwrap();
        assert!(verified().differences[0].starts_with("piece=00001: it has no"));
        let manifest = format!(r#"{{"files": [{{"path": "a", "bytes": 3, "blake3": "{ABC}"}}]}}"#);
        fs::write(piece.join(MANIFEST), manifest).unwrap();
        let found = verified();
        assert_eq!((found.status(), found.files), (ExitStatus::Done, 1));
        fs::write(root.join("b"), "").unwrap();
        assert_eq!(verified().differences, ["b is in no piece"]);
    }

    #[test]
    fn records_of_batches_that_name_each_other_or_themselves_are_verified_once() {
        let parent = tempfile::tempdir().unwrap();
        let record = |file: &str| {
            format!(
                r#"{{"sluice": "x", "units": [{{"pipeline": "", "name": null, "sluice": "x",
                    "plugins": [], "inputs": [], "outputs": ["a"], "exit": 0, "files":
                    [{{"path": "{file}", "rows": 1, "bytes": 5, "blake3": "{}"}}]}}]}}"#,
                "0".repeat(64)
            )
        };
        let names = ["_manifest.json", "../a/_manifest.json", "../b/_manifest.json"];
        let a = parent.path().join("a");
        for folder in [&a, &parent.path().join("b")] {
            fs::create_dir(folder).unwrap();
            fs::write(folder.join(MANIFEST), record("../a/_manifest.json")).unwrap();
        }
        for name in names {
            fs::write(a.join(MANIFEST), record(name)).unwrap();
            let found = verify_folder(&a, &shell()).unwrap().differences;
            let is_named = |one: &String| one.contains("is not the manifest of a single run");
            assert!(found.iter().any(is_named), "{name}: {found:?}");
        }
    }

    #[test]
    fn pieces_in_pieces_are_not_searched() {
        let folder = tempfile::tempdir().unwrap();
        for piece in ["piece=00001", "piece=00002"] {
            std::os::unix::fs::symlink(".", folder.path().join(piece)).unwrap();
        }
        assert_eq!(verify_folder(folder.path(), &shell()).unwrap().differences.len(), 2);
    }

    #[test]
    fn a_folder_without_a_manifest_or_with_a_broken_one_differs() {
        let empty = tempfile::tempdir().unwrap();
        assert_eq!(verify_folder(empty.path(), &shell()).unwrap().status(), ExitStatus::Failed);
        assert_eq!(differences(&[], "{").len(), 1);
    }

    #[test]
    fn differences_weigh_more_than_damage() {
        let mut result = VerifyResult { damage: vec!["torn".into()], ..VerifyResult::default() };
        assert_eq!(result.status().code(), 3);
        result.differences.push("other".into());
        assert_eq!(result.status().code(), 1);
    }
}
