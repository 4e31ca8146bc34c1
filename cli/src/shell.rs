//! What every command has: the plugins, and where talk goes. Data is no business of it.

use std::collections::HashSet;
use std::io::{self, IsTerminal};
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};
use sluice_core::Registry;
use sluice_core::mistake::Mistake;
use sluice_core::name::{printable_lines, printable_sentence};
use sluice_pipeline::Mistakes;
use sluice_pipeline::report::Note;

use crate::args::Color;
use crate::log::{self, Level, tell};
use crate::units;

/// What every command has.
pub struct Shell {
    /// The plugins.
    pub registry: Registry,
    /// Whether nothing is said but errors.
    pub quiet: bool,
    /// Whether every step is told.
    pub verbose: bool,
    colored: bool,
    /// The warnings that are given once, however often there is reason to.
    warned: Mutex<HashSet<String>>,
}

impl Shell {
    /// The shell of a program that was called with these options.
    pub(crate) fn new(registry: Registry, quiet: bool, color: Color) -> Self {
        let colored = match color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => terminal_with_colors(),
        };
        Self { registry, quiet, verbose: false, colored, warned: Mutex::default() }
    }

    /// Says something that is nice to know.
    pub fn say(&self, text: &str) {
        if !self.quiet {
            tell(text);
        }
    }

    /// Says what is only of interest to who looks closely; programs get it with these fields.
    pub fn detail(&self, kind: &str, text: &str, fields: Value) {
        if self.verbose && !self.quiet {
            self.put(Level::Debug, kind, text, fields);
        }
    }

    /// Warns of something that is no error.
    pub fn warn(&self, text: &str) {
        self.warn_of("message", text, json!({}));
    }

    /// Warns of something of this kind; programs get these fields beside the text.
    pub fn warn_of(&self, kind: &str, text: &str, fields: Value) {
        if !self.quiet {
            self.put(Level::Warning, kind, text, fields);
        }
    }

    /// Says what a node has to say of a run that went through.
    pub fn note(&self, note: &Note) {
        if self.quiet {
            return;
        }
        let times = if note.count > 0 {
            format!(" ({})", units::many(note.count, "time"))
        } else {
            String::new()
        };
        let text = format!("{}: {}{times}", note.node, printable_sentence(&note.what));
        let count = (note.count > 0).then_some(note.count);
        let fields = json!({ "node": note.node, "what": note.what, "count": count });
        self.put(Level::Info, "note", &text, fields);
    }

    /// Says what a run did, when it is over; programs get these fields beside the text.
    pub fn summary(&self, text: &str, fields: Value) {
        if !self.quiet {
            self.put(Level::Info, "summary", text, fields);
        }
    }

    /// Warns of something that is no error, unless that warning has been given before.
    pub fn warn_once(&self, text: &str) {
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        if warned.insert(text.to_owned()) {
            self.warn(text);
        }
    }

    /// Says what went wrong.
    pub fn error(&self, text: &str) {
        self.error_of("failure", text, json!({}));
    }

    /// Says what of this kind went wrong; programs get these fields beside the text.
    pub fn error_of(&self, kind: &str, text: &str, fields: Value) {
        self.put(Level::Error, kind, text, fields);
    }

    /// Shows the mistakes of a pipeline file.
    pub fn mistakes(&self, mistakes: &Mistakes) {
        if log::is_json() {
            let sluice_pipeline::Document { name, text, .. } = &mistakes.document;
            mistakes.list.iter().for_each(|mistake| record_mistake(mistake, name, text));
        } else {
            log::tell_colored(mistakes.render(self.colored).trim_end());
        }
    }

    /// Shows a mistake in a text that is called `name`.
    pub fn mistake(&self, mistake: &Mistake, name: &str, text: &str) {
        if log::is_json() {
            record_mistake(mistake, name, text);
        } else {
            log::tell_colored(&mistake.render(name, text, self.colored));
        }
    }

    /// Says something: as a line with its level before it, or as an object.
    fn put(&self, level: Level, kind: &str, text: &str, fields: Value) {
        if log::is_json() {
            log::record_text(level, kind, text, fields);
            return;
        }
        match (level, kind) {
            (Level::Error, _) => self.tell_painted("error:", "1;31", text),
            (Level::Warning, _) => self.tell_painted("warning:", "33", text),
            (_, "note") => self.tell_painted("note:", "36", text),
            _ => tell(text),
        }
    }

    /// Says something behind a word that stands out.
    fn tell_painted(&self, word: &str, style: &str, text: &str) {
        if self.colored {
            log::tell_colored(&format!("\x1b[{style}m{word}\x1b[0m {}", printable_lines(text)));
        } else {
            tell(&format!("{word} {text}"));
        }
    }
}

fn terminal_with_colors() -> bool {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    io::stderr().is_terminal() && !set("NO_COLOR") && !dumb
}

fn record_mistake(mistake: &Mistake, name: &str, text: &str) {
    let (line, column) = mistake.position(text);
    let Mistake { message, help, detail, .. } = mistake;
    let mut fields = json!({ "message": message, "file": name, "line": line, "column": column });
    for (key, value) in [("hint", help), ("detail", detail)] {
        if let Some(value) = value {
            fields[key] = value.as_str().into();
        }
    }
    log::record(Level::Error, "mistake", fields);
}
