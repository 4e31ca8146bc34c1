//! All mistakes of a pipeline file, shown together. Finds none itself.

use std::fmt;

use sluice_core::name::printable;

use crate::spec::Document;

/// More are counted, but not shown.
const MOST_SHOWN: usize = 100;

pub use sluice_core::mistake::Mistake;

/// All mistakes of a pipeline file, in the order in which they stand in it. There is at least one.
///
/// Displays as [`render`](Self::render) without colours.
#[derive(Clone, Debug)]
pub struct Mistakes {
    /// The file.
    pub document: Document,
    /// The mistakes, sorted by position.
    pub list: Vec<Mistake>,
}

impl Mistakes {
    /// These mistakes, sorted, each one once.
    pub fn new(document: Document, mut list: Vec<Mistake>) -> Self {
        list.sort_by_key(|mistake| (mistake.span.start, mistake.span.end));
        list.dedup();
        Self { document, list }
    }

    /// The mistakes as text with source lines and carets, and a last line that counts them. Ends with a
    /// newline. `color` adds ANSI escapes.
    pub fn render(&self, color: bool) -> String {
        let shown = self.list.iter().take(MOST_SHOWN);
        let shown = shown.map(|mistake| {
            mistake.render(&self.document.name, &self.document.text, color) + "\n\n"
        });
        shown.chain([self.count()]).collect()
    }

    fn count(&self) -> String {
        let s = if self.list.len() == 1 { "" } else { "s" };
        let all = self.list.len() <= MOST_SHOWN;
        let note = if all { String::new() } else { format!(", the first {MOST_SHOWN} are shown") };
        let name = printable(&self.document.name);
        format!("{} mistake{s} in {name}{note}\n", self.list.len())
    }
}

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}

impl std::error::Error for Mistakes {}
