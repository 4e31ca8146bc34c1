//! Mistakes in text that users write, rendered with file, line, column, a caret and advice. Finds
//! none itself.

use std::ops::Range;

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};
use sluice_io::escape::{printable, printable_lines, printable_sentence};

/// One mistake in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The byte range of the mistake.
    pub span: Range<usize>,
    /// What is wrong.
    pub message: String,
    /// What to do, if known.
    pub help: Option<String>,
    /// More lines to show below, verbatim.
    pub detail: Option<String>,
}

impl Mistake {
    /// The line and the column of its start in `text`, counted from 1; columns are characters.
    pub fn position(&self, text: &str) -> (usize, usize) {
        let before = text_before(text, self.span.start);
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let column = before.get(line_start..).unwrap_or_default().chars().count() + 1;
        (line_at(text, self.span.start), column)
    }

    /// Renders the mistake with its source line and a caret, without a trailing newline. `name` is
    /// the name of the text; `color` adds ANSI escapes.
    pub fn render(&self, name: &str, text: &str, color: bool) -> String {
        let renderer = if color { Renderer::styled() } else { Renderer::plain() };
        let place = MistakeLine::new(text, &self.span);
        let caret = AnnotationKind::Primary.span(place.span);
        let source = Snippet::source(place.line).line_start(place.number).annotation(caret);
        let message = printable_sentence(&self.message);
        let help = self.help.as_deref().map(printable_sentence);
        let mut group = Level::ERROR.primary_title(message).element(source.path(printable(name)));
        if let Some(help) = help {
            group = group.element(Level::HELP.message(help));
        }
        let mut shown = renderer.render(&[group]);
        if let Some(detail) = &self.detail {
            shown = shown + "\n\n" + &printable_lines(detail.trim_end());
        }
        shown
    }
}

/// The line of this byte of a text, counted from 1.
pub fn line_at(text: &str, at: usize) -> usize {
    text_before(text, at).matches('\n').count() + 1
}

fn text_before(text: &str, at: usize) -> &str {
    text.get(..text.floor_char_boundary(at)).unwrap_or_default()
}

/// The line in which a mistake starts.
struct MistakeLine<'t> {
    line: &'t str,
    number: usize,
    /// The part of the mistake on that line: carets below one line are easier to read than a
    /// bracket around many.
    span: Range<usize>,
}

impl<'t> MistakeLine<'t> {
    fn new(text: &'t str, span: &Range<usize>) -> Self {
        let (before, after) = text.split_at(text.floor_char_boundary(span.start));
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let line_end = before.len() + after.find(['\n', '\r']).unwrap_or(after.len());
        let end = text.ceil_char_boundary(span.end).clamp(before.len(), line_end);
        let line = text.get(line_start..line_end).unwrap_or_default();
        let number = before.matches('\n').count() + 1;
        Self { line, number, span: before.len() - line_start..end - line_start }
    }
}
