//! Text and JSON on standard output, escaped so that names from logs and pipeline files cannot
//! control a terminal; in an embedded verb, for its caller. Event data is written elsewhere,
//! unescaped.

use std::io::{self, Write};

use sluice_io::escape::{json_escaped, printable, printable_lines};

use crate::shell::Shell;

/// Prints lines of text. Names in it must already be [`printable`], so that none spans several
/// lines.
pub(crate) fn text(text: &str, shell: &Shell) -> io::Result<()> {
    match shell.embedding() {
        Some(embedding) => embedding.print(text),
        None => io::stdout().write_all(printable_lines(text).as_bytes())?,
    }
    Ok(())
}

/// Prints JSON on a line. Escaping does not change its meaning.
pub(crate) fn json(json: &str, shell: &Shell) -> io::Result<()> {
    text(&(json_escaped(json).into_owned() + "\n"), shell)
}

/// A path, escaped for use within a line.
pub(crate) fn printable_path(path: &std::path::Path) -> String {
    printable(&path.to_string_lossy()).into_owned()
}
