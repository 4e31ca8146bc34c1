//! What can be typed behind `new`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use sluice_core::PluginKind;

#[derive(Debug, Args)]
#[command(after_help = "\
The crate holds the plugin, a program that has it beside everything of this one, and tests that hold it to what
every plugin promises. It compiles as it is.

Examples:
  sluice new source gyro
  sluice new codec gyro-samples --to crates/gyro-samples
  sluice new sink report --sluice ~/src/sluice

Exit codes: 0 it is there; 1 it could not be written; 2 the name cannot be had, the folder is in use, or there is no
checkout of Sluice.")]
pub(crate) struct NewArgs {
    /// What it does: read a format, write one, change events, or know what is in payloads.
    pub(crate) kind: NewKind,

    /// What it is called, in pipeline files and as a crate: lower-case letters, digits, - and _.
    pub(crate) name: String,

    /// The folder to make; one of that name, here, if left out.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) to: Option<PathBuf>,

    /// Where Sluice is: a checkout of its repository, which the new crate names by path. The one that this
    /// program was built from, if left out and still there.
    #[arg(long, value_name = "PATH")]
    pub(crate) sluice: Option<PathBuf>,

    /// Print a JSON object that tells what was made.
    #[arg(long)]
    pub(crate) json: bool,
}

/// A kind of plugin that can be begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum NewKind {
    /// Reads a format.
    Source,
    /// Writes a format.
    Sink,
    /// Changes events, or leaves some out.
    Stage,
    /// Knows what is in payloads.
    Codec,
}

impl NewKind {
    /// The kind as the registry has it.
    pub(crate) fn kind(self) -> PluginKind {
        match self {
            Self::Source => PluginKind::Source,
            Self::Sink => PluginKind::Sink,
            Self::Stage => PluginKind::Stage,
            Self::Codec => PluginKind::Codec,
        }
    }
}
