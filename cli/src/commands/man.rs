//! `man`: manual pages.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use clap::Command;
use clap_mangen::Man;
use sluice_io::output::Outputs;
use sluice_model::{Error, Overwrite};

use crate::args::{self, ManArgs};
use crate::commands::report_file;
use crate::exit::{CommandResult, ExitStatus, Failure};
use crate::shell::Shell;
use crate::stdout;

pub(crate) fn run(args: &ManArgs, shell: &Shell) -> CommandResult {
    match &args.dir {
        Some(folder) => write_pages(folder, shell)?,
        None => print_page(shell)?,
    }
    Ok(ExitStatus::Done)
}

fn print_page(shell: &Shell) -> Result<(), io::Error> {
    stdout::unescaped(&String::from_utf8_lossy(&page(&args::command())?), shell)
}

/// The page of a command. What is below the options keeps its lines.
fn page(command: &Command) -> Result<Vec<u8>, io::Error> {
    let below = command.get_after_help().map(ToString::to_string);
    let manual = Man::new(command.clone()).source(concat!("sluice ", env!("CARGO_PKG_VERSION")));
    let mut page = Vec::new();
    manual.render_title(&mut page)?;
    manual.render_name_section(&mut page)?;
    manual.render_synopsis_section(&mut page)?;
    manual.render_description_section(&mut page)?;
    manual.render_options_section(&mut page)?;
    if command.has_subcommands() {
        manual.render_subcommands_section(&mut page)?;
    }
    if let Some(below) = below {
        page.extend_from_slice(b".SH NOTES\n.nf\n");
        below.lines().for_each(|line| page.extend_from_slice(roff_line(line).as_bytes()));
        page.extend_from_slice(b".fi\n");
    }
    if command.get_version().is_some() {
        manual.render_version_section(&mut page)?;
    }
    Ok(page)
}

/// A line of text in a manual page, with quotes and hyphens that can be copied. A dot at its start
/// would be a request.
fn roff_line(line: &str) -> String {
    let mut text = String::from(if line.starts_with('.') { "\\&" } else { "" });
    for c in line.chars() {
        match c {
            '\\' => text.push_str("\\e"),
            '-' => text.push_str("\\-"),
            '\'' => text.push_str("\\(aq"),
            '`' => text.push_str("\\(ga"),
            other => text.push(other),
        }
    }
    text + "\n"
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
        let rendered = page(command).map_err(|e| Error::io("write pages into", folder, e))?;
        let name = Man::new(command.clone()).get_filename();
        let mut file = outputs.create(&folder.join(name))?;
        file.write(&rendered)?;
        file.finish(0)?;
    }
    outputs.publish(|_, _| Ok(String::new()))?;
    shell.info(&format!("wrote the pages into {}", folder.display()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_and_exit_codes_keep_their_lines() {
        let command = Command::new("verb").after_help("Codes:\n  --x \\ 'y'\n.dot");
        let page = String::from_utf8(page(&command).unwrap()).unwrap();
        assert!(page.ends_with(".nf\nCodes:\n  \\-\\-x \\e \\(aqy\\(aq\n\\&.dot\n.fi\n"), "{page}");
        assert!(page.contains(concat!("\"sluice ", env!("CARGO_PKG_VERSION"), "\"")), "{page}");
    }
}
