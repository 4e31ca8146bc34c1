//! `info`: what is in logs, for people or as JSON. Counting is done by `census`.

mod census;
mod json;
mod layout;
mod overview;
mod show;
mod table;

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use sluice_core::Input;
use sluice_core::name::json_escaped;
use sluice_pipeline::Report;

use crate::args::InfoArgs;
use crate::description::Format;
use crate::ending::{Ending, Failure, Outcome};
use crate::inputs;
use crate::shell::Shell;
use census::Census;
pub(crate) use census::{Counting, Types};
use layout::Layout;
use overview::Overview;

/// What was found in one file.
struct Found {
    path: PathBuf,
    format: &'static str,
    bytes: Option<u64>,
    census: Census,
    report: Report,
    /// What its source has to say of it.
    findings: Vec<String>,
}

/// What is shown of logs, and the overview of them so far.
struct Showing {
    form: Form,
    layout: Layout,
    overview: Overview,
    /// The lines of the overview that come behind everything else.
    lines: Vec<String>,
}

/// What is shown of each log.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Json,
    Text,
    /// A line in the overview.
    Brief,
}

/// Tells of every file, also behind one that cannot be read.
pub(crate) fn run(args: &InfoArgs, shell: &Shell) -> Outcome {
    let form = match (args.json, args.brief) {
        (true, _) => Form::Json,
        (false, true) => Form::Brief,
        (false, false) => Form::Text,
    };
    let (layout, overview) = (Layout::of_stdout(), Overview::default());
    let mut showing = Showing { form, layout, overview, lines: Vec::new() };
    if form == Form::Brief {
        io::stdout().write_all(Overview::head().as_bytes())?;
    }
    let mut worst = Ok(Ending::Done);
    for name in &args.files {
        let files = match files(name, shell) {
            Ok(files) => files,
            Err(failure) => {
                showing.overview.add_failed();
                worst = worse(worst, Err(failure), shell);
                continue;
            }
        };
        for file in files {
            let ending = tell_of(&file, args, &mut showing, shell);
            if let Err(Failure::Closed) = ending {
                return ending;
            }
            worst = worse(worst, ending, shell);
        }
    }
    showing.finish()?;
    worst
}

impl Showing {
    fn show(&mut self, found: &Found) -> Result<(), io::Error> {
        let text = match self.form {
            Form::Json => json_escaped(&json::of(found).to_string()).into_owned() + "\n",
            Form::Brief => self.overview.add(found, self.layout),
            Form::Text => {
                self.lines.push(self.overview.add(found, self.layout));
                show::text(found, self.layout)
            }
        };
        io::stdout().write_all(text.as_bytes())
    }

    /// Shows what of the overview has not been shown: with one log, that says nothing new.
    fn finish(&self) -> Result<(), io::Error> {
        let behind = match self.form {
            Form::Json => return Ok(()),
            Form::Text if self.overview.logs() < 2 => return Ok(()),
            Form::Text => Overview::head() + &self.lines.concat(),
            Form::Brief => String::new(),
        };
        io::stdout().write_all((behind + &self.overview.total()).as_bytes())
    }
}

/// The files that one name stands for, which may be an address `file://…`.
fn files(name: &str, shell: &Shell) -> Result<Vec<Input>, Failure> {
    let Some(url) = inputs::told_file_url(name, shell)? else { return inputs::expand(shell, name) };
    if url.start.is_some() {
        shell.warn(&format!("a log is told of as a whole, whatever start_timestamp says: {name}"));
    }
    inputs::expand(shell, url.path)
}

/// The worse of two endings. Of two failures, the first is told now and the other one is passed on.
fn worse(so_far: Outcome, next: Outcome, shell: &Shell) -> Outcome {
    match (so_far, next) {
        (Ok(a), Ok(b)) => Ok(a.max(b)),
        (Err(first), Err(second)) => {
            first.tell(shell);
            Err(second)
        }
        (Err(failure), Ok(_)) | (Ok(_), Err(failure)) => Err(failure),
    }
}

fn tell_of(file: &Input, args: &InfoArgs, showing: &mut Showing, shell: &Shell) -> Outcome {
    let found = look_into(file, args, shell).inspect_err(|_| showing.overview.add_failed())?;
    showing.show(&found)?;
    Ok(if found.report.damaged_ranges == 0 { Ending::Done } else { Ending::Losses })
}

fn look_into(file: &Input, args: &InfoArgs, shell: &Shell) -> Result<Found, Failure> {
    let format = Format::of(args.from.as_deref(), args.describe.as_deref(), &args.source_option)?;
    let (source, options) = format.reader(file, shell)?;
    let result = Arc::new(Mutex::new(Census::default()));
    let counting = Counting::new(Arc::clone(&result), Types::named(&args.types, shell)?);
    let report = inputs::read_with(source, &file.path, &options, Box::new(counting))?;
    let census = std::mem::take(&mut *result.lock().unwrap_or_else(PoisonError::into_inner));
    let mut findings = inputs::findings(source, &file.path, &options)?;
    findings.extend(report.notes.iter().map(|note| note.what.clone()));
    let (path, format, bytes) = (file.path.clone(), source.name, file.bytes);
    Ok(Found { path, format, bytes, census, report, findings })
}
