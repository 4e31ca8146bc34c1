//! The child process that runs units: its input, its output, and its exit when the parent is gone.
//! Starting it and interpreting its results is in `executor`.
//!
//! An order is one line on stdin, and its result one line on stdout. The messages of a unit are
//! lines on stderr, ended by `END_OF_UNIT` before the result. When stdin closes, the parent is
//! gone, and the process exits at once.

use std::io::{self, BufRead, Read, Write};
use std::sync::mpsc::{self, Receiver};

use serde::{Deserialize, Serialize};
use sluice_io::files::forget_states;
use sluice_model::{Error, Registry, programs};
use sluice_pipeline::dispatch::{OrderOutcome, UnitOrder};
use sluice_pipeline::run::Options;

/// The longest order, in bytes.
pub(crate) const MAX_ORDER_BYTES: u64 = crate::MESSAGE_LIMIT as u64;

/// The line that ends the messages of a unit on stderr.
pub(crate) const END_OF_UNIT: &str = "\u{1}end of unit";

/// The result of a unit, as its process prints it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "unit", content = "why", rename_all = "snake_case")]
pub(crate) enum UnitResult {
    /// The output, or why there is none, is in the staging directory.
    Delivered,
    /// It failed, and may succeed if retried.
    #[serde(rename = "again")]
    Retry(String),
    /// The run is over, or has dropped the unit.
    Abandoned(String),
}

/// Runs the orders on stdin, and prints their results. Does not return while the parent lives.
pub fn serve(registry: &Registry, options: &Options) -> Result<(), Error> {
    for line in orders()? {
        let order: UnitOrder = serde_json::from_str(&line)
            .map_err(|e| Error::refused(format!("standard input is not an order: {e}")))?;
        // Inputs may have changed since the last order.
        forget_states();
        let result = match order.execute(registry, options) {
            Ok(OrderOutcome::Delivered) => UnitResult::Delivered,
            Ok(OrderOutcome::Retry(why)) => UnitResult::Retry(why),
            Ok(OrderOutcome::Abandoned(why)) => UnitResult::Abandoned(why),
            Err(error) => UnitResult::Retry(error.to_string()),
        };
        let line = serde_json::to_string(&result).map_err(|e| Error::internal(e.to_string()))?;
        print_line(io::stderr().lock(), END_OF_UNIT)?;
        print_line(io::stdout().lock(), &line)?;
    }
    Ok(())
}

fn print_line(mut to: impl Write, line: &str) -> Result<(), Error> {
    writeln!(to, "{line}").and_then(|()| to.flush()).map_err(|e| Error::io("write", "-", e))
}

/// The lines of stdin. The thread that reads them exits this process when stdin closes.
fn orders() -> Result<Receiver<String>, Error> {
    let (sender, receiver) = mpsc::channel();
    let watch = move || {
        let mut input = io::stdin().lock();
        loop {
            let mut line = String::new();
            let read = input.by_ref().take(MAX_ORDER_BYTES).read_line(&mut line);
            // However reading ends, the parent is gone. There is no receiver if the process is
            // about to exit.
            if !read.is_ok_and(|length| length > 0) || sender.send(line).is_err() {
                break;
            }
        }
        programs::shut_down();
        std::process::exit(1);
    };
    let thread = std::thread::Builder::new().name("sluice-parent".into()).spawn(watch);
    thread.map_err(|e| Error::refused(format!("cannot start a thread: {e}")))?;
    Ok(receiver)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_result_survives_a_round_trip_on_one_line() {
        let all = [
            UnitResult::Delivered,
            UnitResult::Retry("a\nb".into()),
            UnitResult::Abandoned("c".into()),
        ];
        for ended in all {
            let line = serde_json::to_string(&ended).unwrap();
            assert!(!line.contains('\n'), "{line}");
            assert_eq!(serde_json::from_str::<UnitResult>(&line).unwrap(), ended);
        }
    }
}
