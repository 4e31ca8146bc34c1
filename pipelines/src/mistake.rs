//! All mistakes in a pipeline file, rendered together. Finds none itself.

use std::fmt;

use sluice_io::escape::printable;

use crate::spec::Document;

/// Further mistakes are counted, not shown.
const MAX_SHOWN: usize = 100;

pub use sluice_kit::mistake::Mistake;

/// All mistakes in a pipeline file, by position. At least one.
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
    /// Sorts and deduplicates these mistakes.
    pub fn new(document: Document, mut list: Vec<Mistake>) -> Self {
        list.sort_by_key(|mistake| (mistake.span.start, mistake.span.end));
        list.dedup();
        Self { document, list }
    }

    /// Renders the mistakes with source lines and carets, and a final line that counts them. Ends
    /// with a newline. `color` adds ANSI escapes.
    pub fn render(&self, color: bool) -> String {
        let shown = self.list.iter().take(MAX_SHOWN);
        let shown = shown.map(|mistake| {
            mistake.render(&self.document.name, &self.document.text, color) + "\n\n"
        });
        shown.chain([self.count()]).collect()
    }

    fn count(&self) -> String {
        let s = if self.list.len() == 1 { "" } else { "s" };
        let all = self.list.len() <= MAX_SHOWN;
        let note = if all { String::new() } else { format!(", the first {MAX_SHOWN} are shown") };
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
