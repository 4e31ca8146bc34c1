//! Arguments of the verbs that take a pipeline file: `run`, `check`, `plan` and `graph`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::running::EngineArgs;
use super::values::{Assignment, assignment};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sluice run quickstart
  sluice run drive.toml --set INPUT=drive.lcm --jobs 8 --report report.json
  sluice run drive.toml --dry-run                what it would read and write
  sluice run tables.toml --resume                what an interrupted run has left to do

Exit codes: 0 success; 1 failed, nothing published; 2 invalid command line or pipeline file;
3 success, but input was damaged or events could not be converted; 4 an expectation is not met.")]
pub(crate) struct RunArgs {
    /// A pipeline file, or the name of a built-in pipeline such as `quickstart`.
    pub(crate) file: String,

    #[command(flatten)]
    pub(crate) variables: SetArgs,

    /// Let Python run the pipeline, for plugins in Python. Nodes of the plugin `python` that name
    /// no file take them from this one. It is the `python3` beside this program or on PATH that
    /// has the package `sluice-logs`.
    #[arg(long, value_name = "FILE")]
    pub(crate) python: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) engine: EngineArgs,
}

/// Values for the variables of a pipeline file.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct SetArgs {
    /// Set the variable `${NAME}` of the pipeline file. Other variables are read from the
    /// environment.
    #[arg(long, value_name = "NAME=VALUE", value_parser = assignment)]
    pub(crate) set: Vec<Assignment>,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Pipeline files, or names of built-in pipelines.
    #[arg(required = true)]
    pub(crate) files: Vec<String>,

    #[command(flatten)]
    pub(crate) variables: SetArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    /// A pipeline file, or the name of a built-in pipeline.
    pub(crate) file: String,

    #[command(flatten)]
    pub(crate) variables: SetArgs,

    /// Print the plan as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct GraphArgs {
    /// A pipeline file, or the name of a built-in pipeline.
    pub(crate) file: String,

    #[command(flatten)]
    pub(crate) variables: SetArgs,

    /// The language of the drawing.
    #[arg(long, value_name = "FORMAT", default_value = "mermaid")]
    pub(crate) format: GraphFormat,
}

/// The language of a drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum GraphFormat {
    /// A Mermaid flowchart, as Markdown pages show it.
    Mermaid,
    /// Graphviz' language.
    Dot,
}
