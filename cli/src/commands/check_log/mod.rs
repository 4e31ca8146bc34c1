//! `check-log`: compares logs with expectations, or makes expectations from a good log.
//!
//! Generates a pipeline per log, as `convert` does; the stage `expect` does the work.

mod args;
mod junit;
mod result;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use serde_json::json;
use sluice_io::escape::path_text;
use sluice_io::files::{self, FileIdentity};
use sluice_model::{DefaultRole, Error, Input, Overwrite, Plugin, PluginKind};
use sluice_pipeline::run::{self, Options};
use sluice_pipeline::{Pipeline, Report};

use crate::args::{RunningArgs, SelectionArgs};
use crate::commands::{execute, generated, report_file};
use crate::conversion;
use crate::exit::{CommandResult, ExitStatus, Failure};
use crate::flags::PipelineOrigin;
use crate::input_format::InputFormat;
use crate::inputs::{self, ExpandedWord};
use crate::plugin_lookup;
use crate::progress::ProgressMeter;
use crate::recipe::Recipe;
use crate::shell::Shell;
use crate::signals;
use crate::sniffing;
use crate::stdout;

pub(crate) use args::CheckLogArgs;
use result::LogResult;

/// The rules of expectations that need decoded fields. Without them, nothing is decoded.
const RULES_OF_FIELDS: [&str; 4] = ["type", "undecoded", "latency", "fields"];

pub(crate) fn run(args: &CheckLogArgs, shell: &Shell) -> CommandResult {
    let format = InputFormat::from_args(&args.format)?;
    match (&args.expect_from, &args.expect) {
        (Some(log), _) => write_expectations(log, args, &format, shell),
        (None, Some(expect)) => check_logs(expect, args, &format, shell),
        (None, None) => Err(Failure::Usage("--expect or --expect-from is needed".into())),
    }
}

/// Checks every log, continuing after failures.
fn check_logs(
    expect: &Path,
    args: &CheckLogArgs,
    format: &InputFormat,
    shell: &Shell,
) -> CommandResult {
    let expect = inputs::utf8_path(expect)?;
    let prints_xml = args.junit.as_deref() == Some(Path::new("-"));
    if prints_xml && args.json {
        let what = "--junit - and --json would both be written to standard output";
        return Err(Failure::Usage(what.into()));
    }
    refuse_mistakes(expect, args, shell)?;
    let logs = logs(&args.logs, format, shell)?;
    let text = files::read_small(Path::new(expect), usize::MAX)?;
    let decodes = needs_fields(&String::from_utf8_lossy(&text));
    let check = LogCheck { expect, decodes, args, format, shell };
    if let Some(junit) = &args.junit {
        check.refuse_to_replace_inputs(junit, &logs)?;
        report_file::refuse_in_output_folder(junit, "--junit")?;
    }
    check.refuse_wrong_options(&logs)?;
    let mut results = Vec::new();
    for log in logs {
        let result = check.result(log)?;
        let printed = match args.json {
            true => stdout::json(&result.to_json().to_string(), shell),
            false if prints_xml => Ok(()),
            false => stdout::text(&result.text(), shell),
        };
        stdout::unless_closed(printed)?;
        results.push(result);
    }
    match &args.junit {
        Some(_) if prints_xml => {
            stdout::unless_closed(stdout::text(&junit::text(&results), shell))?;
        }
        Some(file) => {
            let written = fs::write(file, junit::text(&results));
            written.map_err(|error| Error::io("write", file, error))?;
        }
        None => {}
    }
    Ok(results.iter().map(LogResult::status).max().unwrap_or(ExitStatus::Failed))
}

/// Refuses mistakes in files that all logs are checked with, once.
fn refuse_mistakes(expect: &str, args: &CheckLogArgs, shell: &Shell) -> Result<(), Failure> {
    // It is read for each log.
    if files::is_special(Path::new(expect)) {
        let what = "expected a file, found a pipe or a device; save it to a file, and name that";
        return Err(Failure::Usage(format!("--expect: {what}: {expect}")));
    }
    let stage = shell.registry.stage("expect", json!({ "file": expect }));
    stage.map_err(|error| Failure::Usage(format!("--expect: {}", error.message)))?;
    if !args.decoding.types.is_empty() {
        let stage = shell.registry.stage("decode", json!({ "types": args.decoding.types }));
        stage.map_err(|error| Failure::Usage(format!("--types: {}", error.message)))?;
    }
    Ok(())
}

/// Whether a rule for channels needs decoded fields.
fn needs_fields(text: &str) -> bool {
    let Ok(file) = text.parse::<toml::Table>() else { return false };
    let channels = file.get("channels").and_then(toml::Value::as_table);
    let rules = channels.into_iter().flat_map(|channels| channels.values());
    rules
        .filter_map(toml::Value::as_table)
        .any(|rules| RULES_OF_FIELDS.iter().any(|rule| rules.contains_key(*rule)))
}

/// A log with its source, or why there is none.
type FoundLog<'s> = (String, Result<&'s Plugin, Failure>);

/// The logs that words stand for, or why there are none.
fn logs<'s>(
    words: &[String],
    format: &InputFormat,
    shell: &'s Shell,
) -> Result<Vec<FoundLog<'s>>, Failure> {
    let look = |file: &Input| {
        let name = path_text(&file.path).into_owned();
        let path = inputs::utf8_path(&file.path).map(str::to_owned);
        Ok((name, path.and_then(|path| inputs::find_source(&[path], format, shell))))
    };
    let logs = |(word, found): ExpandedWord<'_>| {
        if plugin_lookup::is_url(word) {
            let what = "a live input has no end; `sluice record --expect FILE.toml` checks it";
            return vec![(word.clone(), Err(Failure::Usage(what.to_owned())))];
        }
        let found = found.and_then(|files| sniffing::try_map(&files, look));
        found.unwrap_or_else(|failure| vec![(word.clone(), Err(failure))])
    };
    let found = inputs::expand_all(words, "all events are checked", shell)?;
    Ok(found.into_iter().flat_map(logs).collect())
}

/// How each log is checked.
struct LogCheck<'a> {
    expect: &'a str,
    decodes: bool,
    args: &'a CheckLogArgs,
    format: &'a InputFormat,
    shell: &'a Shell,
}

impl LogCheck<'_> {
    /// Refuses options that the source of a log does not take, before the first is checked.
    fn refuse_wrong_options(&self, logs: &[FoundLog<'_>]) -> Result<(), Failure> {
        let mut sources = BTreeSet::new();
        for (log, found) in logs {
            if let Ok(source) = found
                && sources.insert(source.name)
                && let Err(failure @ (Failure::Options(_) | Failure::Description(_))) =
                    self.pipeline(log, source)
            {
                return Err(failure);
            }
        }
        Ok(())
    }

    /// Refuses to replace what is read with the results.
    fn refuse_to_replace_inputs(&self, junit: &Path, logs: &[FoundLog<'_>]) -> Result<(), Failure> {
        if FileIdentity::read(junit).is_none() {
            return Ok(());
        }
        let names = logs.iter().map(|(log, _)| log).chain(&self.args.decoding.types);
        let names = names.map(Path::new).chain([Path::new(self.expect)]);
        let is_named =
            FileIdentity::is_one_of(junit, names.chain(self.args.format.describe.as_deref()));
        // With types, although the checks may not need them.
        let with_types = LogCheck { decodes: true, ..*self };
        // A log that has no pipeline fails its check.
        let is_read = |(log, found): &FoundLog<'_>| {
            let pipeline =
                found.as_ref().ok().and_then(|source| with_types.pipeline(log, source).ok());
            pipeline.is_some_and(|pipeline| report_file::is_input(junit, &pipeline))
        };
        match is_named || logs.iter().any(is_read) {
            true => {
                let junit = junit.display();
                Err(Failure::Usage(format!("--junit would replace an input: {junit}")))
            }
            false => Ok(()),
        }
    }

    /// Checks a log. `Err` only if there is no point in checking others.
    fn result(&self, (log, found): FoundLog<'_>) -> Result<LogResult, Failure> {
        let checked = found.and_then(|source| self.pipeline(&log, source)).and_then(|pipeline| {
            run_watched(pipeline, &self.args.running(), Overwrite::Refuse, self.shell)
        });
        match checked {
            Ok(mut report) => {
                let unmet = std::mem::take(&mut report.unmet_expectations);
                let count = std::mem::take(&mut report.unmet_count);
                execute::report_losses(&report, PipelineOrigin::Flags, self.shell);
                Ok(LogResult::checked(log, &report, unmet, count))
            }
            Err(
                failure @ (Failure::Options(_)
                | Failure::Description(_)
                | Failure::Interrupted { .. }
                | Failure::StdoutClosed),
            ) => Err(failure),
            Err(failure) => {
                let message = failure.message();
                let text = match message.contains(&log) {
                    true => message.clone(),
                    false => format!("{log}: {message}"),
                };
                self.shell.error_with_fields("failure", &text, json!({ "file": log }));
                Ok(LogResult::failed(log, message))
            }
        }
    }

    fn pipeline(&self, log: &str, source: &Plugin) -> Result<Pipeline, Failure> {
        let inputs = [log.to_owned()];
        let (sink, expect) = ("null", Some(self.expect));
        let target = Target { sink, output: "", expect, decodes: self.decodes };
        pipeline((source, &inputs), &target, self.args, self.format, self.shell)
    }
}

/// Writes the expectations of a good log.
fn write_expectations(
    log: &str,
    args: &CheckLogArgs,
    format: &InputFormat,
    shell: &Shell,
) -> CommandResult {
    let inputs = [inputs::path_of_url(log, "all events are read", shell)?];
    let sink = plugin_lookup::default_plugin(shell, PluginKind::Sink, DefaultRole::Expectations)?;
    let output = args.to.as_deref().unwrap_or("-");
    let target = Target { sink: sink.name, output, expect: None, decodes: true };
    let source = inputs::find_source(&inputs, format, shell)?;
    let pipeline = pipeline((source, &inputs), &target, args, format, shell)?;
    let overwrite = if args.overwrite { Overwrite::Replace } else { Overwrite::Refuse };
    let report = run_watched(pipeline, &args.running(), overwrite, shell)?;
    execute::report_losses(&report, PipelineOrigin::Flags, shell);
    Ok(execute::exit_status(&report, false))
}

/// What a generated pipeline ends in.
struct Target<'a> {
    sink: &'a str,
    output: &'a str,
    expect: Option<&'a str>,
    decodes: bool,
}

/// The pipeline that reads a log for this target.
fn pipeline(
    (source, inputs): (&Plugin, &[String]),
    target: &Target<'_>,
    args: &CheckLogArgs,
    format: &InputFormat,
    shell: &Shell,
) -> Result<Pipeline, Failure> {
    let from_source = conversion::behind(source, &format.options)?;
    let decoding = target.decodes.then(|| args.decoding.clone());
    let own_types =
        decoding.as_ref().map(|given| conversion::decoding_types(source, inputs, given, shell));
    let (own_types, decoding) = (own_types.unwrap_or_default(), decoding.unwrap_or_default());
    let selection = SelectionArgs { decoding, ..SelectionArgs::default() };
    let recipe = Recipe {
        source: source.name,
        inputs,
        source_options: &format.options,
        from_source: &from_source,
        own_types: &own_types,
        selection: Some(&selection),
        expect: target.expect,
        sink: target.sink,
        output: target.output,
        ..Recipe::default()
    };
    let describe = args.format.describe.as_deref();
    generated::parse_reading("sluice check-log", &recipe.text(), describe, shell)
}

/// Runs a pipeline with progress.
fn run_watched(
    pipeline: Pipeline,
    args: &RunningArgs,
    overwrite: Overwrite,
    shell: &Shell,
) -> Result<Report, Failure> {
    let meter = Arc::new(ProgressMeter::new(args.progress, shell));
    let options = Options { overwrite, ..execute::running_options(args) };
    let watched = |options: &Options| Ok(run::run(pipeline, options)?);
    let result = execute::run_watched(&meter, options, &signals::PUBLISHING, watched);
    let mut report = result?;
    meter.drop_reported_notes(&mut report);
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_rules_about_fields_need_types() {
        assert!(!needs_fields("[channels.A]\nrate = 10\n[log]\ndamage = 0\n"));
        for rule in ["type = \"t\"", "fields.x = { min = 1 }", "undecoded = 0", "latency = 1"] {
            assert!(needs_fields(&format!("[channels.\"A*\"]\n{rule}\n")), "{rule}");
        }
    }
}
