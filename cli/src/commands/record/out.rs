//! What is recorded into: the sink, the way its files are named, and when a new one begins.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sluice_core::{PluginKind, files};

use crate::args::Assignment;
use crate::commands::convert::Sink;
use crate::ending::Failure;
use crate::inputs::{self, Mode};
use crate::shell::Shell;

use super::args::RecordArgs;
use super::bytes;
use super::naming::{Existing, Naming, Numbering};
use super::pieces::Limits;

/// What lcm-logger calls its logs.
const DEFAULT: &str = "lcmlog-%Y-%m-%d";

/// The sink for LCM logs.
const LOG: &str = "lcm-log";

/// How old a piece of a folder of tables gets. What is not yet complete is lost with the power.
const TABLES: Duration = Duration::from_mins(1);

/// What is recorded into.
pub(super) struct Out<'s> {
    pub(super) sink: Sink<'s>,
    /// All options of the sink but its path.
    pub(super) options: Vec<Assignment>,
    pub(super) naming: Naming,
    pub(super) limits: Limits,
    /// How old a message may get before it is on the disk, if nothing is said.
    pub(super) flush: Duration,
}

impl<'s> Out<'s> {
    pub(super) fn of(args: &RecordArgs, shell: &'s Shell) -> Result<Self, Failure> {
        let to = args.to.as_deref().unwrap_or(DEFAULT);
        let existing = existing(args, to)?;
        let sink = sink(args, to, shell)?;
        let numbering = numbering(args, &sink.path, existing)?;
        let has = |name: &str| sink.plugin.option_names().iter().any(|option| option == name);
        let mut options = sink.options.clone();
        let mut set = |name: &str| {
            let known = |option: &&Assignment| option.name == name;
            if options.iter().chain(&args.receiving.sink_option).find(known).is_none() {
                options.push(Assignment { name: name.into(), value: "true".into() });
            }
        };
        if existing == Existing::Continue && numbering != Numbering::Folders {
            if !has("append") {
                return Err(Failure::WrongUse(format!(
                    "--append continues LCM logs, and `{}` writes what cannot be continued; --increment \
                     numbers files",
                    sink.plugin.name
                )));
            }
            set("append");
        }
        if has("renumber") {
            set("renumber");
        }
        options.extend(args.receiving.sink_option.iter().cloned());
        let is_packed = sink.path.ends_with(".zst") || sink.plugin.name == "archive";
        let suffix = if sink.plugin.name == LOG && !is_packed {
            String::new()
        } else {
            suffix(&sink.path, shell)
        };
        let strftime = args.strftime || args.to.is_none();
        let naming = Naming::new(numbering, existing, strftime, suffix);
        let flush = Duration::from_millis(if is_packed { 1000 } else { 100 });
        Ok(Self { sink, options, naming, limits: limits(args, numbering), flush })
    }

    /// Where files are rotated: what the file with a number is called, if so many are kept.
    pub(super) fn rotated(&self) -> Option<impl Fn(u32) -> Option<PathBuf> + use<>> {
        let Numbering::Rotate(keep) = self.naming.numbering else { return None };
        let naming = self.naming.clone();
        let base = self.sink.path.clone();
        (!self.naming.strftime)
            .then_some(move |number| (number < keep).then(|| naming.rotated(&base, number)))
    }
}

fn existing(args: &RecordArgs, to: &str) -> Result<Existing, Failure> {
    let url = inputs::file_url(to).map_err(Failure::WrongUse)?;
    let mode = url.and_then(|url| url.mode);
    let (replace, append) =
        (args.force || mode == Some(Mode::Write), args.append || mode == Some(Mode::Append));
    match (replace, append) {
        (true, true) => {
            let what = format!("--force and --append contradict the mode in {to}");
            Err(Failure::WrongUse(what))
        }
        (true, false) => Ok(Existing::Replace),
        (false, true) => Ok(Existing::Continue),
        (false, false) => Ok(Existing::Refuse),
    }
}

/// The sink. What tells no format is an LCM log.
fn sink<'s>(args: &RecordArgs, to: &str, shell: &'s Shell) -> Result<Sink<'s>, Failure> {
    if inputs::is_url(to) {
        return Err(Failure::WrongUse(format!(
            "{to} is no file to record into; `convert` passes on what it hears"
        )));
    }
    let (extension, packed) = inputs::extension(Path::new(to));
    let known = |e: String| shell.registry.by_extension(PluginKind::Sink, &e).is_some();
    let is_folder = to.ends_with('/') || Path::new(to).is_dir();
    let tells = is_folder || packed || extension.is_some_and(known);
    let name = args.sink.as_deref().or((!tells).then_some(LOG));
    Sink::of(to, name, &args.receiving.sink_option, shell)
}

fn numbering(args: &RecordArgs, path: &str, existing: Existing) -> Result<Numbering, Failure> {
    let pieces = &args.pieces;
    let splits = pieces.split_mb.is_some() || pieces.split_seconds.is_some();
    let is_stream = path == "-" || files::is_special(Path::new(path));
    if path.ends_with('/') {
        return match (pieces.rotate, existing) {
            (Some(_), _) => Err(Failure::WrongUse(format!(
                "--rotate keeps files, and {path} is a folder; its pieces may be deleted at any time"
            ))),
            (_, Existing::Replace) => Err(Failure::WrongUse(format!(
                "--force replaces files, and {path} is a folder; delete it, or --append pieces to it"
            ))),
            _ => Ok(Numbering::Folders),
        };
    }
    let numbers = pieces.increment || splits || pieces.rotate.is_some();
    if is_stream && numbers {
        return Err(Failure::WrongUse(format!("{path} is no file that could have a number")));
    }
    Ok(match pieces.rotate {
        Some(keep) => Numbering::Rotate(keep),
        None if numbers || args.to.is_none() => Numbering::Increment,
        None => Numbering::One,
    })
}

fn limits(args: &RecordArgs, numbering: Numbering) -> Limits {
    let pieces = &args.pieces;
    // Longer than anybody waits is for ever.
    let age = |seconds| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
    let limits = Limits { bytes: pieces.split_mb.map(bytes), age: pieces.split_seconds.map(age) };
    let by_default = numbering == Numbering::Folders && limits == Limits::default();
    if by_default { Limits { age: Some(TABLES), ..limits } } else { limits }
}

/// The extension by which tools know a format: `.parquet`, `.lcm.zst`, `.zst`.
fn suffix(path: &str, shell: &Shell) -> String {
    let (extension, packed) = inputs::extension(Path::new(path));
    let known =
        |e: &String| e == "arrow" || shell.registry.by_extension(PluginKind::Sink, e).is_some();
    let inner = extension.filter(known).map(|e| format!(".{e}")).unwrap_or_default();
    inner + if packed { ".zst" } else { "" }
}
