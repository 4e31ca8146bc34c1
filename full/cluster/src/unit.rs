//! The child process that runs one unit: its input, its output, and its exit when the parent is
//! gone. Starting it and interpreting its exit is in `executor`.
//!
//! The order is one line on stdin, which then stays open: when it closes, the parent is gone, and
//! the process exits at once. The last line of stdout is the result.

use std::io::{self, BufRead, Read, Write};
use std::sync::mpsc::{self, Receiver};

use serde::{Deserialize, Serialize};
use sluice_model::{Error, Registry, programs};
use sluice_pipeline::dispatch::{OrderOutcome, UnitOrder};
use sluice_pipeline::run::Options;

/// The longest order, in bytes.
pub(crate) const MAX_ORDER_BYTES: u64 = crate::MESSAGE_LIMIT as u64;

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

/// Runs the order on stdin, and prints its result on stdout.
pub fn serve(registry: &Registry, options: &Options) -> Result<(), Error> {
    let order = read_order()?;
    let ended = match order.execute(registry, options) {
        Ok(OrderOutcome::Delivered) => UnitResult::Delivered,
        Ok(OrderOutcome::Retry(why)) => UnitResult::Retry(why),
        Ok(OrderOutcome::Abandoned(why)) => UnitResult::Abandoned(why),
        Err(error) => UnitResult::Retry(error.to_string()),
    };
    let line = serde_json::to_string(&ended).map_err(|e| Error::internal(e.to_string()))?;
    let mut out = io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(|e| Error::io("write", "-", e))
}

fn read_order() -> Result<UnitOrder, Error> {
    let line = watch_stdin()?.recv().ok();
    let line = line.ok_or_else(|| Error::refused("expected an order on standard input"))?;
    let order = serde_json::from_str(&line);
    order.map_err(|e| Error::refused(format!("standard input is not an order: {e}")))
}

/// The first line of stdin. The thread that reads it keeps reading, and exits this process when
/// stdin closes.
fn watch_stdin() -> Result<Receiver<String>, Error> {
    let (sender, receiver) = mpsc::channel();
    let watch = move || {
        let mut line = String::new();
        let mut input = io::stdin().lock();
        if input.by_ref().take(MAX_ORDER_BYTES).read_line(&mut line).is_ok_and(|length| length > 0)
        {
            // There is no receiver if the process is about to exit.
            let _gone = sender.send(line);
            // However reading ends, the parent is gone.
            let _over = io::copy(&mut input, &mut io::sink());
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
