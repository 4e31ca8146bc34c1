//! Standard output for people and programs: text and JSON in which nothing that a log, a file's
//! name or a pipeline file says can control a terminal. Data that has to stay as it is does not
//! come this way.

use std::io::{self, Write};

use sluice_core::name::{json_escaped, printable, printable_lines};

/// Prints lines of text. Names in it are [`printable`] by themselves, so that none of them is
/// several lines.
pub(crate) fn text(text: &str) -> io::Result<()> {
    io::stdout().write_all(printable_lines(text).as_bytes())
}

/// Prints JSON, and ends the line. It means the same, whatever is spelled out in it.
pub(crate) fn json(json: &str) -> io::Result<()> {
    writeln!(io::stdout(), "{}", json_escaped(json))
}

/// A path as a part of a line.
pub(crate) fn path(path: &std::path::Path) -> String {
    printable(&path.to_string_lossy()).into_owned()
}
