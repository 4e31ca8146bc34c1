//! `record`: writes live messages to files that are readable at any moment.
//!
//! Generates a pipeline from its arguments, as `convert` does. `naming` names the files, `pieces`
//! decides when to start a new one.

mod args;
mod naming;
mod output;
mod pieces;
mod quota;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use sluice_io::files;
use sluice_io::output::PublishedFile;
use sluice_model::{DefaultRole, Overwrite, Plugin, PluginKind};
use sluice_pipeline::report::Note;
use sluice_pipeline::run::{self, Options, Recording, Stop};
use sluice_pipeline::{Pipeline, PipelineNode, PluginInstance, Report};

use crate::args::{
    Assignment, ChannelPatternArgs, SelectionArgs, default_url, refuse_interface_of_hub,
};
use crate::commands::report_file::{self, ReportFile};
use crate::commands::{execute, generated};
use crate::exit::{CommandResult, Failure};
use crate::flags::{self, PipelineOrigin};
use crate::input_format::InputFormat;
use crate::inputs;
use crate::plugin_lookup;
use crate::progress::ProgressMeter;
use crate::recipe::{self, Recipe};
use crate::shell::Shell;
use crate::signals;

pub(crate) use args::RecordArgs;
use args::bytes;
use naming::{ExistingOutput, FileNaming, Numbering};
use output::RecordingOutput;
use pieces::{PieceCutter, PieceLimits, State};
use quota::DiskQuota;

pub(crate) fn run(args: &RecordArgs, shell: &Shell) -> CommandResult {
    let report = args.running.report.as_deref().filter(|_| !args.print_pipeline);
    let (out, text, pipeline) = report_file::prepare(report, || {
        let out = RecordingOutput::from_args(args, shell)?;
        let text = text(args, &out, shell)?;
        let pipeline = generated::parse_generated("sluice record", &text, None, shell)?;
        Ok((out, text, pipeline))
    })?;
    if args.print_pipeline {
        return generated::print_pipeline("sluice record", text, shell);
    }
    record(pipeline, args, out, shell)
}

/// Runs the pipeline.
fn record(
    pipeline: Pipeline,
    args: &RecordArgs,
    out: RecordingOutput<'_>,
    shell: &Shell,
) -> CommandResult {
    let grows = |node: &PipelineNode| match &node.instance {
        PluginInstance::Sink(sink) => sink.traits().is_readable_unfinished,
        _ => true,
    };
    let grows = pipeline.nodes.iter().all(grows);
    if !grows && out.limits == PieceLimits::default() {
        shell.warn(
            "a file of this format is readable only when it is complete, at the end of the \
             recording; --split-seconds writes several",
        );
    }
    if out.sink.plugin.is_for_reading_only {
        shell.warn(
            "a file of this format cannot be read back as messages; record into .lcm, .mcap or \
             .jsonl, and convert that",
        );
    }
    run::check_programs_allowed(&pipeline, &execute::running_options(&args.running))?;
    let target = PathBuf::from(&out.sink.path);
    let of_target = |min_free| DiskQuota { target: target.clone(), min_free };
    let quota = args.receiving.disk_quota.map(of_target);
    quota.as_ref().map_or(Ok(()), DiskQuota::check)?;
    let targets = std::slice::from_ref(&target);
    let report_file = ReportFile::open_if_requested(&args.running, &pipeline, targets)?;
    let meter = Arc::new(ProgressMeter::new(args.running.progress, shell));
    let (naming, options) = (out.naming.clone(), engine_options(args, out, grows, &meter));
    let stop = Arc::clone(&options.stop);
    let watched = |options: &Options| {
        let shared_meter = Arc::clone(&meter);
        let _watch = quota
            .map(|quota| quota.watch(stop, move |message| shared_meter.println(message)))
            .transpose()?;
        Ok(run::run(pipeline, options)?)
    };
    let mut result = execute::run_watched(&meter, options, &signals::RECORDING, watched);
    if let Ok(report) = &mut result {
        if naming.numbering == Numbering::One {
            note_moved_files(report);
        }
        report.files = remaining_files(std::mem::take(&mut report.files), &naming);
    }
    let result = result.map_err(Failure::of_recording);
    let strict = args.running.strict;
    let to_json = |report: &Report| execute::report_json(report, strict);
    let mut known = meter.failed_run().map(|failed| failed.to_json());
    if naming.reuses_names() {
        // Which of the files still have their names depends on how far the run came.
        known.as_mut().and_then(Value::as_object_mut).and_then(|known| known.remove("files"));
    }
    execute::deliver_report(report_file, result.as_ref(), to_json, known, shell)?;
    let mut report = result?;
    meter.drop_reported_notes(&mut report);
    flags::name_regex(&mut report.names, args.channels.regex.as_deref());
    let status = execute::report_findings(&report, PipelineOrigin::Flags, strict, shell);
    if report.disk_full {
        // The note has the details, and `-q` hides it.
        let target = target.display();
        let lost = match report.last_file_lost {
            true => " and cost it its last file, which could not be completed",
            false => "",
        };
        shell.error(&format!("no room was left, which ended the recording{lost}: {target}"));
    }
    let (text, fields) = (execute::summary_text(&report), execute::summary_fields(&report, status));
    execute::print_summary(&text, fields, &args.running, shell);
    Ok(status)
}

/// The pipeline file equivalent to the arguments.
fn text(args: &RecordArgs, out: &RecordingOutput<'_>, shell: &Shell) -> Result<String, Failure> {
    let source = RecordingSource::from_args(args, shell)?;
    Ok(Recipe {
        source: source.plugin.name,
        inputs: &source.inputs,
        source_options: &source.options,
        selection: Some(&source.selection),
        limit: source.limit,
        expect: args.expect.as_deref(),
        sink: out.sink.plugin.name,
        output: &out.sink.path,
        sink_options: &out.options,
        ..Recipe::default()
    }
    .text())
}

/// The source to record from.
struct RecordingSource<'s> {
    plugin: &'s Plugin,
    /// The URL, if given.
    inputs: Vec<String>,
    options: Vec<Assignment>,
    /// The part of the selection that the source does not apply itself.
    selection: SelectionArgs,
    limit: Option<u64>,
}

impl<'s> RecordingSource<'s> {
    fn from_args(args: &RecordArgs, shell: &'s Shell) -> Result<Self, Failure> {
        let url = match &args.url {
            Some(url) => Some(url.clone()),
            // The source reads other URLs from the environment itself.
            None => default_url()?.filter(|url| url.starts_with("file://")),
        };
        let selection = selection(args, shell);
        match url {
            None => {
                let plugin =
                    plugin_lookup::default_plugin(shell, PluginKind::Source, DefaultRole::Live)?;
                Self::live(plugin, None, selection, args)
            }
            Some(url) if plugin_lookup::is_url(&url) => {
                let plugin = plugin_lookup::plugin_for_url(shell, PluginKind::Source, &url)?;
                Self::live(plugin, Some(url), selection, args)
            }
            Some(url) if url.starts_with("file://") => Self::file(url, &selection, args, shell),
            Some(other) => Err(Failure::Usage(format!(
                "`{other}` is not a URL to listen to, such as udpm://239.255.76.67:7667; use --to \
                 for the file to write"
            ))),
        }
    }

    /// A live source, which applies the selection itself.
    fn live(
        plugin: &'s Plugin,
        url: Option<String>,
        selection: SelectionArgs,
        args: &RecordArgs,
    ) -> Result<Self, Failure> {
        let ChannelPatternArgs { channel, exclude } = &selection.patterns;
        let lists = [("channels", channel), ("exclude", exclude)];
        let lists = lists.into_iter().filter(|(_, patterns)| !patterns.is_empty());
        let mut options: Vec<Assignment> =
            lists.map(|(name, patterns)| recipe::list_option(name, patterns)).collect();
        let interface = args.receiving.listening.interface.as_deref();
        refuse_interface_of_hub(interface, url.as_deref())?;
        let takes = plugin.option_names();
        // Only messages that meet the condition are counted: the source does not know it.
        let limit = args.receiving.listening.limit.filter(|_| selection.condition.is_some());
        let for_source = |flag: &str| limit.is_none() || flag != LIMIT;
        for (flag, name, value) in
            receive_options(args).into_iter().filter(|(flag, ..)| for_source(flag))
        {
            if !takes.iter().any(|option| option == name) {
                return Err(cannot_be_used_with(flag, &format!("the source `{}`", plugin.name)));
            }
            options.push(Assignment { name: name.into(), value });
        }
        options.extend(args.receiving.source_option.iter().cloned());
        let selection = SelectionArgs { patterns: ChannelPatternArgs::default(), ..selection };
        let inputs = url.into_iter().collect();
        Ok(Self { plugin, inputs, options, selection, limit })
    }

    /// A log, recorded as fast as it can be read.
    fn file(
        url: String,
        selection: &SelectionArgs,
        args: &RecordArgs,
        shell: &'s Shell,
    ) -> Result<Self, Failure> {
        if let Some((flag, ..)) =
            receive_options(args).into_iter().find(|(flag, ..)| *flag != LIMIT)
        {
            return Err(cannot_be_used_with(flag, "a log, which is not live"));
        }
        let (inputs, selection) = inputs::resolve_file_urls(&[url], selection, shell)?;
        let plugin = inputs::find_source(&inputs, &InputFormat::default(), shell)?;
        let (options, limit) =
            (args.receiving.source_option.clone(), args.receiving.listening.limit);
        Ok(Self { plugin, inputs, options, selection, limit })
    }
}

fn cannot_be_used_with(flag: &str, what: &str) -> Failure {
    Failure::Usage(format!("{flag} cannot be used with {what}"))
}

const LIMIT: &str = "--limit";

/// The arguments that become options of a live source: flag, option name, value.
fn receive_options(args: &RecordArgs) -> Vec<(&'static str, &'static str, String)> {
    let given = &args.receiving;
    let buffer = given.max_unwritten_mb.map(|mb| bytes(mb).to_string());
    let all = [
        ("--interface", "interface", given.listening.interface.clone()),
        ("--duration", "duration", given.listening.duration.clone()),
        ("--idle-timeout", "idle_timeout", given.listening.idle_timeout.clone()),
        (LIMIT, "limit", given.listening.limit.map(|limit| limit.to_string())),
        ("--max-unwritten-mb", "buffer", buffer),
    ];
    all.into_iter().filter_map(|(flag, name, value)| Some((flag, name, value?))).collect()
}

/// The messages to record.
fn selection(args: &RecordArgs, shell: &Shell) -> SelectionArgs {
    let given = &args.channels;
    let mut patterns = given.patterns.clone();
    for glob in
        patterns.channel.iter().chain(&patterns.exclude).filter(|glob| looks_like_regex(glob))
    {
        shell.warn(&format!(
            "`{glob}` is read as a glob; write 're:{glob}' for a regular expression"
        ));
    }
    let list = match given.invert_channels {
        true => &mut patterns.exclude,
        false => &mut patterns.channel,
    };
    list.extend(given.regex.clone());
    SelectionArgs {
        patterns,
        decoding: given.decoding.clone(),
        condition: given.condition.clone(),
        ..SelectionArgs::default()
    }
}

/// Whether a glob looks like a regular expression, which `-c` of other loggers takes.
fn looks_like_regex(glob: &str) -> bool {
    let marks = [".*", ".+", "|", "(", "^", "$", "\\"];
    !glob.starts_with("re:") && marks.iter().any(|mark| glob.contains(mark))
}

/// The engine options.
fn engine_options(
    args: &RecordArgs,
    out: RecordingOutput<'_>,
    grows: bool,
    meter: &Arc<ProgressMeter>,
) -> Options {
    let stop = Arc::<Stop>::default();
    // Only a single, unnumbered file replaces an existing output.
    let replaces =
        out.naming.existing == ExistingOutput::Replace && out.naming.numbering == Numbering::One;
    let flush = args.receiving.flush_interval.map_or(out.flush, Duration::from_millis);
    let reserves_names = !grows && out.naming.numbering == Numbering::Increment;
    let pieces = PieceCutter {
        limits: out.limits,
        new_file_requested: signals::hangup_flag(),
        stop: Arc::clone(&stop),
        meter: Arc::clone(meter),
        state: State::new(out.naming, reserves_names),
    };
    Options {
        overwrite: if replaces { Overwrite::Replace } else { Overwrite::Refuse },
        stop,
        recording: Some(Recording { flush, pieces: Arc::new(pieces) }),
        ..execute::running_options(&args.running)
    }
}

/// The files that are left of a recording, under their current names: not those that a rotation
/// has deleted, or that others moved away before their name was used again.
fn remaining_files(files: Vec<PublishedFile>, naming: &FileNaming) -> Vec<PublishedFile> {
    // With strftime, each name is rotated by itself.
    let mut newer = HashMap::<PathBuf, u32>::new();
    let newest_first = files.into_iter().rev().filter_map(|file| {
        let newer = newer.entry(file.path.clone()).or_default();
        let path = naming.rotated(&file.path, *newer);
        *newer += 1;
        Some(PublishedFile { path: path?, ..file })
    });
    let mut left: Vec<PublishedFile> = newest_first.collect();
    left.reverse();
    left
}

/// Notes the files that others moved away before their name was used again: their new names are
/// not known.
fn note_moved_files(report: &mut Report) {
    let mut files = BTreeMap::<&Path, u64>::new();
    for file in report.files.iter().filter(|file| !files::is_stream(&file.path)) {
        *files.entry(&file.path).or_default() += 1;
    }
    let node = report.sinks.keys().next().cloned().unwrap_or_default();
    let notes = files.into_iter().filter(|(_, count)| *count > 1).map(|(path, count)| Note {
        node: node.clone(),
        what: format!(
            "earlier files of this name were moved away during the recording; the report does not \
             list them: {}",
            path.display()
        ),
        count: count - 1,
    });
    let notes: Vec<Note> = notes.collect();
    report.notes.extend(notes);
}

#[cfg(test)]
mod tests;
