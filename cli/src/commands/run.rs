//! `run`: runs a pipeline file.

use crate::args::RunArgs;
use crate::commands::{execute, pipeline};
use crate::exit::CommandResult;
use crate::flags::PipelineOrigin;
use crate::shell::Shell;

pub(crate) fn run(args: &RunArgs, shell: &Shell) -> CommandResult {
    execute::check_engine(&args.engine)?;
    let pipeline = pipeline(&args.file, &args.variables, shell)?;
    execute::execute(pipeline, &args.engine, PipelineOrigin::File, shell)
}
