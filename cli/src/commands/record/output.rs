//! The output of a recording: the sink, how its files are named, and when a new one starts.

use std::path::Path;
use std::time::Duration;

use sluice_io::files;
use sluice_model::{DefaultRole, PluginKind};

use crate::args::Assignment;
use crate::commands::convert::{OutputTarget, names_format};
use crate::exit::Failure;
use crate::inputs::{self, OpenMode};
use crate::plugin_lookup;
use crate::shell::Shell;

use super::args::{RecordArgs, bytes};
use super::naming::{ExistingOutput, FileNaming, Numbering};
use super::pieces::PieceLimits;

/// The default name of lcm-logger.
const DEFAULT_NAME: &str = "lcmlog-%Y-%m-%d";

/// The default maximum age of a piece of tables. An incomplete piece is lost on power failure.
const TABLE_PIECE_AGE: Duration = Duration::from_mins(1);

/// Options that choose what a sink writes, in place of its defaults for recordings.
const CONTENT_OPTIONS: [&str; 3] = ["payload", "fields", "unnest"];

/// The output of a recording.
pub(super) struct RecordingOutput<'s> {
    pub(super) sink: OutputTarget<'s>,
    /// The options of the sink, without its path.
    pub(super) options: Vec<Assignment>,
    pub(super) naming: FileNaming,
    pub(super) limits: PieceLimits,
    /// The default interval between writes to disk.
    pub(super) flush: Duration,
}

impl<'s> RecordingOutput<'s> {
    pub(super) fn from_args(args: &RecordArgs, shell: &'s Shell) -> Result<Self, Failure> {
        let to = args.to.as_deref().unwrap_or(DEFAULT_NAME);
        let existing = existing(args, to)?;
        let sink = sink(args, to, shell)?;
        let numbering = numbering(args, &sink.path, existing)?;
        let has = |name: &str| sink.plugin.option_names().iter().any(|option| option == name);
        let mut options = sink.options.clone();
        let given = &args.receiving.sink_option;
        let mut set = |name: &str, value: &str| {
            if options.iter().chain(given).all(|option| option.name != name) {
                options.push(Assignment { name: name.into(), value: value.into() });
            }
        };
        if existing == ExistingOutput::Continue && files::is_stream(Path::new(&sink.path)) {
            let what = format!("--append continues a file, and {} is none", sink.path);
            return Err(Failure::Usage(what));
        }
        if existing == ExistingOutput::Continue && numbering != Numbering::Folders {
            if !has("append") {
                return Err(Failure::Usage(format!(
                    "--append continues LCM logs only, not files of `{}`; --increment numbers \
                     files",
                    sink.plugin.name
                )));
            }
            set("append", "true");
        }
        let can_append = has("append");
        if has("renumber") {
            set("renumber", "true");
        }
        let chooses = |option: &Assignment| CONTENT_OPTIONS.contains(&option.name.as_str());
        if !given.iter().any(chooses) {
            sink.plugin.when_recorded.iter().for_each(|(name, value)| set(name, value));
        }
        options.extend(args.receiving.sink_option.iter().cloned());
        let is_packed =
            sink.path.ends_with(".zst") || sink.plugin.default_for.contains(&DefaultRole::Archive);
        let is_log = sink.plugin.default_for.contains(&DefaultRole::Log);
        let suffix = if is_log && !is_packed { String::new() } else { suffix(&sink.path, shell) };
        let strftime = args.strftime || args.to.is_none();
        let mut naming = FileNaming::new(numbering, existing, strftime, suffix);
        naming.can_append = can_append;
        let flush = Duration::from_millis(if is_packed { 1000 } else { 100 });
        Ok(Self { sink, options, naming, limits: limits(args, numbering), flush })
    }
}

fn existing(args: &RecordArgs, to: &str) -> Result<ExistingOutput, Failure> {
    let url = inputs::parse_file_url(to).map_err(Failure::Usage)?;
    let mode = url.and_then(|url| url.mode);
    let (replace, append) = (
        args.force || mode == Some(OpenMode::Write),
        args.append || mode == Some(OpenMode::Append),
    );
    match (replace, append) {
        (true, true) => {
            let what = format!("--force and --append contradict the mode in {to}");
            Err(Failure::Usage(what))
        }
        (true, false) => Ok(ExistingOutput::Replace),
        (false, true) => Ok(ExistingOutput::Continue),
        (false, false) => Ok(ExistingOutput::Refuse),
    }
}

/// The sink. An LCM log, unless the name says otherwise. As `convert`, refuses names of formats
/// that this program does not write.
fn sink<'s>(args: &RecordArgs, to: &str, shell: &'s Shell) -> Result<OutputTarget<'s>, Failure> {
    if plugin_lookup::is_url(to) {
        return Err(Failure::Usage(format!(
            "{to} is not a file; `convert` forwards what it receives"
        )));
    }
    // That of a URL is found as `convert` finds it.
    let tells = to.starts_with("file://") || names_format(to, shell);
    let log = |()| plugin_lookup::default_plugin(shell, PluginKind::Sink, DefaultRole::Log);
    let log = (!tells && args.sink.is_none()).then_some(()).map(log).transpose()?;
    let name = args.sink.as_deref().or(log.map(|plugin| plugin.name));
    OutputTarget::from_path(to, name, &args.receiving.sink_option, shell)
}

fn numbering(
    args: &RecordArgs,
    path: &str,
    existing: ExistingOutput,
) -> Result<Numbering, Failure> {
    let pieces = &args.pieces;
    let splits = pieces.split_mb.is_some() || pieces.split_seconds.is_some();
    let is_stream = path == "-" || files::is_special(Path::new(path));
    if path.ends_with('/') {
        return match (pieces.rotate, existing) {
            (Some(_), _) => Err(Failure::Usage(format!(
                "--rotate is for files, but {path} is a folder; its pieces may be deleted at any \
                 time"
            ))),
            (_, ExistingOutput::Replace) => Err(Failure::Usage(format!(
                "--force is for files, but {path} is a folder; delete it, or add pieces with \
                 --append"
            ))),
            _ => Ok(Numbering::Folders),
        };
    }
    let numbers = pieces.increment || splits || pieces.rotate.is_some();
    if is_stream && numbers {
        return Err(Failure::Usage(format!("{path} is not a file that can be numbered")));
    }
    Ok(match pieces.rotate {
        Some(keep) => Numbering::Rotate(keep),
        None if numbers || args.to.is_none() => Numbering::Increment,
        None => Numbering::One,
    })
}

fn limits(args: &RecordArgs, numbering: Numbering) -> PieceLimits {
    let pieces = &args.pieces;
    // Durations that overflow mean no limit.
    let age = |seconds| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
    let limits =
        PieceLimits { bytes: pieces.split_mb.map(bytes), age: pieces.split_seconds.map(age) };
    let by_default = numbering == Numbering::Folders && limits == PieceLimits::default();
    if by_default { PieceLimits { age: Some(TABLE_PIECE_AGE), ..limits } } else { limits }
}

/// The extension that identifies a format: `.parquet`, `.lcm.zst`, `.zst`.
fn suffix(path: &str, shell: &Shell) -> String {
    let (extension, packed) = plugin_lookup::extension(Path::new(path));
    let archive = shell.registry.default_for(PluginKind::Sink, DefaultRole::Archive);
    let inner = archive.map_or(&[][..], |plugin| plugin.inner_extensions);
    let known = |e: &String| {
        inner.contains(&e.as_str()) || shell.registry.by_extension(PluginKind::Sink, e).is_some()
    };
    let inner = extension.filter(known).map(|e| format!(".{e}")).unwrap_or_default();
    inner + if packed { ".zst" } else { "" }
}
