//! Messages on standard error: text, or JSON objects with `--log-format json`.
//!
//! The format is global, as panics and the signal thread write to standard error as well. What to
//! print is decided elsewhere.

use std::io::{self, Write};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::ValueEnum;
use serde_json::{Value, json};
use sluice_io::escape::{json_escaped, printable_lines};
use sluice_model::panics::is_panic_caught;
use sluice_model::time;

/// The format of messages on standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Text for people.
    Text,
    /// One JSON object per line.
    Json,
}

/// The severity of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// The command failed, or something in it is invalid.
    Error,
    /// Something was lost, or is likely to be a mistake.
    Warning,
    /// Information.
    Info,
    /// Printed with `--verbose` only.
    Debug,
}

impl Level {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Info => "info",
            Self::Debug => "debug",
        }
    }
}

static IS_JSON: AtomicBool = AtomicBool::new(false);

/// Sets the format of all further messages of this process.
pub(crate) fn set_format(format: LogFormat) {
    static HOOK: Once = Once::new();
    IS_JSON.store(format == LogFormat::Json, Ordering::Relaxed);
    HOOK.call_once(set_panic_hook);
}

/// Prints panics in the format of other messages, except for those of malformed input, which its
/// reader reports.
fn set_panic_hook() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if is_panic_caught() {
            return;
        }
        if is_json() {
            log_json(Level::Error, "panic", json!({ "message": panic.to_string() }));
        } else {
            hook(panic);
        }
    }));
}

/// Whether messages are JSON objects.
pub fn is_json() -> bool {
    IS_JSON.load(Ordering::Relaxed)
}

/// Prints a message without a kind.
pub fn log_message(text: &str) {
    if is_json() {
        log_json(Level::Info, "message", json!({ "message": text }));
    } else {
        write(&printable_lines(text));
    }
}

/// Prints text with color sequences. The text must be free of other control sequences.
pub(crate) fn log_colored(text: &str) {
    write(text);
}

/// Prints a JSON object with these fields on one line.
pub(crate) fn log_json(level: Level, kind: &str, fields: Value) {
    write(&line(&now(), level, kind, fields));
}

/// Prints a JSON object on one line: a message followed by these fields.
pub fn log_json_message(level: Level, kind: &str, text: &str, fields: Value) {
    let mut all = json!({ "message": text });
    if let (Some(all), Value::Object(fields)) = (all.as_object_mut(), fields) {
        all.extend(fields);
    }
    log_json(level, kind, all);
}

/// Prints progress as JSON: bare, or as a record of the JSON log.
pub(crate) fn log_progress(fields: Value) {
    if is_json() {
        log_json(Level::Info, "progress", fields);
    } else {
        write(&fields.to_string());
    }
}

/// Writes a line to standard error. Errors are ignored: if it is closed, there is nowhere to report
/// them.
fn write(text: &str) {
    drop(writeln!(io::stderr().lock(), "{text}"));
}

fn line(time: &str, level: Level, kind: &str, fields: Value) -> String {
    // Common fields come first, which makes the lines easier to read.
    let mut line =
        format!("{{\"time\":\"{time}\",\"level\":\"{}\",\"kind\":\"{kind}\"", level.name());
    if let Value::Object(fields) = fields {
        for (name, value) in fields {
            line += &format!(",{}:{value}", Value::from(name));
        }
    }
    line.push('}');
    json_escaped(&line).into_owned()
}

fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    time::format(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_object_whatever_the_message() {
        let message = "a \"quote\"\nand \u{1b}[31m \u{202e}txt";
        let line =
            line("2007-11-03T14:00:00Z", Level::Warning, "note", json!({ "message": message }));
        assert!(line.chars().all(|c| (' '..='~').contains(&c)), "{line}");
        let object: Value = serde_json::from_str(&line).unwrap();
        assert_eq!((&object["level"], &object["kind"]), (&json!("warning"), &json!("note")));
        assert_eq!(
            (&object["message"], &object["time"]),
            (&json!(message), &json!("2007-11-03T14:00:00Z"))
        );
    }
}
