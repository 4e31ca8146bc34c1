//! `info`: shows what is in logs, as text or JSON. `census` counts.

mod census;
mod json;
mod layout;
mod overview;
mod summary;
mod table;
mod text;

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use sluice_io::escape::path_text;
use sluice_model::{DynSink, Input};
use sluice_pipeline::run::Options;

use crate::args::InfoArgs;
use crate::commands::generated;
use crate::exit::{CommandResult, ExitStatus, Failure};
use crate::input_format::InputFormat;
use crate::inputs;
use crate::inspection;
use crate::shell::Shell;
use crate::stdout;
use census::Census;
pub(crate) use census::{CensusSink, TypeNames};
use layout::LineLayout;
use overview::Overview;
use summary::LogSummary;

/// Prints summaries, and collects the overview.
struct InfoPrinter {
    format: InfoFormat,
    layout: LineLayout,
    overview: Overview,
    /// The lines of the overview, printed last.
    lines: Vec<String>,
}

/// The output format.
#[derive(Clone, Copy, PartialEq, Eq)]
enum InfoFormat {
    Json,
    Text,
    /// One line per log.
    Brief,
}

/// Summarizes every file, continuing after files that cannot be read.
pub(crate) fn run(args: &InfoArgs, shell: &Shell) -> CommandResult {
    let form = match (args.json, args.brief) {
        (true, _) => InfoFormat::Json,
        (false, true) => InfoFormat::Brief,
        (false, false) => InfoFormat::Text,
    };
    let (layout, overview) = (LineLayout::of_stdout(), Overview::default());
    let mut printer = InfoPrinter { format: form, layout, overview, lines: Vec::new() };
    if form == InfoFormat::Brief {
        stdout::unescaped(&Overview::head(), shell)?;
    }
    let mut worst = Ok(ExitStatus::Done);
    for (name, found) in inputs::expand_all(&args.files, "`info` covers the whole log", shell)? {
        let files = match found {
            Ok(files) => files,
            Err(failure) => {
                printer.add_failed(name, &failure, shell)?;
                worst = worst_of(worst, Err(failure), shell);
                continue;
            }
        };
        for file in files {
            let ending = print_file(&file, args, &mut printer, shell);
            if let Err(Failure::StdoutClosed) = ending {
                return ending;
            }
            worst = worst_of(worst, ending, shell);
        }
    }
    printer.finish(shell)?;
    worst
}

impl InfoPrinter {
    fn print(&mut self, summary: &LogSummary, shell: &Shell) -> Result<(), io::Error> {
        let text = match self.format {
            InfoFormat::Json => {
                return stdout::json(&json::summary_json(summary).to_string(), shell);
            }
            InfoFormat::Brief => self.overview.add(summary, self.layout),
            InfoFormat::Text => {
                self.lines.push(self.overview.add(summary, self.layout));
                text::render(summary, self.layout)
            }
        };
        stdout::unescaped(&text, shell)
    }

    /// Counts a log that cannot be read, and prints its JSON. Whoever prints failures prints text.
    fn add_failed(&mut self, log: &str, failure: &Failure, shell: &Shell) -> Result<(), io::Error> {
        self.overview.add_failed();
        match self.format {
            InfoFormat::Json => {
                stdout::json(&json::failure_json(log, &failure.message()).to_string(), shell)
            }
            InfoFormat::Brief | InfoFormat::Text => Ok(()),
        }
    }

    /// Prints the rest of the overview, which is omitted for a single log.
    fn finish(&self, shell: &Shell) -> Result<(), io::Error> {
        let behind = match self.format {
            InfoFormat::Json => return Ok(()),
            InfoFormat::Text if self.overview.logs() < 2 => return Ok(()),
            InfoFormat::Text => Overview::head() + &self.lines.concat(),
            InfoFormat::Brief => String::new(),
        };
        stdout::unescaped(&(behind + &self.overview.total()), shell)
    }
}

/// The worse of two results. Of two failures, the first is printed now and the second is returned.
fn worst_of(so_far: CommandResult, next: CommandResult, shell: &Shell) -> CommandResult {
    match (so_far, next) {
        (Ok(a), Ok(b)) => Ok(a.max(b)),
        (Err(first), Err(second)) => {
            first.report(shell);
            Err(second)
        }
        (Err(failure), Ok(_)) | (Ok(_), Err(failure)) => Err(failure),
    }
}

fn print_file(
    file: &Input,
    args: &InfoArgs,
    printer: &mut InfoPrinter,
    shell: &Shell,
) -> CommandResult {
    let summary = match inspect(file, args, shell) {
        Ok(summary) => summary,
        Err(failure) => {
            printer.add_failed(&path_text(&file.path), &failure, shell)?;
            return Err(failure);
        }
    };
    printer.print(&summary, shell)?;
    Ok(if summary.report.damaged_ranges == 0 { ExitStatus::Done } else { ExitStatus::Losses })
}

fn inspect(file: &Input, args: &InfoArgs, shell: &Shell) -> Result<LogSummary, Failure> {
    let format = InputFormat::from_args(&args.format)?;
    let plugin = format.source_for(&file.path, shell)?;
    let source = || generated::source_node("sluice info", &format, (plugin, &file.path), shell);
    let result = Arc::new(Mutex::new(Census::default()));
    let counting = CensusSink::new(Arc::clone(&result), TypeNames::from_paths(&args.types, shell)?);
    let options = Options { allow_exec: args.allow_exec, ..Options::default() };
    let report = inspection::read(source()?, DynSink::new(counting), options, shell)?;
    let census = std::mem::take(&mut *result.lock().unwrap_or_else(PoisonError::into_inner));
    let (mut findings, bytes) = inspection::findings(&source()?, &file.path)?;
    findings.extend(report.notes.iter().map(|note| note.what.clone()));
    let (path, format) = (file.path.clone(), plugin.name);
    Ok(LogSummary { path, format, bytes, census, report, findings })
}
