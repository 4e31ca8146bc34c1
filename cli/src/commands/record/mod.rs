//! `record`: live messages into files that are whole at any moment.
//!
//! Makes a pipeline of its arguments, as `convert` does, and has the engine record. What files are called
//! is said by `naming`, when a new one begins by `pieces`.

mod args;
mod naming;
mod out;
mod pieces;
mod quota;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sluice_core::output::PublishedFile;
use sluice_core::{Overwrite, Plugin, PluginKind};
use sluice_pipeline::run::{self, Options, Recording, Stop};
use sluice_pipeline::{Node, Part, Pipeline, Report};

use crate::args::{Assignment, SelectionArgs};
use crate::commands::{convert, execute};
use crate::ending::{Failure, Outcome};
use crate::flags::Origin;
use crate::inputs;
use crate::progress::Meter;
use crate::recipe::{self, Recipe};
use crate::shell::Shell;
use crate::signals;

pub(crate) use args::RecordArgs;
use naming::{Existing, Numbering};
use out::Out;
use pieces::{Limits, Pieces, State};
use quota::Quota;

/// The source that receives where no address is given.
const LIVE: &str = "lcm-udp";

pub(crate) fn run(args: &RecordArgs, shell: &Shell) -> Outcome {
    let out = Out::of(args, shell)?;
    let text = text(args, &out, shell)?;
    let pipeline = convert::read("sluice record", &text, shell)?;
    if args.print_pipeline {
        return convert::print_pipeline("sluice record", text, shell);
    }
    record(pipeline, args, out, shell)
}

/// Runs the pipeline, which writes to this.
fn record(pipeline: Pipeline, args: &RecordArgs, out: Out<'_>, shell: &Shell) -> Outcome {
    let grows =
        |node: &Node| !matches!(&node.part, Part::Sink(sink) if !sink.is_readable_unfinished());
    if !pipeline.nodes.iter().all(grows) && out.limits == Limits::default() {
        shell.warn(
            "this format can be read only when a file is complete, and this one is when the recording \
             ends: --split-seconds makes it several",
        );
    }
    run::allowed(&pipeline, &execute::resources(&args.running))?;
    let target = PathBuf::from(&out.sink.path);
    let quota = args.receiving.disk_quota.map(|least| Quota::of(&target, least));
    quota.as_ref().map_or(Ok(()), Quota::check)?;
    let targets = std::slice::from_ref(&target);
    let report_file = execute::ReportFile::of(&args.running, &pipeline, targets)?;
    let meter = Arc::new(Meter::new(args.running.progress, shell));
    let (rotated, options) = (out.rotated(), options(args, out, &meter));
    let stop = Arc::clone(&options.stop);
    let watched = |options: &Options| {
        let told = Arc::clone(&meter);
        let _watch =
            quota.map(|quota| quota.watch(stop, move |said| told.say(said))).transpose()?;
        Ok(run::run(pipeline, options)?)
    };
    let mut result = execute::watch_with(&meter, options, &signals::RECORDING, watched);
    if let (Ok(report), Some(name)) = (&mut result, rotated) {
        report.files = as_rotated(std::mem::take(&mut report.files), name);
    }
    if let Some(file) = report_file {
        file.write(result.as_ref().map(Report::to_json))?;
    }
    let mut report = result.map_err(Failure::not_closed)?;
    meter.forget_told(&mut report);
    execute::tell_losses(&report, Origin::Flags, shell);
    execute::tell_unmatched(&report, Origin::Flags, shell);
    let (text, fields) = (execute::summary(&report), execute::summary_fields(&report));
    execute::tell_summary(&text, fields, &args.running, shell);
    Ok(execute::ending_of(&report, args.running.strict))
}

/// The pipeline file that does what was asked for.
fn text(args: &RecordArgs, out: &Out<'_>, shell: &Shell) -> Result<String, Failure> {
    let source = Source::of(args, shell)?;
    Ok(Recipe {
        source: source.plugin.name,
        inputs: &source.inputs,
        source_options: &source.options,
        selection: Some(&source.selection),
        limit: source.limit,
        sink: out.sink.plugin.name,
        output: &out.sink.path,
        sink_options: &out.options,
        ..Recipe::default()
    }
    .text())
}

/// What is recorded from.
struct Source<'s> {
    plugin: &'s Plugin,
    /// The address, if one was given.
    inputs: Vec<String>,
    options: Vec<Assignment>,
    /// What of it is wanted, as far as the source does not see to that by itself.
    selection: SelectionArgs,
    limit: Option<u64>,
}

impl<'s> Source<'s> {
    fn of(args: &RecordArgs, shell: &'s Shell) -> Result<Self, Failure> {
        let from_environment = || {
            // Other addresses are read by the source itself.
            let url = std::env::var("LCM_DEFAULT_URL").ok()?;
            url.starts_with("file://").then_some(url)
        };
        let selection = selection(args, shell);
        match args.url.clone().or_else(from_environment) {
            None => {
                let plugin = inputs::named(shell, PluginKind::Source, LIVE)?;
                Self::live(plugin, None, selection, args)
            }
            Some(url) if inputs::is_url(&url) => {
                let plugin = inputs::of_url(shell, PluginKind::Source, &url)?;
                Self::live(plugin, Some(url), selection, args)
            }
            Some(url) if url.starts_with("file://") => Self::file(url, &selection, args, shell),
            Some(other) => Err(Failure::WrongUse(format!(
                "`{other}` is no address to listen to, such as udpm://239.255.76.67:7667; the file to \
                 write is named by --to"
            ))),
        }
    }

    /// A source that leaves out what is not wanted by itself.
    fn live(
        plugin: &'s Plugin,
        url: Option<String>,
        selection: SelectionArgs,
        args: &RecordArgs,
    ) -> Result<Self, Failure> {
        let SelectionArgs { channel, exclude, .. } = &selection;
        let lists = [("channels", channel), ("exclude", exclude)];
        let lists = lists.into_iter().filter(|(_, patterns)| !patterns.is_empty());
        let mut options: Vec<Assignment> =
            lists.map(|(name, patterns)| recipe::list(name, patterns)).collect();
        let takes = plugin.option_names();
        for (flag, name, value) in receiving(args) {
            if !takes.iter().any(|option| option == name) {
                return Err(does_not_go_with(flag, &format!("the source `{}`", plugin.name)));
            }
            options.push(Assignment { name: name.into(), value });
        }
        options.extend(args.receiving.source_option.iter().cloned());
        let selection = SelectionArgs { channel: Vec::new(), exclude: Vec::new(), ..selection };
        let inputs = url.into_iter().collect();
        Ok(Self { plugin, inputs, options, selection, limit: None })
    }

    /// A log, which is recorded as fast as it can be read.
    fn file(
        url: String,
        selection: &SelectionArgs,
        args: &RecordArgs,
        shell: &'s Shell,
    ) -> Result<Self, Failure> {
        if let Some((flag, ..)) = receiving(args).into_iter().find(|(flag, ..)| *flag != LIMIT) {
            return Err(does_not_go_with(flag, "a log, which is not live"));
        }
        let (inputs, selection) = inputs::without_addresses(&[url], selection, shell)?;
        let plugin = convert::source(&inputs, None, &[], shell)?;
        let (options, limit) =
            (args.receiving.source_option.clone(), args.receiving.listening.limit);
        Ok(Self { plugin, inputs, options, selection, limit })
    }
}

fn does_not_go_with(flag: &str, what: &str) -> Failure {
    Failure::WrongUse(format!("{flag} does not go with {what}"))
}

const LIMIT: &str = "--limit";

/// The arguments that are options of a live source: as they are typed, and by name and value.
fn receiving(args: &RecordArgs) -> Vec<(&'static str, &'static str, String)> {
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

/// Which messages are wanted.
fn selection(args: &RecordArgs, shell: &Shell) -> SelectionArgs {
    let given = &args.channels;
    for glob in given.channel.iter().chain(&given.exclude).filter(|glob| looks_like_regex(glob)) {
        shell.warn(&format!(
            "`{glob}` is taken as a glob; as a regular expression it is written 're:{glob}'"
        ));
    }
    let (mut channel, mut exclude) = (given.channel.clone(), given.exclude.clone());
    let list = if given.invert_channels { &mut exclude } else { &mut channel };
    list.extend(given.regex.clone());
    SelectionArgs {
        channel,
        exclude,
        types: given.types.clone(),
        channel_types: given.channel_types.clone(),
        condition: given.condition.clone(),
        ..SelectionArgs::default()
    }
}

/// Whether this was typed by somebody who is used to a logger whose `-c` takes regular expressions.
fn looks_like_regex(glob: &str) -> bool {
    let marks = [".*", ".+", "|", "(", "^", "$", "\\"];
    !glob.starts_with("re:") && marks.iter().any(|mark| glob.contains(mark))
}

/// Mebibytes as bytes, at least one.
fn bytes(mb: f64) -> u64 {
    ((mb * f64::from(1 << 20)) as u64).max(1)
}

/// How the engine is to run.
fn options(args: &RecordArgs, out: Out<'_>, meter: &Arc<Meter>) -> Options {
    let stop = Arc::<Stop>::default();
    // Other files are not in the way of what they are named after.
    let replaces =
        out.naming.existing == Existing::Replace && out.naming.numbering == Numbering::One;
    let flush = args.receiving.flush_interval.map_or(out.flush, Duration::from_millis);
    let pieces = Pieces {
        limits: out.limits,
        wanted: signals::hangups(),
        stop: Arc::clone(&stop),
        meter: Arc::clone(meter),
        state: State::new(out.naming),
    };
    Options {
        overwrite: if replaces { Overwrite::Replace } else { Overwrite::Refuse },
        stop,
        recording: Some(Recording { flush, pieces: Arc::new(pieces) }),
        ..execute::resources(&args.running)
    }
}

/// The files that are left of those that were written one after another, under the names that they have
/// moved to.
fn as_rotated(
    files: Vec<PublishedFile>,
    name: impl Fn(u32) -> Option<PathBuf>,
) -> Vec<PublishedFile> {
    let newest_first = (0..).zip(files.into_iter().rev());
    let mut left: Vec<PublishedFile> = newest_first
        .map_while(|(number, file)| Some(PublishedFile { path: name(number)?, ..file }))
        .collect();
    left.reverse();
    left
}

#[cfg(test)]
mod tests;
