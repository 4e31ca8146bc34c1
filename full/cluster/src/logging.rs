//! Logs of the cluster libraries, for debugging: off, unless the environment variable `SLUICE_LOG`
//! names a level.

use std::io::Write;
use std::str::FromStr;
use std::sync::OnceLock;

use log::{LevelFilter, Log, Metadata, Record};

/// The environment variable: `error`, `warn`, `info`, `debug` or `trace`.
pub const LOG_VARIABLE: &str = "SLUICE_LOG";

/// Logs to stderr at the level that the environment sets. Later calls do nothing.
pub fn start() {
    let level = std::env::var(LOG_VARIABLE).ok();
    let Some(level) = level.and_then(|text| LevelFilter::from_str(text.trim()).ok()) else {
        return;
    };
    if log::set_logger(&LibraryLogger).is_ok() {
        log::set_max_level(level);
    }
}

/// Writes a log line: level, target, message.
pub type WriteLine = fn(&str, &str, &str);

static WRITE_LINE: OnceLock<WriteLine> = OnceLock::new();

/// Sends log lines to this function instead. Later calls do nothing.
pub fn set_writer(write: WriteLine) {
    // The first writer stays.
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
        // If stderr is closed, the line is lost.
        drop(std::io::stderr().write_all(line.as_bytes()));
    }

    fn flush(&self) {}
}
