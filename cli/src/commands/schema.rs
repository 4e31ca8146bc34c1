//! `schema`: the JSON Schema of pipeline files that this program reads, for editors.

use sluice_pipeline::schema;

use crate::exit::{CommandResult, ExitStatus};
use crate::shell::Shell;
use crate::stdout;

pub(crate) fn run(shell: &Shell) -> CommandResult {
    stdout::unescaped(&format!("{:#}\n", schema::json_schema(&shell.registry)), shell)?;
    Ok(ExitStatus::Done)
}
