//! Arguments of `new`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use sluice_model::PluginKind;

#[derive(Debug, Args)]
#[command(after_help = "\
The crate contains the plugin, a program with this plugin and all those of Sluice, and tests of the
contract that every plugin keeps. It compiles as it is.

Examples:
  sluice new source gyro
  sluice new codec gyro-samples --to ../gyro-samples
  sluice new sink heatmap --sluice ~/src/sluice

Exit codes: 0 created; 1 could not be written; 2 the name is not available, the folder is in use, or
no checkout of Sluice was found.")]
pub(crate) struct NewArgs {
    /// The kind of plugin: reads a format, writes one, changes events, or decodes payloads.
    pub(crate) kind: NewKind,

    /// The name of the plugin and the crate: lower-case letters, digits, - and _.
    pub(crate) name: String,

    /// The folder to create; by default one of that name, here.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) to: Option<PathBuf>,

    /// A checkout of the Sluice repository, which the new crate depends on by path. By default the
    /// one that this program was built from.
    #[arg(long, value_name = "PATH")]
    pub(crate) sluice: Option<PathBuf>,

    /// Print a JSON object that describes the new crate.
    #[arg(long)]
    pub(crate) json: bool,
}

/// A kind of plugin that `new` can create.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum NewKind {
    /// Reads a format.
    Source,
    /// Writes a format.
    Sink,
    /// Changes events, or leaves some out.
    Stage,
    /// Decodes payloads.
    Codec,
}

impl NewKind {
    /// The kind in the registry.
    pub(crate) fn kind(self) -> PluginKind {
        match self {
            Self::Source => PluginKind::Source,
            Self::Sink => PluginKind::Sink,
            Self::Stage => PluginKind::Stage,
            Self::Codec => PluginKind::Codec,
        }
    }
}
