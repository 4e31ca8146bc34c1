//! `check`: shows every mistake of every file. Opens no input.

use std::io::{self, Write};

use sluice_core::name::printable;
use sluice_core::programs::Program;
use sluice_pipeline::Pipeline;

use crate::args::CheckArgs;
use crate::commands::{document, variables};
use crate::ending::{Ending, Failure, Outcome};
use crate::shell::Shell;

pub(crate) fn run(args: &CheckArgs, shell: &Shell) -> Outcome {
    let mut worst = Ending::Done;
    for file in &args.files {
        match check(file, args, shell) {
            Ok(pipeline) => {
                writeln!(io::stdout(), "{file}: ok")?;
                for node in &pipeline.nodes {
                    if let Some(Program { line, .. }) = &node.program {
                        let (name, line) = (&node.name, printable(line));
                        let what = format!("runs a program: {line}; `run` needs --allow-exec");
                        writeln!(io::stdout(), "  {name}: {what}")?;
                    }
                }
                for node in &pipeline.nodes {
                    for note in node.notes() {
                        writeln!(io::stdout(), "  {}: {note}", node.name)?;
                    }
                }
                for left_out in &pipeline.left_out {
                    writeln!(io::stdout(), "  left out: {left_out}")?;
                }
            }
            Err(failure) => {
                failure.tell(shell);
                worst = Ending::WrongFiles;
            }
        }
    }
    Ok(worst)
}

fn check(file: &str, args: &CheckArgs, shell: &Shell) -> Result<Pipeline, Failure> {
    Ok(Pipeline::read(&document(file)?, &variables(&args.variables), &shell.registry)?)
}
