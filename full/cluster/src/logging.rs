//! What the libraries of the cluster say of their work, for whoever looks for a fault: nothing, unless the
//! environment variable `SLUICE_LOG` names a level.

use std::io::Write;
use std::str::FromStr;
use std::sync::OnceLock;

use log::{LevelFilter, Log, Metadata, Record};

/// The variable that asks for it: `error`, `warn`, `info`, `debug` or `trace`.
pub const LOG_VARIABLE: &str = "SLUICE_LOG";

/// Has libraries say on standard error what the environment asks for. Once a process; later calls do
/// nothing.
pub fn start() {
    let asked = std::env::var(LOG_VARIABLE).ok();
    let Some(level) = asked.and_then(|text| LevelFilter::from_str(text.trim()).ok()) else {
        return;
    };
    if log::set_logger(&LibraryLogger).is_ok() {
        log::set_max_level(level);
    }
}

/// Writes a line: its level, where it comes from, and what it says.
pub type WriteLine = fn(&str, &str, &str);

static WRITE_LINE: OnceLock<WriteLine> = OnceLock::new();

/// Has lines written by this function from now on. Once a process; later calls do nothing.
pub fn set_writer(write: WriteLine) {
    // The first one stays.
    let _later = WRITE_LINE.set(write);
}

struct LibraryLogger;

impl Log for LibraryLogger {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        if let Some(write) = WRITE_LINE.get() {
            write(record.level().as_str(), record.target(), &record.args().to_string());
            return;
        }
        let line = format!("{} {}: {}\n", record.level(), record.target(), record.args());
        // Where standard error is closed, nobody is there to be told.
        drop(std::io::stderr().write_all(line.as_bytes()));
    }

    fn flush(&self) {}
}
