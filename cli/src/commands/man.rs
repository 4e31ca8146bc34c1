//! `man`: manual pages.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use sluice_model::Error;

use crate::args::{self, ManArgs};
use crate::exit::{CommandResult, ExitStatus};
use crate::shell::Shell;

pub(crate) fn run(args: &ManArgs, shell: &Shell) -> CommandResult {
    match &args.dir {
        Some(folder) => write_pages(folder, shell)?,
        None => print_page()?,
    }
    Ok(ExitStatus::Done)
}

fn print_page() -> Result<(), io::Error> {
    let mut page = Vec::new();
    clap_mangen::Man::new(args::command()).render(&mut page)?;
    io::stdout().write_all(&page)
}

/// Writes one page for the program and one per verb, such as `sluice-run`.
fn write_pages(folder: &Path, shell: &Shell) -> Result<(), Error> {
    fs::create_dir_all(folder).map_err(|e| Error::io("create", folder, e))?;
    let program = args::command().disable_help_subcommand(true);
    let written = clap_mangen::generate_to(program, folder);
    written.map_err(|e| Error::io("write pages into", folder, e))?;
    shell.info(&format!("wrote the pages into {}", folder.display()));
    Ok(())
}
