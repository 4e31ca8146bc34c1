//! `schema`: the JSON Schema of pipeline files that this program reads, for editors.

use std::io::{self, Write};

use sluice_pipeline::schema;

use crate::ending::{Ending, Outcome};
use crate::shell::Shell;

pub(crate) fn run(shell: &Shell) -> Outcome {
    writeln!(io::stdout(), "{:#}", schema::json_schema(&shell.registry))?;
    Ok(Ending::Done)
}
