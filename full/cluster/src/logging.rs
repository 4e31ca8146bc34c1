//! Logs of the cluster libraries, for debugging: off, unless the environment variable `SLUICE_LOG`
//! names a level.

use std::io::Write;
use std::str::FromStr;

use log::{LevelFilter, Log, Metadata, Record};

/// The environment variable: `error`, `warn`, `info`, `debug` or `trace`.
pub const LOG_VARIABLE: &str = "SLUICE_LOG";

/// Passes log lines of the level that the environment sets to `write`. Later calls do nothing: a
/// process has one logger.
pub fn start(write: WriteLine) {
    let level = std::env::var(LOG_VARIABLE).ok();
    let Some(level) = level.and_then(|text| LevelFilter::from_str(text.trim()).ok()) else {
        return;
    };
    if log::set_logger(Box::leak(Box::new(LibraryLogger(write)))).is_ok() {
        log::set_max_level(level);
    }
}

/// Writes a log line: level, target, message.
pub type WriteLine = fn(&str, &str, &str);

/// Writes a log line to stderr.
pub fn write_to_stderr(level: &str, target: &str, text: &str) {
    // If stderr is closed, the line is lost.
    drop(std::io::stderr().write_all(format!("{level} {target}: {text}\n").as_bytes()));
}

struct LibraryLogger(WriteLine);

impl Log for LibraryLogger {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        (self.0)(record.level().as_str(), record.target(), &record.args().to_string());
    }

    fn flush(&self) {}
}
