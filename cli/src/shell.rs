//! The context of every command: the plugin registry, and messages to the user. Does not write
//! data.

use std::collections::HashSet;
use std::io::{self, IsTerminal};
use std::sync::{Arc, Mutex, PoisonError};

use clap::ValueEnum;
use serde_json::{Value, json};
use sluice_io::escape::{printable_lines, printable_sentence};
use sluice_kit::mistake::Mistake;
use sluice_model::{Registry, units};
use sluice_pipeline::Mistakes;
use sluice_pipeline::report::Note;
use sluice_pipeline::run::Stop;

use crate::embedding::Embedding;
use crate::log::{self, Level, log_message};

/// When to use colors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// On a terminal, unless NO_COLOR is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// The context of a command.
pub struct Shell {
    /// The linked plugins.
    pub registry: Registry,
    /// Whether only errors are printed.
    pub quiet: bool,
    /// Whether details are printed.
    pub verbose: bool,
    colored: bool,
    /// The warnings that [`warn_once`](Self::warn_once) has printed.
    warned: Mutex<HashSet<String>>,
    /// Receives all messages, if the verb is embedded.
    embedding: Option<Arc<Embedding>>,
}

impl Shell {
    /// Creates the context from the global options.
    pub(crate) fn new(registry: Registry, quiet: bool, color: Color) -> Self {
        let colored = match color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => stderr_takes_colors(),
        };
        Self { registry, quiet, verbose: false, colored, warned: Mutex::default(), embedding: None }
    }

    /// Creates the context of an embedded verb.
    pub(crate) fn embedded(registry: Registry, embedding: &Arc<Embedding>) -> Self {
        let embedding = Some(Arc::clone(embedding));
        Self { embedding, ..Self::new(registry, false, Color::Never) }
    }

    /// Where messages go, if the verb is embedded.
    pub(crate) fn embedding(&self) -> Option<&Arc<Embedding>> {
        self.embedding.as_ref()
    }

    /// What stops runs from outside.
    pub(crate) fn stop(&self) -> Arc<Stop> {
        self.embedding.as_ref().map(|embedding| Arc::clone(&embedding.stop)).unwrap_or_default()
    }

    /// Prints a message.
    pub fn info(&self, text: &str) {
        if !self.quiet {
            self.log(Level::Info, "message", text, json!({}));
        }
    }

    /// Prints a message with `--verbose` only. `fields` are added in JSON.
    pub fn detail(&self, kind: &str, text: &str, fields: Value) {
        if self.verbose && !self.quiet {
            self.log(Level::Debug, kind, text, fields);
        }
    }

    /// Prints a warning.
    pub fn warn(&self, text: &str) {
        self.warn_with_fields("message", text, json!({}));
    }

    /// Prints a warning. `kind` and `fields` are added in JSON.
    pub fn warn_with_fields(&self, kind: &str, text: &str, fields: Value) {
        if !self.quiet {
            self.log(Level::Warning, kind, text, fields);
        }
    }

    /// Prints a note of a node.
    pub fn note(&self, note: &Note) {
        self.note_at(&note.node, note);
    }

    /// Prints a note of a node on what is at `place`, as people call it.
    pub fn note_at(&self, place: &str, note: &Note) {
        if !self.quiet {
            self.log(Level::Info, "note", &note_text(place, note), note_fields(note));
        }
    }

    /// Prints the summary of a run. `fields` are added in JSON.
    pub fn summary(&self, text: &str, fields: Value) {
        if !self.quiet {
            self.log(Level::Info, "summary", text, fields);
        }
    }

    /// Prints a warning unless the same was printed before.
    pub fn warn_once(&self, text: &str) {
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        if warned.insert(text.to_owned()) {
            self.warn(text);
        }
    }

    /// Prints an error.
    pub fn error(&self, text: &str) {
        self.error_with_fields("failure", text, json!({}));
    }

    /// Prints an error. `kind` and `fields` are added in JSON.
    pub fn error_with_fields(&self, kind: &str, text: &str, fields: Value) {
        self.log(Level::Error, kind, text, fields);
    }

    /// Prints the mistakes in a pipeline file.
    pub fn mistakes(&self, mistakes: &Mistakes) {
        if let Some(embedding) = &self.embedding {
            embedding.add_message(Level::Error, "mistakes", &mistakes.to_string(), json!({}));
        } else if log::is_json() {
            let sluice_pipeline::Document { name, text, .. } = &mistakes.document;
            mistakes.list.iter().for_each(|mistake| log_mistake_json(mistake, name, text));
        } else {
            log::log_colored(mistakes.render(self.colored).trim_end());
        }
    }

    /// Prints a mistake in a text called `name`.
    pub fn mistake(&self, mistake: &Mistake, name: &str, text: &str) {
        if let Some(embedding) = &self.embedding {
            let rendered = mistake.render(name, text, false);
            embedding.add_message(Level::Error, "mistake", &rendered, json!({}));
        } else if log::is_json() {
            log_mistake_json(mistake, name, text);
        } else {
            log::log_colored(&mistake.render(name, text, self.colored));
        }
    }

    /// Prints a message: as a line with a label, or as a JSON object.
    fn log(&self, level: Level, kind: &str, text: &str, fields: Value) {
        if let Some(embedding) = &self.embedding {
            embedding.add_message(level, kind, text, fields);
            return;
        }
        if log::is_json() {
            log::log_json_message(level, kind, text, fields);
            return;
        }
        match (level, kind) {
            (Level::Error, _) => self.print_labelled("error:", "1;31", text),
            (Level::Warning, _) => self.print_labelled("warning:", "33", text),
            (_, "note") => self.print_labelled("note:", "36", text),
            _ => log_message(text),
        }
    }

    /// Prints a message with a colored label.
    fn print_labelled(&self, word: &str, style: &str, text: &str) {
        if self.colored {
            log::log_colored(&format!("\x1b[{style}m{word}\x1b[0m {}", printable_lines(text)));
        } else {
            log_message(&format!("{word} {text}"));
        }
    }
}

fn stderr_takes_colors() -> bool {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    io::stderr().is_terminal() && !set("NO_COLOR") && !dumb
}

fn log_mistake_json(mistake: &Mistake, name: &str, text: &str) {
    let (line, column) = mistake.position(text);
    let Mistake { message, help, detail, .. } = mistake;
    let mut fields = json!({ "message": message, "file": name, "line": line, "column": column });
    for (key, value) in [("hint", help), ("detail", detail)] {
        if let Some(value) = value {
            fields[key] = value.as_str().into();
        }
    }
    log::log_json(Level::Error, "mistake", fields);
}

/// The line of a note on the terminal.
pub(crate) fn note_text(place: &str, note: &Note) -> String {
    let times = match note.count {
        0 => String::new(),
        count => format!(" ({})", units::pluralize(count, "time")),
    };
    format!("{place}: {}{times}", printable_sentence(&note.what))
}

/// A note as fields of a message.
pub(crate) fn note_fields(note: &Note) -> Value {
    let count = (note.count > 0).then_some(note.count);
    json!({ "node": note.node, "what": note.what, "count": count })
}
