//! Text and JSON on standard output, escaped so that names from logs and pipeline files cannot
//! control a terminal. Event data is written elsewhere, unescaped.

use std::io::{self, Write};

use sluice_io::escape::{json_escaped, printable, printable_lines};

/// Prints lines of text. Names in it must already be [`printable`], so that none spans several
/// lines.
pub(crate) fn text(text: &str) -> io::Result<()> {
    io::stdout().write_all(printable_lines(text).as_bytes())
}

/// Prints JSON on a line. Escaping does not change its meaning.
pub(crate) fn json(json: &str) -> io::Result<()> {
    writeln!(io::stdout(), "{}", json_escaped(json))
}

/// A path, escaped for use within a line.
pub(crate) fn printable_path(path: &std::path::Path) -> String {
    printable(&path.to_string_lossy()).into_owned()
}
