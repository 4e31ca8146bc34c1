//! Mistakes in a pipeline file, and how they are shown: file, line, column, a caret and what to do.
//! Finds none itself.

use std::fmt;
use std::ops::Range;

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};

use crate::spec::Document;

/// More are counted, but not shown.
const MOST_SHOWN: usize = 100;

/// One mistake in a pipeline file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The bytes of the text it is about.
    pub span: Range<usize>,
    /// What is wrong.
    pub message: String,
    /// What to do, where that is known.
    pub help: Option<String>,
}

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
        let renderer = if color { Renderer::styled() } else { Renderer::plain() };
        let shown = self.list.iter().take(MOST_SHOWN);
        let shown = shown.map(|mistake| self.show(mistake, &renderer) + "\n\n");
        shown.chain([self.count()]).collect()
    }

    fn show(&self, mistake: &Mistake, renderer: &Renderer) -> String {
        let place = Place::of(&self.document.text, &mistake.span);
        let caret = AnnotationKind::Primary.span(place.span);
        let source = Snippet::source(place.line).line_start(place.number).annotation(caret);
        let source = source.path(&self.document.name);
        let mut group = Level::ERROR.primary_title(&mistake.message).element(source);
        if let Some(help) = &mistake.help {
            group = group.element(Level::HELP.message(help));
        }
        renderer.render(&[group])
    }

    fn count(&self) -> String {
        let s = if self.list.len() == 1 { "" } else { "s" };
        let all = self.list.len() <= MOST_SHOWN;
        let note = if all { String::new() } else { format!(", the first {MOST_SHOWN} are shown") };
        format!("{} mistake{s} in {}{note}\n", self.list.len(), self.document.name)
    }
}

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}

impl std::error::Error for Mistakes {}

/// The line in which a mistake begins.
struct Place<'t> {
    line: &'t str,
    number: usize,
    /// What of the mistake is on that line: carets below one line are easier to read than a bracket
    /// around many.
    span: Range<usize>,
}

impl<'t> Place<'t> {
    fn of(text: &'t str, span: &Range<usize>) -> Self {
        let (before, after) = text.split_at(text.floor_char_boundary(span.start));
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let line_end = before.len() + after.find(['\n', '\r']).unwrap_or(after.len());
        let end = text.ceil_char_boundary(span.end).clamp(before.len(), line_end);
        let line = text.get(line_start..line_end).unwrap_or_default();
        let number = before.matches('\n').count() + 1;
        Self { line, number, span: before.len() - line_start..end - line_start }
    }
}
