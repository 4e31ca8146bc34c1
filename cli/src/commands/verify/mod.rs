//! `verify`: compares outputs with what was written of them when they were made, and looks for damage.
//! Changes nothing.

mod record;
mod verdict;

use std::path::Path;
use std::sync::Arc;

use serde_json::{Map, Value};
use sluice_core::files;
use sluice_pipeline::batch;

use crate::args::VerifyArgs;
use crate::commands::info::{Counting, Types};
use crate::description::Format;
use crate::ending::{Ending, Failure, Outcome};
use crate::inputs;
use crate::out;
use crate::shell::Shell;
use record::{STOPPED_EARLY, Said, judge_folder, judge_report};
use verdict::Verdict;

/// Judges every path, also behind one that is wrong.
pub(crate) fn run(args: &VerifyArgs, shell: &Shell) -> Outcome {
    let mut worst = Ending::Done;
    let format = Format::of(args.from.as_deref(), args.describe.as_deref(), &args.source_option)?;
    // What is wrong with what was said of the format is wrong of all paths.
    format.json()?;
    for path in &args.paths {
        let verdict = match judge(path, &format, shell) {
            Ok(verdict) => verdict,
            Err(failure @ (Failure::Mistakes(_) | Failure::Closed)) => return Err(failure),
            Err(failure) => Verdict::different(failure.message()),
        };
        out::text(&verdict.text(path))?;
        worst = worst.max(verdict.ending());
    }
    Ok(worst)
}

fn judge(path: &Path, format: &Format, shell: &Shell) -> Result<Verdict, Failure> {
    if files::is_folder(path) {
        return judge_folder(path, shell);
    }
    if batch::is_record(path) {
        return judge_folder(path.parent().unwrap_or(Path::new(".")), shell);
    }
    if let Some(report) = record::report(path)? {
        return Ok(judge_report(&report, shell));
    }
    judge_file(path, format, shell)
}

/// Reads a file through, after comparing it with what is recorded of it in the folders around it.
fn judge_file(path: &Path, format: &Format, shell: &Shell) -> Result<Verdict, Failure> {
    let mut verdict = Verdict::default();
    let files = inputs::expand(shell, path)?;
    let recorded = record::recorded(path)?;
    match compared(path, &recorded, shell) {
        Some(compared) => verdict = compared,
        None => verdict.count(&files),
    }
    for file in &files {
        match format.reader(file, shell) {
            Ok((source, options)) => read_through(&file.path, source, &options, &mut verdict)?,
            Err(failure) if format.from.is_some() => return Err(failure),
            // Not all that can be written can be read; then what is recorded is all there is.
            Err(Failure::WrongUse(_)) if !recorded.is_empty() => {}
            Err(Failure::WrongUse(_)) => verdict.differences.push(NOTHING_TO_COMPARE.to_owned()),
            Err(failure) => return Err(failure),
        }
    }
    Ok(verdict)
}

/// What comes of comparing a file with what is recorded of it: it has to be one of these.
fn compared(path: &Path, recorded: &[Said], shell: &Shell) -> Option<Verdict> {
    let verdicts = recorded.iter().map(|said| {
        let mut verdict = Verdict::default();
        verdict.compare(path, said, shell);
        verdict
    });
    let mut verdicts: Vec<Verdict> = verdicts.collect();
    let fits = verdicts.iter().position(|verdict| verdict.ending() == Ending::Done).unwrap_or(0);
    let partial = recorded.get(fits)?.partial;
    let mut verdict = verdicts.swap_remove(fits);
    verdict.differences.extend(partial.then(|| STOPPED_EARLY.to_owned()));
    Some(verdict)
}

const NOTHING_TO_COMPARE: &str =
    "no source of this program reads it and no manifest names it, so nothing can be said";

fn read_through(
    path: &Path,
    source: &sluice_core::Plugin,
    options: &Map<String, Value>,
    verdict: &mut Verdict,
) -> Result<(), Failure> {
    let counting = Counting::new(Arc::default(), Types::default());
    let report = inputs::read_with(source, path, options, Box::new(counting))?;
    verdict.damage.extend(inputs::faults(source, path, options)?);
    for damage in &report.damage {
        let (length, offset) = (damage.length, damage.offset);
        verdict
            .damage
            .push(format!("{length} bytes at byte {offset} could not be read: {}", damage.reason));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Color;
    use sluice_core::Registry;
    use sluice_core::output::MANIFEST;
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
        judge_folder(folder(files, manifest).path(), &shell()).unwrap().differences
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
    fn everything_that_differs_is_told() {
        let manifest = format!(
            r#"{{"files": [{{"path": "a", "bytes": 3, "blake3": "{ABC}"}},
                {{"path": "b", "bytes": 3, "blake3": null}}, {{"path": "c", "bytes": 0, "blake3": null}},
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
    fn a_folder_without_a_manifest_or_with_a_broken_one_differs() {
        let empty = tempfile::tempdir().unwrap();
        assert_eq!(judge_folder(empty.path(), &shell()).unwrap().ending(), Ending::Wrong);
        assert_eq!(differences(&[], "{").len(), 1);
    }

    #[test]
    fn differences_weigh_more_than_damage() {
        let mut verdict = Verdict { damage: vec!["torn".into()], ..Verdict::default() };
        assert_eq!(verdict.ending().code(), 3);
        verdict.differences.push("other".into());
        assert_eq!(verdict.ending().code(), 1);
    }
}
