//! What the program says on standard error: lines for people, or JSON objects for programs.
//!
//! Standard error belongs to the whole process, also to a panic and to a thread that hears signals, so its
//! format does, too. What is worth saying is decided by others.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use sluice_core::name::{json_escaped, printable_lines};
use sluice_core::time;

use crate::args::LogFormat;

/// How much a line matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// The command failed, or something it was asked for is wrong.
    Error,
    /// Something was lost, or is likely to be a mistake.
    Warning,
    /// What is nice to know.
    Info,
    /// What is said with `--verbose` only.
    Debug,
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Info => "info",
            Self::Debug => "debug",
        }
    }
}

static IS_JSON: AtomicBool = AtomicBool::new(false);

/// Sets the format of everything that this process says from now on.
pub(crate) fn set_format(format: LogFormat) {
    let before = IS_JSON.swap(format == LogFormat::Json, Ordering::Relaxed);
    if format == LogFormat::Json && !before {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if is_json() {
                record(Level::Error, "panic", json!({ "message": panic.to_string() }));
            } else {
                hook(panic);
            }
        }));
    }
}

/// Whether every line is a JSON object.
pub fn is_json() -> bool {
    IS_JSON.load(Ordering::Relaxed)
}

/// Says something that is of no particular kind.
pub fn tell(text: &str) {
    if is_json() {
        record(Level::Info, "message", json!({ "message": text }));
    } else {
        write(&printable_lines(text));
    }
}

/// Writes text for people that has colours, and nothing else that a terminal would obey.
pub(crate) fn tell_colored(text: &str) {
    write(text);
}

/// Writes an object with these fields to standard error, as one line.
pub(crate) fn record(level: Level, kind: &str, fields: Value) {
    write(&line(&now(), level, kind, fields));
}

/// Writes an object with these fields to standard error, as one line: a text for people, and then the
/// fields.
pub fn record_text(level: Level, kind: &str, text: &str, fields: Value) {
    let mut all = json!({ "message": text });
    if let (Some(all), Value::Object(fields)) = (all.as_object_mut(), fields) {
        all.extend(fields);
    }
    record(level, kind, all);
}

/// Writes the progress of a run: alone, or as one of the objects of the log.
pub(crate) fn progress(fields: Value) {
    if is_json() {
        record(Level::Info, "progress", fields);
    } else {
        write(&fields.to_string());
    }
}

/// Writes a line to standard error. Where that is closed, nobody is there to be told.
fn write(text: &str) {
    drop(writeln!(io::stderr().lock(), "{text}"));
}

fn line(time: &str, level: Level, kind: &str, fields: Value) -> String {
    // What every line has comes first, for people who look at it.
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
    fn a_line_is_one_object_whatever_is_said() {
        let said = "a \"quote\"\nand \u{1b}[31m \u{202e}txt";
        let line = line("2007-11-03T14:00:00Z", Level::Warning, "note", json!({ "message": said }));
        assert!(line.chars().all(|c| (' '..='~').contains(&c)), "{line}");
        let object: Value = serde_json::from_str(&line).unwrap();
        assert_eq!((&object["level"], &object["kind"]), (&json!("warning"), &json!("note")));
        assert_eq!(
            (&object["message"], &object["time"]),
            (&json!(said), &json!("2007-11-03T14:00:00Z"))
        );
    }
}
