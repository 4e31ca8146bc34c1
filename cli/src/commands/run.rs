//! `run`: runs a pipeline file.

use crate::args::RunArgs;
use crate::commands::{execute, pipeline};
use crate::ending::Outcome;
use crate::flags::Origin;
use crate::shell::Shell;

pub(crate) fn run(args: &RunArgs, shell: &Shell) -> Outcome {
    execute::refuse_what_is_missing(&args.engine)?;
    let pipeline = pipeline(&args.file, &args.variables, shell)?;
    execute::execute(pipeline, &args.engine, Origin::File, shell)
}
