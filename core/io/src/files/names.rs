//! What the names of files alone say.

use std::path::Path;

/// The end of the names of temporary files.
pub const TEMPORARY: &str = ".sluice-tmp";

/// What is wrong with a path that is not text, where it is to become an option, and what to do.
pub const NOT_UTF8: &str =
    "is not UTF-8, and options are text: rename the file, or make a link with another name";

/// Whether this is the name of a temporary file, not of an output.
pub fn is_litter(name: &str) -> bool {
    name.starts_with('.') && name.ends_with(TEMPORARY)
}

/// Whether a path is a name of standard input.
pub fn is_standard_input(path: &Path) -> bool {
    ["-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"].iter().any(|name| path == Path::new(name))
}

/// Whether a path is a name of standard output.
pub fn is_standard_output(path: &Path) -> bool {
    ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"].iter().any(|name| path == Path::new(name))
}
