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
pub(crate) const LONGEST_ORDER: u64 = crate::MESSAGE_LIMIT as u64;

/// How a unit ended, as its process says it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "unit", content = "why", rename_all = "snake_case")]
pub(crate) enum Ended {
    /// What it made, or why it made nothing, lies in the room.
    Delivered,
    /// It may go well another time.
    Again(String),
    /// Nobody wants it any more.
    Abandoned(String),
}

/// Fulfils the order that standard input holds, and says on standard output how that went.
pub fn serve(registry: &Registry, options: &Options) -> Result<(), Error> {
    let order = order()?;
    let ended = match order.fulfil(registry, options) {
        Ok(Fulfilled::Delivered) => Ended::Delivered,
        Ok(Fulfilled::Again(why)) => Ended::Again(why),
        Ok(Fulfilled::Abandoned(why)) => Ended::Abandoned(why),
        Err(error) => Ended::Again(error.to_string()),
    };
    let line = serde_json::to_string(&ended).map_err(|e| Error::broken(e.to_string()))?;
    let mut out = io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(|e| Error::io("write", "-", e))
}

fn order() -> Result<Order, Error> {
    let line = watched_input()?.recv().ok();
    let line = line.ok_or_else(|| Error::refused("expected an order on standard input"))?;
    let order = serde_json::from_str(&line);
    order.map_err(|e| Error::refused(format!("standard input holds no order: {e}")))
}

/// The first line of standard input. What reads it goes on reading, and ends this process with its input.
fn watched_input() -> Result<Receiver<String>, Error> {
    let (sender, receiver) = mpsc::channel();
    let watch = move || {
        let mut line = String::new();
        let mut input = io::stdin().lock();
        if input.by_ref().take(LONGEST_ORDER).read_line(&mut line).is_ok_and(|length| length > 0) {
            // Nobody waits for it where the process is about to end.
            let _gone = sender.send(line);
            // However it ends: nobody is there any more.
            let _over = io::copy(&mut input, &mut io::sink());
        }
        programs::close();
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
        let all = [Ended::Delivered, Ended::Again("a\nb".into()), Ended::Abandoned("c".into())];
        for ended in all {
            let line = serde_json::to_string(&ended).unwrap();
            assert!(!line.contains('\n'), "{line}");
            assert_eq!(serde_json::from_str::<Ended>(&line).unwrap(), ended);
        }
    }
}
