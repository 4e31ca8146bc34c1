//! `info`: what is in logs, for people or as JSON. Counting is done by `census`.

mod census;
mod show;

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use sluice_core::{Input, Kind};
use sluice_pipeline::Report;

use crate::args::InfoArgs;
use crate::description::Format;
use crate::ending::{Ending, Failure, Outcome};
use crate::inputs;
use crate::shell::Shell;
use census::Census;
pub(crate) use census::{Counting, Types};

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

/// Tells of every file, also behind one that cannot be read.
pub(crate) fn run(args: &InfoArgs, shell: &Shell) -> Outcome {
    let mut worst = Ok(Ending::Done);
    for name in &args.files {
        let files = match files(name, shell) {
            Ok(files) => files,
            Err(failure) => {
                worst = worse(worst, Err(failure), shell);
                continue;
            }
        };
        for file in files {
            let ending = tell_of(&file, args, shell);
            if let Err(Failure::Closed) = ending {
                return ending;
            }
            worst = worse(worst, ending, shell);
        }
    }
    worst
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

fn tell_of(file: &Input, args: &InfoArgs, shell: &Shell) -> Outcome {
    let found = look_into(file, args, shell)?;
    if args.json {
        writeln!(io::stdout(), "{}", show::json(&found))?;
    } else {
        io::stdout().write_all(show::text(&found).as_bytes())?;
    }
    Ok(if found.report.damaged_ranges == 0 { Ending::Done } else { Ending::Losses })
}

fn look_into(file: &Input, args: &InfoArgs, shell: &Shell) -> Result<Found, Failure> {
    let format = Format::of(args.from.as_deref(), args.describe.as_deref(), &args.source_option)?;
    let options = format.json()?;
    let source = match format.from.as_deref().filter(|_| !options.is_empty()) {
        Some(name) => inputs::named(shell, Kind::Source, name)?,
        None => inputs::source_of(shell, std::slice::from_ref(file), format.from.as_deref())?,
    };
    let result = Arc::new(Mutex::new(Census::default()));
    let counting = Counting::new(Arc::clone(&result), Types::named(&args.types, shell)?);
    let report = inputs::read_with(source, &file.path, &options, Box::new(counting))?;
    let census = std::mem::take(&mut *result.lock().unwrap_or_else(PoisonError::into_inner));
    let mut findings = inputs::findings(source, &file.path, &options)?;
    findings.extend(report.notes.iter().map(|note| note.what.clone()));
    let (path, format, bytes) = (file.path.clone(), source.name, file.bytes);
    Ok(Found { path, format, bytes, census, report, findings })
}
