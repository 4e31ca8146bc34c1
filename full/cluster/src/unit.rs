//! The process that fulfils one order: what goes in and out of it, and that it ends with who started it.
//! How it is started and judged is `executor`'s business.
//!
//! The order comes as one line of standard input, which then stays open: when it closes, whoever wanted the
//! unit is gone, and the process ends at once. Its last line of standard output says how it ended.

use std::io::{self, BufRead, Read, Write};
use std::sync::mpsc::{self, Receiver};

use serde::{Deserialize, Serialize};
use sluice_core::{Error, Registry, programs};
use sluice_pipeline::dispatch::{Fulfilled, Order};
use sluice_pipeline::run::Options;

/// How long an order may be.
pub(crate) const MAX_ORDER_BYTES: u64 = crate::MESSAGE_LIMIT as u64;

/// How a unit ended, as its process says it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "unit", content = "why", rename_all = "snake_case")]
pub(crate) enum UnitResult {
    /// What it made, or why it made nothing, lies in the room.
    Delivered,
    /// It may go well another time.
    Again(String),
    /// Nobody wants it any more.
    Abandoned(String),
}

/// Fulfils the order that standard input holds, and says on standard output how that went.
pub fn serve(registry: &Registry, options: &Options) -> Result<(), Error> {
    let order = read_order()?;
    let ended = match order.fulfil(registry, options) {
        Ok(Fulfilled::Delivered) => UnitResult::Delivered,
        Ok(Fulfilled::Again(why)) => UnitResult::Again(why),
        Ok(Fulfilled::Abandoned(why)) => UnitResult::Abandoned(why),
        Err(error) => UnitResult::Again(error.to_string()),
    };
    let line = serde_json::to_string(&ended).map_err(|e| Error::internal(e.to_string()))?;
    let mut out = io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(|e| Error::io("write", "-", e))
}

fn read_order() -> Result<Order, Error> {
    let line = watch_stdin()?.recv().ok();
    let line = line.ok_or_else(|| Error::refused("expected an order on standard input"))?;
    let order = serde_json::from_str(&line);
    order.map_err(|e| Error::refused(format!("standard input holds no order: {e}")))
}

/// The first line of standard input. What reads it goes on reading, and ends this process with its input.
fn watch_stdin() -> Result<Receiver<String>, Error> {
    let (sender, receiver) = mpsc::channel();
    let watch = move || {
        let mut line = String::new();
        let mut input = io::stdin().lock();
        if input.by_ref().take(MAX_ORDER_BYTES).read_line(&mut line).is_ok_and(|length| length > 0)
        {
            // Nobody waits for it where the process is about to end.
            let _gone = sender.send(line);
            // However it ends: nobody is there any more.
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
    fn how_a_unit_ended_is_a_line_that_is_read_again() {
        let all = [
            UnitResult::Delivered,
            UnitResult::Again("a\nb".into()),
            UnitResult::Abandoned("c".into()),
        ];
        for ended in all {
            let line = serde_json::to_string(&ended).unwrap();
            assert!(!line.contains('\n'), "{line}");
            assert_eq!(serde_json::from_str::<UnitResult>(&line).unwrap(), ended);
        }
    }
}
