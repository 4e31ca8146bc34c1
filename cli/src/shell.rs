//! What every command has: the plugins, and where talk goes. Data is no business of it.

use std::io::{self, IsTerminal, Write};

use sluice_core::Registry;
use sluice_pipeline::Mistakes;

use crate::args::Color;

/// What every command has.
pub(crate) struct Shell {
    /// The plugins.
    pub(crate) registry: Registry,
    /// Whether nothing is said but errors.
    pub(crate) quiet: bool,
    colored: bool,
}

impl Shell {
    /// The shell of a program that was called with these options.
    pub(crate) fn new(registry: Registry, quiet: bool, color: Color) -> Self {
        let colored = match color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => terminal_with_colors(),
        };
        Self { registry, quiet, colored }
    }

    /// Says something that is nice to know.
    pub(crate) fn say(&self, text: &str) {
        if !self.quiet {
            tell(text);
        }
    }

    /// Warns of something that is no error.
    pub(crate) fn warn(&self, text: &str) {
        self.say(&format!("{} {text}", self.painted("warning:", "1;33")));
    }

    /// Says what went wrong.
    pub(crate) fn error(&self, text: &str) {
        tell(&format!("{} {text}", self.painted("error:", "1;31")));
    }

    /// Shows the mistakes of a pipeline file.
    pub(crate) fn mistakes(&self, mistakes: &Mistakes) {
        tell(mistakes.render(self.colored).trim_end());
    }

    /// Shows a mistake in a text that is called `name`.
    #[cfg(feature = "query")]
    pub(crate) fn mistake(&self, mistake: &sluice_core::mistake::Mistake, name: &str, text: &str) {
        tell(&mistake.render(name, text, self.colored));
    }

    fn painted(&self, text: &str, style: &str) -> String {
        if self.colored { format!("\x1b[{style}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

fn terminal_with_colors() -> bool {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    io::stderr().is_terminal() && !set("NO_COLOR") && !dumb
}

/// Writes a line to standard error. Where that is closed, nobody is there to be told.
pub(crate) fn tell(text: &str) {
    drop(writeln!(io::stderr().lock(), "{text}"));
}
