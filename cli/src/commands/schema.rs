//! `schema`: the JSON Schema of pipeline files that this program reads, for editors.

use std::io::{self, Write};

use sluice_pipeline::schema;

use crate::exit::{CommandResult, ExitStatus};
use crate::shell::Shell;

pub(crate) fn run(shell: &Shell) -> CommandResult {
    writeln!(io::stdout(), "{:#}", schema::json_schema(&shell.registry))?;
    Ok(ExitStatus::Done)
}
