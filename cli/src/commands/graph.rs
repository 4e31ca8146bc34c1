//! `graph`: draws a pipeline.

use std::io::{self, Write};

use sluice_pipeline::graph;

use crate::args::{GraphArgs, GraphFormat};
use crate::commands::pipeline;
use crate::ending::{Ending, Outcome};
use crate::shell::Shell;

pub(crate) fn run(args: &GraphArgs, shell: &Shell) -> Outcome {
    let pipeline = pipeline(&args.file, &args.variables, shell)?;
    let drawing = match args.format {
        GraphFormat::Mermaid => graph::mermaid(&pipeline),
        GraphFormat::Dot => graph::dot(&pipeline),
    };
    io::stdout().write_all(drawing.as_bytes())?;
    Ok(Ending::Done)
}
