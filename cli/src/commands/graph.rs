//! `graph`: draws a pipeline.

use sluice_pipeline::{Outline, graph};

use crate::args::{GraphArgs, GraphFormat};
use crate::commands::{document, variables, warn_unset, warn_unused};
use crate::exit::{CommandResult, ExitStatus};
use crate::shell::Shell;
use crate::stdout;

pub(crate) fn run(args: &GraphArgs, shell: &Shell) -> CommandResult {
    let document = document(&args.file)?;
    warn_unused(&[&document], &args.variables, shell);
    let variables = variables(&args.variables);
    let pipeline = Outline::read(&document, &variables, &shell.registry)?;
    warn_unset(&pipeline, shell);
    let drawing = match args.format {
        GraphFormat::Mermaid => graph::mermaid(&pipeline),
        GraphFormat::Dot => graph::dot(&pipeline),
    };
    stdout::text(&drawing, shell)?;
    Ok(ExitStatus::Done)
}
