//! `man`: manual pages.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use clap_mangen::Man;
use sluice_io::output::Outputs;
use sluice_model::{Error, Overwrite};

use crate::args::{self, ManArgs};
use crate::commands::report_file;
use crate::exit::{CommandResult, ExitStatus, Failure};
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
    Man::new(args::command()).render(&mut page)?;
    io::stdout().write_all(&page)
}

/// Writes one page for the program and one per verb, such as `sluice-run`: all of them or none.
fn write_pages(folder: &Path, shell: &Shell) -> Result<(), Failure> {
    report_file::refuse_in_output_folder(&folder.join("sluice.1"), "the manual")?;
    fs::create_dir_all(folder).map_err(|e| Error::io("create", folder, e))?;
    let outputs = Arc::new(Outputs::new(Overwrite::Replace, false, &[]));
    let mut program = args::command().disable_help_subcommand(true);
    program.build();
    let verbs = program.get_subcommands().filter(|verb| !verb.is_hide_set());
    for command in verbs.chain([&program]) {
        let manual = Man::new(command.clone());
        let mut page = Vec::new();
        let rendered = manual.render(&mut page);
        rendered.map_err(|e| Error::io("write pages into", folder, e))?;
        let mut file = outputs.create(&folder.join(manual.get_filename()))?;
        file.write(&page)?;
        file.finish(0)?;
    }
    outputs.publish(|_, _| Ok(String::new()))?;
    shell.info(&format!("wrote the pages into {}", folder.display()));
    Ok(())
}
