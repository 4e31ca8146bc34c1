//! Command lines that cannot be understood: how that is said. Judges none.

use std::ffi::OsString;

use clap::ValueEnum;
use clap::error::ErrorKind;
use serde_json::json;

use crate::args::LogFormat;
use crate::log::{self, Level};

/// The format of the log that these arguments ask for, also where the rest of them is wrong.
pub(crate) fn log_format(arguments: &[OsString]) -> LogFormat {
    const FLAG: &str = "--log-format";
    let ours = arguments.iter().take_while(|argument| *argument != "--");
    let mut texts = ours.filter_map(|argument| argument.to_str());
    let mut format = LogFormat::Text;
    while let Some(text) = texts.next() {
        let value = match text.strip_prefix(FLAG) {
            Some("") => texts.next(),
            Some(rest) => rest.strip_prefix('='),
            None => None,
        };
        format = value.and_then(|value| LogFormat::from_str(value, false).ok()).unwrap_or(format);
    }
    format
}

/// Says what is wrong, or prints the help that was asked for.
pub(crate) fn tell(error: &clap::Error) {
    if !log::is_json() || !error.use_stderr() {
        // Nothing can be said where standard error is closed.
        drop(error.print());
        return;
    }
    let text = error.render().to_string();
    let Parts { message, hint, usage } = match error.kind() {
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            Parts { message: "a command is missing".into(), usage: text, ..Parts::default() }
        }
        _ => Parts::of(&text),
    };
    let optional = |text: String| (!text.is_empty()).then_some(text);
    let fields = json!({ "message": message, "hint": optional(hint), "usage": optional(usage) });
    log::record(Level::Error, "usage", fields);
}

/// What a rendered mistake consists of.
#[derive(Debug, Default, PartialEq, Eq)]
struct Parts {
    message: String,
    hint: String,
    usage: String,
}

impl Parts {
    fn of(text: &str) -> Self {
        let mut parts = Self::default();
        for paragraph in text.split("\n\n").map(str::trim).filter(|text| !text.is_empty()) {
            if let Some(usage) = paragraph.strip_prefix("Usage: ") {
                parts.usage = usage.to_owned();
            } else if paragraph.starts_with("tip: ") {
                let tips = paragraph.lines().map(|line| line.trim().trim_start_matches("tip: "));
                parts.hint = tips.collect::<Vec<_>>().join("; ");
            } else if !paragraph.starts_with("For more information") {
                let paragraph = paragraph.strip_prefix("error: ").unwrap_or(paragraph);
                let gap = if parts.message.is_empty() { "" } else { "\n" };
                parts.message += gap;
                parts.message += paragraph;
            }
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format(arguments: &[&str]) -> LogFormat {
        let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
        log_format(&arguments)
    }

    #[test]
    fn the_format_is_found_in_a_command_line_that_is_wrong() {
        assert_eq!(format(&["sluice", "frobnicate", "--log-format", "json"]), LogFormat::Json);
        assert_eq!(format(&["sluice", "--log-format=json", "run"]), LogFormat::Json);
        assert_eq!(format(&["sluice", "--log-format", "odd"]), LogFormat::Text);
        assert_eq!(format(&["sluice", "--", "--log-format=json"]), LogFormat::Text);
    }

    #[test]
    fn a_rendered_mistake_is_taken_apart() {
        let text = "error: unexpected argument '--fu' found\n\n  tip: a similar argument exists: '--fun'\n\n\
            Usage: sluice run --fun\n\nFor more information, try '--help'.\n";
        let parts = Parts {
            message: "unexpected argument '--fu' found".into(),
            hint: "a similar argument exists: '--fun'".into(),
            usage: "sluice run --fun".into(),
        };
        assert_eq!(Parts::of(text), parts);
    }
}
