//! Mistakes in conditions.

use std::ops::Range;

/// A mistake in a condition.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ConditionError {
    span: Range<usize>,
    message: String,
}

pub(super) fn error_at(span: Range<usize>, message: impl Into<String>) -> ConditionError {
    ConditionError { span, message: message.into() }
}

impl ConditionError {
    /// The message, the column, and the line of the condition with carets under the mistake.
    pub(super) fn display_in(&self, text: &str) -> String {
        /// How much of the line to show on either side.
        const AROUND: usize = 60;
        let (before, rest) = text.split_at(text.floor_char_boundary(self.span.start));
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let line_number = before.matches('\n').count() + 1;
        let line =
            |text: &str| text.lines().next().unwrap_or_default().replace(char::is_control, " ");
        let (before, rest) = (line(before.get(line_start..).unwrap_or_default()), line(rest));
        let column = before.chars().count() + 1;
        let skipped = column.saturating_sub(AROUND + 1);
        let shown_before: String = before.chars().skip(skipped).collect();
        let shown_rest: String = rest.chars().take(AROUND).collect();
        let indent = " ".repeat(column - 1 - skipped);
        let marked = text.get(self.span.clone()).unwrap_or_default().chars().count();
        let carets = "^".repeat(marked.clamp(1, shown_rest.chars().count().max(1)));
        let place = match text.contains('\n') {
            true => format!("line {line_number}, column {column}"),
            false => format!("column {column}"),
        };
        format!("at {place}: {}\n\n  {shown_before}{shown_rest}\n  {indent}{carets}", self.message)
    }
}
