//! `check`: prints every mistake in every file. Opens no input.

use sluice_io::escape::{printable, printable_sentence};
use sluice_model::programs::Program;
use sluice_pipeline::{Document, Pipeline};

use crate::args::CheckArgs;
use crate::commands::{document, variables, warn_unused};
use crate::exit::{CommandResult, ExitStatus, Failure};
use crate::shell::Shell;
use crate::stdout;

pub(crate) fn run(args: &CheckArgs, shell: &Shell) -> CommandResult {
    let mut worst = ExitStatus::Done;
    let documents: Vec<_> = args.files.iter().map(|file| (file, document(file))).collect();
    let opened = documents.iter().filter_map(|(_, document)| document.as_ref().ok());
    warn_unused(&opened.collect::<Vec<_>>(), &args.variables, shell);
    for (file, document) in documents {
        match document.and_then(|document| check(&document, args, shell)) {
            Ok(pipeline) => {
                stdout::text(&text(file, &pipeline), shell)?;
            }
            Err(failure) => {
                failure.report(shell);
                worst = ExitStatus::InvalidPipelines;
            }
        }
    }
    Ok(worst)
}

/// The report on a valid file.
fn text(file: &str, pipeline: &Pipeline) -> String {
    let mut lines = vec![format!("{}: ok", printable(file))];
    for node in &pipeline.nodes {
        if let Some(Program { line, .. }) = &node.program {
            let (name, line) = (&node.name, printable(line));
            lines.push(format!("  {name}: runs a program: {line}; `run` needs --allow-exec"));
        }
    }
    for note in &pipeline.notes {
        lines.push(format!("  {}: {}", note.node, printable_sentence(&note.what)));
    }
    for node in &pipeline.nodes {
        let notes = node.notes();
        lines.extend(notes.iter().map(|n| format!("  {}: {}", node.name, printable_sentence(n))));
    }
    for (place, note) in sluice_pipeline::unused_rows::notes(&pipeline.nodes) {
        let name = pipeline.nodes.get(place).map_or("", |node| &node.name);
        lines.push(format!("  {name}: {}", printable_sentence(&note)));
    }
    let left_out = pipeline.pruned.iter().map(ToString::to_string);
    lines.extend(left_out.map(|node| format!("  left out: {}", printable_sentence(&node))));
    lines.join("\n") + "\n"
}

fn check(document: &Document, args: &CheckArgs, shell: &Shell) -> Result<Pipeline, Failure> {
    Ok(Pipeline::read(document, &variables(&args.variables), &shell.registry)?)
}
