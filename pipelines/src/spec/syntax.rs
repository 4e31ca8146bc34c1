//! TOML syntax errors: their messages, and how much of the surrounding text they invalidate.

use std::borrow::Cow;
use std::ops::Range;

use toml::de::{DeTable, DeValue, Error};

/// A text with more syntax errors is not a pipeline file.
pub(super) const MAX_FAULTS: usize = 20;

/// What the parser says of backslashes that begin no escape sequence.
const ESCAPE_FAULTS: [&str; 2] = ["missing escaped value", "too few unicode value digits"];

/// The message for these.
const NO_ESCAPE: &str = "a backslash in double quotes begins an escape sequence, and this is none; \
                         write `/` in paths, or use single quotes";

/// A TOML syntax error.
pub(super) struct SyntaxFault {
    pub(super) span: Range<usize>,
    pub(super) message: String,
    /// The text that cannot be checked because of it.
    pub(super) area: Range<usize>,
}

/// Blanks out unclosed lists, inline tables and strings up to the next header. For the parser they
/// reach to the end of the file, and everything in them would be a mistake.
pub(super) fn blank_unclosed(text: &str) -> (Cow<'_, str>, Vec<SyntaxFault>) {
    let (mut text, mut found) = (Cow::Borrowed(text), Vec::new());
    while let Some(broken) = (found.len() < MAX_FAULTS).then(|| unclosed(&text)).flatten() {
        text = Cow::Owned(blank(&text, &broken.area));
        found.push(broken);
    }
    (text, found)
}

/// The parser's errors, without those that follow from others.
pub(super) fn parser_faults(text: &str, errors: &[Error]) -> Vec<SyntaxFault> {
    let mut found: Vec<SyntaxFault> = Vec::new();
    for error in errors {
        let span = error.span().unwrap_or(text.len()..text.len());
        let twice = error.message() == "duplicate key";
        // The parser merges duplicate tables, whose keys then seem duplicate too.
        let known = found.iter().any(|broken| broken.area.contains(&span.start));
        let message = fault_message(text, error, &span);
        let line = |span: &Range<usize>| line_start(text, span.start);
        let is_same =
            |broken: &SyntaxFault| broken.message == message && line(&broken.span) == line(&span);
        // Each backslash of a path is an escape.
        let again = message == NO_ESCAPE && found.iter().any(is_same);
        if !(twice && known || again) {
            found.push(SyntaxFault { message, area: area(text, &span, twice), span });
        }
        // The rest is reported as one mistake; a file of nothing but errors must not take minutes.
        if found.len() > MAX_FAULTS {
            break;
        }
    }
    found
}

fn fault_message(text: &str, error: &Error, span: &Range<usize>) -> String {
    match error.message() {
        "duplicate key" => {
            format!("duplicate key `{}`", text.get(span.clone()).unwrap_or_default())
        }
        message if span.is_empty() && message.starts_with("string values must be quoted") => {
            "a value is missing".to_owned()
        }
        message if ESCAPE_FAULTS.iter().any(|fault| message.starts_with(fault)) => {
            NO_ESCAPE.to_owned()
        }
        message => message.to_owned(),
    }
}

/// A duplicate header invalidates its whole table.
fn area(text: &str, span: &Range<usize>, twice: bool) -> Range<usize> {
    let line = line_start(text, span.start);
    let is_header = text.get(line..).is_some_and(|line| line.trim_start().starts_with('['));
    if twice && is_header { line..next_header(text, span.end) } else { span.clone() }
}

/// The lines that `area` touches, with their ends.
pub(super) fn whole_lines(text: &str, area: &Range<usize>) -> Range<usize> {
    let last = area.end.saturating_sub(1).max(area.start);
    let end = text.get(last..).and_then(|rest| rest.find('\n')).map_or(text.len(), |at| last + at);
    line_start(text, area.start)..end + 1
}

fn line_start(text: &str, at: usize) -> usize {
    text.get(..at).and_then(|before| before.rfind('\n')).map_or(0, |newline| newline + 1)
}

/// The last value of the text, if the parser found no end of it.
fn unclosed(text: &str) -> Option<SyntaxFault> {
    let (table, errors) = DeTable::parse_recoverable(text);
    let unclosed = |error: &Error| {
        let at_end = error.span().is_some_and(|span| span.start >= text.trim_end().len());
        ["unclosed array,", "unclosed inline table", "invalid multi-line"]
            .iter()
            .any(|message| at_end && error.message().starts_with(message))
    };
    errors.iter().any(unclosed).then_some(())?;
    let (open, closing) = last_open(text, table.get_ref())?;
    let message = format!("unclosed value, expected `{closing}`");
    Some(SyntaxFault { span: open..open + 1, message, area: open..next_header(text, open) })
}

/// The start of the last value that may span lines, and what closes it.
fn last_open(text: &str, table: &DeTable<'_>) -> Option<(usize, &'static str)> {
    let places = table.iter().filter_map(|(_, value)| {
        let start = value.span().start;
        let closing = closing(text.get(start..)?);
        match value.get_ref() {
            // A table with a header starts at the header.
            DeValue::Table(table) if closing != Some("}") => last_open(text, table),
            _ => closing.map(|closing| (start, closing)),
        }
    });
    places.max()
}

fn closing(value: &str) -> Option<&'static str> {
    let pairs = [("[", "]"), ("{", "}"), ("\"\"\"", "\"\"\""), ("'''", "'''")];
    pairs.into_iter().find(|(open, _)| value.starts_with(open)).map(|(_, close)| close)
}

/// The start of the next line that looks like `[group.name]`, or the end of the text.
fn next_header(text: &str, from: usize) -> usize {
    let rest = text.get(from..).unwrap_or_default();
    let mut at = from;
    for line in rest.split_inclusive('\n') {
        if at > from && is_header(line) {
            return at;
        }
        at += line.len();
    }
    text.len()
}

fn is_header(line: &str) -> bool {
    let inside = line.split('#').next().unwrap_or_default().trim();
    let inside = inside.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    inside.is_some_and(|inside| {
        let name = inside.trim_start_matches('[');
        name.starts_with(|c: char| c.is_ascii_alphabetic())
            && name.contains('.')
            && !name.contains([',', '=', '{'])
    })
}

/// The text with a zero and spaces in place of `area`, which keeps all positions.
fn blank(text: &str, area: &Range<usize>) -> String {
    let (before, rest) = text.split_at(area.start);
    let (blanked, after) = rest.split_at(area.end - area.start);
    let spaces = blanked.bytes().skip(1).map(|byte| if byte == b'\n' { '\n' } else { ' ' });
    before.chars().chain(['0']).chain(spaces).chain(after.chars()).collect()
}
