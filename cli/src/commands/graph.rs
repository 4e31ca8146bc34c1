//! `graph`: draws a pipeline.

use sluice_pipeline::{Outline, graph};

use crate::args::{GraphArgs, GraphFormat};
use crate::commands::{document, tell_unset, tell_unused, variables};
use crate::ending::{Ending, Outcome};
use crate::out;
use crate::shell::Shell;

pub(crate) fn run(args: &GraphArgs, shell: &Shell) -> Outcome {
    let document = document(&args.file)?;
    tell_unused(&document, &args.variables, shell);
    let variables = variables(&args.variables);
    let pipeline = Outline::read(&document, &variables, &shell.registry)?;
    tell_unset(&pipeline, shell);
    let drawing = match args.format {
        GraphFormat::Mermaid => graph::mermaid(&pipeline),
        GraphFormat::Dot => graph::dot(&pipeline),
    };
    out::text(&drawing)?;
    Ok(Ending::Done)
}
