//! Names in messages.

use sluice_io::escape::{escaped, printable};

/// A name from a file in printable form.
pub(crate) fn display_name(name: &[u8]) -> String {
    printable(&escaped(name)).into_owned()
}
